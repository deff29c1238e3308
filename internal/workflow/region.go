package workflow

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// region is one list of steps as it is carried out (the scope of rule S1): the
// body of a run, the block of a step's round, one iteration of a loop, one branch
// of a fork. It counts what has become of its steps, so that an event costs what
// it changes and not what the run holds.
type region struct {
	block *Block
	// owner is the step that the list stands in; nil for the body. part is its
	// place there: that of the iteration, or of the block among the step's blocks.
	owner *execution
	part  int
	// before is the iteration of the same round in front of it, nil for all others: what
	// is undone may belong to a round that the loop itself has left.
	before *region
	// prefix of the paths in it: "" for the body, else the path of the round, and
	// of the iteration, with a slash (rule S9).
	prefix string
	// steps are the executions by the index of their steps; nil is not considered.
	steps []*execution
	// passed counts the steps that let their successors start, running those that
	// run; lost is the first that failed and was not handled.
	passed, running int
	lost            *execution
	// needs counts, for each step, the siblings that it still waits for; ready are
	// the indexes of the steps that wait for nothing and were not considered yet, in
	// list order.
	needs, ready []int
	// begun is when the first of its steps was considered, deadline the end of the
	// block's own timeout, which failed with err if it was reached.
	begun, deadline time.Time
	err             *parley.Error
	// next is the index of the step that a chained list has come to.
	next int
	// base is the body, for what is done after it.
	base *region
	// dirty is set while a decision is made: something in or below it has changed.
	// changed are its steps of which that is so.
	dirty   bool
	changed []*execution
}

// regionState is how a list of steps stands.
type regionState int

const (
	regionOpen regionState = iota
	regionPassed
	regionFailed
)

// state tells how the list stands by what its steps have come to (rules S3, S4).
func (r *region) state() regionState {
	switch {
	case r.err != nil, r.lost != nil && (!r.block.Wait || r.running == 0):
		return regionFailed
	case r.passed == len(r.block.Steps):
		return regionPassed
	}
	return regionOpen
}

// bounded reports whether the list's own time counts: not once it has ended, or the step
// around it was handled, is done again, or has ended, though its steps were cut off.
func (r *region) bounded() bool {
	x := r.owner
	return r.state() == regionOpen && x.status == parley.StepRunning && x.handling == nil && x.retryAt.IsZero()
}

// idle reports whether nothing of a list runs, or may begin by itself.
func (r *region) idle() bool { return r.running == 0 && len(r.ready) == 0 }

// failure is the error with which a list has failed.
func (r *region) failure() *parley.Error {
	if r.err != nil || r.lost == nil {
		return r.err
	}
	return r.lost.err
}

func newRegion(b *Block, owner *execution, part int, prefix string) *region {
	r := &region{block: b, owner: owner, part: part, prefix: prefix, steps: make([]*execution, len(b.Steps)), needs: make([]int, len(b.Steps))}
	for i, s := range b.Steps {
		if r.needs[i] = len(s.Needs); r.needs[i] == 0 {
			r.ready = append(r.ready, i)
		}
	}
	if b.Chained && owner != nil && owner.step.Cases != nil && owner.chosen >= 0 {
		r.next = owner.step.Cases[owner.chosen].Entry
	}
	return r
}

// pass lets the successors of a step start (rule S1).
func (r *region) pass(step *Step) {
	r.passed++
	if r.block.After == nil {
		return
	}
	for _, i := range r.block.After[step.Index] {
		if r.needs[i]--; r.needs[i] == 0 && r.steps[i] == nil {
			at, _ := slices.BinarySearch(r.ready, i)
			r.ready = slices.Insert(r.ready, at, i)
		}
	}
}

// flow goes on in a chained list when a step has ended: to the one that its handler
// has gone to, else to what comes after it. What was left out does not lead on.
func (r *region) flow(x *execution, to string) {
	if !r.block.Chained || !x.passed() {
		return
	}
	if x.leftOut = x.step.Index != r.next; x.leftOut {
		return
	}
	r.next = x.step.Next
	for _, s := range r.block.Steps {
		if to != "" && s.ID == to {
			r.next = s.Index
		}
	}
}

// passes reports whether a chained list has gone past a step that would begin now.
func (r *region) passes(step *Step) bool { return r.block.Chained && step.Index != r.next }

// considered takes a step out of those that wait to be considered.
func (r *region) considered(i int) {
	if at, ok := slices.BinarySearch(r.ready, i); ok {
		r.ready = slices.Delete(r.ready, at, at+1)
	}
	if len(r.ready) == 0 {
		r.ready = nil
	}
}

// around is the list that the step of r stands in; nil for the body.
func (r *region) around() *region {
	if r.owner == nil {
		return r.base
	}
	return r.owner.region
}

// enter makes the execution of a step in r known.
func (s *State) enter(r *region, step *Step) *execution {
	x := &execution{path: r.prefix + step.ID, step: step, region: r, round: 1, status: parley.StepPending}
	s.execs[x.path] = x
	s.order = append(s.order, x.path)
	r.steps[step.Index] = x
	r.considered(step.Index)
	return x
}

// count takes note of what an execution has become.
func (s *State) count(x *execution, status parley.StepStatus) {
	was := x.status
	x.status = status
	switch {
	case was != parley.StepRunning && status == parley.StepRunning:
		x.region.running++
		s.leaves += x.leaf()
		s.open.add(x)
	case was == parley.StepRunning && status != parley.StepRunning:
		x.region.running--
		s.leaves -= x.leaf()
		s.open.remove(x)
	}
	switch {
	case x.passed():
		x.region.pass(x.step)
	case x.lost() && x.region.lost == nil:
		x.region.lost = x
	}
}

// leaf is 1 for a step that holds no others.
func (e *execution) leaf() int {
	if e.step.Body != nil || e.step.Cases != nil || e.step.Fork != nil || e.step.Plan != nil {
		return 0
	}
	return 1
}

// prefix of the lists in the current round of x.
func (e *execution) prefix() string {
	if e.round > 1 {
		return e.path + "#" + strconv.Itoa(e.round)
	}
	return e.path
}

// prefixOf is the prefix of the paths in one of the lists of x.
func (e *execution) prefixOf(part int) string {
	if e.step.Loop != nil {
		return e.prefix() + "[" + strconv.Itoa(part) + "]/"
	}
	return e.prefix() + "/"
}

// part gives one of the lists of x, which is made if need be: the iteration of a
// loop, else the block of that place.
func (e *execution) part(i int) *region {
	for len(e.parts) <= i {
		e.parts = append(e.parts, nil)
	}
	if e.parts[i] == nil {
		block := e.step.blockAt(i)
		if e.plan != nil {
			block = e.plan.Body
		}
		e.parts[i] = newRegion(block, e, i, e.prefixOf(i))
		if e.step.Loop != nil && i > 0 {
			e.parts[i].before = e.parts[i-1]
		}
	}
	return e.parts[i]
}

// locate finds what a path names: a step, and the execution that it stands in with
// its place there, nil for the body. The ids of the graph form may hold any
// character; no two steps have the same one, so what stands behind a slash is meant
// if the step before the slash holds it.
func (s *State) locate(path string) (step *Step, owner *execution, part int, ok bool) {
	if step = s.def.Steps[path]; step != nil && step.Block.Parent == nil {
		return step, nil, 0, true
	}
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		for _, step = range []*Step{s.def.Steps[path[i+1:]], s.inPlan(path[:i], path[i+1:])} {
			if step == nil || step.Block.Parent == nil {
				continue
			}
			if owner, part, ok = s.owner(path[:i], step.Block); ok {
				return step, owner, part, true
			}
		}
	}
	return nil, nil, 0, false
}

// holder is the execution of which path names a list, whatever list that is.
func (s *State) holder(path string) *execution {
	if x := s.execs[path]; x != nil {
		return x
	}
	if i := strings.LastIndexByte(path, '['); i > 0 && path[len(path)-1] == ']' {
		path = path[:i]
	}
	if x := s.execs[path]; x != nil {
		return x
	}
	if i := strings.LastIndexByte(path, '#'); i > 0 {
		return s.execs[path[:i]]
	}
	return nil
}

// maxAhead is more than any iteration begins before those in front of it: of a history
// that was made by hand, no event makes room for more.
const maxAhead = 1_000

// owner finds the execution of which path names a list: its own path, a round
// after "#" and an iteration in brackets.
func (s *State) owner(path string, b *Block) (x *execution, part int, ok bool) {
	part = b.Part
	near := func(x *execution) bool { return part == b.Part || part <= len(x.parts)+maxAhead }
	if b.Parent.Loop != nil && b == b.Parent.Body {
		open := strings.LastIndexByte(path, '[')
		if open < 0 || path[len(path)-1] != ']' {
			return nil, 0, false
		}
		n, err := strconv.Atoi(path[open+1 : len(path)-1])
		if err != nil || n < 0 {
			return nil, 0, false
		}
		part, path = n, path[:open]
	}
	if x = s.execs[path]; x != nil && x.step == b.Parent && x.round == 1 {
		return x, part, near(x)
	}
	if i := strings.LastIndexByte(path, '#'); i > 0 {
		x = s.execs[path[:i]]
		ok = x != nil && x.step == b.Parent && path == x.prefix() && near(x)
	}
	return x, part, ok
}

// look gives the execution of a step as it is seen from a list: in the list, in one
// around it, or inside of what stands there (rule E5). Nil if it has not been
// considered.
func (r *region) look(step *Step) *execution {
	if in := r.list(step.Block); in != nil {
		return in.steps[step.Index]
	}
	return nil
}

// list gives the running list of a block as it is seen from r; nil if it has not begun.
func (r *region) list(b *Block) *region {
	for ; r != nil; r = r.around() {
		if in := r.within(b); in != nil {
			return in
		}
	}
	return nil
}

// within gives the running list of a block that is r's own, or one that stands
// inside of a step of r.
func (r *region) within(b *Block) *region {
	if r.block == b {
		return r
	}
	if b.Parent == nil {
		return nil
	}
	outer := r.within(b.Parent.Block)
	if outer == nil {
		return nil
	}
	x := outer.steps[b.Parent.Index]
	switch {
	case x == nil:
		return nil
	case x.handling != nil && x.handling.region != nil && x.handling.region.block == b:
		return x.handling.region
	case b.Role != roleBody || b.Part >= len(x.parts) || x.step.Loop != nil:
		return nil
	}
	return x.parts[b.Part]
}

// regions gives the lists of x that have begun: those of its round in their order,
// and those of its handler and of its compensation.
func (e *execution) regions(yield func(*region) bool) {
	for r := range e.begun {
		if !yield(r) {
			return
		}
	}
	if e.handling != nil && e.handling.region != nil && !yield(e.handling.region) {
		return
	}
	if e.undo != nil {
		yield(e.undo.region)
	}
}

// begun gives the lists of x's round that have begun, in their order.
func (e *execution) begun(yield func(*region) bool) {
	for _, r := range e.parts {
		if r != nil && !yield(r) {
			return
		}
	}
}

// regionOf gives the list that carries out a block for the step around it.
func (s *State) regionOf(b *Block, owner *execution, part int) *region {
	switch {
	case owner == nil && b == s.def.Finally && s.finally != nil:
		return s.finally
	case owner == nil:
		return s.body
	case owner.undo != nil && owner.undo.region.block == b:
		return owner.undo.region
	case owner.handling != nil && owner.handling.region != nil && owner.handling.region.block == b:
		return owner.handling.region
	}
	return owner.part(part)
}

// begin notes when the first step of a list was considered.
func (r *region) begin(at time.Time) {
	if !r.begun.IsZero() {
		return
	}
	r.begun = at
	if r.block.Timeout > 0 {
		r.deadline = at.Add(r.block.Timeout)
	}
}
