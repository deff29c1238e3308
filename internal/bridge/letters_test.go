package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// message is the record of a task, with headers that its executor never writes.
func message(t *testing.T, rec records.AgentTask) bus.Message {
	t.Helper()
	value, err := rec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return bus.Message{
		Subject: bus.SubjectTasks, Key: rec.RunID, Value: value,
		Header: map[string]string{"traceparent": "00-1", "x-api-key": "a secret"},
	}
}

// A foreign task that has used up its policy is answered and kept, once, with
// what is known of its record; one that succeeds is not.
func TestForeignDeadLetter(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		outs := map[string]bridge.Outcome{
			"refused": withStatus(bridge.Answered, 404), "broken": withStatus(bridge.Answered, 500), "lost": failed(bridge.Lost, parley.CodeAgentUnavailable, "cut"),
		}
		var mu sync.Mutex // protects failed
		failed := map[string]time.Time{}
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			name, _, _ := strings.Cut(task.ID, ".")
			mu.Lock()
			if failed[name].IsZero() {
				failed[name] = time.Now().UTC()
			}
			mu.Unlock()
			if out, ok := outs[name]; ok {
				return out, nil
			}
			return answered(task, `{"text":"hello"}`), nil
		}
		r.begin("b", nil)
		want := map[string]bus.DeadLetter{
			"refused": {Attempts: 1, Code: "agent_unavailable", HTTPStatus: 404},
			"broken":  {Attempts: 3, Code: "agent_unavailable", HTTPStatus: 500},
			"lost":    {Attempts: 1, Code: "outcome_unknown"},
		}
		sent := map[string]bus.Message{}
		for i, task := range []string{"fine", "refused", "broken", "lost"} {
			m := message(r.t, record(task, "one"))
			r.publish(m)
			r.wait(time.Second)
			m.Header["x-api-key"] = parley.Redacted
			m.At = bus.Position{Topic: "tasks.topic", Partition: 3, Offset: int64(i)}
			sent[task] = m
		}
		for task := range want {
			r.result(task, 280*time.Second)
		}
		r.wait(30 * time.Second)
		r.wantQuiet()
		letters := r.letters()
		if len(letters) != len(want) {
			r.t.Errorf("%d dead letters, want %d", len(letters), len(want))
		}
		for _, got := range letters {
			w, result := want[got.Task], r.result(got.Task, time.Second)
			w.Message, w.Group, w.Agent, w.Run, w.Task, w.Foreign = sent[got.Task], "external-agent-executor-group", "one", "run-"+got.Task, got.Task, true
			w.Reason = result.Error
			if first := got.FirstFailedAt; !first.IsZero() || w.Attempts > 1 { // else it was given up at once
				if want := failed[got.Task].Truncate(time.Microsecond); !first.Equal(want) {
					r.t.Errorf("%s failed first at %s, want %s", got.Task, first, want)
				}
			}
			got.FirstFailedAt = time.Time{}
			if diff := cmp.Diff(w, got, cmpopts.IgnoreFields(bus.Message{}, "Headers")); diff != "" {
				r.t.Errorf("%s (-want +got):\n%s", got.Task, diff)
			}
		}
	})
}

// Tasks that never got a slot are kept, too, each with the place of its own
// record, also if that was written down by a bridge that is gone.
func TestForeignDeadLetterLate(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.MaxConcurrent = 1
		r.agents.put(a)
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		first := r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 4 })
		for i := range 20 {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
		}
		r.wait(10 * time.Second)
		if r.shared {
			first.kill()
			r.begin("c", nil)
		}
		r.wait(310 * time.Second)
		r.wantQuiet()
		places := map[int64]string{}
		for _, d := range r.letters() {
			if want := fmt.Sprintf("task-%d", d.Message.At.Offset); d.Task != want || d.Message.At.Topic != "tasks.topic" {
				r.t.Errorf("%s stands at %+v", d.Task, d.Message.At)
			}
			if calls := r.agent.calls(d.Task); d.Attempts != min(calls, 1) {
				r.t.Errorf("%s was called %d times, its dead letter says %d", d.Task, calls, d.Attempts)
			}
			places[d.Message.At.Offset] = d.Task // again is the same
		}
		if len(places) != 20 {
			r.t.Errorf("%d dead letters, want 20", len(places))
		}
	})
}

// A dead letter that cannot be kept is kept later: until then the task's record
// or row stays.
func TestForeignDeadLetterKeptLater(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
			return withStatus(bridge.Answered, 404), nil
		}
		r.keeps(errors.New("no disk"))
		p := r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.put("run", []byte(`{"run_id":"r","task_id":"task-2","correlation_id":"c"}`))
		r.wait(20 * time.Second)
		_, volatile := r.make(p).(*bridge.MemoryLedger)
		if got := len(r.resultsOf("task-1")) == 1; got != volatile {
			r.t.Errorf("answered %t", got)
		}
		open := 1
		if volatile {
			open = 2
		}
		if n := r.acks.unacked(); n != open {
			r.t.Errorf("%d records are open, want %d", n, open)
		}
		r.keeps(nil)
		r.wait(time.Minute)
		if n := len(r.letters()); n != 2 {
			r.t.Errorf("%d dead letters, want 2", n)
		}
		r.wantOne("task-1")
		r.wantOne("task-2")
		r.wantQuiet()
	})
}

// A foreign task that is replayed is another task: its agent is called anew,
// under another id, and a result follows, once for each replay.
func TestForeignReplay(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		var ids []string
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			ids = append(ids, task.ID)
			return withStatus(bridge.Answered, 404), nil
		}
		r.begin("b", nil)
		m := message(r.t, record("task-1", "one"))
		r.publish(m)
		r.result("task-1", time.Second)
		r.wait(10 * time.Minute) // nobody waits for it any more
		for _, replay := range []string{"dl-1.1", "dl-1.1", "dl-1.2"} {
			m.Header[bus.HeaderReplay] = replay
			r.publish(m)
			r.wait(2 * time.Second)
		}
		if len(ids) != 3 || ids[0] != "task-1" || !strings.HasPrefix(ids[1], "task-1.r") || !strings.HasPrefix(ids[2], "task-1.r") || ids[1] == ids[2] {
			r.t.Errorf("calls %q", ids)
		}
		if got := r.resultsOf("task-1"); len(got) != 3 || got[2].CorrelationID != "corr-task-1" {
			r.t.Errorf("results %+v", got)
		}
		if got := r.letters(); len(got) != 3 || got[0].Message.At == got[1].Message.At {
			r.t.Errorf("%d dead letters", len(got))
		}
		r.wantQuiet()
	})
}

// The claim of an attempt of ours says which record it was taken from.
func TestOwnSource(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.begin("b", nil)
		r.send(record("first", "one"))
		id := r.task("one", 1, nil)
		a := r.ledger.row(id)
		m := message(r.t, records.AgentTask{RunID: a.Run, TaskID: id, AgentName: "one", CorrelationID: a.CorrelationID, At: time.Now()})
		m.Header = map[string]string{bus.HeaderTask: "1"}
		r.publish(m)
		r.want(id, parley.OutcomeOK, "")
		want := &store.Source{DeadLetterSource: parley.DeadLetterSource{
			Subject: bus.SubjectTasks, Topic: "tasks.topic", Partition: 3, Offset: 1, Group: "external-agent-executor-group",
		}}
		if diff := cmp.Diff(want, r.ledger.row(id).Source); diff != "" {
			r.t.Error(diff)
		}
	})
}
