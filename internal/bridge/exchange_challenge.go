package bridge

import (
	"net/http"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

const (
	// maxSchemes and maxSchemeName bound what is repeated of a challenge.
	maxSchemes    = 4
	maxSchemeName = 32 // bytes
)

// challenge is what an agent asks for with WWW-Authenticate (RFC 9110 §11.6.1).
type challenge struct {
	schemes []string
	// code is the error of RFC 6750 §3.1, or "".
	code string
}

// readChallenge reads the names of schemes and an error, and nothing else: the
// rest is for machines or not to be repeated.
func readChallenge(h http.Header) challenge {
	var c challenge
	for _, line := range h.Values("Www-Authenticate") {
		for _, piece := range splitQuoted(line) {
			word, rest, _ := strings.Cut(strings.TrimSpace(piece), " ")
			if !strings.Contains(word, "=") {
				if isWord(word) && len(c.schemes) < maxSchemes && !slices.Contains(c.schemes, word) {
					c.schemes = append(c.schemes, word)
				}
				word = strings.TrimSpace(rest)
			}
			name, value, _ := strings.Cut(word, "=")
			value = strings.Trim(strings.TrimSpace(value), `"`)
			if strings.EqualFold(strings.TrimSpace(name), "error") && isWord(value) {
				c.code = value
			}
		}
	}
	return c
}

// splitQuoted splits at commas that are not within quotes.
func splitQuoted(s string) []string {
	var pieces []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ',' && !quoted:
			pieces = append(pieces, s[start:i])
			start = i + 1
		}
	}
	return append(pieces, s[min(start, len(s)):])
}

func isWord(s string) bool {
	return s != "" && len(s) <= maxSchemeName && validName(s)
}

// unauthorized says for an answer 401 or 403 what the agent asks for and what
// to check.
func (e *errand) unauthorized(status int, h http.Header) string {
	c := readChallenge(h)
	asked := ""
	if len(c.schemes) > 0 {
		asked = "; the agent asks for " + strings.Join(c.schemes, " or ") + " authentication"
	}
	if c.code != "" {
		asked += " (" + c.code + ")"
	}
	kind := e.agent.Auth.Type
	switch {
	case status == http.StatusForbidden:
		return asked + "; it does not allow this call: check what the credential of its record may do"
	case kind == "" || kind == parley.AuthNone:
		return asked + "; its record has no authentication: give it one with auth"
	case kind == parley.AuthOAuth2:
		return asked + "; a new access token was not accepted either: check auth.scopes and auth.audience of its record"
	case kind == parley.AuthMTLS:
		return asked + "; its record has auth type mtls: check tls.cert, or give auth another type"
	case len(c.schemes) > 0 && !slices.ContainsFunc(c.schemes, func(s string) bool { return suits(kind, s) }):
		return asked + "; its record has auth type " + string(kind) + ": check auth.type"
	}
	return asked + "; check the credential that its record names (auth type " + string(kind) + ")"
}

// suits reports whether a kind of authentication may be what a scheme asks for.
func suits(kind parley.AuthType, scheme string) bool {
	switch kind {
	case parley.AuthBearer:
		return strings.EqualFold(scheme, "Bearer")
	case parley.AuthBasic:
		return strings.EqualFold(scheme, "Basic")
	case parley.AuthAPIKey:
		return !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "Basic")
	}
	return true // a header may hold anything
}
