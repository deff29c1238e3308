package convert_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/convert"
	"github.com/parley-project/parley/internal/workflow/workflowtest"
)

var update = flag.Bool("update", false, "rewrite what is expected in testdata")

// TestConvert compares what comes of the documents in testdata with what is
// beside them: the document in the other form, or the findings.
func TestConvert(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) < 3 {
		t.Fatalf("testdata: %d files, %v", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out := &txtar.Archive{Comment: archive.Comment}
		for i, f := range archive.Files {
			if strings.HasSuffix(f.Name, ".want") {
				continue
			}
			want := ""
			if i+1 < len(archive.Files) && strings.HasSuffix(archive.Files[i+1].Name, ".want") {
				want = string(archive.Files[i+1].Data)
			}
			got := converted(t, f)
			if diff := cmp.Diff(want, got); diff != "" && !*update {
				t.Errorf("%s: %s (-want +got):\n%s", file, f.Name, diff)
			}
			out.Files = append(out.Files, f, txtar.File{Name: strings.TrimSuffix(f.Name, filepath.Ext(f.Name)) + ".want", Data: []byte(got)})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func converted(t *testing.T, f txtar.File) string {
	t.Helper()
	tree, _ := workflow.ReadTree(workflow.ParseOptions{}, f.Data)
	var b strings.Builder
	doc, problems := convert.To(convert.Other(tree.Form()), f.Name, f.Data)
	for _, p := range problems {
		if p.Severity == parley.SeverityWarning {
			b.WriteString("warning ")
		}
		b.WriteString(p.String() + " [" + p.Path + "]\n")
	}
	if doc == nil {
		return b.String()
	}
	var out bytes.Buffer
	if err := json.Indent(&out, doc.JSON(), "", " "); err != nil {
		t.Fatal(err)
	}
	b.Write(out.Bytes())
	b.WriteByte('\n')
	// What compiled still does, and runs to the same.
	if was, _ := workflow.Parse(workflow.ParseOptions{}, f.Data); was != nil {
		is, problems := workflow.Parse(workflow.ParseOptions{}, doc.JSON())
		if is == nil {
			t.Errorf("%s: %v", f.Name, problems)
		} else if err := sameRuns(was, is); err != nil {
			t.Errorf("%s: %v\n%s", f.Name, err, out.Bytes())
		}
	}
	return b.String()
}

// TestConvert_ThereAndBack converts every document of the project's tests that
// compiles, and back: all three run to the same.
func TestConvert_ThereAndBack(t *testing.T) {
	tried, refused := 0, 0
	for _, f := range documents(t) {
		def, _ := workflow.Parse(workflow.ParseOptions{}, f.Data)
		if def == nil {
			continue
		}
		err := thereAndBack(f.Data)
		switch {
		case err == nil:
			tried++
		case strings.HasPrefix(err.Error(), "refused: "):
			refused++
			t.Logf("%s: %v", f.Name, err)
		default:
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if tried < 30 || refused > tried/2 {
		t.Errorf("%d documents were converted, %d refused", tried, refused)
	}
}

// thereAndBack converts twice and compares the runs. An error that begins with
// "refused" says that the other form cannot say it.
func thereAndBack(source []byte) error {
	first, problems := workflow.Parse(workflow.ParseOptions{}, source)
	if first == nil {
		return fmt.Errorf("it does not compile: %v", problems)
	}
	for _, form := range []workflow.Form{convert.Other(first.Form), first.Form} {
		doc, problems := convert.To(form, "doc", source)
		if doc == nil {
			return fmt.Errorf("refused: %v", problems)
		}
		source = doc.JSON()
		def, problems := workflow.Parse(workflow.ParseOptions{}, source)
		if def == nil || def.Form != form {
			return fmt.Errorf("what was written does not compile: %v\n%s", problems, source)
		}
		if def.ID != first.ID || def.Version != first.Version {
			return fmt.Errorf("%s@%s became %s@%s", first.ID, first.Version, def.ID, def.Version)
		}
		if err := sameRuns(first, def); err != nil {
			return fmt.Errorf("in %s form: %w\n%s", form, err, source)
		}
	}
	return nil
}

func documents(t *testing.T) (files []txtar.File) {
	t.Helper()
	for _, pattern := range []string{"../testdata/*/*.txtar", "../testdata/plans/*", "../../sample/*.yaml", "../schemas/testdata/*.txtar", "../drawing/testdata/*.txtar"} {
		files = append(files, workflowtest.Documents(t, pattern)...)
	}
	return files
}

// TestConvert_Property converts random documents of both forms there and back.
func TestConvert_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t}
		form := g.listDoc
		if rapid.Bool().Draw(t, "graph") {
			form = g.graphDoc
		}
		source := form()
		if err := thereAndBack(source); err != nil && !strings.HasPrefix(err.Error(), "refused: ") {
			t.Fatalf("%v\n%s", err, source)
		} else if err != nil && !strings.Contains(err.Error(), "cannot say needs") {
			t.Fatalf("%v\n%s", err, source)
		}
	})
}

// TestConvert_SameForm leaves a document as it is.
func TestConvert_SameForm(t *testing.T) {
	source := []byte("name: x\nsteps: [{agent: a, needs: []}]\n")
	doc, problems := convert.To(workflow.FormList, "x.yaml", source)
	if doc == nil || string(doc.JSON()) != `{"name":"x","steps":[{"agent":"a","needs":[]}]}` {
		t.Errorf("%v, %v", doc, problems)
	}
	if doc, problems := convert.To(workflow.FormList, "x.yaml", []byte("name: [")); doc != nil || len(problems) == 0 {
		t.Errorf("%v, %v", doc, problems)
	}
}

// TestConvert_OldPlans converts the plans that PARLEY_OLD_PLANS names, if there are
// any: they run to the same in list form as far as they compile.
func TestConvert_OldPlans(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(os.Getenv("PARLEY_OLD_PLANS"), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tree, _ := workflow.ReadTree(workflow.ParseOptions{}, source)
		if tree == nil || tree.Get("steps") == nil {
			continue // an input, or an agent
		}
		doc, problems := convert.To(workflow.FormList, name, source)
		if doc == nil {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		was, _ := workflow.Parse(workflow.ParseOptions{}, source)
		if was == nil {
			t.Logf("%s: converted, but does not run in this version", name)
			continue
		}
		if is, problems := workflow.Parse(workflow.ParseOptions{}, doc.JSON()); is == nil {
			t.Errorf("%s: %v", name, problems)
		} else if err := sameRuns(was, is); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
