package outline_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// TestOutlineHasWhatOnlyAGotoLeadsTo: such a chain stands behind the others, no step
// of it is one that nobody comes to, and none begins with the list.
func TestOutlineHasWhatOnlyAGotoLeadsTo(t *testing.T) {
	tree, _ := workflow.ReadTree(workflow.ParseOptions{}, []byte(`{"name": "x", "start_step": "a", "steps": {
		"a": {"agent_name": "x", "on_error": {"goto": "t"}, "next_step": "b"}, "b": {"agent_name": "x"},
		"t": {"agent_name": "x", "next_step": "u"}, "u": {"agent_name": "x", "next_step": "b"}, "z": {"agent_name": "x"}}}`))
	w := outline.Of(tree)
	var got []string
	w.Each(func(s *outline.Step) {
		text := s.ID
		if s.Jumped {
			text += " jumped"
		}
		if s.Again {
			text += " again"
		}
		got = append(got, text)
	})
	if text := strings.Join(got, ", "); text != "a, b, t jumped, u jumped, b jumped again, z" {
		t.Errorf("steps %s", text)
	}
	if starts := w.Body.Starts(); len(starts) != 1 || starts[0].ID != "a" {
		t.Errorf("it starts with %d steps", len(starts))
	}
	if len(w.Unreached) != 1 || w.Unreached[0].ID != "z" {
		t.Errorf("%d are never reached", len(w.Unreached))
	}
}
