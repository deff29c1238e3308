package bridge

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// TestForeignWaits: a task that waits comes out of the queue as it went in, with all of
// its row or with what its record says, and takes little meanwhile.
func TestForeignWaits(t *testing.T) {
	task := parley.Task{
		ID: "x-1", Run: "run", Step: "step", Attempt: 1, Agent: "a", Input: json.RawMessage(`{"n":1}`), CorrelationID: "corr",
		Deadline: time.Date(2026, 11, 26, 12, 0, 0, 123456000, time.UTC), Trace: parley.Trace{Parent: "00-1-2-01", State: "x=y"},
	}
	source := &store.Source{DeadLetterSource: parley.DeadLetterSource{Topic: "tasks", Offset: 7}}
	fresh := queuedForeign{row: store.Attempt{Task: task, State: store.AttemptOpen, HandOff: store.HandOffForeign, Source: source}}
	untraced := fresh
	untraced.row.Trace = parley.Trace{}
	again := queuedForeign{row: fresh.row, stored: true}
	again.row.Attempt, again.row.Orphanings, again.row.VisibleAt = 2, 1, task.Deadline.Add(-time.Minute)
	for name, q := range map[string]queuedForeign{"fresh": fresh, "untraced": untraced, "again": again} {
		w := newWaiting(&q)
		w.task.turn = q.row.Deadline.Add(-foreignTime).UnixMicro()
		if got := w.queued(); !reflect.DeepEqual(got, q) {
			t.Errorf("%s: %+v, it was %+v", name, got, q)
		}
		if !w.deadline().Equal(task.Deadline) {
			t.Errorf("%s: deadline %v, it was %v", name, w.deadline(), task.Deadline)
		}
	}
	if size := unsafe.Sizeof(waitingForeign{}); size > 208 {
		t.Errorf("a task that waits takes %d bytes; there may be 65,536 of an agent", size)
	}
}

// TestForeignClaim: a task is claimed under the token of its slot, and one that had no
// row is visible from then on.
func TestForeignClaim(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	claim := store.Claim{Worker: "b", Inc: 3, Token: "t-1"}
	for _, stored := range []bool{false, true} {
		before := at.Add(-time.Minute)
		q := queuedForeign{row: store.Attempt{Task: parley.Task{ID: "x-1"}, VisibleAt: before}, stored: stored}
		c := foreignClaim{task: newWaiting(&q), policy: parley.OutcomeResend}
		want := at
		if stored {
			want = before
		}
		row := c.row(claim, at)
		if row.State != store.AttemptClaimed || row.Claim != claim || row.Policy.OutcomeUnknown != parley.OutcomeResend || !row.ClaimedAt.Equal(at) || !row.VisibleAt.Equal(want) {
			t.Errorf("stored %v: %+v", stored, row)
		}
	}
}
