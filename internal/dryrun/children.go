package dryrun

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// A run that a step starts is played like the call of an agent: the script says, by
// the name of the workflow, what it comes to. It has no steps of its own here.

// child is a run that a step has asked for.
type child struct {
	*call
	asked workflow.ChildCall
	run   string
}

// adopt starts and stops the runs that a decision asks for.
func (w *world) adopt(d workflow.Decision) {
	for _, s := range d.StopChildren {
		c := w.children[s.TaskID]
		switch {
		case c == nil || s.Detached && c.run != "":
		case s.Left:
			delete(w.children, s.TaskID)
		default:
			w.in(0, func() workflow.Fact { return w.ends(c, ended{cancelled: true}) })
		}
	}
	for _, asked := range d.Children {
		c := &child{asked: asked, call: &call{task: parley.Task{
			ID: asked.Parent.TaskID, Run: w.cfg.Run, Step: asked.Parent.Step, Agent: asked.Workflow, Input: asked.Input, Attempt: 1,
		}}}
		if before := w.family[asked.Parent.Step]; before != nil { // its version is known by now
			c.task.Agent, c.task.Attempt = before.task.Agent, before.task.Attempt+1
		}
		w.family[asked.Parent.Step] = c
		w.children[c.task.ID] = c
		w.in(0, func() workflow.Fact { return w.starts(c) })
	}
}

// waited reports whether a step waits for a run.
func (w *world) waited(c *child) bool {
	return w.children[c.task.ID] == c && w.state.WaitsForChild(c.task.ID)
}

// starts lets a run begin, and sets going what becomes of it.
func (w *world) starts(c *child) workflow.Fact {
	if !w.waited(c) {
		return nil
	}
	plain, version, _ := strings.Cut(c.task.Agent, "@")
	if version == "" {
		version = "1"
	}
	names := []string{c.task.Agent, plain}
	at := slices.IndexFunc(names, func(name string) bool { return w.cfg.Test.workflows[name] != nil })
	if at < 0 && !w.cfg.Test.echo && !c.asked.Detached {
		w.broken = parley.Errorf(parley.CodeUnknownAgent, "Step %s runs workflow %q, of which the script says nothing", c.task.Step, c.task.Agent)
		return nil
	}
	w.called["workflow "+c.task.Agent]++
	c.run, c.number, c.began = w.cfg.Run+"-"+number(len(w.started)+1), w.called["workflow "+c.task.Agent], w.now
	w.started = append(w.started, Call{
		Agent: c.task.Agent, Step: c.task.Step, Attempt: c.task.Attempt, Input: c.task.Input, At: w.now.Sub(w.cfg.Test.At),
	})
	if !c.asked.Detached {
		if at >= 0 {
			c.agent = w.cfg.Test.workflows[names[at]]
		}
		a, err := w.choose(c.call)
		if err != nil {
			w.broken = err
			return nil
		}
		w.comesTo(c, a)
	}
	return workflow.ChildStarted{At: w.now, TaskID: c.task.ID, Run: c.run, Workflow: plain, Version: version, Jitter: w.jitter()}
}

// comesTo sets the end of a run going; nil echoes its input.
func (w *world) comesTo(c *child, a *answer) {
	switch {
	case a == nil:
		w.in(0, func() workflow.Fact { return w.ends(c, ended{output: c.task.Input}) })
	case a.output == nil && a.fault == nil: // nothing is heard of it
	default:
		w.in(a.after, func() workflow.Fact {
			if f := a.fault; f != nil {
				e := f.err
				return w.ends(c, ended{err: &e, cancelled: e.Code == parley.CodeCancelled})
			}
			v, err := a.output.Eval(w.scope(c.call, null()))
			if err != nil {
				w.broken = parley.Errorf(parley.CodeExpression, "The script: output of workflow %q for step %s: %s", c.task.Agent, c.task.Step, message(err))
				return nil
			}
			return w.ends(c, ended{output: v})
		})
	}
}

// ended is what a run comes to.
type ended struct {
	output    json.RawMessage
	err       *parley.Error
	cancelled bool
}

// ends makes the fact that a run has ended, or was cancelled before it had begun.
func (w *world) ends(c *child, e ended) workflow.Fact {
	if !w.waited(c) {
		return nil
	}
	plain, version, _ := strings.Cut(c.task.Agent, "@")
	f := workflow.ChildEnded{
		At: w.now, TaskID: c.task.ID, Run: c.run, Workflow: plain, Version: version,
		Status: parley.RunCompleted, Output: e.output, Err: e.err, Jitter: w.jitter(),
	}
	switch {
	case e.cancelled:
		if f.Status = parley.RunCancelled; f.Err == nil && c.run != "" {
			f.Err = parley.Errorf(parley.CodeCancelled, "The run was cancelled by run %s", w.cfg.Run)
		}
	case e.err != nil:
		f.Status = parley.RunFailed
	}
	return f
}

// what names whoever is called: an agent, or a workflow.
func (w *world) what(c *call) string {
	if w.children[c.task.ID] != nil {
		return "workflow"
	}
	return "agent"
}

type rawRun struct {
	Workflow string          `json:"workflow"`
	Step     string          `json:"step"`
	Input    json.RawMessage `json:"input"`
	At       string          `json:"at"`
}

// workflows reads what runs of other workflows come to, as for agents.
func (r *reader) workflows(at string, raw map[string]json.RawMessage, t *Test) {
	if raw != nil && t.workflows == nil {
		t.workflows = make(map[string]*agent, len(raw))
	}
	r.ofRuns = true
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		t.workflows[name] = r.agent(at+"/"+escape(name), raw[name])
	}
	r.ofRuns = false
}

// runs reads the runs that are expected; nil is not looked at.
func (r *reader) runs(at string, raw []json.RawMessage) []ExpectedCall {
	if raw == nil {
		return nil
	}
	all := make([]ExpectedCall, len(raw))
	for i, text := range raw {
		place := at + "/" + number(i)
		var c rawRun
		if text[0] == '"' {
			r.decode(place, text, &c.Workflow)
		} else {
			r.decode(place, text, &c)
		}
		all[i] = ExpectedCall{Agent: c.Workflow, Step: c.Step, Input: c.Input, At: r.optional(place+"/at", c.At)}
	}
	return all
}

// outcome reads how a run fails: with a code of Parley, or of a fail step.
func (r *reader) outcome(at string, text json.RawMessage) *fault {
	var raw rawError
	if text[0] == '"' {
		r.decode(at, text, &raw.Code)
	} else {
		r.decode(at, text, &raw)
	}
	if raw.Code == "" {
		r.report(at, parley.Problem{Code: problemRequired, Text: "a run fails with a code"})
	}
	if raw.Message == "" {
		raw.Message = "The script ends the run with " + string(raw.Code)
	}
	return &fault{err: parley.Error{Code: raw.Code, Message: raw.Message, Details: raw.Details}}
}
