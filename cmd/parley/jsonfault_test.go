package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJSONMayBeginWithAByteOrderMark: files as editors on Windows write them are read
// wherever a command takes JSON, and faults in them are where the editor shows them.
func TestJSONMayBeginWithAByteOrderMark(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"in.json": "\ufeff{\"a\": 1}\r\n", "batch.json": "\ufeff[{\"method\": \"m\"}]\r\n", "bad.json": "\ufeff{a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &app{dir: dir, stdin: strings.NewReader("\ufeff{\"a\": 1}")}
	if v, err := a.readInput("@in.json", ""); err != nil || string(v) != `{"a": 1}` {
		t.Errorf("--input: %q, %v", v, err)
	}
	if v, err := a.readValue("--data", "-"); err != nil || string(v) != `{"a": 1}` {
		t.Errorf("standard input: %q, %v", v, err)
	}
	if v, err := a.readJSON("PARAMS", "@in.json"); err != nil || string(v) != `{"a": 1}` {
		t.Errorf("PARAMS: %q, %v", v, err)
	}
	if v, err := a.readBatch("batch.json"); err != nil || len(v) != 1 || v[0].Method != "m" {
		t.Errorf("--batch: %v, %v", v, err)
	}
	if _, err := a.readInput("@bad.json", ""); err == nil || !strings.Contains(err.Error(), "bad.json is not JSON: line 1, column 2: ") {
		t.Errorf("a fault: %v", err)
	}
}
