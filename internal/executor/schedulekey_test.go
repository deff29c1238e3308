package executor_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestC7_AFiringIsAKey: a firing starts one run, whose key nobody else can use.
func TestC7_AFiringIsAKey(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: order\nsteps: [{id: a, set: '${run.scheduled_at}'}]\n")
		at := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
		req := parley.StartRequest{Workflow: "order", Schedule: "sch-1", ScheduledAt: at, TriggeredBy: "schedule"}
		first, existing, err := r.x.Start(t.Context(), req)
		check(t, err)
		if existing || string(first.Output) != `"2026-03-01T02:00:00Z"` || first.TriggeredBy != "schedule" {
			t.Errorf("existing %v, %s by %s", existing, first.Output, first.TriggeredBy)
		}
		for _, c := range []struct {
			id   string
			at   time.Time
			same bool
		}{{"sch-1", at.In(time.FixedZone("", 3600)), true}, {"sch-2", at, false}, {"sch-1", at.Add(time.Minute), false}} {
			req.Schedule, req.ScheduledAt = c.id, c.at
			run, existing, err := r.x.Start(t.Context(), req)
			check(t, err)
			if existing != c.same || (run.ID == first.ID) != c.same {
				t.Errorf("%s at %s: existing %v", c.id, c.at, existing)
			}
		}
		taken := parley.StartRequest{Workflow: "order", IdempotencyKey: parley.ScheduleKey("sch-1", at)}
		if _, _, err := r.x.Start(t.Context(), taken); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("the key of a firing: %v", err)
		}
		r.apply("name: keyed\nidempotency_key: 'parley:schedule:x'\nsteps: [{id: a, set: 1}]\n")
		if _, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "keyed"}); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("a derived key: %v", err)
		}
		again, err := r.x.Rerun(t.Context(), parley.RerunRequest{Run: first.ID})
		check(t, err)
		if string(again.Output) != string(first.Output) {
			t.Errorf("run again it gives %s", again.Output)
		}
	})
}
