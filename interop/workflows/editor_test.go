package workflows

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// edit is a document in an editor, and what is asked at a place of it. Its first
// line is the second: before it stands the one that names the schema.
type edit struct {
	Text string `json:"text"`
	Ask  string `json:"ask,omitempty"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
}

type told struct {
	Findings    []string `json:"findings"`
	Completions []string `json:"completions"`
	Hover       string   `json:"hover"`
}

func editor(t *testing.T, edits []edit) []told {
	t.Helper()
	schema, err := filepath.Abs(filepath.FromSlash("../../internal/workflow/schemas/workflow.json"))
	check(t, err)
	return tool[[]told](t, "edit.mjs", edits, schema)
}

// TestD2_EditorsCheckDocuments opens documents in yaml-language-server: it has no
// finding in those that are right and one in each that is wrong.
func TestD2_EditorsCheckDocuments(t *testing.T) {
	var edits []edit
	var right []bool
	add := func(text string, ok bool) { edits, right = append(edits, edit{Text: text}), append(right, ok) }
	for _, d := range append(documents(t, "schemas/testdata/examples.txtar"), documents(t, "schemas/testdata/valid.txtar")...) {
		add(d.text, true)
	}
	for _, d := range documents(t, "schemas/testdata/wrong.txtar") {
		for text := range strings.SplitSeq(d.text, "---\n") {
			add(text, false)
		}
	}
	for i, said := range editor(t, edits) {
		if got := len(said.Findings) == 0; got != right[i] {
			t.Errorf("findings %q in\n%s", said.Findings, edits[i].Text)
		}
	}
}

// TestEditorsHelp asks for completions and explanations.
func TestEditorsHelp(t *testing.T) {
	cases := []struct {
		edit
		want []string
	}{
		{edit{"name: x\nsteps:\n  - id: a\n    agent: b\n    \n", "completion", 5, 4}, []string{"timeout", "retry", "input", "on_error"}},
		{edit{"name: x\n\n", "completion", 2, 0}, []string{"steps", "finally", "concurrency", "triggers"}},
		{edit{"name: x\nsteps:\n  - id: a\n    agent: b\n    parse: \n", "completion", 5, 11}, []string{"json", "none"}},
		{edit{"name: x\nsteps:\n  - id: a\n    agent: b\n    retry:\n      \n", "completion", 6, 6}, []string{"attempts", "max_delay"}},
		{edit{"name: x\nstart_step: a\nsteps:\n  a:\n    type: \n", "completion", 5, 10}, []string{"fork_join", "agent"}},
		{edit{"name: x\nstart_step: a\nsteps:\n  a:\n    type: agent\n    \n", "completion", 6, 4}, []string{"agent_name", "input_mapping", "next_step"}},
		{edit{"name: x\nsteps:\n  - id: a\n    agent: b\n    timeout: 5m\n", "hover", 5, 6}, []string{"Bounds the whole step"}},
		{edit{"name: x\nsteps:\n  - id: a\n    for_each: [1]\n    tolerate: 10%\n    steps: [{agent: x}]\n", "hover", 5, 6}, []string{"How many iterations may fail"}},
		{edit{"name: x\nstart_step: a\nsteps:\n  a:\n    agent_name: x\n    next_step: b\n", "hover", 6, 6}, []string{"The step that comes next"}},
	}
	var edits []edit
	for _, c := range cases {
		edits = append(edits, c.edit)
	}
	for i, said := range editor(t, edits) {
		for _, want := range cases[i].want {
			if !slices.Contains(said.Completions, want) && !strings.Contains(said.Hover, want) {
				t.Errorf("%s at %d:%d: no %q in %q %q", cases[i].Ask, cases[i].Line, cases[i].Col, want, said.Completions, said.Hover)
			}
		}
	}
}
