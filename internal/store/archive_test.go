package store

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// archivedRun is a run of an archive with everything that one can have.
func archivedRun(id string) Archived {
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	a := Archived{
		Run: Run{
			ID: id, Workflow: "order", Name: "Order", Version: "7", DefinitionID: "def-7", Seq: 2, Status: parley.RunFailed, Hidden: true, Cancelling: true,
			Labels: map[string]string{"team": "blue"}, RetriedFrom: "run-0", ParentRun: "run-p", ParentStep: "work[1]/x", TriggeredBy: "api", Error: []byte(`{"code":"timeout","message":"Too late"}`),
			CancelledBy: "me", CancelReason: "why", CreatedAt: at(0), StartedAt: at(0), UpdatedAt: at(2), EndedAt: at(2),
		},
		IdempotencyKey: "key-" + id, InputDigest: "digest",
		Definition: &Definition{
			ID: "def-7", Workflow: "order", Name: "Order", Version: "7", Number: 7, Description: "d", Format: "yaml", Source: []byte("name: order"), Digest: "x",
			Status: parley.AgentDeleted, CreatedAt: at(0), UpdatedAt: at(0), CreatedBy: "me", UpdatedBy: "me",
		},
		Events: []parley.Event{
			{Seq: 1, At: at(0), Type: parley.EventRunStarted, Run: id, Data: []byte(`{"input": {"a":1}}`)},
			{Seq: 2, At: at(2), Type: parley.EventRunFailed, Run: id, Step: "a", Attempt: 3},
		},
		Attempts: []ArchivedAttempt{
			{
				ID: id + ".a.1", Step: "a", Number: 1, Agent: "writer", CorrelationID: "c", ContextID: "x", Input: []byte("{\n}"),
				Policy:  Policy{OutcomeUnknown: parley.OutcomeLookup, Silence: time.Minute, AttemptTimeout: time.Hour, OnOpen: parley.OnOpenFail},
				Urgency: 1, Orphanings: 2, Questions: 3, CancelRequested: true, ReplySent: true,
				AgentTaskID: "t", AgentContextID: "u", AgentEndpoint: "http://a", AgentVersion: "1.0",
				Outcome: "failed", Output: []byte("\x00\xff"), Meta: []byte(`{"status":503}`), Question: []byte(`{"text":"?"}`), Reply: []byte(`{"text":"!"}`),
				Deadline: at(9), ScheduledAt: at(0), ClaimedAt: at(1), SettledAt: at(2),
				Late: []ArchivedAnswer{{At: at(3), From: "b", Outcome: "ok", Output: []byte(`{"a`), Meta: []byte(`{}`)}, {At: at(3), From: "b", Outcome: "failed"}},
			},
			{ID: id + ".a.2", Step: "a", Number: 2, Agent: "writer", Input: []byte(`{}`), ScheduledAt: at(1)},
		},
	}
	return a
}

// TestC7_ArchiveIsReadBackWhole: what is brought in is what is taken out; it is found
// and shown as other runs are, and nobody acts upon it.
func TestC7_ArchiveIsReadBackWhole(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := archivedRun("run-1")
		check(t, db.AddArchived(ctx, in, epoch))
		diff(t, must(db.Archived(ctx, "run-1"))(t), in)
		found, _, err := db.SearchRuns(ctx, parley.RunQuery{Labels: map[string]string{"team": "blue"}, Text: "too LATE", Hidden: true}, 10)
		check(t, err)
		diff(t, len(found), 1)
		log, total, err := db.AttemptLog(ctx, parley.AttemptQuery{Run: "run-1"})
		check(t, err)
		if total != 2 || log[0].Status != 503 || log[0].State != "closed" {
			t.Errorf("%+v", log)
		}
		w := must(db.Wakeups(ctx, days(1000), 10))(t)
		diff(t, w, Wakeups{})
		diff(t, must(db.Publish(ctx, days(1000), 10))(t), []Attempt(nil))
		diff(t, must(db.RunByKey(ctx, "order", "key-run-1"))(t), "run-1")
		wantCode(t, db.AddArchived(ctx, in, epoch), parley.CodeConflict)

		_, err = db.Archived(ctx, "none")
		wantCode(t, err, parley.CodeNotFound)
		begin(t, db, "open")
		_, err = db.Archived(ctx, "open")
		wantCode(t, err, parley.CodeConflict)
	})
}

// TestC7_ArchiveIsRefusedWhole: what is in the way is not overwritten, and of a run
// that is refused nothing is written.
func TestC7_ArchiveIsRefusedWhole(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		check(t, db.AddArchived(ctx, archivedRun("run-1"), epoch))
		before := dump(t, db, "run_label", "imported")
		for name, c := range map[string]struct {
			change func(*Archived)
			code   parley.Code
		}{
			"key":        {func(a *Archived) { a.IdempotencyKey = "key-run-1" }, parley.CodeConflict},
			"definition": {func(a *Archived) { a.Definition.Source = []byte("name: other") }, parley.CodeConflict},
			"id": {func(a *Archived) {
				a.Run.ID, a.Attempts = "run-1", nil
				a.Events[0].Run, a.Events[1].Run = "run-1", "run-1"
			}, parley.CodeConflict},
			"open":          {func(a *Archived) { a.Run.EndedAt = time.Time{} }, parley.CodeInvalid},
			"running":       {func(a *Archived) { a.Run.Status = parley.RunRunning }, parley.CodeInvalid},
			"events":        {func(a *Archived) { a.Events = a.Events[:1] }, parley.CodeInvalid},
			"gap":           {func(a *Archived) { a.Events[1].Seq = 3 }, parley.CodeInvalid},
			"event":         {func(a *Archived) { a.Events[0].Data = []byte("{") }, parley.CodeInvalid},
			"attempt":       {func(a *Archived) { a.Attempts[1].ID = "run-1.b.1" }, parley.CodeInvalid},
			"attempt twice": {func(a *Archived) { a.Attempts[1].ID = a.Attempts[0].ID }, parley.CodeInvalid},
			"another one":   {func(a *Archived) { a.Definition.Version = "8" }, parley.CodeInvalid},
			"definition of another": {func(a *Archived) {
				a.Run.Workflow, a.Definition.Workflow = "other", "other"
			}, parley.CodeConflict},
		} {
			in := archivedRun("run-2")
			c.change(&in)
			if err := db.AddArchived(ctx, in, epoch); parley.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
			diff(t, dump(t, db, "run_label", "imported"), before)
		}
	})
}

// TestC10_ArchivedVersions: a version that comes with a run is there for it and starts
// nothing; it does not come to stand before what is deployed; who deploys the same
// document has it.
func TestC10_ArchivedVersions(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployed := Definition{ID: "def-here", Workflow: "order", Name: "Order", Version: "1", Format: "yaml", Source: []byte("name: here"), Digest: "here", CreatedAt: epoch, UpdatedAt: epoch}
		must(db.PutDefinition(ctx, deployed, PutVersion))(t)
		check(t, db.AddArchived(ctx, archivedRun("run-1"), epoch))
		for _, ref := range []string{"order", "Order"} {
			diff(t, must(db.Definition(ctx, ref))(t).Version, "1")
		}
		got := must(db.Definition(ctx, "order@7"))(t)
		if got.Status != parley.AgentDeleted || got.Number != 0 || !bytes.Equal(got.Source, []byte("name: order")) {
			t.Errorf("%+v", got)
		}
		list, _, err := db.Definitions(ctx, parley.WorkflowQuery{})
		check(t, err)
		if len(list) != 1 || list[0].Version != "1" {
			t.Errorf("the workflow is shown as %+v", list)
		}
		second := archivedRun("run-2")
		second.Run.Version, second.Definition.Version, second.Definition.Number = "8", "8", 1
		check(t, db.AddArchived(ctx, second, epoch))
		diff(t, must(db.Definition(ctx, "order@8"))(t).Number, -1)
		same := deployed
		same.ID, same.Version, same.Source, same.Digest = "def-new", "7", []byte("name: order"), "x"
		back := must(db.PutDefinition(ctx, same, PutVersion))(t)
		if back.Status != parley.AgentActive || back.ID != "def-7" {
			t.Errorf("deployed again: %+v", back)
		}
	})
}

// TestC7_RetentionOfArchivedRuns: a run that was brought in counts from then; one that
// has left can come back.
func TestC7_RetentionOfArchivedRuns(t *testing.T) {
	all := Past{Workflow: "order", Age: 10 * 24 * time.Hour}
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := archivedRun("run-1")
		check(t, db.AddArchived(ctx, in, days(95)))
		check(t, db.AddArchived(ctx, archivedRun("run-3"), days(99).Add(time.Second))) // when one came is nothing to the others
		diff(t, past(t, db, all), []string{})
		diff(t, past(t, db, Past{Workflow: "order", Age: 5 * 24 * time.Hour}), []string{"run-1"})
		over(t, db, "run-2", "order", days(99))
		diff(t, past(t, db, Past{Workflow: "order", Runs: 1}), []string{"run-1"})
		diff(t, removed(t, db, Past{Workflow: "order", Runs: 1}), 1)
		diff(t, must(db.ImportState(ctx, importArchived, "run-1", ""))(t), ImportNew)
		diff(t, must(db.ImportState(ctx, importArchived, "run-3", ""))(t), ImportSame)
		check(t, db.AddArchived(ctx, in, days(99).Add(time.Second)))
		diff(t, past(t, db, Past{Workflow: "order", Runs: 1}), []string{})
		diff(t, must(db.Archived(ctx, "run-1"))(t), in)
	})
}

// TestC7_ArchiveOfAllLateAnswers: a run is not removed while the archive has not all of
// its late answers; those that a later line has are added to a run that is here, once.
func TestC7_ArchiveOfAllLateAnswers(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := archivedRun("run-1")
		in.Attempts[0].Late = in.Attempts[0].Late[:1]
		check(t, db.AddArchived(ctx, in, epoch))
		more := archivedRun("run-1")
		gone := more.Attempts[0]
		gone.ID = "run-2.a.1"
		for range 2 {
			check(t, db.AddArchivedLate(ctx, append(more.Attempts, gone)))
			diff(t, must(db.Archived(ctx, "run-1"))(t), more)
		}
		diff(t, lateRows(t, db), []string{"run-1.a.1", "run-1.a.1"})
		p := Past{Now: days(1000), Workflow: "order"}
		for has, want := range []int{0, 0, 1} {
			p.Late = map[string]int{"run-1": has, "run-2": 9}
			diff(t, must(db.RemoveRuns(ctx, p, []string{"run-1"}))(t), want)
		}
	})
}

// TestC7_ArchiveHoldsValuesThatAreKeptApart: an archive has them whole, who brings one
// in keeps them apart again, and they go with their run.
func TestC7_ArchiveHoldsValuesThatAreKeptApart(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		ctx := t.Context()
		in := archivedRun("run-1")
		in.Events[0].Data = withValue(`{"input":VALUE}`, large(1))
		in.Attempts[0].Input, in.Attempts[0].Output = large(1), large(2)
		check(t, db.AddArchived(ctx, in, epoch))
		s.counts(t, 2, 0)
		diff(t, must(db.Archived(ctx, "run-1"))(t), in)
		s.counts(t, 0, 2)

		if n := must(db.RemoveRuns(ctx, Past{Now: days(1000), Workflow: "order"}, []string{"run-1"}))(t); n != 1 {
			t.Fatalf("%d runs removed", n)
		}
		for more := true; more; {
			more = must(db.PurgeRemoved(ctx))(t)
		}
		check(t, db.EachObject(ctx, func(name string, _ int64) error {
			t.Errorf("object %s is referred to by nobody that is there", name)
			return nil
		}))
	})
}

// TestC7_ArchiveDecidesAboutEveryColumn: every column of a run is one that an archive
// keeps (Archived, and package archive), or one that a run which is over does not need.
// A new column belongs in one of the lists.
func TestC7_ArchiveDecidesAboutEveryColumn(t *testing.T) {
	kept := map[string]string{
		"run": `id workflow name version definition_id seq status phase paused cancelling hidden labels parent_run parent_step retried_from triggered_by error
 cancelled_by cancel_reason idempotency_key input_digest created_at updated_at started_at ended_at`,
		"event":      `run seq last data`,
		"attempt":    `run ` + archivedColumns,
		"late":       `attempt at source outcome output meta`,
		"definition": `id workflow name version number description format source digest created_at created_by`,
	}
	left := map[string]string{
		// follow from the others, or are of use while the run is under way
		"run":        `due error_text`,
		"attempt":    `state held visible_at owner owner_inc token news news_seen hand_off published source trace`,
		"late":       `id news_for`,
		"definition": `status updated_at updated_by deprecated_at deprecated_by deprecated_reason`,
	}
	eachDB(t, func(t *testing.T, db *DB) {
		for table, columns := range kept {
			want := strings.FieldsFunc(columns+" "+left[table], func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
			got := columnsOf(t, db, table)
			slices.Sort(want)
			slices.Sort(got)
			diff(t, got, want)
		}
	})
}

// columnsOf gives the names of a table's columns.
func columnsOf(t *testing.T, db *DB, table string) []string {
	t.Helper()
	rows, err := db.readers.QueryContext(t.Context(), `SELECT * FROM `+table+` WHERE 1 = 0`)
	check(t, err)
	defer func() { check(t, rows.Close()) }()
	names := must(rows.Columns())(t)
	check(t, rows.Err())
	return names
}
