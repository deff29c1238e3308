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
		b.enqueueForeign(queuedForeign{row: row, stored: stored}, nil)
		acked := false
		b.enqueueForeign(queuedForeign{row: row}, func() { acked = true })
		b.crew.dismiss()
		if acked != stored || len(b.acks) == 0 != stored {
			t.Errorf("the task has its row: %v; its record is acknowledged: %v", stored, acked)
		}
		if len(b.queued) != 1 {
			t.Errorf("%d tasks wait", len(b.queued))
		}
	}
}
