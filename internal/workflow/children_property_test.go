package workflow

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// child makes a step run another workflow.
func (g *planGen) child(s map[string]any) {
	s["workflow"], s["input"] = "report", g.value()
	if rapid.IntRange(0, 2).Draw(g.t, "which") == 0 {
		s["workflow"], s["among"] = "${workflow.input.x == 1 ? 'report' : 'none'}", []string{"report", "other@2"}
	}
	if rapid.IntRange(0, 3).Draw(g.t, "detached") == 0 {
		s["detach"] = true
	}
}

// askedChild is a run that the state waits for.
type askedChild struct {
	ChildCall
	begun, stopped bool
}

// child lets something happen to a run that was asked for, or time pass.
func (d *driver) child() {
	task := rapid.SampledFrom(slices.Sorted(maps.Keys(d.children))).Draw(d.t, "child")
	c := d.children[task]
	f := ChildEnded{At: d.now, TaskID: task, Run: "run-of-" + task, Workflow: "report", Version: "2", Jitter: 0.5}
	switch n := rapid.IntRange(0, 9).Draw(d.t, "child does"); {
	case n < 2 && !d.state.Cancelling():
		d.now = d.now.Add(time.Hour)
		d.apply(Tick{At: d.now, Jitter: 0.5})
		return
	case n < 4 && (c.begun || !c.stopped):
		d.told = task
		d.apply(ChildStarted{At: d.now, TaskID: task, Run: f.Run, Workflow: "report", Version: "2", Jitter: 0.5})
		d.told = ""
		if c := d.children[task]; c != nil {
			c.begun = true
		}
		return
	case !c.begun && (n == 4 || c.stopped):
		if f.Run = ""; c.stopped {
			f.Status = parley.RunCancelled
			break
		}
		f.Err = parley.Errorf(rapid.SampledFrom([]parley.Code{parley.CodeNotFound, parley.CodeInvalidInput}).Draw(d.t, "refused"), "no")
	case n == 5:
		f.Status, f.Err = parley.RunFailed, parley.Errorf(rapid.SampledFrom([]parley.Code{parley.CodeAgentError, parley.CodeTimeout}).Draw(d.t, "failed"), "no")
	case n == 6:
		f.Status, f.Err = parley.RunCancelled, parley.Errorf(parley.CodeCancelled, "no")
	default:
		f.Status, f.Output = parley.RunCompleted, json.RawMessage(`{"text":"{\"n\":1}","n":1.10}`)
	}
	d.told = task
	d.apply(f)
	if d.told = ""; d.children[task] != nil {
		d.t.Fatalf("the end of %s was not taken", task)
	}
}

// adopts holds what a decision says about runs to what the state says: each is
// asked for once, and is stopped or waited for to its end.
func (d *driver) adopts(dec Decision) {
	for _, c := range dec.StopChildren {
		was := d.children[c.TaskID]
		if was == nil {
			d.t.Fatalf("stopped %s, which nobody waits for", c.TaskID)
		}
		if was.stopped = true; c.Left {
			delete(d.children, c.TaskID)
		}
	}
	for _, c := range dec.Children {
		if d.seen[c.Parent.TaskID] || d.state.Paused() || len(c.Input) == 0 || c.Workflow == "" {
			d.t.Fatalf("asked for %+v, paused %v", c, d.state.Paused())
		}
		d.seen[c.Parent.TaskID] = true
		d.children[c.Parent.TaskID] = &askedChild{ChildCall: c}
	}
	for task := range d.children {
		if !d.state.WaitsForChild(task) && !d.state.Status().Terminal() {
			delete(d.children, task)
		}
	}
	if d.state.Status().Terminal() {
		delete(d.children, d.told) // all others were stopped, or had ended
	}
	if got := len(d.state.children); got != len(d.children) {
		d.t.Fatalf("%v are waited for, the decisions have said %v", d.state.children, d.children)
	}
}
