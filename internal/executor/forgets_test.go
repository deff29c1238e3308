package executor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// TestP11_ARefusedDecisionIsForgotten: an executor whose decision was refused does not
// go on from it, although somebody else has decided about as many events meanwhile, so
// that the run's number fits (protocol.md §4.1): what it decides next is about the run as
// it is.
func TestP11_ARefusedDecisionIsForgotten(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: a, agent: writer}\n  - {id: b, agent: writer, needs: []}\n  - {id: c, agent: writer, needs: [a, b]}\n")
		holder := executor.New(r.config) // nobody wakes it
		started, _, err := holder.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
		check(t, err)
		run := started.ID
		r.follow(run + ".a.1")
		r.follow(run + ".b.1")
		r.breaks(func(d store.Decision) error {
			r.breaks(nil)
			if len(d.Events) != 1 {
				t.Errorf("the decision has %d events, and so the other one another number", len(d.Events))
			}
			_, err := r.x.Pause(t.Context(), parley.ControlRequest{Run: run})
			return err
		})
		r.tells(holder, run+".a.1", `1`, true)
		r.tells(holder, run+".b.1", `2`, true)
		r.steer(resume, run)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.follow(run + ".c.1")
		r.settle(run + ".c.1")
		synctest.Wait()
		var got []string
		for _, e := range r.events(run) {
			if e.Type == parley.EventStepCompleted {
				got = append(got, e.Step)
			}
		}
		if d := cmp.Diff([]string{"a", "b", "c"}, got); d != "" || r.get(run).Status != parley.RunCompleted {
			t.Errorf("the run is %s: %s\n%q", r.get(run).Status, d, r.history(run))
		}
	})
}
