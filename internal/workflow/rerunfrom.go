package workflow

import (
	"strings"

	"github.com/parley-project/parley"
)

// notThere says that a rerun cannot begin at what was named, and what to name instead
// if it is one execution of a step, such as one iteration's: a rerun begins at a step.
func (s *State) notThere(next *Definition, from string) error {
	hint := ""
	step := next.stepAt(from)
	if i := strings.LastIndexAny(from, "[#"); step == nil && i > 0 {
		step = next.stepAt(from[:i])
	}
	switch x := s.execs[from]; {
	case x != nil && x.region.planAround() != nil:
		hint = ": it is one of a plan; name the step that runs the plan, \"" + x.region.planAround().step.ID + "\""
	case step == nil:
	case step.Loop != nil, step.inLoop():
		hint = ": inside a loop name the step, \"" + step.ID + "\"; all iterations run again"
	default:
		hint = ": name the step, \"" + step.ID + "\""
	}
	return parley.Errorf(parley.CodeNotFound, "workflow %s version %s has no step %q%s", next.ID, next.Version, from, hint)
}

// inLoop reports whether a loop stands around s.
func (s *Step) inLoop() bool {
	for p := s.Block.Parent; p != nil; p = p.Block.Parent {
		if p.Loop != nil {
			return true
		}
	}
	return false
}
