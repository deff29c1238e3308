package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/schedule"
	"github.com/parley-project/parley/internal/store"
)

// schedules gives what is listed: the time, the version and the status of each.
func (r *rig) schedules() string {
	r.t.Helper()
	list, total, err := r.book.List(r.t.Context(), parley.ScheduleQuery{})
	check(r.t, err)
	if total != len(list) {
		r.t.Errorf("%d of %d", len(list), total)
	}
	var all []string
	for _, s := range list {
		all = append(all, s.Workflow+"@"+s.Version+" "+s.Every+" "+string(s.Status))
	}
	return strings.Join(all, ", ")
}

func (r *rig) listed(want string) {
	r.t.Helper()
	if got := r.schedules(); got != want {
		r.t.Errorf("the schedules are %s, want %s", got, want)
	}
}

// version deploys the next version of a workflow with a schedule.
func (r *rig) version(every, name string) {
	r.t.Helper()
	r.apply("name: flow\ntriggers: [{schedule: {every: " + every + "}}]\nsteps: [{id: a, name: " + name + ", set: 1}]\n")
}

// TestScheduleFollowsVersions: the schedules are those of the version that a plain
// start runs, whatever changes that, and one that is the same stays as it is.
func TestScheduleFollowsVersions(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: other\nsteps: [{id: a, set: 1}]\n")
		r.version("10s", "one")
		r.listed("flow@1 10s active")
		list, _, err := r.book.List(t.Context(), parley.ScheduleQuery{})
		check(t, err)
		_, err = r.book.Pause(t.Context(), parley.ScheduleChange{Ref: list[0].ID, By: "ann"})
		check(t, err)
		r.version("10s", "two")
		r.listed("flow@2 10s paused")
		r.version("20s", "three")
		r.listed("flow@3 20s active")
		alias := func(version string) {
			_, _, err := r.catalog.SetAlias(t.Context(), parley.AliasRequest{Workflow: "flow", Alias: "stable", Version: version})
			check(t, err)
		}
		alias("1")
		r.listed("flow@1 10s active")
		r.version("30s", "four")
		r.listed("flow@1 10s active")
		check(t, r.catalog.RemoveAlias(t.Context(), parley.AliasRequest{Workflow: "flow", Alias: "stable"}))
		r.listed("flow@4 30s active")
		deprecate := func(ref string, undo bool) {
			_, err := r.catalog.Deprecate(t.Context(), parley.DeprecateRequest{Ref: ref, Undo: undo})
			check(t, err)
		}
		deprecate("flow@4", false)
		r.listed("flow@3 20s active")
		deprecate("flow@4", true)
		check(t, r.catalog.Remove(t.Context(), "flow@4", "ann"))
		r.listed("flow@3 20s active")
		_, err = r.book.Add(t.Context(), parley.ScheduleRequest{Workflow: "flow", ScheduleSpec: parley.ScheduleSpec{Every: "5s"}})
		check(t, err)
		for _, v := range []string{"1", "2", "3"} {
			deprecate("flow@"+v, false)
		}
		r.listed("flow@ 5s active") // it was added, and will say why it starts nothing
		deprecate("flow@1", true)
		check(t, r.catalog.Remove(t.Context(), "flow", "ann"))
		r.listed("")
	})
}

// TestScheduleLeavesAfterItsFirings: what has come due of a schedule is started though the
// next version has another one instead; it fires no more, and goes when all have started.
func TestScheduleLeavesAfterItsFirings(t *testing.T) {
	for name, c := range map[string]struct {
		broken  bool // no run can be started when the version comes
		started []time.Duration
	}{
		"waiting":       {started: []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}},
		"being started": {broken: true, started: []time.Duration{10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				s := r.flow("{every: 10s, overlap: queue}", "wait: 14s")
				other, err := r.book.Add(t.Context(), parley.ScheduleRequest{Workflow: "flow", ScheduleSpec: parley.ScheduleSpec{Every: "30m"}})
				check(t, err)
				if c.broken {
					r.fault.Store(new(func(point string) error {
						if point == "P1.before" {
							return errors.New("no disk")
						}
						return nil
					}))
				}
				r.scheduler()
				r.until("31s")
				r.version("1h", "another")
				left, err := r.book.Get(t.Context(), s.ID)
				check(t, err)
				if left.NextAt != nil {
					t.Errorf("it fires again at %s", left.NextAt)
				}
				r.fault.Store(nil)
				r.until("2m")
				if _, err = r.book.Get(t.Context(), s.ID); parley.CodeOf(err) != parley.CodeNotFound {
					t.Errorf("after its firings it is there: %v", err)
				}
				if other, err = r.book.Get(t.Context(), other.ID); err != nil || other.NextAt == nil {
					t.Errorf("one beside it: %+v, %v", other, err)
				}
				for at := 10 * time.Second; at <= 30*time.Second; at += 10 * time.Second {
					_, err := r.db.RunByKey(t.Context(), "flow", parley.ScheduleKey(s.ID, epoch().Add(at)))
					if started := err == nil; started != slices.Contains(c.started, at) {
						t.Errorf("the firing of %s: has started a run: %t (%v)", at, started, err)
					}
				}
			})
		})
	}
}

// TestScheduleThatLeaves: one whose last firings wait goes at once when it is paused, and
// with its workflow; it goes on when a version has it again.
func TestScheduleThatLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(r *rig, id string)
		want string
	}{
		"paused": {func(r *rig, id string) {
			_, err := r.book.Pause(r.t.Context(), parley.ScheduleChange{Ref: id})
			check(r.t, err)
		}, "flow@2 1h active"},
		"paused and resumed": {func(r *rig, id string) {
			_, err := r.book.Pause(r.t.Context(), parley.ScheduleChange{Ref: id})
			check(r.t, err)
			s, err := r.book.Resume(r.t.Context(), parley.ScheduleChange{Ref: id})
			check(r.t, err)
			if s.NextAt != nil {
				r.t.Errorf("it fires again at %s", s.NextAt)
			}
		}, "flow@2 1h active, flow@1 10s active"},
		"wanted again": {func(r *rig, id string) {
			_, _, err := r.catalog.SetAlias(r.t.Context(), parley.AliasRequest{Workflow: "flow", Alias: "stable", Version: "1"})
			check(r.t, err)
			s, err := r.book.Get(r.t.Context(), id)
			check(r.t, err)
			if s.NextAt == nil || !s.NextAt.Equal(epoch().Add(30*time.Second)) {
				r.t.Errorf("the next firing is at %v", s.NextAt)
			}
		}, "flow@1 10s active"},
		"deleted": {func(r *rig, _ string) { check(r.t, r.catalog.Remove(r.t.Context(), "flow", "ann")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				s := r.flow("{every: 10s, overlap: queue}", "wait: 14s")
				r.scheduler()
				r.until("21s")
				r.version("1h", "another")
				r.listed("flow@2 1h active, flow@1 10s active")
				c.do(r, s.ID)
				r.until("24s")
				r.listed(c.want)
			})
		})
	}
}

// TestScheduleFollowsOthers: what another process has deployed is there within
// seconds.
func TestScheduleFollowsOthers(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.scheduler()
		time.Sleep(time.Minute)
		source := []byte("name: flow\ntriggers: [{schedule: {every: 10s}}]\nsteps: [{id: a, set: 1}]\n")
		_, err := r.db.PutDefinition(t.Context(), store.Definition{
			ID: "other", Workflow: "flow", Name: "flow", Format: "yaml", Source: source, Digest: "d", CreatedAt: time.Now(), UpdatedAt: time.Now(),
		}, store.PutVersion)
		check(t, err)
		time.Sleep(3 * time.Second)
		r.listed("flow@1 10s active")
	})
}

// TestSchedulePause: a paused schedule fires nothing, and nothing of that time is
// made up for.
func TestSchedulePause(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		s := r.flow("{every: 10s}", "set: 1")
		r.scheduler()
		r.until("15s")
		s, err := r.book.Pause(t.Context(), parley.ScheduleChange{Ref: s.ID, By: "ann"})
		check(t, err)
		if s.Status != parley.SchedulePaused || s.NextAt != nil || s.PausedBy != "ann" || s.PausedAt == nil {
			t.Errorf("paused: %+v", s)
		}
		_, err = r.book.Pause(t.Context(), parley.ScheduleChange{Ref: s.ID, By: "bob"})
		check(t, err)
		r.until("45s")
		s, err = r.book.Resume(t.Context(), parley.ScheduleChange{Ref: s.ID, By: "ann"})
		check(t, err)
		if s.Status != parley.ScheduleActive || s.NextAt == nil || !s.NextAt.Equal(epoch().Add(50*time.Second)) || s.PausedAt != nil {
			t.Errorf("resumed: %+v", s)
		}
		r.until("55s")
		r.want(s.ID, "10s fired 10s-10s COMPLETED\n50s fired 50s-50s COMPLETED")
		audits, total, err := r.db.Audits(t.Context(), store.AuditQuery{})
		check(t, err)
		if total != 2 || audits[0].Action != "resume" || audits[1].Action != "pause" || audits[0].EntityType != "schedule" || audits[0].EntityID != s.ID || audits[1].By != "ann" {
			t.Errorf("the audit record has %+v", audits)
		}
	})
}

// TestScheduleBackfill: the firings of a time that has passed start in order under
// overlap, both ends included, also while the schedule is paused; what has started
// a run is left alone.
func TestScheduleBackfill(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.until("100s")
		s := r.flow("{every: 20s}", "wait: 5s")
		r.scheduler()
		r.until("125s")
		_, err := r.book.Pause(t.Context(), parley.ScheduleChange{Ref: s.ID})
		check(t, err)
		backfill := func(from, to time.Duration) (parley.BackfillReport, error) {
			return r.book.Backfill(t.Context(), parley.BackfillRequest{Ref: s.ID, From: epoch().Add(from), To: epoch().Add(to)})
		}
		report, err := backfill(40*time.Second, 120*time.Second)
		check(t, err)
		if report != (parley.BackfillReport{Firings: 5, Before: 1}) {
			t.Errorf("%+v", report)
		}
		r.until("160s")
		r.want(s.ID, `
			40s fired 2m6s-2m11s COMPLETED
			1m0s fired 2m11s-2m16s COMPLETED
			1m20s fired 2m17s-2m22s COMPLETED
			1m40s fired 2m22s-2m27s COMPLETED
			2m0s fired 2m0s-2m5s COMPLETED`)
		if report, err = backfill(0, 120*time.Second); err != nil || report != (parley.BackfillReport{Firings: 7, Before: 5}) {
			t.Errorf("again: %+v, %v", report, err)
		}
		for _, c := range []struct {
			from, to time.Duration
			code     parley.Code
		}{{time.Minute, time.Second, parley.CodeInvalid}, {0, time.Hour, parley.CodeInvalid}, {-6 * time.Hour, 0, parley.CodeLimit}} {
			if _, err := backfill(c.from, c.to); parley.CodeOf(err) != c.code {
				t.Errorf("from %s to %s: %v, want %s", c.from, c.to, err, c.code)
			}
		}
	})
}

// TestScheduleBackfillBesideOwnFirings: under cancel_previous a firing of the schedule's
// own cancels the run that is under way, and starts before what was asked for: that would
// be cancelled one after another.
func TestScheduleBackfillBesideOwnFirings(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.until("100s")
		s := r.flow("{every: 20s, overlap: cancel_previous}", "wait: 12s")
		r.scheduler()
		r.until("102s")
		report, err := r.book.Backfill(t.Context(), parley.BackfillRequest{Ref: s.ID, From: epoch().Add(20 * time.Second), To: epoch().Add(80 * time.Second)})
		check(t, err)
		if report != (parley.BackfillReport{Firings: 4}) {
			t.Errorf("%+v", report)
		}
		r.until("165s")
		r.want(s.ID, `
			20s fired 1m43s-1m55s COMPLETED
			40s fired 1m56s-2m0s CANCELLED
			1m0s fired 2m12s-2m20s CANCELLED
			1m20s fired 2m32s-2m40s CANCELLED
			2m0s fired 2m0s-2m12s COMPLETED
			2m20s fired 2m20s-2m32s COMPLETED
			2m40s fired 2m40s`)
	})
}

// TestScheduleMaxInput: a schedule whose runs would be refused for the size of their
// input is refused.
func TestScheduleMaxInput(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: flow\nsteps: [{id: a, set: 1}]\n")
		input := []byte(`{"text":"0123456789"}`)
		for most, code := range map[int64]parley.Code{0: "", int64(len(input)) - 1: parley.CodeLimit, int64(len(input)): ""} {
			cfg := r.config()
			cfg.MaxInput = most
			_, err := schedule.NewBook(cfg, nil).Add(r.t.Context(), parley.ScheduleRequest{Workflow: "flow", ScheduleSpec: parley.ScheduleSpec{Every: "1h", Input: input}})
			if (err != nil || code != "") && parley.CodeOf(err) != code {
				r.t.Errorf("at most %d bytes: %v, want %q", most, err, code)
			}
		}
	})
}

// TestScheduleAdd: what is added is found by its id and its name, and what could
// never start a run is refused.
func TestScheduleAdd(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: flow\ninput: {type: object, required: [n]}\nsteps: [{id: a, set: 1}]\n")
		add := func(name string, spec parley.ScheduleSpec) (parley.Schedule, error) {
			return r.book.Add(t.Context(), parley.ScheduleRequest{Workflow: "flow", Name: name, ScheduleSpec: spec, By: "ann"})
		}
		n := []byte(`{"n":"${event.scheduled_at}"}`)
		time.Sleep(1500 * time.Nanosecond) // what is stored has whole microseconds
		s, err := add("nightly", parley.ScheduleSpec{Cron: "0  2 * * *", Zone: "Europe/Berlin", Input: n})
		check(t, err)
		if s.Cron != "0 2 * * *" || s.Overlap != "skip" || s.CatchUp != "10m" || s.Version != "" || s.CreatedBy != "ann" ||
			s.NextAt == nil || !s.NextAt.Equal(epoch().Add(time.Hour)) || s.Last != nil || string(s.Input) != string(n) {
			t.Errorf("%+v", s)
		}
		for _, ref := range []string{s.ID, "nightly"} {
			if got, err := r.book.Get(t.Context(), ref); err != nil || got.ID != s.ID || !got.CreatedAt.Equal(s.CreatedAt) {
				t.Errorf("%s is %s of %v, %v, want %s of %v", ref, got.ID, got.CreatedAt, err, s.ID, s.CreatedAt)
			}
		}
		for _, c := range []struct {
			name string
			spec parley.ScheduleSpec
			code parley.Code
			says string
		}{
			{"nightly", parley.ScheduleSpec{Every: "1h", Input: n}, parley.CodeConflict, `"nightly"`},
			{"", parley.ScheduleSpec{}, parley.CodeInvalid, "needs cron"},
			{"", parley.ScheduleSpec{Cron: "0 2 * *", Input: n}, parley.CodeInvalid, "this has 4"},
			{"", parley.ScheduleSpec{Every: "1h", Overlap: "skp", Jitter: "2h", Input: n}, parley.CodeInvalid, `did you mean "skip"?`},
			{"", parley.ScheduleSpec{Every: "1h"}, parley.CodeInvalidInput, `"n"`},
			{"", parley.ScheduleSpec{Every: "1h", Input: []byte(`{"n":"${now}"}`)}, parley.CodeInvalid, "in scope"},
			{"sch-1", parley.ScheduleSpec{Every: "1h", Input: n}, parley.CodeInvalid, "name"},
			{"a/b", parley.ScheduleSpec{Every: "1h", Input: n}, parley.CodeInvalid, "name"},
			{".", parley.ScheduleSpec{Every: "1h", Input: n}, parley.CodeInvalid, "name"},
			{"..", parley.ScheduleSpec{Every: "1h", Input: n}, parley.CodeInvalid, "name"},
		} {
			if _, err := add(c.name, c.spec); parley.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q %+v: %v, want %s with %s", c.name, c.spec, err, c.code, c.says)
			}
		}
		if _, err := r.book.Add(t.Context(), parley.ScheduleRequest{Workflow: "none", ScheduleSpec: parley.ScheduleSpec{Every: "1h"}}); parley.CodeOf(err) != parley.CodeNotFound {
			t.Errorf("of no workflow: %v", err)
		}
		check(t, r.book.Remove(t.Context(), parley.ScheduleChange{Ref: "nightly", By: "ann"}))
		if err := r.book.Remove(t.Context(), parley.ScheduleChange{Ref: "nightly"}); parley.CodeOf(err) != parley.CodeNotFound {
			t.Errorf("removed twice: %v", err)
		}
		r.version("10s", "two")
		list, _, err := r.book.List(t.Context(), parley.ScheduleQuery{})
		check(t, err)
		err = r.book.Remove(t.Context(), parley.ScheduleChange{Ref: list[0].ID})
		if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "parley schedule pause "+list[0].ID) {
			t.Errorf("of a definition: %v", err)
		}
	})
}

// TestScheduleBackfillOfWhatComesAnyhow: firings that wait, are being started or are yet to
// be handled are left alone by a backfill; of a paused schedule nothing is to come.
func TestScheduleBackfillOfWhatComesAnyhow(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(r *rig, s parley.Schedule)
		want  parley.BackfillReport
		waits int
	}{
		"waiting": {func(r *rig, _ parley.Schedule) { r.scheduler() }, parley.BackfillReport{Firings: 3, Before: 3}, 2},
		"being started": {func(r *rig, _ parley.Schedule) {
			r.fault.Store(new(func(point string) error {
				if point == "P1.before" {
					return errors.New("no disk")
				}
				return nil
			}))
			r.scheduler()
		}, parley.BackfillReport{Firings: 3, Before: 3}, 0},
		"nobody is there": {func(*rig, parley.Schedule) {}, parley.BackfillReport{Firings: 3, Before: 3}, 0},
		"paused": {func(r *rig, s parley.Schedule) {
			_, err := r.book.Pause(r.t.Context(), parley.ScheduleChange{Ref: s.ID})
			check(r.t, err)
		}, parley.BackfillReport{Firings: 3}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				s := r.flow("{every: 20s, overlap: queue}", "wait: 50s")
				c.begin(r, s)
				r.until("65s")
				report, err := r.book.Backfill(t.Context(), parley.BackfillRequest{Ref: s.ID, From: epoch().Add(20 * time.Second), To: epoch().Add(time.Minute)})
				check(t, err)
				s, err = r.book.Get(t.Context(), s.ID)
				check(t, err)
				if report != c.want || s.Waiting != c.waits {
					t.Errorf("%+v, and %d wait, want %+v and %d", report, s.Waiting, c.want, c.waits)
				}
			})
		})
	}
}
