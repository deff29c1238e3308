package workflow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestE4_StartedAtOfWhatCallsNoAgent: such a step has started when it is RUNNING, and
// stays so however it ends, for callers, for expressions, and after a restart.
func TestE4_StartedAtOfWhatCallsNoAgent(t *testing.T) {
	for kind, members := range map[string]string{
		"wait":          `wait: 1h`,
		"event":         `event: ping`,
		"approval":      `approval: {title: Go}`,
		"sub_workflow":  `workflow: part`,
		"group":         `steps: [{id: i, wait: 1h}]`,
		"parallel":      `parallel: [{id: i, wait: 1h}, {id: j, wait: 1h}]`,
		"fork_join":     `fork: {p: [{id: i, wait: 1h}], q: [{id: j, wait: 1h}]}`,
		"conditional":   `{if: "true", then: [{id: i, wait: 1h}]}`,
		"switch":        `switch: [{when: "true", steps: [{id: i, wait: 1h}]}]`,
		"for_each":      `{for_each: [1, 2], steps: [{id: i, wait: 1h}]}`,
		"repeat":        `{repeat: {max: 2}, steps: [{id: i, wait: 1h}]}`,
		"retried set":   `{set: "${workflow.input.none}", retry: {attempts: 2, delay: 30s, on: [expression]}}`,
		"handled":       `{set: "${workflow.input.none}", on_error: {steps: [{id: i, wait: 1h}]}}`,
		"with an agent": `{steps: [{id: i, agent: x}], retry: {attempts: 2}}`,
	} {
		if members[0] != '{' {
			members = "{" + members + "}"
		}
		source := "name: t\nsteps:\n  - {id: before, wait: 1m}\n  - {id: x, timeout: 1m, " + members[1:] + "\nfinally:\n  - {id: f, set: '${string(steps.x.started_at)}'}\n"
		for _, end := range []string{"timeout", "cancel"} {
			t.Run(kind+" "+end, func(t *testing.T) {
				s := play(t, source)
				if v := s.step("x"); v.StartedAt != nil {
					t.Fatalf("it has begun at %s, before it was considered", v.StartedAt)
				}
				s.history = s.last.Events
				do := func(f Fact) {
					s.apply(f)
					s.history = append(s.history, s.last.Events...)
				}
				s.now = s.now.Add(time.Minute)
				began := s.now
				do(Tick{At: s.now})
				started := func(status parley.StepStatus) {
					t.Helper()
					v := s.step("x")
					if v.Status != status || v.StartedAt == nil || !v.StartedAt.Equal(began) {
						t.Errorf("x is %s since %v, want %s since %s", v.Status, v.StartedAt, status, began)
					}
				}
				started(parley.StepRunning)
				if end == "cancel" {
					s.now = s.now.Add(time.Second)
					do(Cancel{At: s.now})
					for _, c := range s.open {
						do(Settled{At: s.now, TaskID: c.Task.ID, Result: parley.Result{TaskID: c.Task.ID, Outcome: parley.OutcomeCancelled}})
					}
					for task := range s.state.children {
						do(ChildEnded{At: s.now, TaskID: task, Status: parley.RunCancelled})
					}
					started(parley.StepCancelled)
				} else {
					s.now = s.now.Add(2 * time.Hour) // beyond the timeout, also of a handler's steps
					do(Tick{At: s.now})
					started(parley.StepFailed)
				}
				if got, want := string(s.step("f").Output), `"`+began.Format(time.RFC3339)+`"`; got != want {
					t.Errorf("finally sees %s, want %s", got, want)
				}
				s.replayed(s.history)
			})
		}
	}
}

// TestE4_StartedAtOfAChildsStep: it does not change when its run has begun, or ended.
func TestE4_StartedAtOfAChildsStep(t *testing.T) {
	for kind, members := range map[string]string{"waited for": "workflow: part", "detached": "workflow: part, detach: true"} {
		t.Run(kind, func(t *testing.T) {
			s := play(t, "name: t\nsteps:\n  - {id: x, "+members+"}\n  - {id: y, wait: 1h}\n")
			began := s.now
			task := s.state.taskID("x", 1)
			s.now = s.now.Add(time.Minute)
			s.apply(ChildStarted{At: s.now, TaskID: task, Run: "run-2"})
			s.now = s.now.Add(time.Minute)
			s.apply(ChildEnded{At: s.now, TaskID: task, Run: "run-2", Status: parley.RunCompleted, Output: json.RawMessage(`1`)})
			if v := s.step("x"); v.Status != parley.StepCompleted || !v.StartedAt.Equal(began) {
				t.Errorf("x is %s since %s, want since %s", v.Status, v.StartedAt, began)
			}
		})
	}
}

// TestE4_StartedAtOfAnAgentThatIsGivenUp: what is known of the attempt that a timer or
// a cancel ends stays with the step.
func TestE4_StartedAtOfAnAgentThatIsGivenUp(t *testing.T) {
	const finally = "\nfinally:\n  - {id: f, set: '${steps.x.started_at}'}\n"
	cancelled := func(s *script) {
		s.apply(Cancel{At: s.now, Grace: time.Minute})
		s.history = append(s.history, s.last.Events...)
	}
	for name, c := range map[string]struct {
		source string
		before func(*script)
		status parley.StepStatus
	}{
		"timeout":     {source: "name: t\nsteps:\n  - {id: x, agent: w, timeout: 1m}" + finally, status: parley.StepFailed},
		"handled":     {source: "name: t\nsteps:\n  - {id: x, agent: w, timeout: 1m, on_error: {steps: [{id: h, wait: 1h}]}}" + finally, status: parley.StepRunning},
		"run timeout": {source: "name: t\ntimeout: 1m\nsteps:\n  - {id: x, agent: w}" + finally, status: parley.StepCancelled},
		"in a group":  {source: "name: t\nsteps:\n  - {id: g, timeout: 1m, steps: [{id: x, agent: w}]}" + finally, status: parley.StepCancelled},
		"grace":       {source: "name: t\nsteps:\n  - {id: x, agent: w}" + finally, before: cancelled, status: parley.StepCancelled},
		"grace beside a child": {
			source: "name: t\nsteps:\n  - {id: x, agent: w}\n  - {id: y, workflow: part, needs: []}" + finally, before: cancelled, status: parley.StepCancelled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.source)
			s.history = s.last.Events
			path := "x"
			if name == "in a group" {
				path = "g/x"
			}
			claimed := s.now.Add(7 * time.Second)
			task := s.task(path).Task.ID
			if c.before != nil {
				c.before(s)
			}
			s.now = s.now.Add(time.Minute)
			s.apply(Tick{At: s.now, Calls: map[string]Call{task: {Started: claimed, AgentTaskID: "at-1"}, "other": {}}})
			s.history = append(s.history, s.last.Events...)
			v := s.step(path)
			if v.Status != c.status || v.StartedAt == nil || !v.StartedAt.Equal(claimed) || v.AgentTaskID != "at-1" {
				t.Errorf("x is %s since %v as %q", v.Status, v.StartedAt, v.AgentTaskID)
			}
			s.replayed(s.history)
		})
	}
}

// TestE4_StartedAtOfACancelledAgent: an agent that ends as it was asked to has begun
// when it did, and keeps its own name for the task.
func TestE4_StartedAtOfACancelledAgent(t *testing.T) {
	s := play(t, "name: t\nsteps:\n  - {id: x, agent: w}\n")
	s.history = s.last.Events
	task, claimed := s.task("x").Task.ID, s.now.Add(time.Second)
	s.apply(Cancel{At: s.now.Add(2 * time.Second), Grace: time.Minute})
	s.history = append(s.history, s.last.Events...)
	s.apply(Settled{
		At: s.now.Add(3 * time.Second), TaskID: task, Started: claimed,
		Result: parley.Result{TaskID: task, Outcome: parley.OutcomeCancelled, AgentTaskID: "at-1"},
	})
	s.history = append(s.history, s.last.Events...)
	if v := s.step("x"); v.Status != parley.StepCancelled || v.StartedAt == nil || !v.StartedAt.Equal(claimed) || v.AgentTaskID != "at-1" {
		t.Errorf("x is %s since %v as %q", v.Status, v.StartedAt, v.AgentTaskID)
	}
	s.replayed(s.history)
}
