package executor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
)

const crowdedPart = "name: part\nconcurrency: {}\nsteps: [{id: a, wait: 10s}]\n"

// childRun gives the run that a step has started.
func (r *rig) childRun(run, step string) parley.Run { r.t.Helper(); return r.get(r.child(run, step)) }

// TestS11_AChildWaitsForItsTurn: it is a run with a parent as long as it waits, too,
// begins when there is room, and its end is that of the step.
func TestS11_AChildWaitsForItsTurn(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(crowdedPart)
		r.apply("name: talk\nsteps: [{id: one, workflow: part}]\n")
		first := r.start()
		running := r.childRun(first, "one")
		second := r.start()
		waiting := r.childRun(second, "one")
		if running.Status != parley.RunRunning || waiting.Status != parley.RunPending {
			t.Fatalf("the children are %s and %s", running.Status, waiting.Status)
		}
		if p := waiting.Parent; p == nil || p.Run != second || p.Step != "one" {
			t.Errorf("the parent of the one that waits is %+v", p)
		}
		listed, _, err := r.db.Runs(t.Context(), parley.RunQuery{Parent: second, Page: parley.Page{Limit: 10}})
		check(t, err)
		if len(listed) != 1 || listed[0].ID != waiting.ID {
			t.Errorf("the children of the second run are %+v", listed)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantEqual(t, string(r.get(first).Status)+" "+string(r.get(waiting.ID).Status), "COMPLETED RUNNING")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantEqual(t, r.get(second).Status, parley.RunCompleted)
		r.noChildren()
	})
}

// TestS11_ATurnDoesNotLengthenTheTimeOfAChild: it ends with the time of its parent,
// however late it has begun, and one that has not begun by then never does.
func TestS11_ATurnDoesNotLengthenTheTimeOfAChild(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(crowdedPart)
		r.apply("name: talk\nsteps: [{id: one, workflow: part, timeout: 15s}]\n")
		r.apply("name: brief\nsteps: [{id: one, workflow: part, timeout: 12s}]\n")
		first := r.start()
		r.childRun(first, "one") // children start in no order; what was accepted first begins first
		second := r.start()
		late := r.childRun(second, "one")
		brief, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "brief"})
		check(t, err)
		third := brief.ID
		never := r.childRun(third, "one")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantEqual(t, r.get(first).Status, parley.RunCompleted)
		bound := late.CreatedAt.Add(15 * time.Second)
		state, err := r.db.RunRow(t.Context(), late.ID)
		check(t, err)
		if !state.Due.Equal(bound) && !state.Due.Before(bound) {
			t.Errorf("the second child looks up at %s, its time is over at %s", state.Due, bound)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, run := range []string{second, third} {
			if v := r.get(run); v.Status != parley.RunFailed || v.Error.Code != parley.CodeTimeout {
				t.Errorf("%s is %s with %v", run, v.Status, v.Error)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if v := r.get(never.ID); v.Status != parley.RunCancelled || v.StartedAt != nil {
			t.Errorf("the third child is %s, begun at %v", v.Status, v.StartedAt)
		}
		r.noChildren()
	})
}

// TestS11_AChildThatIsRefusedItsTurn ends the step, with the reason.
func TestS11_AChildThatIsRefusedItsTurn(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: part\nconcurrency: {when_full: reject}\nsteps: [{id: a, wait: 10s}]\n")
		r.apply("name: talk\nsteps: [{id: one, workflow: part}]\n")
		first := r.start()
		r.childRun(first, "one")
		second := r.start()
		synctest.Wait()
		v := r.get(second)
		if v.Status != parley.RunFailed || v.Error.Code != parley.CodeSubWorkflowFailed || v.Error.Cause == nil || v.Error.Cause.Code != parley.CodeConflict {
			t.Errorf("the second run is %s with %+v", v.Status, v.Error)
		}
		wantEqual(t, r.get(first).Status, parley.RunRunning)
	})
}

// TestLimit_EventChainThroughChildren: a run that a step has started belongs to the
// chain of its parent.
func TestLimit_EventChainThroughChildren(t *testing.T) {
	triggering(t, func(c *executor.Config) { c.EventChain = 4; c.Children = c.Store.(executor.Children) }, func(r *triggerRig) {
		r.apply("name: teller\nsteps: [{id: say, emit: {event: echo, data: 1}}]\n")
		r.apply("name: echo\ntriggers: [{event: {name: echo, input: {}}}]\nsteps: [{id: tell, workflow: teller}]\n")
		r.publish(signal("", "echo", `1`))
		time.Sleep(time.Minute)
		wantEqual(r.t, len(r.runs()), 8) // four, and what each of them has started
	})
}

// TestS11_ATurnAndWhatWouldHaveHappened: what a run would have done at once is not
// done while it waits: neither does it end, nor start others.
func TestS11_ATurnAndWhatWouldHaveHappened(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: part\nconcurrency: {}\nsteps: [{id: a, if: workflow.input.slow, wait: 10s}, {id: b, set: 2}]\n")
		r.apply("name: talk\nconcurrency: {limit: 2}\nsteps: [{id: one, workflow: part, input: \"${workflow.input}\"}]\n")
		begin := func(input string) string {
			run, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk", Input: []byte(input)})
			check(t, err)
			return run.ID
		}
		first := begin(`{"slow":true}`)
		r.childRun(first, "one")
		second := begin(`{"slow":false}`)
		wantEqual(t, r.childRun(second, "one").Status, parley.RunPending)
		third := begin(`{"slow":false}`)
		wantEqual(t, r.get(third).Status, parley.RunPending)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for _, run := range []string{first, second, third} {
			wantEqual(t, r.outcome(run), "COMPLETED 2")
		}
		r.noChildren()
	})
}
