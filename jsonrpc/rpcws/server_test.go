package rpcws

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A late writer stops the server when the handshake is nearly done.
type lateWriter struct {
	hijackWriter
	stop func()
}

func (w lateWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.stop()
	return w.hijackWriter.Hijack()
}

// TestStopDuringHandshake: a connection that comes while the server stops is told so,
// and not served.
func TestStopDuringHandshake(t *testing.T) {
	served := false
	s := Handler(AcceptConfig{PingInterval: -1, CloseTimeout: time.Millisecond}, func(context.Context, jsonrpc.Stream) { served = true })
	conn := new(script)
	s.ServeHTTP(lateWriter{hijackWriter{httptest.NewRecorder(), conn}, s.stop}, handshake())
	if served || !strings.HasSuffix(conn.got.String(), "\x88\x02\x03\xe9") {
		t.Errorf("served %t, the peer got %q", served, conn.got.String())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, handshake())
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("afterwards: %d, %v", w.Code, w.Header())
	}
}

type valueKey struct{}

// TestServeContext: the context of a connection has the request's values, and ends
// with the connection at the latest; the server keeps nothing of it.
func TestServeContext(t *testing.T) {
	contexts := make(chan context.Context, 1)
	s := Handler(AcceptConfig{PingInterval: -1, CloseTimeout: time.Millisecond}, func(ctx context.Context, _ jsonrpc.Stream) {
		contexts <- ctx
		if ctx.Err() != nil || ctx.Value(valueKey{}) != "value" {
			t.Errorf("%v, %v", ctx.Err(), ctx.Value(valueKey{}))
		}
	})
	r := handshake()
	ctx, hangUp := context.WithCancel(context.WithValue(r.Context(), valueKey{}, "value"))
	hangUp() // the library's affair: the connection was taken over
	s.ServeHTTP(hijackWriter{httptest.NewRecorder(), new(script)}, r.WithContext(ctx))
	if (<-contexts).Err() == nil {
		t.Error("the context goes on")
	}
	if len(s.conns) != 0 || s.count != 0 {
		t.Errorf("%d connections, %d places are left", len(s.conns), s.count)
	}
}

// silent is a connection whose peer says nothing, and never closes.
func silent() (net.Conn, func()) {
	near, far := net.Pipe()
	go func() {
		buf := make([]byte, 1024)
		for {
			if _, err := far.Read(buf); err != nil {
				return
			}
		}
	}()
	return near, func() { far.Close() }
}

// TestShutdownWaits: Shutdown returns when all connections have gone; when its patience
// ends it closes them, all at the same time. Close waits for what is served, too.
func TestShutdownWaits(t *testing.T) {
	const patience, closing = time.Minute, 3 * time.Second
	for _, c := range []struct {
		name  string
		after [2]time.Duration // how long the connections are served from then on
		close bool
		took  time.Duration
		err   error
	}{
		{"all go", [2]time.Duration{time.Second, 20 * time.Second}, false, 20*time.Second + closing, nil},
		{"nobody goes", [2]time.Duration{time.Hour, time.Hour}, false, patience + closing, context.DeadlineExceeded},
		{"close", [2]time.Duration{5 * time.Second, 20 * time.Second}, true, 20 * time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			lives := make(chan time.Duration, 2)
			s := Handler(AcceptConfig{PingInterval: -1, CloseTimeout: closing}, func(ctx context.Context, _ jsonrpc.Stream) {
				<-ctx.Done()
				time.Sleep(<-lives)
			})
			for _, d := range c.after {
				lives <- d
				conn, hangUp := silent()
				defer hangUp()
				go s.ServeHTTP(hijackWriter{httptest.NewRecorder(), conn}, handshake())
			}
			synctest.Wait()
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var err error
			if c.close {
				err = s.Close()
			} else {
				err = s.Shutdown(ctx)
			}
			if took := time.Since(begin); err != c.err || took != c.took {
				t.Errorf("%s: %v after %v, want %v after %v", c.name, err, took, c.err, c.took)
			}
			if err := s.Close(); err != nil || s.count != 0 {
				t.Errorf("%s: then %v, %d places are taken", c.name, err, s.count)
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Errorf("%s: again %v", c.name, err)
			}
		})
	}
}
