package oldplatform_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// view gives a run as callers see it: replayed from its events alone.
func (x *target) view(id string) parley.Run {
	x.t.Helper()
	h := must(x.db.History(x.t.Context(), id))(x.t)
	return replay(x.t, h)
}

func replay(t testing.TB, h store.History) parley.Run {
	t.Helper()
	s := workflow.NewState(h.Run.ID, workflow.Recorded(h.Run.Workflow, h.Run.Name, h.Events), workflow.DefaultRunLimits())
	for i, e := range h.Events {
		if e.Seq != int64(i+1) {
			t.Errorf("run %s: event %d stands at %d", h.Run.ID, e.Seq, i+1)
		}
		if s.Status().Terminal() {
			t.Errorf("run %s: %s after its end", h.Run.ID, e.Type)
		}
		check(t, s.Replay(e))
	}
	v := s.View()
	if v.Status != h.Run.Status || !v.Status.Terminal() || !v.EndedAt.Equal(h.Run.EndedAt) || len(s.InFlight()) > 0 {
		t.Errorf("run %s: the history ends %s at %s, the row says %s at %s", h.Run.ID, v.Status, v.EndedAt, h.Run.Status, h.Run.EndedAt)
	}
	return v
}

// lines gives a run as text: its state, and each step with its attempts.
func lines(run parley.Run) []string {
	value := func(v json.RawMessage) string {
		if v == nil {
			return "-"
		}
		return string(v)
	}
	at := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.Format("15:04:05.999")
	}
	fault := func(e *parley.Error) string {
		if e == nil {
			return "-"
		}
		return string(e.Code) + " " + e.Step + " " + e.Message
	}
	out := []string{fmt.Sprintf("%s %s in %s out %s by %q/%q error %s", run.Status, at(run.EndedAt), value(run.Input), value(run.Output),
		run.CancelledBy, run.CancelReason, fault(run.Error))}
	for _, s := range run.Steps {
		out = append(out, fmt.Sprintf("%s %s %s x%d %s–%s in %s out %s error %s", s.ID, s.Agent, s.Status, s.Attempts,
			at(s.StartedAt), at(s.EndedAt), value(s.Input), value(s.Output), fault(s.Error)))
	}
	return out
}

// TestImportRuns: a run of every state has the history that its rows tell.
func TestImportRuns(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	x.take(p)
	const stuck = " on the existing platform when it was imported, and does not go on here; retry it if it does not go on there either"
	for id, want := range map[string][]string{
		runID + "1": {
			`COMPLETED 10:00:09.5 in {"n":12345678901234567890123,"topic":"<tea> & é"} out null by ""/"" error -`,
			`research ResearchAgent COMPLETED x1 10:00:01–10:00:04 in {"topic":"<tea> & é"} out {"findings":["leaf",1.50]} error -`,
			`write WriterAgent COMPLETED x1 10:00:04–10:00:09 in {"data":["leaf",1.50]} out {"text":"All about tea"} error -`,
		},
		runID + "2": {
			`FAILED 10:05:00 in {"topic":"coffee"} out - by ""/"" error timeout write Timeout waiting for agent result (correlation_id: corr-1)`,
			`research ResearchAgent COMPLETED x3 10:00:06–10:00:07 in {"topic":"coffee"} out {"findings":"beans"} error -`,
			`write WriterAgent FAILED x1 10:00:07–10:05:00 in {"data":"beans"} out - error timeout write Timeout waiting for agent result (correlation_id: corr-1)`,
		},
		runID + "3": {
			`CANCELLED 10:01:00 in {"topic":"milk"} out - by "system"/"no longer needed" error -`,
			`research ResearchAgent CANCELLED x1 -–10:01:00 in {"topic":"milk"} out - error -`,
		},
		runID + "4": {
			`FAILED 12:00:00 in {"topic":"water"} out - by ""/"" error outcome_unknown write the run was RUNNING` + stuck,
			`research ResearchAgent COMPLETED x1 10:00:01–10:00:05 in {"topic":"water"} out {"findings":"wet"} error -`,
			`write WriterAgent FAILED x1 10:00:06–12:00:00 in {"data":"wet"} out - error outcome_unknown write ` +
				`agent "WriterAgent" was being called on the existing platform when the run was imported; whether it did the task is not known here`,
		},
		runID + "5": {
			`FAILED 12:00:00 in {"topic":"juice"} out - by ""/"" error stalled  the run was PENDING` + stuck + ` (Failed to publish to Kafka: NoBrokersAvailable)`,
		},
		"run-by-hand.1": {
			`COMPLETED 10:00:03 in - out null by ""/"" error -`,
			`only ResearchAgent COMPLETED x1 10:00:01–10:00:02 in {} out null error -`,
		},
		runID + "7": {
			`FAILED 10:00:10 in {"items":[1,2,3]} out - by ""/"" error agent_error  Something else broke`,
			`one ResearchAgent COMPLETED x1 10:00:01–10:00:02 in {"item":1} out {"r":1} error -`,
			`one#2 ResearchAgent FAILED x1 10:00:03–10:00:04 in {"item":2} out - error agent_error one#2 Task state: failed`,
			`one#3 ResearchAgent COMPLETED x1 10:00:05–10:00:06 in {"item":3} out {"r":3} error -`,
		},
		runID + "8": {
			`FAILED 10:00:10 in {} out - by ""/"" error agent_error  failed; the existing platform has recorded no reason`,
		},
	} {
		diff(t, lines(x.view(id)), want)
	}
	row := must(x.db.RunRow(t.Context(), runID+"3"))(t)
	diff(t, []string{row.Workflow, row.DefinitionID, row.Version, row.TriggeredBy, row.CancelReason}, []string{
		"research-and-write", definitionID + "2", "", "system", "no longer needed",
	})
	row = must(x.db.RunRow(t.Context(), "run-by-hand.1"))(t)
	diff(t, []string{row.Workflow, row.DefinitionID, row.Name}, []string{"wf-by-hand", "", "By hand"})
}

// TestImportKeepsEveryAttempt: what the view does not show stands in the events:
// the row of each attempt with its id, its input and its error.
func TestImportKeepsEveryAttempt(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	p.exec(`UPDATE step_executions SET parent_step_id = 'both', branch_name = 'b', join_policy = 'all' WHERE id LIKE '%bbbb0001'`)
	x.take(p)
	h := must(x.db.History(t.Context(), runID+"2"))(t)
	var got []string
	for _, e := range h.Events {
		got = append(got, fmt.Sprintf("%s %s %d %s", e.Type, e.Step, e.Attempt, e.At.Format("15:04:05")))
	}
	diff(t, got, []string{
		"run.started  0 10:00:00", "step.scheduled research 1 10:00:01", "step.retrying research 1 10:00:02",
		"step.scheduled research 2 10:00:03", "step.retrying research 2 10:00:04", "step.scheduled research 3 10:00:06",
		"step.completed research 3 10:00:07", "step.scheduled write 1 10:00:07", "step.failed write 1 10:05:00", "run.failed  0 10:05:00",
	})
	diff(t, string(h.Events[1].Data), `{"kind":"agent","agent":"ResearchAgent","input":{"topic":"coffee"},"row":{"id":"`+runID+
		`2-research-bbbb0001","step_id":"research","step_name":"ResearchAgent","status":"FAILED","parent_step_id":"both","branch_name":"b","join_policy":"all"}}`)
	if data := string(h.Events[3].Data); !strings.Contains(data, `"input":{"try":2,"topic":"coffee"}`) {
		t.Errorf("the second attempt has another input: %s", data)
	}
	if data := string(h.Events[4].Data); !strings.Contains(data, `"code":"expression","message":"Cannot resolve '${x}'"`) {
		t.Errorf("the second attempt has another error: %s", data)
	}
	for _, e := range h.Events {
		if !json.Valid(e.Data) {
			t.Errorf("event %d is no JSON", e.Seq)
		}
	}
}

// TestImportRunThatWentOn: a run that was under way when it was imported has its
// true end after the next import, and no trace of the other.
func TestImportRunThatWentOn(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	x.take(p)
	before := must(x.db.History(t.Context(), runID+"4"))(t)
	p.exec(`UPDATE step_executions SET status = 'COMPLETED', output_data = '{"text": "done"}', completed_at = '2026-06-04 10:00:30' WHERE id LIKE '%dddd0002';
 UPDATE workflow_runs SET status = 'COMPLETED', completed_at = '2026-06-04 10:00:31', updated_at = '2026-06-04 10:00:31' WHERE run_id = '` + runID + `4'`)
	r := x.take(p)
	diff(t, []int{table(t, r, "workflow_runs").Changed, table(t, r, "step_executions").Changed, r.Stuck}, []int{1, 2, 1})
	diff(t, lines(x.view(runID+"4")), []string{
		`COMPLETED 10:00:31 in {"topic":"water"} out null by ""/"" error -`,
		`research ResearchAgent COMPLETED x1 10:00:01–10:00:05 in {"topic":"water"} out {"findings":"wet"} error -`,
		`write WriterAgent COMPLETED x1 10:00:06–10:00:30 in {"data":"wet"} out {"text":"done"} error -`,
	})
	if after := must(x.db.History(t.Context(), runID+"4"))(t); slices.ContainsFunc(after.Events, func(e parley.Event) bool {
		return e.Type == parley.EventRunFailed || e.Type == parley.EventStepFailed
	}) || len(before.Events) == 0 {
		t.Error("the end that it had before is still there")
	}
	// A row of a step that changes alone is a change of its run.
	p.exec(`INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data) VALUES ('late', '` + runID + `1', 'x', 'x', 'x', 'COMPLETED', '{}')`)
	diff(t, table(t, x.take(p), "workflow_runs").Changed, 1)
	diff(t, len(x.view(runID+"1").Steps), 3)
}

// TestImportOddRuns: what no healthy platform writes is imported, or refused by
// name; nothing of it stops the others.
func TestImportOddRuns(t *testing.T) {
	t.Parallel()
	p, x := emptyPlatform(t), newTarget(t)
	p.exec(`INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status, created_at, updated_at, completed_at) VALUES
 ('odd-state', 'w', 'w', 'PAUSED', '2026-01-01', '2026-01-01', NULL),
 ('infinite', 'w', 'w', 'RUNNING', '2026-01-01', '2026-01-01', 'infinity'),
 ('infinite-step', 'w', 'w', 'COMPLETED', '2026-01-01', '2026-01-01', NULL),
 ('overlap', 'w', 'w', 'COMPLETED', '2026-01-01', '2026-01-01 00:01:00', NULL),
 ('backwards', 'w', 'w', 'COMPLETED', '2026-01-01', '2026-01-01 00:01:00', '2025-01-01'),
 ('named', 'w', 'w', 'COMPLETED', '2026-01-01', '2026-01-01 00:01:00', NULL),
 ('', '', '', 'COMPLETED', '2026-01-01', '2026-01-01', NULL);
 INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, started_at, completed_at) VALUES
 ('1', 'infinite-step', 'a', 'A', 'A', 'COMPLETED', '[1]', '-infinity', NULL),
 ('2', 'overlap', 'a', 'A', 'A', 'FAILED', '1', '2026-01-01 00:00:01', '2026-01-01 00:00:09'),
 ('3', 'overlap', 'a', 'A', 'A', 'COMPLETED', '2', '2026-01-01 00:00:02', '2026-01-01 00:00:03'),
 ('4', 'overlap', 'b', 'B', 'B', 'SKIPPED', 'null', '2026-01-01 00:00:02', '2026-01-01 00:00:02'),
 ('5', 'backwards', 'a', 'A', 'A', 'COMPLETED', '{}', '2026-01-01 00:00:09', '2026-01-01 00:00:01'),
 ('6', 'named', 'a', 'A', 'A', 'COMPLETED', '{}', '2026-01-01 00:00:01', '2026-01-01 00:00:02'),
 ('7', 'named', 'a', 'A', 'A', 'COMPLETED', '{}', '2026-01-01 00:00:03', '2026-01-01 00:00:04'),
 ('8', 'named', 'a#2', 'A', 'A', 'COMPLETED', '{}', '2026-01-01 00:00:05', '2026-01-01 00:00:06')`)
	r := x.take(p)
	// The one that was refused is not said to be here.
	diff(t, []int{table(t, r, "workflow_runs").Imported, table(t, r, "workflow_runs").Refused, r.Stuck}, []int{4, 3, 1})
	diff(t, []int{table(t, r, "step_executions").Imported, table(t, r, "step_executions").Refused}, []int{7, 1})
	diff(t, lines(x.view("overlap")), []string{
		`COMPLETED 00:01:00 in - out null by ""/"" error -`,
		`a A FAILED x1 00:00:01–00:00:09 in 1 out - error agent_error a failed; the existing platform has recorded no reason`,
		`a#2 A COMPLETED x1 00:00:02–00:00:03 in 2 out null error -`,
		`b B SKIPPED x1 -–00:00:02 in null out - error -`,
	})
	diff(t, lines(x.view("backwards"))[1], `a A COMPLETED x1 00:00:09–00:00:09 in {} out null error -`)
	steps := x.view("named").Steps
	diff(t, []string{steps[0].ID, steps[1].ID, steps[2].ID}, []string{"a", "a#3", "a#2"})
	diff(t, x.view("odd-state").Status, parley.RunFailed)
}

// TestImportDeepValues: a value that is nested deeper than an event can be is
// refused, and not lost; one that is not is kept whole.
func TestImportDeepValues(t *testing.T) {
	t.Parallel()
	p, x := emptyPlatform(t), newTarget(t)
	const depths = `(VALUES (8999), (9000), (9001), (12000)) d(n)`
	const value = `(repeat('[', n - 1) || '"[\"[["' || repeat(']', n - 1))::jsonb`
	const nested = `(repeat('[', n) || repeat(']', n))::jsonb`
	p.exec(`INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status, updated_at, input_data)
 SELECT 'input-' || n, 'w', 'w', 'COMPLETED', '2026-01-01', ` + nested + ` FROM ` + depths + `;
 INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status, updated_at) SELECT 'step-' || n, 'w', 'w', 'COMPLETED', '2026-01-01' FROM ` + depths + `;
 INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, output_data, started_at, completed_at)
 SELECT 's' || n, 'step-' || n, 's', 'A', 'A', 'COMPLETED', ` + value + `, ` + nested + `, '2026-01-01', '2026-01-01' FROM ` + depths + `;
 INSERT INTO audit_logs (entity_type, entity_id, action, changes) SELECT 'agent', gen_random_uuid(), n::text, ` + nested + ` FROM ` + depths)
	r := x.take(p)
	for _, name := range []string{"workflow_runs", "step_executions", "audit_logs"} {
		c := table(t, r, name)
		diff(t, []int{c.Imported, c.Refused}, []int{c.Read / 2, c.Read / 2})
	}
	diff(t, len(x.view("input-9000").Input), 18000)
	diff(t, len(x.view("step-9000").Steps[0].Output), 18000)
	for _, n := range x.notices {
		if !strings.HasSuffix(n.Text, " is nested deeper than the limit of 9000") {
			t.Errorf("notice %+v", n)
		}
	}
}

// TestImportTimesBeyondReason: a time that no answer could tell refuses its
// record, by name; it takes no list with it.
func TestImportTimesBeyondReason(t *testing.T) {
	t.Parallel()
	p, x := emptyPlatform(t), newTarget(t)
	p.exec(`INSERT INTO agents (name, url, updated_at) VALUES ('late', 'http://a.example/', '10000-01-01'), ('last', 'http://a.example/', '9999-12-31 23:59:59.999999');
 INSERT INTO workflow_definitions (name, workflow_data, created_at) VALUES ('w', '{}', '0001-01-01 BC');
 INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status, created_at, updated_at) VALUES
 ('early', 'w', 'w', 'COMPLETED', '4713-01-01 BC', '2026-01-01'),
 ('late', 'w', 'w', 'RUNNING', '2026-01-01', '294276-12-31 23:59:59.999999'),
 ('late-step', 'w', 'w', 'COMPLETED', '2026-01-01', '2026-01-01');
 INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, started_at) VALUES
 ('1', 'late-step', 'a', 'A', 'A', 'COMPLETED', '{}', '10000-01-01');
 INSERT INTO audit_logs (entity_type, entity_id, action, created_at) VALUES ('agent', gen_random_uuid(), 'create', '10000-01-01')`)
	r := x.take(p)
	for name, want := range map[string][]int{
		"agents": {1, 1}, "workflow_definitions": {0, 1}, "workflow_runs": {0, 3}, "step_executions": {0, 1}, "audit_logs": {0, 1},
	} {
		diff(t, []int{table(t, r, name).Imported, table(t, r, name).Refused}, want)
	}
	for _, n := range x.notices {
		if n.Kind != oldplatform.NoticeRefused || n.Text != "one of its times is outside of the years 1 to 9999" {
			t.Errorf("%s: %s %s: %s", n.Kind, n.Table, n.ID, n.Text)
		}
	}
	diff(t, r.Stuck, 0)
}

// TestImportManyRuns: however many there are, each run has its own steps.
func TestImportManyRuns(t *testing.T) {
	t.Parallel()
	p, x := emptyPlatform(t), newTarget(t)
	const runs = 400
	// Run n has n % 5 steps; ids are in another order than the language sorts them.
	p.exec(fmt.Sprintf(`INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status, updated_at)
 SELECT CASE WHEN n %% 2 = 0 THEN 'run-' ELSE 'Run_' END || n, 'w', 'w', 'COMPLETED', '2026-01-01' FROM generate_series(1, %d) n;
 INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, started_at, completed_at)
 SELECT r.run_id || '/' || k, r.run_id, 's' || k, 'A', 'A', 'COMPLETED', to_jsonb(r.run_id), '2026-01-01', '2026-01-01'
 FROM workflow_runs r, generate_series(1, substring(r.run_id FROM 5)::int %% 5) k`, runs))
	r := x.take(p)
	diff(t, []int{table(t, r, "workflow_runs").Imported, table(t, r, "step_executions").Imported}, []int{runs, runs * 2})
	for n := 1; n <= runs; n++ {
		id := fmt.Sprintf("run-%d", n)
		if n%2 != 0 {
			id = fmt.Sprintf("Run_%d", n)
		}
		v := x.view(id)
		if len(v.Steps) != n%5 {
			t.Fatalf("run %s has %d steps", id, len(v.Steps))
		}
		for _, s := range v.Steps {
			if string(s.Input) != `"`+id+`"` {
				t.Fatalf("run %s has a step of run %s", id, s.Input)
			}
		}
	}
}

// TestImportOrphans: steps whose run is not there are counted and named.
func TestImportOrphans(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	p.exec(`ALTER TABLE step_executions DROP CONSTRAINT step_executions_run_id_fkey;
 DELETE FROM workflow_runs WHERE run_id = '` + runID + `2'`)
	c := table(t, x.take(p), "step_executions")
	diff(t, []int{c.Read, c.Imported, c.Refused}, []int{13, 9, 4})
	if n := x.notices[len(x.notices)-1]; !strings.Contains(n.Text, "4 rows belong to runs that are not there") {
		t.Errorf("notice %q", n.Text)
	}
}
