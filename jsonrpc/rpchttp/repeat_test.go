package rpchttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestClientRepeats: a jsonrpc.Client repeats what a server certainly did not do,
// and what is idempotent, when the server wants it; the error of a call says what
// the server may have got, and what to do (RPC-22).
func TestClientRepeats(t *testing.T) {
	ok := []int{http.StatusOK}
	idempotent := []jsonrpc.CallOption{jsonrpc.Idempotent()}
	for name, tt := range map[string]struct {
		statuses []int // of the first answers; 0: the server cannot be reached
		opts     []jsonrpc.CallOption
		took     time.Duration
		advice   jsonrpc.Advice // of the error; none: it comes through
		sent     bool
	}{
		"200":                        {ok, nil, 0, jsonrpc.AdviceNone, false},
		"429":                        {[]int{429}, nil, 3 * time.Second, jsonrpc.AdviceNone, false},
		"429 for ever":               {[]int{429, 429, 429}, nil, 6 * time.Second, jsonrpc.AdviceRetry, false},
		"503":                        {[]int{503}, nil, 0, jsonrpc.AdviceRetry, true},
		"503, idempotent":            {[]int{503}, idempotent, 3 * time.Second, jsonrpc.AdviceNone, false},
		"401, idempotent":            {[]int{401}, idempotent, 0, jsonrpc.AdviceGiveUp, true},
		"unreachable":                {[]int{0}, nil, 100 * time.Millisecond, jsonrpc.AdviceNone, false},
		"unreachable for ever":       {[]int{0, 0, 0}, nil, 300 * time.Millisecond, jsonrpc.AdviceRetry, false},
		"503, then unreachable, ...": {[]int{503, 0, 0}, idempotent, 3200 * time.Millisecond, jsonrpc.AdviceRetry, true},
	} {
		inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods()}}, func(t *testing.T, m *memory) {
			var n atomic.Int64
			inner := m.http.Handler
			m.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if i := int(n.Load()); i < len(tt.statuses) && tt.statuses[i] != http.StatusOK {
					n.Add(1)
					w.Header().Set("Retry-After", "3")
					w.WriteHeader(tt.statuses[i])
					return
				}
				inner.ServeHTTP(w, r)
			})
			m.transport.DisableKeepAlives = true // else it need not dial
			dial := m.transport.DialContext
			m.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				i := int(n.Load())
				down := i < len(tt.statuses) && tt.statuses[i] == 0
				if down {
					n.Add(1)
				}
				m.setDown(down)
				return dial(ctx, network, address)
			}
			cl := jsonrpc.NewClient(func(context.Context) (jsonrpc.Stream, error) {
				return m.stream(t, rpchttp.ClientConfig{}), nil
			}, jsonrpc.ClientConfig{Random: func() float64 { return 0 }})
			defer cl.Close()
			synctest.Wait()
			begin := time.Now()
			got, err := jsonrpc.Call[[]int](t.Context(), cl, "echo", []int{7}, tt.opts...)
			if took := time.Since(begin); took != tt.took || jsonrpc.AdviceFor(err) != tt.advice || (err == nil) != (tt.advice == jsonrpc.AdviceNone) {
				t.Errorf("%s: %v, %v, advice %v after %v, want %v after %v", name, got, err, jsonrpc.AdviceFor(err), took, tt.advice, tt.took)
			}
			if call, ok := errors.AsType[*jsonrpc.CallError](err); ok && call.Sent != tt.sent {
				t.Errorf("%s: %v: Sent should be %v", name, err, tt.sent)
			}
			if name == "unreachable for ever" && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestSessionOverAdvice: when the session is over, the same connection is of no
// more use.
func TestSessionOverAdvice(t *testing.T) {
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods()}, Sessions: &rpchttp.SessionConfig{}}, func(t *testing.T, m *memory) {
		c := m.conn(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce}, jsonrpc.Config{})
		defer c.Close()
		if _, err := jsonrpc.Call[[]int](t.Context(), c, "echo", []int{7}); err != nil {
			t.Error(err)
		}
		inner := m.http.Handler
		m.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				http.NotFound(w, r)
				return
			}
			inner.ServeHTTP(w, r)
		})
		err := c.Call(t.Context(), "echo", nil, nil)
		call, ok := errors.AsType[*jsonrpc.CallError](err)
		if !ok || call.Sent || jsonrpc.AdviceFor(err) != jsonrpc.AdviceReconnect || !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("%v, advice %v", err, jsonrpc.AdviceFor(err))
		}
		<-c.Done()
		if err := c.Err(); jsonrpc.AdviceFor(err) != jsonrpc.AdviceReconnect {
			t.Errorf("the connection: %v, advice %v", err, jsonrpc.AdviceFor(err))
		}
		if _, ok := errors.AsType[*rpchttp.Error](c.Close()); !ok {
			t.Error("Close says nothing of it, as if this side had closed the connection")
		}
	})
}

// TestNotEstablishedAdvice: a call whose session could not be opened was not sent,
// and needs a new connection.
func TestNotEstablishedAdvice(t *testing.T) {
	inMemory(t, rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{}}, func(t *testing.T, m *memory) {
		m.setDown(true)
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
		if _, err := st.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n")); err != nil {
			// The way back was faster: nothing was sent.
			if jsonrpc.AdviceFor(err) != jsonrpc.AdviceReconnect {
				t.Errorf("%v, advice %v", err, jsonrpc.AdviceFor(err))
			}
			return
		}
		synctest.Wait()
		_, err := st.Read()
		lost, ok := errors.AsType[*jsonrpc.UndeliveredError](err)
		if !ok || !lost.NotSent || jsonrpc.AdviceFor(err) != jsonrpc.AdviceReconnect {
			t.Errorf("%v, advice %v", err, jsonrpc.AdviceFor(err))
		}
	})
}

// TestEventFaultAdvice: an error of the server in a stream of events is not one of
// the network, even if it has no id.
func TestEventFaultAdvice(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`+"\n\n")
	}))
	defer srv.Close()
	st, err := rpchttp.NewStream(srv.URL, rpchttp.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	conn := jsonrpc.NewConn(st, jsonrpc.Config{})
	defer conn.Close()
	err = conn.Call(t.Context(), "m", nil, nil)
	if !errors.Is(err, &jsonrpc.Error{Code: -32000}) || jsonrpc.AdviceFor(err) != jsonrpc.AdviceNone {
		t.Errorf("%v, advice %v", err, jsonrpc.AdviceFor(err))
	}
}
