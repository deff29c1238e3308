package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// address looks whether a server could listen where it is to, or does so already.
func (d *doctor) address(ctx context.Context) []finding {
	const name = "listen"
	at := d.loaded.Listen
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", at)
	switch {
	case err == nil:
		if err := l.Close(); err != nil {
			return []finding{broken(name, err.Error(), "try again")}
		}
		return []finding{fine(name, at+" is free")}
	case !errors.Is(err, syscall.EADDRINUSE):
		return []finding{broken(name, fmt.Sprintf("%s cannot be listened on: %v", at, err), "choose another address with listen")}
	}
	c, err := client.New(client.Options{URL: "http://" + reachable(at), UserAgent: "parley-cli/" + buildVersion()})
	if err != nil {
		return refused(name, err)
	}
	r, err := c.Readiness(ctx)
	if err != nil {
		return []finding{broken(name, at+" is taken, and not by a Parley that answers: "+classify(err).text, "stop what is there, or choose another address with listen")}
	}
	return []finding{judgeServer(name, at+" is served by a Parley already", r)}
}

// reachable is where a server that listens at address is asked from this machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if err == nil && ip.Is6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}

// judgeServer says what a server says of itself.
func judgeServer(name, where string, r client.Readiness) finding {
	said := []string{where + ": " + r.Status}
	if len(r.Roles) > 0 {
		said[0] += ", roles " + strings.Join(r.Roles, ", ")
	}
	for _, part := range slices.Sorted(maps.Keys(r.Checks)) {
		if how := r.Checks[part]; how != "ok" {
			said = append(said, part+": "+how)
		}
	}
	text := strings.Join(said, "; ")
	if !r.Ready() {
		return broken(name, text, "the log of the server says more")
	}
	if len(said) > 1 {
		return odd(name, text, "the log of the server says more")
	}
	return fine(name, text)
}

// runningServer looks at the server that the other commands would talk to, and at
// its agents as it sees them.
func (d *doctor) runningServer(ctx context.Context) []finding {
	const name = "server"
	to, err := d.a.target()
	if err != nil {
		f := classify(err)
		if f.exit != exitUnreachable {
			return refused(name, err)
		}
		d.skip("server", f.text)
		d.skip("agents", "without --config or a server nobody knows them")
		return d.address(ctx)
	}
	c, err := client.New(client.Options{URL: to.url, Key: to.key, UserAgent: "parley-cli/" + buildVersion()})
	if err != nil {
		return refused(name, err)
	}
	if !to.key.IsZero() {
		d.redactor.Add(to.key)
	}
	r, err := c.Readiness(ctx)
	if err != nil {
		f := classify(err)
		if f.hint == "" {
			f.hint = "check the address of --url, --context or PARLEY_URL"
		}
		d.skip("agents", "the server that knows them does not answer")
		return []finding{broken(name, f.text, f.hint)}
	}
	d.skip("listen", "a server runs at "+c.URL())
	return append([]finding{judgeServer(name, c.URL(), r)}, d.knownAgents(ctx, c)...)
}

// knownAgents asks the server how its agents do; nobody calls them for that.
func (d *doctor) knownAgents(ctx context.Context, c *client.Client) []finding {
	page, err := c.AgentConditions(ctx, client.AgentQuery{Status: parley.AgentActive, Page: client.PageQuery{Size: maxAgentsShown}})
	if err != nil {
		f := classify(err)
		return []finding{broken("agents", f.text, f.hint)}
	}
	if more := page.Total - len(page.Items); more > 0 {
		d.skip("agents", plural(more, "more agent")+" of the server; parley agent health lists them")
	}
	var found []finding
	for _, h := range page.Items {
		found = append(found, judgeCondition(h))
	}
	return found
}

// maxAgentsShown bounds the agents of a server that are told of.
const maxAgentsShown = 100

// judgeCondition says how an agent does by what its server has seen.
func judgeCondition(h client.AgentCondition) finding {
	name := "agent " + h.Agent
	text := string(h.Status)
	if h.Message != "" {
		text += ": " + h.Message
	}
	switch {
	case h.Circuit == parley.CircuitOpen:
		return odd(name, text+"; its circuit is open", "parley agent breaker "+h.Agent)
	case h.Status == parley.HealthUnhealthy:
		return broken(name, text, "parley agent check "+h.Agent)
	case h.Status != parley.HealthHealthy:
		return odd(name, text, "parley agent check "+h.Agent)
	}
	return fine(name, text)
}
