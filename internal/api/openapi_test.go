package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// openDocument gives the document as a client gets it, without a key.
func openDocument(t *testing.T, s *server) map[string]any {
	t.Helper()
	var docs []string
	for _, path := range []string{"/openapi.json", "/api/v1/openapi.json"} {
		rec := call(s.handler(), "GET", path, "", "Authorization", "")
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "application/json" {
			t.Fatal(path, rec.Code)
		}
		docs = append(docs, rec.Body.String())
	}
	if docs[0] != docs[1] {
		t.Error("the two paths give different documents")
	}
	var doc map[string]any
	must(t, json.Unmarshal([]byte(docs[0]), &doc))
	return doc
}

// The document lists every route, every operation in it is served, and every
// path of the interface is among them.
func TestOpenAPIListsEveryRoute(t *testing.T) {
	s, _ := setup(nil)
	doc := openDocument(t, s)
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi %v", doc["openapi"])
	}
	var listed, served []string
	for path, item := range doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			listed = append(listed, strings.ToUpper(method)+" "+path)
		}
	}
	for _, rt := range s.routes {
		served = append(served, rt.method+" "+rt.path)
	}
	slices.Sort(listed)
	slices.Sort(served)
	if diff := cmp.Diff(served, listed); diff != "" {
		t.Errorf("(-routes +document):\n%s", diff)
	}
	fill := strings.NewReplacer("{ref}", "a", "{id}", "a", "{alias}", "a")
	for _, op := range listed {
		method, path, _ := strings.Cut(op, " ")
		_, pattern := s.mux.Handler(httptest.NewRequest(method, fill.Replace(path), nil))
		if want := strings.Replace(op, "GET /", "GET /", 1); pattern != want && (pattern != "GET /{$}" || path != "/") {
			t.Errorf("%s is served by %q", op, pattern)
		}
	}
	want := []string{
		"DELETE /api/v1/agents/{ref}", "DELETE /api/v1/keys/{name}", "DELETE /api/v1/schedules/{id}", "DELETE /api/v1/workflows/{ref}", "DELETE /api/v1/workflows/{ref}/aliases/{alias}",
		"GET /", "GET /api/v1/agents", "GET /api/v1/agents/{ref}", "GET /api/v1/agents/{ref}/breaker", "GET /api/v1/agents/{ref}/events", "GET /api/v1/agents/{ref}/health", "GET /api/v1/agents:health",
		"GET /api/v1/approvals", "GET /api/v1/archive/runs", "GET /api/v1/audit", "GET /api/v1/dead-letters", "GET /api/v1/dead-letters/{id}", "GET /api/v1/keys", "GET /api/v1/openapi.json",
		"GET /api/v1/runs", "GET /api/v1/runs/{id}", "GET /api/v1/runs/{id}/attempts", "GET /api/v1/runs/{id}/events", "GET /api/v1/runs/{id}/explain",
		"GET /api/v1/runs/{id}/logs", "GET /api/v1/runs/{id}/steps", "GET /api/v1/schedules", "GET /api/v1/schedules/{id}",
		"GET /api/v1/schedules/{id}/firings", "GET /api/v1/schemas/{ref}", "GET /api/v1/workflows", "GET /api/v1/workflows/{ref}",
		"GET /api/v1/workflows/{ref}/aliases", "GET /api/v1/workflows/{ref}/versions", "GET /health", "GET /health/ready", "GET /healthz", "GET /metrics",
		"GET /openapi.json", "GET /readyz", "POST /api/v1/agents", "POST /api/v1/agents/{ref}/breaker", "POST /api/v1/agents/{ref}/call",
		"POST /api/v1/agents/{ref}/check", "POST /api/v1/agents:detect", "POST /api/v1/archive/runs", "POST /api/v1/dead-letters/{id}/discard", "POST /api/v1/dead-letters/{id}/replay",
		"POST /api/v1/dead-letters:discard", "POST /api/v1/dead-letters:replay", "POST /api/v1/events", "POST /api/v1/hooks/{ref}", "POST /api/v1/keys", "POST /api/v1/runs/{id}/answer",
		"POST /api/v1/runs/{id}/cancel", "POST /api/v1/runs/{id}/pause", "POST /api/v1/runs/{id}/rerun", "POST /api/v1/runs/{id}/resume",
		"POST /api/v1/runs/{id}/retry", "POST /api/v1/runs/{id}/signal", "POST /api/v1/runs/{id}/terminate", "POST /api/v1/runs:cancel",
		"POST /api/v1/runs:pause", "POST /api/v1/runs:resume", "POST /api/v1/runs:retry", "POST /api/v1/runs:terminate",
		"POST /api/v1/schedules", "POST /api/v1/schedules/{id}/backfill", "POST /api/v1/schedules/{id}/pause", "POST /api/v1/schedules/{id}/resume",
		"POST /api/v1/workflows",
		"POST /api/v1/workflows/{ref}/deprecate", "POST /api/v1/workflows/{ref}/execute", "POST /api/v1/workflows/{ref}/undeprecate",
		"POST /api/v1/workflows:validate", "POST /hooks/{ref}", "PUT /api/v1/agents/{ref}", "PUT /api/v1/workflows/{ref}", "PUT /api/v1/workflows/{ref}/aliases/{alias}",
	}
	if diff := cmp.Diff(want, served); diff != "" {
		t.Errorf("the interface (-wanted +served):\n%s", diff)
	}
}

// Every schema in the document compiles, and no page of it points elsewhere.
func TestOpenAPISchemasCompile(t *testing.T) {
	s, _ := setup(nil)
	doc := openDocument(t, s)
	c := schemas(t, s)
	for name := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.Compile("mem:///openapi.json#/components/schemas/" + name); err != nil {
			t.Error(name, err)
		}
	}
	document, err := s.document()
	must(t, err)
	if text := string(document); strings.Contains(text, "unpkg") || strings.Contains(text, "cdn") {
		t.Error("the document names a content network")
	}
	for _, path := range []string{"/docs", "/schemas/RunAnswer.json", "/openapi.yaml"} {
		if rec := call(s.handler(), "GET", path, ""); rec.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func schemas(t testing.TB, s *server) *jsonschema.Compiler {
	t.Helper()
	document, err := s.document()
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///openapi.json", value); err != nil {
		t.Fatal(err)
	}
	return c
}

// bodyCases are bodies around every rule; ok is what both the handlers and the
// schemas must say.
func bodyCases() map[string][]struct {
	body string
	ok   bool
} {
	type bodies = []struct {
		body string
		ok   bool
	}
	agent := func(member string) string { return `{"name":"A","url":"http://a",` + member + `}` }
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	return map[string]bodies{
		"POST /api/v1/agents": {
			{`{"name":"A","url":"http://a"}`, true},
			{`{"name":"","url":"http://a"}`, false},
			{`{"name":` + long(255) + `,"url":"http://a"}`, true},
			{`{"name":` + long(256) + `,"url":"http://a"}`, false},
			{`{"name":"A"}`, false},
			{`{"url":"http://a"}`, false},
			{`{"name":null,"url":"http://a"}`, false},
			{`{"name":"A","url":null}`, false},
			{agent(`"auth":{"type":null,"token":"x"}`), false},
			{`{"name":1,"url":"http://a"}`, false},
			{agent(`"timeout_ms":1000`), true},
			{agent(`"timeout_ms":999`), false},
			{agent(`"timeout_ms":300000`), true},
			{agent(`"timeout_ms":300001`), false},
			{agent(`"timeout_ms":"1000"`), false},
			{agent(`"timeout_ms":1000.5`), false},
			{agent(`"retry_config":{}`), true},
			{agent(`"retry_config":[]`), false},
			{agent(`"retry_config":{"max_retries":10}`), true},
			{agent(`"retry_config":{"max_retries":11}`), false},
			{agent(`"retry_config":{"max_retries":-1}`), false},
			{agent(`"retry_config":{"initial_delay_ms":100}`), true},
			{agent(`"retry_config":{"initial_delay_ms":99}`), false},
			{agent(`"retry_config":{"max_delay_ms":1000}`), true},
			{agent(`"retry_config":{"max_delay_ms":999}`), false},
			{agent(`"retry_config":{"backoff_multiplier":1}`), true},
			{agent(`"retry_config":{"backoff_multiplier":0.9}`), false},
			{agent(`"retry_config":{"backoff_multiplier":1001}`), false},
			{agent(`"retry_config":{"max_delay_ms":604800000}`), true},
			{agent(`"retry_config":{"max_delay_ms":604800001}`), false},
			{agent(`"protocol":""`), false},
			{agent(`"auth_type":""`), false},
			{`{"name":"A","url":""}`, false},
			{`{"name":"A","url":"http://a/` + strings.Repeat("x", 2083) + `"}`, false},
			{agent(`"description":` + long(maxDescription)), true},
			{agent(`"description":` + long(maxDescription+1)), false},
			{agent(`"protocol":` + long(65)), false},
			{agent(`"protocol_config":{"method":"x"}`), true},
			{agent(`"protocol_config":1`), false},
			{agent(`"idempotent":true`), true},
			{agent(`"idempotent":1`), false},
			{agent(`"max_concurrent":10000`), true},
			{agent(`"max_concurrent":10001`), false},
			{agent(`"anything":{"goes":1}`), true},
			{agent(`"auth_type":"BEARER","auth_config":{"token":"x","type":"bearer"}`), true},
			{agent(`"auth_type":"apikey","auth_config":{"api_key":"x","header":"X-K","extra":1}`), true},
			{agent(`"auth_config":{"token":1}`), false},
		},
		"PUT /api/v1/agents/{ref}": {
			{`{}`, true}, {`{"status":"active"}`, true}, {`{"status":1}`, false}, {`{"timeout_ms":999}`, false}, {`{"name":"B"}`, true},
		},
		"POST /api/v1/workflows/{ref}/execute": {
			{`{"input_data":{}}`, true},
			{`{}`, false},
			{`{"input_data":1}`, false},
			{`{"input_data":{},"x":1}`, false},
			{`{"input_data":{},"idempotency_key":` + long(255) + `}`, true},
			{`{"input_data":{},"idempotency_key":` + long(256) + `}`, false},
			{`{"input_data":{},"idempotency_key":""}`, false},
			{`{"input_data":{},"version":1}`, false},
			{`{"input_data":{},"version":""}`, false},
			{`{"input_data":{},"version":` + long(65) + `}`, false},
			{`{"input_data":{},"labels":{"a":"b"}}`, true},
			{`{"input_data":{},"labels":{"a":1}}`, false},
			{`{"input_data":{},"labels":[]}`, false},
		},
		"POST /api/v1/agents/{ref}/call": {
			{`{}`, true}, {`{"input":[1]}`, true}, {`{"wait":0}`, true}, {`{"wait":-1}`, false}, {`{"wait":86401}`, false}, {`{"x":1}`, false}, {`{"idempotency_key":""}`, false},
		},
		"PUT /api/v1/workflows/{ref}/aliases/{alias}": {
			{`{"version":"1"}`, true},
			{`{}`, false},
			{`{"version":1}`, false},
			{`{"version":""}`, false},
			{`{"version":` + long(65) + `}`, false},
			{`{"version":"1","x":1}`, false},
			{`{"version":null}`, false},
		},
		"POST /api/v1/workflows/{ref}/deprecate": {
			{`{}`, true}, {`{"reason":` + long(500) + `}`, true}, {`{"reason":` + long(501) + `}`, false}, {`{"x":1}`, false},
		},
		"POST /api/v1/runs/{id}/answer": {
			{`{"text":1}`, false},
			{`{"text":"a","step":""}`, false},
			{`{"text":"a","step":1}`, false},
			{`{"text":"a","by":1}`, false},
			{`{"choice":1}`, false},
			{`{"choice":"a","roles":"x"}`, false},
			{`{"choice":"a","roles":[1]}`, false},
			{`{"choice":"a","more":1}`, false},
			{`{"choice":"a","by":""}`, false},
			{`{"choice":"a","comment":1}`, false},
			{`{"choice":""}`, false},
		},
		"POST /api/v1/events": {
			{`{"event":"a"}`, true},
			{`{"event":"a","key":"","data":[1],"id":"x"}`, true},
			{`{"event":""}`, false},
			{`{"key":"a"}`, false},
			{`{"event":1}`, false},
			{`{"event":null}`, false},
			{`{"event":` + long(255) + `}`, true},
			{`{"event":` + long(256) + `}`, false},
			{`{"event":"a","key":` + long(256) + `}`, false},
			{`{"event":"a","more":1}`, false},
		},
		"POST /api/v1/agents/{ref}/breaker": {
			{`{"action":"open","reason":""}`, true}, {`{}`, false}, {`{"action":null}`, false}, {`{"action":"x"}`, false}, {`{"action":"open","x":1}`, false},
		},
		"POST /api/v1/keys": {
			{`{"name":"a"}`, true}, {`{}`, false}, {`{"name":null}`, false}, {`{"name":"a","role":"x"}`, false}, {`{"name":"a","expires_in":""}`, false},
		},
		"POST /api/v1/schedules": {
			{`{"workflow":"a","every":"1h"}`, true},
			{`{"every":"1h"}`, false},
			{`{"workflow":null,"every":"1h"}`, false},
			{`{"workflow":"a","every":""}`, false},
			{`{"workflow":"a","cron":""}`, false},
			{`{"workflow":"a","every":"1h","zone":""}`, false},
			{`{"workflow":"a","every":"1h","jitter":""}`, false},
			{`{"workflow":"a","every":"1h","catch_up":""}`, false},
		},
		"POST /api/v1/runs:pause": {
			{`{"filter":{}}`, true},
			{`{"filter":{},"after":""}`, false},
			{`{"filter":{"workflow":""}}`, false},
			{`{"filter":{"version":""}}`, false},
			{`{"filter":{"text":""}}`, false},
			{`{"filter":{"parent":""}}`, false},
			{`{"filter":{"parent":` + long(256) + `}}`, false},
		},
		"POST /api/v1/dead-letters:discard": {
			{`{"filter":{}}`, true},
			{`{"filter":{"code":""}}`, false},
			{`{"filter":{"reason":""}}`, false},
			{`{"filter":{"agent":""}}`, false},
			{`{"filter":{"workflow":""}}`, false},
			{`{"filter":{"run_id":""}}`, false},
			{`{"filter":{"topic":""}}`, false},
		},
		"POST /api/v1/dead-letters:replay": {
			{`{"filter":{}}`, true}, {`{"filter":{},"after":""}`, false},
		},
		"POST /api/v1/schedules/{id}/backfill": {
			{`{}`, false}, {`{"from":null,"to":"2026-01-01T00:00:00Z"}`, false}, {`{"from":"2026-01-01T00:00:00Z","to":null}`, false},
		},
		"POST /api/v1/runs/{id}/terminate": {
			{`{}`, true}, {`{"reason":` + long(500) + `}`, true}, {`{"reason":` + long(501) + `}`, false}, {`{"reason":1}`, false}, {`{"x":1}`, false},
		},
		"POST /api/v1/runs/{id}/rerun": {
			{`{"idempotency_key":""}`, false}, {`{"from":""}`, false}, {`{"from":1}`, false}, {`{"version":""}`, false}, {`{"version":` + long(65) + `}`, false}, {`{"x":1}`, false},
		},
		"POST /api/v1/runs/{id}/cancel": {
			{`{"reason":` + long(500) + `}`, true}, {`{"reason":` + long(501) + `}`, false}, {`{"reason":1}`, false},
		},
	}
}

// The schemas of the document and the decoders agree on what is wrong.
func TestSchemasAgreeWithDecoders(t *testing.T) {
	for op, cases := range bodyCases() {
		method, path, _ := strings.Cut(op, " ")
		s, w := setup(nil)
		h := s.handler()
		at := fmt.Sprintf("mem:///openapi.json#/paths/%s/%s/requestBody/content/application~1json/schema",
			strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D").Replace(path), strings.ToLower(method))
		schema, err := schemas(t, s).Compile(at)
		must(t, err)
		for _, c := range cases {
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(c.body))
			must(t, err)
			if got := schema.Validate(value) == nil; got != c.ok {
				t.Errorf("%s %.120s: the schema says %v", op, c.body, got)
			}
			w.reset()
			call(h, "POST", "/api/v1/workflows", onePlan)
			call(h, "POST", "/api/v1/agents", `{"name":"a","url":"http://a"}`)
			call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{},"labels":{}}`)
			target := strings.NewReplacer("{ref}", "a", "{id}", "run-1", "{alias}", "a").Replace(path)
			rec := call(h, method, target, c.body)
			if got := rec.Code < 300; got != c.ok || !got && rec.Code != 422 {
				t.Errorf("%s %.120s: %d %.300s", op, c.body, rec.Code, rec.Body)
			}
		}
	}
}

// TestParamsAgreeWithQueries: the schemas of the parameters of lists and what reads them
// agree on what is wrong.
func TestParamsAgreeWithQueries(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", onePlan)
	call(h, "POST", "/api/v1/agents", `{"name":"a","url":"http://a"}`)
	call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`)
	documented, reader := schemas(t, s), strings.NewReplacer("{ref}", "a", "{id}", "run-1")
	for _, c := range []struct {
		path, name, value string
		ok                bool
	}{
		{"/api/v1/runs", "page", "0", false},
		{"/api/v1/runs", "page", "1000000000", true},
		{"/api/v1/runs", "page", "1000000001", false},
		{"/api/v1/runs", "page_size", "100", true},
		{"/api/v1/runs", "page_size", "101", false},
		{"/api/v1/runs", "limit", "500", true},
		{"/api/v1/runs", "limit", "501", false},
		{"/api/v1/runs", "text", strings.Repeat("é", 255), true},
		{"/api/v1/runs", "text", strings.Repeat("é", 256), false},
		{"/api/v1/runs/{id}/events", "limit", "0", false},
		{"/api/v1/runs/{id}/events", "limit", "1", true},
		{"/api/v1/runs/{id}/events", "limit", "500", true},
		{"/api/v1/runs/{id}/events", "limit", "501", false},
		{"/api/v1/runs/{id}/events", "after", "-1", false},
		{"/api/v1/runs/{id}/events", "after", "9007199254740992", true},
		{"/api/v1/runs/{id}/events", "after", "9007199254740993", false},
		{"/api/v1/agents/{ref}/events", "limit", "501", false},
		{"/api/v1/dead-letters", "state", "waiting", true},
		{"/api/v1/dead-letters", "state", "lost", false},
		{"/api/v1/dead-letters", "kind", "foreign_task", true},
		{"/api/v1/dead-letters", "kind", "x", false},
		{"/api/v1/dead-letters", "reason", strings.Repeat("x", 256), false},
		{"/api/v1/schedules", "status", "paused", true},
		{"/api/v1/schedules", "status", "x", false},
	} {
		route := slices.IndexFunc(s.routes, func(rt route) bool { return rt.method == http.MethodGet && rt.path == c.path })
		params := s.routes[route].params
		at := slices.IndexFunc(params, func(p *huma.Param) bool { return p.Name == c.name })
		if at < 0 {
			t.Errorf("%s has no parameter %s", c.path, c.name)
			continue
		}
		schema, err := documented.Compile(fmt.Sprintf("mem:///openapi.json#/paths/%s/get/parameters/%d/schema",
			strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D").Replace(c.path), at))
		must(t, err)
		var value any = c.value
		if params[at].Schema.Type == huma.TypeInteger {
			value = json.Number(c.value)
		}
		if got := schema.Validate(value) == nil; got != c.ok {
			t.Errorf("%s?%s=%.40s: the schema says %v", c.path, c.name, c.value, got)
		}
		rec := call(h, "GET", reader.Replace(c.path)+"?"+c.name+"="+url.QueryEscape(c.value), "")
		if got := rec.Code == http.StatusOK; got != c.ok || !got && rec.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s?%s=%.40s: %d %.300s", c.path, c.name, c.value, rec.Code, rec.Body)
		}
	}
}
