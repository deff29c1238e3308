package rpchttp

import (
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

// do has s answer a request of its own making: header are pairs.
func do(ctx context.Context, s *Server, method, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "http://host/", strings.NewReader(body))
	r.Header.Set("Content-Type", jsonType)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

const (
	aCall   = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	aNotice = `{"jsonrpc":"2.0","method":"m"}`
)

// TestRefusedUnhandled: who is refused for a Host or an Origin is told so, and
// nothing of what was sent is done.
func TestRefusedUnhandled(t *testing.T) {
	handled := 0
	s := Handler(ServerConfig{
		Config: jsonrpc.Config{Handler: jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
			handled++
			return nil, nil
		})},
		AllowedHosts: []string{"host"},
	})
	defer s.Close()
	loopback := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	rebound := Handler(ServerConfig{Config: jsonrpc.Config{Handler: s.handler}})
	defer rebound.Close()
	for _, w := range []*httptest.ResponseRecorder{
		do(t.Context(), s, http.MethodPost, aCall, "Origin", "https://foreign.example"),
		do(t.Context(), Handler(ServerConfig{Config: jsonrpc.Config{Handler: s.handler}, AllowedHosts: []string{"other"}}), http.MethodPost, aCall),
		do(loopback, rebound, http.MethodPost, aCall),
	} {
		if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "result") || handled != 0 {
			t.Errorf("%d %s, %d requests handled", w.Code, w.Body, handled)
		}
	}
	if w := do(t.Context(), s, http.MethodPost, aCall); w.Code != http.StatusOK || handled != 1 {
		t.Errorf("a welcome request: %d, %d requests handled", w.Code, handled)
	}
}

// TestHostForms: a host is the same in brackets, with a port and in capitals.
func TestHostForms(t *testing.T) {
	listed := Handler(ServerConfig{AllowedHosts: []string{"Example.org", "[2001:db8::1]", "ports.example:81"}})
	defer listed.Close()
	loopback := Handler(ServerConfig{})
	defer loopback.Close()
	for host, s := range map[string]*Server{
		"[::1]": loopback, "[::1]:80": loopback, "LOCALHOST:80": loopback, "127.0.0.2": loopback,
		"example.ORG": listed, "example.org:8080": listed, "[2001:db8::1]": listed, "[2001:db8::1]:1": listed, "ports.example:81": listed,
	} {
		if !s.hostAllowed(host) {
			t.Errorf("%s is refused", host)
		}
	}
	for host, s := range map[string]*Server{
		"": loopback, "192.0.2.1": loopback, "localhost.example": loopback,
		"localhost": listed, "ports.example": listed, "ports.example:80": listed,
	} {
		if s.hostAllowed(host) {
			t.Errorf("%s is allowed", host)
		}
	}
}

// TestOptionsWithoutOrigin: only browsers ask before they call.
func TestOptionsWithoutOrigin(t *testing.T) {
	s := Handler(ServerConfig{AllowedOrigins: []string{"*"}, Sessions: new(SessionConfig)})
	defer s.Close()
	if w := do(t.Context(), s, http.MethodOptions, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("without Origin: %d", w.Code)
	}
	w := do(t.Context(), s, http.MethodOptions, "", "Origin", "https://app.example")
	if w.Code != http.StatusNoContent || !strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), DefaultSessionHeader) {
		t.Errorf("with Origin: %d %v", w.Code, w.Header())
	}
}

// TestExchangeReused: nothing of a POST is left for the next one that gets its
// memory, and not much memory.
func TestExchangeReused(t *testing.T) {
	s := Handler(ServerConfig{Sessions: new(SessionConfig)})
	defer s.Close()
	x := s.exchange()
	x.body, x.out = append(x.body, aNotice...), append(x.out, "null"...)
	x.look, x.ses, x.accepts = peek(x.body), new(Session), new(acceptance)
	s.recycle(x)
	if len(x.body) != 0 || len(x.out) != 0 || x.look.entries != 0 || x.look.method != nil || x.ses != nil || x.accepts != nil {
		t.Errorf("left: %+v", x.look)
	}
	for _, large := range []*exchange{{body: make([]byte, keptBuffer+1)}, {out: make([]byte, keptBuffer+1)}} {
		large.users.Store(1)
		s.recycle(large)
		if len(large.body)+len(large.out) == 0 {
			t.Error("a large buffer is kept")
		}
	}
}

// TestAnswerWithoutSession: a response that belongs to no session is taken and
// dropped, whatever it answers.
func TestAnswerWithoutSession(t *testing.T) {
	s := Handler(ServerConfig{Sessions: new(SessionConfig)})
	defer s.Close()
	if w := do(t.Context(), s, http.MethodPost, `{"jsonrpc":"2.0","id":1,"result":1}`); w.Code != http.StatusAccepted || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestOpenOnInSession: the method that opens a session opens none in a session.
func TestOpenOnInSession(t *testing.T) {
	opened := 0
	s := Handler(ServerConfig{Sessions: &SessionConfig{OpenOn: []string{"m"}, Opened: func(*Session) { opened++ }}})
	defer s.Close()
	id := do(t.Context(), s, http.MethodPost, aCall).Header().Get(DefaultSessionHeader)
	if id == "" || opened != 1 {
		t.Fatalf("session %q, %d opened", id, opened)
	}
	again := do(t.Context(), s, http.MethodPost, aCall, DefaultSessionHeader, id).Header().Get(DefaultSessionHeader)
	if again != "" || opened != 1 {
		t.Errorf("again: session %q, %d opened", again, opened)
	}
}

// TestLongMeta: metadata that is too long is as good as none.
func TestLongMeta(t *testing.T) {
	var got jsonrpc.Meta
	s := Handler(ServerConfig{Config: jsonrpc.Config{Handler: jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		got, _ = jsonrpc.MetaFrom(ctx)
		return nil, nil
	})}})
	defer s.Close()
	for _, more := range []int{0, 1} {
		want := jsonrpc.Meta{
			CorrelationID: strings.Repeat("c", maxCorrelationID+more),
			TraceParent:   strings.Repeat("p", maxTraceParent+more),
			TraceState:    strings.Repeat("s", maxTraceState+more),
		}
		w := do(t.Context(), s, http.MethodPost, aCall, correlationHeader, want.CorrelationID, parentHeader, want.TraceParent, stateHeader, want.TraceState)
		if more > 0 {
			want = jsonrpc.Meta{}
		}
		if got != want || w.Header().Get(correlationHeader) != want.CorrelationID {
			t.Errorf("%d bytes beyond the limits: %d, %d and %d came", more, len(got.CorrelationID), len(got.TraceParent), len(got.TraceState))
		}
	}
}

// TestCancelIsInline: that a request is given up finds no full pool in its way,
// and is done when it is answered.
func TestCancelIsInline(t *testing.T) {
	mux := new(jsonrpc.Mux)
	for style, want := range map[jsonrpc.CancelStyle]bool{jsonrpc.MCPCancel: true, jsonrpc.LSPCancel: false, jsonrpc.CancelSilent: false} {
		if got := newHandler(&jsonrpc.Config{Handler: mux, Cancel: style}).Inline([]byte("notifications/cancelled")); got != want {
			t.Errorf("style %d: %t", style, got)
		}
	}
}

// TestDeliverWaits: a POST that finds the backlog of its session full waits, as
// long as its client does and its session lives, which does not idle meanwhile. A
// blank one is no message.
func TestDeliverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := make(chan jsonrpc.Stream, 1)
		s := Handler(ServerConfig{Sessions: &SessionConfig{
			Backlog: 1, Idle: time.Minute,
			Accept: func(st jsonrpc.Stream) { streams <- st },
		}})
		defer s.Close()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		id := do(ctx, s, http.MethodGet, "").Header().Get(DefaultSessionHeader)
		stream := <-streams
		post := func(ctx context.Context, body string) <-chan int {
			code := make(chan int, 1)
			go func() { code <- do(ctx, s, http.MethodPost, body, DefaultSessionHeader, id).Code }()
			synctest.Wait()
			return code
		}
		if got := <-post(t.Context(), " \r\n"); got != http.StatusAccepted {
			t.Errorf("blank: %d", got)
		}
		if got := <-post(t.Context(), aCall); got != http.StatusAccepted {
			t.Errorf("the first: %d", got)
		}
		ctx, leave = context.WithCancel(t.Context())
		hasty, patient := post(ctx, aCall), post(t.Context(), aNotice)
		time.Sleep(time.Hour)
		leave()
		<-hasty
		for _, want := range []string{aCall, aNotice} {
			if part, err := stream.Read(); err != nil || string(part.Data) != want {
				t.Errorf("read %s, %v", part.Data, err)
			}
			synctest.Wait()
		}
		if got := <-patient; got != http.StatusAccepted {
			t.Errorf("who waited: %d", got)
		}
		full, late := post(t.Context(), aCall), post(t.Context(), aCall)
		<-full
		stream.Close()
		if got := <-late; got != http.StatusNotFound {
			t.Errorf("whose session ended: %d", got)
		}
	})
}
