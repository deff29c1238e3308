package executor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// row gives the row of an attempt.
func (r *rig) row(task string) store.Attempt {
	r.t.Helper()
	a, ok, err := r.db.Attempt(r.t.Context(), task)
	check(r.t, err)
	if !ok {
		r.t.Fatalf("there is no attempt %s", task)
	}
	return a
}

// refuse claims a task, has its agent answer with an error, and gives when.
func (r *rig) refuse(task string, x *executor.Executor, retryAfter time.Duration) time.Time {
	r.t.Helper()
	r.lease()
	r.follow(task)
	at := time.Now().UTC()
	ok, err := x.Answer(r.t.Context(), store.Answer{Result: parley.Result{
		TaskID: task, Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentUnavailable, "busy"), RetryAfter: retryAfter,
	}, At: at, From: "b1"})
	check(r.t, err)
	if !ok {
		r.t.Fatalf("the answer of %s is late", task)
	}
	return at
}

// TestR2_EveryWaitIsARow: a retry that waits is an open attempt with a time,
// which is taken by nobody before that and by whoever is there then, whatever
// became of the executor that decided it.
func TestR2_EveryWaitIsARow(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer, retry: {attempts: 3, delay: 10s, max_delay: 1h}}]")
		run := r.start()
		at := r.refuse(run+".a.1", r.x, 0)
		row := r.row(run + ".a.2")
		if row.State != store.AttemptOpen || !row.VisibleAt.Equal(at.Add(5*time.Second)) { // the draw is 0.5
			t.Fatalf("the retry is %s and visible at %s; the failure was at %s", row.State, row.VisibleAt, at)
		}
		time.Sleep(5*time.Second - time.Millisecond)
		if list, err := r.db.Publish(t.Context(), time.Now(), 10); err != nil || len(list) > 0 {
			t.Fatalf("published before its time: %v, %v", list, err)
		}

		// Another executor, which knows nothing but the store, decides the next.
		other := executor.New(r.config)
		time.Sleep(time.Millisecond)
		at = r.refuse(run+".a.2", other, 0)
		time.Sleep(2 * time.Second)
		if row = r.row(run + ".a.3"); !row.VisibleAt.Equal(at.Add(10 * time.Second)) {
			t.Errorf("the second retry is visible at %s, want 10 s after %s", row.VisibleAt, at)
		}
		time.Sleep(8*time.Second + time.Millisecond)
		r.refuse(run+".a.3", r.x, 0)
		if got := r.step(run, "a"); got.Status != parley.StepFailed || got.Attempts != 3 {
			t.Errorf("the step is %s after %d attempts", got.Status, got.Attempts)
		}
	})
}

// TestR2_RetryAfterIsTheLeastDelay, and T1: the end of the step's time wins.
func TestR2_RetryAfterIsTheLeastDelay(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer, timeout: 1m, retry: {attempts: 9, delay: 1s}}]")
		run := r.start()
		at := r.refuse(run+".a.1", r.x, 40*time.Second)
		if row := r.row(run + ".a.2"); !row.VisibleAt.Equal(at.Add(40 * time.Second)) {
			t.Errorf("visible at %s, the agent asked for 40 s after %s", row.VisibleAt, at)
		}
		time.Sleep(40*time.Second + time.Millisecond)
		r.refuse(run+".a.2", r.x, 20*time.Second)
		got := r.step(run, "a")
		if got.Status != parley.StepFailed || got.Error.Code != parley.CodeAgentUnavailable || string(got.Error.Details) != `{"limit":"timeout"}` {
			t.Errorf("T1: the step is %s: %v %s", got.Status, got.Error, got.Error.Details)
		}
	})
}

// TestRetryBudget_PutsOff: retries beyond an agent's budget wait as rows with
// later times, one after the other; none is dropped, another agent's are not
// touched, and the end of a step's time wins.
func TestRetryBudget_PutsOff(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.budget = parley.RetryBudget{Percent: 1, PerSecond: 0.5} // 5 at once, then one every 2 s
		r.apply("name: talk\nsteps: [{id: a, agent: writer, timeout: 5s, retry: {attempts: 9, delay: 0s}}]")
		var runs []string
		for range 12 {
			runs = append(runs, r.start())
		}
		began := time.Now()
		for i, run := range runs {
			r.refuse(run+".a.1", r.x, 0)
			if i >= 5+2 {
				if s := r.step(run, "a"); s.Status != parley.StepFailed || string(s.Error.Details) != `{"limit":"timeout"}` {
					t.Errorf("run %d: the step is %s: %v", i, s.Status, s.Error)
				}
				continue
			}
			want := time.Duration(max(0, i-4)) * 2 * time.Second
			row := r.row(run + ".a.2")
			got := row.VisibleAt.Sub(began)
			if want == 0 && got <= 5*time.Second {
				continue // announced already
			}
			if row.State != store.AttemptOpen || got < want-100*time.Millisecond || got > want {
				t.Errorf("run %d: the retry is %s and visible %s after the first, want %s", i, row.State, got, want)
			}
		}
		r.apply("name: talk\nsteps: [{id: a, agent: other, retry: {attempts: 9, delay: 0s}}]")
		run := r.start()
		r.refuse(run+".a.1", r.x, 0)
		// Announced already, it is looked at again after 5 s; put off, it would be 6 s.
		if wait := time.Until(r.row(run + ".a.2").VisibleAt); wait > 5*time.Second {
			t.Errorf("another agent's retry is put off by %s", wait)
		}
	})
}

// TestRetryBudget_IsPaidForRetriesOnly: what ends without a retry, or is not
// written, costs nothing.
func TestRetryBudget_IsPaidForRetriesOnly(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.budget = parley.RetryBudget{Percent: 1, PerSecond: 0.1} // one
		r.apply("name: talk\nsteps: [{id: a, agent: writer, retry: {attempts: 1}}]")
		for range 5 {
			r.refuse(r.start()+".a.1", r.x, 0)
		}
		r.apply("name: talk\nsteps: [{id: a, agent: writer, retry: {attempts: 2, delay: 0s}}]")
		run := r.start()
		r.loses(0, false)
		r.refuse(run+".a.1", r.x, 0)
		time.Sleep(1500 * time.Millisecond) // a sweep
		if row := r.row(run + ".a.2"); row.State != store.AttemptOpen || time.Until(row.VisibleAt) > 5*time.Second {
			t.Errorf("the one retry is %s and visible at %s", row.State, row.VisibleAt)
		}
		run = r.start()
		r.refuse(run+".a.1", r.x, 0)
		if row := r.row(run + ".a.2"); time.Until(row.VisibleAt) < 5*time.Second {
			t.Errorf("the second retry is visible at %s", row.VisibleAt)
		}
	})
}

// TestR2_AnswerThatDoesNotFitWaitsAsAnyOther: a retry after an answer that is refused
// waits as any other.
func TestR2_AnswerThatDoesNotFitWaitsAsAnyOther(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer, schema: {type: string}, retry: {attempts: 2, delay: 10s, on: [invalid_output]}}]")
		run := r.start()
		r.follow(run + ".a.1")
		r.settle(run + ".a.1")
		if row := r.row(run + ".a.2"); !row.VisibleAt.Equal(time.Now().Add(5 * time.Second)) {
			t.Errorf("the retry is visible %s after the answer, want 5 s", time.Until(row.VisibleAt))
		}
	})
}

// TestRetryBudget_CallsEarn: first calls earn retries, retries earn none.
func TestRetryBudget_CallsEarn(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.budget = parley.RetryBudget{Percent: 50, PerSecond: 0.1} // one, and half of the calls
		r.apply("name: talk\nsteps: [{id: a, agent: writer, retry: {attempts: 9, delay: 0s}}]")
		var tasks []string
		for range 8 {
			tasks = append(tasks, r.start()+".a.")
		}
		for i, task := range tasks {
			r.refuse(task+"1", r.x, 0)
			if row, late := r.row(task+"2"), i >= 5; time.Until(row.VisibleAt) > 5*time.Second != late {
				t.Errorf("retry %d is visible in %s", i+1, time.Until(row.VisibleAt))
			}
		}
		if r.refuse(tasks[0]+"2", r.x, 0); time.Until(r.row(tasks[0]+"3").VisibleAt) < 5*time.Second {
			t.Error("retries have earned a retry")
		}
	})
}

// TestR4_AnAgentThatCannotBeLookedUp: how often an agent is tried again is not decided
// as long as its record cannot be read; its answer is kept meanwhile.
func TestR4_AnAgentThatCannotBeLookedUp(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.stopFirst()
		var away atomic.Bool
		unread := func(c *executor.Config) {
			agent := c.Agent
			c.Agent = func(ctx context.Context, name string) (executor.AgentInfo, bool) {
				if away.Load() {
					return executor.AgentInfo{Err: parley.Errorf(parley.CodeUnavailable, "the database is away")}, false
				}
				return agent(ctx, name)
			}
		}
		r.apply("name: hedge\nsteps: [{id: a, agents: [one, other], hedge_after: 1s}]")
		r.apply("name: talk\nsteps: [{id: a, agent: writer}]")
		r.another(unread, func(x *executor.Executor) {
			run := r.start()
			away.Store(true)
			r.refuse(run+".a.1", x, 0)
			time.Sleep(10 * time.Second)
			if row := r.row(run + ".a.1"); row.State != store.AttemptSettled {
				t.Errorf("the attempt is %s", row.State)
			}
			_, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "hedge"})
			wantCode(t, err, parley.CodeUnavailable, "the database is away")
			away.Store(false)
			time.Sleep(2 * time.Second)
			if v := r.get(run); v.Status != parley.RunFailed || v.Steps[0].Attempts != 1 {
				t.Errorf("the run is %s after %d attempts, want one: the agent's record grants no retry", v.Status, v.Steps[0].Attempts)
			}
		})
	})
}

// TestT2_TheRowSaysHowLongAnAgentMayTake: the bridge that calls an agent finds both
// bounds, and what is to become of a doubtful call, with the attempt.
func TestT2_TheRowSaysHowLongAnAgentMayTake(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: talk\nsteps: [{id: a, agent: writer, attempt_timeout: 20s, silence: 10s}]")
		want := store.Policy{OutcomeUnknown: parley.OutcomeLookup, AttemptTimeout: 20 * time.Second, Silence: 10 * time.Second}
		if got := r.row(r.start() + ".a.1").Policy; got != want {
			r.t.Errorf("the row says %+v, want %+v", got, want)
		}
	})
}
