package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/workflow"
)

// TestLimitsOfRequests: what the settings allow runs and documents comes through the
// API too, and what they do not is refused there by their figures.
func TestLimitsOfRequests(t *testing.T) {
	t.Parallel()
	document := func(bytes int) string { return `{"name":"big","steps":[{"set":"` + strings.Repeat("x", bytes) + `"}]}` }
	input := func(bytes int) string { return `{"input_data":{"t":"` + strings.Repeat("x", bytes) + `"}}` }
	for _, tt := range []struct {
		name                   string
		value                  int64
		source                 int
		largeInput, largeStart int // what there is room for, and what not
		largeDocument, tooLong int
		inputLimit, bodyLimit  string
	}{
		{"raised", 20 << 20, 2 << 20, 17 << 20, 21 << 20, 1 << 20, 2 << 20, "limit input of 20 MiB", "limit source of 2 MiB"},
		{"lowered", 1 << 20, 64 << 10, 1<<20 - 8, 1 << 20, 63 << 10, 64 << 10, "limit input of 1 MiB", "limit source of 64 KiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorldWith(t, func(c *server.Config) {
				c.Limits = workflow.DefaultRunLimits()
				c.Limits.Value, c.Documents.SourceBytes = tt.value, tt.source
			}, nil, "name: one\nsteps: [{set: 1}]\n")
			if status, b := w.call(http.MethodPost, "/api/v1/workflows", document(tt.largeDocument)); status != http.StatusCreated {
				t.Errorf("a document of %d bytes: %d %.300s", tt.largeDocument, status, b)
			}
			if status, b := w.call(http.MethodPost, "/api/v1/workflows", document(tt.tooLong)); status != http.StatusRequestEntityTooLarge || !strings.Contains(string(b), tt.bodyLimit) {
				t.Errorf("a document of %d bytes: %d %.300s", tt.tooLong, status, b)
			}
			status, b := w.call(http.MethodPost, "/api/v1/workflows/one/execute", input(tt.largeInput), "Prefer", "wait=60")
			var run parley.Run
			if err := json.Unmarshal(b, &run); err != nil || status != http.StatusOK || run.Status != parley.RunCompleted || len(run.Input) < tt.largeInput {
				t.Errorf("an input of %d bytes: %d %.300s", tt.largeInput, status, b)
			}
			status, b = w.call(http.MethodPost, "/api/v1/workflows/one/execute", input(tt.largeStart))
			if status != http.StatusUnprocessableEntity || !strings.Contains(string(b), tt.inputLimit) {
				t.Errorf("an input of %d bytes: %d %.300s", tt.largeStart, status, b)
			}
		})
	}
}
