package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

const schemaPrefix = "#/components/schemas/"

// register puts every route on the mux.
func (s *server) register() {
	s.routes = s.table()
	for _, rt := range s.routes {
		s.public[rt.path] = s.public[rt.path] || rt.public
		pattern := rt.method + " " + rt.path
		if rt.path == "/" {
			// The mux reads a path that ends in a slash as a whole tree.
			pattern += "{$}"
		}
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := rt.handle(w, r); err != nil {
				s.fail(w, r, err, rt.old)
			}
		})
	}
	s.document = sync.OnceValues(s.describe)
}

// describe makes the OpenAPI document of the routes.
func (s *server) describe() ([]byte, error) {
	registry := huma.NewMapRegistry(schemaPrefix, schemaName)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Parley", Version: s.cfg.Version,
			Description: "Durable workflows across agents that other people operate. Errors are application/problem+json (RFC 9457).",
		},
		Components: &huma.Components{
			Schemas:         registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer"}},
		},
		Tags: []*huma.Tag{{Name: "workflows"}, {Name: "runs"}, {Name: "agents"}, {Name: "dead letters"}, {Name: "system"}},
	}
	for _, rt := range s.routes {
		doc.AddOperation(rt.operation(registry))
	}
	allowNulls(registry)
	bytesSchema(registry)
	document, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("api: the OpenAPI document cannot be encoded: %w", err)
	}
	return document, nil
}

// schemaName names a type in the document. Two of ours share their name with
// a type of package parley.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[problem]():
		return "ErrorAnswer"
	case reflect.TypeFor[runBody]():
		return "RunAnswer"
	case reflect.TypeFor[stepBody]():
		return "StepAnswer"
	}
	return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Body")
}

// operation describes the route.
func (rt route) operation(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: rt.method, Path: rt.path, OperationID: rt.id, Tags: []string{rt.tag}, Summary: rt.summary,
		Parameters: rt.params, Responses: map[string]*huma.Response{},
		Security: []map[string][]string{{"key": {}}},
	}
	if rt.public {
		op.Security = []map[string][]string{{}}
	}
	if rt.body != nil {
		content := map[string]*huma.MediaType{
			"application/json": {Schema: registry.Schema(reflect.TypeOf(rt.body), true, rt.id+"-request")},
		}
		if rt.document {
			content["application/json"].Schema = &huma.Schema{
				AnyOf: []*huma.Schema{content["application/json"].Schema, {Type: huma.TypeObject, Description: "A workflow document."}},
			}
			content["application/yaml"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
		op.RequestBody = &huma.RequestBody{Required: !rt.optional, Content: content}
	}
	if rt.lines {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{mediaLines: {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
	if rt.anyBody {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{}}}}
	}
	for _, a := range rt.answers {
		content := contentOf(op, a.status)
		switch {
		case a.media != "":
			content[a.media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		case a.body != nil:
			content["application/json"] = &huma.MediaType{
				Schema: registry.Schema(reflect.TypeOf(a.body), true, rt.id+"-response"),
			}
		}
	}
	errorSchema := registry.Schema(reflect.TypeFor[problem](), true, "")
	for _, status := range slices.Concat(rt.errors, commonErrors(rt.public)) {
		contentOf(op, status)[problemType] = &huma.MediaType{Schema: errorSchema}
	}
	return op
}

// contentOf gives the content of the response with that status, by media type.
func contentOf(op *huma.Operation, status int) map[string]*huma.MediaType {
	key := strconv.Itoa(status)
	if op.Responses[key] == nil {
		op.Responses[key] = &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{}}
	}
	return op.Responses[key].Content
}

// commonErrors are the errors that any operation can answer with.
func commonErrors(public bool) []int {
	out := []int{
		http.StatusForbidden, http.StatusMisdirectedRequest, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	}
	if !public {
		out = append(out, http.StatusUnauthorized)
	}
	return out
}

// allowNulls corrects the schemas of members that are pointers to structs:
// they are null when there is nothing, which a bare reference forbids.
func allowNulls(registry huma.Registry) {
	for name, schema := range registry.Map() {
		for _, f := range reflect.VisibleFields(registry.TypeFromRef(schemaPrefix + name)) {
			tag := f.Tag.Get("json")
			member, options, _ := strings.Cut(tag, ",")
			p := schema.Properties[member]
			if f.Type.Kind() != reflect.Pointer || p == nil || p.Ref == "" || strings.Contains(options, "omitempty") {
				continue
			}
			schema.Properties[member] = &huma.Schema{OneOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}, Description: p.Description}
		}
	}
}
