package cron_test

import (
	"archive/zip"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// zoneNames are all zones of the Go installation.
func zoneNames(t *testing.T) (names []string) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range r.File {
		body, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		magic := make([]byte, 4)
		if _, err := io.ReadFull(body, magic); err == nil && string(magic) == "TZif" && !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
		_ = body.Close()
	}
	if len(names) < 400 {
		t.Fatalf("%d zones", len(names))
	}
	return names
}
