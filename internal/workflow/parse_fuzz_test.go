package workflow

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley"
)

// FuzzParse parses anything: it never panics, time and memory are bounded by
// the size, problems have places inside the source, and a document means the
// same in YAML and in JSON.
func FuzzParse(f *testing.F) {
	plans, _ := filepath.Glob(filepath.Join("testdata", "plans", "*"))
	for _, name := range plans {
		if source, err := os.ReadFile(name); err == nil {
			f.Add(source)
		}
	}
	tables, _ := filepath.Glob(filepath.Join("testdata", "problems", "*.txtar"))
	for _, name := range tables {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if filepath.Ext(file.Name) != ".want" {
				f.Add(file.Data)
			}
		}
	}
	f.Add([]byte("---")) // a value that is left out at the end
	f.Fuzz(func(t *testing.T, source []byte) {
		if len(source) > 64<<10 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		def, problems := Parse(ParseOptions{}, source)
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 512<<20 {
			t.Errorf("it allocated %d bytes", after.TotalAlloc-before.TotalAlloc)
		}
		fuzzProblems(t, source, def, problems)
		fuzzSpellings(t, source, def, problems)
	})
}

func fuzzProblems(t *testing.T, source []byte, def *Definition, problems parley.Problems) {
	if (def == nil) != problemsFail(problems) || len(problems) > problemsMax+1 {
		t.Errorf("definition %v, %d problems: %v", def != nil, len(problems), problems)
	}
	lines := nodeLines(string(source))
	for _, p := range problems {
		if p.Line < 1 || p.Line > len(lines) || p.Col < 1 || p.Col > len(source)+1 || p.Code == "" || p.Text == "" || p.Severity == "" {
			t.Errorf("problem without a place or a text: %+v", p)
		}
	}
	if def != nil {
		checkTree(t, def)
	}
}

// fuzzSpellings writes what was read as JSON, and that JSON as YAML, and
// compares.
func fuzzSpellings(t *testing.T, source []byte, def *Definition, problems parley.Problems) {
	root, reader := nodeRead(source, ParseLimits{}.filled())
	if root == nil || len(reader.problems) > 0 || root.kind != nodeObject {
		return
	}
	json := root.json()
	for _, other := range [][]byte{json, append([]byte("---\n"), json...)} {
		tree, reader := nodeRead(other, ParseLimits{}.filled())
		if tree == nil || string(tree.json()) != string(json) {
			t.Fatalf("%q is read otherwise: %v", other, reader.problems)
		}
		again, found := Parse(ParseOptions{}, other)
		if diff := cmp.Diff(fuzzPlain(problems), fuzzPlain(found)); diff != "" {
			t.Errorf("other problems:\n%s", diff)
		}
		if diff := cmp.Diff(def, again, testSame()); diff != "" {
			t.Errorf("another definition:\n%s", diff)
		}
	}
}

// fuzzPlain counts the findings by what does not hang on lines: they are sorted
// by place, and the spellings have other places.
func fuzzPlain(problems parley.Problems) map[string]int {
	out := map[string]int{}
	if len(problems) > problemsMax {
		return out
	}
	for _, p := range problems {
		out[string(p.Severity)+" "+p.Code+" "+p.Path]++
	}
	return out
}
