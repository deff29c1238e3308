package workflows

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/drawing"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// seen is what a tool sees in a drawing: the labels of its parts.
type seen struct {
	Nodes  []string `json:"nodes"`
	Edges  []string `json:"edges"`
	Frames []string `json:"frames"`
}

type drawn struct {
	Format string `json:"format"`
	Text   string `json:"text"`
}

type read struct {
	Seen  seen   `json:"seen"`
	Error string `json:"error"`
}

// look has Mermaid and Graphviz look at the drawings of workflows. What they see is
// the same, and every step is in it.
func look(t *testing.T, names []string, all []*workflow.Value) {
	t.Helper()
	var pictures []drawn
	for _, doc := range all {
		for _, format := range []string{"mermaid", "dot"} {
			text, ok := drawing.Draw(outline.Of(doc), format)
			if !ok {
				t.Fatalf("there is no format %s", format)
			}
			pictures = append(pictures, drawn{format, text})
		}
	}
	found := tool[[]read](t, "draw.mjs", pictures)
	for i, name := range names {
		one, two := found[2*i], found[2*i+1]
		if one.Error != "" || two.Error != "" {
			t.Errorf("%s: Mermaid says %q, Graphviz %q\n%s", name, one.Error, two.Error, pictures[2*i].Text)
			continue
		}
		for _, s := range []*seen{&one.Seen, &two.Seen} {
			for _, list := range [][]string{s.Nodes, s.Edges, s.Frames} {
				slices.Sort(list)
			}
		}
		if diff := cmp.Diff(one.Seen, two.Seen); diff != "" {
			t.Errorf("%s: what is seen (-Mermaid +Graphviz):\n%s", name, diff)
		}
		outline.Of(all[i]).Each(func(s *outline.Step) {
			is := func(label string) bool {
				first, _, _ := strings.Cut(label, "\n")
				return first == strings.Join(strings.Fields(s.ID), " ") || first == s.ID+" again"
			}
			if !slices.ContainsFunc(one.Seen.Nodes, is) && !slices.ContainsFunc(one.Seen.Frames, is) {
				t.Errorf("%s: nobody sees the step %q", name, s.ID)
			}
		})
	}
}

// TestDrawingsAreRead draws every document of the drawings' own tests.
func TestDrawingsAreRead(t *testing.T) {
	var names []string
	var all []*workflow.Value
	for _, archive := range []string{"list", "graph", "examples"} {
		for _, d := range documents(t, "drawing/testdata/"+archive+".txtar") {
			if ext := filepath.Ext(d.name); ext == ".yaml" || ext == ".json" {
				names, all = append(names, d.name), append(all, tree(t, d.text))
			}
		}
	}
	if len(all) < 12 {
		t.Fatalf("%d documents", len(all))
	}
	look(t, names, all)
}

// TestLabelsAreRead puts what means something to Mermaid, Markdown, HTML or DOT into
// labels.
func TestLabelsAreRead(t *testing.T) {
	var names []string
	var all []*workflow.Value
	for _, label := range []string{
		`"`, `""`, `\`, `\"`, `\n`, `\N\G\l`, `#`, `#35;`, `#quot;`, `&amp;`, `&lt;b&gt;`, `<b>x</b>`, `<br/>`, `<script>alert(1)</script>`, `%%`, `%%{init: {}}%%`, `;`, `end`, `subgraph`, `graph TD`,
		"`x`", "**x**", "1. x", "- x", "a|b", "[x]", "{x}", "(x)", "-->", "é漢字😀", "${a.output}", "a == 'b' && c", "http://a.b/c?d=e&f", "~~~", "---", "click x", ":::", "@{x}",
	} {
		doc := tree(t, `{"name": "labels", "steps": [{"id": "a", "agent": "x", "on_error": {"match": ["X"], "steps": [{"id": "b", "set": 1}]}}, {"id": "g", "steps": [{"id": "c", "agent": "y"}], "max_parallel": 1}]}`)
		first, second := doc.Get("steps").Items[0], doc.Get("steps").Items[1]
		first.Get("agent").Text, first.Get("on_error").Get("match").Items[0].Text, second.Get("id").Text = label, label, label
		names, all = append(names, label), append(all, doc)
	}
	look(t, names, all)
}
