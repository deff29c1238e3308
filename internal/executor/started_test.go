package executor_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
)

// TestE4_StartedAtIsKept: a step whose agent was called has begun then and under that
// name, however it ends, whoever ends it, and whoever looks.
func TestE4_StartedAtIsKept(t *testing.T) {
	const one = "name: talk\nsteps:\n  - {id: x, agent: writer}\n"
	cancel := func(r *rig, run string) {
		_, err := r.x.Cancel(r.t.Context(), parley.CancelRequest{Run: run})
		check(r.t, err)
	}
	for name, c := range map[string]struct {
		source string
		end    func(r *rig, run string)
		status parley.StepStatus
	}{
		"timeout":     {"name: talk\nsteps:\n  - {id: x, agent: writer, timeout: 1m}\n", func(*rig, string) { time.Sleep(2 * time.Minute) }, parley.StepFailed},
		"run timeout": {"name: talk\ntimeout: 1m\nsteps:\n  - {id: x, agent: writer}\n", func(*rig, string) { time.Sleep(2 * time.Minute) }, parley.StepCancelled},
		"cancelling":  {one, cancel, parley.StepRunning},
		"cancel":      {one, func(r *rig, run string) { cancel(r, run); time.Sleep(time.Minute) }, parley.StepCancelled},
		"terminate":   {one, func(r *rig, run string) { r.steer(terminate, run) }, parley.StepCancelled},
		"loser": {"name: talk\nsteps:\n  - {id: p, fork: {x: [{id: x, agent: writer}], y: [{id: y, agent: writer}]}, join: any}\n", func(r *rig, run string) {
			r.settle(run + ".p/y.1")
		}, parley.StepCancelled},
		"failed beside it": {"name: talk\nsteps:\n  - {id: x, agent: writer}\n  - {id: y, agent: writer, needs: [], retry: {attempts: 1}}\n", func(r *rig, run string) {
			r.fail(run + ".y.1")
		}, parley.StepCancelled},
		"hedged": {"name: talk\nsteps:\n  - {id: x, agents: [writer, other], hedge_after: 1h, timeout: 1m}\n", func(*rig, string) { time.Sleep(2 * time.Minute) }, parley.StepFailed},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				r.apply(c.source)
				run, path := r.start(), "x"
				if name == "loser" {
					path = "p/x"
				}
				time.Sleep(10 * time.Second)
				r.follow(run + "." + path + ".1")
				began := time.Now().UTC()
				if s := r.step(run, path); s.StartedAt == nil || !s.StartedAt.Equal(began) {
					t.Fatalf("while it runs: since %v, want %s", s.StartedAt, began)
				}
				time.Sleep(5 * time.Second)
				c.end(r, run)
				synctest.Wait()
				s := r.step(run, path)
				if s.Status != c.status || s.StartedAt == nil || !s.StartedAt.Equal(began) || s.AgentTaskID != "at-1" {
					t.Errorf("%s since %v as %q, want %s since %s", s.Status, s.StartedAt, s.AgentTaskID, c.status, began)
				}
			})
		})
	}
}

// TestE4_StartedAtIsThatOfTheLastAttempt: between two attempts a step has begun with
// the first of them, without its agent's name for it; a call that nobody has begun
// has no begin.
func TestE4_StartedAtIsThatOfTheLastAttempt(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: x, agent: writer, timeout: 1h, retry: {attempts: 2, delay: 1m}}\n  - {id: y, agent: writer, needs: [], timeout: 1m}\n")
		run := r.start()
		first := time.Now().UTC()
		r.follow(run + ".x.1")
		r.fail(run + ".x.1")
		synctest.Wait()
		if s := r.step(run, "x"); s.Phase != parley.PhaseBackoff || s.StartedAt == nil || !s.StartedAt.Equal(first) || s.AgentTaskID != "" {
			t.Errorf("%s since %v as %q", s.Phase, s.StartedAt, s.AgentTaskID)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := r.step(run, "y"); s.Status != parley.StepFailed || s.StartedAt != nil {
			t.Errorf("y is %s since %v", s.Status, s.StartedAt)
		}
	})
}

// TestR1_AttemptsShown: an attempt counts when its time has come, and the step is with
// its agent when somebody has taken it.
func TestR1_AttemptsShown(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: talk\nsteps:\n  - {id: x, agent: writer, retry: {attempts: 3, delay: 1m, multiplier: 1, jitter: none}}\n")
		run := r.start()
		want := func(when string, attempts int, phase parley.StepPhase) {
			r.t.Helper()
			synctest.Wait()
			if s := r.step(run, "x"); s.Attempts != attempts || s.Phase != phase || (s.StartedAt == nil) != (when == "waiting") {
				r.t.Errorf("%s: %s after %d attempts since %v, want %s after %d", when, s.Phase, s.Attempts, s.StartedAt, phase, attempts)
			}
		}
		want("waiting", 1, parley.PhaseQueued)
		r.follow(run + ".x.1")
		want("called", 1, parley.PhaseWorking)
		r.fail(run + ".x.1")
		want("in backoff", 1, parley.PhaseBackoff)
		time.Sleep(time.Minute)
		want("after it", 2, parley.PhaseQueued)
		r.lease()
		r.follow(run + ".x.2")
		want("called again", 2, parley.PhaseWorking)
		r.fail(run + ".x.2")
		r.steer(pause, run)
		want("paused in backoff", 2, parley.PhaseBackoff)
		r.steer(terminate, run)
		want("ended", 2, "")
	})
}

// TestE4_StartedAtInFinally: what ends by a timer tells expressions when it began.
func TestE4_StartedAtInFinally(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps:\n  - {id: x, agent: writer, timeout: 1m}\nfinally:\n  - {id: f, set: '${steps.x.started_at}'}\n")
		run := r.start()
		time.Sleep(10 * time.Second)
		began := time.Now().UTC()
		r.follow(run + ".x.1")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		want, err := json.Marshal(began)
		check(t, err)
		if s := r.step(run, "f"); string(s.Output) != string(want) {
			t.Errorf("finally sees %s, want %s", s.Output, want)
		}
	})
}

// TestR1_AttemptsWhileTheRunIsCancelled: the call after a retry's delay counts while the
// agent is asked to stop, too.
func TestR1_AttemptsWhileTheRunIsCancelled(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: talk\nsteps:\n  - {id: x, agent: writer, retry: {attempts: 3, delay: 1m, multiplier: 1, jitter: none}}\n")
		run := r.start()
		r.follow(run + ".x.1")
		r.fail(run + ".x.1")
		time.Sleep(time.Minute)
		r.lease()
		r.follow(run + ".x.2")
		_, err := r.x.Cancel(r.t.Context(), parley.CancelRequest{Run: run, By: "ann"})
		check(r.t, err)
		if s := r.step(run, "x"); s.Attempts != 2 || s.Phase != parley.PhaseCancelling {
			t.Errorf("it is %s after %d attempts, want cancelling after 2", s.Phase, s.Attempts)
		}
	})
}
