package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/parley-project/parley"
)

// declaredCodes reads the codes from the source of package parley.
func declaredCodes(t *testing.T) []parley.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, 0)
	must(t, err)
	var codes []parley.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) == 0 {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Code" {
			v, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			must(t, err)
			codes = append(codes, parley.Code(v))
		}
		return true
	})
	if len(codes) < 15 {
		t.Fatalf("only %d codes found", len(codes))
	}
	return codes
}

// Every code of package parley has a status of its own choice on both kinds of
// paths; conflict and unknown_agent are 400 on those of formats.md.
func TestEveryCodeIsMapped(t *testing.T) {
	for _, code := range declaredCodes(t) {
		now, known := statusOf(code, false)
		old, knownOld := statusOf(code, true)
		if !known || !knownOld || now < 400 || old < 400 {
			t.Errorf("%s: %d, %d", code, now, old)
		}
		if want := code == parley.CodeConflict || code == parley.CodeUnknownAgent; (old != now) != want || want && old != 400 {
			t.Errorf("%s is %d, and %d on old paths", code, now, old)
		}
	}
	for details, want := range map[string]int{`{"conflict":"deprecated"}`: 409, `{"conflict":"ending"}`: 409, `{"conflict":""}`: 400, `[]`: 400, ``: 400} {
		e := parley.Errorf(parley.CodeConflict, "no")
		e.Details = json.RawMessage(details)
		if got := translate(e, true); got.status != want {
			t.Errorf("a conflict with details %s is %d on old paths, want %d", details, got.status, want)
		}
	}
	if status, known := statusOf("made_up", false); known || status != 500 {
		t.Errorf("an unknown code is %d", status)
	}
}

// The type of an error is a link to a heading of the page of errors.
func TestEveryCodeHasAHeading(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range declaredCodes(t) {
		if !strings.Contains(string(page), "\n## "+string(code)+"\n") {
			t.Errorf("docs/errors.md has no heading %s, where the type of such an error leads", code)
		}
	}
}

// What a view says in a *parley.Error is shown, with its details; what any
// other error says stays in the log, under the request's id.
func TestInternalErrorsStayInside(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		status int
		shown  bool
	}{
		{"plain", errors.New("pq: canary"), 500, false},
		{"internal", parley.Errorf(parley.CodeInternal, "canary").WithDetails("canary"), 500, false},
		{"unknown code", parley.Errorf("made_up", "canary"), 500, false},
		{"wrapped cause", parley.Errorf(parley.CodeUnavailable, "the store is away: %w", errors.New("x")), 503, true},
		{"wrapped", fmt.Errorf("canary: %w", parley.Errorf(parley.CodeNotFound, "no such run")), 404, true},
		{"details", parley.Errorf(parley.CodeLimit, "too many").WithDetails(map[string]int{"limit": 7}), 422, true},
		{"deadline", fmt.Errorf("canary: %w", context.DeadlineExceeded), 503, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			s, w := setup(func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			w.broken = tt.err
			rec := call(s.handler(), "GET", "/api/v1/runs/run-1", "", "X-Correlation-ID", "mine")
			p := failure(t, rec)
			if rec.Code != tt.status || strings.Contains(rec.Body.String(), "canary") || p.RequestID != "mine" {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
			if logged := strings.Contains(log.String(), "request_id=mine"); logged != !tt.shown {
				t.Errorf("logged: %q", &log)
			}
			if tt.name == "details" && string(p.Details) != `{"limit":7}` {
				t.Errorf("details %s", p.Details)
			}
			if tt.status == 503 && rec.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		})
	}
}

// The registry's findings become those of the answer.
func TestDetailsBecomeFindings(t *testing.T) {
	s, w := setup(nil)
	w.broken = parley.Errorf(parley.CodeInvalid, "agent is not valid: name: too long").
		WithDetails([]map[string]string{{"path": "protocol_config.method", "code": "value", "detail": "must be a name"}})
	p := failure(t, call(s.handler(), "POST", "/api/v1/agents", `{"name":"A","url":"http://a"}`))
	want := []finding{bodyFinding("protocol_config.method", "value", "value", "must be a name")}
	if diff := cmp.Diff(want, p.Errors); diff != "" || p.Status != 422 || p.Details != nil {
		t.Errorf("%d %s (-want +got):\n%s", p.Status, p.Details, diff)
	}
}

// Every operation with a broken view answers 500 in the one form.
func TestEveryRouteHidesInternals(t *testing.T) {
	s, w := setup(nil)
	w.broken = errors.New("canary")
	fill := strings.NewReplacer("{ref}", "a", "{id}", "a", "{alias}", "a")
	bodies := map[string]string{
		"apply-workflow": onePlan, "change-workflow": onePlan, "start-run": `{"input_data":{}}`, "call-agent": `{}`,
		"add-agent": `{"name":"A","url":"http://a"}`, "change-agent": `{}`, "detect-agent": `{"url":"http://a"}`, "answer-run": `{"text":"x"}`,
		"replay-dead-letters": `{"filter":{}}`, "discard-dead-letters": `{"filter":{}}`, "switch-breaker": `{"action":"open"}`, "set-alias": `{"version":"1"}`,
		"cancel-runs": `{"filter":{}}`, "terminate-runs": `{"filter":{}}`, "pause-runs": `{"filter":{}}`, "resume-runs": `{"filter":{}}`, "retry-runs": `{"filter":{}}`,
		"publish-event": `{"event":"x"}`, "add-schedule": `{"workflow":"a","every":"1h"}`,
		"backfill-schedule": `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`, "signal-run": `{"event":"x"}`, "import-runs": `{}`,
	}
	for _, rt := range s.routes {
		if rt.tag == "system" || rt.id == "validate-workflow" {
			continue
		}
		rec := call(s.handler(), rt.method, fill.Replace(rt.path), bodies[rt.id])
		if p := failure(t, rec); rec.Code != 500 || p.Code != parley.CodeInternal || strings.Contains(rec.Body.String(), "canary") {
			t.Errorf("%s: %d %s", rt.id, rec.Code, rec.Body)
		}
	}
}

// panicking is a view that fails in the worst way.
type panicking struct{ fakeAgents }

func (panicking) Get(context.Context, string) (parley.Agent, error) { panic("canary") }

func TestPanicIsAnswered(t *testing.T) {
	var log bytes.Buffer
	s, _ := setup(func(c *Config) {
		c.Agents = panicking{c.Agents.(fakeAgents)}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	rec := call(s.handler(), "GET", "/api/v1/agents/a", "")
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "canary") || !strings.Contains(log.String(), "canary") {
		t.Errorf("%d %s; log %q", rec.Code, rec.Body, &log)
	}
}

// A client that has gone gets no answer, and its going is no error.
func TestClientGone(t *testing.T) {
	var log bytes.Buffer
	s, w := setup(func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w.broken = context.Canceled
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/runs/run-1", nil)
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer test-key")
	rec := httptest.NewRecorder()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler || rec.Body.Len() != 0 || log.Len() != 0 {
			t.Errorf("ended with %v, answered %q, logged %q", got, rec.Body, &log)
		}
	}()
	s.handler().ServeHTTP(rec, r)
}

// TestClientThatSendsNoMore: a client that has closed the side of its connection that it
// sends on is taken for gone, and is not told that all is well.
func TestClientThatSendsNoMore(t *testing.T) {
	s, _ := setup(nil)
	call(s.handler(), "POST", "/api/v1/workflows", onePlan)
	server := httptest.NewServer(s.handler())
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	const body = `{"input_data":{}}`
	_, err = fmt.Fprintf(conn, "POST /api/v1/workflows/a/execute HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-key\r\n"+
		"Content-Type: application/json\r\nPrefer: wait=60\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	if answer, err := io.ReadAll(conn); err == nil && len(answer) > 0 {
		t.Errorf("the answer is %q", answer)
	}
}

func TestReady(t *testing.T) {
	var err error
	s, _ := setup(func(c *Config) { c.Ready = func(context.Context) error { return err } })
	for _, tt := range []struct {
		err    error
		status int
		say    string
	}{
		{nil, 200, "ready"},
		{errors.New("canary"), 503, "not ready"},
		{parley.Errorf(parley.CodeUnavailable, "the store is away"), 503, "the store is away"},
		{parley.Errorf(parley.CodeInternal, "canary"), 503, "not ready"},
		{parley.Errorf(parley.CodeUnavailable, "the database of ann cannot be reached: %w", errors.New("canary")), 503, "not ready"},
	} {
		err = tt.err
		for _, path := range []string{"/readyz", "/health/ready"} {
			rec := call(s.handler(), "GET", path, "")
			if rec.Code != tt.status || !strings.Contains(rec.Body.String(), tt.say) || strings.Contains(rec.Body.String(), "canary") {
				t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
			}
		}
		if rec := call(s.handler(), "GET", "/health", ""); rec.Code != http.StatusOK {
			t.Errorf("/health: %d", rec.Code)
		}
	}
}

// Who delivers to a webhook need not be known yet, and is told nothing of what lies
// below either.
func TestHookHidesInternals(t *testing.T) {
	s, w := setup(nil)
	for say, err := range map[string]error{
		"deliveries cannot be taken now": parley.Errorf(parley.CodeUnavailable, "the database of canary cannot be reached: %w", errors.New("canary")),
		"this process is being stopped":  parley.Errorf(parley.CodeUnavailable, "this process is being stopped"),
	} {
		w.broken = err
		rec := call(s.handler(), http.MethodPost, "/hooks/order", "{}", "Authorization", "", "X-Signature", "s")
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" || !strings.Contains(rec.Body.String(), say) || strings.Contains(rec.Body.String(), "canary") {
			t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
		}
	}
}

// TestSlashTooMany: a path that wants no key wants none with a slash behind it either, and
// leads to itself.
func TestSlashTooMany(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for _, c := range []struct{ method, path, to string }{
		{"GET", "/healthz/", "/healthz"},
		{"GET", "/readyz/?x=1", "/readyz?x=1"},
		{"GET", "/metrics/", "/metrics"},
		{"POST", "/hooks/order/", "/hooks/order"},
		{"POST", "/api/v1/hooks/order/", "/api/v1/hooks/order"},
		{"GET", "/", ""},
		{"GET", "/healthz//", ""},
		{"GET", "/api/v1/runs/", ""},
		{"POST", "/hooks/order//", ""},
		{"POST", "/hooks/../api/v1/events/", ""},
	} {
		rec := call(h, c.method, c.path, "", "Authorization", "")
		if to := rec.Header().Get("Location"); to != c.to || (rec.Code == http.StatusTemporaryRedirect) != (c.to != "") || c.to == "" && rec.Code != http.StatusUnauthorized {
			t.Errorf("%s %s: %d to %q", c.method, c.path, rec.Code, to)
		}
	}
}

// What the server measures stands behind the two values of the existing
// platform, also for clients that would rather have it compressed.
func TestMetrics(t *testing.T) {
	measured := prometheus.NewRegistry()
	measured.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "mine_total", Help: "Mine."}))
	s, _ := setup(func(c *Config) { c.Metrics = promhttp.HandlerFor(measured, promhttp.HandlerOpts{}) })
	rec := call(s.handler(), "GET", "/metrics", "", "Accept-Encoding", "gzip", "Accept", "application/openmetrics-text")
	want := "# HELP api_info API information\n# TYPE api_info gauge\napi_info{version=\"1.2.3\"} 1\n" +
		"# HELP api_uptime_seconds Seconds since the API started\n# TYPE api_uptime_seconds gauge\napi_uptime_seconds 0.00\n" +
		"# HELP mine_total Mine.\n# TYPE mine_total counter\nmine_total 0\n"
	if diff := cmp.Diff(want, rec.Body.String()); diff != "" || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%v (-want +got):\n%s", rec.Header(), diff)
	}
	s, _ = setup(func(c *Config) { c.Metrics = http.NotFoundHandler() })
	if rec := call(s.handler(), "GET", "/metrics", ""); rec.Code != http.StatusNotFound || strings.Contains(rec.Body.String(), "api_info") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// Half an answer must not look like a whole one: the connection is cut.
func TestPanicInMidAnswer(t *testing.T) {
	s, _ := setup(func(c *Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("half"))
			panic("canary")
		})
	})
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("recovered %v", v)
		}
	}()
	call(s.handler(), "GET", "/metrics", "")
}

// Details of another form, such as those of an answer that does not fit its form,
// are no findings: they stay what they are.
func TestDetailsOfAnotherForm(t *testing.T) {
	s, w := setup(nil)
	w.broken = parley.Errorf(parley.CodeInvalid, "data does not fit the form: /a: is number, must be string").
		WithDetails([]map[string]string{{"pointer": "/a", "text": "is number, must be string"}})
	p := failure(t, call(s.handler(), "POST", "/api/v1/agents", `{"name":"A","url":"http://a"}`))
	if len(p.Errors) > 0 || string(p.Details) != `[{"pointer":"/a","text":"is number, must be string"}]` {
		t.Errorf("errors %v, details %s", p.Errors, p.Details)
	}
}

// An agent that is not there is 400 where the existing platform says so, and
// only if nothing else is wrong.
func TestProblemsAreTranslated(t *testing.T) {
	ghost := parley.Problem{Severity: parley.SeverityError, Code: "unknown_agent", Text: "no such agent"}
	other := parley.Problem{Severity: parley.SeverityError, Code: "required", Text: "name is missing"}
	warning := parley.Problem{Severity: parley.SeverityWarning, Code: "unknown_member", Text: "what is this"}
	for _, tt := range []struct {
		problems parley.Problems
		old      bool
		status   int
	}{
		{parley.Problems{ghost, warning}, true, 400},
		{parley.Problems{ghost}, false, 422},
		{parley.Problems{ghost, other}, true, 422},
		{parley.Problems{other}, true, 422},
	} {
		e := translate(tt.problems, tt.old)
		if e.status != tt.status || len(e.findings) != len(tt.problems) {
			t.Errorf("%v, old %v: %d with %d findings", tt.problems, tt.old, e.status, len(e.findings))
		}
	}
}

// The statuses that the codes of this package are told to have are those of its
// answers.
func TestStatusOf(t *testing.T) {
	s, w := setup(nil)
	w.runs = append(w.runs, &parley.Run{ID: "run-1"})
	for _, tt := range []struct {
		method, path, body, media string
		code                      parley.Code
	}{
		{"DELETE", "/healthz", "", "", codeMethod},
		{"POST", "/api/v1/agents", "x", "text/plain", codeMedia},
		{"GET", "/api/v1/runs/run-1/logs", "", "", codeNotBuilt},
		{"GET", "/api/v1/runs/nobody", "", "", parley.CodeNotFound},
	} {
		rec := call(s.handler(), tt.method, tt.path, tt.body, "Content-Type", tt.media)
		if status, ok := StatusOf(tt.code); !ok || failure(t, rec).Code != tt.code || rec.Code != status {
			t.Errorf("%s %s: %s; the status of %s is said to be %d", tt.method, tt.path, rec.Body, tt.code, status)
		}
	}
	if status, ok := StatusOf("made_up"); ok {
		t.Errorf("a code that is none has status %d", status)
	}
}

// TestAttemptsThatAreNoJSON: what an archive has brought and is no JSON is left out of the
// list of attempts, and said to be; it does not make the list an error.
func TestAttemptsThatAreNoJSON(t *testing.T) {
	list := mapped([]parley.Attempt{{Request: []byte(`{}`), Response: []byte("\x00\xff")}, {Request: []byte(`1`)}}, makeAttempt)
	if _, err := encode(list); err != nil || !list[0].Unreadable || list[0].Response != nil || string(list[0].Request) != `{}` || list[1].Unreadable {
		t.Errorf("%v: %+v", err, list)
	}
}
