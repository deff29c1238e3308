package executor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// lossyBus takes everything and passes nothing on.
type lossyBus struct{ bus.Bus }

func (lossyBus) Publish(context.Context, bus.Message) error { return nil }

// TestSweepsAlone: with all wake-ups, announcements and result records lost, the
// sweeps find what there is to do: no step waits for longer than 2 s (protocol.md §9).
func TestSweepsAlone(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer}, {id: b, agent: writer}, {id: c, agent: writer, retry: {attempts: 2, delay: 1s}}]")
		r.stopFirst()
		r.config.Bus = lossyBus{r.bus}
		x := executor.New(r.config)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- x.Run(ctx) }()
		run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
		check(t, err)
		for _, task := range []string{".a.1", ".b.1", ".c.1"} {
			r.lease()
			r.follow(run.ID + task)
			ok, err := r.db.Answer(t.Context(), store.Answer{ // by a bridge elsewhere, whose word is lost
				Result: parley.Result{TaskID: run.ID + task, Outcome: parley.OutcomeOK, Output: []byte(`1`)}, At: time.Now(), From: "b2",
			})
			check(t, err)
			if !ok {
				t.Fatalf("the answer of %s was not taken", task)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		if got, err := x.Get(t.Context(), run.ID); err != nil || got.Status != parley.RunCompleted {
			t.Errorf("the run is %s: %v", got.Status, err)
		}
		cancel()
		check(t, <-done)
	})
}
