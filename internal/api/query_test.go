package api

import (
	"net/http"
	"strings"
	"testing"
)

// TestQueriesThatCannotBeRead: of a query whose filter cannot be read no other list is
// given than was asked for.
func TestQueriesThatCannotBeRead(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	lists := 0
	for _, route := range s.table() {
		if route.method != http.MethodGet || len(route.params) == 0 || strings.Contains(route.path, "{") {
			continue
		}
		lists++
		if rec := call(h, http.MethodGet, route.path, ""); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", route.path, rec.Code, rec.Body)
		}
		for _, query := range []string{"text=100%", "name=a%2&name=b", "status=FAILED;page=1"} {
			rec := call(h, http.MethodGet, route.path+"?"+query, "")
			if rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "a % is written as %25") {
				t.Errorf("%s?%s: %d %s", route.path, query, rec.Code, rec.Body)
			}
		}
	}
	if lists < 10 {
		t.Errorf("%d lists were asked for", lists)
	}
}

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
