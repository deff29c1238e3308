package workflow

import (
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// What a run has taken over stays with it until it is used: a run that ends before it
// comes to that hands it on to the one that goes on from it (rule C6), through any
// number of runs. So nothing is paid twice.

// tookOver notes that an execution has ended as it has in the run named, if one is.
func (s *State) tookOver(x *execution, from string) {
	if from != "" {
		x.copied, x.calledBefore = true, s.copied[x.path].Called
		delete(s.copied, x.path)
	}
}

// isOne reports whether e holds others and was taken over without them: nobody knows
// any more what became of those.
func (e *execution) isOne() bool {
	return e.copied && e.status != parley.StepSkipped && (e.step.Blocks() != nil || e.step.Plan != nil)
}

// enteredCopy notes that a step which holds others begins a round. One that is run
// again whole uses nothing of what went before: what it holds may be other than it was.
func (s *State) enteredCopy(x *execution, round int) {
	delete(s.copied, x.path)
	if round > 1 {
		maps.DeleteFunc(s.copied, func(path string, _ Copied) bool {
			rest, ok := strings.CutPrefix(path, x.path)
			return ok && rest != "" && (rest[0] == '/' || rest[0] == '[')
		})
	}
}

// takeUnused hands on what the run has taken over itself and has not used.
func (t *taker) takeUnused() {
	if len(t.copied) == 0 {
		return
	}
	entered := make(map[string]bool, len(t.out))
	for _, c := range t.out {
		entered[c.Path] = c.Entered
	}
	for _, path := range slices.Sorted(maps.Keys(t.copied)) {
		c, id := t.copied[path], ""
		if step := t.copiedStep(path); step != nil {
			id = step.ID
		}
		_, taken := entered[path]
		switch {
		case taken || t.again[id] || asOne(entered, path):
		case t.above[id] && !c.Entered && (c.Status == "" || c.Status == parley.StepFailed && !c.Unhandled):
			t.cannotEnter(path)
		default:
			t.out = append(t.out, c)
		}
	}
}

// copiedStep gives the step of the workflow of which the run has taken over that path:
// for a step of a plan the one that runs the plan. Nil for none.
func (s *State) copiedStep(path string) *Step {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		around := path[:i]
		if x := s.execs[around]; x != nil && x.plan != nil {
			return x.step
		}
		if step := s.def.stepAt(around); step != nil && step.Plan != nil && s.copied[around].Entered {
			return step
		}
	}
	return s.def.stepAt(path)
}

// asOne reports whether something around that path is taken over as one, given which
// paths are taken over and whether they are entered.
func asOne(entered map[string]bool, path string) bool {
	for i := range path {
		if path[i] != '/' {
			continue
		}
		around := path[:i]
		if open := strings.LastIndexByte(around, '['); open > 0 && around[i-1] == ']' {
			if e, ok := entered[around[:open]]; ok && !e {
				return true
			}
		}
		if e, ok := entered[around]; ok && !e {
			return true
		}
	}
	return false
}

// cannotEnter refuses to begin inside of a step that the run has taken over as one:
// what stands in it is not known, and would be paid again.
func (t *taker) cannotEnter(path string) {
	if t.err == nil {
		t.err = parley.Errorf(parley.CodeConflict, "Run %s has taken %s over as one from run %s: begin at %s, or run %s again from the step inside of it",
			t.run, path, t.retriedFrom, path, t.retriedFrom)
	}
}
