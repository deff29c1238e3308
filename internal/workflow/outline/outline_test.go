package outline_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// TestOutlineIsWhatCompiles holds the outline of every document that compiles to
// what the parser makes of it: the same steps, of the same kinds, in the same
// lists, that need the same ones.
func TestOutlineIsWhatCompiles(t *testing.T) {
	tried := 0
	for _, pattern := range []string{"../testdata/*/*.txtar", "../testdata/plans/*", "../../sample/*.yaml", "../schemas/testdata/*.txtar"} {
		names, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files := []txtar.File{{Name: filepath.Base(name), Data: data}}
			if strings.HasSuffix(name, ".txtar") {
				files = txtar.Parse(data).Files
			}
			for _, f := range files {
				if ext := filepath.Ext(f.Name); ext != ".yaml" && ext != ".json" {
					continue
				}
				if def, _ := workflow.Parse(workflow.ParseOptions{}, f.Data); def != nil {
					tried++
					t.Run(filepath.Base(name)+"/"+f.Name, func(t *testing.T) { same(t, def, f.Data) })
				}
			}
		}
	}
	if tried < 40 {
		t.Errorf("%d documents were compared", tried)
	}
}

// chained reports whether a document has chains that part or meet.
func chained(def *workflow.Definition) bool {
	for _, s := range def.Steps {
		if s.Block.Chained {
			return true
		}
	}
	return false
}

// facts are what the outline and a compiled step both say.
type facts struct {
	Kind   workflow.Kind
	Parent string
	Index  int
	Needs  string
}

func same(t *testing.T, def *workflow.Definition, source []byte) {
	if chained(def) {
		return // the outline shows chains that meet as they are written: one by one
	}
	tree, _ := workflow.ReadTree(workflow.ParseOptions{}, source)
	w := outline.Of(tree)
	got, want := map[string]facts{}, map[string]facts{}
	w.Each(func(s *outline.Step) {
		if slices.Contains(w.Unreached, s) {
			return
		}
		f := facts{Kind: s.Kind, Index: s.Index}
		if s.Block.Parent != nil {
			f.Parent = s.Block.Parent.ID + "/" + s.Block.Name
		}
		for _, n := range s.Needs {
			f.Needs += s.Block.Steps[n].ID + " "
		}
		got[s.ID] = f
	})
	for id, s := range def.Steps {
		f := facts{Kind: s.Kind, Index: s.Index}
		if s.Block.Parent != nil {
			f.Parent = s.Block.Parent.ID + "/" + s.Block.Name
		}
		for _, n := range s.Needs {
			f.Needs += s.Block.Steps[n].ID + " "
		}
		want[id] = f
	}
	for id, f := range got {
		// Needs are a set: the parser sorts it.
		parts := strings.Fields(f.Needs)
		f.Needs = ""
		for _, s := range def.Steps[id].Block.Steps {
			if slices.Contains(parts, s.ID) {
				f.Needs += s.ID + " "
			}
		}
		got[id] = f
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outline (-compiled +outline):\n%s\n%s", diff, source)
	}
}
