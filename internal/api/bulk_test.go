package api

import (
	"net/http"
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
