package rpcws_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// refuse returns the error of dialing a server that answers with h.
func refuse(t *testing.T, h http.HandlerFunc, cfg rpcws.DialConfig) error {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	url := strings.Replace(wsURL(srv.URL), "ws://", "ws://user:pass-word@", 1) + "/rpc?key=secret-query"
	s, err := rpcws.Dial(t.Context(), url, cfg)
	if err == nil {
		s.Close()
		t.Fatal("no error")
	}
	for _, secret := range []string{"pass-word", "secret-query", "secret-token"} {
		if strings.Contains(fmt.Sprintf("%v %+v %q", err, err, errors.Unwrap(err)), secret) {
			t.Errorf("the error holds %q: %v", secret, err)
		}
	}
	return err
}

// TestDialRefused dials servers that do not agree.
func TestDialRefused(t *testing.T) {
	token := func(context.Context) (string, error) { return "secret-token", nil }
	for _, c := range []struct {
		name   string
		h      http.HandlerFunc
		status int
		want   string
	}{
		{"401", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "token expired:\x00 "+r.Header.Get("Authorization")+strings.Repeat(" x", 400), http.StatusUnauthorized)
		}, 401, "the server answered 401 Unauthorized instead of a WebSocket handshake; check the credentials and the origin: token expired:\ufffd Bearer [token] x"},
		{"404", http.NotFound, 404, "answered 404 Not Found instead of a WebSocket handshake; check the path of the URL: 404 page not found"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example/rpc?key=secret-query", http.StatusFound)
		}, 302, "dial https://other.example/rpc"},
		{"503", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 503, "answered 503 Service Unavailable instead of a WebSocket handshake"},
		{"not our key", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(conn, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
				conn.Close()
			}
		}, 101, "handshake is wrong: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := refuse(t, c.h, rpcws.DialConfig{Bearer: token})
			refused, ok := errors.AsType[*rpcws.HandshakeError](err)
			if !ok || refused.Status != c.status {
				t.Fatalf("%T %v, want a HandshakeError with %d", err, err, c.status)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/rpc: ") {
				t.Errorf("error %q, want %q", err, c.want)
			}
			if len(refused.Body) > 256 {
				t.Errorf("%d bytes of the body", len(refused.Body))
			}
		})
	}
}

// TestDialRefusedSecrets: a server that repeats what it was sent does not bring
// credentials into the error.
func TestDialRefusedSecrets(t *testing.T) {
	repeat := func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("no: %s %s, %q, %s %s", r.RequestURI, r.FormValue("key"), r.Header["Authorization"], r.Header.Get("X-Api-Key"), "pass-word"), http.StatusForbidden)
	}
	err := refuse(t, repeat, rpcws.DialConfig{Header: http.Header{"X-Api-Key": {"Key secret-token"}}})
	basic := base64.StdEncoding.EncodeToString([]byte("user:pass-word"))
	if text := err.Error(); strings.Contains(text, basic) || !strings.Contains(text, ": no: /rpc?[…] […], ") {
		t.Error(text)
	}
}

// TestDialErrors are those that come before an answer.
func TestDialErrors(t *testing.T) {
	for _, url := range []string{"", "http://h/", "ws://", "ws://h:port?secret-query", "wss:h"} {
		_, err := rpcws.Dial(t.Context(), url, rpcws.DialConfig{})
		if err == nil || !strings.Contains(err.Error(), "ws://HOST") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	failing := errors.New("no token today")
	_, err := rpcws.Dial(t.Context(), "ws://127.0.0.1:1/", rpcws.DialConfig{Bearer: func(context.Context) (string, error) { return "", failing }})
	wants(t, "Bearer", err, failing)
	_, err = rpcws.Dial(t.Context(), "ws://127.0.0.1:1/", rpcws.DialConfig{TLS: &tls.Config{}, HTTPClient: http.DefaultClient})
	if err == nil || !strings.Contains(err.Error(), "transport") {
		t.Errorf("TLS and HTTPClient: %v", err)
	}
	_, err = rpcws.Dial(t.Context(), "ws://127.0.0.1:1/a?secret-query", rpcws.DialConfig{})
	if _, ok := errors.AsType[*net.OpError](err); !ok || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody there: %v", err)
	}
	if !jsonrpc.Recoverable(err) {
		t.Errorf("nobody there is not recoverable: %v", err)
	}
}

// TestDialTimeout bounds a handshake with a server that says nothing.
func TestDialTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemory()
		defer network.Close()
		go func() {
			for conn, err := network.Accept(); err == nil; conn, err = network.Accept() {
				defer conn.Close()
			}
		}()
		begin := time.Now()
		_, err := rpcws.Dial(t.Context(), "ws://x/", rpcws.DialConfig{HTTPClient: network.client()})
		wants(t, "Dial", err, context.DeadlineExceeded)
		if d := time.Since(begin); d != 30*time.Second {
			t.Errorf("Dial took %v", d)
		}
	})
}

// TestDialContext ends with the handshake: the connection outlives it.
func TestDialContext(t *testing.T) {
	accepted := make(chan jsonrpc.Stream, 1)
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(ctx context.Context, s jsonrpc.Stream) {
		accepted <- s
		<-ctx.Done()
	})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	defer handler.Close()
	ctx, cancel := context.WithCancel(t.Context())
	client, err := rpcws.Dial(ctx, wsURL(srv.URL), rpcws.DialConfig{HTTPClient: &http.Client{Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	cancel()
	server := <-accepted
	write(t, client, "{}\n")
	if got := read(t, server); got != "{}" {
		t.Errorf("read %q", got)
	}
	go drain(server)
}

// TestTLS goes over wss, with the two ways to say whom to trust.
func TestTLS(t *testing.T) {
	headers := make(chan http.Header, 2)
	handler := rpcws.Handler(rpcws.AcceptConfig{}, func(_ context.Context, s jsonrpc.Stream) {
		for {
			part, err := s.Read()
			if err != nil {
				return
			}
			s.Write(append(part.Data, '\n'))
		}
	})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer handler.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	for name, cfg := range map[string]rpcws.DialConfig{
		"TLS":        {TLS: &tls.Config{RootCAs: roots}},
		"HTTPClient": {HTTPClient: srv.Client()},
	} {
		cfg.Header = http.Header{"X-Team": {"blue"}}
		cfg.Bearer = func(context.Context) (string, error) { return "t", nil }
		s, err := rpcws.Dial(t.Context(), wsURL(srv.URL), cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h := <-headers; h.Get("Authorization") != "Bearer t" || h.Get("X-Team") != "blue" {
			t.Errorf("%s: headers %v", name, h)
		}
		write(t, s, "[1]\n")
		if got := read(t, s); got != "[1]" {
			t.Errorf("%s: read %q", name, got)
		}
		s.Close()
	}
	_, err := rpcws.Dial(t.Context(), wsURL(srv.URL), rpcws.DialConfig{})
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		t.Errorf("an unknown authority: %v", err)
	}
}
