package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/store"
)

var _ bridge.Ledger = (*store.DB)(nil)

// sqlRig is a hand-off over the real store.
type sqlRig struct {
	*rig
	db *store.DB
}

// onSQLite runs f with bridges over a real database, in virtual time.
func onSQLite(t *testing.T, f func(r *sqlRig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(t.Context(), file, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		r := &sqlRig{db: db, rig: &rig{
			t: t, ledger: newModel(), bus: memory.New(memory.Options{}), agents: newAgentBook(),
			agent: newScripted(parley.ProtocolSimpleA2A), long: newScripted(parley.ProtocolJSONRPC), woken: map[string]int{}, stop: stop,
		}}
		r.wg.Go(func() {
			for ctx.Err() == nil {
				r.publishOpen(ctx)
				time.Sleep(time.Second)
			}
		})
		f(r)
		r.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// publishOpen is P2 and P10.
func (r *sqlRig) publishOpen(ctx context.Context) {
	rows, err := r.db.Publish(ctx, time.Now(), 100)
	if err != nil {
		return
	}
	for _, a := range rows {
		v, _ := json.Marshal(map[string]any{"run_id": a.Run, "task_id": a.ID, "agent_name": a.Agent, "input_data": a.Input})
		header := map[string]string{bus.HeaderOnOpen: string(a.Policy.OnOpen)}
		if err := r.bus.Publish(ctx, bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: v, Header: header}); err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
	}
	if _, err := r.db.Sweep(ctx, nil, time.Now()); err != nil && ctx.Err() == nil {
		r.t.Error(err)
	}
}

// begin starts a run of one attempt (P1).
func (r *sqlRig) begin(agent string, n int, adjust func(*store.Attempt)) string {
	r.t.Helper()
	run := fmt.Sprintf("run-%s-%d", agent, n)
	now := time.Now().UTC()
	a := store.Attempt{
		Task:   parley.Task{ID: run + ".a.1", Run: run, Step: "a", Attempt: 1, Agent: agent, Input: json.RawMessage(`{}`), CorrelationID: "c"},
		Policy: store.Policy{OutcomeUnknown: parley.OutcomeFail, Silence: 5 * time.Minute}, State: store.AttemptOpen, VisibleAt: now,
	}
	if adjust != nil {
		adjust(&a)
	}
	_, err := r.db.StartRun(r.t.Context(), store.Start{
		Run: store.Run{
			ID: run, Workflow: "w", Name: "w", Version: "1", DefinitionID: "d", Seq: 1, Status: parley.RunRunning,
			CreatedAt: now, UpdatedAt: now, StartedAt: now,
		},
		Events:   []parley.Event{{Seq: 1, At: now, Type: parley.EventRunStarted, Run: run, Data: json.RawMessage(`{}`)}},
		Attempts: []store.Attempt{a},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return a.ID
}

func (r *sqlRig) life(name string) *process {
	return r.start(name, func(cfg *bridge.Config, _ *process) {
		cfg.Ledger, cfg.DrainGrace = r.db, time.Millisecond
	})
}

func (r *sqlRig) attempt(id string) store.Attempt {
	r.t.Helper()
	list, err := r.db.Attempts(r.t.Context(), id[:len(id)-len(".a.1")])
	if err != nil || len(list) != 1 {
		r.t.Fatalf("%s: %d attempts, %v", id, len(list), err)
	}
	return list[0]
}

func (r *sqlRig) expect(id string, o parley.Outcome, code parley.Code) store.Attempt {
	r.t.Helper()
	for range 1200 {
		a := r.attempt(id)
		if a.State != store.AttemptSettled {
			r.wait(500 * time.Millisecond)
			continue
		}
		got := parley.Code("")
		if a.Result.Err != nil {
			got = a.Result.Err.Code
		}
		if a.Result.Outcome != o || got != code {
			r.t.Errorf("%s: %s %s (%v), want %s %s", id, a.Result.Outcome, got, a.Result.Err, o, code)
		}
		return a
	}
	r.t.Fatalf("%s is %+v", id, r.attempt(id))
	return store.Attempt{}
}

// TestStoreTask: record, claim, call, answer; and a claim that was written
// together with the attempt costs no write of its own.
func TestStoreTask(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		p := r.life("b")
		id := r.begin("one", 1, nil)
		a := r.expect(id, parley.OutcomeOK, "")
		if string(a.Result.Output) != `{"n":1}` || a.Claim.Worker != "b" {
			t.Errorf("%+v", a)
		}
		before := r.db.SyncedCommits()
		slot, ok := p.Reserve("one")
		if !ok {
			t.Fatal("no slot")
		}
		claimed := r.begin("one", 2, func(a *store.Attempt) { a.State, a.Claim, a.ClaimedAt = store.AttemptClaimed, slot.Claim, time.Now() })
		slot.Start(r.attempt(claimed))
		r.expect(claimed, parley.OutcomeOK, "")
		if n := r.db.SyncedCommits() - before; n != 2 {
			t.Errorf("%d synced commits from start to answer, want 2", n)
		}
		r.wantCalls(r.agent, claimed, 1)
		p.stop()
	})
}

// TestStorePolicies: lost outcomes, by policy.
func TestStorePolicies(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch {
			case task.Run == "run-one-4":
				return notSent(), nil
			case n < 3 || task.Run == "run-one-3":
				return lost(), nil
			}
			return answered(task, "3"), nil
		}
		p := r.life("b")
		resend, fail := r.begin("one", 1, policy(parley.OutcomeResend)), r.begin("one", 2, policy(parley.OutcomeFail))
		spent, refused := r.begin("one", 3, policy(parley.OutcomeResend)), r.begin("one", 4, nil)
		if a := r.expect(resend, parley.OutcomeOK, ""); a.Orphanings != 2 {
			t.Errorf("%d orphanings", a.Orphanings)
		}
		r.expect(fail, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		r.expect(spent, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		r.expect(refused, parley.OutcomeError, parley.CodeAgentUnavailable)
		for id, n := range map[string]int{resend: 3, fail: 1, spent: 3, refused: 1} {
			r.wantCalls(r.agent, id, n)
		}
		p.stop()
	})
}

// TestStoreRestart: claimed and followed attempts of a bridge that was cut off
// go on in its next life.
func TestStoreRestart(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		first := true
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if first {
				return hang(ctx), nil
			}
			return answered(task, "1"), nil
		}
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			if first {
				return accepted(task, "working"), nil
			}
			return answered(task, "2"), nil
		}
		p := r.life("b")
		resend, fail := r.begin("one", 1, policy(parley.OutcomeResend)), r.begin("one", 2, policy(parley.OutcomeFail))
		long := r.begin("long", 1, policy(parley.OutcomeFail))
		r.wait(3 * time.Second)
		p.stop()
		if a := r.attempt(long); a.State != store.AttemptFollowing || a.AgentTaskID != "agent-"+long {
			t.Errorf("%s %q", a.State, a.AgentTaskID)
		}
		first = false
		q := r.life("b")
		if a := r.expect(resend, parley.OutcomeOK, ""); a.Orphanings != 1 {
			t.Errorf("%d orphanings", a.Orphanings)
		}
		r.expect(fail, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		r.expect(long, parley.OutcomeOK, "")
		for id, n := range map[string]int{resend: 2, fail: 1} {
			r.wantCalls(r.agent, id, n)
		}
		r.wantCalls(r.long, long, 1)
		q.stop()
	})
}

// TestStoreCancel: a cancel that is in the row only.
func TestStoreCancel(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			return accepted(task, "working"), nil
		}
		p := r.life("b")
		for _, id := range []string{r.begin("one", 1, nil), r.begin("long", 1, nil)} {
			r.wait(3 * time.Second)
			run, err := r.db.RunRow(r.t.Context(), id[:len(id)-len(".a.1")])
			if err != nil {
				t.Fatal(err)
			}
			run.Seq, run.Cancelling, run.UpdatedAt = 2, true, time.Now()
			err = r.db.Decide(r.t.Context(), store.Decision{
				Run: run, Seen: 1, RequestCancel: []string{id},
				Events: []parley.Event{{Seq: 2, At: time.Now(), Type: parley.EventRunCancelling, Run: run.ID, Data: json.RawMessage(`{}`)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			r.expect(id, parley.OutcomeCancelled, parley.CodeCancelled)
		}
		p.stop()
	})
}
