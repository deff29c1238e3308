package bridge_test

import (
	"context"
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

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// streaming serves h and gives an exchange that may call it.
func streaming(t *testing.T, limits bridge.ExchangeLimits, h http.HandlerFunc) (*bridge.Exchange, parley.Agent) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}, Limits: limits})
	t.Cleanup(x.Close)
	return x, parley.Agent{Name: "agent", URL: s.URL + "/rpc", Timeout: time.Minute}
}

var streamed = parley.Task{ID: "run.ask.1", CorrelationID: "corr-1"}

// TestExchange_Do: method, address and headers of a request are its own; what
// every request has stays.
func TestExchange_Do(t *testing.T) {
	for _, direct := range []int{0, -1} { // in the caller's goroutine, and by net/http
		x, agent := streaming(t, bridge.ExchangeLimits{MaxDirect: direct}, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s accept=%v type=%q version=%v corr=%v length=%q body=%q", r.Method, r.RequestURI, r.Header["Accept"],
				r.Header.Get("Content-Type"), r.Header["A2a-Version"], r.Header["X-Correlation-Id"], r.Header.Get("Content-Length"), body)
		})
		base := strings.TrimSuffix(agent.URL, "/rpc")
		for _, c := range []struct {
			r    bridge.Request
			want string
		}{
			{bridge.Request{Body: []byte("{}")}, `POST /rpc accept=[application/json] type="application/json" version=[] corr=[corr-1] length="2" body="{}"`},
			{
				bridge.Request{Method: http.MethodGet, URL: base + "/tasks/1?a=b", Header: http.Header{"Accept": {"x/y"}, "A2A-Version": {"1.0"}}},
				`GET /tasks/1?a=b accept=[x/y] type="" version=[1.0] corr=[corr-1] length="" body=""`,
			},
			{bridge.Request{URL: base + "/tasks/1:cancel"}, `POST /tasks/1:cancel accept=[application/json] type="application/json" version=[] corr=[corr-1] length="0" body=""`},
		} {
			reply, err := x.Do(t.Context(), streamed, agent, c.r)
			if err != nil || string(reply.Body) != c.want {
				t.Errorf("%d: %s, %v\nwant %s", direct, reply.Body, err, c.want)
			}
		}
	}
}

// TestExchange_DoNames: errors name the method and the place of the request.
func TestExchange_DoNames(t *testing.T) {
	x, agent := streaming(t, bridge.ExchangeLimits{}, http.NotFound)
	_, err := x.Do(t.Context(), streamed, agent, bridge.Request{Method: http.MethodGet, URL: agent.URL + "/tasks/1?key=secret"})
	if err == nil || !strings.Contains(err.Error(), "GET "+agent.URL+"/tasks/1: HTTP 404") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestStream_Label: the label of the answer says whether it is a stream.
func TestStream_Label(t *testing.T) {
	for _, c := range []struct {
		status   int
		kind     string
		encoding string
		stream   bool
		fails    bool
	}{
		{200, "text/event-stream", "", true, false},
		{200, "text/event-stream; charset=utf-8", "identity", true, false},
		{200, "Text/Event-Stream", "", true, false},
		{200, "application/json", "", false, false},
		{200, "text/plain", "", false, false},
		{200, "", "", false, false},
		{200, "text/event-stream", "gzip", false, true},
		{500, "text/event-stream", "", false, true},
		{503, "application/json", "", false, true},
	} {
		x, agent := streaming(t, bridge.ExchangeLimits{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			if c.encoding != "" {
				w.Header().Set("Content-Encoding", c.encoding)
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, "data: x\n\n")
		})
		body, reply, err := x.Stream(t.Context(), streamed, agent, bridge.Request{})
		if (body != nil) != c.stream || (err != nil) != c.fails {
			t.Errorf("%d %s %s: stream %v, %v", c.status, c.kind, c.encoding, body != nil, err)
		}
		if body == nil {
			if !c.fails && string(reply.Body) != "data: x\n\n" {
				t.Errorf("%s: %q", c.kind, reply.Body)
			}
			continue
		}
		if got, err := io.ReadAll(body); err != nil || string(got) != "data: x\n\n" {
			t.Errorf("%q, %v", got, err)
		}
		body.Close()
	}
}

// TestStream_Patience: the head has to come within the agent's timeout; what
// follows has no end of its own, and neither has the caller's context.
func TestStream_Patience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		x := newExchange(t, bridge.ExchangeConfig{DialContext: pipeAgent(t, func(c net.Conn) {
			serveConn(c, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/silent" {
					<-r.Context().Done()
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				<-release
				_, _ = io.WriteString(w, "data: late\n\n")
			})
		})})
		agent := parley.Agent{Name: "agent", URL: "http://agent.test/rpc", Timeout: 10 * time.Second}
		const silent = "http://agent.test/silent"
		begun := time.Now()
		_, _, err := x.Stream(t.Context(), streamed, agent, bridge.Request{URL: silent})
		e := wantExchangeError(t, err, bridge.Lost, parley.CodeTimeout)
		if took := time.Since(begun); took != agent.Timeout || !strings.Contains(string(e.Err.Details), `"exchange"`) {
			t.Errorf("no head: after %v: %v %s", took, err, e.Err.Details)
		}
		cut, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		begun = time.Now()
		_, _, err = x.Stream(cut, streamed, agent, bridge.Request{URL: silent})
		e = wantExchangeError(t, err, bridge.Lost, parley.CodeTimeout)
		if took := time.Since(begun); took != time.Second || !strings.Contains(e.Err.Message, "the time for the attempt was up") {
			t.Errorf("no head in time: after %v: %v", took, err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		body, _, err := x.Stream(ctx, streamed, agent, bridge.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		cancel()
		time.Sleep(time.Hour)
		close(release)
		if got, err := io.ReadAll(body); err != nil || string(got) != "data: late\n\n" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestStream_Ends: a stream that is closed here, cut there, or too large says so.
func TestStream_Ends(t *testing.T) {
	x, agent := streaming(t, bridge.ExchangeLimits{MaxResponse: 1 << 10}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		switch r.URL.Path {
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/large":
			for range 100 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1<<10))
			}
		default:
			<-r.Context().Done()
		}
	})
	base := strings.TrimSuffix(agent.URL, "/rpc")
	for path, want := range map[string]parley.Code{
		"/cut": parley.CodeAgentUnavailable, "/large": parley.CodeLimit, "/close": parley.CodeCancelled,
	} {
		body, _, err := x.Stream(t.Context(), streamed, agent, bridge.Request{URL: base + path})
		if err != nil {
			t.Fatal(err)
		}
		if path == "/close" {
			time.AfterFunc(20*time.Millisecond, body.Close)
		}
		_, err = io.Copy(io.Discard, body)
		e, ok := errors.AsType[*bridge.ExchangeError](err)
		if !ok || e.Disposition != bridge.Lost || e.Err.Code != want {
			t.Errorf("%s: %v", path, err)
		}
		body.Close()
		body.Close()
	}
}
