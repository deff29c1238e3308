package rpchttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestCalls makes many calls at a time in both directions, and leaves nothing
// behind (RPC-7, RPC-8, RPC-9, RPC-19).
func TestCalls(t *testing.T) {
	var greeted atomic.Int64
	cfg := rpchttp.ServerConfig{
		Config: jsonrpc.Config{Handler: testMethods()},
		Sessions: &rpchttp.SessionConfig{Opened: func(s *rpchttp.Session) {
			if s.ID() != "" && s.Conn() != nil {
				greeted.Add(1)
			}
		}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		c := m.conn(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce, MaxInFlight: 8}, jsonrpc.Config{
			Handler: jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) { return req.Method(), nil }),
		})
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				if got, err := jsonrpc.Call[[]int](t.Context(), c, "echo", []int{i}); err != nil || got[0] != i {
					t.Errorf("echo %d: %v, %v", i, got, err)
				}
			})
			calls.Go(func() {
				if got, err := jsonrpc.Call[string](t.Context(), c, "ask", nil); err != nil || got != "name" {
					t.Errorf("ask: %q, %v", got, err)
				}
			})
		}
		calls.Wait()
		if m.dials > 60 {
			t.Errorf("%d connections for 8 calls and 8 answers at a time: they are not reused", m.dials)
		}
		if greeted.Load() != 1 {
			t.Errorf("%d sessions", greeted.Load())
		}
		c.Close()
	})
}

// waiter is a handler that waits until its context ends.
type waiter struct{ began, ended atomic.Int64 }

func (w *waiter) Handle(ctx context.Context, _ *jsonrpc.Request) (any, error) {
	w.began.Add(1)
	<-ctx.Done()
	w.ended.Add(1)
	return nil, ctx.Err()
}

// TestTimeoutFreesSlot: a call that was given up holds its POST until the
// client's timeout, which ends the handler too, and no longer (RPC-10).
func TestTimeoutFreesSlot(t *testing.T) {
	w := new(waiter)
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: w}}, func(t *testing.T, m *memory) {
		c := m.conn(t, rpchttp.ClientConfig{MaxInFlight: 1, Timeout: time.Minute}, jsonrpc.Config{})
		begin := time.Now()
		err := c.Call(t.Context(), "wait", nil, nil, jsonrpc.WithTimeout(time.Second))
		if took := time.Since(begin); !errors.Is(err, jsonrpc.ErrTimeout) || took != time.Second {
			t.Errorf("call: %v after %v", err, took)
		}
		err = c.Call(t.Context(), "wait", nil, nil, jsonrpc.WithTimeout(10*time.Minute))
		if took := time.Since(begin); !errors.Is(err, rpchttp.ErrTimeout) || took != 2*time.Minute {
			t.Errorf("second call: %v after %v, want the client's timeout after 2m", err, took)
		}
		if jsonrpc.AdviceFor(err) != jsonrpc.AdviceRetry {
			t.Errorf("advice: %v", jsonrpc.AdviceFor(err))
		}
		synctest.Wait()
		if w.began.Load() != 2 || w.ended.Load() != 2 {
			t.Errorf("%d handlers began, %d ended", w.began.Load(), w.ended.Load())
		}
		c.Close()
	})
}

// TestClose cuts calls short at once, and gives notifications time.
func TestClose(t *testing.T) {
	release := make(chan struct{})
	var noted atomic.Int64
	h := inlined(func(ctx context.Context, req *jsonrpc.Request) (any, error) { // else notifications arrive at once
		if req.IsNotification() {
			<-release
			noted.Add(1)
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	t.Run("calls", func(t *testing.T) {
		inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
			st := m.stream(t, rpchttp.ClientConfig{MaxInFlight: 2})
			for i := range 5 { // more than go at a time
				fmt.Fprintf(st, `{"jsonrpc":"2.0","method":"wait","id":%d}`+"\n", i)
			}
			synctest.Wait()
			begin := time.Now()
			st.Close()
			if took := time.Since(begin); took != 0 {
				t.Errorf("Close took %v with calls on their way", took)
			}
		})
	})
	t.Run("notifications", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { release = make(chan struct{}) })
		inMemoryRelease(t, h, &release, &noted)
	})
	t.Run("hopeless", func(t *testing.T) {
		wait := inlined(new(waiter).Handle)
		inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: wait}}, func(t *testing.T, m *memory) {
			st := m.stream(t, rpchttp.ClientConfig{CloseTimeout: 3 * time.Second})
			io.WriteString(st, `{"jsonrpc":"2.0","method":"wait"}`+"\n")
			synctest.Wait()
			begin := time.Now()
			st.Close()
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("Close took %v with a notification that does not arrive", took)
			}
		})
	})
}

func inMemoryRelease(t *testing.T, h jsonrpc.Handler, release *chan struct{}, noted *atomic.Int64) {
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		*release = make(chan struct{})
		st := m.stream(t, rpchttp.ClientConfig{MaxInFlight: 1})
		for range 3 {
			io.WriteString(st, `{"jsonrpc":"2.0","method":"note"}`+"\n")
		}
		synctest.Wait()
		time.AfterFunc(500*time.Millisecond, func() { close(*release) })
		st.Close()
		if noted.Load() != 3 {
			t.Errorf("%d of 3 notifications arrived", noted.Load())
		}
		if _, err := st.Read(); err == nil {
			t.Error("Read after Close: no error")
		}
		if _, err := io.WriteString(st, "{}\n"); err == nil {
			t.Error("Write after Close: no error")
		}
	})
}

// TestReconnect: the way back survives cut connections without losing or
// doubling what was said meanwhile, and the calls that wait for it (RPC-22).
func TestReconnect(t *testing.T) {
	var ses *rpchttp.Session
	cfg := rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: testMethods()},
		Sessions: &rpchttp.SessionConfig{Opened: func(s *rpchttp.Session) { ses = s }},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		got := make(chan int, 1000)
		c := m.conn(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce}, jsonrpc.Config{
			Handler: inlined(func(_ context.Context, req *jsonrpc.Request) (any, error) {
				var n []int
				if err := req.Decode(&n); err != nil {
					return nil, err
				}
				got <- n[0]
				return n[0], nil
			}),
		})
		synctest.Wait()
		for i := range 100 {
			if i%10 == 5 {
				m.setDown(i%20 == 5)
				m.cut()
			}
			if i%10 == 8 {
				m.setDown(false)
			}
			if i%10 == 7 {
				// A call of the server while the client is away.
				time.AfterFunc(time.Second, func() { m.setDown(false) })
				if n, err := jsonrpc.Call[int](t.Context(), ses.Conn(), "told", []int{i}); err != nil || n != i {
					t.Fatalf("call %d: %d, %v", i, n, err)
				}
				continue
			}
			if err := ses.Conn().Notify(t.Context(), "told", []int{i}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			if n := <-got; n != i {
				t.Fatalf("message %d came where %d should", n, i)
			}
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("%d messages came twice", len(got))
		}
		c.Close()
	})
}

// inlined handles every method inline, in the order of arrival.
type inlined jsonrpc.HandlerFunc

func (f inlined) Handle(ctx context.Context, req *jsonrpc.Request) (any, error) { return f(ctx, req) }
func (inlined) Inline([]byte) bool                                              { return true }

// TestReconnectGivesUp ends the Stream when the server stays away, and says
// that dialing again may help.
func TestReconnectGivesUp(t *testing.T) {
	inMemory(t, rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{}}, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
		synctest.Wait()
		m.setDown(true)
		m.cut()
		begin := time.Now()
		_, err := st.Read()
		if took := time.Since(begin); !jsonrpc.Recoverable(err) || took < 5*time.Second || took > time.Minute {
			t.Errorf("Read: %v after %v, want a recoverable error after about half a minute", err, took)
		}
		if _, again := st.Read(); !errors.Is(again, err) {
			t.Errorf("Read again: %v", again)
		}
		if _, werr := io.WriteString(st, "{}\n"); !errors.Is(werr, err) {
			t.Errorf("Write: %v", werr)
		}
		st.Close()
	})
}

// TestSessionIdle ends sessions that nobody uses, and only those.
func TestSessionIdle(t *testing.T) {
	var ended atomic.Int64
	cfg := rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{Accept: func(s jsonrpc.Stream) {
		if _, err := s.Read(); errors.Is(err, io.EOF) {
			ended.Add(1)
		}
		s.Close()
	}}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
		time.Sleep(time.Hour)
		if ended.Load() != 0 {
			t.Fatal("a session with an open way back ended")
		}
		m.setDown(true)
		m.cut()
		time.Sleep(6 * time.Minute)
		if ended.Load() != 1 {
			t.Error("a session without requests did not end")
		}
		st.Close()
	})
}

// TestSessionBusy: a request under way is use, however long it takes.
func TestSessionBusy(t *testing.T) {
	cfg := rpchttp.ServerConfig{
		Config: jsonrpc.Config{Handler: jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
			time.Sleep(time.Hour)
			ses, _ := rpchttp.SessionFrom(ctx)
			return ses.Conn().State().String(), nil
		})},
		Sessions: &rpchttp.SessionConfig{OpenOn: []string{"begin"}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		c := m.conn(t, rpchttp.ClientConfig{Timeout: 2 * time.Hour}, jsonrpc.Config{Timeout: -1})
		for _, method := range []string{"begin", "again"} {
			if state, err := jsonrpc.Call[string](t.Context(), c, method, nil); err != nil || state != "connected" {
				t.Errorf("%s: the session is %s, %v", method, state, err)
			}
		}
		time.Sleep(6 * time.Minute)
		_, err := jsonrpc.Call[string](t.Context(), c, "late", nil)
		if e, ok := errors.AsType[*rpchttp.Error](err); !ok || e.Status != http.StatusNotFound || !e.NotSent {
			t.Errorf("late: %v, want the end of the session", err)
		}
		c.Close()
	})
}

// TestSessionForgotten: a session that has ended, with requests under way, keeps no
// memory until it would have idled. It counts no more for SessionConfig.Max.
func TestSessionForgotten(t *testing.T) {
	var kept weak.Pointer[rpchttp.Session]
	cfg := rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{Opened: func(s *rpchttp.Session) { kept = weak.Make(s) }}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
		synctest.Wait()
		if kept.Value() == nil {
			t.Fatal("no session")
		}
		end, _ := http.NewRequest(http.MethodDelete, "http://memory/", nil)
		end.Header.Set("Rpc-Session-Id", st.SessionID())
		res, err := m.transport.RoundTrip(end) // its GET ends after the session
		if err != nil || res.StatusCode != http.StatusNoContent {
			t.Fatal(res, err)
		}
		res.Body.Close()
		st.Close()
		m.transport.CloseIdleConnections()
		synctest.Wait()
		for range 3 {
			runtime.GC()
		}
		if kept.Value() != nil {
			t.Error("the session is still there")
		}
	})
}

// TestServerClose answers 503 afterwards, and ends the sessions.
func TestServerClose(t *testing.T) {
	inMemory(t, rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{}}, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce, MaxReconnects: 2})
		synctest.Wait()
		m.Server.Close()
		_, err := st.Read()
		if e, ok := errors.AsType[*rpchttp.Error](err); !ok || e.Status != http.StatusServiceUnavailable || !e.Recoverable() {
			t.Errorf("Read: %v, want a recoverable 503", err)
		}
		st.Close()
	})
}

// TestShutdown does not wait for the ways back.
func TestShutdown(t *testing.T) {
	inMemory(t, rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{}}, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := m.http.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		st.Close()
	})
}

// TestBackpressure: a session whose client does not come keeps so much and no
// more; then writing waits, with the deadline of the caller.
func TestBackpressure(t *testing.T) {
	streams := make(chan jsonrpc.Stream, 1)
	cfg := rpchttp.ServerConfig{Sessions: &rpchttp.SessionConfig{
		Backlog: 10_000,
		Accept:  func(s jsonrpc.Stream) { streams <- s },
	}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{WayBack: rpchttp.WayBackAtOnce})
		server := <-streams
		synctest.Wait()
		m.setDown(true)
		m.cut()
		synctest.Wait()
		text := []byte(`"` + strings.Repeat("x", 997) + `"` + "\n")
		var written atomic.Int64
		go func() {
			for range 100 {
				if _, err := server.Write(text); err != nil {
					return
				}
				written.Add(1)
			}
		}()
		synctest.Wait()
		if n := written.Load(); n < 9 || n > 12 {
			t.Errorf("%d messages of 1 kB were taken, the limit is 10 kB", n)
		}
		m.setDown(false)
		for range 100 {
			if text, err := readAll(st); err != nil || !json.Valid([]byte(text)) {
				t.Fatalf("%.20q, %v", text, err)
			}
		}
		st.Close()
		server.Close()
	})
}
