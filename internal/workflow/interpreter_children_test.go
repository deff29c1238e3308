package workflow

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// runOf is the name of the run that answers for an attempt of a step.
const runOf = "run-2"

// starts is a sub_workflow step: what is run takes its time and comes to something,
// or cannot begin. A step that does not wait for it is over once it has begun.
func (in *interpreter) starts(x *lived, m moment) verdict {
	if x.ran == "" {
		var err error
		if x.ran, x.told, err = in.runs(x, m); err != nil {
			x.ran = ""
			return verdict{at: m.now, err: x.because(err)}
		}
	}
	if x.begun.IsZero() {
		x.begun = m.now
	}
	x.attempts++
	took, f := childSays(in.answer, x.path, x.attempts)
	v := verdict{at: m.now.Add(took), output: f.Output}
	x.calls = append(x.calls, &made{path: x.path, agent: x.ran, attempt: x.attempts, input: x.told, at: m.now, end: v.at})
	if f.Run != "" {
		x.ran = "w" // as it was found
	}
	switch {
	case x.step.Child.Detach && f.Run != "":
		v.output = json.RawMessage(`{"run_id":"` + f.Run + `"}`)
	case f.Status == parley.RunCancelled:
		v.err = x.because(parley.Errorf(parley.CodeSubWorkflowCancelled, "cancelled"))
	case f.Status != parley.RunCompleted:
		v.err = x.because(parley.Errorf(parley.CodeSubWorkflowFailed, "failed"))
	}
	return v
}

// runs says which workflow a step runs, and with what.
func (in *interpreter) runs(x *lived, m moment) (name string, input json.RawMessage, err error) {
	scope := in.scope(x.frame, m.now)
	name = x.step.Child.Workflow
	if x.step.Child.Expr != nil {
		v, err := x.step.Child.Expr.Eval(scope)
		if err != nil {
			return "", nil, err
		}
		if err := json.Unmarshal(v, &name); err != nil || !slices.Contains(x.step.Child.Among, name) {
			return "", nil, parley.Errorf(parley.CodeInvalidInput, "not among them")
		}
	}
	input, err = x.step.Input.Eval(scope)
	return name, input, err
}

// childSays is what the run of a step comes to, as an agent would have answered.
func childSays(answer func(string, int, string) (time.Duration, parley.Result), path string, attempt int) (time.Duration, ChildEnded) {
	took, r := answer(path, attempt, "child")
	f := ChildEnded{Run: runOf, Workflow: "w", Version: "1", Status: parley.RunCompleted, Output: r.Output}
	switch r.Outcome {
	case parley.OutcomeError:
		f.Status, f.Err = parley.RunFailed, r.Err
	case parley.OutcomeCancelled:
		f.Status, f.Err = parley.RunCancelled, parley.Errorf(parley.CodeCancelled, "no")
	case parley.OutcomeUnknown:
		f.Run, f.Status, f.Err = "", "", parley.Errorf(parley.CodeNotFound, "no")
	}
	return took, f
}

// adopts takes notice of the runs that a decision asks for and gives up.
func (p *player) adopts(d Decision) {
	for _, c := range d.StopChildren {
		if call := p.open[c.TaskID]; call.at.Before(p.now) {
			p.calls = append(p.calls, call)
		}
		delete(p.open, c.TaskID)
	}
	for _, c := range d.Children {
		took, _ := childSays(p.answer, c.Parent.Step, p.state.execs[c.Parent.Step].attempts)
		p.open[c.Parent.TaskID] = &made{
			path: c.Parent.Step, agent: c.Workflow, attempt: p.state.execs[c.Parent.Step].attempts, input: c.Input, at: p.now, end: p.now.Add(took),
		}
	}
}

// childEnds tells the core what a run has come to, or that it has begun if nobody
// waits for more.
func (p *player) childEnds(task string) {
	call := p.open[task]
	p.calls = append(p.calls, call)
	delete(p.open, task)
	_, f := childSays(p.answer, call.path, call.attempt)
	f.At, f.TaskID, f.Jitter = p.now, task, 0.5
	p.apply(f)
}
