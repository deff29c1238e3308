package rpcws_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// wsURL makes a WebSocket URL of a test server's.
func wsURL(u string) string { return "ws" + strings.TrimPrefix(u, "http") }

// pair returns the two ends of a connection over a real loopback server.
func pair(t testing.TB, dial rpcws.DialConfig, accept rpcws.AcceptConfig) (client, server jsonrpc.Stream) {
	t.Helper()
	accepted := make(chan jsonrpc.Stream)
	handler := rpcws.Handler(accept, func(ctx context.Context, s jsonrpc.Stream) {
		accepted <- s
		<-ctx.Done()
	})
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	t.Cleanup(func() { handler.Close() })
	client, err := rpcws.Dial(t.Context(), wsURL(srv.URL), dial)
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() {
		go drain(server) // who does not read does not answer a close frame
		client.Close()
	})
	return client, server
}

// A memory is a network of net.Pipes: writes wait for their reader, and time
// stands still while nobody can go on, so that synctest sees everything.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	wrap  func(net.Conn) net.Conn // of the server's ends
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), done: make(chan struct{}), wrap: func(c net.Conn) net.Conn { return c }}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	select {
	case <-m.done:
	default:
		close(m.done)
	}
	return nil
}

func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (m *memory) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case m.conns <- m.wrap(there):
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memory) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: m.DialContext, DisableKeepAlives: true}}
}

// serve runs handler on the network until the test ends.
func (m *memory) serve(t testing.TB, handler http.Handler) {
	srv := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		srv.Serve(m)
		close(ended)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-ended
	})
}

// accepting serves one connection, whose Stream it sends.
func (m *memory) accepting(t testing.TB, cfg rpcws.AcceptConfig) <-chan jsonrpc.Stream {
	accepted := make(chan jsonrpc.Stream, 1)
	handler := rpcws.Handler(cfg, func(ctx context.Context, s jsonrpc.Stream) {
		accepted <- s
		<-ctx.Done()
	})
	m.serve(t, handler)
	t.Cleanup(func() { handler.Close() })
	return accepted
}

// A rawPeer speaks RFC 6455 byte by byte, right or wrong, as a client.
type rawPeer struct {
	net.Conn
	r *bufio.Reader
}

// rawPairInMemory is rawPair for bubbles of synctest. The caller closes the peer.
func rawPairInMemory(t testing.TB, cfg rpcws.AcceptConfig) (*rawPeer, jsonrpc.Stream) {
	t.Helper()
	network := newMemory()
	accepted := network.accepting(t, cfg)
	conn, err := network.DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	peer := dialRaw(t, conn)
	return peer, <-accepted
}

// dialRaw makes the handshake by hand.
func dialRaw(t testing.TB, conn net.Conn) *rawPeer {
	t.Helper()
	p := &rawPeer{conn, bufio.NewReader(conn)}
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(p.r, nil) //nolint:bodyclose // it is the connection
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake answered %s", resp.Status)
	}
	return p
}

// rawPair returns a raw client and the server's Stream.
func rawPair(t testing.TB, cfg rpcws.AcceptConfig) (*rawPeer, jsonrpc.Stream) {
	t.Helper()
	accepted := make(chan jsonrpc.Stream, 1)
	handler := rpcws.Handler(cfg, func(ctx context.Context, s jsonrpc.Stream) {
		accepted <- s
		<-ctx.Done()
	})
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	t.Cleanup(func() { handler.Close() })
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return dialRaw(t, conn), <-accepted
}

const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
	fin            = 0x80
)

// appendFrame appends a masked frame (the key is 1234).
func appendFrame(dst []byte, first byte, payload string) []byte {
	dst = append(dst, first)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	const key = "1234"
	dst = append(dst, key...)
	for i := range len(payload) {
		dst = append(dst, payload[i]^key[i%4])
	}
	return dst
}

func (p *rawPeer) send(t testing.TB, first byte, payload string) {
	t.Helper()
	if _, err := p.Write(appendFrame(nil, first, payload)); err != nil {
		t.Fatal(err)
	}
}

// receive reads one unmasked frame.
func (p *rawPeer) receive(t testing.TB) (first byte, payload string) {
	t.Helper()
	first, payload, err := p.frame()
	if err != nil {
		t.Fatal(err)
	}
	return first, payload
}

func (p *rawPeer) frame() (first byte, payload string, err error) {
	var head [8]byte
	if _, err := io.ReadFull(p.r, head[:2]); err != nil {
		return 0, "", err
	}
	first = head[0]
	n := uint64(head[1])
	switch n {
	case 126:
		_, err = io.ReadFull(p.r, head[:2])
		n = uint64(binary.BigEndian.Uint16(head[:]))
	case 127:
		_, err = io.ReadFull(p.r, head[:])
		n = binary.BigEndian.Uint64(head[:])
	}
	if err != nil {
		return 0, "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(p.r, b)
	return first, string(b), err
}

// A countingConn counts what is written.
type countingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// read returns the next whole message.
func read(t testing.TB, s jsonrpc.Stream) string {
	t.Helper()
	msg, _, err := message(s)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func message(s jsonrpc.Stream) (msg string, more bool, err error) {
	var b strings.Builder
	for {
		part, err := s.Read()
		if err != nil {
			return b.String(), false, err
		}
		b.Write(part.Data)
		if part.End {
			return b.String(), part.More, nil
		}
	}
}

func write(t testing.TB, s jsonrpc.Stream, text string) {
	t.Helper()
	if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

// drain reads until the end, which it returns.
func drain(s jsonrpc.Stream) error {
	for {
		if _, err := s.Read(); err != nil {
			return err
		}
	}
}

// wants fails unless err is target.
func wants(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}
