package bridge_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// hostileAnswer is what a server says to a request, word for word, and what that
// means for the attempt.
type hostileAnswer struct {
	name string
	// say writes the answer; the connection is closed after it.
	say func(c net.Conn)
	// class is what the answer has left behind, and code the error's; "" is an
	// answer that can be read.
	class     bridge.Disposition
	code      parley.Code
	retryable bool
	wait      time.Duration
	status    int
	text      string
}

func words(s string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, s) }
}

func status(line, headers string) func(net.Conn) {
	return words("HTTP/1.1 " + line + "\r\n" + headers + "Content-Length: 2\r\n\r\n{}")
}

// forever repeats a piece until the other side has had enough.
func forever(head, piece string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.WriteString(c, head); err != nil {
			return
		}
		block := []byte(strings.Repeat(piece, max(1, 8192/len(piece))))
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
}

// hostileAnswers are the answers of reliability.md §5 and decision 005.
func hostileAnswers() []hostileAnswer {
	const (
		answered, notSent, lost = bridge.Answered, bridge.NotSent, bridge.Lost
		ok                      = "HTTP/1.1 200 OK\r\n"
		unavailable, rejected   = parley.CodeAgentUnavailable, parley.CodeAgentRejected
		failed, limit           = parley.CodeAgentError, parley.CodeLimit
	)
	reset := func(before string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, before)
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	}
	return []hostileAnswer{
		// Statuses.
		{name: "429", say: status("429 Too Many Requests", ""), class: notSent, code: unavailable, retryable: true, status: 429},
		{name: "429 with seconds", say: status("429 Slow Down", "Retry-After: 7\r\n"), class: notSent, code: unavailable, retryable: true, wait: 7 * time.Second, status: 429},
		{name: "429 with a past date", say: status("429 X", "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), class: notSent, code: unavailable, retryable: true, status: 429},
		{name: "429 with a date by another clock", say: status("429 X", "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nRetry-After: Thu, 01 Jan 1970 00:00:09 GMT\r\n"), class: notSent, code: unavailable, retryable: true, wait: 9 * time.Second, status: 429},
		{name: "429 with a far wish", say: status("429 X", "Retry-After: 99999999999999999999\r\n"), class: notSent, code: unavailable, retryable: true, status: 429},
		{name: "429 with a century", say: status("429 X", "Retry-After: 3155760000\r\n"), class: notSent, code: unavailable, retryable: true, wait: 24 * time.Hour, status: 429},
		{name: "429 with no number", say: status("429 X", "Retry-After: -1\r\n"), class: notSent, code: unavailable, retryable: true, status: 429},
		{name: "503", say: status("503 X", "Retry-After: 2\r\n"), class: notSent, code: unavailable, retryable: true, wait: 2 * time.Second, status: 503},
		{name: "502", say: status("502 X", ""), class: lost, code: unavailable, retryable: true, status: 502, text: "from a proxy"},
		{name: "504", say: status("504 X", ""), class: lost, code: unavailable, retryable: true, status: 504},
		{name: "500", say: status("500 X", ""), class: answered, code: unavailable, retryable: true, status: 500},
		{name: "501", say: status("501 X", ""), class: answered, code: unavailable, retryable: true, status: 501},
		{name: "599", say: status("599 X", ""), class: answered, code: unavailable, retryable: true, status: 599},
		{name: "400", say: status("400 X", ""), class: answered, code: rejected, status: 400},
		{name: "401", say: status("401 X", "WWW-Authenticate: Bearer\r\n"), class: answered, code: rejected, status: 401},
		{name: "404", say: status("404 X", ""), class: answered, code: rejected, status: 404},
		{name: "408", say: status("408 X", ""), class: answered, code: rejected, status: 408},
		{name: "409", say: status("409 X", ""), class: answered, code: rejected, status: 409},
		{name: "413", say: status("413 X", ""), class: answered, code: rejected, status: 413, text: "send less"},
		{name: "301", say: status("301 X", "Location: http://169.254.169.254/\r\n"), class: answered, code: rejected, status: 301, text: "not followed"},
		{name: "307", say: status("307 X", "Location: /again\r\n"), class: answered, code: rejected, status: 307},
		{name: "304", say: words("HTTP/1.1 304 X\r\n\r\n"), class: answered, code: rejected, status: 304},
		{name: "101", say: words("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), class: answered, code: failed, retryable: true, status: 101, text: "nobody asked for"},
		{name: "999", say: status("999 X", ""), class: answered, code: failed, retryable: true, status: 999},
		{name: "600", say: status("600 X", ""), class: answered, code: failed, retryable: true, status: 600},

		// Connections.
		{name: "closed at once", say: words(""), class: lost, code: unavailable, retryable: true, text: "without a response"},
		{name: "reset", say: reset(""), class: lost, code: unavailable, retryable: true},
		{name: "reset within the head", say: reset(ok + "Content-Le"), class: lost, code: unavailable, retryable: true},
		{name: "cut head", say: words(ok + "Content-Type: appl"), class: lost, code: unavailable, retryable: true},
		{name: "cut body", say: words(ok + "Content-Length: 100\r\n\r\n{"), class: lost, code: unavailable, retryable: true, text: "within the response"},
		{name: "cut chunk", say: words(ok + "Transfer-Encoding: chunked\r\n\r\nff\r\n{"), class: lost, code: unavailable, retryable: true},
		{name: "no last chunk", say: words(ok + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"), class: lost, code: unavailable, retryable: true},
		{name: "503 that is cut", say: words("HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\nbu"), class: notSent, code: unavailable, retryable: true, status: 503},

		// What is no HTTP.
		{name: "garbage", say: words("}{][!\r\n\r\n"), class: lost, code: unavailable, retryable: true},
		{name: "a banner of SSH", say: words("SSH-2.0-OpenSSH_9.6\r\n"), class: lost, code: unavailable, retryable: true},
		{name: "no number for a status", say: words("HTTP/1.1 abc X\r\n\r\n"), class: lost, code: unavailable, retryable: true},
		{name: "a chunk of no size", say: words(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"), class: lost, code: unavailable, retryable: true},
		{name: "a negative length", say: words(ok + "Content-Length: -1\r\n\r\n{}"), class: lost, code: unavailable, retryable: true},
		{name: "two lengths", say: words(ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"), class: lost, code: unavailable, retryable: true},
		{name: "a NUL in a header", say: words(ok + "X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}"), class: lost, code: unavailable, retryable: true},

		// Bombs: bounded, whatever is promised.
		{name: "headers without end", say: forever(ok, "X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"), class: lost, code: limit, text: "max_header"},
		{name: "one long header", say: forever(ok+"X-A: ", "a"), class: lost, code: limit, text: "max_header"},
		{name: "1xx without end", say: forever("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), class: lost},
		{name: "a body without end", say: forever(ok+"Content-Type: application/json\r\n\r\n", " "), class: lost, code: limit, text: "max_response"},
		{name: "a promise of 1 TiB", say: forever(ok+"Content-Length: 1099511627776\r\n\r\n", " "), class: lost, code: limit, text: "max_response"},
		{name: "a promise of all that can be counted", say: forever(ok+"Content-Length: 9223372036854775807\r\n\r\n", " "), class: lost, code: limit, text: "max_response"},
		{name: "trailers without end", say: forever(ok+"Transfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n2\r\n{}\r\n0\r\n", "X-A: aaaaaaaaaaaaaaaa\r\n"), class: lost},
		{name: "extensions of chunks without end", say: forever(ok+"Transfer-Encoding: chunked\r\n\r\n1", ";a=aaaaaaaaaaaaaaa"), class: lost},
		{name: "a 500 without end", say: forever("HTTP/1.1 500 X\r\n\r\n", "x"), class: answered, code: unavailable, retryable: true, status: 500},
		{name: "a drip", say: func(c net.Conn) {
			_, _ = io.WriteString(c, ok+"Content-Length: 1000\r\n\r\n")
			for {
				if _, err := io.WriteString(c, " "); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}, class: lost, code: parley.CodeTimeout, retryable: true, text: "1s"},
		{name: "silence", say: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, class: lost, code: parley.CodeTimeout, retryable: true, text: "1s"},

		// Bodies.
		{name: "gzip that was not asked for", say: words(ok + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"), class: answered, code: failed, retryable: true, status: 200, text: "gzip"},
		{name: "200 without a body", say: words(ok + "Content-Length: 0\r\n\r\n")},
		{name: "204", say: words("HTTP/1.1 204 X\r\n\r\n")},
		{name: "interim, then an answer", say: words("HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\n{}")},
		{name: "more than was promised", say: words(ok + "Content-Length: 2\r\n\r\n{}{}{}{}")},
		{name: "two answers", say: words(ok + "Content-Length: 2\r\n\r\n{}" + ok + "Content-Length: 2\r\n\r\n{}")},
	}
}

// TestHostileHTTP: each answer that breaks the agreement ends in the right
// class, in bounded time and memory, over both ways to speak HTTP.
func TestHostileHTTP(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 1 << 20} { // small requests go without net/http
		for _, a := range hostileAnswers() {
			t.Run(fmt.Sprintf("%s to %d bytes", a.name, size), func(t *testing.T) {
				t.Parallel()
				if a.code == parley.CodeTimeout {
					synctest.Test(t, func(t *testing.T) { a.checkTime(t, size) })
					return
				}
				a.check(t, size)
			})
		}
	}
}

// check has the answer said over the network. What has no bounds would be ended by the
// agent's timeout, and judge takes that from none of these.
func (a *hostileAnswer) check(t *testing.T, size int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		a.serve(l)
	}()
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}, Limits: hostileLimits()})
	reply, err := a.ask(t, x, "http://"+l.Addr().String()+"/", 5*time.Minute, size)
	_ = l.Close()
	x.Close()
	<-served
	a.judge(t, reply, err)
}

// checkTime has the answer said in memory, where the agent's timeout, which ends it, is
// exact.
func (a *hostileAnswer) checkTime(t *testing.T, size int) {
	var said sync.WaitGroup
	x := bridge.NewExchange(bridge.ExchangeConfig{Limits: hostileLimits(), DialContext: pipeAgent(t, func(c net.Conn) {
		said.Go(func() { a.answer(c) })
	})})
	began := time.Now()
	reply, err := a.ask(t, x, "http://agent.test/", time.Second, size)
	if took := time.Since(began); took != time.Second {
		t.Errorf("it took %s", took)
	}
	x.Close()
	a.judge(t, reply, err)
	said.Wait()
}

func hostileLimits() bridge.ExchangeLimits { return bridge.ExchangeLimits{MaxResponse: 1 << 20} }

func (a *hostileAnswer) ask(t *testing.T, x *bridge.Exchange, url string, timeout time.Duration, size int) (bridge.Reply, error) {
	body := append(bytes.Repeat([]byte(" "), size-2), "{}"...)
	return x.Do(t.Context(), testTask(), parley.Agent{Name: "a", URL: url, Timeout: timeout}, bridge.Request{Body: body})
}

func (a *hostileAnswer) judge(t *testing.T, reply bridge.Reply, err error) {
	t.Helper()
	if a.class == 0 {
		if err != nil || reply.Status < 200 || reply.Status > 299 {
			t.Errorf("%d, %v", reply.Status, err)
		}
		return
	}
	e, ok := errors.AsType[*bridge.ExchangeError](err)
	if !ok {
		t.Fatalf("status %d, error %v", reply.Status, err)
	}
	if e.Disposition != a.class || (a.code != "" && (e.Err.Code != a.code || e.Err.Retryable != a.retryable)) ||
		(a.code == "" && e.Err.Code == parley.CodeTimeout) ||
		e.RetryAfter != a.wait || e.Status != a.status || !strings.Contains(e.Err.Message+string(e.Err.Details), a.text) {
		t.Errorf("disposition %d, %s (retryable %t) after %s, status %d: %s %s; want %d, %s (retryable %t) after %s, status %d, %q",
			e.Disposition, e.Err.Code, e.Err.Retryable, e.RetryAfter, e.Status, e.Err.Message, e.Err.Details,
			a.class, a.code, a.retryable, a.wait, a.status, a.text)
	}
	if n := len(e.Err.Message) + len(e.Err.Details); n > 64<<10 {
		t.Errorf("the error has %d bytes", n)
	}
}

// serve gives the answer on one connection after the other.
func (a *hostileAnswer) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		a.answer(c)
	}
}

// answer reads one request and says the answer to it.
func (a *hostileAnswer) answer(c net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
		a.say(c)
	}
	_ = c.Close()
}
