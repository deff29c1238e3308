package bridge_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// scriptedAgent answers each connection with script, which gets its number.
func scriptedAgent(t *testing.T, script func(n int64, c net.Conn, in *bufio.Reader)) (parley.Agent, *atomic.Int64) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var n atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			number := n.Add(1)
			go func() {
				defer func() { _ = c.Close() }()
				script(number, c, bufio.NewReader(c))
			}()
		}
	}()
	return parley.Agent{URL: "http://" + l.Addr().String()}, &n
}

// readPost reads one request to its end.
func readPost(in *bufio.Reader) error {
	req, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err
}

const short = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// TestDirectCancel: the end of the call's context interrupts the wait for the
// head and the reading of the body, and the connection is not used again.
func TestDirectCancel(t *testing.T) {
	for name, head := range map[string]string{"head": "", "body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			got := make(chan struct{}, 1)
			agent, conns := scriptedAgent(t, func(n int64, c net.Conn, in *bufio.Reader) {
				for readPost(in) == nil {
					if n > 1 {
						_, _ = io.WriteString(c, short)
						continue
					}
					_, _ = io.WriteString(c, head)
					got <- struct{}{}
				}
			})
			x := newExchange(t, loopback())
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-got; cancel() }()
			agent.Timeout = 5 * time.Minute // what ends the call if nothing interrupts it
			began := time.Now()
			_, err := x.Post(ctx, testTask(), agent, []byte("{}"))
			wantExchangeError(t, err, bridge.Lost, parley.CodeCancelled)
			if took := time.Since(began); took > time.Minute {
				t.Errorf("the call went on for %v", took)
			}
			if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil || conns.Load() != 2 {
				t.Errorf("next call: %v over %d connections, want 2", err, conns.Load())
			}
		})
	}
}

// TestDirectRequest: the bytes of a request, and the address that is dialled,
// are those of net/http, whatever the URL is like.
func TestDirectRequest(t *testing.T) {
	for _, url := range []string{
		"http://agent.test:8080/a%20b/?q=1&r=%2F#part", "http://agent.test", "http://agent.test:/x", "http://bücher.test:8080/ü",
		"http://AGENT.test/?a", "http://[::1]:8080/", "http://[fe80::1%25lo]:8080/", "http://[::1]/",
	} {
		var wrote []string
		bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
			sent := make(chan string, 1)
			dial := func(_ context.Context, _, address string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					var b strings.Builder
					if readPost(bufio.NewReader(io.TeeReader(theirs, &b))) == nil {
						sent <- address + "\n" + b.String()
						_, _ = io.WriteString(theirs, short)
					}
				}()
				return ours, nil
			}
			x := newExchange(t, bridge.ExchangeConfig{DialContext: dial, Limits: limits})
			agent := parley.Agent{
				URL:  url,
				Auth: parley.Auth{Type: parley.AuthAPIKey, Header: "X-Key"}, Credential: parley.NewSecret([]byte("k")),
			}
			if _, err := x.Post(t.Context(), testTask(), agent, []byte(`{"a":"ü"}`)); err != nil {
				wrote = append(wrote, err.Error())
				return
			}
			wrote = append(wrote, <-sent)
		})
		if len(wrote) != 2 || wrote[0] != wrote[1] {
			t.Errorf("%s: direct and net/http wrote\n%q", url, wrote)
		}
	}
}

// TestDirectForgets: connections to agents that are not called any more are
// closed, not kept until the process ends.
func TestDirectForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		dial := func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				in := bufio.NewReader(theirs)
				_ = readPost(in)
				_, _ = io.WriteString(theirs, short)
				_, err := in.ReadByte()
				ended <- err
			}()
			return ours, nil
		}
		x := bridge.NewExchange(bridge.ExchangeConfig{DialContext: dial, IdleTimeout: 4 * time.Second})
		began := time.Now()
		if _, err := x.Post(t.Context(), testTask(), parley.Agent{URL: "http://agent.test"}, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, io.EOF) || time.Since(began) > 8*time.Second {
			t.Errorf("the connection ended with %v after %v, want EOF within 8 s", err, time.Since(began))
		}
		x.Close()
	})
}

// TestDirectNotKept: a connection is not used again when the agent said so, nor
// when its answer was not read to the end.
func TestDirectNotKept(t *testing.T) {
	for name, answer := range map[string]string{
		"close":  "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
		"unread": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 11),
	} {
		t.Run(name, func(t *testing.T) {
			agent, conns := scriptedAgent(t, func(_ int64, c net.Conn, in *bufio.Reader) {
				for readPost(in) == nil {
					_, _ = io.WriteString(c, answer)
				}
			})
			x := newExchange(t, limited(loopback(), bridge.ExchangeLimits{MaxResponse: 10}))
			for range 2 {
				_, _ = x.Post(t.Context(), testTask(), agent, []byte("{}"))
			}
			if conns.Load() != 2 {
				t.Errorf("%d connections, want 2", conns.Load())
			}
		})
	}
}
