package agentcard

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
)

// The bindings and dialects of A2A that are spoken here.
const (
	JSONRPC = "JSONRPC"
	REST    = "HTTP+JSON"
	GRPC    = "GRPC"

	V03 = "0.3"
	V10 = "1.0"
)

// candidate is an interface that can be called. Its Version is "" if the card
// does not say and a probe has to.
type candidate struct {
	parley.DetectedInterface
	number int
}

func (c candidate) String() string {
	return fmt.Sprintf("interface %d (%s %s)", c.number, c.Binding, cmp.Or(c.Version, "without a version"))
}

// chooser picks an interface of a card.
type chooser struct {
	card Card
	pins Pins
	// agent is the URL that was registered; base is what relative URLs of the
	// card are relative to.
	agent, base *url.URL
	lines       []string
}

func (c *chooser) say(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

// choose gives the interfaces that can be called, the best one first, with the
// pins of the operator in them. Without any the lines say why.
func (c *chooser) choose() []candidate {
	var usable []candidate
	for n, i := range c.card.Interfaces {
		if one, ok := c.judge(n+1, i); ok {
			usable = append(usable, one)
		}
	}
	if c.pins.Version != "" && !slices.ContainsFunc(usable, func(u candidate) bool { return u.Version == c.pins.Version }) {
		for n := range usable {
			c.say("%s is called in A2A %s: protocol_config.a2a goes before the card", usable[n], c.pins.Version)
			usable[n].Version = c.pins.Version
		}
	}
	slices.SortStableFunc(usable, func(a, b candidate) int {
		return cmp.Or(rank(b, c.pins)-rank(a, c.pins), cmp.Compare(b.Version, a.Version))
	})
	if c.pins.URL != "" && len(usable) > 0 {
		c.pinURL(usable)
	}
	if c.pins.HasTenant {
		for n := range usable {
			usable[n].Tenant = c.pins.Tenant
		}
	}
	return usable
}

// rank puts what was pinned before the rest.
func rank(c candidate, p Pins) int {
	n := 0
	if p.Version != "" && c.Version == p.Version {
		n += 2
	}
	if p.URL != "" && c.URL == p.URL {
		n++
	}
	return n
}

// pinURL replaces the addresses of the card. What is left is one interface a
// dialect and binding.
func (c *chooser) pinURL(usable []candidate) {
	if usable[0].URL != c.pins.URL {
		c.say("protocol_config.url goes before the card's address %s", usable[0].URL)
	}
	for n := range usable {
		usable[n].URL = c.pins.URL
	}
}

// judge says whether an interface can be called, and if not, why.
func (c *chooser) judge(number int, i Interface) (candidate, bool) {
	out := candidate{number: number, DetectedInterface: parley.DetectedInterface{Binding: i.Binding, Version: i.Version, Tenant: i.Tenant}}
	not := func(format string, args ...any) (candidate, bool) {
		c.say("%s not taken: "+format, append([]any{out}, args...)...)
		return out, false
	}
	if c.pins.Binding != "" && i.Binding != c.pins.Binding {
		return not("protocol_config.binding is %s", c.pins.Binding)
	}
	switch i.Binding {
	case JSONRPC, REST, GRPC:
	default:
		return not("this binding is not spoken here")
	}
	version, known := dialect(i.Version)
	switch {
	case !known && c.pins.Version == "":
		return not("this version is not spoken here, only 0.2, 0.3 and 1.x")
	case !known:
		version = c.pins.Version
	case version == "" && c.pins.Version != "":
		version = c.pins.Version
	case version == "" && i.Binding != JSONRPC && c.card.Modern:
		version = V10
	}
	if i.Binding != JSONRPC && version != V10 && c.pins.Version != V10 {
		return not("%s is spoken here in A2A 1.0 only", i.Binding)
	}
	out.Version = version
	address, fault := c.address(i)
	if fault != "" && c.pins.URL == "" {
		return not("%s", fault)
	}
	out.URL = address
	return out, true
}

// dialect gives the dialect that a protocol version is spoken in, "" for a
// version that is not given.
func dialect(version string) (string, bool) {
	if version == "" {
		return "", true
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	switch n, err := strconv.Atoi(minor); {
	case major == "1":
		return V10, true
	case major == "0" && err == nil && (n == 2 || n == 3):
		return V03, true
	}
	return "", false
}

// address gives where an interface is called, or why not there.
func (c *chooser) address(i Interface) (address, fault string) {
	u, fault := c.resolve(i)
	if fault != "" {
		return "", fault
	}
	own := c.agent.Hostname()
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() {
		c.say("%s in the card is no address to call: %s takes its place", ip, own)
		u.Host = withPort(own, u.Port())
	}
	if h := u.Hostname(); h != own && loopback(h) && loopback(own) {
		// Another name of the same machine: the one that was registered is known to work.
		u.Host = withPort(own, u.Port())
	}
	if !sameHost(u, c.agent) {
		return "", fmt.Sprintf("it is on another host (%s) than the agent (%s); if that is right, set protocol_config.url to it",
			u.Hostname(), c.agent.Hostname())
	}
	if secure(c.agent) && !secure(u) {
		return "", "it is without TLS, and the agent was registered with it; if that is right, set protocol_config.url to it"
	}
	return u.String(), ""
}

func withPort(host, port string) string {
	if port != "" {
		return net.JoinHostPort(host, port)
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// resolve reads the URL of an interface: absolute, relative, for gRPC a host and
// a port, or none, which is the agent's own.
func (c *chooser) resolve(i Interface) (u *url.URL, fault string) {
	if i.URL == "" {
		own := *c.agent
		if own.Path == "" {
			own.Path = "/"
		}
		return &own, ""
	}
	raw := i.URL
	if i.Binding == GRPC && !strings.Contains(raw, "://") {
		if host, port, err := net.SplitHostPort(raw); err != nil || host == "" || port == "" {
			return nil, "its URL is no host and port"
		}
		scheme := "http://"
		if secure(c.agent) {
			scheme = "https://"
		}
		raw = scheme + raw
	}
	u, err := c.base.Parse(raw)
	switch {
	case err != nil:
		return nil, "its URL cannot be read"
	case u.User != nil:
		return nil, "its URL holds a user name"
	case i.Binding == GRPC && (u.Scheme == "grpc" || u.Scheme == "grpcs"):
		u.Scheme = strings.Replace(u.Scheme, "grpc", "http", 1)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Sprintf("its URL has the scheme %q", word(u.Scheme))
	}
	if u.Hostname() == "" || u.Opaque != "" {
		return nil, "its URL names no host"
	}
	if u.Path == "" && i.Binding != GRPC {
		u.Path = "/"
	}
	u.Fragment, u.RawFragment = "", ""
	u.Host = strings.ToLower(u.Host)
	return u, ""
}

func secure(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "wss" }

// sameHost compares names, not ports: bindings often have ports of their own.
func sameHost(a, b *url.URL) bool {
	x, y := strings.ToLower(a.Hostname()), strings.ToLower(b.Hostname())
	return x == y || loopback(x) && loopback(y)
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// near says whether one of the card's interfaces is at, above or below the
// agent's path, so that the card can be the one of that agent.
func (c *chooser) near() bool {
	own := segments(c.agent.Path)
	if len(own) == 0 {
		return true
	}
	for _, i := range c.card.Interfaces {
		u, fault := c.resolve(i)
		if fault != "" {
			continue
		}
		other := segments(u.Path)
		n := min(len(own), len(other))
		if n > 0 && slices.Equal(own[:n], other[:n]) {
			return true
		}
	}
	return false
}

func segments(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
