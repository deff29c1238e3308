package parley_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// permissive recognises the licences that a dependency may have.
var permissive = regexp.MustCompile(`(?is)apache license|\bMIT license|permission is hereby granted, free of charge|redistribution and use in source and binary forms|permission to use, copy, modify, and(/or)? distribute`)

// TestLicences looks at the licence of every module whose code is linked.
func TestLicences(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{with .Module}}{{if not .Main}}{"Path":"{{.Path}}","Dir":{{printf "%q" .Dir}}}{{end}}{{end}}`, "./cmd/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		var m struct{ Path, Dir string }
		if json.Unmarshal([]byte(line), &m) != nil || seen[m.Path] {
			continue
		}
		seen[m.Path] = true
		if !licensed(m.Dir) {
			t.Errorf("%s: no permissive licence found", m.Path)
		}
	}
	if len(seen) == 0 {
		t.Error("no dependency was looked at")
	}
}

func licensed(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "[LC][IiOo][CcPp][EeYy]*"))
	if err != nil {
		return false
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && permissive.Match(text) {
			return true
		}
	}
	return false
}
