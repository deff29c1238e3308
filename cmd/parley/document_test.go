package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/workflow"
)

// TestLargeDocuments: a document that only a setting of the server allows is sent to
// it; without a server it is a finding of the limit, beside those of other documents.
func TestLargeDocuments(t *testing.T) {
	large := "name: large\nsteps: [{set: '" + strings.Repeat("x", 1<<20) + "'}]\n"
	var got int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = len(b)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"w1","workflow":"large","version":"1"}`)
	}))
	defer s.Close()
	a, out, errs := apiApp(t, s.URL, true)
	for name, text := range map[string]string{"large.yaml": large, "misspelt.yaml": "name: t\nsteps: [{sett: 1}]\n"} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code := a.execute(t.Context(), []string{"workflow", "apply", "large.yaml"}); code != exitDone || got != len(large) {
		t.Errorf("apply: exit code %d, %d bytes were sent: %s", code, got, errs.String())
	}
	code := a.execute(t.Context(), []string{"workflow", "validate", "large.yaml", "misspelt.yaml"})
	for _, want := range []string{"large.yaml:1:1: limit: ", "misspelt.yaml:2:10: unknown_member: "} {
		if code != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("validate: exit code %d, %q is not in %s%s", code, want, out.String(), errs.String())
		}
	}
}

// TestDefaultLimits: runs of parley serve have the limits that those of parley dev and
// of dry runs have, unless a setting says otherwise.
func TestDefaultLimits(t *testing.T) {
	l, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workflow.DefaultRunLimits(), runLimits(l.Limits)); diff != "" {
		t.Errorf("dev and serve differ (-dev +serve):\n%s", diff)
	}
}
