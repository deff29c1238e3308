package bridge

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// waitingForeign is a foreign task that waits for a slot, as small as it can be: there
// may be 65,536 of an agent, and each collection of garbage goes through all of them.
type waitingForeign struct {
	task queuedTask
	// ack is what acknowledges the task's records, nil if it came without.
	ack *ack
	// row is the attempt as the ledger has it, nil if it has none: then what follows is
	// all that is known of the task.
	row                           *store.Attempt
	run, step, correlation, agent string
	input                         json.RawMessage
	trace                         *parley.Trace
	source                        *store.Source
}

// newWaiting gives q as it waits; its turn and its size are not set.
func newWaiting(q *queuedForeign) *waitingForeign {
	t := &q.row.Task
	w := &waitingForeign{task: queuedTask{task: t.ID}}
	w.task.foreign = w
	if q.stored {
		row := q.row
		w.row = &row
		return w
	}
	w.run, w.step, w.correlation, w.agent, w.input, w.source = t.Run, t.Step, t.CorrelationID, t.Agent, t.Input, q.row.Source
	if !t.Trace.IsZero() {
		trace := t.Trace
		w.trace = &trace
	}
	return w
}

// queued gives the task as it came, but for the time from which it is visible.
func (w *waitingForeign) queued() queuedForeign {
	if w.row != nil {
		return queuedForeign{row: *w.row, stored: true}
	}
	t := parley.Task{
		ID: w.task.task, Run: w.run, Step: w.step, Attempt: 1, Agent: w.agent, Input: w.input, CorrelationID: w.correlation,
		Deadline: w.deadline(),
	}
	if w.trace != nil {
		t.Trace = *w.trace
	}
	return queuedForeign{row: store.Attempt{Task: t, State: store.AttemptOpen, HandOff: store.HandOffForeign, Source: w.source}}
}

// deadline is when the task's time is over, which is the same time after its turn with
// all of them.
func (w *waitingForeign) deadline() time.Time {
	return time.UnixMicro(w.task.turn).UTC().Add(foreignTime)
}
