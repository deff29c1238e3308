package execution_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zoneauth"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

const taskID = "6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b10"

func body(text string) string {
	return `{"jsonrpc":"2.0","method":"execute_task","params":{"correlation_id":"c-1","text":"` + text + `"},"id":"` + taskID + `"}`
}

func do(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// TestZN4_Routes answers every path and method; a POST always as JSON-RPC.
func TestZN4_Routes(t *testing.T) {
	rig := zonetest.NewRig(func(c *execution.Config) { c.Card = json.RawMessage(zonetest.Card) })
	const noPath = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: no such path","data":{"reason":"invalid_request","correlation_id":"`
	for _, tc := range []struct {
		a2a          bool
		method, path string
		status       int
		want         string // how the body begins
	}{
		{false, "POST", "/invocations", 200, `{"jsonrpc":"2.0","result":{"status":"success"`},
		{false, "POST", "/invocations?x=1", 200, `{"jsonrpc":"2.0","result":{"status":"success"`},
		{false, "GET", "/invocations", 405, "POST is the method"},
		{false, "PUT", "/invocations", 405, "POST is the method"},
		{false, "GET", "/ping", 200, `{"status":"Healthy","time_of_last_update":`},
		{false, "HEAD", "/ping", 200, ""},
		{false, "POST", "/ping", 405, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: GET is the method of this path"`},
		{false, "GET", "/openrpc.json", 200, `{"components":`},
		{false, "GET", "/schema/execute_task.json", 200, `{"$schema":"https://json-schema.org/draft/2020-12/schema"`},
		{false, "GET", "/schema/execute_task.result.json", 200, `{"$schema":`},
		{false, "GET", "/schema/get_async_task_result.json", 200, `{"$schema":`},
		{false, "GET", "/schema/error.json", 200, `{"$schema":`},
		{false, "GET", "/schema/other.json", 404, "no such path"},
		{false, "POST", "/invocations/", 404, noPath},
		{false, "POST", "/", 404, noPath},
		{false, "GET", "/", 404, "no such path"},
		{true, "POST", "/", 200, `{"jsonrpc":"2.0","result":{"status":"success"`},
		{true, "GET", "/", 405, "POST is the method"},
		{true, "GET", "/.well-known/agent-card.json", 200, zonetest.Card},
		{true, "GET", "/.well-known/agent.json", 404, "no such path"},
		{true, "GET", "/ping", 200, `{"status":"Healthy"`},
		{true, "POST", "/message:send", 400, `{"error":{"code":400`},
		{true, "POST", "/v1/message:send", 400, `{"error":{"code":400`},
		{true, "POST", "/invocations", 404, noPath},
	} {
		h := rig.Zone.Handler()
		if tc.a2a {
			h = rig.Zone.A2AHandler()
		}
		w := do(h, tc.method, tc.path, body("say x"))
		if got := w.Body.String(); w.Code != tc.status || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, w.Code, got, tc.status, tc.want)
		}
		if w.Code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", tc.method, tc.path)
		}
		if ct := w.Header().Get("Content-Type"); strings.HasPrefix(tc.want, "{") && ct != "application/json" {
			t.Errorf("%s %s: %s", tc.method, tc.path, ct)
		}
	}
}

// TestZN7_RefusalsAreFound: the correlation id of every answer leads to a line in the log
// that says why, also where no request of the contract was read.
func TestZN7_RefusalsAreFound(t *testing.T) {
	rig := zonetest.NewRig(nil)
	for name, c := range map[string]struct {
		h          http.Handler
		path, body string
		why        string
	}{
		"no path":      {rig.Zone.Handler(), "/elsewhere", body("say x"), "no such path: /elsewhere"},
		"no method":    {rig.Zone.Handler(), "/ping", body("say x"), "GET is the method of this path: /ping"},
		"no request":   {rig.Zone.A2AHandler(), "/", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"kind":"text","text":"hi"}]}}}`, "without a request"},
		"no REST":      {rig.Zone.A2AHandler(), "/message:send", `{"message":{"parts":[]}}`, "without a request"},
		"no envelope":  {rig.Zone.A2AHandler(), "/", `[]`, `"reason":"invalid_request"`},
		"no execution": {rig.Zone.Handler(), "/invocations", `{`, `"reason":"parse_error"`},
	} {
		id := "corr-" + strings.ReplaceAll(name, " ", "-")
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		r.Header.Set("X-Correlation-Id", id)
		c.h.ServeHTTP(httptest.NewRecorder(), r)
		found := false
		for line := range strings.SplitSeq(rig.Log.String(), "\n") {
			found = found || strings.Contains(line, id) && strings.Contains(line, c.why)
		}
		if !found {
			t.Errorf("%s: no line with %s and %q in %s", name, id, c.why, rig.Log)
		}
	}
}

// TestZN4_ContentTypes takes bytes whatever they are said to be.
func TestZN4_ContentTypes(t *testing.T) {
	h := zonetest.NewRig(nil).Zone.Handler()
	for _, ct := range []string{"", "application/json", "application/octet-stream", "text/plain; charset=latin1", "nonsense/"} {
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(body("say x")))
		r.Header.Set("Content-Type", ct)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"response_text":"x"`) {
			t.Errorf("%q: %d %s", ct, w.Code, w.Body)
		}
	}
}

// TestZN6_Ping says busy as long as tasks run, also those that nobody waits for, and
// moves the time with the status only.
func TestZN6_Ping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(func(c *execution.Config) { c.SyncLimit = time.Second })
		h := rig.Zone.Handler()
		start := time.Now().Unix()
		expect := func(status string, since int64) {
			t.Helper()
			want := `{"status":"` + status + `","time_of_last_update":` + json.Number(mustJSON(since)).String() + `}`
			if got := do(h, "GET", "/ping", "").Body.String(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		expect("Healthy", start)
		time.Sleep(10 * time.Second)
		expect("Healthy", start)
		asked := make(chan string)
		go func() { asked <- do(h, "POST", "/invocations", body("later x")).Body.String() }()
		synctest.Wait()
		expect("HealthyBusy", start+10)
		if got := <-asked; !strings.Contains(got, `"accepted"`) {
			t.Errorf("got %s", got)
		}
		time.Sleep(time.Minute)
		expect("HealthyBusy", start+10)
		rig.Work.Finish()
		expect("Healthy", start+71)
		time.Sleep(time.Minute)
		expect("Healthy", start+71)
	})
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestZN5_SyncLimit waits for a task exactly as long as it may.
func TestZN5_SyncLimit(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: execution.DefaultSyncLimit, time.Minute: time.Minute, time.Hour: execution.MaxSyncLimit} {
		synctest.Test(t, func(t *testing.T) {
			rig := zonetest.NewRig(func(c *execution.Config) { c.SyncLimit = limit })
			began := time.Now()
			got := do(rig.Zone.Handler(), "POST", "/invocations", body("later x")).Body.String()
			if took := time.Since(began); took != want || !strings.Contains(got, `"accepted"`) {
				t.Errorf("limit %s: %s after %s", limit, got, took)
			}
		})
	}
}

// TestZN5_Repeated answers a request and its repetition from one task, also while it
// runs.
func TestZN5_Repeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(func(c *execution.Config) { c.SyncLimit = time.Minute })
		var group sync.WaitGroup
		answers := make([]string, 10)
		for i := range answers {
			group.Go(func() { answers[i] = do(rig.Zone.Handler(), "POST", "/invocations", body("later x")).Body.String() })
		}
		synctest.Wait()
		rig.Work.Finish()
		group.Wait()
		for _, a := range answers {
			if a != answers[0] || !strings.Contains(a, `"response_text":"x"`) {
				t.Errorf("%s and %s", a, answers[0])
			}
		}
		if n := rig.Work.Starts(); n != 1 {
			t.Errorf("%d tasks", n)
		}
	})
}

// TestZN4_Overload refuses what is more than it may have in hand, at once, and still
// answers those who ask for results.
func TestZN4_Overload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(func(c *execution.Config) { c.SyncLimit, c.MaxInFlight = time.Minute, 2 })
		h := rig.Zone.Handler()
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				do(h, "POST", "/invocations", `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"later x"},"id":1}`)
			})
		}
		synctest.Wait()
		began := time.Now()
		const want = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"overloaded, try again later","data":{"reason":"overloaded","correlation_id":"c-1","retry_after_ms":2000}},"id":"` + taskID + `"}`
		if got := do(h, "POST", "/invocations", body("say x")).Body.String(); got != want || time.Since(began) > 0 {
			t.Errorf("got %s", got)
		}
		look := do(h, "POST", "/invocations", `{"jsonrpc":"2.0","method":"get_async_task_result","params":{"task_id":"x"},"id":1}`).Body.String()
		if !strings.Contains(look, `"unknown_task"`) {
			t.Errorf("got %s", look)
		}
		rig.Work.Finish()
		group.Wait()
		if got := do(h, "POST", "/invocations", body("say x")).Body.String(); !strings.Contains(got, `"response_text":"x"`) {
			t.Errorf("afterwards: %s", got)
		}
	})
}

// TestZN4_Draining lets go of who waits, and refuses new tasks.
func TestZN4_Draining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(func(c *execution.Config) { c.SyncLimit = time.Minute })
		h := rig.Zone.Handler()
		began := time.Now()
		asked := make(chan string)
		go func() { asked <- do(h, "POST", "/invocations", body("later x")).Body.String() }()
		synctest.Wait()
		rig.Zone.Drain()
		if got := <-asked; !strings.Contains(got, `"accepted","task_id":"`+taskID) || time.Since(began) > 0 {
			t.Errorf("who waited got %s after %s", got, time.Since(began))
		}
		if got := do(h, "POST", "/invocations", body("later x")).Body.String(); !strings.Contains(got, `"reason":"stopping"`) {
			t.Errorf("got %s", got)
		}
		rig.Work.Finish()
		if got := do(h, "POST", "/invocations", `{"jsonrpc":"2.0","method":"get_async_task_result","params":{"task_id":"`+taskID+`"},"id":1}`).Body.String(); !strings.Contains(got, `"completed"`) {
			t.Errorf("got %s", got)
		}
	})
}

// TestZN5_CallerGone goes on with the task of a caller that went away.
func TestZN5_CallerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(nil)
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "/invocations", strings.NewReader(body("later x")))
		gone := make(chan struct{})
		go func() {
			rig.Zone.Handler().ServeHTTP(httptest.NewRecorder(), r)
			close(gone)
		}()
		synctest.Wait()
		cancel()
		<-gone
		if rig.Work.Running() != 1 || rig.Work.Starts() != 1 {
			t.Error("the task did not go on")
		}
	})
}

// strictWork fails whoever starts a task with a context that has ended.
type strictWork struct {
	zonetest.Work
	out   func() (execution.Outcome, error)
	start error
}

func (w *strictWork) Start(ctx context.Context, key string, in execution.Input) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("no deadline")
	}
	if w.start != nil {
		return w.start
	}
	return w.Work.Start(ctx, key, in)
}

func (w *strictWork) Await(ctx context.Context, key string) (execution.Outcome, error) {
	if w.out != nil {
		return w.out()
	}
	return w.Work.Await(ctx, key)
}

// TestZN5_StartIsNotCutShort starts a task even when its caller has gone meanwhile,
// since a start that was cut has an outcome that nobody knows.
func TestZN5_StartIsNotCutShort(t *testing.T) {
	w := &strictWork{}
	rig := zonetest.NewRig(func(c *execution.Config) { c.Work = w })
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "/invocations", io.MultiReader(strings.NewReader(body("say x")), goodbye(cancel)))
	rig.Zone.Handler().ServeHTTP(httptest.NewRecorder(), r)
	if w.Starts() != 1 {
		t.Errorf("not started: %s", rig.Log)
	}
}

// TestZN4_OverloadOfTheWork says when to try again also where the Work does not.
func TestZN4_OverloadOfTheWork(t *testing.T) {
	rig := zonetest.NewRig(func(c *execution.Config) { c.Work = &strictWork{start: &execution.OverloadedError{}} })
	if got := do(rig.Zone.Handler(), "POST", "/invocations", body("say x")).Body.String(); !strings.Contains(got, `"retry_after_ms":2000`) {
		t.Errorf("%s", got)
	}
}

// slowStart is a Work whose Start takes its time.
type slowStart struct {
	zonetest.Work
	goOn chan struct{}
}

func (w *slowStart) Start(ctx context.Context, _ string, _ execution.Input) error {
	select {
	case <-w.goOn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestZN6_PingWhileStarting is busy before there is a task, and bounds how long that
// may take.
func TestZN6_PingWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(func(c *execution.Config) { c.Work = &slowStart{goOn: make(chan struct{})} })
		h := rig.Zone.Handler()
		asked := make(chan string)
		began := time.Now()
		go func() { asked <- do(h, "POST", "/invocations", body("x")).Body.String() }()
		synctest.Wait()
		if got := do(h, "GET", "/ping", "").Body.String(); !strings.Contains(got, "HealthyBusy") {
			t.Errorf("%s", got)
		}
		if got := <-asked; !strings.Contains(got, `"internal"`) || time.Since(began) != 30*time.Second {
			t.Errorf("%s after %s", got, time.Since(began))
		}
	})
}

// goodbye is a caller that goes away when all of its body was read.
type goodbye func()

func (g goodbye) Read([]byte) (int, error) {
	g()
	return 0, io.EOF
}

// TestZN5_OddWork answers what a Work should not do.
func TestZN5_OddWork(t *testing.T) {
	for name, tc := range map[string]struct {
		out  execution.Outcome
		err  error
		want string
	}{
		"deadline":      {err: context.DeadlineExceeded, want: `"status":"accepted"`},
		"forgot":        {err: execution.ErrUnknown, want: `"status":"accepted"`},
		"no-output":     {out: execution.Outcome{State: execution.Completed}, want: `"status":"success","response_text":""`},
		"broken-output": {out: execution.Outcome{State: execution.Completed, Output: json.RawMessage(`{"text":`)}, want: `"response_text":"{\"text\":"`},
		"not-utf-8":     {out: execution.Outcome{State: execution.Completed, Output: json.RawMessage("{\"text\":\"a\",\"more\":\"\xff\"}")}, want: `"response_text":"a","correlation_id":"c-1"},"id"`},
		"new-state":     {out: execution.Outcome{State: 99, Cause: "cause"}, want: `"reason":"task_failed"`},
		"much-output":   {out: execution.Outcome{State: execution.Completed, Output: json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)}, want: `"code":-32000,"message":"it is larger than the limit","data":{"reason":"too_large"`},
	} {
		w := &strictWork{out: func() (execution.Outcome, error) { return tc.out, tc.err }}
		rig := zonetest.NewRig(func(c *execution.Config) { c.Work, c.MaxResponse = w, 1000 })
		if got := do(rig.Zone.Handler(), "POST", "/invocations", body("say x")).Body.String(); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func (w *strictWork) Look(ctx context.Context, key string) (execution.Outcome, error) {
	if w.out != nil {
		return w.out()
	}
	return w.Work.Look(ctx, key)
}

// TestZN5_LookFails says that it cannot tell, and does not say that there is no such
// task: who hears that sends the task again.
func TestZN5_LookFails(t *testing.T) {
	w := &strictWork{out: func() (execution.Outcome, error) { return execution.Outcome{}, errors.New("secret-of-the-inside") }}
	rig := zonetest.NewRig(func(c *execution.Config) { c.Work = w })
	got := do(rig.Zone.Handler(), "POST", "/invocations", `{"jsonrpc":"2.0","method":"get_async_task_result","params":{"task_id":"x","correlation_id":"c-1"},"id":1}`).Body.String()
	if got != `{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error","data":{"reason":"internal","correlation_id":"c-1"}},"id":1}` {
		t.Errorf("%s", got)
	}
	if !strings.Contains(rig.Log.String(), "secret-of-the-inside") {
		t.Errorf("the log has no cause: %s", rig.Log)
	}
}

// TestZN5_CutAwait takes a Work at its word that the time is over, and answers that
// the task was accepted.
func TestZN5_CutAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(func(c *execution.Config) { c.Work, c.SyncLimit = &cutAwait{}, time.Second })
		got := do(rig.Zone.Handler(), "POST", "/invocations", body("later x")).Body.String()
		if !strings.Contains(got, `"accepted"`) || strings.Contains(rig.Log.String(), `"err"`) {
			t.Errorf("%s, log %s", got, rig.Log)
		}
	})
}

// cutAwait is a Work whose Await fails with its context, as queries do.
type cutAwait struct{ zonetest.Work }

func (*cutAwait) Await(ctx context.Context, _ string) (execution.Outcome, error) {
	<-ctx.Done()
	return execution.Outcome{}, ctx.Err()
}

// TestZN4_Unauthorized answers 401 before a byte of the body is read, and a check
// that panics lets nobody in.
func TestZN4_Unauthorized(t *testing.T) {
	for name, check := range map[string]func(*http.Request) error{
		"refused": func(*http.Request) error { return errors.New("token is of another audience") },
		"panic":   func(*http.Request) error { panic("token is of another audience") },
	} {
		rig := zonetest.NewRig(func(c *execution.Config) { c.Authorize = check })
		for _, h := range []http.Handler{rig.Zone.Handler(), rig.Zone.A2AHandler()} {
			path := "/invocations"
			if rig.Work.Starts() > 0 {
				t.Fatal("started")
			}
			if do(h, "POST", path, "").Code == 404 {
				path = "/"
			}
			unread := strings.NewReader(body("say x"))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, unread))
			const want = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"not authorized","data":{"reason":"unauthorized","correlation_id":"`
			if w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" || !strings.HasPrefix(w.Body.String(), want) || !strings.HasSuffix(w.Body.String(), `"}},"id":null}`) {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			if unread.Len() != len(body("say x")) {
				t.Errorf("%s: the body was read", name)
			}
			if do(h, "GET", "/ping", "").Code != 200 {
				t.Errorf("%s: the platform may not ping", name)
			}
		}
		if log := rig.Log.String(); !strings.Contains(log, "another audience") || !strings.Contains(log, `"reason":"unauthorized"`) {
			t.Errorf("%s: log %s", name, log)
		}
	}
}

// TestZN4_Pages: where nobody is asked who they are, pages in a browser have no task
// done, be it by a name that leads to this machine; programs have.
func TestZN4_Pages(t *testing.T) {
	for _, tc := range []struct {
		local, host string
		header      []string
		status      int
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", nil, 200},
		{"127.0.0.1:8080", "zone.example", nil, 200}, // of a proxy on this machine
		{"127.0.0.1:8080", "127.0.0.1:8080", []string{"Origin", "https://page.example"}, 403},
		{"127.0.0.1:8080", "127.0.0.1:8080", []string{"Origin", "null"}, 403},
		{"127.0.0.1:8080", "localhost:8080", []string{"Origin", "http://localhost:3000"}, 403},
		{"127.0.0.1:8080", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"[::1]:8080", "page.example:8080", []string{"Origin", "http://page.example:8080", "Sec-Fetch-Site", "same-origin"}, 403},
		{"[::1]:8080", "localhost:8080", []string{"Origin", "http://localhost:8080", "Sec-Fetch-Site", "same-origin"}, 200},
		{"192.0.2.1:8080", "zone.example:8080", []string{"Origin", "http://zone.example:8080"}, 200},
		{"192.0.2.1:8080", "zone.example:8080", []string{"Origin", "https://page.example"}, 403},
	} {
		rig := zonetest.NewRig(nil)
		for path, h := range map[string]http.Handler{"/invocations": rig.Zone.Handler(), "/": rig.Zone.A2AHandler()} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body("say x")))
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc.local))))
			r.Host = tc.host
			r.Header.Set("Content-Type", "text/plain")
			for i := 0; i < len(tc.header); i += 2 {
				r.Header.Set(tc.header[i], tc.header[i+1])
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.status || tc.status == 403 && (rig.Work.Starts() > 0 || !strings.Contains(w.Body.String(), `"reason":"unauthorized"`)) {
				t.Errorf("%s at %s, %q: %d %s, want %d", path, tc.host, tc.header, w.Code, w.Body, tc.status)
			}
		}
		if tc.status == 403 && !strings.Contains(rig.Log.String(), "a page in a browser called") {
			t.Errorf("log %s", rig.Log)
		}
	}
}

// TestZN4_Undecided: while the issuer is away nobody is let in, and nobody is told
// that he is not believed.
func TestZN4_Undecided(t *testing.T) {
	rig := zonetest.NewRig(func(c *execution.Config) {
		c.Authorize = func(*http.Request) error { return fmt.Errorf("%w: dial", zoneauth.ErrUnavailable) }
	})
	tr := zonetest.Memory(rig.Zone.Handler())
	client := zone.NewClient(zone.ClientConfig{Transport: tr, Profile: zone.ProfileRelaxed, NewID: zonetest.IDs()})
	_, info, err := client.Ask(t.Context(), zone.Call{ID: zonetest.IDs()(), Task: zone.Task{Text: "say x"}})
	fault, ok := errors.AsType[*zone.Error](err)
	if !ok || fault.Reason != zone.ReasonOverloaded || fault.RetryAfterMS != 10_000 || info.Status != 503 || rig.Work.Starts() != 0 {
		t.Errorf("%#v, %+v", err, info)
	}
	w := do(rig.Zone.Handler(), "POST", "/invocations", body("say x"))
	if w.Code != 503 || w.Header().Get("Retry-After") != "10" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if log := rig.Log.String(); !strings.Contains(log, "the issuer could not be asked: dial") {
		t.Errorf("log %s", log)
	}
}

// TestZN7_Log writes one line for each request, by which it is found: with the
// cause, which nobody else is told, and the stack of a panic.
func TestZN7_Log(t *testing.T) {
	for text, want := range map[string]map[string]any{
		"say x":      {"level": "INFO", "outcome": "ok", "code": nil, "err": nil},
		"fail":       {"level": "WARN", "outcome": "error", "code": -32000.0, "reason": "task_failed", "err": "cause: secret-of-the-inside"},
		"time out":   {"level": "WARN", "outcome": "error", "code": -32001.0, "reason": "timeout"},
		"break":      {"level": "ERROR", "outcome": "error", "code": -32603.0, "reason": "internal", "err": "it broke: secret-of-the-inside"},
		"break late": {"level": "WARN", "outcome": "accepted", "err": "it broke: secret-of-the-inside"},
		"panic":      {"level": "ERROR", "outcome": "error", "code": -32603.0, "reason": "internal"},
		"panic late": {"level": "ERROR", "outcome": "error", "code": -32603.0, "reason": "internal"},
	} {
		rig := zonetest.NewRig(nil)
		do(rig.Zone.Handler(), "POST", "/invocations", body(text))
		lines := strings.Split(strings.TrimSpace(rig.Log.String()), "\n")
		var line map[string]any
		if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || len(lines) != 1 {
			t.Fatalf("%s: %d lines, %v: %s", text, len(lines), err, rig.Log)
		}
		want["method"], want["id"], want["task_id"], want["correlation_id"], want["msg"] = "execute_task", `"`+taskID+`"`, taskID, "c-1", "zone request"
		for name, v := range want {
			if line[name] != v {
				t.Errorf("%s: %s is %v, want %v", text, name, line[name], v)
			}
		}
		if _, ok := line["took"].(float64); !ok {
			t.Errorf("%s: took %v", text, line["took"])
		}
		if strings.HasPrefix(text, "panic") && !strings.Contains(fmt.Sprint(line["stack"]), "work.go") {
			t.Errorf("%s: no stack: %v", text, line)
		}
	}
}

// TestZN7_LogOfCauses keeps what an agent said of its failure to one short line, and
// the tokens in it out.
func TestZN7_LogOfCauses(t *testing.T) {
	cause := "no\x1b[2J\n{\"level\":\"INFO\"} xoxb-secret-of-the-model " + strings.Repeat("y", 100_000)
	w := &strictWork{out: func() (execution.Outcome, error) {
		return execution.Outcome{State: execution.Failed, Cause: cause}, nil
	}}
	rig := zonetest.NewRig(func(c *execution.Config) { c.Work = w })
	do(rig.Zone.Handler(), "POST", "/invocations", body("say x"))
	var line struct{ Err string }
	if err := json.Unmarshal([]byte(rig.Log.String()), &line); err != nil {
		t.Fatal(err)
	}
	if want := `no [2J {"level":"INFO"} [redacted] yyy`; !strings.HasPrefix(line.Err, want) || len(line.Err) > 300 {
		t.Errorf("%d bytes: %.300q", len(line.Err), line.Err)
	}
}

// TestZN7_CorrelationID takes the id of the params, of a header or a new one, and
// nothing that may not be in a line.
func TestZN7_CorrelationID(t *testing.T) {
	for _, tc := range []struct{ params, header, request, want string }{
		{`"correlation_id":"p-1",`, "h-1", "r-1", "p-1"},
		{``, "h-1", "r-1", "h-1"},
		{``, "", "r-1", "r-1"},
		{``, "", "", "00000000-0000-4000-8000-000000000001"},
		{``, "h\x01", strings.Repeat("r", 129), "00000000-0000-4000-8000-000000000001"},
		{`"correlation_id":"",`, "h-1", "", "h-1"},
	} {
		for _, text := range []string{"say x", "fail"} {
			rig := zonetest.NewRig(nil)
			r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(`{"jsonrpc":"2.0","method":"execute_task","params":{`+tc.params+`"text":"`+text+`"},"id":"`+taskID+`"}`))
			r.Header.Set("X-Correlation-ID", tc.header)
			r.Header.Set("X-Amzn-Bedrock-AgentCore-Runtime-Request-Id", tc.request)
			w := httptest.NewRecorder()
			rig.Zone.Handler().ServeHTTP(w, r)
			if want := `"correlation_id":"` + tc.want + `"`; !strings.Contains(w.Body.String(), want) || !strings.Contains(rig.Log.String(), want) {
				t.Errorf("%+v: %s, log %s", tc, w.Body, rig.Log)
			}
		}
	}
}

// TestZN4_LargeBodies refuses what is too large, whether its length was told or not,
// and takes what is just not.
func TestZN4_LargeBodies(t *testing.T) {
	const most = 3 << 20 // beyond what is taken in advance
	rig := zonetest.NewRig(func(c *execution.Config) { c.MaxBody = most })
	server := httptest.NewServer(rig.Zone.Handler())
	defer server.Close()
	text := body("say x")
	unread := strings.NewReader(strings.Repeat(" ", 2*most+1))
	w := httptest.NewRecorder()
	rig.Zone.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/invocations", unread))
	if unread.Len() != 2*most+1 || !strings.Contains(w.Body.String(), "too_large") {
		t.Errorf("%d bytes were read: %s", 2*most+1-unread.Len(), w.Body)
	}
	for _, size := range []int{most, most + 1, 2 * most} {
		for _, told := range []bool{true, false} {
			var src io.Reader = strings.NewReader(text + strings.Repeat(" ", size-len(text)))
			if !told {
				src = io.MultiReader(src) // its length is not known
			}
			res, err := http.Post(server.URL+"/invocations", "application/json", src)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			want := `"response_text":"x"`
			if size > most {
				want = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: it is larger than 3145728 bytes","data":{"reason":"too_large",`
			}
			if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(got), want) {
				t.Errorf("%d bytes, told %v: %d %s %v", size, told, res.StatusCode, got, err)
			}
		}
	}
}

// TestZN4_SlowBodies gives up on a body that does not come, so that it keeps nobody
// out.
func TestZN4_SlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := zonetest.NewRig(nil)
		near, far := net.Pipe()
		served := make(chan struct{})
		server := &http.Server{Handler: rig.Zone.Handler()}
		go func() {
			server.Serve(&once{conn: far, closed: make(chan struct{})})
			close(served)
		}()
		go near.Write([]byte("POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"))
		began := time.Now()
		answer, _ := io.ReadAll(near)
		if took := time.Since(began); took != time.Minute || !bytes.Contains(answer, []byte(`"parse_error"`)) {
			t.Errorf("after %s: %s", took, answer)
		}
		server.Close()
		near.Close()
		<-served
	})
}

// once is a listener of one connection.
type once struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *once) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *once) Close() error {
	close(l.closed)
	return nil
}

func (l *once) Addr() net.Addr { return &net.TCPAddr{} }

// TestZN5_Fingerprint tells tasks apart, and not the same task asked for again.
func TestZN5_Fingerprint(t *testing.T) {
	base := execution.Input{Text: "x", Channel: "C", ThreadTS: "1", TeamID: "T", UserID: "U", CorrelationID: "c", Attachments: []zone.Attachment{{ID: "F", Size: 5, PresignedURL: "a"}}}
	again := base
	again.CorrelationID, again.Attachments = "other", []zone.Attachment{{ID: "F", Size: 5, PresignedURL: "b"}}
	if base.Fingerprint() != again.Fingerprint() || len(base.Fingerprint()) != 64 || base.Attachments[0].PresignedURL != "a" {
		t.Error("the same task has another fingerprint")
	}
	seen := map[string]bool{base.Fingerprint(): true}
	for _, change := range []func(*execution.Input){
		func(in *execution.Input) { in.Text = "y" }, func(in *execution.Input) { in.Channel = "y" }, func(in *execution.Input) { in.ThreadTS = "y" },
		func(in *execution.Input) { in.TeamID = "y" }, func(in *execution.Input) { in.UserID = "y" }, func(in *execution.Input) { in.Attachments = nil },
		func(in *execution.Input) { in.Attachments = []zone.Attachment{{ID: "G", Size: 5}} },
	} {
		in := base
		change(&in)
		if f := in.Fingerprint(); seen[f] {
			t.Errorf("%+v has the fingerprint of another task", in)
		} else {
			seen[f] = true
		}
	}
}
