// Package workflowtest gives the tests of packages about workflows the documents that
// the project's tests have.
package workflowtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Documents reads the files that a pattern of paths with slashes matches. Of an
// archive (.txtar) it gives the YAML and JSON files, each under its name behind that
// of the archive. A pattern that matches nothing fails the test.
func Documents(t testing.TB, pattern string) (files []txtar.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.FromSlash(pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, ".txtar") {
			files = append(files, txtar.File{Name: name, Data: data})
			continue
		}
		for _, f := range txtar.Parse(data).Files {
			if ext := filepath.Ext(f.Name); ext == ".yaml" || ext == ".json" {
				files = append(files, txtar.File{Name: name + "/" + f.Name, Data: f.Data})
			}
		}
	}
	return files
}
