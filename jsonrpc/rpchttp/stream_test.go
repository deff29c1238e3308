package rpchttp_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// streamPair joins a client Stream with the Stream of its session.
func streamPair(t *testing.T, cfg rpchttp.ClientConfig) (client, server jsonrpc.Stream) {
	accepted := make(chan jsonrpc.Stream, 1)
	h := rpchttp.Handler(rpchttp.ServerConfig{
		Config:   jsonrpc.Config{MaxMessage: 8 << 20},
		Sessions: &rpchttp.SessionConfig{Accept: func(s jsonrpc.Stream) { accepted <- s }},
	})
	srv := httptest.NewServer(h)
	cfg.WayBack = rpchttp.WayBackAtOnce
	st, err := rpchttp.NewStream(srv.URL, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st.Close()
		h.Close()
		srv.Close()
	})
	select {
	case s := <-accepted:
		return st, s
	case <-time.After(2 * time.Minute):
		t.Fatal("no session")
		return nil, nil
	}
}

// TestStream holds both ends to the contract of streams (RPC-13, RPC-15), with
// one POST at a time, so that messages keep their order. A carriage return,
// with which server-sent events end a line, is the one byte that they cannot
// carry; in the check of the bytes another one stands for it, and
// TestStreamCarriageReturn tests what becomes of it.
func TestStream(t *testing.T) {
	rpctest.TestStream(t, func(t *testing.T) (a, b jsonrpc.Stream) {
		cfg := rpchttp.ClientConfig{MaxInFlight: 1}
		if strings.HasSuffix(t.Name(), "side_by_side") { // where order does not count
			cfg.MaxInFlight = 0
		}
		a, b = streamPair(t, cfg)
		if strings.HasSuffix(t.Name(), "bytes_are_kept") {
			a, b = &noReturns{a}, &noReturns{b}
		}
		return a, b
	})
}

// noReturns carries vertical tabs in place of carriage returns.
type noReturns struct{ jsonrpc.Stream }

func (s *noReturns) Read() (jsonrpc.Part, error) {
	part, err := s.Stream.Read()
	part.Data = bytes.ReplaceAll(part.Data, []byte{'\v'}, []byte{'\r'})
	return part, err
}

func (s *noReturns) Write(p []byte) (int, error) {
	return s.Stream.Write(bytes.ReplaceAll(p, []byte{'\r'}, []byte{'\v'}))
}

// TestStreamCarriageReturn: the way back makes spaces of carriage returns.
func TestStreamCarriageReturn(t *testing.T) {
	client, server := streamPair(t, rpchttp.ClientConfig{})
	if _, err := server.Write([]byte("\r{\"a\":\r\r1}\r\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(client); got != ` {"a":  1} ` || err != nil {
		t.Errorf("Read: %q, %v", got, err)
	}
}

// TestStreamUnordered: with many POSTs at a time, messages arrive in any order,
// but each of them once.
func TestStreamUnordered(t *testing.T) {
	client, server := streamPair(t, rpchttp.ClientConfig{MaxInFlight: 8})
	const n = 2000
	go func() {
		for i := range n {
			fmt.Fprintf(client, "[%d]\n", i)
		}
	}()
	seen := make(map[string]int)
	for range n {
		text, err := readAll(server)
		if err != nil {
			t.Fatal(err)
		}
		seen[text]++
	}
	for i := range n {
		if text := fmt.Sprintf("[%d]", i); seen[text] != 1 {
			t.Errorf("message %s arrived %d times", text, seen[text])
		}
	}
}
