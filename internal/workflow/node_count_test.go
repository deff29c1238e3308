package workflow

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestD1_ValuesAreCountedBeforeTheyAreBuilt counts YAML as its reader does where
// nothing is in doubt.
func TestD1_ValuesAreCountedBeforeTheyAreBuilt(t *testing.T) {
	for source, want := range map[string]int{
		"a: 1\nb: 2":                                      2,
		"- 1\n- - 2\n  - 3\n-\n":                          5,
		"- a: 1\n  b: {c: 1, d: [1, 2]}":                  7,
		"a: [1, \"x,y: z\", 'it''s, z', b c, d]":          6,
		"a: \"x\\\", y\nz, w\"\nb: 1":                     2,
		"a: |\n  - x\n  [1, 2, 3]\n\n  b: c\nb: 1":        2,
		"- |\n - x\n - y\n- >-\n  [1,2]\n":                2,
		"a: text\n  - more\n  b: c # no\nb: 1":            2,
		"a: x # - , [1, 2]\nb: http://x, y":               2,
		"a: # [1, 2]\n  [1, # 2, 3\n 2]":                  3,
		"%YAML 1.2\n---\na: 1\nb: 2":                      2,
		"--- {a: 1, b: 2, c: 3}":                          3,
		"a: &x [1, 2]\nb: *x\nc: !t \"a,b\"":              5,
		"a: [&x \"1,2\", *x, {\"k\":\"1,2\", l : 'a,b'}]": 6,
		"'a': 1\r\n\"b\": 2\r\n":                          2,
		"a: []\nb: [ {}, [ ] , # x\n ]":                   4,
		"a: it's [1, 2]\nb: \"it's\": 2":                  3,
	} {
		if got := nodeCounted(source, math.MaxInt).n; got != want {
			t.Errorf("%q: %d values, want %d", source, got, want)
		}
	}
	for _, source := range []string{
		"name: x\nsteps:\n" + strings.Repeat("- {agent: a}\n", 60), "a:" + strings.Repeat("\n- 1", 120), "a: [" + strings.Repeat("1,", 120) + "]",
	} {
		_, r := nodeRead([]byte(source), ParseLimits{Nodes: 100}.filled())
		if len(r.problems) != 1 || r.problems[0].Code != problemLimit || r.problems[0].Line < 1 || r.problems[0].Col < 1 {
			t.Errorf("%.20q: %+v", source, r.problems)
		}
	}
}

// FuzzNodeCount: whatever can be read has at least as many values as are counted
// without reading it.
func FuzzNodeCount(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no documents", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	for _, seed := range []string{
		"- |\n - x", "a: 'b\n c'", "? a\n: b\n", "[a, {b: c}, \"d\": e, f: ]", "a:\n- |2\n   x\n- >\n b", "--- >\n x\n- y", "{a: b?, c: d#e, f #,\n}",
		"- - - a\n    b: c\n", "a: !t\n  - x", "&a b: *a\n", "\"a\" : - b", "a: [b\n#,,\n,c]", "a:\tb\n-\tc", "[a:b, c:\"d,e\", ?f, - g]", "[a, {b: c, }, ]",
		"a: {[b,c]}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if strings.HasPrefix(strings.TrimLeft(source, " \t\r\n"), "{") || strings.HasPrefix(strings.TrimLeft(source, " \t\r\n"), "[") {
			source = "---\n" + source
		}
		root, r := nodeRead([]byte(source), ParseLimits{}.filled())
		if root == nil || len(r.problems) > 0 {
			return // names that are no texts are counted, and nobody reads them
		}
		if c := nodeCounted(r.src, math.MaxInt); c.n > r.count {
			t.Errorf("%d values are counted, %d are there: %q", c.n, r.count, source)
		}
	})
}
