package oldplatform

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

const talk = `
name: talk
steps:
  - {id: step-1, agent: Writer, input: {text: "${workflow.input.say}"}, retry: {attempts: 1}}
  - {id: step-2, agent: Reader, input: {query: "${step-1.output.findings.n}", note: "Zürich"}, retry: {attempts: 1}}
`

// TestOurExecutorOldBridge: runs of ours go through a bridge of the existing
// platform that dies with a batch in hand, comes back and calls again, and drops
// tasks: every run ends, a repeated call is the old side's alone, and a result
// that never comes is a clear failure.
func TestOurExecutorOldBridge(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	db, b := s.store(), s.bus()
	x := s.executor(db, b)
	s.run(x.Run)
	s.deploy(db, x, talk)
	s.deploy(db, x, "name: lost\nsteps:\n  - {id: a, agent: Lost, silence: 6s, retry: {attempts: 1}}\n")
	start := func(workflow, say string) string {
		run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: workflow, Input: json.RawMessage(fmt.Sprintf(`{"say":%q}`, say))})
		check(t, err)
		return run.ID
	}
	group := "old" + s.topics[bus.SubjectTasks]
	old := play(t, "bridge.py", s.args(map[string]any{"group": group, "crash_after": 4, "compression": "gzip"}))
	var good []string
	for i := range 6 {
		good = append(good, start("talk", fmt.Sprintf("Nr. %d: Ü", i)))
	}
	old.end()
	if len(old.told("crash")) != 1 {
		t.Fatal("the old bridge has not crashed")
	}
	again := play(t, "bridge.py", s.args(map[string]any{"group": group, "lose": []string{"Lost"}}))
	lost, failing, refused := start("lost", ""), start("talk", "fail"), start("talk", "refuse")

	ends := func(run string, status parley.RunStatus, d time.Duration) parley.Run {
		t.Helper()
		var v parley.Run
		within(t, d, "run "+run+" is "+string(status), func() bool {
			var err error
			v, err = x.Get(t.Context(), run)
			check(t, err)
			return v.Status.Terminal()
		})
		if v.Status != status {
			t.Errorf("run %s is %s, want %s: %v", run, v.Status, status, v.Error)
		}
		return v
	}
	for _, run := range good {
		v := ends(run, parley.RunCompleted, 2*time.Minute)
		if !strings.Contains(string(v.Output), `"findings"`) || !strings.Contains(string(v.Output), `"text": "done: 1.5"`) {
			t.Errorf("output %s", v.Output)
		}
	}
	for run, want := range map[string]string{
		lost:    "outcome_unknown: No result came from the bridge of the existing platform within 6s",
		failing: "agent_error: JSON-RPC Error -32000: no papër",
		refused: "agent_rejected: HTTP 422: Client error '422 Unprocessable Entity'",
	} {
		if v := ends(run, parley.RunFailed, 2*time.Minute); v.Error == nil || !strings.HasPrefix(v.Error.Error(), want) {
			t.Errorf("run %s: %v, want %q", run, v.Error, want)
		}
	}
	// Each task was published once: the old bridge has read it as often as its own
	// crash had it.
	first := make(map[string]int)
	for _, e := range old.told("task") {
		first[e.TaskID]++
	}
	second := make(map[string]int)
	for _, e := range again.told("task") {
		second[e.TaskID]++
	}
	for _, seen := range []map[string]int{first, second} {
		for task, n := range seen {
			if n != 1 {
				t.Errorf("%s came %d times", task, n)
			}
		}
	}
	for task := range first {
		if second[task] == 0 && s.agents.called()["msg-"+task] > 1 {
			t.Errorf("%s was called more often than the old bridge did", task)
		}
	}
	again.stop()
	s.audit()
}

// TestOldRequests: whoever asks the existing platform for runs and cancels them
// has both done by an executor of ours, and watches them.
func TestOldRequests(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	db, b := s.store(), s.bus()
	x := s.executor(db, b)
	s.run(x.Run)
	play(t, "bridge.py", s.args(map[string]any{"group": "old" + s.topics[bus.SubjectTasks], "lose": []string{"Lost"}}))
	caller := play(t, "caller.py", s.args(nil))
	tell := func(subject, run string, record map[string]any) {
		record["run_id"] = run
		line, err := json.Marshal(map[string]any{"topic": s.topics[subject], "key": run, "record": record})
		check(t, err)
		_, err = fmt.Fprintf(caller.stdin, "%s\n", line)
		check(t, err)
	}
	ask := func(run, agent, say string) {
		tell(bus.SubjectStartRequests, run, map[string]any{
			"message_type": "execution_request", "input_data": map[string]any{"say": say},
			"workflow_plan": map[string]any{
				"workflow_id": "wf-old-1", "name": "Old plan", "version": "1.0.0", "start_step": "step-1",
				"steps": map[string]any{"step-1": map[string]any{
					"id": "step-1", "type": "agent", "agent_name": agent, "next_step": nil,
					"input_mapping": map[string]any{"text": "${workflow.input.say}"},
				}},
			},
		})
	}
	ask("run-0001", "Writer", "Grüße")
	ask("run-0001", "Writer", "Grüße")
	ask("run-0002", "Lost", "x")
	ask("run-0003", "Writer", "fail")
	tell(bus.SubjectCancelRequests, "run-0002", map[string]any{"message_type": "cancellation_request", "cancelled_by": "ann", "reason": "zu lang"})
	tell(bus.SubjectCancelRequests, "run-nowhere", map[string]any{"message_type": "cancellation_request", "cancelled_by": nil, "reason": nil})
	for run, want := range map[string]parley.RunStatus{
		"run-0001": parley.RunCompleted, "run-0002": parley.RunCancelled, "run-0003": parley.RunFailed,
	} {
		within(t, 2*time.Minute, run+" is "+string(want), func() bool {
			v, err := x.Get(t.Context(), run)
			return err == nil && v.Status == want
		})
	}
	if calls := len(s.agents.called()); calls != 1+4 {
		t.Errorf("%d calls: the first run was started twice, or the retries are not four", calls)
	}
	want := map[string][]string{
		"run-0001": {"step-1 Writer RUNNING", "step-1 Writer COMPLETED"},
		"run-0002": {"step-1 Lost RUNNING"},
		"run-0003": {"step-1 Writer RUNNING", "step-1 Writer FAILED", "workflow Old plan FAILED"},
	}
	watched := func() map[string][]string {
		got := make(map[string][]string)
		for _, e := range caller.told("monitoring") {
			got[e.RunID] = append(got[e.RunID], e.StepID+" "+e.StepName+" "+e.Status)
		}
		return got
	}
	within(t, 2*time.Minute, "watchers see the steps", func() bool { return fmt.Sprint(watched()) == fmt.Sprint(want) })
	s.audit()
}
