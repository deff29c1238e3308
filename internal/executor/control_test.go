package executor_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

func (r *rig) steer(f func(*executor.Executor) func(context.Context, parley.ControlRequest) (parley.Run, error), run string) parley.Run {
	r.t.Helper()
	got, err := f(r.x)(r.t.Context(), parley.ControlRequest{Run: run, By: "ann", Reason: "lunch"})
	check(r.t, err)
	return got
}

func pause(x *executor.Executor) func(context.Context, parley.ControlRequest) (parley.Run, error) {
	return x.Pause
}

func resume(x *executor.Executor) func(context.Context, parley.ControlRequest) (parley.Run, error) {
	return x.Resume
}

func terminate(x *executor.Executor) func(context.Context, parley.ControlRequest) (parley.Run, error) {
	return x.Terminate
}

// claimable reports whether a bridge gets a task that it asks for.
func (r *rig) claimable(task string) bool {
	r.t.Helper()
	list, err := r.db.Claim(r.t.Context(), r.claim, []store.ClaimRequest{{TaskID: task, Token: "try-" + task}}, time.Now())
	check(r.t, err)
	return len(list) == 1
}

// TestC5_PausedRunStartsNothing: what runs, ends; the next step waits for the
// resume, and the row of the run says so meanwhile.
func TestC5_PausedRunStartsNothing(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		r.follow(run + ".a.1")
		if got := r.steer(pause, run); !got.Paused || got.Status != parley.RunRunning {
			t.Fatalf("paused %v, %s", got.Paused, got.Status)
		}
		r.steer(pause, run) // again is the same answer
		r.settle(run + ".a.1")
		time.Sleep(10 * time.Second)
		if a, b := r.step(run, "a"), r.step(run, "b"); a.Status != parley.StepCompleted || b.Status != parley.StepPending {
			t.Fatalf("a is %s, b is %s", a.Status, b.Status)
		}
		row, err := r.db.RunRow(t.Context(), run)
		check(t, err)
		if !row.Paused {
			t.Error("the row does not say that the run is paused")
		}
		if got := r.steer(resume, run); got.Paused || !r.claimable(run+".b.1") {
			t.Errorf("after the resume: paused %v", got.Paused)
		}
		r.steer(resume, run)
		r.settle(run + ".b.1")
		if got, want := r.history(run), []string{"run.started", "step.scheduled", "run.paused", "step.completed", "run.resumed", "step.scheduled", "step.completed", "run.completed"}; !slices.Equal(got, want) {
			t.Errorf("history %q", got)
		}
		_, err = r.x.Pause(t.Context(), parley.ControlRequest{Run: run})
		wantCode(t, err, parley.CodeConflict, "COMPLETED")
		_, err = r.x.Resume(t.Context(), parley.ControlRequest{Run: "run-9"})
		wantCode(t, err, parley.CodeNotFound, "run-9")
	})
}

// TestC5_VisibleRetryIsNotClaimed: an attempt that is open in the store, scheduled
// before or during the pause, is neither announced nor given to a bridge that has
// heard of it; at resume it is announced.
func TestC5_VisibleRetryIsNotClaimed(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: p, parallel: [{id: a, agent: writer, retry: {attempts: 3, delay: 1m}}, {id: b, agent: writer, retry: {attempts: 3, delay: 0s}}]}\n")
		var announced atomic.Int32
		stop, err := r.bus.Subscribe(t.Context(), bus.SubjectTasks, "", func(context.Context, bus.Message) error {
			announced.Add(1)
			return nil
		})
		check(t, err)
		defer stop()
		run := r.start()
		r.follow(run + ".p/a.1")
		r.follow(run + ".p/b.1")
		r.fail(run + ".p/a.1")
		r.steer(pause, run)
		r.fail(run + ".p/b.1")
		time.Sleep(2 * time.Second) // what was announced before
		before := announced.Load()
		time.Sleep(2 * time.Minute)
		if n := announced.Load() - before; n != 0 {
			t.Errorf("%d attempts of a paused run were announced", n)
		}
		if r.claimable(run+".p/a.2") || r.claimable(run+".p/b.2") {
			t.Fatal("an attempt of a paused run was claimed")
		}
		r.steer(resume, run)
		time.Sleep(time.Second)
		if n := announced.Load() - before; n != 2 {
			t.Errorf("%d attempts were announced at resume, want 2", n)
		}
		r.settle(run + ".p/a.2")
		r.settle(run + ".p/b.2")
		if got, err := r.x.Get(t.Context(), run); err != nil || got.Status != parley.RunCompleted {
			t.Errorf("the run is %s, %v", got.Status, err)
		}
	})
}

// TestC5_TimersActAtResume: a wait that is over does not end while the run is
// paused, and does so with the resume; the run's own timeout acts at once.
func TestC5_TimersActAtResume(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\ntimeout: 10m\nsteps:\n  - {id: w, wait: 1m}\n  - {id: b, agent: writer}\n")
		run := r.start()
		r.steer(pause, run)
		time.Sleep(2 * time.Minute)
		if s := r.step(run, "w"); s.Status != parley.StepRunning {
			t.Fatalf("w is %s while the run is paused", s.Status)
		}
		if got := r.steer(resume, run); got.Steps[0].Status != parley.StepCompleted || string(got.Steps[0].Output) != `{"waited_ms":120000}` {
			t.Errorf("at resume w is %s with %s", got.Steps[0].Status, got.Steps[0].Output)
		}
		r.steer(pause, run)
		time.Sleep(10 * time.Minute)
		got, err := r.x.Get(t.Context(), run)
		check(t, err)
		if got.Status != parley.RunFailed || got.Error.Code != parley.CodeTimeout || got.Paused {
			t.Errorf("after its timeout the run is %s, %v, paused %v", got.Status, got.Error, got.Paused)
		}
	})
}

// TestC5_CancelEndsAPausedRun: a cancel and a terminate work on it, and what is
// being cancelled is not paused any more.
func TestC5_CancelEndsAPausedRun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		r.steer(pause, run)
		got, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann"})
		check(t, err)
		if got.Status != parley.RunCancelled {
			t.Errorf("the run is %s", got.Status)
		}
		other := r.start()
		r.steer(pause, other)
		if got := r.steer(terminate, other); got.Status != parley.RunCancelled || got.Paused {
			t.Errorf("the run is %s, paused %v", got.Status, got.Paused)
		}
		third := r.start()
		r.follow(third + ".a.1")
		_, err = r.x.Cancel(t.Context(), parley.CancelRequest{Run: third, By: "ann"})
		check(t, err)
		_, err = r.x.Pause(t.Context(), parley.ControlRequest{Run: third})
		wantCode(t, err, parley.CodeConflict, "being cancelled")
	})
}

// TestC3_TerminateEndsAtOnce: no grace; the attempt is closed and its bridge is
// told; an answer after it is late. It works while the run is cancelled, too.
func TestC3_TerminateEndsAtOnce(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		told := make(chan string, 10)
		stop, err := r.bus.Subscribe(t.Context(), bus.SubjectCancel, "", func(_ context.Context, m bus.Message) error {
			told <- m.Key
			return nil
		})
		check(t, err)
		defer stop()
		for _, cancelled := range []bool{false, true} {
			run := r.start()
			r.follow(run + ".a.1")
			if cancelled {
				_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "bob", Reason: "first"})
				check(t, err)
				if task := <-told; task != run+".a.1" {
					t.Errorf("told of %s", task)
				}
			}
			got := r.steer(terminate, run)
			if got.Status != parley.RunCancelled || got.EndedAt == nil || got.CancelledBy != "ann" || got.CancelReason != "lunch" ||
				got.Error == nil || got.Error.Message != "The run was terminated by ann: lunch" {
				t.Fatalf("terminated: %s by %q because of %q, %v", got.Status, got.CancelledBy, got.CancelReason, got.Error)
			}
			if task := <-told; task != run+".a.1" {
				t.Errorf("told of %s", task)
			}
			a, ok, err := r.db.Attempt(t.Context(), run+".a.1")
			check(t, err)
			if !ok || a.State != store.AttemptClosed || !a.CancelRequested {
				t.Errorf("the attempt is %s, cancel %v", a.State, a.CancelRequested)
			}
			taken, err := r.x.Answer(t.Context(), store.Answer{
				Result: parley.Result{TaskID: run + ".a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`)}, At: time.Now(), From: "b1",
			})
			check(t, err)
			if taken {
				t.Error("an answer after the end was taken")
			}
			_, err = r.x.Terminate(t.Context(), parley.ControlRequest{Run: run})
			wantCode(t, err, parley.CodeConflict, "CANCELLED")
		}
	})
}

// TestC4_CancelIsRefusedBehindTheBody: what compensates and cleans up is not cancelled,
// and whoever asks hears so, and what ends it; a run that compensates since it was
// cancelled gives the same answer again.
func TestC4_CancelIsRefusedBehindTheBody(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: a, agent: writer, compensate: {id: u, agent: undo}}\n  - {id: b, agent: writer, retry: {attempts: 1}}\nfinally:\n  - {id: f, agent: writer}\n")
		run := r.start()
		r.settle(run + ".a.1")
		r.fail(run + ".b.1")
		for _, c := range [][2]string{{"compensating", ".a/u.1"}, {"finally", ".f.1"}} {
			_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann"})
			wantCode(t, err, parley.CodeConflict, "Cannot cancel run "+run+": its body has ended, and its phase is "+c[0]+"; to end it at once: parley run terminate "+run)
			wantConflict(t, err, parley.ConflictEnding)
			if v := r.get(run); v.Phase != c[0] || v.CancelledBy != "" {
				t.Fatalf("the run is in %q, cancelled by %q", v.Phase, v.CancelledBy)
			}
			r.settle(run + c[1])
		}
		wantEqual(t, r.get(run).Status, parley.RunFailed)

		run = r.start()
		r.settle(run + ".a.1")
		r.lease()
		r.follow(run + ".b.1")
		for i := range 3 {
			v, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann"})
			check(t, err)
			if i == 0 {
				r.settle(run + ".b.1")
			} else if v.Phase != "compensating" || v.CancelledBy != "ann" {
				t.Fatalf("the run is in %q, cancelled by %q", v.Phase, v.CancelledBy)
			}
		}
		r.settle(run + ".a/u.1")
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann"})
		check(t, err)
		r.steer(terminate, run)
	})
}

// TestC4_ChildrenBehindTheirBody: a parent that is cancelled waits for a child whose
// body has ended, and asks it nothing again.
func TestC4_ChildrenBehindTheirBody(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart + "finally:\n  - {id: f, agent: writer}\n")
		r.apply(aboveParts)
		run := r.start()
		child := r.child(run, "one")
		r.follow(child + ".a.1")
		r.settle(child + ".a.1")
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann"})
		check(t, err)
		r.noChildren()
		if v, c := r.get(run), r.get(child); v.Status != parley.RunRunning || c.Phase != "finally" {
			t.Fatalf("the parent is %s, the child in %q", v.Status, c.Phase)
		}
		r.lease()
		r.follow(child + ".f.1")
		r.settle(child + ".f.1")
		synctest.Wait()
		wantEqual(t, r.get(child).Status, parley.RunCompleted)
		wantEqual(t, r.get(run).Phase, "compensating")
	})
}

// TestPhase_TheRowSaysIt: lists of runs, which read rows alone, show the same phase as
// the run itself.
func TestPhase_TheRowSaysIt(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: a, agent: writer, compensate: {id: u, agent: undo}}\n  - {id: b, agent: writer, retry: {attempts: 1}}\nfinally:\n  - {id: f, agent: writer}\n")
		run := r.start()
		want := func(phase string) {
			t.Helper()
			row, err := r.db.RunRow(t.Context(), run)
			check(t, err)
			wantEqual(t, []string{r.get(run).Phase, row.Phase}, []string{phase, phase})
		}
		want("body")
		r.settle(run + ".a.1")
		r.fail(run + ".b.1")
		want("compensating")
		r.settle(run + ".a/u.1")
		want("finally")
		r.settle(run + ".f.1")
		want("")
	})
}

// TestC3_TheRowSaysWhatIsCancelled: the row of a run says that it is being cancelled, by
// whom and why: lists show that, and who counts the runs that keep others waiting passes
// it by.
func TestC3_TheRowSaysWhatIsCancelled(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		r.follow(run + ".a.1")
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann", Reason: "too late"})
		check(t, err)
		for _, cancelling := range []bool{true, false} {
			row, err := r.db.RunRow(t.Context(), run)
			check(t, err)
			if row.Cancelling != cancelling || row.CancelledBy != "ann" || row.CancelReason != "too late" || row.StartedAt.IsZero() {
				t.Errorf("the row of the %s run: cancelling %t by %q: %q, since %v", row.Status, row.Cancelling, row.CancelledBy, row.CancelReason, row.StartedAt)
			}
			time.Sleep(time.Minute)
		}
	})
}
