package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// over starts a run of a workflow and ends it at a time.
func over(t testing.TB, db *DB, id, workflow string, at time.Time, change ...func(*Start)) {
	t.Helper()
	st := start(id, attempt(id, "a", 1))
	st.Run.Workflow, st.Run.CreatedAt = workflow, at.Add(-time.Second)
	for _, f := range change {
		f(&st)
	}
	_, err := db.StartRun(t.Context(), st)
	check(t, err)
	d := next(st.Run, 1)
	d.Run.Status, d.Run.EndedAt, d.Run.Due = parley.RunFailed, at, time.Time{}
	d.Run.Error = []byte(`{"code":"timeout","message":"late"}`)
	d.Close = []Close{{TaskID: id + ".a.1", Outcome: parley.OutcomeCancelled}}
	check(t, db.Decide(t.Context(), d))
}

func days(n int) time.Time { return epoch.Add(time.Duration(n) * 24 * time.Hour) }

// past gives the ids of the runs that a rule would remove on day 100.
func past(t *testing.T, db *DB, p Past) []string {
	t.Helper()
	p.Now = days(100)
	end := must(db.PastEnd(t.Context(), p))(t)
	ids := []string{}
	for after := (Ended{}); ; {
		list := must(db.PastRuns(t.Context(), p, after, end, 2))(t)
		if len(list) == 0 {
			return ids
		}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		after = list[len(list)-1]
	}
}

// removed removes what a rule would remove on day 100, and everything of it.
func removed(t *testing.T, db *DB, p Past) int {
	t.Helper()
	p.Now = days(100)
	n := must(db.RemoveRuns(t.Context(), p, past(t, db, p)))(t)
	for more := true; more; {
		more = must(db.PurgeRemoved(t.Context()))(t)
	}
	return n
}

// TestC7_RetentionByAgeAndNumber: runs are removed that ended longer ago than the
// age, or are not among the newest; of their own workflow only.
func TestC7_RetentionByAgeAndNumber(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for n := range 5 {
			over(t, db, fmt.Sprintf("r%d", n), "greet", days(n*10))
		}
		over(t, db, "other", "zzz", days(0))
		over(t, db, "s1", "same", days(50))
		over(t, db, "s2", "same", days(50))
		begin(t, db, "open")
		const day = 24 * time.Hour
		for _, c := range []struct {
			past Past
			want []string
		}{
			{Past{Workflow: "greet"}, []string{}},
			{Past{Workflow: "greet", Age: 80 * day}, []string{"r0", "r1"}},
			{Past{Workflow: "greet", Age: 80*day - 1000}, []string{"r0", "r1", "r2"}},
			{Past{Workflow: "greet", Runs: 2}, []string{"r0", "r1", "r2"}},
			{Past{Workflow: "greet", Runs: 5}, []string{}},
			{Past{Workflow: "greet", Runs: 6}, []string{}},
			{Past{Workflow: "greet", Runs: 4, Age: 80 * day}, []string{"r0", "r1"}},
			{Past{Workflow: "greet", Runs: 1, Age: 80 * day}, []string{"r0", "r1", "r2", "r3"}},
			{Past{Workflow: "same", Runs: 1}, []string{"s1"}},
			{Past{Workflow: "same", Runs: 1, Age: 50 * day}, []string{"s1"}},
			{Past{Workflow: "none", Runs: 1, Age: 1}, []string{}},
		} {
			diff(t, past(t, db, c.past), c.want)
		}
		var workflows []string
		for at := ""; ; {
			if at = must(db.EndedWorkflow(t.Context(), at))(t); at == "" {
				break
			}
			workflows = append(workflows, at)
		}
		diff(t, workflows, []string{"greet", "same", "zzz"})
		diff(t, removed(t, db, Past{Workflow: "greet", Runs: 1}), 4)
		diff(t, past(t, db, Past{Workflow: "greet", Age: 1}), []string{"r4"})
		_, err := db.RunRow(t.Context(), "r0")
		wantCode(t, err, parley.CodeNotFound)
		check(t, func() error { _, err := db.RunRow(t.Context(), "other"); return err }())
	})
}

// TestC7_RetentionKeeps: a run stays while its key is young, while a run that goes on
// with it is under way, and while it was given up and nobody has looked at that.
func TestC7_RetentionKeeps(t *testing.T) {
	all := Past{Workflow: "greet", Age: time.Second, Now: days(100)}
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		over(t, db, "plain", "greet", days(1))
		over(t, db, "old-key", "greet", days(99).Add(time.Second), func(s *Start) { s.IdempotencyKey, s.Run.CreatedAt = "old", days(99) })
		over(t, db, "young-key", "greet", days(99).Add(time.Second), func(s *Start) { s.IdempotencyKey, s.Run.CreatedAt = "young", days(99).Add(time.Microsecond) })
		over(t, db, "young", "greet", days(99).Add(time.Minute)) // nobody has a key of it
		over(t, db, "retried", "greet", days(1))
		st := start("again")
		st.Run.RetriedFrom = "retried"
		_, err := db.StartRun(ctx, st)
		check(t, err)
		over(t, db, "child", "greet", days(1), func(s *Start) { s.Run.ParentRun, s.Run.ParentStep = "again", "w" })
		over(t, db, "asker", "greet", days(1), func(s *Start) {
			s.Children.Ask = []Child{{Task: "asker.w.1", Parent: "asker", Step: "w", Spec: ChildSpec{Workflow: "x", Depth: 2}, Detached: true}}
		})
		over(t, db, "given-up", "greet", days(1))
		letter := parley.DeadLetter{ID: "dl-1", Kind: parley.DeadLetterTask, State: parley.DeadLetterWaiting, Code: "timeout", Run: "given-up", CreatedAt: epoch, FirstFailedAt: epoch}
		must(db.KeepDeadLetter(ctx, letter))(t)
		diff(t, past(t, db, all), []string{"plain", "old-key", "young"})
		// Who says otherwise is refused.
		diff(t, must(db.RemoveRuns(ctx, all, []string{"young-key", "retried", "again", "child", "asker", "given-up", "none"}))(t), 0)

		row := must(db.RunRow(ctx, "again"))(t)
		d := next(row, 1)
		d.Run.Status, d.Run.EndedAt, d.Run.Due = parley.RunCancelled, days(100), time.Time{}
		check(t, db.Decide(ctx, d))
		check(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: "dl-1", By: "me"}, epoch))
		diff(t, past(t, db, all), []string{"child", "given-up", "plain", "retried", "old-key", "young"})
		diff(t, removed(t, db, all), 6)
		_, err = db.DeadLetter(ctx, "dl-1")
		wantCode(t, err, parley.CodeNotFound)
	})
}

// TestC7_RetentionDecidesAboutEveryTable: every table of the schema is one that holds
// nothing of a removed run, or one that is no affair of runs. A new table belongs in
// this list, with what becomes of its rows in PurgeRemoved.
func TestC7_RetentionDecidesAboutEveryTable(t *testing.T) {
	decided := strings.Fields(`
run.gone event.gone attempt.gone late.gone run_label.gone waiter.gone approval.gone dead_letter.gone removed_run.gone value_ref.gone
child.keeps-its-parent turn.gone-with-the-end lane.gone-when-empty
signal.forgotten-after-a-day imported.gone-if-of-an-archive
agents.kept definition.kept workflow_alias.kept audit.kept worker.kept agent_breaker.kept agent_event.kept agent_health.kept zone_question.kept
retention.kept access_key.kept process.gone-with-the-process schedule.kept schedule_change.kept schedule_firing.kept-by-number workflow_trigger.kept`)
	var want []string
	for _, d := range decided {
		table, _, _ := strings.Cut(d, ".")
		want = append(want, table)
	}
	slices.Sort(want)
	eachDB(t, func(t *testing.T, db *DB) {
		var tables []string
		for line := range strings.Lines(shape(t, db)) {
			table, _, _ := strings.Cut(line, ".")
			tables = append(tables, table)
		}
		diff(t, slices.Compact(tables), want)
	})
}

// TestC7_RetentionRemovesEverything: nothing of a removed run is left in any table,
// and nothing of another is touched.
func TestC7_RetentionRemovesEverything(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		over(t, db, "gone", "greet", days(1), func(s *Start) {
			s.Run.Labels = map[string]string{"team": "blue"}
			s.Attempts = append(s.Attempts, attempt("gone", "b", 1))
			s.Signals.Subscribe = []Waiter{{Run: "gone", Step: "w", Name: "paid", Since: epoch}}
			s.Signals.Ask = []Approval{{Run: "gone", Step: "p", Workflow: "greet", CreatedAt: epoch}}
		})
		over(t, db, "gone.not", "stay", days(1), func(s *Start) {
			s.Run.Labels = map[string]string{"team": "red"}
			s.Signals.Subscribe = []Waiter{{Run: "gone.not", Step: "w", Name: "paid", Since: epoch}}
			s.Signals.Ask = []Approval{{Run: "gone.not", Step: "p", Workflow: "greet", CreatedAt: epoch}}
		})
		for _, task := range []string{"gone.a.1", "gone.b.1", "gone.not.a.1"} {
			for n := range 2 { // the second one is late in any case
				must(db.Answer(ctx, answer(task, fmt.Sprintf(`"late %d"`, n))))(t)
			}
		}
		letter := parley.DeadLetter{ID: "dl-1", Kind: parley.DeadLetterTask, State: parley.DeadLetterWaiting, Code: "timeout", Run: "gone", CreatedAt: epoch, FirstFailedAt: epoch}
		must(db.KeepDeadLetter(ctx, letter))(t)
		check(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: "dl-1", By: "me"}, epoch))
		letter.ID, letter.Run = "dl-2", "gone.not"
		must(db.KeepDeadLetter(ctx, letter))(t)
		everything := []string{"run_label", "waiter", "approval", "dead_letter", "imported", "removed_run"}
		diff(t, removed(t, db, Past{Workflow: "greet", Age: time.Second}), 1)
		left := dump(t, db, everything...)
		for line := range strings.Lines(left) {
			if strings.Contains(line, "gone") && !strings.Contains(line, "gone.not") {
				t.Errorf("left: %s", line)
			}
		}
		if got := strings.Count(left, " [gone.not") + strings.Count(left, " gone.not.a.1 1"); got != 8 {
			t.Errorf("of the other run there are %d rows:\n%s", got, left)
		}
		diff(t, must(db.DeadLetter(ctx, "dl-2"))(t).Run, "gone.not")
	})
}

// TestC7_RetentionIsInSteps: a large run goes at once and its rows in bounded
// transactions, over a crash in between; its id cannot be taken meanwhile.
func TestC7_RetentionIsInSteps(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		over(t, db, "big", "greet", days(1), func(s *Start) {
			for n := 2; n <= 450; n++ {
				s.Attempts = append(s.Attempts, attempt("big", "a", n))
			}
		})
		over(t, db, "a-small", "greet", days(1)) // it is gone as a whole before the other is
		all := Past{Workflow: "greet", Age: time.Second, Now: days(100)}
		diff(t, must(db.RemoveRuns(ctx, all, []string{"big", "a-small"}))(t), 2)
		_, err := db.RunRow(ctx, "big")
		wantCode(t, err, parley.CodeNotFound)
		_, err = db.Import(ctx, importedRun("big", parley.RunFailed))
		wantCode(t, err, parley.CodeConflict)
		in := archivedRun("big")
		wantCode(t, db.AddArchived(ctx, in, epoch), parley.CodeConflict)
		named := start("big", attempt("big", "a", 1))
		named.Named = true
		_, err = db.StartRun(ctx, named)
		wantCode(t, err, parley.CodeUnavailable)
		rows := func() (n int) {
			check(t, db.read(ctx, `SELECT (SELECT count(*) FROM attempt) + (SELECT count(*) FROM event) + (SELECT count(*) FROM removed_run)`,
				func(r *record) error { n = int(r.int()); return nil }))
			return n
		}
		steps, before := 0, rows()
		for more := true; more; steps++ {
			more = must(db.PurgeRemoved(ctx))(t)
			after := rows()
			if gone := before - after; gone > purgeRows+1 || gone == 0 {
				t.Errorf("step %d removed %d rows", steps, gone)
			}
			if more { // its first events are gone
				_, err = db.StartRun(ctx, named)
				wantCode(t, err, parley.CodeUnavailable)
			}
			before = after
		}
		if before != 0 || steps < 3 {
			t.Errorf("%d rows are left after %d steps", before, steps)
		}
		check(t, db.AddArchived(ctx, in, epoch))
	})
}

// TestC7_RetentionIsDoneByOne: a second process gets its turn when the first leaves
// it, or is not heard of for long enough.
func TestC7_RetentionIsDoneByOne(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		take := func(who string, at time.Time) bool {
			return must(db.TakeRetention(t.Context(), who, at, at.Add(time.Minute)))(t)
		}
		diff(t, take("a", epoch), true)
		diff(t, take("b", epoch), false)
		diff(t, take("a", epoch.Add(time.Second)), true)
		diff(t, take("b", epoch.Add(time.Minute)), false)
		diff(t, take("b", epoch.Add(61*time.Second)), true)
		check(t, db.LeaveRetention(t.Context(), "a"))
		diff(t, take("a", epoch.Add(62*time.Second)), false)
		check(t, db.LeaveRetention(t.Context(), "b"))
		diff(t, take("a", epoch.Add(62*time.Second)), true)
	})
}
