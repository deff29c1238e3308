package workflow

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley"
)

var update = flag.Bool("update", false, "rewrite the expected problems in testdata/problems")

// TestGoldenProblems parses every document of testdata/problems and compares
// what is reported with the file beside it: one line for each problem, its path
// in brackets, and "ok" for a document that compiles.
func TestGoldenProblems(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "problems", "*.txtar"))
	if err != nil || len(files) < 8 {
		t.Fatalf("testdata/problems: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { goldenFile(t, file) })
	}
}

func goldenFile(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for i := 0; i < len(archive.Files); i++ {
		doc := archive.Files[i]
		name := strings.TrimSuffix(strings.TrimSuffix(doc.Name, ".yaml"), ".json")
		if name == doc.Name {
			t.Fatalf("%s: %s is not a document", file, doc.Name)
		}
		want := ""
		if i+1 < len(archive.Files) && archive.Files[i+1].Name == name+".want" {
			i++
			want = string(archive.Files[i].Data)
		}
		got := goldenLines(ParseOptions{File: doc.Name, KnownAgents: goldenKnown, Idempotent: goldenIdempotent}, doc.Data)
		out.Files = append(out.Files, doc, txtar.File{Name: name + ".want", Data: []byte(got)})
		if diff := cmp.Diff(want, got); diff != "" && !*update {
			t.Errorf("%s: problems (-want +got):\n%s", doc.Name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenKnown knows every agent but those whose names begin with "no".
func goldenKnown(name string) bool { return !strings.HasPrefix(name, "no") }

// goldenIdempotent is declared by every agent but those whose names begin with
// "once".
func goldenIdempotent(name string) bool { return !strings.HasPrefix(name, "once") }

func goldenLines(o ParseOptions, source []byte) string {
	var b strings.Builder
	def, problems := Parse(o, source)
	for _, p := range problems {
		if p.Severity == parley.SeverityWarning {
			b.WriteString("warning ")
		}
		b.WriteString(p.String() + " [" + p.Path + "]\n")
	}
	if def != nil {
		b.WriteString("ok\n")
	}
	return b.String()
}
