package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

func schemaRoute(s *server) route {
	return route{
		method: http.MethodGet, path: "/api/v1/schemas/{ref}", id: "get-schema", tag: "system",
		summary: "Get the JSON Schema of a document, for editors", params: []*huma.Param{pathParam("ref", "workflow.")},
		answers: ok(map[string]any{}), errors: []int{http.StatusNotFound}, handle: s.schema,
	}
}

func (s *server) schema(w http.ResponseWriter, r *http.Request) error {
	var schema []byte
	found := false
	if s.cfg.Schema != nil {
		schema, found = s.cfg.Schema(r.PathValue("ref"))
	}
	if !found {
		return parley.Errorf(parley.CodeNotFound, "there is no schema %q", r.PathValue("ref"))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(schema)
	return nil
}
