package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

func timed(id, workflow, version string) Schedule {
	return Schedule{
		ID: id, Workflow: workflow, Version: version, Spec: []byte(`{"every":"1h"}`), NextAt: epoch.Add(time.Hour), DueAt: epoch.Add(time.Hour),
		CreatedAt: epoch, UpdatedAt: epoch, CreatedBy: "ann", UpdatedBy: "ann",
	}
}

func aFiring(hours int, state parley.FiringState) parley.ScheduleFiring {
	at := epoch.Add(time.Duration(hours) * time.Hour)
	return parley.ScheduleFiring{ScheduledAt: at, DueAt: at, State: state, RecordedAt: at}
}

// TestScheduleMoves: a row moves on by whoever has seen its last state, with what
// is recorded of firings, and is found while there is something to do.
func TestScheduleMoves(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		s := timed("s1", "w", "")
		s.Name = "nightly"
		check(t, db.AddSchedule(ctx, ScheduleMove{Schedule: s, Audit: &Audit{ID: "1", At: epoch, EntityType: "schedule", EntityID: "s1", Action: "create", By: "ann"}, Changes: map[string]any{"name": "nightly"}}))
		other := timed("s2", "w", "")
		other.Name = "nightly"
		wantCode(t, db.AddSchedule(ctx, ScheduleMove{Schedule: other}), parley.CodeConflict)
		diff(t, must(db.Schedule(ctx, "nightly"))(t), s)
		_, err := db.Schedule(ctx, "")
		wantCode(t, err, parley.CodeNotFound)

		due := func(at time.Duration) int { return len(must(db.DueSchedules(ctx, epoch.Add(at), Schedule{}, 10))(t)) }
		diff(t, []int{due(time.Hour - time.Microsecond), due(time.Hour)}, []int{0, 1})
		diff(t, must(db.NextSchedule(ctx, epoch))(t), epoch.Add(time.Hour))
		diff(t, must(db.NextSchedule(ctx, epoch.Add(time.Hour)))(t), time.Time{})
		diff(t, len(must(db.DueSchedules(ctx, epoch.Add(time.Hour), s, 10))(t)), 0)
		earlier := s
		earlier.ID = "s0"
		diff(t, len(must(db.DueSchedules(ctx, epoch.Add(time.Hour), earlier, 10))(t)), 1)
		diff(t, len(must(db.OpenSchedules(ctx, "", 10))(t)), 0)

		m := ScheduleMove{Schedule: s, Firings: []parley.ScheduleFiring{aFiring(1, parley.FiringStarting), aFiring(0, parley.FiringWaiting)}}
		m.StartingAt, m.NextAt, m.DueAt, m.Waiting = epoch.Add(time.Hour), epoch.Add(2*time.Hour), epoch.Add(2*time.Hour), 1
		check(t, db.MoveSchedule(ctx, m))
		before := dump(t, db, "schedule", "schedule_firing", "audit")
		wantStale(t, db.MoveSchedule(ctx, m))
		wantStale(t, db.RemoveSchedule(ctx, m))
		diff(t, dump(t, db, "schedule", "schedule_firing", "audit"), before)
		diff(t, len(must(db.OpenSchedules(ctx, "", 10))(t)), 1)
		diff(t, len(must(db.OpenSchedules(ctx, "s1", 10))(t)), 0)
		diff(t, must(db.WaitingFirings(ctx, "s1", 10))(t), []parley.ScheduleFiring{aFiring(0, parley.FiringWaiting)})
		diff(t, must(db.LastFirings(ctx, "s1", "s2"))(t), map[string]parley.ScheduleFiring{"s1": aFiring(1, parley.FiringStarting)})

		m.Seq, m.StartingAt, m.Run, m.Waiting, m.PausedAt, m.PausedBy = 1, time.Time{}, "run-1", 0, epoch, "bob"
		m.Firings = []parley.ScheduleFiring{aFiring(0, parley.FiringSkipped), aFiring(1, parley.FiringFired)}
		m.Firings[0].Reason, m.Firings[1].Run, m.Firings[1].Backfill = "why", "run-1", true
		check(t, db.MoveSchedule(ctx, m))
		m.Seq = 2
		diff(t, must(db.Schedule(ctx, "s1"))(t), m.Schedule)
		list, total, err := db.Firings(ctx, "s1", parley.Page{Limit: 10})
		check(t, err)
		diff(t, total, 2)
		diff(t, list, []parley.ScheduleFiring{m.Firings[1], m.Firings[0]})
		diff(t, must(db.FiringsBetween(ctx, "s1", epoch, epoch))(t), m.Firings[:1])
		diff(t, []int{due(9 * time.Hour), len(must(db.OpenSchedules(ctx, "", 10))(t))}, []int{0, 0})
		diff(t, must(db.NextSchedule(ctx, epoch))(t), time.Time{})
		for status, want := range map[parley.ScheduleStatus]int{"": 1, "paused": 1, "active": 0, "other": 0} {
			if _, total, err := db.Schedules(ctx, parley.ScheduleQuery{Status: status, Workflow: "w", Page: parley.Page{Limit: 1}}); err != nil || total != want {
				t.Errorf("%s: %d, %v", status, total, err)
			}
		}
		check(t, db.RemoveSchedule(ctx, m))
		diff(t, dump(t, db, "schedule", "schedule_firing"), dump(t, db))
	})
}

// TestScheduleHistoryIsBounded: of each schedule the firings that were recorded
// last are kept, and those that wait.
func TestScheduleHistoryIsBounded(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		check(t, db.AddSchedule(ctx, ScheduleMove{Schedule: timed("s1", "w", "")}))
		m := ScheduleMove{Schedule: timed("s1", "w", "")}
		for i := range 300 {
			m.Firings = append(m.Firings, aFiring(i, parley.FiringMissed))
		}
		// What is not over stays, and what was recorded last though it is of long ago.
		m.Firings[7].State, m.Firings[8].State = parley.FiringWaiting, parley.FiringStarting
		m.Firings[9].RecordedAt = m.Firings[299].RecordedAt.Add(time.Hour)
		check(t, db.MoveSchedule(ctx, m))
		_, total, err := db.Firings(ctx, "s1", parley.Page{Limit: 1})
		check(t, err)
		diff(t, total, firingsKept+2)
		diff(t, must(db.FiringsBetween(ctx, "s1", m.Firings[0].ScheduledAt, m.Firings[20].ScheduledAt))(t), m.Firings[7:10])
	})
}

// TestScheduleOfOneWriter: of many who move a row on, one does.
func TestScheduleOfOneWriter(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		check(t, db.AddSchedule(ctx, ScheduleMove{Schedule: timed("s1", "w", "")}))
		var won atomic.Int64
		var g sync.WaitGroup
		for range 20 {
			g.Go(func() {
				if db.MoveSchedule(ctx, ScheduleMove{Schedule: timed("s1", "w", ""), Firings: []parley.ScheduleFiring{aFiring(1, parley.FiringStarting)}}) == nil {
					won.Add(1)
				}
			})
		}
		g.Wait()
		diff(t, won.Load(), int64(1))
	})
}

// TestScheduleChangesOfWorkflows: whatever changes what a plain start runs is noted
// with it, and schedules are made to agree as of the newest change only.
func TestScheduleChangesOfWorkflows(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		news := int64(0)
		noted := func(what string, more int64) WorkflowChange {
			t.Helper()
			list := must(db.WorkflowChanged(ctx, "w"))(t)
			if len(list) != 1 || list[0].News != news+more {
				t.Fatalf("%s: %v after %d", what, list, news)
			}
			news = list[0].News
			return list[0]
		}
		deployed(t, db, 2)
		first := noted("two versions", 2)
		_, _, err := db.SetAlias(ctx, aliasChange("w", "stable", "1", "1"))
		check(t, err)
		noted("an alias", 1)
		check(t, db.RemoveAlias(ctx, aliasChange("w", "stable", "", "2")))
		noted("no alias", 1)
		check(t, db.SetDeprecation(ctx, DeprecationChange{Workflow: "w", Version: "1", Deprecation: parley.Deprecation{At: epoch}, AuditID: "3"}))
		noted("a deprecation", 1)
		check(t, db.SetDefinitionStatus(ctx, "id-2", parley.AgentDeleted, "ann", epoch))
		newest := noted("a deletion", 1)

		wantStale(t, db.SetDefined(ctx, Defined{WorkflowChange: first, Schedules: []Schedule{timed("old", "w", "1")}}))
		check(t, db.AddSchedule(ctx, ScheduleMove{Schedule: timed("added", "w", "")}))
		check(t, db.SetDefined(ctx, Defined{WorkflowChange: newest, Schedules: []Schedule{timed("a", "w", "1"), timed("b", "w", "1")}}))
		wantStale(t, db.SetDefined(ctx, Defined{WorkflowChange: newest}))
		diff(t, len(must(db.WorkflowChanges(ctx, "", 10))(t)), 0)
		paused := timed("a", "w", "1")
		paused.PausedAt = epoch
		check(t, db.MoveSchedule(ctx, ScheduleMove{Schedule: paused, Firings: []parley.ScheduleFiring{aFiring(1, parley.FiringFired)}}))

		check(t, db.ChangeAllWorkflows(ctx))
		newest = noted("all", 1)
		check(t, db.SetDefined(ctx, Defined{WorkflowChange: newest, Schedules: []Schedule{timed("a", "w", "2"), timed("c", "w", "2")}}))
		got := func() (list []string) {
			all, _, err := db.Schedules(ctx, parley.ScheduleQuery{Page: parley.Page{Limit: 10}})
			check(t, err)
			for _, s := range all {
				list = append(list, fmt.Sprint(s.ID, "@", s.Version, " ", !s.PausedAt.IsZero(), " ", s.Seq))
			}
			return list
		}
		diff(t, got(), []string{"a@2 true 2", "added@ false 0", "c@2 false 0"})
		diff(t, len(must(db.LastFirings(ctx, "a", "b"))(t)), 1)
		check(t, db.ChangeAllWorkflows(ctx))
		check(t, db.SetDefined(ctx, Defined{WorkflowChange: noted("all again", 1), Deleted: true}))
		diff(t, got(), []string(nil))

		_, ok, deleted, err := db.CurrentVersion(ctx, "w")
		check(t, err)
		diff(t, []bool{ok, deleted}, []bool{false, false}) // version 1 is deprecated
		check(t, db.SetDefinitionStatus(ctx, "id-1", parley.AgentDeleted, "ann", epoch))
		_, ok, deleted, err = db.CurrentVersion(ctx, "w")
		check(t, err)
		diff(t, []bool{ok, deleted}, []bool{false, true})
	})
}
