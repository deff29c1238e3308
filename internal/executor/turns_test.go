package executor_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// counted deploys a workflow whose runs are counted by their key.
func (r *rig) counted(concurrency string) {
	r.t.Helper()
	r.apply("name: counted\ntimeout: 1h\nconcurrency: " + concurrency + "\nsteps:\n  - {id: a, agent: writer}\n")
}

// starts begins a run of it, or has it wait.
func (r *rig) counts(key string) parley.Run {
	r.t.Helper()
	run, _, err := r.x.Start(r.t.Context(), parley.StartRequest{Workflow: "counted", Input: json.RawMessage(`{"k":"` + key + `"}`)})
	check(r.t, err)
	return run
}

// status is that of a run, once nothing is under way.
func (r *rig) status(run string) parley.RunStatus {
	r.t.Helper()
	synctest.Wait()
	got, err := r.x.Get(r.t.Context(), run)
	check(r.t, err)
	return got.Status
}

// ends has the agent of a run answer.
func (r *rig) ends(run string) {
	r.t.Helper()
	r.lease()
	r.follow(run + ".a.1")
	r.settle(run + ".a.1")
	if s := r.status(run); s != parley.RunCompleted {
		r.t.Fatalf("%s is %s", run, s)
	}
}

const byCustomer = `{key: "${workflow.input.k}", limit: 1}`

// TestConcurrency_NextBeginsWhenOneEnds: in the order in which they were accepted,
// at once, and every key for itself; the timeout begins with the run.
func TestConcurrency_NextBeginsWhenOneEnds(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(byCustomer)
		one, two, three, other := r.counts("ann"), r.counts("ann"), r.counts("ann"), r.counts("bob")
		if one.Status != parley.RunRunning || two.Status != parley.RunPending || other.Status != parley.RunRunning {
			t.Fatalf("%s, %s, %s", one.Status, two.Status, other.Status)
		}
		if two.Turn == nil || two.Turn.Place != 1 || !slices.Equal(two.Turn.Running, []string{one.ID}) || three.Turn.Place != 2 {
			t.Errorf("places %+v, %+v", two.Turn, three.Turn)
		}
		time.Sleep(5 * time.Second)
		accepted := time.Now()
		r.ends(one.ID)
		if s := r.status(two.ID); s != parley.RunRunning {
			t.Fatalf("the next one is %s", s)
		}
		if s := r.status(three.ID); s != parley.RunPending {
			t.Errorf("the one after it is %s", s)
		}
		got, err := r.x.Get(t.Context(), two.ID)
		check(t, err)
		if got.StartedAt == nil || got.StartedAt.Before(accepted) || got.StartedAt.Sub(accepted) > time.Second || !got.CreatedAt.Before(accepted) {
			t.Errorf("created %v, started %v", got.CreatedAt, got.StartedAt)
		}
		e, err := r.x.Explain(t.Context(), two.ID)
		check(t, err)
		if e.Deadline == nil || !e.Deadline.Equal(got.StartedAt.Add(time.Hour)) {
			t.Errorf("started %v, deadline %v", got.StartedAt, e.Deadline)
		}
		r.ends(two.ID)
		r.ends(three.ID)
		if got, want := r.history(three.ID), []string{"run.queued", "run.started", "step.scheduled", "step.completed", "run.completed"}; !slices.Equal(got, want) {
			t.Errorf("history %q", got)
		}
	})
}

// TestConcurrency_QueuedRunSaysWhatItWaitsFor: its place, and who runs.
func TestConcurrency_QueuedRunSaysWhatItWaitsFor(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(byCustomer)
		one := r.counts("ann")
		r.counts("ann")
		three := r.counts("ann")
		e, err := r.x.Explain(t.Context(), three.ID)
		check(t, err)
		if want := `The run waits for its turn: place 2 of 2, 1 of at most 1 run with the key "ann": ` + one.ID; e.Text != want || e.Deadline != nil || len(e.Steps) > 0 {
			t.Errorf("explained %q, ends by %v, steps %v", e.Text, e.Deadline, e.Steps)
		}
		_, err = r.x.Pause(t.Context(), parley.ControlRequest{Run: three.ID})
		wantCode(t, err, parley.CodeConflict, "waits for its turn")
	})
}

// TestConcurrency_CancelOfAQueuedRun ends it at once; those behind it move up.
func TestConcurrency_CancelOfAQueuedRun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(byCustomer)
		one, two, three, four := r.counts("ann"), r.counts("ann"), r.counts("ann"), r.counts("ann")
		got, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: two.ID, By: "ann", Reason: "no need"})
		check(t, err)
		if got.Status != parley.RunCancelled || got.CancelledBy != "ann" || !strings.Contains(got.Error.Message, "before it began") || got.StartedAt != nil {
			t.Errorf("cancelled: %s by %s, %v", got.Status, got.CancelledBy, got.Error)
		}
		check(t, errors.Join(ignore(r.x.Terminate(t.Context(), parley.ControlRequest{Run: three.ID}))))
		if got, err := r.x.Get(t.Context(), four.ID); err != nil || got.Turn.Place != 1 {
			t.Errorf("the place of the last one is %+v, %v", got.Turn, err)
		}
		r.ends(one.ID)
		r.ends(four.ID)
	})
}

func ignore[T any](_ T, err error) error { return err }

// TestConcurrency_Reject: one more is refused, with the names of those that run; a
// repeated key gives the run that there is all the same.
func TestConcurrency_Reject(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(`{limit: 1, when_full: reject}`)
		req := parley.StartRequest{Workflow: "counted", IdempotencyKey: "once"}
		one, _, err := r.x.Start(t.Context(), req)
		check(t, err)
		again, existing, err := r.x.Start(t.Context(), req)
		check(t, err)
		if !existing || again.ID != one.ID {
			t.Errorf("again: %s, %v", again.ID, existing)
		}
		_, _, err = r.x.Start(t.Context(), parley.StartRequest{Workflow: "counted"})
		wantCode(t, err, parley.CodeConflict, one.ID)
		var e *parley.Error
		var d parley.FullDetails
		if !errors.As(err, &e) || json.Unmarshal(e.Details, &d) != nil || !slices.Equal(d.Running, []string{one.ID}) || d.Conflict != parley.ConflictConcurrency {
			t.Errorf("details %+v of %v", d, err)
		}
		r.ends(one.ID)
		if run := r.counts(""); run.Status != parley.RunRunning {
			t.Errorf("after the end: %s", run.Status)
		}
	})
}

// TestConcurrency_CancelOldest: the oldest one is cancelled by "concurrency", and
// the new one waits until that has ended.
func TestConcurrency_CancelOldest(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(`{limit: 1, when_full: cancel_oldest}`)
		one := r.counts("")
		r.follow(one.ID + ".a.1")
		two := r.counts("")
		if two.Status != parley.RunPending {
			t.Errorf("the new one is %s", two.Status)
		}
		synctest.Wait()
		got, err := r.x.Get(t.Context(), one.ID)
		check(t, err)
		if got.CancelledBy != parley.ByConcurrency || got.Status != parley.RunRunning {
			t.Errorf("the old one is %s, cancelled by %q", got.Status, got.CancelledBy)
		}
		three := r.counts("")
		if s := r.status(two.ID); s != parley.RunCancelled {
			t.Errorf("the second one is %s, though a third one came", s)
		}
		time.Sleep(31 * time.Second) // the grace of the first one
		if a, c := r.status(one.ID), r.status(three.ID); a != parley.RunCancelled || c != parley.RunRunning {
			t.Errorf("the first one is %s, the third one %s", a, c)
		}
		r.ends(three.ID)
	})
}

// TestConcurrency_RetryAndRerunWait as other runs do.
func TestConcurrency_RetryAndRerunWait(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(byCustomer)
		one := r.counts("ann")
		check(t, ignore(r.x.Terminate(t.Context(), parley.ControlRequest{Run: one.ID})))
		two := r.counts("ann")
		retried, err := r.x.Retry(t.Context(), one.ID, "ann")
		check(t, err)
		rerun, err := r.x.Rerun(t.Context(), parley.RerunRequest{Run: one.ID})
		check(t, err)
		if retried.Status != parley.RunPending || rerun.Status != parley.RunPending || rerun.Turn.Place != 2 {
			t.Errorf("retried %s, rerun %s", retried.Status, rerun.Status)
		}
		r.ends(two.ID)
		r.ends(retried.ID)
		r.ends(rerun.ID)
		if got, err := r.x.Get(t.Context(), rerun.ID); err != nil || got.RetriedFrom != one.ID || got.TriggeredBy != "rerun" || string(got.Input) != `{"k":"ann"}` {
			t.Errorf("rerun: %+v, %v", got, err)
		}
	})
}

// TestConcurrency_LimitOfTheStartingVersion: versions count together, and the
// limit of the version that is started is the one that counts.
func TestConcurrency_LimitOfTheStartingVersion(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(`{limit: 1}`)
		r.counts("")
		r.counted(`{limit: 2}`)
		two, three := r.counts(""), r.counts("")
		if two.Status != parley.RunRunning || three.Status != parley.RunPending {
			t.Errorf("%s, %s", two.Status, three.Status)
		}
	})
}

// TestConcurrency_SweepFindsWhatACrashLeft: the process that ended a run, or had
// one wait for it, dies before it does what follows.
func TestConcurrency_SweepFindsWhatACrashLeft(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(byCustomer)
		one, two := r.counts("ann"), r.counts("ann")
		r.counted(`{key: "${workflow.input.k}", limit: 1, when_full: cancel_oldest}`)
		r.stopFirst()
		old := r.counts("bob") // nobody runs what follows
		newer := r.counts("bob")
		check(t, ignore(r.x.Terminate(t.Context(), parley.ControlRequest{Run: one.ID})))
		if s := r.status(two.ID); s != parley.RunPending {
			t.Fatalf("without a process the run is %s", s)
		}
		r.another(func(*executor.Config) {}, func(*executor.Executor) {
			time.Sleep(3 * time.Second)
			if s := r.status(two.ID); s != parley.RunRunning {
				t.Errorf("found: %s", s)
			}
			if a, b := r.status(old.ID), r.status(newer.ID); a != parley.RunCancelled || b != parley.RunRunning {
				t.Errorf("the old one is %s, the new one %s", a, b)
			}
		})
	})
}

// TestConcurrency_OtherProcess: the end of a run that one process brings about
// begins the next one that another has accepted, without a sweep.
func TestConcurrency_OtherProcess(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.counted(byCustomer)
		r.stopFirst()
		rarely := func(c *executor.Config) { c.SweepEvery = time.Hour }
		r.another(rarely, func(one *executor.Executor) {
			r.another(rarely, func(two *executor.Executor) {
				req := parley.StartRequest{Workflow: "counted", Input: json.RawMessage(`{"k":"ann"}`)}
				first, _, err := one.Start(t.Context(), req)
				check(t, err)
				second, _, err := two.Start(t.Context(), req)
				check(t, err)
				check(t, ignore(one.Terminate(t.Context(), parley.ControlRequest{Run: first.ID})))
				time.Sleep(time.Second)
				if s := r.status(second.ID); s != parley.RunRunning {
					t.Errorf("the second one is %s", s)
				}
			})
		})
	})
}

// TestConcurrency_DoubtfulWrites: whatever write of whatever decision is lost, before
// or after it is done, all runs get their turn, one after another.
func TestConcurrency_DoubtfulWrites(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; n <= 6; n++ {
			onStore(t, func(r *rig) {
				t := r.t
				r.counted(byCustomer)
				left := n
				lose := func(store.Decision) error {
					if left--; left == 0 {
						return store.ErrInDoubt
					}
					return nil
				}
				r.mu.Lock()
				if after {
					r.doubt = lose
				} else {
					r.fault = lose
				}
				r.mu.Unlock()
				runs := []string{r.counts("ann").ID, r.counts("ann").ID, r.counts("ann").ID}
				for i, run := range runs {
					time.Sleep(2 * time.Second)
					for j, other := range runs {
						if s := r.status(other); (s == parley.RunRunning) != (j == i) {
							t.Fatalf("lost %d, after %v: run %d is %s while it is the turn of %d", n, after, j, s, i)
						}
					}
					r.lease()
					r.follow(run + ".a.1")
					r.settle(run + ".a.1")
					time.Sleep(2 * time.Second)
				}
				for _, run := range runs {
					if s := r.status(run); s != parley.RunCompleted {
						t.Errorf("%s is %s", run, s)
					}
				}
			})
		}
	}
}
