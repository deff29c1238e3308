package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// lease begins a new life of the bridge, whose lease may be over.
func (r *rig) lease() {
	r.t.Helper()
	inc, err := r.db.Register(r.t.Context(), "b1", time.Now())
	check(r.t, err)
	r.claim.Inc = inc
}

// calls gives the attempts of a run as "agent task state outcome".
func (r *rig) calls(run string) (list []string) {
	r.t.Helper()
	rows, err := r.db.Attempts(r.t.Context(), run)
	check(r.t, err)
	for i := range rows {
		a := &rows[i]
		text := fmt.Sprintf("%s %s %s", a.Agent, strings.TrimPrefix(a.ID, run+"."), a.State)
		if a.Result != nil {
			text += " " + string(a.Result.Outcome)
		}
		list = append(list, text)
	}
	return list
}

// TestR5_HedgeOnTheStore: the next agent is called when its time has come,
// though nobody wakes the run; who loses is asked to stop, and what it says
// later changes nothing.
func TestR5_HedgeOnTheStore(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agents: [one, other, third], hedge_after: 2s}]")
		run := r.start()
		r.follow(run + ".a.1")
		time.Sleep(2*time.Second - time.Millisecond)
		synctest.Wait()
		if got := r.calls(run); len(got) != 1 {
			t.Fatalf("called before the time: %q", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		r.follow(run + ".a.2")
		if got := r.step(run, "a"); got.Phase != parley.PhaseWorking || got.Attempts != 2 {
			t.Errorf("the step is %s after %d attempts", got.Phase, got.Attempts)
		}
		r.settle(run + ".a.2")
		if d := cmp.Diff([]string{"one a.1 closed cancelled", "other a.2 closed ok"}, r.calls(run)); d != "" {
			t.Error(d)
		}
		if row := r.row(run + ".a.1"); !row.CancelRequested {
			t.Error("the agent that has lost is not asked to stop")
		}
		late, err := r.x.Answer(t.Context(), store.Answer{Result: parley.Result{
			TaskID: run + ".a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`2`),
		}, At: time.Now()})
		check(t, err)
		got := r.step(run, "a")
		if late || got.Status != parley.StepCompleted || got.Agent != "other" || string(got.Output) != `{"n":1}` {
			t.Errorf("accepted %t; the step is %s of %s with %s", late, got.Status, got.Agent, got.Output)
		}
	})
}

// TestR5_OnOpen: no attempt waits for an open circuit but that of the last
// agent, and its record says so.
func TestR5_OnOpen(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		said := map[string]string{}
		stop, err := r.bus.Subscribe(t.Context(), bus.SubjectTasks, "bridges", func(_ context.Context, m bus.Message) error {
			task, err := records.DecodeTask(m.Value)
			said[task.TaskID] = m.Header[bus.HeaderOnOpen]
			return err
		})
		check(t, err)
		defer stop()
		r.apply("name: talk\nsteps: [{id: a, agents: [one, other]}]")
		run := r.start()
		synctest.Wait()
		e := parley.Errorf(parley.CodeAgentUnavailable, "the circuit is open").WithDetails(map[string]string{"circuit": "open"})
		e.Retryable = true
		_, err = r.x.Answer(t.Context(), store.Answer{Result: parley.Result{TaskID: run + ".a.1", Outcome: parley.OutcomeError, Err: e}, At: time.Now(), From: "b1"})
		check(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		if d := cmp.Diff(map[string]string{run + ".a.1": "fail", run + ".a.2": ""}, said); d != "" {
			t.Error(d)
		}
		if a, b := r.row(run+".a.1").Policy.OnOpen, r.row(run+".a.2").Policy.OnOpen; a != parley.OnOpenFail || b != "" {
			t.Errorf("the rows say %q and %q", a, b)
		}
	})
}

// TestR5_BothAnswerAtOnce: an agent that has answered and lost by a moment keeps
// its answer in its row, and the run the other one.
func TestR5_BothAnswerAtOnce(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agents: [one, other], hedge_after: 0s}]")
		run := r.start()
		for _, task := range []string{".a.1", ".a.2"} {
			r.follow(run + task)
		}
		ok, err := r.db.Answer(t.Context(), store.Answer{Result: parley.Result{
			TaskID: run + ".a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`"first"`),
		}, At: time.Now()})
		check(t, err)
		r.settle(run + ".a.2")
		time.Sleep(2 * time.Second)
		if d := cmp.Diff([]string{"one a.1 closed ok", "other a.2 closed ok"}, r.calls(run)); d != "" || !ok {
			t.Errorf("accepted %t: %s", ok, d)
		}
		if got := r.history(run); got[len(got)-1] != "run.completed" {
			t.Errorf("history %q", got)
		}
	})
}

// TestR5_HedgedAgentsAreDeclared: error at validation and at start.
func TestR5_HedgedAgentsAreDeclared(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		_, _, err := r.catalog.Apply(t.Context(), parley.ApplyRequest{Source: []byte(
			"name: talk\nsteps: [{id: a, agents: [one, once], hedge_after: 1s}]",
		), File: "talk.yaml"})
		if problems, ok := errors.AsType[parley.Problems](err); !ok || len(problems) != 1 || !strings.Contains(problems[0].String(), `talk.yaml:2:31: value: hedged agents must be declared idempotent, "once"`) {
			t.Errorf("validation: %v", err)
		}
		r.apply("name: talk\nsteps: [{id: a, agents: [one, once]}]") // one after the other is another matter
		r.apply("name: hedge\nsteps: [{id: a, agents: [one, nobody], hedge_after: 1s}]")
		_, _, err = r.x.Start(t.Context(), parley.StartRequest{Workflow: "hedge"})
		wantCode(t, err, parley.CodeConflict, `Step a of workflow hedge hedges agent "nobody"`)

		// Its declaration is taken back after the workflow was deployed.
		r.apply("name: hedge\nsteps: [{id: a, agents: [one, other], hedge_after: 1s}]")
		r.undeclared.Store(true)
		_, _, err = r.x.Start(t.Context(), parley.StartRequest{Workflow: "hedge"})
		wantCode(t, err, parley.CodeConflict, "parley agent set one --idempotent")
	})
}

// TestR5_CrashNeverCallsMore: with any decision lost before it is written, or
// in doubt after that, agents are called as often as the policy says, in the
// same order.
func TestR5_CrashNeverCallsMore(t *testing.T) {
	for name, tt := range map[string]struct {
		hedge string
		want  []string
	}{
		"fallback": {"", []string{"one a.1", "one a.2", "other a.3", "other a.4"}},
		"hedge":    {"hedge_after: 3s, ", []string{"one a.1", "other a.2", "one a.3", "other a.4"}},
	} {
		for lost := range 8 {
			for _, written := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s decision %d written %t", name, lost, written), func(t *testing.T) {
					onStore(t, func(r *rig) {
						r.apply("name: talk\nsteps: [{id: a, agents: [one, other], " + tt.hedge + "retry: {attempts: 2, delay: 1s}}]")
						r.loses(lost, written)
						run := r.start()
						got := r.failAll(run)
						if d := cmp.Diff(tt.want, got); d != "" {
							t.Error(d)
						}
						s := r.step(run, "a")
						if s.Status != parley.StepFailed || s.Attempts != 4 || !strings.Contains(string(s.Error.Details), `"agent":"one"`) {
							t.Errorf("the step is %s after %d attempts: %v %s", s.Status, s.Attempts, s.Error, s.Error.Details)
						}
					})
				})
			}
		}
	}
}

// loses lets the n-th decision get lost, or its reply.
func (r *rig) loses(n int, written bool) {
	f := func(store.Decision) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n--; n == -1 {
			return errors.New("the connection is gone")
		}
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if written {
		r.doubt = f
	} else {
		r.fault = f
	}
}

// failAll lets every attempt of a run fail until the run has ended, and gives
// what was called in that order.
func (r *rig) failAll(run string) (calls []string) {
	r.t.Helper()
	for range 100 {
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		rows, err := r.db.Attempts(r.t.Context(), run)
		check(r.t, err)
		for i := range rows {
			a := &rows[i]
			if a.State != store.AttemptOpen || time.Until(a.VisibleAt) > 5*time.Second {
				continue
			}
			r.lease()
			r.follow(a.ID)
			calls = append(calls, a.Agent+" "+strings.TrimPrefix(a.ID, run+"."))
			_, err := r.x.Answer(r.t.Context(), store.Answer{Result: parley.Result{
				TaskID: a.ID, Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentError, "no"),
			}, At: time.Now(), From: "b1"})
			check(r.t, err)
		}
		v, err := r.x.Get(r.t.Context(), run)
		check(r.t, err)
		if v.Status.Terminal() {
			return calls
		}
	}
	r.t.Fatalf("the run does not end: %q", r.calls(run))
	return nil
}
