package executor

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// deadLetters gives what a decision gives up: the task at which it lets the run
// fail. One whose failure the workflow handles is none, and calls of agents by
// hand are not either: who made them has seen the error. Of a run that a step
// waits for, that step is what is given up.
func deadLetters(s *workflow.State, d workflow.Decision, now time.Time) []parley.DeadLetter {
	if len(d.Events) == 0 || s.Status() != parley.RunFailed || s.Definition().ID == callWorkflow {
		return nil
	}
	f, ok := s.FailedTask()
	if p := s.Parent(); !ok || p != nil && !p.Detached {
		return nil
	}
	m := letterRecord(f, s.Priority()-parley.DefaultRunPriority, now)
	l := parley.DeadLetter{
		Kind: parley.DeadLetterTask, Code: f.Root.Code, Reason: reasonOf(f), Attempts: f.Task.Attempt,
		Agent: f.Task.Agent, Workflow: s.Definition().ID, Run: f.Task.Run, Step: f.Task.Step, Task: f.Task.ID,
		HTTPStatus: httpStatus(f.Root), FirstFailedAt: f.FirstFailedAt, CreatedAt: now,
		Key: []byte(m.Key), Headers: parley.DeadLetterHeaders(m.Header), Value: m.Value,
	}
	return []parley.DeadLetter{l.Seal()}
}

// reasonOf is what the error of a task says, and behind it what the agent says of a task
// of its own that has not completed: the text has only the state of that.
func reasonOf(f workflow.FailedTask) string {
	var task struct{ State, Message string }
	if json.Unmarshal(f.Root.Details, &task) != nil || task.State == "" || task.Message == "" {
		return f.Err.Message
	}
	return f.Err.Message + " (" + task.Message + ")"
}

// letterRecord is the record that a task has on the bus; of a step that has started
// a run, the input of that.
func letterRecord(f workflow.FailedTask, urgency int, now time.Time) bus.Message {
	if f.Root != f.Err {
		return bus.Message{Key: f.Task.Run, Value: f.Task.Input}
	}
	a := store.Attempt{Task: f.Task, ScheduledAt: f.ScheduledAt, Urgency: urgency}
	m, err := taskRecord(&a, f.Task.Input, now)
	if err != nil {
		// Such an input never was in a record: it is read from the store.
		if m, err = taskRecord(&a, nil, now); err != nil {
			m = bus.Message{Key: f.Task.Run}
		}
	}
	return m
}

// httpStatus reads what the bridges put into the details of an error.
func httpStatus(err *parley.Error) int {
	var d struct {
		Status int `json:"status"`
	}
	if json.Unmarshal(err.Details, &d) != nil || d.Status < 100 || d.Status > 999 {
		return 0
	}
	return d.Status
}
