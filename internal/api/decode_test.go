package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

func TestStrictJSON(t *testing.T) {
	for body, want := range map[string]string{
		`{"a":"\"` + strings.Repeat("[", 100) + `\\"}`: "",
		`{"a":1}`: "", ` {} `: "", `{"a":{"b":1,"c":1}}`: "",
		`{"a":1,"a":2}`:              `"/a" appears twice`,
		`{"x":[{"a":1,"a":2}]}`:      `"/x/0/a" appears twice`,
		`{"a":1,"\u0061":2}`:         "appears twice",
		"{\"a\":\"\xff\"}":           "not UTF-8",
		`{"a":"\ud800"}`:             "not valid JSON",
		`{"a":1}x`:                   "not valid JSON",
		`{"a":1}{"a":1}`:             "not valid JSON",
		"{\n  \"a\": 01}":            "line 2, column 9",
		`{"a":`:                      "ends too early",
		``:                           "ends too early",
		`[1]`:                        "must be a JSON object",
		`null`:                       "must be a JSON object",
		`"canary"`:                   "must be a JSON object",
		`{"a":NaN}`:                  "not valid JSON",
		`{"a":1,}`:                   "not valid JSON",
		strings.Repeat(`[`, 100_000): "limit of 64",
	} {
		_, err := parseObject([]byte(body))
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60s: %v", body, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.60s: %v, want %q", body, err, want)
		}
	}
}

// TestBoundsAreWrittenInDigits: a bound that was passed is told as it would be sent.
func TestBoundsAreWrittenInDigits(t *testing.T) {
	s, _ := setup(nil)
	for member, want := range map[string]string{
		`"retry_config":{"max_delay_ms":604800001}`:           "must be at most 604800000",
		`"limits":{"queue_bytes":1073741825}`:                 "must be at most 1073741824",
		`"retry_config":{"budget":{"per_second":0.05}}`:       "must be at least 0.1",
		`"breaker":{"minimum_calls":100001}`:                  "must be at most 100000",
		`"health":{"interval_ms":3600001,"timeout_ms":10000}`: "must be at most 3600000",
	} {
		rec := call(s.handler(), "POST", "/api/v1/agents", `{"name":"A","url":"http://a",`+member+`}`)
		if !strings.Contains(rec.Body.String(), want+`"`) {
			t.Errorf("%s: %s", member, rec.Body)
		}
	}
}

// What is wrong is named, never repeated: a canary in every string and number
// of a body is in no answer.
func TestValuesAreNotEchoed(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", onePlan)
	call(h, "POST", "/api/v1/agents", `{"name":"a","url":"http://a"}`)
	call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`)
	members := []string{
		"name", "url", "description", "protocol", "protocol_config", "auth_type", "auth_config", "timeout_ms", "retry_config",
		"outcome_unknown", "idempotent", "max_concurrent", "status", "input_data", "idempotency_key", "labels", "version",
		"input", "wait", "reason", "resume_from_step", "step", "text", "data", "unknown",
	}
	values := []string{
		`"canary\u0007"`, `["canary"]`, `{"max_retries":"canary","token":["canary"],"header":"ca nary","secret":"canary","type":"canary"}`,
		`424242.5`, `-424242`, `"` + strings.Repeat("canary", 4000) + `"`,
	}
	for _, target := range []string{
		"POST /api/v1/agents", "PUT /api/v1/agents/a", "POST /api/v1/workflows/a/execute", "POST /api/v1/agents/a/call",
		"POST /api/v1/runs/run-1/cancel", "POST /api/v1/runs/run-1/retry", "POST /api/v1/runs/run-1/answer",
	} {
		method, path, _ := strings.Cut(target, " ")
		for _, m := range members {
			for _, v := range values {
				rec := call(h, method, path, `{"`+m+`":`+v+`}`)
				if rec.Code >= 400 && (strings.Contains(rec.Body.String(), "canary") || strings.Contains(rec.Body.String(), "424242")) {
					t.Errorf("%s with %s %.60s repeats it: %.400s", target, m, v, rec.Body)
				}
			}
		}
	}
	for _, q := range []string{"page=canary", "page_size=canary", "created_after=canary", "hidden=canary", "status=canary", "sort_by=canary"} {
		if rec := call(h, "GET", "/api/v1/runs?"+q, ""); strings.Contains(rec.Body.String(), "canary") {
			t.Errorf("%s repeats it: %s", q, rec.Body)
		}
	}
}

// What reaches the registry is what was given and nothing else.
func TestAgentSpec(t *testing.T) {
	secret := cmp.Comparer(func(a, b parley.Secret) bool { return bytes.Equal(a.Reveal(), b.Reveal()) })
	s, w := setup(nil)
	h := s.handler()
	for _, tt := range []struct {
		name, method, body string
		want               parley.AgentSpec
	}{
		{
			"least", "POST", `{"name":"a","url":"HTTP://A.Example?q=1","description":null,"auth_type":null}`,
			parley.AgentSpec{Name: new("a"), URL: new("http://a.example/?q=1"), By: "system"},
		},
		{
			"most", "POST", `{"name":"b","url":"https://b/x","description":"","protocol":"jsonrpc-2.0","protocol_config":{"n": 1e400},
			"auth_type":"ApiKey","auth_config":{"api_key":"k","header":"X-K"},"timeout_ms":1500,"retry_config":{"initial_delay_ms":200,"budget":{"percent":7.5,"per_second":0.5,"off":true}},
			"outcome_unknown":"Fail","idempotent":false,"max_concurrent":0}`,
			parley.AgentSpec{
				Name: new("b"), URL: new("https://b/x"), Description: new(""), Protocol: new("jsonrpc-2.0"),
				ProtocolConfig: json.RawMessage(`{"n": 1e400}`),
				Auth:           &parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X-K", Literal: parley.NewSecret([]byte("k"))},
				Timeout:        new(1500 * time.Millisecond),
				Retry:          &parley.RetryConfig{MaxRetries: 3, InitialDelay: 200 * time.Millisecond, MaxDelay: 30 * time.Second, Multiplier: 2, Budget: parley.RetryBudget{Percent: 7.5, PerSecond: 0.5, Off: true}},
				OutcomeUnknown: new(parley.OutcomeFail), Idempotent: new(false), MaxConcurrent: new(0), By: "system",
			},
		},
		{"nothing", "PUT", `{"name":"z"}`, parley.AgentSpec{By: "system"}},
		{"null config", "PUT", `{"protocol_config":null}`, parley.AgentSpec{ProtocolConfig: json.RawMessage("null"), By: "system"}},
		{
			"reference as token", "PUT", `{"auth_config":{"token":"env:A_TOKEN"}}`,
			parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:A_TOKEN"}, By: "system"},
		},
		{"empty config", "PUT", `{"auth_type":"bearer","auth_config":{}}`, parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthBearer}, By: "system"}},
		{"type alone", "PUT", `{"auth_type":"bearer"}`, parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthBearer}, By: "system"}},
		{
			"stored type", "PUT", `{"auth_config":{"header_name":"X-New","secret":"[redacted]"}}`,
			parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthBearer, Header: "X-New"}, By: "system"},
		},
		{
			"shown token", "PUT", `{"auth_config":{"token":"[redacted]"}}`,
			parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthBearer}, By: "system"},
		},
		{
			"type inside", "PUT", `{"auth_config":{"type":"header","header":"X-H","value":"v"}}`,
			parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthHeader, Header: "X-H", Literal: parley.NewSecret([]byte("v"))}, By: "system"},
		},
		{
			"reference", "PUT", `{"auth_type":"bearer","auth_config":{"secret":"file:tokens/a"}}`,
			parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthBearer, Secret: "file:tokens/a"}, By: "system"},
		},
		{"status", "PUT", `{"status":"Inactive"}`, parley.AgentSpec{Status: new(parley.AgentInactive), By: "system"}},
		{"none", "PUT", `{"auth_type":"none","auth_config":null}`, parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthNone}, By: "system"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := "/api/v1/agents"
			if tt.method == "PUT" {
				target += "/a"
			}
			rec := call(h, tt.method, target, tt.body)
			if rec.Code >= 300 {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
			if diff := cmp.Diff(tt.want, w.specs[len(w.specs)-1], secret); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	want := time.Date(2026, 11, 21, 10, 4, 5, 0, time.UTC)
	for text, ok := range map[string]bool{
		"2026-11-21T10:04:05Z": true, "2026-11-21T10:04:05": true, "2026-11-21T10:04:05.000000": true, "2026-11-21 10:04:05": true,
		"2026-11-21T12:04:05+02:00": true, "2026-11-21T12:04:05 02:00": true, "2026-11-21 10:04:05Z": true,
		"": false, "now": false, "2026-13-21T10:04:05Z": false, "1763719445": false,
	} {
		got, parsed := parseTime(text)
		if parsed != ok || ok && !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, parsed)
		}
	}
}

// What is asked of a run's list: true offsets, and a UUID where the run's own
// workflow_id is one.
func TestRunQuery(t *testing.T) {
	s, w := setup(nil)
	call(s.handler(), "POST", "/api/v1/workflows", onePlan)
	id := w.workflows[0].ID
	call(s.handler(), "GET", "/api/v1/runs?page=3&page_size=7&workflow_id="+id+"&sort_by=completed_at&sort_order=ASC&status=FAILED", "")
	want := parley.RunQuery{
		Status: []parley.RunStatus{parley.RunFailed}, DefinitionID: id, SortBy: "updated_at", Ascending: true, Page: parley.Page{Offset: 14, Limit: 7},
	}
	if diff := cmp.Diff(want, w.queries[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What can match nothing is not asked for.
	for _, q := range []string{"status=purple", "status=failed", "workflow_id=" + id + "&workflow_definition_id=" + uuidOf(1, 2)} {
		rec := call(s.handler(), "GET", "/api/v1/runs?"+q, "")
		if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), `"total":0`) || len(w.queries) != 1 {
			t.Errorf("%s: %d %s after %d queries", q, rec.Code, rec.Body, len(w.queries))
		}
	}
}

// TestRunQueryOfAnIDLikeAUUID: a workflow_id that looks like the UUID of a version, as
// plans of the existing platform have them, is one; so both find runs, also in archives.
func TestRunQueryOfAnIDLikeAUUID(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	like := uuidOf(7, 7)
	call(h, "POST", "/api/v1/workflows", `{"workflow_id":"`+like+`","name":"a","version":"1","start_step":"s","steps":{"s":{"id":"s","agent_name":"A"}}}`)
	if len(w.workflows) != 1 || w.workflows[0].Workflow != like {
		t.Fatalf("deployed: %+v", w.workflows)
	}
	version := w.workflows[0].ID
	for filter, want := range map[string]parley.RunQuery{like: {Workflow: like}, version: {DefinitionID: version}, uuidOf(8, 8): {Workflow: uuidOf(8, 8)}} {
		w.queries = nil
		call(h, "GET", "/api/v1/runs?workflow_id="+filter, "")
		call(h, "GET", "/api/v1/runs?limit=1&workflow_id="+filter, "")
		call(h, "GET", "/api/v1/archive/runs?workflow_id="+filter, "")
		for i, q := range append(w.queries, w.archive.query) {
			if q.Workflow != want.Workflow || q.DefinitionID != want.DefinitionID {
				t.Errorf("list %d by %s asks for workflow %q, version %q", i, filter, q.Workflow, q.DefinitionID)
			}
		}
	}
	w.archive.query = parley.RunQuery{}
	rec := call(h, "GET", "/api/v1/archive/runs?workflow_id="+version+"&workflow_definition_id="+like, "")
	if rec.Code != http.StatusOK || rec.Body.Len() > 0 || w.archive.query.DefinitionID != "" {
		t.Errorf("what can match nothing: %d %s, asked for %+v", rec.Code, rec.Body, w.archive.query)
	}
	w.broken = errors.New("no database")
	if rec := call(h, "GET", "/api/v1/runs?workflow_id="+version, ""); rec.Code != http.StatusInternalServerError {
		t.Errorf("without a database: %d", rec.Code)
	}
}

// TestRunSearch: every filter reaches the search, and the cursor of one page is
// read for the next.
func TestRunSearch(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	for range 3 {
		call(h, "POST", "/api/v1/agents/a/call", `{}`)
		call(h, "POST", "/api/v1/workflows", onePlan)
		call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`)
	}
	var page struct {
		Items []struct{ ID string }
		Next  string
	}
	get := func(query string) {
		t.Helper()
		rec := call(h, "GET", "/api/v1/runs?"+query, "")
		page.Items, page.Next = nil, ""
		if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &page) != nil || strings.Contains(rec.Body.String(), "total") {
			t.Fatalf("%s: %d %s", query, rec.Code, rec.Body)
		}
	}
	get("limit=2")
	if len(page.Items) != 2 || page.Next == "" {
		t.Fatalf("%+v", page)
	}
	first := page.Items[1].ID
	get("limit=2&cursor=" + page.Next)
	if len(page.Items) != 1 || page.Next != "" || page.Items[0].ID == first {
		t.Errorf("after %s: %+v", first, page)
	}
	if got := w.queries[1].After; got == nil || got.ID != first {
		t.Errorf("the second page is asked for after %+v", got)
	}
	get("limit=5&status=FAILED,%20RUNNING&status=PENDING&workflow_id=w&version=2&label=a=b&label=c=d=e&text=Oops&paused=true&parent=run-1" +
		"&created_after=2026-11-01&created_before=2026-11-02&ended_after=2026-11-03&ended_before=2026-11-04&hidden=true&sort_order=asc&sort_by=created_at")
	day := func(d int) time.Time { return time.Date(2026, 11, d, 0, 0, 0, 0, time.UTC) }
	want := parley.RunQuery{
		Status: []parley.RunStatus{parley.RunFailed, parley.RunRunning, parley.RunPending}, Workflow: "w", Version: "2",
		Labels: map[string]string{"a": "b", "c": "d=e"}, Text: "Oops", Parent: "run-1", Paused: true, Hidden: true, Ascending: true, SortBy: "created_at",
		CreatedAfter: day(1), CreatedBefore: day(2), EndedAfter: day(3), EndedBefore: day(4), Page: parley.Page{Limit: 20},
	}
	if diff := cmp.Diff(want, w.queries[2]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	get("limit=1&status=purple")
	if len(page.Items) != 0 || len(w.queries) != 3 {
		t.Errorf("what can match nothing gave %+v after %d queries", page, len(w.queries))
	}
	for _, q := range []string{
		"limit=0", "limit=501", "limit=1&page=1", "cursor=x&page_size=9", "cursor=x", "cursor=" + strings.Repeat("A", 2000), "limit=1&sort_by=status",
		"label=x", "label==x", "ended_after=x", "text=" + strings.Repeat("x", 256), "status=" + strings.Repeat("a,", 17), "paused=maybe",
	} {
		if rec := call(h, "GET", "/api/v1/runs?"+q, ""); rec.Code != http.StatusUnprocessableEntity {
			t.Errorf("%.40s: %d %s", q, rec.Code, rec.Body)
		}
	}
}

// TestListsBoundTheirFilters: a filter that the database could not execute is the caller's
// fault. SQLite takes patterns of 50,000 bytes and conditions of 1,000 parts.
func TestListsBoundTheirFilters(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for query, status := range map[string]int{
		"dead-letters?reason=" + strings.Repeat("%C3%A9", 255): http.StatusOK,
		"dead-letters?reason=" + strings.Repeat("x", 256):      http.StatusUnprocessableEntity,
		"dead-letters?reason=a%00b":                            http.StatusUnprocessableEntity,
		"runs?text=%00":                                        http.StatusUnprocessableEntity,
		"runs?limit=1&text=x%00":                               http.StatusUnprocessableEntity,
		"runs?text=a%09b":                                      http.StatusOK,
		"approvals?" + strings.Repeat("for=a&", 101):           http.StatusOK,
		"approvals?" + strings.Repeat("for=a&", 102):           http.StatusUnprocessableEntity,
	} {
		if rec := call(h, "GET", "/api/v1/"+query, ""); rec.Code != status {
			t.Errorf("%.40s: %d %s", query, rec.Code, rec.Body)
		}
	}
}

// What is put into a stored plan keeps everything else byte for byte, and asks
// for the next version; a status alone sends no document.
func TestPlanChange(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", `{"workflow_id":"wf-1","name":"a","version":"7","start_step":"s","x":12345678901234567890,"steps":{"s":{"id":"s"}}}`)
	for _, tt := range []struct {
		body, source string
		status       parley.AgentStatus
	}{
		{`{"start_step":"t","status":"inactive","name":"ignored"}`, `{"name":"a","start_step":"t","steps":{"s":{"id":"s"}},"workflow_id":"wf-1","x":12345678901234567890}`, parley.AgentInactive},
		{`{"status":"ACTIVE"}`, ``, parley.AgentActive},
		{`{"steps":{"t":{"id":"t","n":1e400}}}`, `{"name":"a","start_step":"t","steps":{"t":{"id":"t","n":1e400}},"workflow_id":"wf-1","x":12345678901234567890}`, ""},
	} {
		if rec := call(h, "PUT", "/api/v1/workflows/wf-1?file=p.json", tt.body); rec.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", tt.body, rec.Code, rec.Body)
		}
		want := parley.ApplyRequest{File: "p.json", Source: []byte(tt.source), Replace: uuidOf(1, 1), Status: tt.status, By: "system"}
		if tt.source != "" {
			want.Base = w.workflows[0].Number - 1
		}
		got := w.applies[len(w.applies)-1]
		if diff := cmp.Diff(want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.body, diff)
		}
	}
}

// TestPlanChangedMeanwhile: two change different members of a plan at once. Neither
// change is lost.
func TestPlanChangedMeanwhile(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", `{"workflow_id":"wf-1","name":"a","version":"7","start_step":"s","steps":{"s":{"id":"s"}}}`)
	change := func(body string) {
		if rec := call(h, "PUT", "/api/v1/workflows/wf-1", body); rec.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", body, rec.Code, rec.Body)
		}
	}
	w.meanwhile = func() error { change(`{"description":"theirs"}`); return nil }
	change(`{"steps":{"s":{"id":"s","mine":1}}}`)
	if got := w.workflows[0]; !strings.Contains(got.Source, "theirs") || !strings.Contains(got.Source, "mine") {
		t.Errorf("the plan is %s", got.Source)
	}
	// One that stays is told.
	w.meanwhile = func() error { return parley.Errorf(parley.CodeConflict, "another workflow has its webhook") }
	rec := call(h, "PUT", "/api/v1/workflows/wf-1", `{"description":"x"}`)
	if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "another workflow has its webhook") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// TestFaultsInOneOrder: which of several faults of a body comes first is no matter of
// chance.
func TestFaultsInOneOrder(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for path, body := range map[string]string{
		"runs:cancel":               `{"filter":{"workflow":1,"text":1,"parent":1,"paused":1,"hidden":1,"created_after":"x","created_before":"x","ended_after":"x","ended_before":"x"}}`,
		"dead-letters:replay":       `{"filter":{"created_after":"x","created_before":"x"}}`,
		"schedules/daily/backfill":  `{"from":"x","to":"x"}`,
		"schedules/hourly/backfill": `{}`,
	} {
		fields := func() (list []string) {
			rec := call(h, "POST", "/api/v1/"+path, body)
			var got struct{ Errors []struct{ Path string } }
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != http.StatusUnprocessableEntity {
				t.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
			}
			for _, e := range got.Errors {
				list = append(list, e.Path)
			}
			return list
		}
		first := fields()
		for range 30 {
			if again := fields(); !slices.Equal(first, again) {
				t.Errorf("%s: %q, then %q", path, first, again)
				break
			}
		}
		if len(first) < 2 {
			t.Errorf("%s: %q", path, first)
		}
	}
}

// FuzzParseObject: what is accepted is one JSON object, not deeper than the
// limit, and every refusal is one that can be answered.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":[{"b":"\u0000"}]}`, `{"a":1,"a":1}`, `[`, "{\"\xff\":1}", `{"a":"\"{["}`, `{"a":"\\"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseObject(body)
		if err != nil {
			if e := translate(err, true); e.status != http.StatusUnprocessableEntity || len(e.findings) == 0 {
				t.Fatalf("%d %v", e.status, err)
			}
			if _, err := encode(translate(err, true).findings); err != nil {
				t.Fatal(err)
			}
			return
		}
		var v any
		if err := jsonv2.Unmarshal(body, &v); err != nil {
			// Numbers beyond float64 are values like any other here.
			if _, plain := err.(*jsonv2.SemanticError); !plain {
				t.Fatalf("accepted %q: %v", body, err)
			}
			return
		}
		if depthOf(v) > maxDepth {
			t.Fatalf("accepted a depth of %d", depthOf(v))
		}
		if m, ok := v.(map[string]any); !ok || len(m) != len(o.members) {
			t.Fatalf("read %d members of %q", len(o.members), body)
		}
	})
}

func depthOf(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	default:
		return 0
	}
	return deepest + 1
}

// FuzzBodies sends any bytes to every operation that reads a body: each answer
// is one of its documented statuses, with JSON, and a refused body never
// reaches a view.
func FuzzBodies(f *testing.F) {
	for _, cases := range bodyCases() {
		for _, c := range cases {
			if len(c.body) < 300 {
				f.Add([]byte(c.body), "application/json")
			}
		}
	}
	f.Add([]byte("name: a\nsteps: []"), "application/yaml")
	f.Add([]byte(onePlan), "")
	f.Add([]byte(`{"steps":{},"status":"active"}`), "application/merge-patch+json")
	s, w := setup(nil)
	h := s.handler()
	allowed := map[string]map[int]bool{}
	for _, rt := range s.routes {
		if rt.body != nil {
			allowed[rt.id] = map[int]bool{}
			for _, a := range rt.answers {
				allowed[rt.id][a.status] = true
			}
			for _, status := range rt.errors {
				allowed[rt.id][status] = true
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		w.reset()
		call(h, "POST", "/api/v1/workflows", onePlan)
		call(h, "POST", "/api/v1/agents", `{"name":"a","url":"http://a"}`)
		call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`)
		for _, rt := range s.routes {
			if rt.body == nil {
				continue
			}
			before := len(w.specs) + len(w.starts) + len(w.applies)
			target := strings.NewReplacer("{ref}", "a", "{id}", "run-1").Replace(rt.path)
			r := httptest.NewRequest(rt.method, target, bytes.NewReader(body))
			r.Host = "localhost"
			r.Header.Set("Authorization", "Bearer test-key")
			r.Header["Content-Type"] = []string{contentType}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if !allowed[rt.id][rec.Code] || !json.Valid(rec.Body.Bytes()) {
				t.Fatalf("%s: %d %s", rt.id, rec.Code, rec.Body)
			}
			if rec.Code == http.StatusUnsupportedMediaType && len(w.specs)+len(w.starts)+len(w.applies) != before {
				t.Fatalf("%s was refused and done", rt.id)
			}
		}
	})
}
