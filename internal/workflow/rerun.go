package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// Copied is one step of an earlier run, taken over without a call (rule C6).
type Copied struct {
	Path   string          `json:"path"`
	Output json.RawMessage `json:"output"`
	// Agent is whose output it is, ContextID the conversation with it that the
	// step left behind.
	Agent     string `json:"agent,omitempty"`
	ContextID string `json:"context_id,omitempty"`
	// Status is SKIPPED, CANCELLED, or FAILED for a failure whose Error it is, which
	// was handled unless Unhandled is set; "" is COMPLETED.
	Status    parley.StepStatus `json:"status,omitempty"`
	Error     *parley.Error     `json:"error,omitempty"`
	Unhandled bool              `json:"unhandled,omitempty"`
	// Called: it has not completed, and has done what may have to be undone (rule C1).
	Called bool `json:"called,omitempty"`
	// Goto is the step that the handler went to.
	Goto string `json:"goto,omitempty"`
	// Entered: the step holds others, which are copied for themselves. It is begun
	// without being asked whether, and with that Case; a loop goes over the Output,
	// and has left out as many items as Truncated says.
	Entered   bool `json:"entered,omitempty"`
	Case      *int `json:"case,omitempty"`
	Truncated int  `json:"truncated,omitempty"`
}

// Edit is the input of a step that stands in place of what its template gives.
type Edit struct {
	Step  string          `json:"step"`
	Input json.RawMessage `json:"input"`
}

// Copies gives what a retry of the run takes over without a call: the output
// of every completed step (rule C6), also what the run has taken over itself and not
// come to. Paths are those of a first round.
func (s *State) Copies() []Copied {
	t := taker{State: s}
	t.take(s.body, "", false)
	t.takeUnused()
	return t.out
}

// Edits gives the inputs that were edited, by step.
func (s *State) Edits() []Edit {
	var list []Edit
	for _, id := range slices.Sorted(maps.Keys(s.edits)) {
		list = append(list, Edit{id, s.edits[id]})
	}
	return list
}

// RerunFrom is the step that the run was begun again at, or "".
func (s *State) RerunFrom() string { return s.rerunFrom }

// Rerun is what a new run takes over from one that is run again from a step on.
type Rerun struct {
	Copied []Copied
	Edits  []Edit
}

// Rerun gives what a rerun from that step takes over (rule C6): everything that
// does not depend on the step, neither here nor in next, the version that the new
// run is on. The step is named by its id or its path. If input is not nil it is
// the step's in the new run.
//
// The error has code not_found for a step that is not there, invalid for an input
// of a step that takes none, and conflict if next does not have, with the same
// kind and in the same place, what is to be taken over.
func (s *State) Rerun(next *Definition, from string, input json.RawMessage) (Rerun, error) {
	step := next.stepNamed(from)
	if step == nil {
		return Rerun{}, s.notThere(next, from)
	}
	if input != nil && step.Input == nil {
		return Rerun{}, parley.Errorf(parley.CodeInvalid, "Step %s is of kind %s and takes no input: edit that of the workflow", from, step.Kind)
	}
	again := make(map[string]bool)
	dependents(step, again)
	if old := s.def.Steps[step.ID]; old != nil && s.def != next {
		dependents(old, again)
	}
	if x := s.execs[step.path()]; x != nil && x.leftOut {
		return Rerun{}, parley.Errorf(parley.CodeConflict, "Run %s has gone another way than by %s: begin where it has parted", s.run, from)
	}
	t := taker{State: s, again: again, above: make(map[string]bool)}
	for b := step.Block; b.Parent != nil; b = b.Parent.Block {
		t.above[b.Parent.ID] = true
		if err := s.leadsInto(b, from); err != nil {
			return Rerun{}, err
		}
	}
	t.take(s.body, "", false)
	t.takeUnused()
	if t.err != nil {
		return Rerun{}, t.err
	}
	r := Rerun{Copied: t.out}
	for _, e := range s.Edits() {
		if !again[e.Step] {
			r.Edits = append(r.Edits, e)
		}
	}
	if input != nil {
		r.Edits = append(r.Edits, Edit{step.ID, input})
	}
	return r, s.fitsIn(next, r.Copied)
}

// leadsInto refuses to begin at a step that the run, as it has decided, does not
// come to: the step around it was skipped, or has chosen another case than b.
func (s *State) leadsInto(b *Block, from string) error {
	var skipped, entered bool
	var chosen int
	if x := s.execs[b.Parent.path()]; x != nil {
		skipped, entered, chosen = x.status == parley.StepSkipped, x.entered, x.chosen
	}
	if c, ok := s.copied[b.Parent.path()]; ok {
		skipped = c.Status == parley.StepSkipped
		if entered = c.Case != nil; entered {
			chosen = *c.Case
		}
	}
	switch {
	case skipped:
		return parley.Errorf(parley.CodeConflict, "Run %s has skipped %s, in which %s stands: begin there", s.run, b.Parent.ID, from)
	case b.Parent.Cases != nil && entered && (chosen < 0 || chosen >= len(b.Parent.Cases) || b.Parent.Cases[chosen].Body != b):
		return parley.Errorf(parley.CodeConflict, "In run %s, %s has chosen another case than the one of %s: begin there", s.run, b.Parent.ID, from)
	}
	return nil
}

// fitsIn refuses a version that lacks what is to be taken over.
func (s *State) fitsIn(next *Definition, copied []Copied) error {
	if next == s.def {
		return nil
	}
	var wrong []string
	for _, c := range copied {
		was := s.def.stepAt(c.Path)
		if was == nil {
			continue // a step of a plan, which goes with it
		}
		is := next.Steps[was.ID]
		switch {
		case is == nil:
			wrong = append(wrong, fmt.Sprintf("%s is missing", c.Path))
		case is.Kind != was.Kind:
			wrong = append(wrong, fmt.Sprintf("%s is of kind %s, not %s", c.Path, is.Kind, was.Kind))
		case is.path() != was.path():
			wrong = append(wrong, fmt.Sprintf("%s stands elsewhere, as %s", c.Path, is.path()))
		case c.Case != nil && *c.Case >= len(is.Cases):
			wrong = append(wrong, fmt.Sprintf("%s has no case %d", c.Path, *c.Case))
		}
	}
	if wrong == nil {
		return nil
	}
	return parley.Errorf(parley.CodeConflict, "Version %s cannot take over what run %s has done: %s", next.Version, s.run, strings.Join(wrong, "; ")).
		WithDetails(map[string]any{"steps": wrong})
}

// stepAt gives the step of which an execution has that path: its id stands at the
// end, behind a slash unless it is all.
func (d *Definition) stepAt(path string) *Step {
	for {
		if step := d.Steps[path]; step != nil {
			return step
		}
		_, rest, ok := strings.Cut(path, "/")
		if !ok {
			return nil
		}
		path = rest
	}
}

// stepNamed gives the step of that id or path, or nil.
func (d *Definition) stepNamed(name string) *Step {
	if step := d.Steps[name]; step != nil {
		return step
	}
	if step := d.Steps[name[strings.LastIndexByte(name, '/')+1:]]; step != nil && step.path() == name {
		return step
	}
	return nil
}

// path is that of the executions of a step in first rounds.
func (s *Step) path() string {
	if s.Block.Parent == nil {
		return s.ID
	}
	return s.Block.Parent.path() + "/" + s.ID
}

// dependents notes the ids of a step, of what stands in it, and of all that
// cannot begin before it has ended.
func dependents(step *Step, into map[string]bool) {
	inside(step, into)
	steps := step.Block.Steps
	follows := make([]bool, len(steps))
	follows[step.Index] = true
	for more := true; more; {
		more = false
		for i, other := range steps {
			if !follows[i] && slices.ContainsFunc(other.Needs, func(n int) bool { return follows[n] }) {
				follows[i], more = true, true
				inside(other, into)
			}
		}
	}
	// What follows on a step around it follows on it, too; what stands beside it
	// there does not.
	if parent := step.Block.Parent; parent != nil {
		if parent.Loop != nil && parent.Loop.Over == nil {
			inside(parent, into) // whether a repeat goes on may follow from the step
		}
		around := make(map[string]bool)
		dependents(parent, around)
		within := make(map[string]bool)
		inside(parent, within)
		for id := range around {
			if !within[id] {
				into[id] = true
			}
		}
	}
}

// inside notes the ids of a step and of what stands in it.
func inside(step *Step, into map[string]bool) {
	into[step.ID] = true
	for _, b := range step.Blocks() {
		for _, child := range b.Steps {
			inside(child, into)
		}
	}
}

// taker collects what a new run takes over.
type taker struct {
	*State
	// again are the ids of the steps that a rerun does again, above those around
	// the one that it begins at; again is nil for a retry, which takes over
	// nothing but what was completed.
	again, above map[string]bool
	out          []Copied
	// err is why nothing can be taken over.
	err error
}

// take takes over what stands in a list; whole is set inside of a step that has
// completed, of which everything is taken as it ended.
func (t *taker) take(r *region, prefix string, whole bool) {
	for _, x := range r.steps {
		if x == nil || x.among(t.again) {
			continue
		}
		step, path := x.step, prefix+x.step.ID
		switch {
		case (t.again != nil || whole) && x.status == parley.StepSkipped:
			t.out = append(t.out, Copied{Path: path, Status: x.status})
		case (t.again != nil || whole || x.isOne()) && x.status == parley.StepFailed && x.handled && !x.among(t.above):
			c := Copied{Path: path, Status: x.status, Output: x.output, Error: x.err, Called: x.called()}
			if r.block.Chained {
				c.Goto = x.wentTo
			}
			t.out = append(t.out, c)
		case whole && (x.lost() || x.status == parley.StepCancelled):
			t.out = append(t.out, Copied{Path: path, Status: x.status, Error: x.err, Unhandled: x.lost(), Called: x.called()})
		case step.Blocks() != nil || x.plan != nil:
			t.takeComposite(x, path, whole)
		case x.status == parley.StepCompleted:
			t.out = append(t.out, Copied{Path: path, Output: x.output, Agent: x.agent, ContextID: t.sessions[step.Session+"\x00"+x.agent]})
		}
	}
}

// among reports whether the ids of steps of the workflow name that of e. A plan may
// have steps of the same ids, which are others (decision 038).
func (e *execution) among(ids map[string]bool) bool {
	return ids[e.step.ID] && e.region.planAround() == nil
}

// takeComposite takes over that a step which holds others was begun, if nothing
// may decide that anew, and what stands in it. Nobody sees into a loop or a fork
// that has completed, so that it is one step, unless something in it would have to
// be compensated.
func (t *taker) takeComposite(x *execution, path string, whole bool) {
	if x.isOne() && x.among(t.above) {
		t.cannotEnter(path)
		return
	}
	ended := x.status == parley.StepCompleted && !x.among(t.above)
	if ended && (x.step.Loop != nil || x.step.Fork != nil || x.plan != nil) && !compensated(x.step.Blocks()) && (x.plan == nil || !compensated([]*Block{x.plan.Body})) {
		t.out = append(t.out, Copied{Path: path, Output: x.output})
		return
	}
	begun := x.entered
	if x.status == parley.StepCompleted || begun && (x.among(t.above) || x.step.Loop != nil || x.plan != nil) {
		c := Copied{Path: path, Entered: true}
		if x.step.Cases != nil {
			c.Case = new(x.chosen)
		}
		if x.step.Loop != nil {
			c.Output, c.Truncated = x.input, x.truncated
		}
		if x.plan != nil {
			c.Output = x.planned
		}
		t.out = append(t.out, c)
	}
	for r := range x.begun {
		t.take(r, path+strings.TrimPrefix(r.prefix, x.prefix()), whole || ended)
	}
}

// compensated says whether something in lists of steps is to be compensated.
func compensated(blocks []*Block) bool {
	for _, b := range blocks {
		for _, child := range b.Steps {
			if child.Compensate != nil || compensated(child.Blocks()) {
				return true
			}
		}
	}
	return false
}

// takeOver ends a step as it has ended in the run that this one goes on from.
func (a *decider) takeOver(x *execution, c Copied) {
	switch c.Status {
	case parley.StepSkipped:
		a.record(parley.EventStepSkipped, x, stepEnded{Kind: x.step.Kind, CopiedFrom: a.retriedFrom})
	case parley.StepFailed:
		a.record(parley.EventStepFailed, x, stepFailed{
			Kind: x.step.Kind, Error: c.Error, Handled: !c.Unhandled, Output: c.Output, Goto: c.Goto, CopiedFrom: a.retriedFrom,
		})
	case parley.StepCancelled:
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind, CopiedFrom: a.retriedFrom})
	default:
		a.record(parley.EventStepCompleted, x, stepCompleted{
			Kind: x.step.Kind, Output: c.Output, CopiedFrom: a.retriedFrom, Agent: c.Agent, Session: x.step.Session, ContextID: c.ContextID,
		})
		if x.step.Kind == KindFinish && !a.bodyAgain() {
			a.finished(x)
		}
	}
}

// bodyAgain reports whether the run does a step of the body again, and what follows it,
// which a finish step beside that must not keep from being done.
func (s *State) bodyAgain() bool {
	step := s.def.stepNamed(s.rerunFrom)
	for step != nil && step.Block.Parent != nil {
		step = step.Block.Parent
	}
	return step != nil && step.Block != s.def.Finally
}

// entered gives what is known of a step that holds others, if the run that this
// one goes on from has begun it.
func (s *State) entered(x *execution) (c Copied, ok bool) {
	c, ok = s.copied[x.path]
	return c, ok && c.Entered
}

// editedInput gives the input of a step that was edited.
func (s *State) editedInput(x *execution) (json.RawMessage, bool) {
	input, ok := s.edits[x.step.ID]
	return input, ok && x.region.planAround() == nil
}

// evolveEdits takes notice of what a rerun was begun with.
func (s *State) evolveEdits(p runStarted) {
	s.rerunFrom = p.RerunFrom
	for _, e := range p.Edits {
		if s.edits == nil {
			s.edits = make(map[string]json.RawMessage, len(p.Edits))
		}
		s.edits[e.Step] = e.Input
		s.bytes += int64(len(e.Input))
	}
}

// encode appends what was copied as JSON, values byte for byte.
func (c Copied) encode(buf []byte) []byte {
	item := object{buf: append(buf, '{')}
	item.str("path", c.Path)
	if c.Output != nil {
		item.raw("output", c.Output)
	}
	item.optional("agent", c.Agent)
	item.optional("context_id", c.ContextID)
	item.optional("status", string(c.Status))
	if c.Error != nil {
		item.raw("error", encode(c.Error))
	}
	item.optional("goto", c.Goto)
	if c.Unhandled {
		item.raw("unhandled", json.RawMessage("true"))
	}
	if c.Called {
		item.raw("called", json.RawMessage("true"))
	}
	if c.Entered {
		item.raw("entered", json.RawMessage("true"))
	}
	if c.Truncated > 0 {
		item.number("truncated", c.Truncated)
	}
	if c.Case != nil {
		item.raw("case", fmt.Append(nil, *c.Case))
	}
	return item.end()
}

func (e Edit) encode(buf []byte) []byte {
	item := object{buf: append(buf, '{')}
	item.str("step", e.Step)
	item.raw("input", e.Input)
	return item.end()
}
