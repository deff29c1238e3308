package api

import (
	"net/http"
	"strings"
	"testing"
)

// TestC10_AliasRoutes: an alias is made with 201, moved with 200, listed and
// removed; who did it is the caller.
func TestC10_AliasRoutes(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", onePlan)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/api/v1/workflows/a/aliases", "", 200, `"items":[],"total":0`},
		{"PUT", "/api/v1/workflows/a/aliases/stable", `{"version":"1"}`, 201, `"alias":"stable","version":"1"`},
		{"PUT", "/api/v1/workflows/a/aliases/stable", `{"version":"2"}`, 200, `"updated_by":"` + configured + `"`},
		{"GET", "/api/v1/workflows/a/aliases", "", 200, `"total":1`},
		{"GET", "/api/v1/workflows/a/aliases?page=2", "", 200, `"items":[],"total":1`},
		{"GET", "/api/v1/workflows/a/aliases?what=1", "", 200, `"total":1`},
		{"GET", "/api/v1/workflows/none/aliases", "", 404, `not_found`},
		{"PUT", "/api/v1/workflows/none/aliases/stable", `{"version":"1"}`, 404, `not_found`},
		{"PUT", "/api/v1/workflows/a/aliases/Stable", `{"version":"1"}`, 422, `an alias has 1 to 64 characters`},
		{"PUT", "/api/v1/workflows/a/aliases/stable", `{}`, 422, `version`},
		{"PUT", "/api/v1/workflows/a/aliases/stable", `{"version":"1","x":1}`, 422, `x`},
		{"POST", "/api/v1/workflows/a/deprecate", `{"reason":"old"}`, 409, `it is what stable stands for`},
		{"DELETE", "/api/v1/workflows/a/aliases/stable", "", 200, `Alias 'stable' removed`},
		{"DELETE", "/api/v1/workflows/a/aliases/stable", "", 404, `has no alias`},
		{"POST", "/api/v1/workflows/a/deprecate", `{"reason":"old"}`, 200, `"deprecated":{"at":`},
		{"GET", "/api/v1/workflows/a", "", 200, `"by":"` + configured + `","reason":"old"}`},
		{"POST", "/api/v1/workflows/a/deprecate", "", 200, `"deprecated":{`},
		{"POST", "/api/v1/workflows/none/deprecate", "", 404, `not_found`},
		{"POST", "/api/v1/workflows/a/undeprecate", "", 200, `"status":"active"`},
	} {
		rec := call(h, c.method, c.path, c.body)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", c.method, c.path, c.body, rec.Code, rec.Body, c.status, c.says)
		}
	}
	if rec := call(h, "GET", "/api/v1/workflows/a", ""); strings.Contains(rec.Body.String(), "deprecated") || rec.Code != http.StatusOK {
		t.Errorf("after it was undone: %s", rec.Body)
	}
}
