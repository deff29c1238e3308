package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestFilterHasToSelect: what would select everything, without saying so, is
// refused wherever many things are changed.
func TestFilterHasToSelect(t *testing.T) {
	s, _ := setup(nil)
	for path, members := range map[string]string{
		"dead-letters:replay": "agent run_id", "dead-letters:discard": "agent workflow", "runs:cancel": "workflow text", "runs:retry": "version parent",
	} {
		bodies := []string{`{}`, `{"filter":null}`}
		for m := range strings.FieldsSeq(members) {
			bodies = append(bodies, `{"filter":{"`+m+`":""}}`, `{"filter":{"`+m+`":null}}`)
		}
		if strings.HasPrefix(path, "runs:") {
			bodies = append(bodies, `{"filter":{"status":[]}}`, `{"filter":{"labels":{}}}`, `{"filter":{"status":null}}`, `{"filter":{"status":[null]}}`,
				`{"filter":{"labels":{"a":"b","team":null}}}`, `{"filter":{"created_before":null}}`)
		}
		for _, body := range bodies {
			if rec := call(s.handler(), "POST", "/api/v1/"+path, body); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "filter") {
				t.Errorf("%s %s: %d %s", path, body, rec.Code, rec.Body)
			}
		}
		if rec := call(s.handler(), "POST", "/api/v1/"+path, `{"filter":{}}`); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
}

// TestEarliestTimeIsATime: nothing was created before the earliest time there is. A
// filter that says so does not select everything.
func TestEarliestTimeIsATime(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", onePlan)
	call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`)
	for _, at := range []string{"0001-01-01T00:00:00Z", "0001-01-01T00:00:00", "0001-01-01", "0001-01-01T02:00:00+02:00"} {
		list := call(h, "GET", "/api/v1/runs?created_before="+url.QueryEscape(at), "")
		bulk := call(h, "POST", "/api/v1/runs:cancel", `{"filter":{"created_before":"`+at+`"},"dry_run":true}`)
		if !strings.Contains(list.Body.String(), `"total":0`) || bulk.Code != http.StatusOK || strings.Contains(bulk.Body.String(), "run-1") {
			t.Errorf("before %s: %s, %d %s", at, list.Body, bulk.Code, bulk.Body)
		}
		if list = call(h, "GET", "/api/v1/runs?created_after="+url.QueryEscape(at), ""); !strings.Contains(list.Body.String(), `"total":1`) {
			t.Errorf("after %s: %s", at, list.Body)
		}
	}
}
