package workflow

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestC6_RerunSaysWhichStepToName: the paths that a run shows are those of executions;
// who names one is told the step.
func TestC6_RerunSaysWhichStepToName(t *testing.T) {
	s := play(t, `
name: t
version: "1"
steps:
  - {id: lo, for_each: [1, 2], steps: [{id: in, steps: [{id: w, set: 1}]}]}
  - {id: g, retry: {attempts: 2, delay: 0s, on: ["*"]}, on_error: continue, steps: [{id: bad, fail: {code: No}}]}
  - {id: p, plan: "${[{'id': 'made', 'agent': 'x'}]}", allow: {agents: [x]}}
`)
	s.after(0).answer("p/made", `1`)
	for from, want := range map[string]string{
		"lo[1]/in/w": `has no step "lo[1]/in/w": inside a loop name the step, "w"; all iterations run again`,
		"lo[1]/in":   `has no step "lo[1]/in": inside a loop name the step, "in"; all iterations run again`,
		"lo[1]":      `has no step "lo[1]": inside a loop name the step, "lo"; all iterations run again`,
		"g#2/bad":    `has no step "g#2/bad": name the step, "bad"`,
		"g#2":        `has no step "g#2": name the step, "g"`,
		"p/made":     `has no step "p/made": it is one of a plan; name the step that runs the plan, "p"`,
		"nothing":    `workflow t version 1 has no step "nothing"`,
	} {
		_, err := s.state.Rerun(s.state.def, from, nil)
		if parley.CodeOf(err) != parley.CodeNotFound || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("from %s: %v, want %s", from, err, want)
		}
	}
	for _, from := range []string{"w", "lo/in/w", "lo", "bad", "g/bad"} {
		if _, err := s.state.Rerun(s.state.def, from, nil); err != nil {
			t.Errorf("from %s: %v", from, err)
		}
	}
}
