package executor_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

const (
	aboveParts = "name: talk\nlabels: {of: parent}\nsteps:\n  - {id: one, workflow: part, input: {n: 1.10}, compensate: {agent: undo}}\n  - {id: two, set: \"${one.output.n}\"}\n"
	onePart    = "name: part\nlabels: {of: child}\ninput: {type: object, properties: {n: {type: number}, m: {default: 7}}}\nsteps:\n  - {id: a, agent: writer, input: \"${workflow.input}\"}\n"
)

// child gives the run that a step has started, once it has.
func (r *rig) child(run, step string) string {
	r.t.Helper()
	synctest.Wait()
	c := r.step(run, step).Child
	r.lease()
	if c == nil || c.Run == "" {
		r.t.Fatalf("step %s of %s has no run: %+v", step, run, r.step(run, step))
	}
	return c.Run
}

func (r *rig) get(run string) parley.Run {
	r.t.Helper()
	v, err := r.x.Get(r.t.Context(), run)
	check(r.t, err)
	return v
}

// noChildren: nothing is left of what runs have asked for.
func (r *rig) noChildren() {
	r.t.Helper()
	synctest.Wait()
	asked, err := r.db.AskedChildren(r.t.Context(), "", 10)
	check(r.t, err)
	stops, err := r.db.StoppedChildren(r.t.Context(), "", 10)
	check(r.t, err)
	w, err := r.db.Wakeups(r.t.Context(), time.Now(), 10)
	check(r.t, err)
	if len(asked)+len(stops)+len(w.Children) > 0 {
		r.t.Errorf("left: asked %+v, to stop %+v, news of %v", asked, stops, w.Children)
	}
}

// TestS11_AChildIsARunOfItsOwn: it has its input, its labels and its history, and
// the parent goes on in the moment in which it ends, without a sweep.
func TestS11_AChildIsARunOfItsOwn(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply(aboveParts)
		time.Sleep(300 * time.Millisecond) // between two sweeps
		run := r.start()
		child := r.child(run, "one")
		got := r.get(child)
		wantEqual(t, *got.Parent, parley.RunParent{Run: run, Step: "one"})
		wantEqual(t, got.Labels, map[string]string{"of": "child"})
		wantEqual(t, string(got.Input)+" "+got.TriggeredBy+" "+got.Workflow, `{"n":1.10,"m":7} workflow part`)
		row, err := r.db.RunRow(t.Context(), child)
		check(t, err)
		wantEqual(t, row.ParentRun+" "+row.ParentStep, run+" one")
		if s := r.step(run, "one"); s.Phase != parley.PhaseWaiting || s.Child.Version != "1" {
			t.Errorf("the step: %s %+v", s.Phase, s.Child)
		}
		before := time.Now()
		r.follow(child + ".a.1")
		r.settle(child + ".a.1")
		synctest.Wait()
		wantEqual(t, r.outcome(run), "COMPLETED 1")
		wantEqual(t, r.get(run).EndedAt.Sub(before), time.Duration(0))
		wantEqual(t, r.history(run), []string{
			"run.started", "step.scheduled", "child.started", "child.ended", "step.completed", "step.completed", "run.completed",
		})
		r.noChildren()
	})
}

// TestS11_HowAChildEnds: its failure is the cause of the step's, and a cancel by
// somebody else is another error.
func TestS11_HowAChildEnds(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply(aboveParts)
		run := r.start()
		child := r.child(run, "one")
		r.follow(child + ".a.1")
		r.fail(child + ".a.1")
		time.Sleep(time.Second)
		v := r.get(run)
		if v.Status != parley.RunFailed || v.Error.Code != parley.CodeSubWorkflowFailed || v.Error.Step != "one" || v.Error.Cause == nil ||
			v.Error.Cause.Code != parley.CodeAgentError || v.Error.Cause.Step != "a" || !strings.Contains(v.Error.Message, child) {
			t.Errorf("the parent of one that has failed: %s %+v", v.Status, v.Error)
		}

		run = r.start()
		child = r.child(run, "one")
		r.steer(terminate, child)
		synctest.Wait()
		if v := r.get(run); v.Status != parley.RunFailed || v.Error.Code != parley.CodeSubWorkflowCancelled || v.Error.Cause.Code != parley.CodeCancelled {
			t.Errorf("the parent of one that was terminated: %s %+v", v.Status, v.Error)
		}
		r.noChildren()
	})
}

// TestC3_ChildrenAreCancelledAndWaitedFor: however long their grace is; to terminate
// the parent terminates them.
func TestC3_ChildrenAreCancelledAndWaitedFor(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply(aboveParts)
		run := r.start()
		child := r.child(run, "one")
		r.follow(child + ".a.1")
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann", Reason: "lunch"})
		check(t, err)
		synctest.Wait()
		if v, c := r.get(run), r.get(child); v.Status != parley.RunRunning || c.CancelledBy != "run "+run {
			t.Fatalf("the parent is %s, the child is cancelled by %q", v.Status, c.CancelledBy)
		}
		r.settle(child + ".a.1") // in the grace of the child
		synctest.Wait()
		if c := r.get(child); c.Status != parley.RunCancelled {
			t.Fatalf("the child is %s", c.Status)
		}
		wantEqual(t, r.outcome(run), "CANCELLED ")

		run = r.start()
		child = r.child(run, "one")
		r.follow(child + ".a.1")
		r.steer(terminate, run)
		wantEqual(t, r.outcome(run), "CANCELLED ")
		synctest.Wait()
		wantEqual(t, r.outcome(child), "CANCELLED ")
		r.noChildren()
	})
}

// TestS11_WhoIsNotWaitedForIsCancelled: a step whose time is up, or whose sibling
// has won, has its run cancelled and does not wait for that.
func TestS11_WhoIsNotWaitedForIsCancelled(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply("name: talk\nsteps:\n  - id: race\n    join: any\n    fork: {l: [{id: left, workflow: part}], r: [{id: right, wait: 1m}]}\n  - {id: late, workflow: part, timeout: 1m, on_error: continue}\n  - {id: x, wait: 1h}\n")
		run := r.start()
		left := r.child(run, "race/left")
		r.follow(left + ".a.1")
		time.Sleep(time.Minute)
		late := r.child(run, "late")
		r.follow(late + ".a.1")
		if c := r.get(left); c.Status != parley.RunRunning || c.CancelledBy != "run "+run || !strings.Contains(c.CancelReason, "race/left") {
			t.Errorf("the loser is %s, cancelled by %q: %s", c.Status, c.CancelledBy, c.CancelReason)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := r.step(run, "late"); s.Status != parley.StepFailed || s.Error.Code != parley.CodeTimeout {
			t.Errorf("the step is %s %+v", s.Status, s.Error)
		}
		wantEqual(t, r.outcome(left), "CANCELLED ")
		// Its deadline was the same: it has ended by that, or was cancelled just before.
		if c := r.get(late); c.Status == parley.RunFailed {
			wantEqual(t, string(c.Error.Code), "timeout")
		} else {
			wantEqual(t, c.CancelledBy, "run "+run)
			time.Sleep(time.Minute)
			synctest.Wait()
			wantEqual(t, r.outcome(late), "CANCELLED ")
		}
		r.noChildren()
	})
}

// TestS11_DetachedRunsGoOn: the step has their id, and no cancel reaches them.
func TestS11_DetachedRunsGoOn(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply("name: talk\ntimeout: 1h\nsteps:\n  - {id: one, workflow: part, detach: true}\n  - {id: two, wait: 2h}\n")
		run := r.start()
		child := r.child(run, "one")
		wantEqual(t, string(r.step(run, "one").Output), `{"run_id":"`+child+`"}`)
		time.Sleep(time.Hour)
		synctest.Wait()
		wantEqual(t, r.outcome(run), "FAILED ")
		r.lease()
		r.follow(child + ".a.1")
		r.settle(child + ".a.1")
		wantEqual(t, r.outcome(child), `COMPLETED {"n":1}`)
		r.noChildren()
	})
}

// TestS11_NamesMeanWhatTheyMeantWhenTheRunBegan: an alias that moves, a newer
// version and a deprecation change nothing for runs that are under way (rule C10).
func TestS11_NamesMeanWhatTheyMeantWhenTheRunBegan(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply("name: talk\nsteps:\n  - {id: first, wait: 1m}\n  - {id: one, workflow: part}\n  - {id: two, workflow: \"${'pa' + 'rt'}\", among: [part]}\n")
		run := r.start()
		r.apply(strings.Replace(onePart, "writer", "other", 1))
		_, err := r.catalog.Deprecate(t.Context(), parley.DeprecateRequest{Ref: "part@1", By: "ann"})
		check(t, err)
		time.Sleep(time.Minute)
		one := r.child(run, "one")
		wantEqual(t, r.get(one).Version, "1")
		r.follow(one + ".a.1")
		r.settle(one + ".a.1")
		wantEqual(t, r.get(r.child(run, "two")).Version, "2") // found when the step began
		var started struct {
			Children []map[string]string
		}
		check(t, json.Unmarshal(r.events(run)[0].Data, &started))
		wantEqual(t, started.Children, []map[string]string{{"ref": "part", "workflow": "part", "version": "1"}})
		_, err = r.catalog.Deprecate(t.Context(), parley.DeprecateRequest{Ref: "part@2", By: "ann"})
		check(t, err)
		_, _, err = r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
		wantCode(t, err, parley.CodeConflict, "Step one of workflow talk")
	})
}

// TestS11_WhatCannotBeRun: a fixed name that means nothing refuses the start; what
// is found out later fails the step.
func TestS11_WhatCannotBeRun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(aboveParts)
		_, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
		wantCode(t, err, parley.CodeNotFound, "Step one of workflow talk")
		r.apply(onePart)
		r.apply("name: talk\nsteps:\n  - {id: a, workflow: \"${'no'}\", among: ['no'], on_error: continue}\n  - {id: b, workflow: part, input: {n: text}, on_error: continue}\n  - {id: c, workflow: part, input: 7, detach: true, on_error: continue}\n")
		run := r.start()
		synctest.Wait()
		wantEqual(t, string(r.get(run).Status), "COMPLETED")
		for step, want := range map[string]string{"a": "sub_workflow_failed not_found", "b": "invalid_input", "c": "invalid_input"} {
			e := r.step(run, step).Error
			got := string(e.Code)
			if e.Cause != nil {
				got += " " + string(e.Cause.Code)
			}
			if got != want {
				t.Errorf("step %s has failed with %s: %s", step, got, e.Message)
			}
		}
		r.noChildren()
	})
}

// TestS11_AWorkflowMayRunItself: 32 runs stand in each other.
func TestS11_AWorkflowMayRunItself(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: down, workflow: talk}\n")
		run := r.start()
		synctest.Wait()
		time.Sleep(time.Second)
		v := r.get(run)
		if v.Status != parley.RunFailed {
			t.Fatalf("the run is %s", v.Status)
		}
		depth, last := 1, v.Error
		for e := v.Error; e != nil; e = e.Cause {
			last = e
		}
		for {
			c := r.step(run, "down").Child
			if c == nil || c.Run == "" {
				break
			}
			run, depth = c.Run, depth+1
		}
		if depth != 32 || last.Code != parley.CodeLimit {
			t.Errorf("%d runs, the last error is %s: %s", depth, last.Code, last.Message)
		}
	})
}

// TestC6_RetriesDoNotCallChildrenAgain: what was completed is copied, what was not
// is a new run.
func TestC6_RetriesDoNotCallChildrenAgain(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply("name: talk\nsteps:\n  - {id: one, workflow: part}\n  - {id: two, workflow: part}\n")
		run := r.start()
		one := r.child(run, "one")
		r.follow(one + ".a.1")
		r.settle(one + ".a.1")
		two := r.child(run, "two")
		r.follow(two + ".a.1")
		r.fail(two + ".a.1")
		synctest.Wait()
		again, err := r.x.Retry(t.Context(), run, "ann")
		check(t, err)
		third := r.child(again.ID, "two")
		if third == two || r.step(again.ID, "one").Child != nil {
			t.Errorf("the retry has %s, and for what was done %+v", third, r.step(again.ID, "one").Child)
		}
		wantEqual(t, r.get(third).Parent, &parley.RunParent{Run: again.ID, Step: "two"})
		runs, total, err := r.db.Runs(t.Context(), parley.RunQuery{Parent: run})
		check(t, err)
		if total != 2 || !slices.ContainsFunc(runs, func(v store.Run) bool { return v.ID == one }) {
			t.Errorf("%d children: %+v", total, runs)
		}
	})
}

// TestS11_ExplainSaysWhatTheChildDoes: its id, and what to ask next.
func TestS11_ExplainSaysWhatTheChildDoes(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply(aboveParts)
		run := r.start()
		child := r.child(run, "one")
		e, err := r.x.Explain(t.Context(), run)
		check(t, err)
		s := e.Steps[0]
		wantEqual(t, string(s.Reason)+": "+s.Text, "child: for run "+child+" of workflow part, which is RUNNING: parley run explain "+child)
		wantEqual(t, *s.Child, parley.ChildRun{Run: child, Workflow: "part", Version: "1", Status: parley.RunRunning})
	})
}

// TestS11_SeveralExecutors: children are started once, and their ends are seen,
// whoever decides.
func TestS11_SeveralExecutors(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: leaf\nsteps: [{id: a, set: 1}]\n")
		r.apply("name: talk\nsteps:\n  - {id: all, for_each: \"${[1,2,3,4,5,6,7,8,9,10]}\", max_parallel: 5, steps: [{id: one, workflow: leaf}]}\noutput: \"${all.output.total_count}\"\n")
		r.stopFirst()
		r.another(func(*executor.Config) {}, func(one *executor.Executor) {
			r.another(func(*executor.Config) {}, func(two *executor.Executor) {
				run, _, err := one.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
				check(t, err)
				got, err := two.Wait(t.Context(), run.ID)
				check(t, err)
				wantEqual(t, string(got), "COMPLETED")
				_, total, err := r.db.Runs(t.Context(), parley.RunQuery{Parent: run.ID})
				check(t, err)
				wantEqual(t, total, 10)
				time.Sleep(5 * time.Second)
			})
		})
		r.noChildren()
	})
}

// TestC3_AChildThatChangesTooFastIsCancelledLater: a run whose cancel is refused again
// and again, since others decide about it, has not ended: it is cancelled when that goes.
func TestC3_AChildThatChangesTooFastIsCancelledLater(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(onePart)
		r.apply(aboveParts)
		run := r.start()
		child := r.child(run, "one")
		r.follow(child + ".a.1")
		var tries atomic.Int64
		r.breaks(func(d store.Decision) error {
			if d.Run.ID == child && d.Run.Cancelling && tries.Add(1) <= 15 {
				return store.ErrStale
			}
			return nil
		})
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "ann"})
		check(t, err)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if c := r.get(child); c.CancelledBy != "run "+run || tries.Load() <= 15 {
			t.Errorf("the child is %s, cancelled by %q, after %d tries", c.Status, c.CancelledBy, tries.Load())
		}
	})
}
