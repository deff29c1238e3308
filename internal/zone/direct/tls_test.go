package direct_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

// TestZN6_DirectRefusedClientCertificate (zones.md §0 row 14): with TLS 1.3 the
// refusal comes after the handshake, and a large body hides it.
func TestZN6_DirectRefusedClientCertificate(t *testing.T) {
	server, client, stranger := newChain(t), newChain(t), newChain(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, h2 := range []bool{false, true} {
			for _, size := range []int{100, 200 << 10, 5 << 20} {
				for name, c := range map[string]*chain{"right": &client, "none": nil, "stranger": &stranger} {
					t.Run(fmt.Sprintf("%s/h2=%v/%d/%s", tls.VersionName(version), h2, size, name), func(t *testing.T) {
						var posts atomic.Int64
						srv := quiet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if r.Method == http.MethodPost {
								posts.Add(1)
							} else if r.URL.Path != "/zone/ping" {
								t.Errorf("%s %s", r.Method, r.URL)
							}
							_, _ = io.Copy(io.Discard, r.Body)
							_, _ = io.WriteString(w, good)
						}), &tls.Config{
							Certificates: []tls.Certificate{server.cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: client.pool,
							MinVersion: version, MaxVersion: version,
						}, h2)
						cfg := &tls.Config{RootCAs: server.pool}
						if c != nil {
							cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c.cert, nil }
						}
						tr := open(t, direct.Config{URL: srv.URL + "/zone/invocations", TLS: cfg})
						_, info, err := tr.Call(within(t, time.Minute), bytes.Repeat([]byte("1"), size), zone.Meta{})
						if name == "right" {
							if err != nil || info.Attempts != 1 || posts.Load() != 1 {
								t.Fatalf("%v, %d attempts, %d posts", err, info.Attempts, posts.Load())
							}
							return
						}
						// Over HTTP/2 net/http may say no more than that the connection did not come
						// about: then it is known that nothing was sent, and not why.
						f := fault(t, err)
						if f.Class != zone.ClassAuth && (!h2 || f.Class != zone.ClassNotSent) || posts.Load() != 0 || info.Attempts > 3 {
							t.Errorf("%v, %d attempts, %d posts", err, info.Attempts, posts.Load())
						}
					})
				}
			}
		}
	}
}

func TestZN6_DirectUntrustedServer(t *testing.T) {
	server, other := newChain(t), newChain(t)
	srv := quiet(t, answer(200, good), &tls.Config{Certificates: []tls.Certificate{server.cert}}, true)
	for name, cfg := range map[string]*tls.Config{
		"other authority": {RootCAs: other.pool},
		"no authority":    {RootCAs: x509.NewCertPool()},
		"other name":      {RootCAs: server.pool, ServerName: "a.example.com"},
	} {
		_, info, err := open(t, direct.Config{URL: srv.URL, TLS: cfg}).Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassAuth || info.Attempts != 1 {
			t.Errorf("%s: %v, %d attempts", name, err, info.Attempts)
		}
	}
}

// TestZN6_DirectLargeRequestsAtOnce: many large requests over new and kept
// connections arrive once each, whatever connection each of them gets.
func TestZN6_DirectLargeRequestsAtOnce(t *testing.T) {
	server := newChain(t)
	for _, h2 := range []bool{false, true} {
		var posts, pings atomic.Int64
		srv := quiet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			switch {
			case r.Method == http.MethodGet:
				pings.Add(1)
			case err == nil && n == 100<<10:
				posts.Add(1)
			}
			_, _ = io.WriteString(w, good)
		}), &tls.Config{Certificates: []tls.Certificate{server.cert}}, h2)
		tr := open(t, direct.Config{URL: srv.URL + "/invocations", TLS: &tls.Config{RootCAs: server.pool}})
		body := bytes.Repeat([]byte("1"), 100<<10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 5 {
					if _, info, err := tr.Call(ctx, body, zone.Meta{}); err != nil || info.Attempts != 1 {
						t.Errorf("%v, %d attempts", err, info.Attempts)
					}
				}
			})
		}
		wg.Wait()
		cancel()
		if posts.Load() != 100 || pings.Load() == 0 {
			t.Errorf("h2 %v: %d posts, %d pings", h2, posts.Load(), pings.Load())
		}
		t.Logf("h2 %v: %d pings", h2, pings.Load())
	}
}

// TestZN6_DirectHTTP2 has the failures that HTTP/2 has of its own.
func TestZN6_DirectHTTP2(t *testing.T) {
	server := newChain(t)
	var posts atomic.Int64
	srv := quiet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		posts.Add(1)
		switch r.URL.Path {
		case "/reset":
			panic(http.ErrAbortHandler)
		case "/cut":
			_, _ = io.WriteString(w, good[:20])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/half":
			_, _ = io.WriteString(w, good[:20])
			w.(http.Flusher).Flush()
		default:
			_, _ = io.WriteString(w, good)
		}
	}), &tls.Config{Certificates: []tls.Certificate{server.cert}}, true)
	for path, want := range map[string]zone.Class{"/ok": "", "/reset": zone.ClassUnknownOutcome, "/cut": zone.ClassUnknownOutcome, "/half": zone.ClassUnknownOutcome} {
		posts.Store(0)
		tr := open(t, direct.Config{URL: srv.URL + path, TLS: &tls.Config{RootCAs: server.pool}})
		_, info, err := tr.Call(within(t, time.Minute), []byte(`{}`), zone.Meta{IdempotencyKey: "k"})
		if want == "" && err == nil && info.Attempts == 1 {
			continue
		}
		if f := fault(t, err); f.Class != want || posts.Load() != 1 {
			t.Errorf("%s: %v, %d posts", path, err, posts.Load())
		}
	}
}

// TestZN6_DirectRefusedOnALaterConnection: the first connection is busy and good,
// the second one is refused; a large request over it says so.
func TestZN6_DirectRefusedOnALaterConnection(t *testing.T) {
	server, client := newChain(t), newChain(t)
	busy, done := make(chan struct{}), make(chan struct{})
	var handshakes, whole atomic.Int64
	srv := quiet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		switch {
		case n == 2:
			close(busy)
			<-done
		case n > 0:
			whole.Add(n / (2 << 20))
		}
		_, _ = io.WriteString(w, good)
	}), &tls.Config{
		Certificates: []tls.Certificate{server.cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: client.pool, MinVersion: tls.VersionTLS13,
		VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			if handshakes.Add(1) > 1 {
				return fmt.Errorf("withdrawn")
			}
			return nil
		},
	}, false)
	tr := open(t, direct.Config{URL: srv.URL + "/", TLS: &tls.Config{RootCAs: server.pool, Certificates: []tls.Certificate{client.cert}}})
	ctx := within(t, time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, _, err := tr.Call(ctx, []byte("{}"), zone.Meta{}); err != nil {
			t.Error(err)
		}
	})
	<-busy
	_, _, err := tr.Call(ctx, bytes.Repeat([]byte("1"), 2<<20), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassAuth || whole.Load() != 0 {
		t.Errorf("%v, %d arrived", err, whole.Load())
	}
	close(done)
	wg.Wait()
}

// TestZN6_DirectHTTP2Refused: a server that has not looked at a request says so,
// and the request is sent again.
func TestZN6_DirectHTTP2Refused(t *testing.T) {
	server := newChain(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{server.cert}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	frame := func(kind, flags byte, stream uint32, payload ...byte) []byte {
		n := len(payload)
		head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}
		return append(head, payload...)
	}
	const data, headers, rst, settings = 0, 1, 3, 4
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.CopyN(io.Discard, c, 24) // the preface
		_, _ = c.Write(frame(settings, 0, 0))
		head := make([]byte, 9)
		for {
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
			stream := uint32(head[5])<<24 | uint32(head[6])<<16 | uint32(head[7])<<8 | uint32(head[8])
			switch {
			case head[3] == settings && head[4]&1 == 0:
				_, _ = c.Write(frame(settings, 1, 0))
			case head[3] != data || head[4]&1 == 0:
			case stream == 1:
				_, _ = c.Write(frame(rst, 0, stream, 0, 0, 0, 7)) // REFUSED_STREAM
			default:
				_, _ = c.Write(frame(headers, 4, stream, 0x88)) // :status 200
				_, _ = c.Write(frame(data, 1, stream, []byte(good)...))
			}
		}
	}()
	tr := open(t, direct.Config{URL: "https://" + l.Addr().String() + "/", TLS: &tls.Config{RootCAs: server.pool}})
	got, info, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
	if err != nil || string(got) != good || info.Attempts != 2 {
		t.Errorf("%q, %d attempts, %v", got, info.Attempts, err)
	}
}
