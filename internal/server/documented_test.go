package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestAnswersAreDocumented: what a server answers to whoever looks, also in the place of
// the API, is what its OpenAPI document says.
func TestAnswersAreDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "name: ship\nsteps: [{id: a, set: 1}]\n")
	w.end(w.start("ship", `{}`).ID)
	_, text := w.call(http.MethodGet, "/openapi.json", "")
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///openapi.json", resource); err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]struct {
			Get *struct {
				Responses map[string]struct{ Content map[string]any }
			}
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	looked := 0
	for path, item := range document.Paths {
		if item.Get == nil || strings.Contains(path, "{") {
			continue
		}
		status, body := w.call(http.MethodGet, path, "")
		said, known := item.Get.Responses[fmt.Sprint(status)]
		if _, isJSON := said.Content["application/json"]; !known || status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
			continue
		} else if !isJSON {
			continue
		}
		looked++
		schema, err := c.Compile(fmt.Sprintf("mem:///openapi.json#/paths/%s/get/responses/%d/content/application~1json/schema", strings.ReplaceAll(path, "/", "~1"), status))
		if err != nil {
			t.Fatal(path, err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: %v in %s", path, err, body)
		}
	}
	if looked < 15 {
		t.Errorf("%d answers were looked at", looked)
	}
}
