package executor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// slowStore takes its time, and counts how often a history was read.
type slowStore struct {
	executor.Store
	reads *atomic.Int64
}

func (s slowStore) History(ctx context.Context, run string) (store.History, error) {
	s.reads.Add(1)
	time.Sleep(20 * time.Millisecond)
	return s.Store.History(ctx, run)
}

func (s slowStore) Decide(ctx context.Context, d store.Decision) error {
	time.Sleep(200 * time.Millisecond)
	return s.Store.Decide(ctx, d)
}

// TestBacklogIsLookedAtOnce: with more to do than can be done for a while, runs
// are looked at once each, and not again for every sweep that has found them: what
// is behind would fall behind further.
func TestBacklogIsLookedAtOnce(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%t", shared), func(t *testing.T) {
			onStore(t, func(r *rig) {
				const runs, workers = 400, 32
				t := r.t
				r.apply("name: talk\nsteps: [{id: a, agent: writer}]")
				for range runs {
					run := r.start()
					r.follow(run + ".a.1")
					_, err := r.db.Answer(t.Context(), store.Answer{ // nobody is told
						Result: parley.Result{TaskID: run + ".a.1", Outcome: parley.OutcomeOK, Output: []byte(`1`)}, At: time.Now(), From: "b1",
					})
					check(t, err)
				}
				r.stopFirst()
				var reads atomic.Int64
				began, took := time.Now(), time.Duration(0)
				r.another(func(c *executor.Config) {
					c.Shared = shared
					c.Store = slowStore{c.Store, &reads}
				}, func(*executor.Executor) {
					for open := true; open; {
						time.Sleep(100 * time.Millisecond)
						synctest.Wait()
						list, err := r.db.Wakeups(t.Context(), time.Now(), 1)
						check(t, err)
						open = len(list.Settled) > 0
					}
					took = time.Since(began)
					time.Sleep(time.Minute) // whatever waits yet is looked at
				})
				// So many work side by side; what one of them is at is found again.
				if least := runs * 220 * time.Millisecond / workers; took > least+3*time.Second {
					t.Errorf("%d runs took %v, they can be done in %v", runs, took, least)
				}
				if most := int64(runs + workers*(took/time.Second+2)); reads.Load() > most {
					t.Errorf("%d histories were read for %d runs, at most %d need be", reads.Load(), runs, most)
				}
			})
		})
	}
}

// replaced has an executor claim for a bridge that was replaced and does not know that
// yet; nothing is claimed while it is full.
func (r *rig) replaced(full *atomic.Bool) func(*executor.Config) {
	r.lease()
	claim := r.claim
	r.lease()
	return func(c *executor.Config) {
		c.Reserve = func(string) (executor.Reservation, bool) {
			claim.Token += "x"
			return executor.Reservation{
				Claim: claim, Start: func(store.Attempt) { r.t.Error("sent under a claim that was refused") }, Release: func() {},
			}, !full.Load()
		}
	}
}

// TestStartWithoutTheOwnBridge: a start whose claim is refused, since the bridge of
// this process was replaced and does not know that yet, leaves the task to others.
func TestStartWithoutTheOwnBridge(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer}]")
		r.another(r.replaced(new(atomic.Bool)), func(x *executor.Executor) {
			run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			if !r.claimable(run.ID + ".a.1") {
				t.Error("nobody can take the task")
			}
		})
	})
}

// TestDecideWithoutTheOwnBridge: the same for what follows from an answer.
func TestDecideWithoutTheOwnBridge(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.stopFirst() // it would decide in the place of the other one
		var full atomic.Bool
		full.Store(true)
		r.another(r.replaced(&full), func(x *executor.Executor) {
			run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			r.follow(run.ID + ".a.1")
			full.Store(false)
			r.tells(x, run.ID+".a.1", `1`, true)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if !r.claimable(run.ID + ".b.1") {
				t.Error("nobody can take the next task")
			}
		})
	})
}
