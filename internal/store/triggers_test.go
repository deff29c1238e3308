package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// deployTriggered deploys a version with triggers.
func deployTriggered(t testing.TB, db *DB, workflow, version string, at time.Duration, list ...Trigger) {
	t.Helper()
	_, err := db.PutDefinition(t.Context(), Definition{
		ID: "id-" + workflow + version, Workflow: workflow, Name: workflow, Version: version, Format: "json",
		Source: []byte(`{}`), Digest: workflow + version, CreatedAt: epoch.Add(at), UpdatedAt: epoch.Add(at), Triggers: list,
	}, PutVersion)
	check(t, err)
}

func TestTriggers_OfTheVersionThatAPlainStartTakes(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		paid, orders := Trigger{TriggerEvent, "paid"}, Trigger{TriggerKafka, "orders"}
		fired := func(of Trigger) (workflows []string) {
			t.Helper()
			for _, f := range must(db.Triggered(ctx, of))(t) {
				workflows = append(workflows, f.Name+" "+f.Workflow+"@"+f.Version)
			}
			return workflows
		}
		diff(t, fired(paid), []string(nil))
		deployTriggered(t, db, "a", "1", 0, paid, orders)
		deployTriggered(t, db, "b", "1", 0, paid, Trigger{TriggerEvent, "other"})
		diff(t, fired(paid), []string{"paid a@1", "paid b@1"})
		diff(t, fired(Trigger{Kind: TriggerEvent}), []string{"other b@1", "paid a@1", "paid b@1"})
		diff(t, fired(Trigger{Kind: TriggerKafka}), []string{"orders a@1"})

		deployTriggered(t, db, "b", "2", time.Minute)
		diff(t, fired(paid), []string{"paid a@1"})
		_, _, err := db.SetAlias(ctx, AliasChange{WorkflowAlias: parley.WorkflowAlias{Workflow: "b", Alias: parley.StableAlias, Version: "1", UpdatedAt: epoch}, AuditID: "x1"})
		check(t, err)
		diff(t, fired(paid), []string{"paid a@1", "paid b@1"})
		check(t, db.SetDeprecation(ctx, DeprecationChange{Workflow: "a", Version: "1", AuditID: "x2", Deprecation: parley.Deprecation{At: epoch}}))
		check(t, db.SetDefinitionStatus(ctx, "id-b1", parley.AgentInactive, "", epoch))
		diff(t, fired(paid), []string(nil))
	})
}

func TestTriggers_AnEventIsGivenUntilItHasStartedItsRuns(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployTriggered(t, db, "a", "1", 0, Trigger{TriggerEvent, "paid"})
		run := begin(t, db, "run-1")
		put := func(run string, e parley.Signal) {
			t.Helper()
			_, _, err := db.PutSignal(ctx, run, e, 2)
			check(t, err)
		}
		put("", signal("e1", "paid", "7", 0))
		put("", signal("e2", "unheard", "7", 0))
		put("run-1", signal("e3", "paid", "7", 0))
		d := next(run, 1)
		d.Signals = Signals{Emit: []parley.Signal{signal("e4", "paid", "", time.Second)}, Chain: 3}
		check(t, db.Decide(ctx, d))
		taken := func(at time.Duration, limit int) (ids []string) {
			t.Helper()
			for _, e := range must(db.TakeEventStarts(ctx, epoch.Add(at), limit))(t) {
				ids = append(ids, e.ID)
				if e.ID == "e4" {
					diff(t, e, EventStart{Signal: parley.Signal{ID: "e4", Name: "paid", Data: json.RawMessage(`{ "n": 1.10 }`), Time: epoch.Add(time.Second)}, Chain: 3})
				}
			}
			return ids
		}
		diff(t, taken(time.Minute, 1), []string{"e1"})
		diff(t, taken(time.Minute, 10), []string{"e4"})
		diff(t, taken(time.Minute, 10), []string(nil))
		// Nobody has said that they have started: they are given again, and kept.
		diff(t, must(db.PurgeSignals(ctx, epoch.Add(48*time.Hour), 10))(t), 2)
		put("", signal("e1", "paid", "7", 48*time.Hour)) // the same id is not a new one before
		diff(t, len(taken(48*time.Hour, 10)), 2)
		check(t, db.EndEventStart(ctx, signal("e1", "paid", "7", time.Hour), true))
		diff(t, len(taken(49*time.Hour, 10)), 2)
		check(t, db.EndEventStart(ctx, signal("e1", "paid", "7", 0), true))
		check(t, db.EndEventStart(ctx, signal("e4", "paid", "", time.Second), false))
		diff(t, taken(50*time.Hour, 10), []string(nil))
		diff(t, must(db.PurgeSignals(ctx, epoch.Add(50*time.Hour), 10))(t), 2)
	})
}

func TestTriggers_AnEventThatStartedRunsWaitsNoMore(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		deployTriggered(t, db, "a", "1", 0, Trigger{TriggerEvent, "paid"})
		for _, id := range []string{"e1", "e2", "e3"} {
			_, _, err := db.PutSignal(ctx, "", signal(id, "paid", "7", 0), 1)
			check(t, err)
			check(t, db.EndEventStart(ctx, signal(id, "paid", "7", 0), true))
		}
		check(t, db.EndEventStart(ctx, signal("e3", "paid", "7", 0), false))
		_, _, err := db.PutSignal(ctx, "", signal("e4", "paid", "7", 0), 1)
		check(t, err)
		_, _, err = db.PutSignal(ctx, "", signal("e5", "paid", "7", 0), 1)
		wantCode(t, err, parley.CodeLimit)
	})
}
