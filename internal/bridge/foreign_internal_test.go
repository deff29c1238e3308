package bridge

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// foreignOnly is a ledger that is not called.
type foreignOnly struct {
	Ledger
	ForeignLedger
}

type noProtocol struct{ Adapter }

func (noProtocol) Protocol() string { return "none" }

type noAgents struct{}

func (noAgents) Lookup(context.Context, string) (parley.Agent, error) {
	return parley.Agent{}, parley.Errorf(parley.CodeUnknownAgent, "there are none")
}

// TestForeignRecordAgain: the record of a task that waits here for a slot comes again.
// If the task has its row, the record is acknowledged: should the task be put off,
// another bridge may end it, and nobody here would acknowledge the record any more,
// nor all that came behind it on its partition. Else it is the only trace of the task.
func TestForeignRecordAgain(t *testing.T) {
	for _, stored := range []bool{true, false} {
		b, err := New(Config{
			Worker: "b", Ledger: foreignOnly{}, Agents: noAgents{}, Bus: memory.New(memory.Options{}), Adapters: []Adapter{noProtocol{}}, Results: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		task := records.AgentTask{RunID: "r", TaskID: "t", AgentName: "a", Input: json.RawMessage("{}"), CorrelationID: "c", At: time.Now()}
		row := b.foreignRow(task, bus.Message{})
		b.enqueueForeign(queuedForeign{row: row, stored: stored}, ack{})
		acked := false
		b.enqueueForeign(queuedForeign{row: row}, ack{done: func() { acked = true }})
		b.crew.dismiss()
		if acked != stored || len(b.acks) == 0 != stored {
			t.Errorf("the task has its row: %v; its record is acknowledged: %v", stored, acked)
		}
		if len(b.queued) != 1 {
			t.Errorf("%d tasks wait", len(b.queued))
		}
	}
}

// TestForeignRecordAgainWhileOpen: the record of a task comes again that waits in a
// ledger in memory for its second try. It is acknowledged when the task has ended, and
// not when the claim of what it says is refused: a crash would lose the task.
func TestForeignRecordAgainWhileOpen(t *testing.T) {
	ledger := NewMemoryLedger()
	b, err := New(Config{Worker: "b", Ledger: ledger, Agents: noAgents{}, Bus: deferredBus{}, Adapters: []Adapter{noProtocol{}}, Results: true})
	if err != nil {
		t.Fatal(err)
	}
	task := records.AgentTask{RunID: "r", TaskID: "t", AgentName: "a", Input: json.RawMessage("{}"), CorrelationID: "c", At: time.Now()}
	q := queuedForeign{row: b.foreignRow(task, bus.Message{})}
	open := q.row
	open.Attempt = 2
	if err := ledger.DeferForeign(t.Context(), []store.Attempt{open}, time.Now()); err != nil {
		t.Fatal(err)
	}
	acked := false
	claim := func() {
		b.noteAckLocked(q.row.ID, ack{done: func() { acked = true }})
		b.claimForeign(store.Claim{Worker: "b"}, []foreignClaim{{task: newWaiting(&q), token: "t"}})
	}
	if claim(); acked {
		t.Error("acknowledged before the end")
	}
	if err := ledger.CloseForeign(t.Context(), []string{q.row.ID}); err != nil {
		t.Fatal(err)
	}
	if claim(); !acked {
		t.Error("not acknowledged after the end")
	}
}

// deferredBus is a bus that is not called.
type deferredBus struct{ bus.Deferred }

// TestBackoff: each delay is a multiple of the one before, up to the longest.
func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		retry parley.RetryConfig
		want  []time.Duration
	}{
		{parley.RetryConfig{InitialDelay: time.Second, MaxDelay: 30 * time.Second, Multiplier: 2}, []time.Duration{1, 2, 4, 8, 16, 30, 30}},
		{parley.RetryConfig{InitialDelay: time.Second, MaxDelay: 3 * time.Second, Multiplier: 1}, []time.Duration{1, 1, 1}},
		{parley.RetryConfig{InitialDelay: 2 * time.Second}, []time.Duration{2, 2}},
	} {
		for i, want := range c.want {
			if got := backoff(c.retry, i+1); got != want*time.Second {
				t.Errorf("%+v: %v after try %d, want %v", c.retry, got, i+1, want*time.Second)
			}
		}
	}
}
