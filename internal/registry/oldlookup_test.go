package registry_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// oldPlatform is an API and a registry of the existing platform. It answers in memory:
// a network would hold the test to the limits of time that a lookup has.
type oldPlatform struct {
	mu    sync.Mutex
	paths []string
	// answers are bodies by request URI, or "status" before a body.
	answers map[string]string
	now     time.Time
}

func newOldPlatform() *oldPlatform {
	return &oldPlatform{answers: map[string]string{}, now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
}

// RoundTrip implements [http.RoundTripper].
func (p *oldPlatform) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

func (p *oldPlatform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uri := r.URL.RequestURI()
	p.paths = append(p.paths, r.Method+" "+uri)
	body, ok := p.answers[uri]
	switch {
	case !ok:
		http.Error(w, `{"detail":"not found"}`, http.StatusNotFound)
	case body == "500":
		http.Error(w, "secret inside", http.StatusInternalServerError)
	case body == "302":
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	default:
		_, _ = w.Write([]byte(body))
	}
}

func (p *oldPlatform) set(uri, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[uri] = body
}

func (p *oldPlatform) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.paths
	p.paths = nil
	return list
}

func (p *oldPlatform) lookup(t *testing.T, adjust func(*registry.OldLookupConfig)) *registry.OldLookup {
	t.Helper()
	cfg := registry.OldLookupConfig{API: "http://old.test/", Registry: "http://old.test/reg", Client: &http.Client{Transport: p}, Now: func() time.Time {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.now
	}}
	if adjust != nil {
		adjust(&cfg)
	}
	o, err := registry.NewOldLookup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (p *oldPlatform) later(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

const apiAgents = "/api/v1/agents?page_size=100&name="

func apiPage(records ...string) string {
	return `{"items":[` + strings.Join(records, ",") + `],"total":1}`
}

// TestOldLookupBeyondAPage: the filter of the API lets others through, more than
// a page of them; an API that knows no pages is not asked for ever.
func TestOldLookupBeyondAPage(t *testing.T) {
	p := newOldPlatform()
	o := p.lookup(t, nil)
	page := func(n int) string {
		var records []string
		for i := range 100 {
			records = append(records, fmt.Sprintf(`{"name":"A%d","url":"http://wrong"}`, 100*n+i))
		}
		return apiPage(records...)
	}
	p.set(apiAgents+"A", page(1))
	p.set(apiAgents+"A&page=2", page(2))
	p.set(apiAgents+"A&page=3", apiPage(`{"name":"A","url":"http://a.test","status":"active"}`))
	if a, err := o.Lookup(t.Context(), "A"); err != nil || a.URL != "http://a.test/" {
		t.Errorf("the agent of the third page: %q, %v", a.URL, err)
	}
	p.asked()
	for name, want := range map[string]int{"B": 3, "C": 3, "D": 101} {
		p.set(apiAgents+name, page(1))
		for n := range 100 {
			switch {
			case name == "B": // its pages are all the same
				p.set(fmt.Sprintf("%sB&page=%d", apiAgents, n+2), page(1))
			case name == "C" && n == 0:
				p.set(apiAgents+"C&page=2", apiPage())
			case name == "D":
				p.set(fmt.Sprintf("%sD&page=%d", apiAgents, n+2), page(n+2))
			}
		}
		code := parley.CodeUnknownAgent
		if name == "D" {
			code = parley.CodeAgentUnavailable
		}
		if _, err := o.Lookup(t.Context(), name); parley.CodeOf(err) != code {
			t.Errorf("%s: %v", name, err)
		}
		if asked := p.asked(); len(asked) != want {
			t.Errorf("%s: %d requests: %q", name, len(asked), asked)
		}
	}
}

func TestOldLookupOrder(t *testing.T) {
	p := newOldPlatform()
	o := p.lookup(t, nil)
	p.set(apiAgents+"A", apiPage(`{"name":"A2","url":"http://wrong"}`, `{"name":"A","url":"http://a.test","auth_type":"BEARER","auth_config":{"token":"t0ken"},"timeout_ms":5000,"retry_config":{"max_retries":0,"initial_delay_ms":250,"max_delay_ms":4000,"backoff_multiplier":3},"status":"active"}`))
	p.set("/reg/agents/R%20&%20D%2F1", `{"name":"R & D/1","url":"https://r.test/x","auth_config":{"type":"apikey","key":"k3y"},"timeout":2000,"circuit_breaker_config":{"enabled":true,"failure_threshold":3,"failure_rate_threshold":0.7,"timeout_seconds":30,"half_open_max_calls":2,"window_size_seconds":60}}`)
	got, err := o.Lookup(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	want := parley.Agent{
		Name: "A", URL: "http://a.test/", Protocol: parley.ProtocolJSONRPC, Timeout: 5 * time.Second, Status: parley.AgentActive,
		Auth:  parley.Auth{Type: parley.AuthBearer},
		Retry: parley.RetryConfig{MaxRetries: 0, InitialDelay: 250 * time.Millisecond, MaxDelay: 4 * time.Second, Multiplier: 3},
	}
	ignore := cmpopts.IgnoreFields(parley.Agent{}, "Credential", "Resolved", "CallSecret")
	if diff := cmp.Diff(want, got, ignore); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(got.Credential.Reveal()) != "t0ken" {
		t.Error("not the token of the record")
	}
	got, err = o.Lookup(t.Context(), "R & D/1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Auth.Type != parley.AuthAPIKey || got.Auth.Header != "X-API-Key" || string(got.Credential.Reveal()) != "k3y" || got.Timeout != 2*time.Second {
		t.Errorf("%+v", got)
	}
	breaker := &parley.Breaker{
		Enabled: true, FailureThreshold: 3, FailureRate: 0.7, OpenFor: 30 * time.Second, HalfOpenCalls: 2, Window: time.Minute,
	}
	if diff := cmp.Diff(breaker, got.Breaker); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 3 {
		if _, err := o.Lookup(t.Context(), "A"); err != nil {
			t.Error(err)
		}
	}
	wantAsked := []string{"GET " + apiAgents + "A", "GET " + apiAgents + "R+%26+D%2F1", "GET /reg/agents/R%20&%20D%2F1"}
	if diff := cmp.Diff(wantAsked, p.asked()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOldLookupNeighbours: the API filters by a part of the name, so that a page
// has records of others. One that is odd costs its own agent its calls, and nobody
// else.
func TestOldLookupNeighbours(t *testing.T) {
	t.Parallel()
	p := newOldPlatform()
	p.set("/api/v1/agents?page_size=100&name=Writer", apiPage(
		`{"name":"WriterPro","url":"http://pro.example/","timeout_ms":"30000"}`, `"odd"`, `{"name":5}`, `{"name":"Writer","url":"http://writer.example/"}`,
	))
	p.set("/api/v1/agents?page_size=100&name=WriterPro", apiPage(`{"name":"WriterPro","url":"http://pro.example/","timeout_ms":"30000"}`))
	o := p.lookup(t, nil)
	if a, err := o.Lookup(t.Context(), "Writer"); err != nil || a.URL != "http://writer.example/" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := o.Lookup(t.Context(), "WriterPro"); parley.CodeOf(err) != parley.CodeAgentUnavailable || !strings.Contains(err.Error(), "is no agent record") {
		t.Errorf("error %v", err)
	}
}

func TestOldLookupRefuses(t *testing.T) {
	p := newOldPlatform()
	o := p.lookup(t, nil)
	for name, c := range map[string]struct {
		record string
		code   parley.Code
		text   string
	}{
		"nobody":    {"", parley.CodeUnknownAgent, "known neither"},
		"..":        {"", parley.CodeUnknownAgent, "known neither"},
		"a\nb":      {"", parley.CodeUnknownAgent, "known neither"},
		"gone":      {`"url":"http://x","status":"deleted"`, parley.CodeUnknownAgent, "deleted"},
		"idle":      {`"url":"http://x","status":"inactive"`, parley.CodeAgentRejected, "inactive"},
		"command":   {`"url":"stdio:/bin/sh"`, parley.CodeAgentRejected, "http://"},
		"no-url":    {`"status":"active"`, parley.CodeAgentRejected, "url"},
		"slow":      {`"url":"http://x","timeout_ms":1`, parley.CodeAgentRejected, "timeout_ms"},
		"eager":     {`"url":"http://x","retry_config":{"max_retries":99}`, parley.CodeAgentRejected, "max_retries"},
		"reference": {`"url":"http://x","auth_type":"bearer","auth_config":{"token":"env:HOME"}`, parley.CodeAgentRejected, "no secrets are configured"},
		"injecting": {`"url":"http://x","auth_type":"bearer","auth_config":{"token":"a\r\nsecret"}`, parley.CodeAgentRejected, "printable ASCII"},
		"framing":   {`"url":"http://x","auth_type":"apikey","auth_config":{"key":"secret","header_name":"Host"}`, parley.CodeAgentRejected, "header"},
		"odd-auth":  {`"url":"http://x","auth_type":"smoke","auth_config":{"key":"secret"}`, parley.CodeAgentRejected, "auth_type"},
	} {
		if c.record != "" {
			p.set(apiAgents+name, apiPage(`{"name":"`+name+`",`+c.record+`}`))
		}
		a, err := o.Lookup(t.Context(), name)
		if parley.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") && name != "reference" || a.Name != "" {
			t.Errorf("%s: %+v, %v; want %s, %q", name, a, err, c.code, c.text)
		}
	}
	p.set(apiAgents+"bare", apiPage(`{"name":"bare","url":"http://x","auth_type":"bearer","auth_config":null}`))
	if a, err := o.Lookup(t.Context(), "bare"); err != nil || a.Auth.Type != parley.AuthNone {
		t.Errorf("without a credential: %+v, %v", a, err)
	}
}

// Who does not answer is asked again, then the other; what was known is used
// while nobody answers, and a name that nobody knows is not asked for at once.
func TestOldLookupFailing(t *testing.T) {
	p := newOldPlatform()
	o := p.lookup(t, nil)
	p.set(apiAgents+"A", "500")
	p.set("/reg/agents/A", `{"name":"A","url":"http://a.test"}`)
	if _, err := o.Lookup(t.Context(), "A"); err != nil {
		t.Fatal(err)
	}
	if n := len(p.asked()); n != 4 {
		t.Errorf("%d requests, want 3 of the API and 1 of the registry", n)
	}
	p.later(6 * time.Minute)
	p.set("/reg/agents/A", "500")
	if a, err := o.Lookup(t.Context(), "A"); err != nil || a.Name != "A" {
		t.Errorf("an agent that was known: %+v, %v", a, err)
	}
	p.later(2 * time.Hour)
	p.set(apiAgents+"A", "302")
	_, err := o.Lookup(t.Context(), "A")
	if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeAgentUnavailable || !e.Retryable || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody answers: %v", err)
	}
	p.asked()
	for range 5 {
		if _, err := o.Lookup(t.Context(), "nobody"); parley.CodeOf(err) != parley.CodeUnknownAgent {
			t.Error(err)
		}
	}
	if n := len(p.asked()); n != 2 {
		t.Errorf("%d requests for a name that nobody knows, want 2", n)
	}
	p.later(6 * time.Second)
	p.set("/reg/agents/nobody", `{"name":"nobody","url":"http://n.test"}`)
	if _, err := o.Lookup(t.Context(), "nobody"); err != nil {
		t.Errorf("an agent that was added: %v", err)
	}
}

// deaf takes requests and answers none until it hears.
type deaf struct {
	*oldPlatform
	hears atomic.Bool
	asked atomic.Int32
}

// RoundTrip implements [http.RoundTripper].
func (d *deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	d.asked.Add(1)
	if !d.hears.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return d.oldPlatform.RoundTrip(r)
}

// TestOldLookupBacklog: while nobody answers one agent waits through all tries, and not
// each of a backlog of them; a little later they are asked again.
func TestOldLookupBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{oldPlatform: newOldPlatform()}
		o := d.lookup(t, func(c *registry.OldLookupConfig) { c.Client, c.Now = &http.Client{Transport: d}, time.Now })
		began := time.Now()
		for i := range 100 {
			_, err := o.Lookup(t.Context(), fmt.Sprint("agent-", i%10))
			if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeAgentUnavailable || !e.Retryable || !strings.Contains(e.Message, "http://old.test") {
				t.Fatalf("%v", err)
			}
		}
		if took := time.Since(began); took > time.Minute || d.asked.Load() != 6 {
			t.Errorf("100 agents took %v and %d requests", took, d.asked.Load())
		}
		d.hears.Store(true)
		d.set("/reg/agents/agent-1", `{"name":"agent-1","url":"http://a.test"}`)
		time.Sleep(5 * time.Second)
		if _, err := o.Lookup(t.Context(), "agent-1"); err != nil {
			t.Errorf("when they answer again: %v", err)
		}
	})
}

// TestOldLookupOfWhoSwitches: an answer that gives the connection to another protocol
// has no end of its own, nor one by time; it is none.
func TestOldLookupOfWhoSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		dial := func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			served.Go(func() {
				in := bufio.NewReader(theirs)
				_, _ = http.ReadRequest(in)
				_, _ = io.WriteString(theirs, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				_ = theirs.SetReadDeadline(time.Now().Add(time.Hour))
				_, _ = in.ReadByte()
				_ = theirs.Close()
			})
			return ours, nil
		}
		o, err := registry.NewOldLookup(registry.OldLookupConfig{API: "http://old.test", Client: &http.Client{Transport: &http.Transport{DialContext: dial}}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = o.Lookup(t.Context(), "A")
		if took := time.Since(began); parley.CodeOf(err) != parley.CodeAgentUnavailable || took > time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		served.Wait()
	})
}

func TestOldLookupConfig(t *testing.T) {
	for _, cfg := range []registry.OldLookupConfig{
		{},
		{Client: http.DefaultClient},
		{Client: http.DefaultClient, API: "ftp://x"},
		{Client: http.DefaultClient, Registry: "http://user:secret@x"},
		{Client: http.DefaultClient, API: "http://x?a=secret"},
	} {
		_, err := registry.NewOldLookup(cfg)
		if parley.CodeOf(err) != parley.CodeInvalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
