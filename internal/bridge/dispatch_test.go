package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// TestDuplicates: every record is delivered three times, shuffled, and again
// after the end; each task is called once (protocol.md §4.9).
func TestDuplicates(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 100*time.Millisecond), nil
		}
		p, q := r.start("b", nil), r.start("c", nil)
		var ids []string
		for i := range 100 {
			ids = append(ids, r.task("one", i, nil))
		}
		again := append(append(append([]string(nil), ids...), ids...), ids...)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		for _, id := range again {
			r.announce(id)
		}
		for _, id := range ids {
			r.want(id, parley.OutcomeOK, "")
		}
		for _, id := range ids {
			r.announce(id)
		}
		r.wait(10 * time.Second)
		for _, id := range ids {
			r.wantCalls(r.agent, id, 1)
		}
		p.stop()
		q.stop()
	})
}

// TestHeldRecords: a record of what is in hand already is dropped without a
// word to the ledger.
func TestHeldRecords(t *testing.T) {
	inBubble(t, func(r *rig) {
		reg := prometheus.NewRegistry()
		r.agents.put(parley.Agent{Name: "narrow", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, time.Second), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = bridge.NewMetrics(reg) })
		called, waits := r.task("narrow", 1, nil), r.task("narrow", 2, nil)
		for range 4 {
			r.announce(called)
			r.announce(waits)
			synctest.Wait()
		}
		got := gathered(t, reg)
		if got["parley_bridge_records_total fate=duplicate"] != 6 || got["parley_bridge_records_total fate=refused"] != 0 {
			t.Error(got)
		}
		r.want(called, parley.OutcomeOK, "")
		r.want(waits, parley.OutcomeOK, "")
		p.stop()
	})
}

// TestDeadAgent: a thousand tasks for an agent that hangs do not delay another
// agent's (promise 7).
func TestDeadAgent(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "dead", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 10})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Agent == "dead" {
				return hang(ctx), nil
			}
			return takes(ctx, task, 50*time.Millisecond), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Limits.QueuePerAgent, cfg.DrainGrace = 200, time.Millisecond
		})
		for i := range 1000 {
			r.announce(r.task("dead", i, nil))
		}
		r.wait(1500 * time.Millisecond)
		if n := r.ledger.count("P3"); n < 790 {
			t.Errorf("%d tasks were deferred at once, 10 are called and 200 wait", n)
		}
		for i := range 50 {
			begun := time.Now()
			id := r.task("one", i, nil)
			r.announce(id)
			r.want(id, parley.OutcomeOK, "")
			if d := time.Since(begun); d > 100*time.Millisecond {
				t.Fatalf("a task of the other agent took %v", d)
			}
		}
		if n := r.ledger.count("P3"); n < 900 {
			t.Errorf("%d tasks were deferred", n)
		}
		r.agent.mu.Lock()
		if n := r.agent.agents["dead"]; n != 10 {
			t.Errorf("%d calls, the agent takes 10", n)
		}
		r.agent.mu.Unlock()
		p.stop()
	})
}

// TestSlowAgent: deferred tasks are all called once, and the agent is kept
// busy with them.
func TestSlowAgent(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "slow", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 5})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 5*time.Second), nil
		}
		p := r.start("b", nil)
		const tasks = 150
		for i := range tasks {
			r.task("slow", i, nil)
		}
		begun := time.Now()
		for i := range tasks {
			a := r.settled(fmt.Sprintf("run-slow-%d.a.1", i), time.Hour)
			r.wantCalls(r.agent, a.ID, 1)
		}
		if d := time.Since(begun); d > 165*time.Second {
			t.Errorf("%v for 150 s of work", d)
		}
		p.stop()
	})
}

// TestGlobalLimit: agents that hang never take the last slots: with k of them
// another agent finds one part in k + 1 free.
func TestGlobalLimit(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if strings.HasPrefix(task.Agent, "hangs") {
				return takes(ctx, task, time.Hour), nil
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.Global, cfg.Limits.PerAgent = 60, 60 })
		for _, agent := range []string{"hangs-1", "hangs-2", "hangs-3", "hangs-4"} {
			r.agents.put(parley.Agent{Name: agent, Protocol: parley.ProtocolSimpleA2A})
			for i := range 100 {
				r.announce(r.task(agent, i, nil))
			}
			synctest.Wait()
		}
		r.agent.mu.Lock()
		busy := r.agent.busy
		r.agent.mu.Unlock()
		if busy >= 60 || busy < 50 {
			t.Errorf("%d calls in flight, the limit is 60 and some stay free", busy)
		}
		for i := range 20 {
			id := r.task("one", i, nil)
			r.announce(id)
			synctest.Wait()
			r.wantCalls(r.agent, id, 1)
		}
		for range 3 {
			if slot, ok := p.Reserve("one"); !ok {
				t.Error("no slot for an agent that answers")
			} else {
				slot.Release()
			}
		}
		r.stopHanging(p)
	})
}

// stopHanging ends a bridge whose calls do not end.
func (r *rig) stopHanging(p *process) {
	p.cancel()
	<-p.ended
}

// TestFollowedTasksNeedNoSlot: tasks that are only followed leave the slots to
// others, unless the record says what the agent can take.
func TestFollowedTasksNeedNoSlot(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "strict", Protocol: parley.ProtocolJSONRPC, MaxConcurrent: 2})
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			return accepted(task, "working"), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Limits = bridge.Limits{Global: 8, PerAgent: 2, Following: 30}
		})
		for i := range 5 {
			r.task("strict", i, nil)
		}
		r.wait(10 * time.Second)
		if n := r.long.count(r.long.agents, "strict"); n != 2 {
			t.Errorf("%d calls, the record says 2", n)
		}
		for i := range 40 {
			r.task("long", i, nil)
		}
		r.wait(time.Minute)
		if n := r.long.count(r.long.agents, "long"); n < 28 || n > 32 {
			t.Errorf("%d tasks are followed besides 2, the limit is 30", n)
		}
		p.stop()
	})
}

// TestInvalidRecords: a record that makes no sense is dropped, counted, and
// stops nothing.
func TestInvalidRecords(t *testing.T) {
	inBubble(t, func(r *rig) {
		reg := prometheus.NewRegistry()
		metrics := bridge.NewMetrics(reg)
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = metrics })
		for _, v := range []string{"", "null", "[]", "{", `{"task_id":1}`, `{"task_id":"x"}`, `{"task_id":"","agent_name":"one"}`} {
			if err := r.bus.Publish(r.t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "k", Value: []byte(v)}); err != nil {
				t.Fatal(err)
			}
		}
		gone, _ := json.Marshal(map[string]string{"task_id": "run-x.a.1", "agent_name": "one"})
		if err := r.bus.Publish(r.t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "k", Value: gone}); err != nil {
			t.Fatal(err)
		}
		id := r.task("one", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		p.stop()
		want := map[string]float64{
			`agent_protocol_requests_total agent_name=one protocol=simple-a2a`: 1,
			`parley_bridge_records_total fate=invalid`:                         7,
			`parley_bridge_records_total fate=queued`:                          2,
			`parley_bridge_records_total fate=refused`:                         1,
			`parley_agent_call_duration_seconds agent_name=one`:                1,
			`parley_agent_calls_in_flight agent_name=one`:                      0,
		}
		if diff := cmp.Diff(want, gathered(t, reg)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestMetrics: the names and labels of AD-11.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := bridge.NewMetrics(reg)
	var obs bridge.TranslationObserver = m
	for range 2 {
		obs.Translated("jsonrpc-2.0", "request", 3*time.Microsecond)
	}
	obs.TranslationError("simple-a2a", "response", "not_json")
	bridge.NewMetrics(reg).TranslationError("simple-a2a", "response", "not_json")
	(*bridge.Metrics)(nil).Translated("a", "b", 0)
	(*bridge.Metrics)(nil).TranslationError("a", "b", "c")
	want := map[string]float64{
		`protocol_translation_errors_total direction=response error_type=not_json protocol=simple-a2a`: 2,
		`protocol_translation_duration_seconds direction=request protocol=jsonrpc-2.0`:                 2,
	}
	if diff := cmp.Diff(want, gathered(t, reg)); diff != "" {
		t.Error(diff)
	}
}

// gathered gives the value of each counter, and how often each histogram has
// been observed.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				name.WriteString(" " + l.GetName() + "=" + l.GetValue())
			}
			if h := m.GetHistogram(); h != nil {
				all[name.String()] = float64(h.GetSampleCount())
			} else {
				all[name.String()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return all
}

// TestLogs: what went wrong is logged once with everything that finds it again
// (BR-7.4, BR-7.5), and no secret.
func TestLogs(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Credential: parley.NewSecret([]byte("hunter2"))})
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil }
		var buf safeBuffer
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Logger = slog.New(slog.NewJSONHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		id := r.task("one", 1, nil)
		r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		p.stop()
		found := false
		for line := range strings.Lines(buf.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			if m["event"] == nil {
				t.Errorf("no event: %s", line)
			}
			if m["level"] == "ERROR" {
				found = true
				for name, want := range map[string]string{"event": "agent_outcome_unknown", "task_id": id, "agent": "one", "correlation_id": "corr-run-one-1", "run": "run-one-1"} {
					if m[name] != want {
						t.Errorf("%s is %v, want %s", name, m[name], want)
					}
				}
			}
		}
		if !found || strings.Contains(buf.String(), "hunter2") {
			t.Errorf("log:\n%s", buf.String())
		}
	})
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestProgress: what a working agent reports goes out, not too often.
func TestProgress(t *testing.T) {
	inBubble(t, func(r *rig) {
		var mu sync.Mutex
		var got []map[string]any
		stop, err := r.bus.Subscribe(r.t.Context(), bus.SubjectProgress, "", func(_ context.Context, m bus.Message) error {
			var v map[string]any
			if err := json.Unmarshal(m.Value, &v); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, v)
			if m.Key != "run-one-1" {
				t.Errorf("key %q", m.Key)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			for range 100 {
				p(bridge.Report{State: "working", Text: "page"})
				time.Sleep(10 * time.Millisecond)
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		synctest.Wait()
		mu.Lock()
		// Four in the second, and what was left at its end.
		if len(got) != 5 || got[0]["task_id"] != id || got[0]["state"] != "working" || got[0]["text"] != "page" {
			t.Errorf("%d reports in a second: %v", len(got), got)
		}
		mu.Unlock()
		stop()
		p.stop()
	})
}

// TestWakeupLost: a bus that takes nothing holds no call up: wake-ups are hints.
func TestWakeupLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Bus = deafBus{cfg.Bus} })
		id := r.task("one", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		p.stop()
	})
}

type deafBus struct{ bus.Bus }

func (deafBus) Publish(context.Context, bus.Message) error { return errDoubt }

// TestAnswerWakes: no wake-up where the ledger does it.
func TestAnswerWakes(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.AnswerWakes = true })
		id, fails := r.task("one", 1, nil), r.task("nobody", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		r.want(fails, parley.OutcomeError, parley.CodeUnknownAgent)
		synctest.Wait()
		if r.wakeups("run-one-1") != 0 || r.wakeups("run-nobody-1") != 1 {
			t.Errorf("%d and %d wake-ups", r.wakeups("run-one-1"), r.wakeups("run-nobody-1"))
		}
		p.stop()
	})
}

// TestUnrecordable: an answer that the ledger refuses to hold ends the attempt
// all the same, with an error that says so.
func TestUnrecordable(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Ledger = narrowLedger{cfg.Ledger} })
		id := r.task("one", 1, nil)
		a := r.want(id, parley.OutcomeError, parley.CodeAgentError)
		if !strings.Contains(a.Result.Err.Message, "too large") {
			t.Error(a.Result.Err)
		}
		p.stop()
	})
}

type narrowLedger struct{ bridge.Ledger }

// TestInvalidMove: if the ledger takes a move for nonsense, which is a mistake
// in the program, what was sent is not taken for never sent.
func TestInvalidMove(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil }
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Ledger = narrowLedger{cfg.Ledger} })
		id := r.task("one", 1, nil)
		r.wait(30 * time.Second)
		r.wantCalls(r.agent, id, 1)
		if a := r.ledger.row(id); a.State != store.AttemptClaimed {
			t.Errorf("%s", a.State)
		}
		p.stop()
	})
}

// goneLedger is one whose rows are gone as soon as a call has ended.
type goneLedger struct{ bridge.Ledger }

func (l goneLedger) Move(ctx context.Context, m store.Move) (bool, error) {
	if m.Kind == store.MoveUnknown {
		return false, parley.Errorf(parley.CodeNotFound, "there is no such attempt")
	}
	return l.Ledger.Move(ctx, m)
}

// TestMoveOfNoRow: what cannot be written, since its row is gone, is not written for ever:
// the next task has the slot.
func TestMoveOfNoRow(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Run == "run-one-1" {
				return lost(), nil
			}
			return answered(task, "2"), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Ledger = goneLedger{cfg.Ledger} })
		r.announce(r.task("one", 1, nil))
		r.wait(time.Second)
		id := r.task("one", 2, nil)
		r.announce(id)
		if a := r.settled(id, 10*time.Second); a.Result.Outcome != parley.OutcomeOK {
			t.Errorf("it is %s", a.Result.Outcome)
		}
		p.stop()
	})
}

func (l narrowLedger) Move(ctx context.Context, m store.Move) (bool, error) {
	if m.Kind == store.MoveUnknown {
		return false, parley.Errorf(parley.CodeInvalid, "nonsense")
	}
	return l.Ledger.Move(ctx, m)
}

func (l narrowLedger) Answer(ctx context.Context, a store.Answer) (bool, error) {
	if len(a.Result.Output) > 0 {
		return false, parley.Errorf(parley.CodeLimit, "too large")
	}
	return l.Ledger.Answer(ctx, a)
}
