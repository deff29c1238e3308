package workflow

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Handler is one handler of on_error (language.md §6).
type Handler struct {
	// Match lists the codes that it handles; nil is all but cancelled.
	Match []parley.Code
	// If is nil when it always applies.
	If *expr.Condition
	// Compensate undoes first what has completed inside of the step (rule H1).
	Compensate bool
	// Body is nil when there are no steps.
	Body *Block
	Then HandlerThen
	// Goto is the step that is jumped to, in the list of the step (rule H2).
	Goto *Step
	// Output of the step; nil is the block output of Body, or null.
	Output *expr.Template
}

// HandlerThen is what follows a handler.
type HandlerThen string

// The values of then.
const (
	ThenContinue HandlerThen = "continue"
	ThenFail     HandlerThen = "fail"
	ThenGoto     HandlerThen = "goto"
)

// handling is a handler that has been taken and whose steps are carried out.
type handling struct {
	// index of the handler, whose steps are in region, or nil.
	index  int
	region *region
	err    *parley.Error
	// started and agentTaskID are those of the attempt that failed last.
	started     *time.Time
	agentTaskID string
}

// stepHandling says that a step has failed and that one of its handlers is taken.
type stepHandling struct {
	Kind        Kind          `json:"kind"`
	Handler     int           `json:"handler"`
	Error       *parley.Error `json:"error"`
	Started     *time.Time    `json:"started_at,omitempty"`
	AgentTaskID string        `json:"agent_task_id,omitempty"`
}

func (h *Handler) matches(err *parley.Error) bool {
	if h.Match == nil || slices.Contains(h.Match, "*") {
		return err.Code != parley.CodeCancelled || slices.Contains(h.Match, parley.CodeCancelled)
	}
	return slices.Contains(h.Match, err.Code)
}

// handle takes the first handler that matches the error with which x fails; fault
// is an error of its own condition.
func (a *decider) handle(x *execution, err *parley.Error) (index int, fault *parley.Error) {
	for i := range x.step.Handlers {
		h := &x.step.Handlers[i]
		if !h.matches(err) || a.exhausted() || a.cancelling && (h.Body != nil || h.Compensate) {
			continue
		}
		if h.If == nil {
			return i, nil
		}
		holds, wrong := h.If.Eval(a.failing(x, err))
		if wrong != nil {
			return none, asError(wrong)
		}
		if holds {
			return i, nil
		}
	}
	return none, nil
}

// failing is what the handlers of a step see.
func (a *decider) failing(x *execution, err *parley.Error) *expr.Scope {
	scope := a.scope(x)
	scope.Error = err
	return scope
}

// failFinally ends a step as FAILED unless a handler says otherwise (§6).
func (a *decider) failFinally(x *execution, err *parley.Error, end attemptEnd) {
	err = withAgents(err, x.others)
	p := stepFailed{Kind: x.step.Kind, Error: err, Started: ptr(end.started), AgentTaskID: end.agentTaskID}
	index, fault := a.handle(x, err)
	switch {
	case fault != nil:
		p.Error = causedBy(fault, err, x)
	case index == none:
	case x.step.Handlers[index].Body != nil || x.step.Handlers[index].Compensate:
		a.recordEnd(end.call, parley.EventStepHandling, x, stepHandling{
			Kind: p.Kind, Handler: index, Error: err, Started: p.Started, AgentTaskID: p.AgentTaskID,
		})
		return
	default:
		a.handled(x, &x.step.Handlers[index], &p, nil)
	}
	a.recordEnd(end.call, parley.EventStepFailed, x, p)
	a.jump(x, p)
}

// recordEnd is recordOf for what may have come of no attempt.
func (a *decider) recordEnd(call *flight, t parley.EventType, x *execution, payload any) {
	if call == nil {
		a.record(t, x, payload)
		return
	}
	a.recordOf(call, t, x, payload)
}

// handled fills in what a handler makes of a failure (rule H1).
func (a *decider) handled(x *execution, h *Handler, p *stepFailed, output json.RawMessage) {
	if h.Then == ThenFail {
		return
	}
	if h.Output != nil {
		v, err := h.Output.Eval(a.failing(x, p.Error))
		if err == nil {
			err = a.fits("output", v)
		}
		if err != nil {
			p.Error = causedBy(asError(err), p.Error, x)
			return
		}
		output = v
	}
	p.Handled, p.Output = true, output
	if h.Then == ThenGoto {
		p.Goto = h.Goto.ID
	}
}

// causedBy is an error that has replaced another one (rule H3).
func causedBy(err, cause *parley.Error, x *execution) *parley.Error {
	c := *err
	c.Cause = cause
	if c.Step == "" {
		c.Step = x.path
	}
	return recordable(&c)
}

// advanceHandling goes on with the handler that x has taken.
func (a *decider) advanceHandling(x *execution) {
	h, taken := x.handling, &x.step.Handlers[x.handling.index]
	if taken.Compensate && (a.cancelling || !a.compensate(x)) {
		return
	}
	p := stepFailed{Kind: x.step.Kind, Error: h.err, Started: h.started, AgentTaskID: h.agentTaskID}
	var output json.RawMessage
	if taken.Body != nil {
		switch state := a.advanceRegion(h.region); {
		case a.over() || state == regionOpen:
			return
		case state == regionFailed:
			p.Error = causedBy(h.region.failure(), h.err, x)
			a.record(parley.EventStepFailed, x, p)
			return
		}
		output = h.region.output()
	}
	a.handled(x, taken, &p, output)
	a.record(parley.EventStepFailed, x, p)
	a.jump(x, p)
}

// jump skips what stands between a step and the one that its handler goes to (rule
// H2).
func (a *decider) jump(x *execution, p stepFailed) {
	if p.Goto == "" || !x.handled {
		return
	}
	// The target is looked for in the list, since the step may be one of a plan.
	steps := x.region.block.Steps
	target := slices.IndexFunc(steps, func(s *Step) bool { return s.ID == p.Goto })
	for i := x.step.Index + 1; i < target; i++ {
		if x.region.steps[i] == nil {
			skipped := a.enter(x.region, steps[i])
			a.record(parley.EventStepSkipped, skipped, stepEnded{Kind: skipped.step.Kind})
		}
	}
}

func (s *State) evolveHandling(e parley.Event, x *execution, p stepHandling) {
	x.atOnce(e)
	s.landed(x)
	s.quiet(x)
	x.failed(e.At)
	s.count(x, parley.StepRunning)
	if x.scheduledAt.IsZero() {
		x.scheduledAt, x.startedAt = e.At, e.At
	}
	if p.Started != nil {
		x.startedAt = *p.Started
	}
	x.agentTaskID = p.AgentTaskID
	x.err, x.retryAt, x.wakeAt, x.deadline = p.Error, time.Time{}, time.Time{}, time.Time{}
	x.handling = &handling{index: p.Handler, err: p.Error, started: p.Started, agentTaskID: p.AgentTaskID}
	if body := x.step.Handlers[p.Handler].Body; body != nil {
		x.handling.region = newRegion(body, x, 0, x.prefix()+"/")
	}
}
