package bridge_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// names is a name server that gives every name the address that answer says,
// none if it is not valid, and counts the questions.
type names struct {
	answer atomic.Pointer[netip.Addr]
	asked  atomic.Int64
}

func (n *names) point(address string) {
	a := netip.MustParseAddr(address)
	n.answer.Store(&a)
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe() // no packet connection: messages have their length before them
		go n.serve(theirs)
		return ours, nil
	}}
}

func (n *names) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		reply := n.reply(query)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// reply answers the first question of a query (RFC 1035 §4.1).
func (n *names) reply(query []byte) []byte {
	const head, typeA, typeAAAA = 12, 1, 28
	end := head
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root, type and class
	kind := binary.BigEndian.Uint16(query[end-4:])
	address := *n.answer.Load()
	n.asked.Add(1)
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[head:end]...)
	if address.Is4() && kind == typeA || address.Is6() && kind == typeAAAA {
		reply[7] = 1
		reply = append(reply, 0xc0, head, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(address.BitLen()/8)) // for a minute
		reply = append(reply, address.AsSlice()...)
	}
	return reply
}

// deaf listens on this machine, and fails the test if anybody comes.
func deaf(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("somebody connected to this machine")
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// TestEgressSpellings: however this machine is spelled, and whatever names of it
// resolve to, nothing connects to it: not for a call, a card or a token.
func TestEgressSpellings(t *testing.T) {
	port := deaf(t)
	n := &names{}
	n.point("127.0.0.1")
	x := newExchange(t, bridge.ExchangeConfig{Resolver: n.resolver()})
	refused := func(t *testing.T, err error) {
		t.Helper()
		e, ok := errors.AsType[*parley.Error](err)
		if !ok {
			t.Fatalf("error %v", err)
		}
		if x, ok := errors.AsType[*bridge.ExchangeError](err); ok && x.Disposition != bridge.NotSent {
			t.Errorf("disposition %d: %v", x.Disposition, e)
		}
		for _, why := range []string{"egress", "cannot be read", "user name", "no such host", "no suitable address", "names no host", "lookup", "not a valid"} {
			if strings.Contains(e.Message, why) {
				return
			}
		}
		t.Errorf("refused for another reason: %v", e)
	}
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.0.0.1.", "①②⑦.⓪.⓪.①", "127。0。0。1",
		"localhost", "localhost.", "LOCALHOST", "ⓛocalhost", "a.localhost", "agent.example", "127.0.0.1.nip.io",
		"[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]",
		"[::1%25lo]", "[fe80::1%25lo]", "[::]", "0.0.0.0", "0", "agent.example@127.0.0.1", "agent.example:80@127.0.0.1", "127.0.0.1%2f@agent.example",
	} {
		for _, scheme := range []string{"http", "https"} {
			at := scheme + "://" + host + ":" + port
			t.Run(at, func(t *testing.T) {
				agent := parley.Agent{Name: "a", URL: at + "/", Timeout: time.Minute}
				_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
				refused(t, err)
				_, err = x.Post(t.Context(), testTask(), agent, make([]byte, 64<<10)) // by net/http
				refused(t, err)
				_, err = x.Ask(t.Context(), parley.Agent{Name: "a", URL: "https://agent.example/"}, bridge.Inquiry{URL: at + "/.well-known/agent-card.json"})
				refused(t, err)
				if _, err = x.Post(t.Context(), testTask(), oauthAgent("https://agent.example/", at+"/token"), []byte("{}")); err == nil {
					t.Error("there is a token")
				}
				if c, err := x.Dial(t.Context(), strings.Trim(host, "[]")+":"+port, scheme == "https"); err == nil {
					_ = c.Close()
					t.Error("WebSocket and gRPC get a connection")
				}
			})
		}
	}
}

// TestEgressRebinding: a name that was resolved to an allowed address, and then
// to another one, is refused then, with each new connection anew; and an agent
// that has moved is found at its new address.
func TestEgressRebinding(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("127.0.0.2 is an address of this machine on Linux only")
	}
	var called [2]atomic.Int64
	listeners, port := samePort(t, "127.0.0.1", "127.0.0.2")
	for i, l := range listeners {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { called[i].Add(1); _, _ = io.WriteString(w, "{}") })}
		served := make(chan struct{})
		go func() { defer close(served); _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close(); <-served })
	}
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		called[0].Store(0)
		called[1].Store(0)
		n := &names{}
		n.point("127.0.0.1")
		x := newExchange(t, bridge.ExchangeConfig{
			Resolver: n.resolver(), Limits: limits, MaxAge: time.Nanosecond, // a new connection for each call
			Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("127.0.0.2/32")}},
		})
		agent := parley.Agent{URL: fmt.Sprintf("http://agent.example:%d/", port)}
		for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
			n.point(address)
			if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		if called[0].Load() != 1 || called[1].Load() != 1 {
			t.Errorf("%d and %d calls, want one at each address", called[0].Load(), called[1].Load())
		}
		for _, address := range []string{"127.0.0.3", "10.0.0.1", "169.254.169.254", "fd00:ec2::254", "::1"} {
			n.point(address)
			_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
			if e := wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); e.Err.Retryable || !strings.Contains(e.Err.Message, "egress") {
				t.Errorf("%s: %v", address, e.Err)
			}
		}
	})
}

// samePort listens at two addresses with one port. What is free at the first may be
// taken at the second: then another one is tried.
func samePort(t *testing.T, first, second string) (both [2]net.Listener, port int) {
	t.Helper()
	var failed error
	for range 50 {
		a, err := net.Listen("tcp", net.JoinHostPort(first, "0"))
		if err != nil {
			t.Fatal(err)
		}
		port = a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", net.JoinHostPort(second, strconv.Itoa(port)))
		if err == nil {
			return [2]net.Listener{a, b}, port
		}
		failed = errors.Join(failed, err, a.Close())
	}
	t.Fatalf("no port is free at %s and %s: %v", first, second, failed)
	return both, 0
}

// TestRedirects: none is followed, wherever it leads, and no credential goes
// anywhere.
func TestRedirects(t *testing.T) {
	port := deaf(t)
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		for _, code := range []int{300, 301, 302, 303, 305, 307, 308} {
			for _, to := range []string{"http://127.0.0.1:" + port + "/", "https://127.0.0.1:" + port + "/", "//127.0.0.1:" + port, "/again", "file:///etc/passwd", "gopher://127.0.0.1:" + port} {
				var calls atomic.Int64
				s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
					calls.Add(1)
					w.Header().Set("Location", to)
					w.Header().Set("Refresh", "0; url="+to)
					w.WriteHeader(code)
				})
				x := newExchange(t, limited(loopback(), limits))
				agent := parley.Agent{URL: s.URL, Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("k"))}
				_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
				if e := wantExchangeError(t, err, bridge.Answered, parley.CodeAgentRejected); e.Err.Retryable || !strings.Contains(e.Err.Message, "not followed") || calls.Load() != 1 {
					t.Errorf("%d to %s: %d calls, %v", code, to, calls.Load(), e.Err)
				}
				if reply, err := x.Ask(t.Context(), agent, bridge.Inquiry{URL: s.URL + "/card"}); err != nil || reply.Status != code || calls.Load() != 2 {
					t.Errorf("card, %d to %s: %d, %d calls, %v", code, to, reply.Status, calls.Load(), err)
				}
			}
		}
	})
}
