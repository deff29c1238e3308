package rpcws_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// TestCloseAdvice: some close codes say that the next connection ends the same
// way (RPC-22).
func TestCloseAdvice(t *testing.T) {
	for _, code := range []int{1002, 1003, 1008, 1010, 3000, 3003, 4400, 4401, 4403, 4409, 4499} {
		checkClose(t, code, jsonrpc.AdviceGiveUp)
	}
	for _, code := range []int{1007, 1009, 1011, 1012, 1013, 1014, 3008, 4000, 4399, 4408, 4425, 4429, 4500, 4999} {
		checkClose(t, code, jsonrpc.AdviceReconnect)
	}
}

func checkClose(t *testing.T, code int, want jsonrpc.Advice) {
	t.Helper()
	err := &rpcws.CloseError{Code: code}
	// A Conn asks the error whether a new connection may work.
	near := broken{err}
	conn := jsonrpc.NewConn(near, jsonrpc.Config{})
	defer conn.Close()
	<-conn.Done()
	for _, err := range []error{err, conn.Err()} {
		if got := jsonrpc.AdviceFor(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// A broken Stream has ended with an error.
type broken struct {
	err error
}

func (s broken) Read() (jsonrpc.Part, error) { return jsonrpc.Part{}, s.err }
func (s broken) Write(p []byte) (int, error) { return len(p), nil }
func (s broken) Close() error                { return nil }

// TestHandshakeAdvice: whether dialing again may help depends on the status.
func TestHandshakeAdvice(t *testing.T) {
	for _, status := range []int{302, 400, 401, 403, 404, 407, 410, 426, 501, 505} {
		checkStatus(t, status, jsonrpc.AdviceGiveUp)
	}
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
		checkStatus(t, status, jsonrpc.AdviceReconnect)
	}
	mute := refuse(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprint(conn, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
			conn.Close()
		}
	}, rpcws.DialConfig{})
	if got := jsonrpc.AdviceFor(mute); got != jsonrpc.AdviceGiveUp {
		t.Errorf("%v: %v", mute, got)
	}
}

func checkStatus(t *testing.T, status int, want jsonrpc.Advice) {
	t.Helper()
	err := refuse(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, rpcws.DialConfig{})
	if got := jsonrpc.AdviceFor(err); got != want {
		t.Errorf("%v: %v, want %v", err, got, want)
	}
}

// TestDialAdvice: what this side has to change does not pass.
func TestDialAdvice(t *testing.T) {
	handler := rpcws.Handler(rpcws.AcceptConfig{}, nil)
	defer handler.Close()
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, err := rpcws.Accept(w, r, rpcws.AcceptConfig{}); err == nil {
			s.Close()
		}
	}))
	defer plain.Close()
	for name, dial := range map[string]struct {
		url string
		cfg rpcws.DialConfig
	}{
		"certificate": {wsURL(secure.URL), rpcws.DialConfig{}},
		"URL":         {"ws:h", rpcws.DialConfig{}},
		"two ways":    {"ws://h/", rpcws.DialConfig{TLS: &tls.Config{}, HTTPClient: http.DefaultClient}},
		"subprotocol": {wsURL(plain.URL), rpcws.DialConfig{Subprotocols: []string{"x"}}},
	} {
		_, err := rpcws.Dial(t.Context(), dial.url, dial.cfg)
		if got := jsonrpc.AdviceFor(err); got != jsonrpc.AdviceGiveUp {
			t.Errorf("%s: %v: %v", name, err, got)
		}
		if name == "subprotocol" && !errors.Is(err, rpcws.ErrSubprotocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
