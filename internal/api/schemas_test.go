package api

import (
	"net/http"
	"testing"
)

// TestSchema gets a schema that there is, and one that there is not.
func TestSchema(t *testing.T) {
	s, _ := setup(func(c *Config) {
		c.Schema = func(name string) ([]byte, bool) { return []byte(`{"title":"` + name + `"}`), name == "workflow" }
	})
	rec := call(s.handler(), http.MethodGet, "/api/v1/schemas/workflow", "", "Authorization", "Bearer test-key")
	if rec.Code != http.StatusOK || rec.Body.String() != `{"title":"workflow"}` || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %s", rec.Code, rec.Header(), rec.Body)
	}
	none, _ := setup(nil)
	for _, h := range []http.Handler{s.handler(), none.handler()} {
		if rec := call(h, http.MethodGet, "/api/v1/schemas/nothing", "", "Authorization", "Bearer test-key"); rec.Code != http.StatusNotFound {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	}
}
