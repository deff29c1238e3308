package workflow

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// Parent is the step that has started a run (rule S11).
type Parent struct {
	Run  string `json:"run"`
	Step string `json:"step"`
	// TaskID names the attempt of the step: what makes one child of it.
	TaskID string `json:"task_id"`
	// Depth counts the runs around the child, and the child itself.
	Depth int `json:"depth"`
	// Detached: the step does not wait for the run.
	Detached bool `json:"detached,omitempty"`
}

// ResolvedChild is what the name of a workflow means for one run.
type ResolvedChild struct {
	// Ref is the name as it is written.
	Ref      string `json:"ref"`
	Workflow string `json:"workflow"`
	Version  string `json:"version"`
}

// ChildStarted says that the run that a step has asked for has begun.
type ChildStarted struct {
	At                     time.Time
	TaskID                 string
	Run, Workflow, Version string
	// Jitter as in Settled.
	Jitter float64
}

// ChildEnded says what became of the run that a step has asked for. It need not
// have been told before that it has begun.
type ChildEnded struct {
	At     time.Time
	TaskID string
	// Run is "" if none has begun: then Err says why, or Status is CANCELLED since
	// that was asked for before.
	Run, Workflow, Version string
	Status                 parley.RunStatus
	Output                 json.RawMessage
	Err                    *parley.Error
	// Jitter as in Settled.
	Jitter float64
	// Hurry and Calls as in Tick: the end of a child may be that of its parent's time.
	Hurry bool
	Calls map[string]Call
}

func (ChildStarted) fact() {}
func (ChildEnded) fact()   {}

// ChildCall is a run that is to be started.
type ChildCall struct {
	Parent Parent
	// Workflow is a workflow_id if Version is given, else a name of which the
	// version has to be found.
	Workflow, Version string
	Input             json.RawMessage
	// Detached: nobody waits for its end.
	Detached bool
	// Until bounds its body; zero does not.
	Until    time.Time
	Priority *int
}

// ChildStop says that a run is to end, or that nobody waits for it any more.
type ChildStop struct {
	TaskID string
	// Detached: the run goes on if it has begun.
	Detached bool
	// Terminate ends it at once, else it is cancelled.
	Terminate bool
	// Left: its parent is not told of its end.
	Left bool
}

type (
	childAsked struct {
		TaskID string `json:"task_id"`
		// Workflow is a name as it is written as long as Version is "".
		Workflow string `json:"workflow"`
		Version  string `json:"version,omitempty"`
	}
	childStarted struct {
		TaskID   string `json:"task_id"`
		Run      string `json:"run"`
		Workflow string `json:"workflow"`
		Version  string `json:"version"`
	}
	childEnded struct {
		TaskID string `json:"task_id"`
		Run    string `json:"run,omitempty"`
		// Status is "" if the run has not begun.
		Status parley.RunStatus `json:"status,omitempty"`
		Error  *parley.Error    `json:"error,omitempty"`
	}
)

// child is the run that a step has asked for last.
type child struct {
	task              string
	workflow, version string
	// run is "" until it has begun. ended: nobody waits for it.
	run   string
	ended bool
}

// nestingOfRuns names the limit of runs that start each other.
const nestingOfRuns = "nesting of runs"

// maxChildText bounds what the error of a step repeats of its run's, in bytes.
const maxChildText = 4 << 10

// beginChild asks for the run of a sub_workflow step. What it is and its input are
// evaluated once, also if it is asked for again (rule S2).
func (a *decider) beginChild(x *execution) {
	asked, input, err := a.childOf(x)
	if err == nil && x.child == nil {
		err = a.fits("input", input)
	}
	if n := a.depth() + 1; err == nil && n > a.limits.Runs {
		err = limitError(nestingOfRuns, int64(a.limits.Runs), int64(n))
	}
	if err != nil {
		a.fail(x, asError(err), attemptEnd{})
		return
	}
	attempt := x.attempts + 1
	asked.TaskID = a.taskID(x.path, attempt)
	p := stepScheduled{Kind: KindSubWorkflow, Deadline: a.deadlineOf(x), Child: &asked}
	if x.child == nil {
		p.Input = input
	}
	a.recordAt(parley.EventStepScheduled, x.path, attempt, p)
	call := ChildCall{
		Parent:   Parent{Run: a.run, Step: x.path, TaskID: asked.TaskID, Depth: a.depth() + 1},
		Workflow: asked.Workflow, Version: asked.Version, Input: x.input, Detached: x.step.Child.Detach, Priority: a.priority,
	}
	if !call.Detached {
		call.Until = a.until(x)
	}
	a.d.Children = append(a.d.Children, call)
}

// depth counts the runs around this one, and this one.
func (s *State) depth() int {
	if s.parent == nil {
		return 1
	}
	return s.parent.Depth
}

// childOf gives what a step runs, and with which input.
func (a *decider) childOf(x *execution) (asked childAsked, input json.RawMessage, err error) {
	if x.child != nil {
		return childAsked{Workflow: x.child.workflow, Version: x.child.version}, x.input, nil
	}
	scope, spec := a.scope(x), x.step.Child
	asked.Workflow = spec.Workflow
	if spec.Expr != nil {
		v, err := spec.Expr.Eval(scope)
		if err != nil {
			return asked, nil, err
		}
		if json.Unmarshal(v, &asked.Workflow) != nil || !slices.Contains(spec.Among, asked.Workflow) {
			return asked, nil, parley.Errorf(parley.CodeInvalidInput, "workflow: %s is not among %q", capText(v), spec.Among)
		}
	} else if i := slices.IndexFunc(a.resolved, func(r ResolvedChild) bool { return r.Ref == spec.Workflow }); i >= 0 {
		asked.Workflow, asked.Version = a.resolved[i].Workflow, a.resolved[i].Version
	}
	input, ok := a.editedInput(x)
	if !ok {
		input, err = x.step.Input.Eval(scope)
	}
	return asked, input, err
}

// childBegun takes notice that a run has begun; a step that does not wait for
// its end has completed.
func (a *decider) childBegun(f ChildStarted) {
	x := a.parentOf(f.TaskID)
	if x == nil || x.child.run != "" {
		return
	}
	a.record(parley.EventChildStarted, x, childStarted{TaskID: f.TaskID, Run: f.Run, Workflow: f.Workflow, Version: f.Version})
	if x.step.Child.Detach {
		o := object{buf: []byte{'{'}}
		o.str("run_id", f.Run)
		a.complete(x, o.end(), completion{attemptEnd: attemptEnd{started: x.startedAt}})
		a.advance()
	}
}

// childOver ends a step as its run has ended.
func (a *decider) childOver(f ChildEnded) {
	x := a.parentOf(f.TaskID)
	if x == nil {
		return
	}
	if f.Run != "" && x.child.run == "" {
		a.childBegun(ChildStarted{At: f.At, TaskID: f.TaskID, Run: f.Run, Workflow: f.Workflow, Version: f.Version, Jitter: f.Jitter})
		if !x.waitsForChild() {
			return
		}
	}
	if f.Status == parley.RunFailed && f.Err != nil && f.Err.Code == parley.CodeTimeout {
		// The time of the child is no longer than that of the step, and this is
		// what ends the step then (rule T1).
		a.tick(f.Hurry)
		if a.settle(); !x.waitsForChild() {
			return
		}
	}
	a.record(parley.EventChildEnded, x, childEnded{TaskID: f.TaskID, Run: f.Run, Status: f.Status, Error: recordable(f.Err)})
	end := attemptEnd{started: x.startedAt}
	switch {
	case f.Status == parley.RunCompleted:
		a.complete(x, f.Output, completion{attemptEnd: end})
	case f.Status == parley.RunCancelled && a.cancelling:
		a.record(parley.EventStepCancelled, x, stepEnded{Kind: x.step.Kind})
	default:
		a.fail(x, childError(f), end)
	}
	a.advance()
}

// childError is the error of a step of which the run did not complete. What keeps
// a run from starting has the code that a start would have, as far as steps have it.
func childError(f ChildEnded) *parley.Error {
	cause := recordable(f.Err)
	if cause == nil {
		cause = parley.Errorf(parley.CodeCancelled, "The run was cancelled before it had begun")
	}
	why := cause.Message
	if len(why) > maxChildText {
		why = strings.ToValidUTF8(why[:maxChildText], "") + "…"
	}
	var e *parley.Error
	switch {
	case f.Run == "" && (cause.Code == parley.CodeInvalidInput || cause.Code == parley.CodeLimit):
		return cause
	case f.Run == "" && f.Status != parley.RunCancelled:
		e = parley.Errorf(parley.CodeSubWorkflowFailed, "Workflow %s cannot be run: %s", f.Workflow, why)
	case f.Status == parley.RunCancelled:
		e = parley.Errorf(parley.CodeSubWorkflowCancelled, "Run %s of workflow %s was cancelled: %s", f.Run, f.Workflow, why)
		if f.Run == "" {
			e.Message = cause.Message
		}
	default:
		e = parley.Errorf(parley.CodeSubWorkflowFailed, "Run %s of workflow %s has failed: %s", f.Run, f.Workflow, why)
	}
	e.Cause = cause
	if f.Run != "" {
		e = e.WithDetails(map[string]string{"run": f.Run})
	}
	return e
}

// parentOf is the step that waits for the run of a task; nil if none does.
func (a *decider) parentOf(task string) *execution {
	path, ok := a.children[task]
	if !ok || a.status.Terminal() {
		return nil
	}
	return a.execs[path]
}

// waitsForChild reports whether e has asked for a run and waits for it.
func (e *execution) waitsForChild() bool { return e.child != nil && !e.child.ended }

// cancelChildren has the runs end that steps wait for (rule C3).
func (a *decider) cancelChildren() {
	for x := range a.open.all() {
		if x.waitsForChild() {
			a.d.StopChildren = append(a.d.StopChildren, ChildStop{TaskID: x.child.task, Detached: x.step.Child.Detach})
		}
	}
}

// leaveChild has the run of a step end that is not waited for any more.
func (a *decider) leaveChild(x *execution) {
	if x.waitsForChild() {
		a.d.StopChildren = append(a.d.StopChildren, ChildStop{TaskID: x.child.task, Detached: x.step.Child.Detach, Left: true})
		a.unchild(x)
	}
}

// terminateChild is leaveChild for a run that is terminated.
func (a *decider) terminateChild(x *execution) {
	if x.waitsForChild() {
		a.d.StopChildren = append(a.d.StopChildren, ChildStop{
			TaskID: x.child.task, Detached: x.step.Child.Detach, Terminate: true, Left: true,
		})
	}
}

// graceOver gives up what agents do for a run that is being cancelled; what stands
// around them comes to what has ended until then. Runs that it has started are waited
// for: their own grace is bounded.
func (a *decider) graceOver() {
	for _, x := range a.open.now() {
		if x.status == parley.StepRunning && len(x.flights) > 0 {
			a.giveUp(x)
		}
	}
}

// dropUnstarted takes out what was both asked for and given up by the same fact.
func (d *Decision) dropUnstarted() {
	if len(d.Children) == 0 || len(d.StopChildren) == 0 {
		return
	}
	asked, left := map[string]bool{}, map[string]bool{}
	for _, c := range d.Children {
		asked[c.Parent.TaskID] = true
	}
	d.StopChildren = slices.DeleteFunc(d.StopChildren, func(c ChildStop) bool {
		gone := c.Left && asked[c.TaskID]
		if gone {
			left[c.TaskID] = true
		}
		return gone
	})
	d.Children = slices.DeleteFunc(d.Children, func(c ChildCall) bool { return left[c.Parent.TaskID] })
}

func (s *State) evolveChildAsked(x *execution, p childAsked) {
	x.child = &child{task: p.TaskID, workflow: p.Workflow, version: p.Version}
	if s.children == nil {
		s.children = make(map[string]string, 1)
	}
	s.children[p.TaskID] = x.path
}

func (s *State) evolveChildStarted(x *execution, p childStarted) {
	if x.child != nil {
		c := *x.child
		c.run, c.workflow, c.version = p.Run, p.Workflow, p.Version
		x.child = &c
	}
}

// unchild ends that an execution waits for a run.
func (s *State) unchild(x *execution) {
	if !x.waitsForChild() {
		return
	}
	c := *x.child
	c.ended = true
	x.child = &c
	if delete(s.children, c.task); len(s.children) == 0 {
		s.children = nil
	}
}

// WaitsForChild reports whether a step waits for the run of that task.
func (s *State) WaitsForChild(task string) bool { _, ok := s.children[task]; return ok }

// HasChildren reports whether any step waits for a run.
func (s *State) HasChildren() bool { return len(s.children) > 0 }

// Parent is the step that has started the run, or nil.
func (s *State) Parent() *Parent { return s.parent }

func (p *Parent) view() *parley.RunParent {
	if p == nil {
		return nil
	}
	return &parley.RunParent{Run: p.Run, Step: p.Step}
}

func (p *Parent) run() string {
	if p == nil {
		return ""
	}
	return p.Run
}

func (c *child) view(step *Step) *parley.ChildRun {
	if c == nil {
		return nil
	}
	return &parley.ChildRun{Run: c.run, Workflow: c.workflow, Version: c.version, Detached: step.Child.Detach}
}
