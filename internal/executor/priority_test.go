package executor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// TestRunPriority: the priority of a run is on each of its attempts, whoever
// decides them, on their records, and on the run that retries it.
func TestRunPriority(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer}, {id: b, agent: writer, retry: {attempts: 1}}]")
		var mu sync.Mutex
		turns := map[string]string{}
		_, err := r.bus.Subscribe(t.Context(), bus.SubjectTasks, "test", func(_ context.Context, m bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			turns[m.Key] = m.Header[bus.HeaderTurn]
			return nil
		})
		check(t, err)
		begun := time.Now()
		usual := r.start()
		run := r.begin(parley.StartRequest{Workflow: "talk", Priority: new(9)})
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		for id, levels := range map[string]int{usual: 0, run: 5} {
			if want := fmt.Sprint(begun.Add(-time.Duration(levels) * parley.PriorityWait).UnixMicro()); turns[id] != want {
				t.Errorf("%s: turn %q, want %s", id, turns[id], want)
			}
		}
		mu.Unlock()
		if n, m := r.row(run+".a.1").Urgency, r.row(usual+".a.1").Urgency; n != 5 || m != 0 {
			t.Errorf("urgency %d and %d", n, m)
		}
		// Another executor, which knows nothing but the store, decides the next.
		other := executor.New(r.config)
		r.follow(run + ".a.1")
		_, err = other.Answer(t.Context(), store.Answer{
			Result: parley.Result{TaskID: run + ".a.1", Outcome: parley.OutcomeOK, Output: []byte(`1`)}, At: time.Now(), From: "b1",
		})
		check(t, err)
		time.Sleep(3 * time.Second)
		if n := r.row(run + ".b.1").Urgency; n != 5 {
			t.Errorf("urgency %d of the next step", n)
		}
		r.follow(run + ".b.1")
		r.fail(run + ".b.1")
		again, err := r.x.Retry(t.Context(), run, "ann")
		check(t, err)
		if n := r.row(again.ID + ".b.1").Urgency; n != 5 || again.Priority == nil || *again.Priority != 9 {
			t.Errorf("urgency %d of the retry, priority %v", n, again.Priority)
		}
		for _, p := range []int{-1, 10} {
			if _, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk", Priority: &p}); parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("priority %d: %v", p, err)
			}
		}
	})
}
