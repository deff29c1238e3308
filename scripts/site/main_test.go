package main

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var href = regexp.MustCompile(`href="([^"]*)"`)

// TestSite: the site of this repository can be made, each page is reached from all
// others, and whatever a page links to is there.
func TestSite(t *testing.T) {
	out := t.TempDir()
	for range 2 { // the second one takes the place of the first
		if err := run("../..", out); err != nil {
			t.Fatal(err)
		}
	}
	files := os.DirFS(out)
	pages := 0
	err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		pages++
		for _, m := range href.FindAllStringSubmatch(string(text), -1) {
			u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.IsAbs() || u.Path == "" {
				continue
			}
			if _, err := fs.Stat(files, path.Join(path.Dir(name), u.Path)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, u)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	index, err := fs.ReadFile(files, "index.html")
	if err != nil || pages < 60 {
		t.Fatalf("%d pages, %v", pages, err)
	}
	for _, want := range []string{`href="docs/operations.html"`, `href="docs/decisions/048-keys.html"`, `href="index.html" aria-current="page"`, "<title>Parley</title>"} {
		if !strings.Contains(string(index), want) {
			t.Errorf("index.html has no %s", want)
		}
	}
}

// TestBroken: links that lead nowhere are named, and no site is made.
func TestBroken(t *testing.T) {
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "site")
	for name, text := range map[string]string{
		"README.md":           "# Parley\n\n## What it is\n\n[a](docs/a.md#one-two) [code](docs/x.txt) [folder](docs) [self](#what-it-is) [away](https://example.com/#x)\n",
		"docs/a.md":           "# A\n\n## One, two\n\n[up](../README.md#nothing)\n",
		"docs/x.txt":          "1 < 2",
		"docs/decisions/1.md": "# One\n\n[gone](../b.md) [out](../../../x.md)\n",
		"CONTRIBUTING.md":     "# How\n",
		"CHANGELOG.md":        "# What\n",
	} {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := run(root, out)
	want := `docs/a.md: the link "up" leads to #nothing, which README.md does not have` + "\n" +
		`docs/decisions/1.md: the link "gone" leads to docs/b.md, which is not there` + "\n" +
		`docs/decisions/1.md: the link "out" leads to ../x.md, which is not there`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("there is a site all the same")
	}
	s, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.pages["docs/x.txt"].body); !strings.Contains(got, "<code>1 &lt; 2</code>") {
		t.Error(got)
	}
	if _, err := read(out); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Error(err)
	}
}

// TestNoSite: a folder that holds anything else stays as it is.
func TestNoSite(t *testing.T) {
	out := t.TempDir()
	mine := filepath.Join(out, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run("../..", out); err == nil || !strings.Contains(err.Error(), "name an empty folder") {
		t.Error(err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

// TestIDs: headings have the ids that GitHub gives them.
func TestIDs(t *testing.T) {
	p := &page{ids: map[string]bool{}}
	for _, c := range [][2]string{
		{"Dead letters", "dead-letters"},
		{"What `rpc call` sends: ids, params", "what-rpc-call-sends-ids-params"},
		{"Dead letters", "dead-letters-1"},
		{"A2A 0.3 & 1.0", "a2a-03--10"},
		{"snake_case - and more ", "snake_case---and-more"},
		{"Über", "über"},
	} {
		if got := string(p.Generate([]byte(c[0]), 0)); got != c[1] {
			t.Errorf("%q is #%s, want #%s", c[0], got, c[1])
		}
	}
}
