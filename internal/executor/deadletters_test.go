package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// deploy puts a workflow beside the rig's own.
func (r *rig) deploy(source string) {
	r.t.Helper()
	n := 1
	catalog := executor.NewCatalog(executor.CatalogConfig{
		DB: r.db, Executor: r.x, Now: time.Now, NewID: func() string { n++; return fmt.Sprintf("definition-%d", n) },
		KnownAgent: func(context.Context, string) bool { return true },
	})
	_, _, err := catalog.Apply(r.t.Context(), parley.ApplyRequest{Source: []byte(source)})
	check(r.t, err)
}

func (r *rig) begin(req parley.StartRequest) string {
	r.t.Helper()
	run, _, err := r.x.Start(r.t.Context(), req)
	check(r.t, err)
	return run.ID
}

// fail ends a task with an error of the agent.
func (r *rig) fail(task string) {
	r.t.Helper()
	e := parley.Errorf(parley.CodeAgentError, "HTTP 500: no").WithDetails(map[string]any{"status": 500})
	_, err := r.x.Answer(r.t.Context(), store.Answer{
		Result: parley.Result{TaskID: task, Outcome: parley.OutcomeError, Err: e}, At: time.Now(), From: "b1",
	})
	check(r.t, err)
}

// letters gives all dead letters, oldest first, whole.
func (r *rig) letters() (list []parley.DeadLetter) {
	r.t.Helper()
	heads, _, err := r.db.DeadLetters(r.t.Context(), parley.DeadLetterQuery{Ascending: true})
	check(r.t, err)
	for i := range heads {
		l, err := r.db.DeadLetter(r.t.Context(), heads[i].ID)
		check(r.t, err)
		list = append(list, l)
	}
	return list
}

// TestDeadLetters_UsedUp: a step that has used up its policy and lets the run
// fail is one dead letter, with everything that is known of it, and no write
// more than without.
func TestDeadLetters_UsedUp(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.deploy("name: stubborn\nsteps:\n  - {id: a, agent: writer, input: {text: hé}, retry: {attempts: 2, delay: 10s}}\n  - {id: b, agent: writer}\n")
		var mu sync.Mutex
		var sent map[string]string // the headers of the last record
		_, err := r.bus.Subscribe(t.Context(), bus.SubjectTasks, "test", func(_ context.Context, m bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			sent = m.Header
			return nil
		})
		check(t, err)
		run := r.begin(parley.StartRequest{Workflow: "stubborn", Priority: new(9)})
		first := time.Now().UTC()
		r.fail(run + ".a.1")
		if list := r.letters(); len(list) > 0 {
			t.Fatalf("given up before its last attempt: %+v", list)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := r.db.SyncedCommits()
		r.fail(run + ".a.2")
		if n := r.db.SyncedCommits() - before; n != 1 {
			t.Errorf("%d synced writes", n)
		}
		list := r.letters()
		if len(list) != 1 {
			t.Fatalf("%d dead letters", len(list))
		}
		value, err := records.AgentTask{
			RunID: run, TaskID: run + ".a.2", AgentName: "writer", Input: []byte(`{"text":"hé"}`), CorrelationID: "corr-" + run + ".a.2", At: list[0].CreatedAt,
		}.Encode()
		check(t, err)
		want := parley.DeadLetter{
			Kind: parley.DeadLetterTask, Code: parley.CodeAgentError, Reason: "HTTP 500: no", Attempts: 2, Agent: "writer",
			Workflow: "stubborn", Run: run, Step: "a", Task: run + ".a.2", HTTPStatus: 500,
			FirstFailedAt: first, CreatedAt: first.Add(10 * time.Second), Key: []byte(run), Value: value,
			Headers: []parley.DeadLetterHeader{
				{Name: "correlation-id", Value: []byte("corr-" + run + ".a.2")},
				{Name: "idempotency-key", Value: []byte(run + ".a.2")},
				{Name: "parley-task", Value: []byte("1")},
				{Name: "parley-turn", Value: fmt.Append(nil, first.Add(-5*parley.PriorityWait).UnixMicro())},
			},
		}.Seal()
		if d := cmp.Diff(want, list[0]); d != "" {
			t.Error(d)
		}
		mu.Lock()
		defer mu.Unlock()
		if d := cmp.Diff(parley.DeadLetterHeaders(sent), list[0].Headers); d != "" {
			t.Errorf("the record had other headers: %s", d)
		}
	})
}

// TestDeadLetters_WhatTheAgentSays: the reason has the words of an agent whose task has
// failed, also if that was in a run that the step has started, and can be found by them.
func TestDeadLetters_WhatTheAgentSays(t *testing.T) {
	onStore(t, func(r *rig) {
		says := func(run string) {
			e := parley.Errorf(parley.CodeAgentError, "the agent's task has failed").WithDetails(map[string]any{"state": "failed", "message": "no ink left"})
			_, err := r.x.Answer(r.t.Context(), store.Answer{
				Result: parley.Result{TaskID: run + ".a.1", Outcome: parley.OutcomeError, Err: e}, At: time.Now(), From: "b1",
			})
			check(r.t, err)
			synctest.Wait()
		}
		r.apply(onePart)
		r.apply("name: talk\nsteps:\n  - {id: one, workflow: part}\n")
		says(r.begin(parley.StartRequest{Workflow: "part"}))
		says(r.child(r.start(), "one"))
		list, _, err := r.db.DeadLetters(r.t.Context(), parley.DeadLetterQuery{Filter: parley.DeadLetterFilter{Reason: "no ink"}})
		check(r.t, err)
		if len(list) != 2 {
			r.t.Fatalf("dead letters: %+v", list)
		}
		for _, l := range list {
			if !strings.HasSuffix(l.Reason, "the agent's task has failed (no ink left)") {
				r.t.Errorf("the reason of %s: %s", l.Step, l.Reason)
			}
		}
	})
}

// TestDeadLetters_None: what is handled, cancelled, or was no task is none.
func TestDeadLetters_None(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		status parley.RunStatus
		act    func(r *rig, run string)
	}{
		"handled": {
			"{id: a, agent: writer, on_error: continue}", parley.RunCompleted,
			func(r *rig, run string) { r.fail(run + ".a.1") },
		},
		"handled, then failed by the author": {
			"{id: a, agent: writer, on_error: continue}\n  - {id: b, fail: {code: Stop}}", parley.RunFailed,
			func(r *rig, run string) { r.fail(run + ".a.1") },
		},
		"cancelled": {
			"{id: a, agent: writer}", parley.RunCancelled,
			func(r *rig, run string) {
				_, err := r.x.Cancel(r.t.Context(), parley.CancelRequest{Run: run})
				check(r.t, err)
			},
		},
		"failed while it is cancelled": {
			"{id: a, agent: writer}", parley.RunCancelled,
			func(r *rig, run string) {
				r.follow(run + ".a.1")
				_, err := r.x.Cancel(r.t.Context(), parley.CancelRequest{Run: run})
				check(r.t, err)
				r.fail(run + ".a.1")
			},
		},
		"an expression": {
			"{id: a, set: \"${1 / 0}\"}", parley.RunFailed, func(*rig, string) {},
		},
		"the run's own timeout": {
			"{id: a, agent: writer}\ntimeout: 1m", parley.RunFailed, func(*rig, string) { time.Sleep(61 * time.Second) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				r.deploy("name: other\nsteps:\n  - " + test.source + "\n")
				run := r.begin(parley.StartRequest{Workflow: "other"})
				test.act(r, run)
				synctest.Wait()
				v, err := r.x.Get(r.t.Context(), run)
				check(r.t, err)
				if v.Status != test.status {
					r.t.Fatalf("the run is %s: %v", v.Status, v.Error)
				}
				if list := r.letters(); len(list) > 0 {
					r.t.Errorf("dead letters: %+v", list)
				}
			})
		})
	}
}

// TestDeadLetters_AgentCall: whoever calls an agent by hand sees the error.
func TestDeadLetters_AgentCall(t *testing.T) {
	onStore(t, func(r *rig) {
		run := r.begin(parley.StartRequest{CallAgent: "writer"})
		r.fail(run + ".call.1")
		synctest.Wait()
		v, err := r.x.Get(r.t.Context(), run)
		check(r.t, err)
		if list := r.letters(); v.Status != parley.RunFailed || len(list) > 0 {
			r.t.Errorf("%s, dead letters: %+v", v.Status, list)
		}
	})
}

// TestDeadLetters_Timeout: a step whose own time is up is given up, too.
func TestDeadLetters_Timeout(t *testing.T) {
	onStore(t, func(r *rig) {
		r.deploy("name: slow\nsteps:\n  - {id: a, agent: writer, timeout: 10s}\n")
		run := r.begin(parley.StartRequest{Workflow: "slow"})
		time.Sleep(11 * time.Second)
		synctest.Wait()
		list := r.letters()
		if len(list) != 1 || list[0].Code != parley.CodeTimeout || list[0].Task != run+".a.1" {
			r.t.Errorf("%+v", list)
		}
	})
}

// TestDeadLetters_Children: a step fails with the run that it has started, so what
// is given up is that step, once, and a replay goes on with the run that was
// asked for. What is handled there is none, and a detached run stands alone.
func TestDeadLetters_Children(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.deploy(onePart)
		r.deploy("name: middle\nsteps:\n  - {id: m, workflow: part, input: {n: 2}}\n")
		r.deploy("name: above\nsteps:\n  - {id: one, workflow: middle, input: {n: 1}}\n  - {id: two, set: 1}\n")
		run := r.begin(parley.StartRequest{Workflow: "above"})
		leaf := r.child(r.child(run, "one"), "m")
		r.fail(leaf + ".a.1")
		synctest.Wait()
		list := r.letters()
		if len(list) != 1 {
			t.Fatalf("%d dead letters: %+v", len(list), list)
		}
		l := list[0]
		if l.Kind != parley.DeadLetterTask || l.Run != run || l.Step != "one" || l.Workflow != "above" || l.Agent != "writer" || l.Code != parley.CodeAgentError ||
			l.HTTPStatus != 500 || !strings.Contains(l.Reason, leaf) || string(l.Value) != `{"n":1}` {
			t.Errorf("%+v", l)
		}
		next, err := r.x.Replay(t.Context(), run, parley.ReplayRequest{ID: l.ID, By: "ann"})
		check(t, err)
		r.settle(r.child(r.child(next.ID, "one"), "m") + ".a.1")
		synctest.Wait()
		if v := r.get(next.ID); v.Status != parley.RunCompleted || r.letters()[0].State != parley.DeadLetterReplayed {
			t.Errorf("replayed: %s, %+v", v.Status, r.letters())
		}

		for n, step := range []string{"workflow: part, input: {n: 1}, on_error: continue", "workflow: part, input: {n: 1}, detach: true"} {
			name := fmt.Sprint("other", n)
			r.deploy("name: " + name + "\nsteps:\n  - {id: one, " + step + "}\n")
			child := r.child(r.begin(parley.StartRequest{Workflow: name}), "one")
			r.fail(child + ".a.1")
			synctest.Wait()
			if list := r.letters()[1:]; len(list) != n || n == 1 && list[0].Run != child {
				t.Errorf("%s: %+v", step, list)
			}
		}
	})
}

// TestDeadLetters_CommitInDoubt: a decision whose reply is lost, before or behind
// its commit, leaves one dead letter.
func TestDeadLetters_CommitInDoubt(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written %t", written), func(t *testing.T) {
			onStore(t, func(r *rig) {
				run := r.start()
				lost := false
				r.breaks(func(d store.Decision) error {
					if lost || len(d.DeadLetters) == 0 {
						return nil
					}
					lost = true
					if written {
						check(r.t, r.db.Decide(r.t.Context(), d))
					}
					return errors.New("the reply is lost")
				})
				r.fail(run + ".a.1")
				time.Sleep(2 * time.Second) // a sweep
				synctest.Wait()
				v, err := r.x.Get(r.t.Context(), run)
				check(r.t, err)
				if list := r.letters(); !lost || v.Status != parley.RunFailed || len(list) != 1 {
					r.t.Errorf("lost %t, %s, dead letters %+v", lost, v.Status, list)
				}
			})
		})
	}
}

// TestDeadLetters_Replay: the new run goes on from the failed step, the dead
// letter is its own only once, and a run that fails again is one of its own.
func TestDeadLetters_Replay(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		r.settle(run + ".a.1")
		r.fail(run + ".b.1")
		l := r.letters()[0]
		next, err := r.x.Replay(t.Context(), run, parley.ReplayRequest{ID: l.ID, By: "ann"})
		check(t, err)
		if next.RetriedFrom != run || next.Steps[0].Status != parley.StepCompleted || next.Steps[1].Status != parley.StepRunning {
			t.Errorf("%+v", next)
		}
		_, err = r.x.Replay(t.Context(), run, parley.ReplayRequest{ID: l.ID, By: "ann"})
		wantCode(t, err, parley.CodeConflict, "--force")
		r.fail(next.ID + ".b.1")
		list := r.letters()
		if len(list) != 2 || list[0].State != parley.DeadLetterReplayed || list[0].ReplayRun != next.ID || list[1].Run != next.ID {
			t.Errorf("%+v", list)
		}
		last, err := r.x.Retry(t.Context(), next.ID, "ann")
		check(t, err)
		if l := r.letters()[1]; l.State != parley.DeadLetterReplayed || l.ReplayRun != last.ID {
			t.Errorf("a retry of the run leaves %+v", l)
		}
	})
}
