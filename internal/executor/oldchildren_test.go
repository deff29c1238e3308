package executor_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/records"
)

// TestOld_TheTimeOfAChildWaitsForResults: a child and its parent run out of time
// together. What the parent has given the old bridge is not ended by the end of the
// child before the results that were there by then have been read (protocol.md §4.12).
func TestOld_TheTimeOfAChildWaitsForResults(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.stop()
		r.cfg.Children = r.db
		stop := r.execute()
		defer stop()
		r.deploy("name: part\nsteps:\n  - {id: sit, wait: 1h}\n")
		r.deploy("name: talk\ntimeout: 20s\nsteps:\n  - id: both\n    parallel: [{id: one, workflow: part}, {id: a, agent: writer}]\n")
		r.old.answers(func(records.AgentTask) says { s := ok(`{"n": 1}`); s.after = 19 * time.Second; return s })
		r.bridge()
		run := r.start()
		r.bus.hold(true)
		time.Sleep(time.Minute)
		if child := r.get(r.step(run, "both/one").Child.Run); child.Status != parley.RunFailed {
			r.t.Fatalf("the child is %s", child.Status)
		}
		r.wantRun(run, parley.RunRunning)
		r.bus.hold(false)
		time.Sleep(2 * time.Second)
		v := r.wantRun(run, parley.RunFailed)
		wantCode(r.t, v.Error, parley.CodeTimeout, "The run's timeout of 20s is over")
		if s := r.step(run, "both/a"); s.Status != parley.StepCompleted {
			r.t.Errorf("step a is %s: its result lay on the bus when its time was up", s.Status)
		}
	})
}
