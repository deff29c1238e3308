package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// A task of an old executor is called once, under its own id, and told by one
// result, however often its record comes.
func TestForeign(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if !task.Foreign {
				r.t.Error("the adapter is not told whose task it is")
			}
			return takes(ctx, task, 3*time.Second), nil
		}
		p := r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.send(record("task-1", "one"))
		r.wait(time.Second)
		r.send(record("task-1", "one"))
		got := r.result("task-1", 10*time.Second)
		want := records.AgentResult{
			RunID: "run-task-1", TaskID: "task-1", Status: "SUCCESS", Output: json.RawMessage(`{"result": "slow"}`),
			CorrelationID: "corr-task-1", At: got.At,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.t.Errorf("(-want +got):\n%s", diff)
		}
		r.send(record("task-1", "one"))
		r.wantOne("task-1")
		r.wantQuiet()
		r.wantCalls(r.agent, "task-1", 1)
		p.stop()
		if n := r.wakeups("run-task-1"); n != 0 {
			r.t.Errorf("%d wake-ups of a run that is not here", n)
		}
	})
}

// The same task id under another run or correlation id is another task.
func TestForeignIdentity(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.begin("b", nil)
		for _, run := range []string{"run-1", "run-2"} {
			a := record("task-1", "one")
			a.RunID, a.CorrelationID = run, "corr-"+run
			r.send(a)
		}
		r.wait(10 * time.Second)
		if got := r.resultsOf("task-1"); len(got) != 2 || got[0].RunID == got[1].RunID {
			r.t.Errorf("results: %+v", got)
		}
		r.wantCalls(r.agent, "task-1", 2)
	})
}

// What is known to have failed is tried again as retry_config says, each time
// as a new call (BR-N5), and no bridge beside makes it earlier.
func TestForeignRetries(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		begun := map[string]time.Time{}
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			begun[task.ID] = time.Now()
			if task.ID != "task-1.3" {
				return notSent(), nil
			}
			return answered(task, `{"text":"at last"}`), nil
		}
		r.begin("b", nil)
		if r.shared {
			r.begin("c", nil)
		}
		r.send(record("task-1", "one"))
		if got := r.result("task-1", 30*time.Second); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantOne("task-1")
		for _, id := range []string{"task-1", "task-1.2", "task-1.3"} {
			r.wantCalls(r.agent, id, 1)
		}
		for from, to := range map[string]string{"task-1": "task-1.2", "task-1.2": "task-1.3"} {
			want := time.Second
			if from == "task-1.2" {
				want = 2 * time.Second
			}
			if d := begun[to].Sub(begun[from]); d < want || d > want+100*time.Millisecond {
				r.t.Errorf("%s came %v after %s, want %v", to, d, from, want)
			}
		}
	})
}

func withStatus(d bridge.Disposition, status int) bridge.Outcome {
	out := failed(d, parley.CodeAgentUnavailable, "POST http://one.test: HTTP status")
	out.Result.Err = out.Result.Err.WithDetails(map[string]int{"status": status})
	out.Result.Err.Retryable = status == 429 || status >= 500
	return out
}

// Which failures are tried again, and in whose words they are told.
func TestForeignFailures(t *testing.T) {
	const more = "\nFor more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/"
	cases := []struct {
		name  string
		out   func(ctx context.Context, task parley.Task) bridge.Outcome
		text  string
		calls int
	}{
		{"refused", func(context.Context, parley.Task) bridge.Outcome { return notSent() }, "All connection attempts failed", 3},
		{"429", func(context.Context, parley.Task) bridge.Outcome { return withStatus(bridge.NotSent, 429) }, "HTTP 429: Client error '429 Too Many Requests' for url 'http://one.test/a'" + more + "429", 3},
		{"500", func(context.Context, parley.Task) bridge.Outcome { return withStatus(bridge.Answered, 500) }, "HTTP 500: Server error '500 Internal Server Error' for url 'http://one.test/a'" + more + "500", 3},
		{"404", func(context.Context, parley.Task) bridge.Outcome { return withStatus(bridge.Answered, 404) }, "HTTP 404: Client error '404 Not Found' for url 'http://one.test/a'" + more + "404", 1},
		{"its own error", func(context.Context, parley.Task) bridge.Outcome {
			return failed(bridge.Answered, parley.CodeAgentError, "JSON-RPC Error -32000: no")
		}, "JSON-RPC Error -32000: no", 1},
		{"502: nobody knows", func(context.Context, parley.Task) bridge.Outcome { return withStatus(bridge.Lost, 502) }, "may have executed the task", 1},
		{"cut: nobody knows", func(context.Context, parley.Task) bridge.Outcome { return lost() }, "may have executed the task", 1},
		{"silent", func(ctx context.Context, _ parley.Task) bridge.Outcome { return hang(ctx) }, "the executor waits no longer than 5m0s", 1},
	}
	onLedgers(t, func(r *foreignRig) {
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.OutcomeUnknown = parley.OutcomeFail
		r.agents.put(a)
		script := func(name string) func(context.Context, parley.Task) bridge.Outcome {
			for _, c := range cases {
				if strings.HasPrefix(name, c.name) {
					return c.out
				}
			}
			return nil
		}
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return script(task.ID)(ctx, task), nil
		}
		r.begin("b", nil)
		for _, c := range cases {
			r.send(record(c.name, "one"))
		}
		for _, c := range cases {
			r.wantFailure(c.name, c.text)
			calls := r.agent.calls(c.name) + r.agent.calls(c.name+".2") + r.agent.calls(c.name+".3") + r.agent.calls(c.name+".4")
			if calls != c.calls {
				r.t.Errorf("%s: %d calls, want %d", c.name, calls, c.calls)
			}
		}
		r.wantQuiet()
	})
}

func TestForeignAgents(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.agents.put(parley.Agent{Name: "never", Protocol: parley.ProtocolSimpleA2A})
		r.agents.put(parley.Agent{Name: "odd", Protocol: "smoke signals", Retry: parley.DefaultRetryConfig()})
		r.begin("b", nil)
		r.send(record("task-1", "nobody"))
		r.send(record("task-2", "never"))
		r.send(record("task-3", "odd"))
		r.wantFailure("task-1", "Agent 'nobody' not found in API database or registry")
		r.wantFailure("task-2", "Operation failed after 0 attempts")
		r.wantFailure("task-3", "Unsupported protocol")
		r.wantCalls(r.agent, "task-2", 0)
		r.wantQuiet()
		for _, d := range r.letters() {
			if d.Attempts != 0 {
				r.t.Errorf("%s was called %d times, says its dead letter", d.Task, d.Attempts)
			}
		}
	})
}

// A record that is of no use holds up nothing: it is a dead letter, and answered
// if it names whom to answer.
func TestForeignPoison(t *testing.T) {
	const ids = `"run_id":"r","task_id":"%s","correlation_id":"c"`
	onLedgers(t, func(r *foreignRig) {
		r.begin("b", nil)
		for _, v := range []string{"", "\x00garbage\xff", `{"run_id":"r","task_id":"t","agent_name":"one","input_data":{"a`, `[]`, strings.Repeat("[", 1000)} {
			r.put("r", []byte(v))
		}
		answerable := map[string]string{
			"no-agent":  `{` + ids + `}`,
			"cut":       `{` + ids + `,"agent_name":"one","input_data":{"a":`,
			"not-utf8":  `{` + ids + `,"agent_name":"one","input_data":{"a":"` + "\xff" + `"}}`,
			"array":     `{` + ids + `,"agent_name":"one","input_data":[1]}`,
			"huge":      `{` + ids + `,"agent_name":"one","input_data":{"a":"` + strings.Repeat("x", 5_000_000) + `"}}`,
			"injecting": `{"run_id":"r","task_id":"injecting","correlation_id":"c\r\nX-Evil: 1","agent_name":"one"}`,
		}
		for task, v := range answerable {
			if strings.Contains(v, "%s") {
				v = fmt.Sprintf(v, task)
			}
			r.put("r", []byte(v))
		}
		r.send(record("good", "one"))
		if got := r.result("good", 5*time.Second); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		for task := range answerable {
			r.wantFailure(task, "the task cannot be taken: AgentTask")
		}
		r.wantQuiet()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.dead) != 5+len(answerable) {
			r.t.Errorf("%d dead letters, want %d", len(r.dead), 5+len(answerable))
		}
		for _, d := range r.dead {
			if d.Reason == "" || d.Code != "invalid" && d.Code != "limit" || d.Attempts != 1 || d.Message.Subject != bus.SubjectTasks || d.Foreign {
				r.t.Errorf("dead letter %.100q: %s %s %d %v", d.Message.Value, d.Code, d.Reason, d.Attempts, d.Foreign)
			}
			if v := string(d.Message.Value); strings.Contains(v, `"correlation_id"`) && (d.Run != "r" || answerable[d.Task] == "") {
				r.t.Errorf("dead letter %.100q: run %q, task %q", v, d.Run, d.Task)
			}
		}
	})
}

// The executor waits 300 s: whatever happens there is a result before that, also
// for tasks that never get a slot.
func TestForeignNoSilence(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.MaxConcurrent = 1
		r.agents.put(a)
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 4 })
		for i := range 20 {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
		}
		r.wait(299 * time.Second)
		for i := range 20 {
			if got := r.resultsOf(fmt.Sprintf("task-%d", i)); len(got) != 1 || got[0].Status != records.StatusFailure {
				r.t.Errorf("task-%d: %+v", i, got)
			}
		}
		r.wantQuiet()
	})
}

// A record that was long under way is given less time, and none if nobody waits
// any more; a timestamp of another time zone says nothing.
func TestForeignAge(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.begin("b", nil)
		for name, age := range map[string]time.Duration{"fresh": 0, "old": 10 * time.Minute, "zone": 5 * time.Hour, "ahead": -time.Hour} {
			rec := record(name, "one")
			rec.At = rec.At.Add(-age)
			r.send(rec)
		}
		r.wantFailure("old", "too old")
		for _, name := range []string{"fresh", "zone", "ahead"} {
			if got := r.result(name, time.Second); got.Status != records.StatusSuccess {
				r.t.Errorf("%s: %+v", name, got)
			}
		}
		r.wantCalls(r.agent, "old", 0)
	})
}

// A long task is followed; one that waits for a person fails, since nobody can
// answer.
func TestForeignLong(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.long.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.ID == "asks" {
				return asks(task, "which one?"), nil
			}
			return accepted(task, "working"), nil
		}
		r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
			if n < 5 || task.ID == "endless" {
				return accepted(task, "working"), nil
			}
			return answered(task, `{"text":"done"}`), nil
		}
		r.begin("b", nil)
		for _, task := range []string{"asks", "works", "endless"} {
			r.send(record(task, "long"))
		}
		if got := r.result("works", time.Minute); got.Status != records.StatusSuccess || string(got.Output) != `{"text": "done"}` {
			r.t.Errorf("%+v", got)
		}
		r.wantFailure("asks", "Task state: input-required")
		r.wantFailure("endless", "the executor waits no longer than")
		r.wantQuiet()
		if n := r.long.count(r.long.cancels, "agent-endless"); n != 1 {
			r.t.Errorf("the agent was told %d times to stop", n)
		}
	})
}

// A bus that is away loses no result: with a store it is published by the sweep,
// without one the record is not acknowledged before.
func TestForeignResultLater(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		p := r.begin("b", nil)
		r.acks.refuseIf(down(bus.SubjectResults))
		r.send(record("task-1", "one"))
		r.put("r", []byte(`{"run_id":"r","task_id":"bad","correlation_id":"c"}`))
		r.wait(20 * time.Second)
		want := 1 // the bad record is not answered
		if _, none := r.make(p).(*bridge.MemoryLedger); none {
			want = 2
		}
		if n := r.acks.unacked(); n != want {
			r.t.Errorf("%d records are not acknowledged, want %d", n, want)
		}
		r.acks.refuseIf(nil)
		if got := r.result("task-1", 20*time.Second); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantOne("task-1")
		r.wantOne("bad")
		r.wantQuiet()
		r.wantCalls(r.agent, "task-1", 1)
	})
}

// A result that is too large for the bus is a failure that says so.
func TestForeignResultTooLarge(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.acks.refuseIf(func(m bus.Message) error {
			if len(m.Value) > 1000 {
				return parley.Errorf(parley.CodeLimit, "the record has %d bytes, the limit is 1000 bytes", len(m.Value))
			}
			return nil
		})
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return answered(task, `"`+strings.Repeat("x", 2000)+`"`), nil
		}
		r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.wantFailure("task-1", "the answer of agent 'one' is too large for the executor: the record has")
	})
}

// Attempts of ours are told by a result record, too, as a hint; one whose row is
// gone is dropped.
func TestOwnResults(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.begin("b", nil)
		id := r.task("one", 1, nil)
		a := r.ledger.row(id)
		value, err := records.AgentTask{RunID: a.Run, TaskID: id, AgentName: "one", CorrelationID: a.CorrelationID, At: time.Now()}.Encode()
		if err != nil {
			r.t.Fatal(err)
		}
		own := map[string]string{bus.HeaderTask: "1"}
		m := bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: value, Header: own}
		for range 2 {
			if err := r.acks.Publish(r.t.Context(), m); err != nil {
				r.t.Fatal(err)
			}
		}
		r.want(id, parley.OutcomeOK, "")
		if got := r.result(id, time.Second); got.Status != records.StatusSuccess || got.RunID != a.Run {
			r.t.Errorf("%+v", got)
		}
		odd := m
		odd.Value = []byte(strings.ReplaceAll(string(value), `"one"`, "1"))
		if err := r.acks.Publish(r.t.Context(), odd); err != nil {
			r.t.Fatal(err)
		}
		r.wait(time.Second)
		if d := r.letters(); len(d) != 1 || d[0].Run != a.Run || d[0].Task != id || d[0].Foreign {
			r.t.Errorf("a record without a proper agent: %+v", d)
		}
		m.Value = []byte(strings.ReplaceAll(string(value), id, "run-gone.a.1"))
		if err := r.acks.Publish(r.t.Context(), m); err != nil {
			r.t.Fatal(err)
		}
		r.wantOne(id)
		if got := r.resultsOf("run-gone.a.1"); len(got) != 0 {
			r.t.Errorf("a record without a row was answered: %+v", got)
		}
		r.wantCalls(r.agent, id, 1)
		r.wantQuiet()
	})
}

// A bridge that stops leaves nothing behind: what it has not finished comes
// again, and what waits in the ledger goes on elsewhere.
func TestForeignStop(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.MaxConcurrent = 2
		r.agents.put(a)
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, time.Second), nil
		}
		ledger := r.make(nil)
		for i := range 20 {
			r.send(record(fmt.Sprintf("lost-%d", i), "one")) // nobody listens yet
		}
		p := r.begin("b", nil)
		for i := range 20 {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
		}
		r.wait(3500 * time.Millisecond)
		p.stop()
		r.begin("c", nil)
		for i := range 20 {
			id := fmt.Sprintf("task-%d", i)
			if got := r.result(id, 2*time.Minute); got.Status != records.StatusSuccess {
				r.t.Errorf("%s: %+v", id, got)
			}
			if _, none := ledger.(*bridge.MemoryLedger); !none {
				r.wantCalls(r.agent, id, 1)
			}
		}
	})
}

// A task that is to wait in the ledger is acknowledged when it stands there: while the
// ledger takes nothing, its record is all that there is of it.
func TestForeignNotDeferred(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		a, _ := r.agents.Lookup(r.t.Context(), "one")
		a.MaxConcurrent = 1
		r.agents.put(a)
		idle := make(chan struct{})
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			<-idle
			return answered(task, `"done"`), nil
		}
		var away atomic.Bool
		away.Store(true)
		r.ledger.fault = func(op, _ string) fault {
			if op == "P3" && away.Load() {
				return refusedConnection
			}
			return noFault
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 4 })
		const tasks = 20
		for i := range tasks {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
		}
		r.wait(time.Second)
		if n := r.acks.unacked(); n != tasks-1 { // one is being called
			r.t.Errorf("%d records are not acknowledged, want %d", n, tasks-1)
		}
		away.Store(false)
		close(idle)
		for i := range tasks {
			r.result(fmt.Sprintf("task-%d", i), time.Minute)
		}
		r.wantQuiet()
	})
}

// While the ledger takes nothing, what is to be put off is tried
// again now and then, however much of it there is, and not as fast as it fails.
func TestForeignPutOffRests(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.busy(time.Hour)
		var tries atomic.Int64
		const enough = 10_000 // a bridge that does not rest would not let time go on
		r.ledger.failing(func(op string) fault {
			if op == "P3" && tries.Add(1) < enough {
				return refusedConnection
			}
			return noFault
		})
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.QueuePerAgent = 1 })
		for i := range 1_200 {
			r.send(record("task-"+time.Duration(i).String(), "one"))
		}
		before := tries.Load()
		r.wait(10 * time.Second)
		if n := tries.Load() - before; n == 0 || n > 100 {
			r.t.Errorf("%d tries in 10 s", n)
		}
		r.ledger.failing(nil)
		r.wait(10 * time.Second)
		if n := r.acks.unacked(); n > 2 {
			r.t.Errorf("%d records are not acknowledged", n)
		}
	})
}

// The ledger is away for longer than anybody waits: the executor hears so in time.
func TestForeignNoLedger(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.begin("b", nil)
		r.ledger.failing(func(op string) fault {
			if op == "P4" || op == "P3" {
				return refusedConnection
			}
			return noFault
		})
		r.send(record("task-1", "one"))
		r.wantFailure("task-1", "waits no longer than")
		r.ledger.failing(nil)
		r.wantOne("task-1")
		r.wantQuiet()
		r.wantCalls(r.agent, "task-1", 0)
		if got := r.letters(); len(got) != 1 || got[0].Task != "task-1" {
			r.t.Errorf("dead letters: %+v", got)
		}
	})
}

// A bridge dies, and nobody but another bridge is there to notice.
func TestForeignDeadBridge(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		r.agents.put(parley.Agent{Name: "careful", Protocol: parley.ProtocolSimpleA2A, OutcomeUnknown: parley.OutcomeFail, Retry: parley.DefaultRetryConfig()})
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 && task.ID != "answered" {
				return hang(ctx), nil
			}
			return answered(task, `{"n":2}`), nil
		}
		p := r.begin("b", leavesResults)
		for task, agent := range map[string]string{"resent": "one", "failed": "careful", "answered": "one"} {
			r.send(record(task, agent))
		}
		r.wait(time.Second)
		p.kill()
		r.begin("c", nil)
		if got := r.result("resent", time.Minute); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantFailure("failed", "lost") // P10
		if got := r.result("answered", time.Minute); got.Status != records.StatusSuccess {
			r.t.Errorf("%+v", got)
		}
		r.wantOne("resent")
		r.wantOne("answered")
		r.wantCalls(r.agent, "resent", 2)
		r.wantCalls(r.agent, "failed", 1)
		r.wantCalls(r.agent, "answered", 1)
	})
}

// A record that comes again in the very moment in which its task ends is
// acknowledged, too.
func TestForeignAgainAtTheEnd(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		var again atomic.Bool
		r.acks.mu.Lock()
		r.acks.acked = func(m bus.Message) {
			if again.CompareAndSwap(false, true) {
				_ = r.acks.take(r.t.Context(), m)
			}
		}
		r.acks.mu.Unlock()
		r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.result("task-1", 10*time.Second)
		r.wantOne("task-1")
		r.wantQuiet()
		r.wantCalls(r.agent, "task-1", 1)
	})
}

// finding is a scripted adapter whose agents can be asked what became of a call.
type finding struct{ *scripted }

func (f finding) Find(context.Context, parley.Task, parley.Agent) (bridge.Outcome, error) {
	return failed(bridge.NotSent, parley.CodeAgentUnavailable, "ask again"), nil
}

// An agent is asked about a lost call only as long as somebody waits for what it
// says.
func TestForeignLookUpEnds(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.long.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			takes(ctx, task, 260*time.Second)
			return lost(), nil
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, finding{r.long}} })
		r.send(record("task-1", "long"))
		r.wantFailure("task-1", "looked up")
		r.wantQuiet()
	})
}

// A bridge without a store wants a bus that can wait, and results.
func TestMemoryLedgerNeeds(t *testing.T) {
	inBubble(t, func(r *rig) {
		cfg := bridge.Config{Worker: "b", Ledger: bridge.NewMemoryLedger(), Agents: r.agents, Bus: r.bus, Adapters: []bridge.Adapter{r.agent}, Results: true}
		if _, err := bridge.New(cfg); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("a bus that cannot wait: %v", err)
		}
		cfg.Bus, cfg.Results = &ackBus{Bus: r.bus}, false
		if _, err := bridge.New(cfg); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("no results: %v", err)
		}
	})
}

// Without result records nothing is foreign: a record is about a row.
func TestNoResultsNoForeign(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", nil)
		defer p.stop()
		id := r.task("one", 1, func(a *store.Attempt) { a.VisibleAt = time.Now().Add(time.Hour) })
		r.announce(id)
		r.want(id, parley.OutcomeOK, "")
		if n := r.ledger.count("P4"); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

// Deadlines are times of rows: a machine whose own clock is ahead does not give up
// what waits for a slot.
func TestForeignClockAhead(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Retry: parley.DefaultRetryConfig(), MaxConcurrent: 1})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 3*time.Second), nil
		}
		r.begin("b", func(cfg *bridge.Config, _ *process) {
			cfg.Clock = func() time.Time { return time.Now().Add(-time.Hour) }
		})
		for _, id := range []string{"task-1", "task-2"} {
			r.send(record(id, "one"))
		}
		for _, id := range []string{"task-1", "task-2"} {
			if got := r.result(id, time.Minute); got.Status != records.StatusSuccess {
				r.t.Errorf("%s: %+v", id, got)
			}
			r.wantOne(id)
		}
	})
}

// What a bridge that is stopped still ends is acknowledged: it is not done again.
func TestForeignStopped(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Retry: parley.DefaultRetryConfig(), MaxConcurrent: 1})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 3*time.Second), nil
		}
		p := r.begin("b", nil)
		for _, id := range []string{"task-1", "task-2"} {
			r.send(record(id, "one"))
		}
		r.wait(time.Second)
		p.cancel()
		r.wait(time.Second)
		// Without a store these are given out still; they come again, but for the
		// record of what is in hand, which either may be.
		for _, id := range []string{"task-1", "task-2"} {
			r.send(record(id, "one"))
		}
		r.put("none", []byte("no task"))
		r.wait(time.Millisecond)
		p.stop()
		r.begin("c", nil)
		for _, id := range []string{"task-1", "task-2"} {
			if got := r.result(id, time.Minute); got.Status != records.StatusSuccess {
				r.t.Errorf("%s: %+v", id, got)
			}
			r.wantOne(id)
			r.wantCalls(r.agent, id, 1)
		}
		r.wantQuiet()
		if n := len(r.letters()); n > 1 {
			r.t.Errorf("%d dead letters of one record", n)
		}
	})
}

// leavesResults has a bridge publish no result of what it has answered.
func leavesResults(cfg *bridge.Config, _ *process) {
	cfg.DrainGrace = time.Millisecond
	cfg.Failpoint = func(name string) error {
		if name == "P7.before-wakeup" {
			return errDoubt
		}
		return nil
	}
}

// A result that somebody else has left is published once, also by a bus that takes
// its time.
func TestForeignSlowBus(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		p := r.begin("b", leavesResults)
		r.send(record("task-1", "one"))
		r.wait(time.Second)
		p.kill()
		r.acks.refuseIf(func(m bus.Message) error {
			if m.Subject == bus.SubjectResults {
				time.Sleep(12 * time.Second)
			}
			return nil
		})
		r.begin("c", nil)
		r.result("task-1", time.Minute)
		r.wantOne("task-1")
	})
}

// TestForeignToldSlowly: while the bus takes its time for a result, the ledger gives the
// task to the very bridge that tells it. It is told once.
func TestForeignToldSlowly(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		r.acks.refuseIf(func(m bus.Message) error {
			if m.Subject == bus.SubjectResults {
				time.Sleep(12 * time.Second)
			}
			return nil
		})
		r.begin("b", nil)
		r.send(record("task-1", "one"))
		r.result("task-1", time.Minute)
		r.wantOne("task-1")
		r.wantQuiet()
	})
}

// TestForeignClosedOnce: that a result was published is noted once in the ledger, not again
// for as long as the bridge lives.
func TestForeignClosedOnce(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		if !r.shared {
			return
		}
		var closed atomic.Int64
		r.ledger.failing(func(op string) fault {
			if op == "P24" {
				closed.Add(1)
			}
			return noFault
		})
		r.begin("b", nil)
		for _, id := range []string{"task-1", "task-2"} {
			r.send(record(id, "one"))
			r.wantOne(id)
		}
		if n := closed.Load(); n != 2 {
			r.t.Errorf("noted %d times", n)
		}
	})
}
