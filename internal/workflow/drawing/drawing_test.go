package drawing_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/drawing"
	"github.com/parley-project/parley/internal/workflow/outline"
)

var update = flag.Bool("update", false, "rewrite the drawings in testdata")

// failer is the part of a test that a helper needs.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func draw(t failer, source []byte, format string) string {
	t.Helper()
	tree, problems := workflow.ReadTree(workflow.ParseOptions{}, source)
	if tree == nil {
		t.Fatal(problems)
	}
	drawing, ok := drawing.Draw(outline.Of(tree), format)
	if !ok {
		t.Fatalf("no format %s", format)
	}
	return drawing
}

// TestDrawings compares the drawings of the documents in testdata with those
// beside them: one document and its three drawings for each.
func TestDrawings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) < 3 {
		t.Fatalf("testdata: %d files, %v", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wanted := map[string]string{}
		for _, f := range archive.Files {
			wanted[f.Name] = string(f.Data)
		}
		out := &txtar.Archive{Comment: archive.Comment}
		for _, f := range archive.Files {
			ext := filepath.Ext(f.Name)
			if ext != ".yaml" && ext != ".json" {
				continue
			}
			out.Files = append(out.Files, f)
			for _, format := range []string{"text", "mermaid", "dot"} {
				name := strings.TrimSuffix(f.Name, ext) + "." + format
				got := draw(t, f.Data, format)
				if diff := cmp.Diff(wanted[name], got); diff != "" && !*update {
					t.Errorf("%s: %s (-want +got):\n%s", file, name, diff)
				}
				if got != draw(t, f.Data, format) {
					t.Errorf("%s: two drawings differ", name)
				}
				out.Files = append(out.Files, txtar.File{Name: name, Data: []byte(got)})
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDraw_Anything draws what is no workflow: whatever a file holds, a drawing
// comes of it, line by line as long as the document is.
func TestDraw_Anything(t *testing.T) {
	for _, doc := range []string{
		"a: 1", "steps: 1", "steps: {}", "steps: [1, [], {}]", "start_step: a\nsteps: {a: 1}", "start_step: [a]\nsteps: {a: {next_step: a}}",
		"steps: [{id: a, needs: [b]}, {id: b, needs: [a]}]", "steps: [{steps: [{id: a, needs: [b]}, {id: b, needs: [a]}]}, {id: c}]",
		"steps: [{id: a, agent: x, on_error: {goto: a}}, {fork: {}, on_error: {goto: a, steps: []}}]", "steps: [{switch: 1}, {parallel: {a: 1}}, {repeat: 1}, {approval: 1}]",
		"start_step: a\nsteps: {a: {type: parallel, parallel_steps: [a, b, a]}, b: {type: conditional, if_true_step: a, if_false_step: b}}",
	} {
		for _, format := range drawing.Formats() {
			if draw(t, []byte(doc), format) == "" {
				t.Errorf("%s: no %s", doc, format)
			}
		}
	}
}

// TestDraw_LabelsStayLabels puts all kinds of text into labels: no drawing gets a
// line, a quote or a bracket more from it.
func TestDraw_LabelsStayLabels(t *testing.T) {
	plain := `{"name": "w", "steps": [{"id": "a", "agent": "plain", "on_error": {"match": ["X"], "steps": [{"id": "b", "set": 1}]}}]}`
	rapid.Check(t, func(t *rapid.T) {
		tree, _ := workflow.ReadTree(workflow.ParseOptions{}, []byte(plain))
		label := "x" + rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("\"'`<>{}[]()|%;#&\\\n\r\t~^*_-=:@\u009b\u202e")), rapid.Rune())).Draw(t, "label")
		step := tree.Get("steps").Items[0]
		step.Get("agent").Text = label
		step.Get("on_error").Get("match").Items[0].Text = label
		for _, format := range drawing.Formats() {
			got, _ := drawing.Draw(outline.Of(tree), format)
			want := draw(t, []byte(plain), format)
			if strings.Count(got, "\n") != strings.Count(want, "\n") {
				t.Fatalf("%s: another number of lines:\n%s", format, got)
			}
			switch format {
			case "mermaid":
				for _, c := range "\"<>{}[]|&%`" {
					if strings.Count(got, string(c)) != strings.Count(want, string(c)) {
						t.Fatalf("another number of %c:\n%s", c, got)
					}
				}
			case "dot":
				bare := strings.ReplaceAll(strings.ReplaceAll(got, `\\`, ""), `\"`, "")
				if strings.Count(bare, `"`) != strings.Count(want, `"`) {
					t.Fatalf("another number of quotes:\n%s", got)
				}
			}
			if strings.ContainsAny(got, "\x1b\u009b\u202e") && format == "text" {
				t.Fatalf("the text may steer a terminal: %q", got)
			}
		}
	})
}

// TestDraw_Deep draws a plan whose branches stand in each other without end: the
// drawing stays in bounds.
func TestDraw_Deep(t *testing.T) {
	var b strings.Builder
	b.WriteString("{\"start_step\": \"s0\", \"steps\": {")
	for i := range 3000 {
		fmt.Fprintf(&b, "\"s%d\": {\"type\": \"conditional\", \"condition\": \"true\", \"if_true_step\": \"s%d\"}, ", i, i+1)
	}
	b.WriteString("\"end\": {}}}")
	for _, format := range drawing.Formats() {
		if n := len(draw(t, []byte(b.String()), format)); n > 1<<20 {
			t.Errorf("%s has %d bytes", format, n)
		}
	}
}

// TestDraw_NoSuchFormat checks that nothing is drawn in it.
func TestDraw_NoSuchFormat(t *testing.T) {
	if _, ok := drawing.Draw(&outline.Workflow{Body: &outline.Block{}}, "png"); ok {
		t.Error("png was drawn")
	}
}
