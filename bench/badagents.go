package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// badAgent is an agent that is not as it should be.
type badAgent struct {
	name string
	// serve answers one connection; nil: nobody listens.
	serve func(net.Conn)
}

const (
	slowTime  = 10 * time.Second
	flapEvery = time.Second
	dripEvery = 100 * time.Millisecond
)

// badAgents are what agents are like when they are not well.
func badAgents() []badAgent {
	begin := time.Now()
	return []badAgent{
		{name: "slow (10 s)", serve: speaks(func(c net.Conn, task []byte) { time.Sleep(slowTime); say(c, 200, "", goodBody(task)) })},
		{name: "dead (connection refused)"},
		{name: "flapping (a second well, a second 503)", serve: speaks(func(c net.Conn, task []byte) {
			if time.Since(begin)/flapEvery%2 == 0 {
				say(c, 200, "", goodBody(task))
				return
			}
			say(c, 503, "", `{"error":"away"}`)
		})},
		{name: "429 with Retry-After", serve: speaks(func(c net.Conn, _ []byte) { say(c, 429, "Retry-After: 1\r\n", `{"error":"later"}`) })},
		{name: "half-closed socket", serve: speaks(func(c net.Conn, _ []byte) {
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		})},
		{name: "slow-drip body", serve: speaks(func(c net.Conn, _ []byte) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
			for {
				if _, err := c.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(dripEvery)
			}
		})},
	}
}

// speaks answers requests one after another, as answer does.
func speaks(answer func(c net.Conn, task []byte)) func(net.Conn) {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			answer(c, taskID(body))
		}
	}
}

func say(c net.Conn, status int, header, body string) {
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		status, http.StatusText(status), header, len(body), body)
}

func goodBody(task []byte) string {
	return `{"task_id":"` + string(task) + `","status":"success","output":{"text":"done"},"error":null}`
}

// listening is a badAgent at its address.
type listening struct {
	url      string
	listener net.Listener
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	serving  sync.WaitGroup
}

func (a badAgent) listen(ctx context.Context) (*listening, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &listening{url: "http://" + l.Addr().String() + "/", listener: l, conns: map[net.Conn]struct{}{}}
	if a.serve == nil {
		return s, l.Close()
	}
	s.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = struct{}{}
			s.mu.Unlock()
			s.serving.Go(func() {
				a.serve(c)
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			})
		}
	})
	return s, nil
}

// close ends all connections and waits for who serves them.
func (s *listening) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}
