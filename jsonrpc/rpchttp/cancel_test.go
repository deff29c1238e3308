package rpchttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// A seen handler notes what it is asked, and waits where the method is "wait".
type seen struct {
	waiter
	mu      sync.Mutex
	methods []string
	causes  []error
}

func (s *seen) Handle(ctx context.Context, req *jsonrpc.Request) (any, error) {
	s.mu.Lock()
	s.methods = append(s.methods, req.Method())
	s.mu.Unlock()
	if req.Method() != "wait" {
		return req.Method(), nil
	}
	_, err := s.waiter.Handle(ctx, req)
	s.mu.Lock()
	s.causes = append(s.causes, context.Cause(ctx))
	s.mu.Unlock()
	return nil, err
}

func (s *seen) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.methods {
		if m == method {
			n++
		}
	}
	return n
}

// TestCancelEndsPost: a call that is given up ends its POST, whichever way it
// is told, and with it the handler of a server that knows neither sessions nor
// cancelling (RPC-10). The notification is of no use there, and not sent.
func TestCancelEndsPost(t *testing.T) {
	for _, style := range []jsonrpc.CancelStyle{jsonrpc.LSPCancel, jsonrpc.MCPCancel} {
		h := new(seen)
		var notices atomic.Int64
		inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
			c := m.conn(t, rpchttp.ClientConfig{MaxInFlight: 1, Cancel: style}, jsonrpc.Config{
				Cancel: style,
				Hooks:  jsonrpc.Hooks{Notice: func(jsonrpc.Notice) { notices.Add(1) }},
			})
			begin := time.Now()
			for range 3 {
				err := c.Call(t.Context(), "wait", nil, nil, jsonrpc.WithTimeout(time.Second))
				if !errors.Is(err, jsonrpc.ErrTimeout) {
					t.Errorf("call: %v", err)
				}
				synctest.Wait()
			}
			if n := h.ended.Load(); n != 3 {
				t.Errorf("%d of 3 handlers ended with their calls", n)
			}
			if got, err := jsonrpc.Call[string](t.Context(), c, "next", nil); got != "next" || err != nil || time.Since(begin) != 3*time.Second {
				t.Errorf("next: %q, %v after %v; its place was not free", got, err, time.Since(begin))
			}
			c.Close()
		})
		if want := []string{"wait", "wait", "wait", "next"}; !slices.Equal(h.methods, want) || notices.Load() != 0 {
			t.Errorf("the server saw %q, and the client had %d notices", h.methods, notices.Load())
		}
	}
}

// TestCancelQueued: a call that is given up before its turn is never sent.
func TestCancelQueued(t *testing.T) {
	h := new(seen)
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{MaxInFlight: 1, Cancel: jsonrpc.LSPCancel})
		write(t, st,
			`{"jsonrpc":"2.0","id":1,"method":"wait"}`,
			`{"jsonrpc":"2.0","id":2,"method":"never"}`,
			`{"jsonrpc":"2.0","id":3,"method":"third"}`)
		synctest.Wait()
		write(t, st, cancelRequest("2"), cancelRequest("1"))
		if got, err := readAll(st); err != nil || !strings.Contains(got, `"third"`) {
			t.Errorf("Read: %s, %v, want the answer to the third call", got, err)
		}
		st.Close()
	})
	if h.count("never") != 0 {
		t.Error("a call that was given up in the queue was sent")
	}
}

// TestCancelNames: the notification ends the POST of the call that it names, as
// it is written there, and that of a batch when it was the last one in it.
func TestCancelNames(t *testing.T) {
	h := new(seen)
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{Cancel: jsonrpc.LSPCancel})
		write(t, st,
			`{"jsonrpc":"2.0","id":1,"method":"wait","params":{"id":5}}`,
			`{"jsonrpc":"2.0","method":"wait","id":"1"}`,
			`[{"jsonrpc":"2.0","id":3,"method":"wait"},{"jsonrpc":"2.0","method":"wait"},{"jsonrpc":"2.0","id":4,"method":"wait"}]`)
		for _, step := range []struct {
			text  string
			ended int64
		}{
			{cancelRequest("2"), 0},
			{cancelRequest("5"), 0},
			{cancelRequest("1.0"), 0},
			{`{"jsonrpc":"2.0","method":"$/cancelRequest","id":9,"params":{"id":1}}`, 0}, // a call
			{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":[1]}`, 0},
			{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"requestId":1}}`, 0},
			{`{"jsonrpc":"2.0","method":"$/cancelRequest"}`, 0},
			{cancelRequest(`"1"`), 1},
			{cancelRequest(`"1"`), 1}, // twice
			{cancelRequest("3"), 1},
			{cancelRequest("3"), 1},
			{cancelRequest("4"), 4}, // with the notification beside it
			{cancelRequest("1"), 5},
		} {
			write(t, st, step.text)
			synctest.Wait()
			if n := h.ended.Load(); n != step.ended {
				t.Errorf("after %s: %d handlers ended, want %d", step.text, n, step.ended)
			}
		}
		st.Close()
	})
}

// TestCancelAgain: an id that was answered or given up can be used once more.
func TestCancelAgain(t *testing.T) {
	h := new(seen)
	inMemory(t, rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: h}}, func(t *testing.T, m *memory) {
		st := m.stream(t, rpchttp.ClientConfig{Cancel: jsonrpc.LSPCancel})
		for i := range 3 {
			write(t, st, `{"jsonrpc":"2.0","id":1,"method":"quick"}`)
			if got, err := readAll(st); err != nil || !strings.Contains(got, "quick") {
				t.Fatalf("Read: %s, %v", got, err)
			}
			synctest.Wait()
			write(t, st, `{"jsonrpc":"2.0","id":1,"method":"wait"}`)
			synctest.Wait()
			write(t, st, cancelRequest("1"))
			synctest.Wait()
			if n := h.ended.Load(); n != int64(i+1) {
				t.Fatalf("round %d: %d handlers ended", i, n)
			}
		}
		st.Close()
	})
}

// TestCancelInParts: an answer that is being handed over is handed over whole.
func TestCancelInParts(t *testing.T) {
	half, rest := make(chan struct{}), make(chan struct{})
	text := strings.Repeat("x", 400<<10)
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		body, w := io.Pipe()
		go func() {
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"`+text)
			close(half)
			select {
			case <-rest:
				io.WriteString(w, `"}`)
				w.Close()
			case <-r.Context().Done():
				w.CloseWithError(context.Cause(r.Context()))
			}
		}()
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: body, ContentLength: -1, Request: r,
		}, nil
	})
	st, err := rpchttp.NewStream("http://memory/", rpchttp.ClientConfig{
		Client: &http.Client{Transport: transport}, Cancel: jsonrpc.LSPCancel,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	write(t, st, `{"jsonrpc":"2.0","id":1,"method":"large"}`)
	part, err := st.Read()
	if err != nil || part.End {
		t.Fatalf("Read: %v, end %v", err, part.End)
	}
	n := len(part.Data)
	<-half
	write(t, st, cancelRequest("1"))
	close(rest)
	got, err := readAll(st)
	if want := len(text) + 36; err != nil || n+len(got) != want {
		t.Errorf("Read: %v, %d bytes, want %d", err, n+len(got), want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCancelInSession: where there is a session the server is told as well, as
// clients of the Model Context Protocol do it.
func TestCancelInSession(t *testing.T) {
	h := new(seen)
	cfg := rpchttp.ServerConfig{ // does not understand the notification
		Config:   jsonrpc.Config{Handler: h},
		Sessions: &rpchttp.SessionConfig{OpenOn: []string{"initialize"}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		c := m.conn(t, rpchttp.ClientConfig{Cancel: jsonrpc.MCPCancel}, jsonrpc.Config{Cancel: jsonrpc.MCPCancel})
		if err := c.Call(t.Context(), "initialize", nil, nil); err != nil {
			t.Fatal(err)
		}
		err := c.Call(t.Context(), "wait", nil, nil, jsonrpc.WithTimeout(time.Second))
		synctest.Wait()
		if n := h.count("notifications/cancelled"); !errors.Is(err, jsonrpc.ErrTimeout) || n != 1 || h.ended.Load() != 1 {
			t.Errorf("%v; the server was told %d times, %d handlers ended", err, n, h.ended.Load())
		}
		c.Close()
	})
}

func cancelRequest(id string) string {
	return `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + id + `}}`
}

func write(t *testing.T, st *rpchttp.Stream, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if _, err := io.WriteString(st, m+"\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// send POSTs text in a session, "" for none, and returns what is answered.
func (m *memory) send(session, text string) (status int, header http.Header, body string) {
	req, _ := http.NewRequest(http.MethodPost, "http://memory/", strings.NewReader(text))
	req.Header.Set("Content-Type", "application/json")
	if session != "" {
		req.Header.Set("Rpc-Session-Id", session)
	}
	res, err := (&http.Client{Transport: m.transport}).Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return res.StatusCode, res.Header, string(b)
}

// session opens one.
func (m *memory) session(t *testing.T) string {
	t.Helper()
	status, header, body := m.send("", `{"jsonrpc":"2.0","id":0,"method":"initialize"}`)
	if status != http.StatusOK || header.Get("Rpc-Session-Id") == "" {
		t.Fatalf("initialize: %d %s", status, body)
	}
	return header.Get("Rpc-Session-Id")
}

// TestServerCancels: a notification that is POSTed in a session ends the
// request that it names in the same session, also when no handler is to be had,
// and reaches no handler.
func TestServerCancels(t *testing.T) {
	h := new(seen)
	cfg := rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: h, Cancel: jsonrpc.LSPCancel, MaxHandlers: 5},
		Sessions: &rpchttp.SessionConfig{OpenOn: []string{"initialize"}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		ada, bob := m.session(t), m.session(t)
		var posts sync.WaitGroup
		answers := make(chan string, 10)
		wait := func(session, text string) {
			posts.Go(func() { _, _, body := m.send(session, text); answers <- body })
			synctest.Wait()
		}
		wait(ada, `{"jsonrpc":"2.0","id":1,"method":"wait"}`)
		wait(bob, `{"jsonrpc":"2.0","id":1,"method":"wait"}`)
		wait(ada, `[{"jsonrpc":"2.0","id":2,"method":"wait"},{"jsonrpc":"2.0","id":3,"method":"wait"}]`)
		wait("", `{"jsonrpc":"2.0","id":4,"method":"wait"}`)
		if h.began.Load() != 5 {
			t.Fatalf("%d handlers began", h.began.Load())
		}
		// Five handlers is what there may be.
		for _, step := range []struct {
			session, text string
			ended         int64
		}{
			{"", cancelRequest("1"), 0},
			{"", cancelRequest("4"), 0},
			{bob, cancelRequest("2"), 0},
			{bob, cancelRequest("4"), 0},
			{bob, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":[1]}`, 0},
			{ada, cancelRequest("1"), 1},
			{ada, "[" + cancelRequest("2") + "]", 2},
			{bob, cancelRequest("2"), 2},
			{ada, cancelRequest("3"), 3},
			{ada, cancelRequest("1"), 3},
			{bob, cancelRequest("1"), 4},
		} {
			if status, _, body := m.send(step.session, step.text); status != http.StatusAccepted || body != "" {
				t.Errorf("%s: %d %s", step.text, status, body)
			}
			synctest.Wait()
			if n := h.ended.Load(); n != step.ended {
				t.Errorf("after %s in %s: %d handlers ended, want %d", step.text, step.session, n, step.ended)
			}
		}
		for range 3 {
			if text := <-answers; !strings.Contains(text, `-32800`) {
				t.Errorf("a cancelled request was answered %s", text)
			}
		}
		wait(ada, `{"jsonrpc":"2.0","id":1,"method":"wait"}`) // once more
		m.send(ada, cancelRequest("1"))
		synctest.Wait()
		if n := h.ended.Load(); n != 5 {
			t.Error("an id that was used before cannot be cancelled")
		}
		m.Server.Close()
		posts.Wait()
		for i, err := range h.causes {
			if (err == nil || !strings.Contains(err.Error(), "cancelled the request")) == (i < 5) {
				t.Errorf("request %d ended because of %v", i, err)
			}
		}
	})
	if h.count("$/cancelRequest") != 0 {
		t.Error("the notification reached the handler")
	}
}

// TestServerCancelTwins: two requests with the same id are a mistake of the
// client's, which costs nobody anything.
func TestServerCancelTwins(t *testing.T) {
	h := new(seen)
	cfg := rpchttp.ServerConfig{
		Config:   jsonrpc.Config{Handler: h, Cancel: jsonrpc.MCPCancel},
		Sessions: &rpchttp.SessionConfig{OpenOn: []string{"initialize"}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		ada := m.session(t)
		var posts sync.WaitGroup
		posts.Go(func() { m.send(ada, `{"jsonrpc":"2.0","id":1,"method":"wait"}`) })
		synctest.Wait()
		m.send(ada, `{"jsonrpc":"2.0","id":1,"method":"quick"}`)
		m.send(ada, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"enough","requestId":%d}}`, 1))
		synctest.Wait()
		if n := h.ended.Load(); n != 1 {
			t.Errorf("%d handlers ended: the second request took the place of the first", n)
		}
		m.Server.Close()
		posts.Wait()
	})
}

// TestServerCancelsForwarded proves that a request that its client cancels is answered
// so when the handler waits for somebody else, whom it has called for it.
func TestServerCancelsForwarded(t *testing.T) {
	var forwarding *jsonrpc.Conn
	h := jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		if req.Method() == "initialize" {
			return nil, nil
		}
		return nil, forwarding.Call(ctx, req.Method(), req.Params(), nil)
	})
	cfg := rpchttp.ServerConfig{
		Config: jsonrpc.Config{
			Handler: h, Cancel: jsonrpc.LSPCancel,
			Hooks: jsonrpc.Hooks{Notice: func(n jsonrpc.Notice) { t.Error(n) }},
		},
		Sessions: &rpchttp.SessionConfig{OpenOn: []string{"initialize"}},
	}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		near, silent := jsonrpc.Pipe()
		forwarding = jsonrpc.NewConn(near, jsonrpc.Config{})
		session := m.session(t)
		var posts sync.WaitGroup
		posts.Go(func() {
			if _, _, body := m.send(session, `{"jsonrpc":"2.0","id":1,"method":"forward"}`); !strings.Contains(body, `-32800`) {
				t.Errorf("it was answered %s", body)
			}
		})
		synctest.Wait()
		m.send(session, cancelRequest("1"))
		posts.Wait()
		forwarding.Close()
		silent.Close()
	})
}
