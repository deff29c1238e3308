package workflow

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// newScope gives expressions their view of the run (rule E4).
func (s *State) newScope(now time.Time, result json.RawMessage) *expr.Scope {
	return &expr.Scope{
		Workflow: expr.WorkflowInfo{ID: s.def.ID, Name: s.def.Name, Version: s.def.Version, Input: s.input},
		Run: expr.RunInfo{
			ID: s.run, Labels: s.labels, Trigger: s.trigger, StartedAt: s.createdAt, Deadline: s.deadline,
		},
		Now: now, Result: result, Step: s.stepInfo,
	}
}

func (s *State) stepInfo(id string) (expr.StepInfo, bool) {
	step := s.def.Steps[id]
	if step == nil {
		return expr.StepInfo{}, false
	}
	x := s.find(step)
	if x == nil {
		return expr.StepInfo{Status: parley.StepPending}, true
	}
	info := expr.StepInfo{
		Status: x.status, Output: x.output, Error: x.err, Handled: x.handled,
		Attempts: x.attempts, StartedAt: x.startedAt, EndedAt: x.endedAt,
	}
	if step.Kind == KindSwitch && !x.scheduledAt.IsZero() {
		info.Case = &x.chosen
	}
	return info, true
}

// View gives the run as callers see it. Values are shared with s, not copied.
// Steps stand in the order in which they were considered, those that were not
// reached yet after them.
func (s *State) View() parley.Run {
	r := parley.Run{
		ID: s.run, Workflow: s.def.ID, WorkflowName: s.def.Name, Version: s.def.Version,
		Status: s.status, Input: s.input, Output: s.output, Error: s.err, Labels: s.labels,
		RetriedFrom: s.retriedFrom, TriggeredBy: s.trigger, Seq: s.seq, Priority: s.priority,
		CreatedAt: s.createdAt, StartedAt: ptr(s.createdAt), EndedAt: ptr(s.endedAt),
		CancelledBy: s.cancelledBy, CancelReason: s.cancelReason,
	}
	if s.status == parley.RunRunning {
		r.Phase = "body"
	}
	r.Steps = make([]parley.Step, 0, len(s.order))
	for _, path := range s.order {
		r.Steps = append(r.Steps, s.viewStep(s.execs[path]))
	}
	s.unreached(s.body(), &r.Steps)
	return r
}

// unreached appends the steps of a scope that were not considered. They are
// CANCELLED once their scope has ended without them (rule S3).
func (s *State) unreached(sc scope, steps *[]parley.Step) {
	for _, step := range sc.block.Steps {
		x := s.child(sc, step)
		switch {
		case x == nil:
			v := parley.Step{ID: sc.prefix + step.ID, Kind: string(step.Kind), Status: parley.StepPending, Agent: step.firstAgent()}
			if s.scopeEnded(sc) {
				v.Status = parley.StepCancelled
			}
			*steps = append(*steps, v)
		case x.block() != nil && x.status != parley.StepSkipped:
			s.unreached(x.inside(), steps)
		}
	}
}

func (s *State) scopeEnded(sc scope) bool {
	if sc.block.Parent == nil {
		return s.status.Terminal()
	}
	parent := s.find(sc.block.Parent)
	return s.status.Terminal() || (parent != nil && parent.status.Terminal())
}

func (s *State) viewStep(x *execution) parley.Step {
	v := parley.Step{
		ID: x.path, Kind: string(x.step.Kind), Status: x.status, Handled: x.handled, Agent: x.agent,
		Attempts: x.attempts, Input: x.input, Output: x.output, Error: x.err, AgentTaskID: x.agentTaskID,
		ScheduledAt: ptr(x.scheduledAt), StartedAt: ptr(x.startedAt), EndedAt: ptr(x.endedAt),
	}
	if x.status == parley.StepRunning {
		switch {
		case s.cancelling:
			v.Phase = parley.PhaseCancelling
		case !x.retryAt.IsZero():
			v.Phase = parley.PhaseBackoff
		case !x.wakeAt.IsZero():
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

// Copies gives what a retry of the run takes over without a call: the output
// of every completed step that holds no steps of its own (rule C6). Paths are
// those of a first round.
func (s *State) Copies() []Copied { return s.copies(s.body(), "", nil) }

func (s *State) copies(sc scope, prefix string, out []Copied) []Copied {
	for _, step := range sc.block.Steps {
		x := s.child(sc, step)
		switch {
		case x == nil:
		case x.block() != nil:
			out = s.copies(x.inside(), prefix+step.ID+"/", out)
		case step.Blocks() != nil: // it was decided that nothing of it runs
		case x.status == parley.StepCompleted:
			out = append(out, Copied{
				Path: prefix + step.ID, Output: x.output,
				ContextID: s.sessions[step.Session+"\x00"+x.agent],
			})
		}
	}
	return out
}
