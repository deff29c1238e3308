package executor_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// another runs a second executor on the rig's store for as long as f runs.
func (r *rig) another(adjust func(*executor.Config), f func(x *executor.Executor)) {
	r.t.Helper()
	cfg := r.config
	cfg.Shared = true
	adjust(&cfg)
	x := executor.New(cfg)
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	synctest.Wait()
	f(x)
	cancel()
	running.Wait()
}

// TestShared_ForgetsWhatOthersDecide: an executor that hears of a decision of
// another does not go on from where it was: nothing is refused.
func TestShared_ForgetsWhatOthersDecide(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.another(func(c *executor.Config) { c.SweepEvery = time.Hour }, func(one *executor.Executor) {
			r.another(func(c *executor.Config) { c.SweepEvery = time.Hour }, func(two *executor.Executor) {
				run, _, err := one.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
				check(t, err)
				r.follow(run.ID + ".a.1")
				r.tells(two, run.ID+".a.1", `{"n":1}`, true)
				synctest.Wait()
				r.follow(run.ID + ".b.1")
				r.tells(one, run.ID+".b.1", `{"n":2}`, true)
				synctest.Wait()
				_, refusedOne := one.Decisions()
				_, refusedTwo := two.Decisions()
				if refusedOne+refusedTwo > 0 {
					t.Errorf("%d and %d decisions were refused", refusedOne, refusedTwo)
				}
				if got, err := one.Wait(t.Context(), run.ID); err != nil || got != parley.RunCompleted {
					t.Errorf("the run is %s: %v", got, err)
				}
			})
		})
	})
}

// TestShared_WaitsCheaply: who waits for the end of a run that others work on, or
// signals it, reads its row, and not its history each second.
func TestShared_WaitsCheaply(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		var reads atomic.Int64
		r.another(func(c *executor.Config) {
			c.Guest, c.SweepEvery, c.Store = true, time.Hour, slowStore{c.Store, &reads}
		}, func(guest *executor.Executor) {
			run := r.start()
			ended := make(chan parley.RunStatus)
			go func() {
				status, err := guest.Wait(t.Context(), run)
				if err != nil {
					t.Error(err)
				}
				ended <- status
			}()
			time.Sleep(time.Minute)
			_, err := guest.Signal(t.Context(), parley.SignalRequest{Run: run, Signal: parley.Signal{Name: "go"}})
			check(t, err)
			_, err = r.x.Terminate(t.Context(), parley.ControlRequest{Run: run})
			check(t, err)
			if got := <-ended; got != parley.RunCancelled {
				t.Errorf("the run is %s", got)
			}
			if _, err := guest.Signal(t.Context(), parley.SignalRequest{Run: run, Signal: parley.Signal{Name: "go"}}); parley.CodeOf(err) != parley.CodeConflict {
				t.Errorf("a run that has ended was signalled: %v", err)
			}
			for _, f := range []func() error{
				func() error { _, err := guest.Wait(t.Context(), "run-0"); return err },
				func() error {
					_, err := guest.Signal(t.Context(), parley.SignalRequest{Run: "run-0", Signal: parley.Signal{Name: "go"}})
					return err
				},
			} {
				if err := f(); parley.CodeOf(err) != parley.CodeNotFound {
					t.Errorf("a run that is not there: %v", err)
				}
			}
		})
		wantEqual(t, reads.Load(), int64(0))
	})
}

// TestShared_LeavesStrangersAlone: what a sweep finds of a run that somebody else
// may hold is looked at 150 ms later, and by chance as much again; a run that is
// held here at once.
func TestShared_LeavesStrangersAlone(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer}, {id: b, agent: writer, timeout: 10m}]")
		began := time.Now()
		var at []time.Duration
		r.another(func(c *executor.Config) { c.Guest = true; c.SweepEvery = time.Hour }, func(guest *executor.Executor) {
			r.stopFirst()
			run, _, err := guest.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			synctest.Wait() // nobody hears of it
			r.another(func(c *executor.Config) { c.Jitter = func() float64 { return 0.5 } }, func(*executor.Executor) {
				time.Sleep(1500 * time.Millisecond)
				began = time.Now()
				for _, task := range []string{run.ID + ".a.1", run.ID + ".b.1"} {
					r.follow(task)
					_, err := r.db.Answer(t.Context(), store.Answer{
						Result: parley.Result{TaskID: task, Outcome: parley.OutcomeOK, Output: []byte(`{}`)}, At: time.Now(), From: "b1",
					})
					check(t, err)
					for r.row(task).State != store.AttemptClosed {
						time.Sleep(5 * time.Millisecond)
					}
					at = append(at, time.Since(began))
					time.Sleep(500*time.Millisecond - time.Since(began)%(500*time.Millisecond))
				}
			})
		})
		// The sweep is half a second after began; the first look makes it a held run.
		if at[0] < 725*time.Millisecond || at[0] > 740*time.Millisecond {
			t.Errorf("a stranger's run was looked at %v after a sweep at 500ms", at[0])
		}
		if at[1] < 1500*time.Millisecond || at[1] > 1510*time.Millisecond {
			t.Errorf("a held run was looked at %v, the sweep is at 1.5s", at[1])
		}
	})
}

// tells brings an answer to an executor.
func (r *rig) tells(x *executor.Executor, task, output string, want bool) {
	r.t.Helper()
	ok, err := x.Answer(r.t.Context(), store.Answer{
		Result: parley.Result{TaskID: task, Outcome: parley.OutcomeOK, Output: []byte(output)}, At: time.Now(), From: "b1",
	})
	check(r.t, err)
	if ok != want {
		r.t.Errorf("the answer of %s was accepted: %t", task, ok)
	}
}

// TestSupersededResult: an answer that comes when its attempt was superseded
// changes nothing, whichever way it comes: it is kept as a late one, and the run
// goes on with its newer attempt.
func TestSupersededResult(t *testing.T) {
	ways := map[string]func(r *rig, x *executor.Executor, task string){
		"to the executor that holds the run": func(r *rig, _ *executor.Executor, task string) { r.tells(r.x, task, `{"n":"late"}`, false) },
		"to another executor":                func(r *rig, x *executor.Executor, task string) { r.tells(x, task, `{"n":"late"}`, false) },
		"by the store and a wake-up": func(r *rig, _ *executor.Executor, task string) {
			r.stores(task)
			run, _, _ := strings.Cut(task, ".")
			check(r.t, r.bus.Publish(r.t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: run, Value: []byte(task)}))
		},
		"by the store and a sweep": func(r *rig, _ *executor.Executor, task string) { r.stores(task) },
	}
	for name, comes := range ways {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				r.apply("name: talk\nsteps: [{id: a, agent: writer, retry: {attempts: 3, delay: 1s}}]")
				run := r.start()
				r.refuse(run+".a.1", r.x, 0)
				time.Sleep(2 * time.Second)
				before := strings.Join(r.history(run), " ")
				comes(r, executor.New(r.config), run+".a.1")
				time.Sleep(3 * time.Second)
				if after := strings.Join(r.history(run), " "); after != before+" step.late" {
					t.Errorf("the run went on, or does not tell of the answer:\n%s\n%s", before, after)
				}
				late, err := r.db.Late(t.Context(), run+".a.1")
				check(t, err)
				if len(late) != 1 || string(late[0].Result.Output) != `{"n":"late"}` {
					t.Errorf("kept as late: %+v", late)
				}
				if row := r.row(run + ".a.1"); row.State != store.AttemptClosed || row.Result.Outcome != parley.OutcomeError {
					t.Errorf("the first attempt is %s: %+v", row.State, row.Result)
				}
				r.follow(run + ".a.2")
				r.tells(r.x, run+".a.2", `{"n":"new"}`, true)
				got := r.step(run, "a")
				if got.Status != parley.StepCompleted || string(got.Output) != `{"n":"new"}` || got.Attempts != 2 {
					t.Errorf("the step is %s after %d attempts: %s", got.Status, got.Attempts, got.Output)
				}
			})
		})
	}
}

// stores has a bridge elsewhere write a late answer.
func (r *rig) stores(task string) {
	r.t.Helper()
	ok, err := r.db.Answer(r.t.Context(), store.Answer{
		Result: parley.Result{TaskID: task, Outcome: parley.OutcomeOK, Output: []byte(`{"n":"late"}`)}, At: time.Now(), From: "b2",
	})
	check(r.t, err)
	if ok {
		r.t.Errorf("the late answer of %s was accepted", task)
	}
}
