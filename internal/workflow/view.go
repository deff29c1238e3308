package workflow

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// newScope gives expressions their view of the run from a list (rules E4, E5).
func (s *State) newScope(now time.Time, from *region) *expr.Scope {
	sc := &expr.Scope{
		Workflow: expr.WorkflowInfo{ID: s.def.ID, Name: s.def.Name, Version: s.def.Version, Input: s.input},
		Run: expr.RunInfo{
			ID: s.run, Labels: s.labels, Trigger: s.trigger, ScheduledAt: s.scheduledAt, StartedAt: s.startedAt, Deadline: s.deadline, Parent: s.parent.run(),
		},
		Now: now, Each: from.each(), Step: func(id string) (expr.StepInfo, bool) { return s.stepInfo(from, id, now) },
		MaxValue: s.limits.Value,
	}
	s.tellErrors(sc, from)
	if x := from.planAround(); x != nil {
		sc.PlanInput = x.input
	}
	return sc
}

// tellErrors adds what handlers, compensation and finally see of what went before.
func (s *State) tellErrors(sc *expr.Scope, from *region) {
	if s.phase == phaseFinally {
		sc.Run.Outcome, sc.Run.Error = string(s.outcome.status), s.outcome.err
	}
	for r := from; r != nil && r.owner != nil; r = r.around() {
		switch r.block.Role {
		case roleHandler:
			sc.Error = r.owner.handling.err
			return
		case roleCompensate:
			sc.Error = s.undoneFor(r)
			return
		case roleBody, roleFinally:
		}
	}
}

// undoneFor is the error that a compensation follows: that of the run, or of the step
// around it whose handler compensates (rule H1).
func (s *State) undoneFor(r *region) *parley.Error {
	if s.phase != phaseBody {
		return s.outcome.err
	}
	for r = r.around(); r != nil && r.owner != nil; r = r.around() {
		if r.owner.handling != nil && r.owner.status == parley.StepRunning {
			return r.owner.handling.err
		}
	}
	return nil
}

// scope is the view of what a step is told, shaping that of its output.
func (a *decider) scope(x *execution) *expr.Scope { return a.newScope(a.at, x.region) }

func (a *decider) shaping(x *execution, result json.RawMessage) *expr.Scope {
	scope := a.scope(x)
	scope.Result = orNull(result)
	return scope
}

func (s *State) stepInfo(from *region, id string, now time.Time) (expr.StepInfo, bool) {
	step := s.stepNamed(from, id)
	if step == nil {
		return expr.StepInfo{}, false
	}
	x := from.look(step)
	if x == nil {
		return expr.StepInfo{Status: s.notBegun(from, step)}, true
	}
	return x.info(now), true
}

// notBegun is the status of a step that look does not find: that of what has not begun
// in the innermost list around it that has.
func (s *State) notBegun(from *region, step *Step) parley.StepStatus {
	for block := step.Block; block.Parent != nil; block = block.Parent.Block {
		if r := from.list(block); r != nil {
			return s.unbegun(r)
		}
		if x := from.look(block.Parent); x != nil && x.step.Loop != nil {
			return parley.StepPending // nobody sees into it
		} else if x != nil {
			return s.unbegunIn(x, block)
		}
	}
	if step.Block.Role == roleFinally && s.finally == nil {
		return parley.StepPending
	}
	return s.unbegun(s.body)
}

// begunBy counts the attempts of which the time has come: one that waits for the end of
// a retry's delay is no call yet (rule R1).
func (e *execution) begunBy(now time.Time) int {
	n := e.attempts - e.uncalled
	if e.early || e.waitsToBegin(now) {
		n--
	}
	return n
}

// waitsToBegin reports whether the time of the newest call has not come.
func (e *execution) waitsToBegin(now time.Time) bool {
	return e.step.Kind == KindAgent && e.attempts > e.uncalled && e.retryAt.After(now)
}

// RetryAt is when the next attempt of a step may begin, or could; zero if it waits for
// none.
func (s *State) RetryAt(path string) time.Time {
	if x := s.execs[path]; x != nil {
		return x.retryAt
	}
	return time.Time{}
}

// info is the step as expressions see it at that time.
func (e *execution) info(now time.Time) expr.StepInfo {
	info := expr.StepInfo{
		Status: e.status, Output: e.output, Error: e.err, Handled: e.handled,
		Attempts: e.begunBy(now), StartedAt: e.startedAt, EndedAt: e.endedAt,
	}
	if e.step.Kind == KindSwitch && e.entered {
		info.Case = &e.chosen
	}
	return info
}

// View gives the run as callers see it. Values are shared with s, not copied.
// Steps stand in the order in which they were considered, those that were not
// reached yet after them.
func (s *State) View() parley.Run {
	r := parley.Run{
		ID: s.run, Workflow: s.def.ID, WorkflowName: s.def.Name, Version: s.def.Version,
		Status: s.status, Input: s.input, Output: s.output, Error: s.err, Labels: s.labels,
		RetriedFrom: s.retriedFrom, RerunFrom: s.rerunFrom, Compensated: s.hasUndone(), TriggeredBy: s.trigger, Seq: s.seq, Priority: s.priority,
		CreatedAt: s.createdAt, StartedAt: ptr(s.startedAt), EndedAt: ptr(s.endedAt),
		CancelledBy: s.cancelledBy, CancelReason: s.cancelReason, Parent: s.parent.view(),
		Traceparent: s.trace.Parent, Tracestate: s.trace.State, Phase: s.Phase(),
	}
	if s.status == parley.RunRunning {
		r.Paused = s.paused
	}
	r.Steps = make([]parley.Step, 0, len(s.order))
	for _, path := range s.order {
		r.Steps = append(r.Steps, s.viewStep(s.execs[path]))
	}
	s.unreached(s.body, &r.Steps)
	if s.finally != nil {
		s.unreached(s.finally, &r.Steps)
	}
	return r
}

// unbegun is the status of the steps of a list that were not considered: PENDING as
// long as they may be, CANCELLED once the list is over without them (rules S3, C3).
func (s *State) unbegun(r *region) parley.StepStatus {
	if s.over(r) {
		return parley.StepCancelled
	}
	return parley.StepPending
}

// unbegunIn is unbegun for a list of x that has not begun itself. One that was not
// chosen stays PENDING: what the graph form's conditionals were converted to tells by
// that which one was.
func (s *State) unbegunIn(x *execution, b *Block) parley.StepStatus {
	other := x.step.Cases != nil && x.entered && b.Role == roleBody && x.chosen != b.Part
	switch {
	case s.status.Terminal():
		return parley.StepCancelled
	case other, b.Role == roleCompensate: // which begins when all else is over
	case x.status == parley.StepFailed, x.status == parley.StepCancelled, x.status == parley.StepRunning && s.over(x.region):
		return parley.StepCancelled
	}
	return parley.StepPending
}

// unbegunAt is unbegun for a step that locate has found.
func (s *State) unbegunAt(step *Step, owner *execution, part int) parley.StepStatus {
	if owner == nil {
		return s.unbegun(s.regionOf(step.Block, nil, 0))
	}
	for r := range owner.regions {
		if r.block == step.Block && r.part == part {
			return s.unbegun(r)
		}
	}
	return s.unbegunIn(owner, step.Block)
}

// over reports whether nothing of a list begins any more that has not begun.
func (s *State) over(r *region) bool {
	switch x := r.owner; {
	case s.status.Terminal() || s.cancelling:
		return true
	case r.state() == regionFailed && (r.err != nil || !r.block.Wait): // what waits for the others may be paused
		return true
	case x == nil:
		return r == s.body && s.phase != phaseBody
	case r.block.Role == roleCompensate:
		return x.undo.done
	case r.block.Role == roleHandler:
		return x.status.Terminal()
	default: // of a step that is handled, or done again, this round is over
		return x.status.Terminal() || x.handling != nil || !x.retryAt.IsZero()
	}
}

// unreached appends the steps of a list that were not considered.
func (s *State) unreached(r *region, steps *[]parley.Step) {
	status := s.unbegun(r)
	for i, x := range r.steps {
		if x != nil {
			for inner := range x.regions {
				s.unreached(inner, steps)
			}
			continue
		}
		step := r.block.Steps[i]
		*steps = append(*steps, parley.Step{ID: r.prefix + step.ID, Kind: string(step.Kind), Status: status, Agent: step.firstAgent()})
	}
}

func (s *State) viewStep(x *execution) parley.Step {
	v := parley.Step{
		ID: x.path, Kind: string(x.step.Kind), Status: x.status, Handled: x.handled, Agent: x.agent,
		Attempts: x.begunBy(x.endedAt), Input: x.input, Output: x.output, Error: x.err, AgentTaskID: x.agentTaskID, Child: x.child.view(x.step),
		ScheduledAt: ptr(x.scheduledAt), StartedAt: ptr(x.startedAt), EndedAt: ptr(x.endedAt),
	}
	if x.status == parley.StepRunning {
		switch {
		case s.cancelling:
			v.Phase = parley.PhaseCancelling
		case !x.retryAt.IsZero():
			v.Phase = parley.PhaseBackoff
		case s.listensAt(x.path):
			v.Phase, v.Event = parley.PhaseWaiting, x.awaits
		case s.asksAt(x.path):
			v.Phase, v.Approval = parley.PhaseWaiting, x.ask.view(x)
		case !x.wakeAt.IsZero(), x.waitsForChild():
			v.Phase = parley.PhaseWaiting
		case s.asks(x) != nil:
			q := *s.asks(x).question
			v.Phase, v.Question = parley.PhaseInputRequired, &q
		case len(x.flights) > 0:
			v.Phase = parley.PhaseQueued
		default:
			v.Phase = parley.PhaseWorking
		}
	}
	return v
}
