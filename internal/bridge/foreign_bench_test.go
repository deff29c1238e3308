package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/records"
)

// handBus hands the records of a benchmark to the bridge at once, as a poll of
// Kafka does, and counts results.
type handBus struct {
	*memory.Bus
	take    func(context.Context, bus.Message, func())
	window  chan struct{}
	results sync.WaitGroup
}

func (b *handBus) SubscribeDeferred(_ context.Context, _, _ string, h func(context.Context, bus.Message, func())) (func(), error) {
	b.take = h
	return func() {}, nil
}

func (b *handBus) Publish(ctx context.Context, m bus.Message) error {
	if m.Subject == bus.SubjectResults {
		b.results.Done()
		return nil
	}
	return b.Bus.Publish(ctx, m)
}

// instant is an agent that answers at once.
type instant struct{}

func (instant) Protocol() string { return parley.ProtocolSimpleA2A }

func (instant) Call(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{
		TaskID: task.ID, Outcome: parley.OutcomeOK, Output: json.RawMessage(`{"text": "an answer of some length", "n": 1}`),
	}}, nil
}

// BenchmarkNoLedger is what the bridge itself costs for each task without a
// store: record in, call, record out, 64 in flight; bus and agent cost nothing.
func BenchmarkNoLedger(b *testing.B) {
	hand := &handBus{Bus: memory.New(memory.Options{}), window: make(chan struct{}, 64)}
	agents := newAgentBook()
	agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Retry: parley.DefaultRetryConfig(), Timeout: 30 * time.Second})
	br, err := bridge.New(bridge.Config{
		Worker: "b", Ledger: bridge.NewMemoryLedger(), Agents: agents, Bus: hand, Adapters: []bridge.Adapter{instant{}}, Results: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- br.Run(ctx) }()
	<-br.Taking()
	values := make([][]byte, b.N)
	for i := range values {
		t := records.AgentTask{
			RunID: "run-8a7f4be0-6f1c-4a5e-8f53-0123456789ab", TaskID: fmt.Sprintf("task-step-%d-0a1b2c3d", i), AgentName: "one",
			Input: json.RawMessage(`{"text":"a question of some length"}`), CorrelationID: fmt.Sprintf("corr-run-8a7f4be0-step-%d", i), At: time.Now(),
		}
		if values[i], err = t.Encode(); err != nil {
			b.Fatal(err)
		}
	}
	hand.results.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for _, v := range values {
		hand.window <- struct{}{}
		hand.take(ctx, bus.Message{Subject: bus.SubjectTasks, Value: v}, func() { <-hand.window })
	}
	hand.results.Wait()
	b.StopTimer()
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
