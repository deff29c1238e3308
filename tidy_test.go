package parley_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The house numbers. An exception is named with its reason, or it is none.
const (
	maxFileLines     = 500
	maxTestFileLines = 800
	maxFuncLines     = 70
	maxParams        = 4 // besides the context
	maxInterface     = 8
)

var exceptions = map[string]string{}

// TestTidy holds every Go file to the house rules: sizes, package docs, doc
// comments on exported names, no init, no unfinished words.
func TestTidy(t *testing.T) {
	documented := make(map[string]bool)
	seen := make(map[string]bool)
	goFiles(t, func(file string, src []byte) {
		if generated.Match(src) {
			return
		}
		limit := maxFileLines
		if strings.HasSuffix(file, "_test.go") {
			limit = maxTestFileLines
		}
		if n := bytes.Count(src, []byte("\n")); n > limit && exceptions[file] == "" {
			t.Errorf("%s: %d lines, the limit is %d", file, n, limit)
		}
		if m := unfinished.Find(src); m != nil && file != "tidy_test.go" {
			t.Errorf("%s: unfinished: %q", file, m)
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			return
		}
		if !strings.HasSuffix(file, "_test.go") {
			dir := filepath.Dir(file)
			seen[dir] = true
			documented[dir] = documented[dir] || f.Doc != nil
			tidyDecls(t, fset, f)
		}
	})
	for dir := range seen {
		if !documented[dir] {
			t.Errorf("%s: the package has no doc comment", dir)
		}
	}
}

// generated is the line by which Go knows code that nobody writes.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

var unfinished = regexp.MustCompile(`(?i)\b(TODO|FIXME|XXX|for now)\b`)

func tidyDecls(t *testing.T, fset *token.FileSet, f *ast.File) {
	t.Helper()
	at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			lines := fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1
			if lines > maxFuncLines {
				t.Errorf("%s: func %s has %d lines, the limit is %d", at(d), d.Name.Name, lines, maxFuncLines)
			}
			if n := params(d.Type); n > maxParams {
				t.Errorf("%s: func %s has %d parameters, the limit is %d", at(d), d.Name.Name, n, maxParams)
			}
			if d.Name.Name == "init" && d.Recv == nil {
				t.Errorf("%s: init", at(d))
			}
			if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
				t.Errorf("%s: exported %s has no doc comment", at(d), d.Name.Name)
			}
		case *ast.GenDecl:
			tidySpecs(t, d, at)
		}
	}
}

func tidySpecs(t *testing.T, d *ast.GenDecl, at func(ast.Node) string) {
	t.Helper()
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				t.Errorf("%s: exported type %s has no doc comment", at(s), s.Name.Name)
			}
			if i, ok := s.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxInterface {
				t.Errorf("%s: interface %s has %d methods, the limit is %d", at(s), s.Name.Name, i.Methods.NumFields(), maxInterface)
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					t.Errorf("%s: exported %s has no doc comment", at(s), n.Name)
				}
			}
		}
	}
}

func params(f *ast.FuncType) int {
	n := 0
	for _, p := range f.Params.List {
		if sel, ok := p.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
			continue
		}
		n += max(1, len(p.Names))
	}
	return n
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if gen, ok := typ.(*ast.IndexExpr); ok {
		typ = gen.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// goFiles calls f with every Go file of the module.
func goFiles(t *testing.T, f func(file string, src []byte)) {
	t.Helper()
	files(t, ".go", f)
}

func files(t *testing.T, suffix string, f func(file string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, suffix) {
			return nil
		}
		src, err := os.ReadFile(p)
		if err == nil {
			f(p, src)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// TestDocs finds links in the pages that lead nowhere.
func TestDocs(t *testing.T) {
	files(t, ".md", func(file string, src []byte) {
		for _, m := range link.FindAllSubmatch(src, -1) {
			target := string(m[1])
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), target)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, target)
			}
		}
	})
}

// TestDocsRequirements holds docs/requirements.md to what exists: every test
// that it names is a test of the module.
func TestDocsRequirements(t *testing.T) {
	page, err := os.ReadFile("docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	goFiles(t, func(file string, src []byte) {
		for _, m := range testFunc.FindAllSubmatch(src, -1) {
			known[string(m[1])] = true
		}
	})
	for _, m := range testName.FindAllString(string(page), -1) {
		if !known[m] {
			t.Errorf("docs/requirements.md names %s, which does not exist", m)
		}
	}
}

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*)\(`)
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*\b`)
)
