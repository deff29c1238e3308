package expr

import "testing"

// TestE2_ListForm checks that a text of the graph form, written for the list
// form, gives the same value there.
func TestE2_ListForm(t *testing.T) {
	d := document{
		input: `{"a": {"two words": [1, {"x-y": "z"}]}, "it's": 2, "n": 3}`,
		steps: map[string]StepInfo{"step-1": done(`{"a b": 4, "c": 5}`), "s": done(`"text"`)},
	}
	graphForm, listForm := d.compiler(t, graph), d.compiler(t)
	for text, want := range map[string]string{
		"plain": "plain", "${workflow.input.n}": "${workflow.input.n}", "a ${step-1.output.c} b": "a ${step-1.output.c} b",
		"${workflow.input.a.two words[1].x-y}": `${workflow.input.a["two words"][1]["x-y"]}`,
		"${steps.step-1.output.a b}":           `${steps["step-1"].output["a b"]}`,
		"${workflow.input.it's}":               `${workflow.input["it's"]}`,
		"${workflow.input.n + 1}":              "${workflow.input.n + 1}",
		"${s.output}, ${s.output":              `${s.output}, ${"${"}s.output`,
		"${":                                   `${"${"}`,
	} {
		got := graphForm.ListForm(text)
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		was, err := evalTemplate(t, graphForm, quote(text), At{}, d.scope())
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		is, err := evalTemplate(t, listForm, quote(got), At{}, d.scope())
		if err != nil || is != was {
			t.Errorf("%s: gives %s, in list form %s, %v", text, was, is, err)
		}
	}
}
