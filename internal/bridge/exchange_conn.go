package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Egress is which addresses agents may have (SSRF). The address is checked when
// the connection is made, after name resolution, so that neither a name that
// resolves differently the second time nor an odd spelling gets around it.
//
// Public addresses are reached over https, on the ports 443, 80 and 1024 to
// 65535. Every special-purpose range of IANA's registries and the metadata
// address of Azure are refused. What the operator allows is reached on every
// port, with or without TLS.
type Egress struct {
	// Allow lists networks that agents may be in besides the public ones.
	Allow []netip.Prefix
	// Loopback allows 127.0.0.0/8 and ::1.
	Loopback bool
}

// errEgress marks a connection that the policy refused.
var errEgress = errors.New("refused by the egress policy")

// unlessAllowed says how an address is called all the same.
const unlessAllowed = "unless egress.allow (of parley dev: --egress-allow) has its range"

// dialer makes a dialer that keeps to the policy; secure is whether TLS is
// spoken over its connections.
func (e Egress) dialer(secure bool) *net.Dialer {
	allow := make([]netip.Prefix, 0, len(e.Allow)+2)
	for _, p := range e.Allow {
		allow = append(allow, p.Masked())
	}
	if e.Loopback {
		allow = append(allow, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	}
	gate := &gate{
		allow: allow, secure: secure,
		guard: ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32"))),
	}
	return &net.Dialer{
		Timeout: connectTimeout, ControlContext: gate.check,
		// An agent whose machine has gone is noticed after 30 s, also while it
		// has a call whose time limit is longer.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
}

// gate is an Egress made ready for one kind of connection.
type gate struct {
	guard  *ssrf.Guardian
	allow  []netip.Prefix
	secure bool
}

// check is called with the resolved address before each connection.
func (g *gate) check(_ context.Context, network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s is no address: %w", errEgress, address, err)
	}
	ip := to.Addr().Unmap().WithZone("")
	for _, p := range g.allow {
		if p.Contains(ip) {
			return nil
		}
	}
	if err := g.guard.Safe(network, netip.AddrPortFrom(ip, to.Port()).String(), nil); err != nil {
		return fmt.Errorf("%w: %s is no public address, and not called %s", errEgress, ip, unlessAllowed)
	}
	if p := to.Port(); p != 443 && p != 80 && p < 1024 {
		return fmt.Errorf("%w: port %d of %s is not called, as none is but 443, 80 and those from 1024 on, %s", errEgress, p, ip, unlessAllowed)
	}
	if !g.secure {
		return fmt.Errorf("%w: %s is called over https only %s", errEgress, ip, unlessAllowed)
	}
	return nil
}

// countedConn counts the writes that have begun, so that an exchange can tell
// whether a byte of its own may have left.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

// Write counts before it writes: a reader that sees the old count knows that
// whatever is written later is written to a connection that was closed.
func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}

// probe watches one round trip. It hooks GotConn alone: that is called by the
// goroutine of the round trip before the request is written, so that a probe
// can be used again as soon as the round trip has returned. (WroteRequest may
// come later than that.)
type probe struct {
	trace  httptrace.ClientTrace
	conn   net.Conn
	before int64
	reused bool
	// guard, if set, is asked when there is a new connection, which took its time.
	// It was refused then, and body, the request's, was emptied: net/http sends no
	// request whose body is shorter than it says.
	guard   func() error
	body    *bytes.Reader
	refused error
}

func newProbe() *probe {
	p := &probe{}
	p.trace.GotConn = p.gotConn
	return p
}

func (p *probe) gotConn(info httptrace.GotConnInfo) {
	p.conn, p.reused = info.Conn, info.Reused
	if c := counted(info.Conn); c != nil {
		p.before = c.writes.Load()
	}
	if p.guard != nil && !info.Reused {
		if p.refused = p.guard(); p.refused != nil {
			p.body.Reset(nil)
		}
	}
}

// sent reports whether bytes of the request may have left. Call it after the
// round trip has failed: net/http has closed the connection by then.
func (p *probe) sent() bool {
	if p.conn == nil {
		return false
	}
	if t, ok := p.conn.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		return true // shared with others: whose bytes they were cannot be told
	}
	c := counted(p.conn)
	return c == nil || c.writes.Load() != p.before
}

// reset makes p fit for another round trip. Its trace is not touched: net/http may
// still read it.
func (p *probe) reset() {
	p.conn, p.before, p.reused = nil, 0, false
	p.guard, p.body, p.refused = nil, nil, nil
}

func counted(c net.Conn) *countedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	cc, _ := c.(*countedConn)
	return cc
}
