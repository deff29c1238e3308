package bridge_test

import (
	"context"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/store"
)

// quickLedger answers everything at once; only what the bridge itself costs
// is left.
type quickLedger struct {
	bridge.Ledger
	answered chan struct{}
}

func (quickLedger) Register(context.Context, string, time.Time) (int64, error) { return 1, nil }

func (quickLedger) Beat(context.Context, string, int64) error { return nil }

func (quickLedger) Owned(context.Context, string, int64) ([]store.Owned, error) { return nil, nil }

func (quickLedger) Orphans(context.Context, string, int64, int) ([]store.Attempt, error) {
	return nil, nil
}

func (l quickLedger) Answer(context.Context, store.Answer) (bool, error) {
	l.answered <- struct{}{}
	return true, nil
}

type quickAdapter struct{}

func (quickAdapter) Protocol() string { return parley.ProtocolSimpleA2A }

func (quickAdapter) Call(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeOK, Output: task.Input}}, nil
}

// BenchmarkCall is what a call costs from the reserved slot to the answer,
// besides the ledger, the adapter and the agent.
func BenchmarkCall(b *testing.B) {
	hub := memory.New(memory.Options{})
	defer hub.Close()
	ledger := quickLedger{answered: make(chan struct{}, 1)}
	br, err := bridge.New(bridge.Config{
		Worker: "b", Ledger: ledger, Agents: newAgentBook(), Bus: hub,
		Adapters: []bridge.Adapter{quickAdapter{}}, Metrics: bridge.NewMetrics(nil), AnswerWakes: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- br.Run(ctx) }()
	row := store.Attempt{
		Task:   parley.Task{ID: "run-1.a.1", Run: "run-1", Agent: "one", Input: []byte(`{}`)},
		Policy: store.Policy{OutcomeUnknown: parley.OutcomeFail, Silence: 5 * time.Minute}, State: store.AttemptClaimed,
	}
	slot, ok := br.Reserve("one")
	for !ok {
		slot, ok = br.Reserve("one")
	}
	slot.Release()
	b.ReportAllocs()
	for b.Loop() {
		slot, _ := br.Reserve("one")
		row.Claim = slot.Claim
		slot.Start(row)
		<-ledger.answered
	}
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
