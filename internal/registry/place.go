package registry

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// stdioScheme begins the URL of an agent that is a program on this machine:
// stdio:PROGRAM ARGUMENTS.
const stdioScheme = "stdio:"

// isStdio reports whether raw names a program.
func isStdio(raw string) bool {
	return len(raw) >= len(stdioScheme) && strings.EqualFold(raw[:len(stdioScheme)], stdioScheme)
}

// normalStdio gives the URL of a program as it is stored. Its words are divided
// by blanks, which 'single' and "double" quotes keep together; no shell is
// involved.
func normalStdio(raw string, f *faults) string {
	command := strings.TrimSpace(raw[len(stdioScheme):])
	switch {
	case len(raw) > maxURL:
		f.add("url", faultLimit, "must have at most %d bytes", maxURL)
	case !utf8.ValidString(raw) || strings.ContainsFunc(command, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }):
		f.add("url", faultValue, "must name the program in one line of text")
	case command == "" || strings.HasPrefix(command, `""`) || strings.HasPrefix(command, "''"):
		f.add("url", faultValue, "must name a program after stdio:, such as stdio:python agent.py")
	case !quotesPair(command):
		f.add("url", faultValue, "must not hold a quote without its partner")
	default:
		return stdioScheme + command
	}
	return raw
}

// quotesPair reports whether every quote of a command has its partner. Within
// double quotes \" and \\ stand for the second character.
func quotesPair(command string) bool {
	var quote byte
	for i := 0; i < len(command); i++ {
		c := command[i]
		switch {
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0:
		case c == quote:
			quote = 0
		case c == '\\' && quote == '"' && i+1 < len(command) && (command[i+1] == '"' || command[i+1] == '\\'):
			i++
		}
	}
	return quote == 0
}

// checkPlace reports what does not go together: where the agent is, what it
// speaks, and how it is authenticated against. Programs and WebSocket endpoints
// speak JSON-RPC alone, and a program takes its credentials from environment
// variables.
func checkPlace(agent parley.Agent, auth parley.AuthType, f *faults) {
	program := isStdio(agent.URL)
	socket := strings.HasPrefix(agent.URL, "ws:") || strings.HasPrefix(agent.URL, "wss:")
	if (program || socket) && agent.Protocol != parley.ProtocolJSONRPC {
		f.add("url", faultValue, "must begin with http:// or https:// for protocol %s; stdio:, ws:// and wss:// are for %s",
			shown(agent.Protocol), parley.ProtocolJSONRPC)
	}
	if !program {
		return
	}
	switch auth {
	case "", parley.AuthNone, parley.AuthHeader, parley.AuthHeaders, parley.AuthAPIKey:
	default:
		f.add("auth.type", faultValue, "must be none, or header or headers with names of environment variables, for a program")
	}
}
