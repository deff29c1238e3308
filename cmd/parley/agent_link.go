package main

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
)

// isAgentURL reports whether an argument is where an agent is, and not a file.
func isAgentURL(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://") || isAgentLink(arg)
}

// isAgentLink reports whether an agent is a program or a WebSocket endpoint.
// Neither has a card: what they speak is said, not found out.
func isAgentLink(arg string) bool {
	return strings.HasPrefix(arg, "stdio:") || strings.HasPrefix(arg, "ws://") || strings.HasPrefix(arg, "wss://")
}

// agentAddLink registers an agent that is a program or a WebSocket endpoint.
func (a *app) agentAddLink(cmd *cobra.Command, address string, f agentFlags) error {
	name := f.name
	if strings.HasPrefix(address, "stdio:") {
		if name == "" {
			return usagef("a program says nothing about itself: give the agent a name with --name")
		}
	} else {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" {
			return usagef("the agent's URL cannot be read")
		}
		if u.User != nil {
			return usagef("the agent's URL must not hold a user or password: use --auth and --auth-secret")
		}
		name = cmp.Or(name, slug(hostOf(u)))
	}
	spec, err := a.agentSpec(&f, cmd.Flags().Changed)
	if err != nil {
		return err
	}
	spec.URL, spec.Name = &address, &name
	if spec.Protocol == nil {
		spec.Protocol = new(parley.ProtocolJSONRPC)
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	g, err := c.AddAgent(cmd.Context(), spec)
	if err != nil {
		return taken(err, name)
	}
	return a.showAgent(g)
}
