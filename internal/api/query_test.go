package api

import (
	"net/http"
	"testing"
)

// TestLabelWithTwoValues: no run has two values of a label; that of the last was looked
// for.
func TestLabelWithTwoValues(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	for query, want := range map[string]int{
		"label=a=1&label=a=2": http.StatusUnprocessableEntity, "limit=1&label=a=1&label=b=1&label=a=": http.StatusUnprocessableEntity,
		"label=a=1&label=a=1": http.StatusOK, "label=a=1&label=b=2": http.StatusOK,
	} {
		if rec := call(h, http.MethodGet, "/api/v1/runs?"+query, ""); rec.Code != want {
			t.Errorf("%s: %d %s", query, rec.Code, rec.Body)
		}
	}
	if len(w.queries) != 2 {
		t.Errorf("asked for %+v", w.queries)
	}
}
