package rpchttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestNotificationAccepted: a notification is answered when it is being
// handled, and not when it was; its handler goes on without the client, until
// the Server's grace is over.
func TestNotificationAccepted(t *testing.T) {
	h := new(seen)
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h, Grace: time.Second}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		for i, text := range []string{
			`{"jsonrpc":"2.0","method":"wait"}`,
			` {"method":"wait", "jsonrpc":"2.0"}`,
			`[{"jsonrpc":"2.0","method":"wait"},{"jsonrpc":"2.0","method":"wait"},{"jsonrpc":"2.0","method":"quick"}]`,
		} {
			status, _, body := m.send("", text)
			synctest.Wait() // until they have counted themselves
			if want := []int64{1, 2, 4}[i]; status != http.StatusAccepted || body != "" || h.began.Load() != want || h.ended.Load() != 0 {
				t.Errorf("%s: %d %s; %d began, %d ended", text, status, body, h.began.Load(), h.ended.Load())
			}
		}
		if h.count("quick") != 1 {
			t.Error("accepted, and not handled")
		}
		m.transport.CloseIdleConnections()
		time.Sleep(time.Hour)
		if h.ended.Load() != 0 {
			t.Error("handlers ended with their clients")
		}
		begin := time.Now()
		m.Server.Close()
		if took := time.Since(begin); took != time.Second || h.ended.Load() != 4 {
			t.Errorf("Close took %v, and %d of 4 handlers ended", took, h.ended.Load())
		}
		for _, err := range h.causes {
			if !errors.Is(err, jsonrpc.ErrClosed) {
				t.Errorf("a handler ended because of %v", err)
			}
		}
	})
}

// TestNotificationBusy: notifications are held to the bound on handlers, and
// their sender hears of it (RPC-23).
func TestNotificationBusy(t *testing.T) {
	h := new(seen)
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h, MaxHandlers: 2, Grace: -1}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		const text = `{"jsonrpc":"2.0","method":"wait"}`
		for range 2 {
			if status, _, body := m.send("", text); status != http.StatusAccepted {
				t.Errorf("%d %s", status, body)
			}
		}
		synctest.Wait() // until both have counted themselves
		for _, text := range []string{text, "[" + text + "," + text + "]"} {
			status, header, body := m.send("", text)
			if status != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" || !strings.Contains(body, `"code":-32050`) || h.began.Load() != 2 {
				t.Errorf("%s: %d %s; %d began", text, status, body, h.began.Load())
			}
		}
		// Our client tells whoever is interested.
		var notice error
		c := m.conn(t, rpchttp.ClientConfig{}, jsonrpc.Config{Hooks: jsonrpc.Hooks{Notice: func(n jsonrpc.Notice) { notice = n.Err }}})
		if err := c.Notify(t.Context(), "wait", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if e, ok := errors.AsType[*rpchttp.Error](notice); !ok || !e.Recoverable() || !errors.Is(e, &jsonrpc.Error{Code: jsonrpc.CodeServerBusy}) {
			t.Errorf("notice: %v", notice)
		}
		c.Close()
	})
}

// TestNotificationInvalid: what only looks like a notification is answered
// with what is wrong with it.
func TestNotificationInvalid(t *testing.T) {
	h := new(seen)
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		for text, want := range map[string]string{
			`{"jsonrpc":"2.0","method":"x","params":1}`:                                      `"code":-32600`,
			`{"jsonrpc":"2.0","method":"x","params":[1,]}`:                                   `"code":-32700`,
			`{"jsonrpc":"2.0","method":"x"`:                                                  `"code":-32700`,
			`{"jsonrpc":"2.0","method":"x"} {}`:                                              `"code":-32700`,
			`{"method":"x"}`:                                                                 `"code":-32600`,
			`{"jsonrpc":"2.0","method":"x","\u0069d":7}`:                                     `"result":"x"`,
			`[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","method":"x","params":false}]`: `"code":-32600`,
			`[{"jsonrpc":"2.0","method":"x"},1]`:                                             `"code":-32600`,
			`[{"jsonrpc":"2.0","method":"x"}`:                                                `"code":-32700`,
		} {
			if status, _, body := m.send("", text); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %d %q, want %s", text, status, body, want)
			}
		}
	})
}

// TestNotificationOrder: whoever waits for each answer finds that notifications
// to be handled inline were handled before what it sends next.
func TestNotificationOrder(t *testing.T) {
	var done atomic.Int64
	h := inlined(func(_ context.Context, req *jsonrpc.Request) (any, error) {
		if req.IsNotification() {
			time.Sleep(time.Second)
			done.Add(1)
		}
		return done.Load(), nil
	})
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		for i, text := range []string{`{"jsonrpc":"2.0","method":"set"}`, `[{"jsonrpc":"2.0","method":"set"},{"jsonrpc":"2.0","method":"set"}]`} {
			if status, _, body := m.send("", text); status != http.StatusAccepted {
				t.Errorf("%d %s", status, body)
			}
			want := []string{`"result":1}`, `"result":3}`}[i]
			if _, _, body := m.send("", `{"jsonrpc":"2.0","method":"get","id":1}`); !strings.Contains(body, want) {
				t.Errorf("after %s: %s, want %s", text, body, want)
			}
		}
	})
}

// TestNotificationSession: a notification being handled is use of its session.
func TestNotificationSession(t *testing.T) {
	var state atomic.Value
	h := jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		if req.IsNotification() {
			time.Sleep(time.Hour)
			ses, _ := rpchttp.SessionFrom(ctx)
			state.Store(ses.Conn().State().String())
		}
		return nil, nil
	})
	cfg := rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: h},
		Sessions: &rpchttp.SessionConfig{OpenOn: []string{"initialize"}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		ada := m.session(t)
		m.send(ada, `{"jsonrpc":"2.0","method":"slow"}`)
		time.Sleep(66 * time.Minute)
		if state.Load() != "connected" {
			t.Errorf("the session was %v", state.Load())
		}
		if status, _, _ := m.send(ada, `{"jsonrpc":"2.0","method":"slow"}`); status != http.StatusNotFound {
			t.Errorf("%d: the session did not end afterwards", status)
		}
	})
}

// TestNotificationPanics: a handler that panics behind its answer does not take
// the Server along.
func TestNotificationPanics(t *testing.T) {
	h := jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
		panic("the secret is 42")
	})
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		for range 3 {
			if status, _, body := m.send("", `{"jsonrpc":"2.0","method":"x"}`); status != http.StatusAccepted || body != "" {
				t.Errorf("%d %s", status, body)
			}
		}
	})
}

// TestNotificationStatus: 202 or 204, and nothing else.
func TestNotificationStatus(t *testing.T) {
	for _, want := range []int{0, http.StatusAccepted, http.StatusNoContent} {
		cfg := rpchttp.ServerConfig{
			Config: jsonrpc.Config{Handler: testMethods(), Cancel: jsonrpc.LSPCancel}, NotificationStatus: want,
			Sessions: &rpchttp.SessionConfig{OpenOn: []string{"initialize"}},
		}
		want := max(want, http.StatusAccepted)
		inMemory(t, cfg, func(t *testing.T, m *memory) {
			ada := m.session(t)
			for _, text := range []string{
				`{"jsonrpc":"2.0","method":"note"}`,
				`[{"jsonrpc":"2.0","method":"note"}]`,
				`{"jsonrpc":"2.0","id":9,"result":1}`,
				cancelRequest("9"),
			} {
				if status, _, body := m.send(ada, text); status != want || body != "" {
					t.Errorf("%s: %d %s, want %d", text, status, body, want)
				}
			}
		})
	}
	for _, status := range []int{-1, 200, 203, 205, 404} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "202 or 204") {
					t.Errorf("status %d: panic %q", status, text)
				}
			}()
			rpchttp.Handler(rpchttp.ServerConfig{NotificationStatus: status}).Close()
		}()
	}
}
