package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// TestHealthClaims: an active agent is due until somebody has claimed the look at
// it, and again at the time that was named; what was seen is stored by whoever
// has claimed it last.
func TestHealthClaims(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for _, name := range []string{"b", "a", "idle", "gone", "program"} {
			agent := newAgent(name)
			switch name {
			case "idle":
				agent.Status = parley.AgentInactive
			case "gone":
				agent.Status = parley.AgentDeleted
			case "program":
				agent.URL = "stdio:agent"
			}
			check(t, db.CreateAgent(ctx, agent))
		}
		due := func(at time.Time, want ...string) {
			t.Helper()
			diff(t, must(db.HealthDue(ctx, at, 10))(t), want)
		}
		due(epoch, "a", "b")
		diff(t, must(db.HealthDue(ctx, epoch, 1))(t), []string{"a"})
		minute := epoch.Add(time.Minute)
		claim := func(token string, at, next time.Time, names ...string) []string {
			t.Helper()
			var claims []HealthClaim
			for _, name := range names {
				claims = append(claims, HealthClaim{name, next})
			}
			return must(db.ClaimHealth(ctx, claims, token, at))(t)
		}
		diff(t, claim("t1", epoch, minute, "b", "a"), []string{"a", "b"})
		due(epoch)
		due(minute.Add(-time.Microsecond))
		due(minute, "a", "b")
		diff(t, len(claim("t2", epoch, minute, "a", "b")), 0)

		none := parley.HealthState{Agent: "a", Status: parley.HealthUnknown}
		diff(t, must(db.Health(ctx, "a"))(t), none)
		diff(t, must(db.Health(ctx, "nobody"))(t), parley.HealthState{Agent: "nobody", Status: parley.HealthUnknown})
		seen := parley.HealthState{
			Agent: "a", Status: parley.HealthUnhealthy, Message: "no connection", Took: 1500 * time.Microsecond, CheckedAt: epoch, ChangedAt: epoch,
			Failures: 2, CardHash: "abc",
		}
		event := parley.AgentEvent{At: epoch, Type: parley.EventHealthChanged, Data: []byte(`{"to":"unhealthy"}`)}
		if must(db.SaveHealth(ctx, seen, "t2", []parley.AgentEvent{event}))(t) {
			t.Error("stored by somebody who has not claimed it")
		}
		diff(t, len(must(db.AgentEvents(ctx, "a", 0, 10))(t)), 0)
		if !must(db.SaveHealth(ctx, seen, "t1", []parley.AgentEvent{event, event}))(t) {
			t.Error("refused")
		}
		diff(t, must(db.Health(ctx, "a"))(t), seen)
		diff(t, must(db.Healths(ctx, []string{"nobody", "a"}))(t), map[string]parley.HealthState{"a": seen})
		diff(t, len(must(db.AgentEvents(ctx, "a", 0, 10))(t)), 2)
		diff(t, claim("t3", minute, minute.Add(time.Minute), "a"), []string{"a"})
		diff(t, must(db.Health(ctx, "a"))(t), seen)
		if must(db.SaveHealth(ctx, seen, "t1", nil))(t) {
			t.Error("stored by somebody who is too late")
		}
		_, err := db.SaveHealth(ctx, seen, "t3", []parley.AgentEvent{{Data: []byte("{")}})
		wantCode(t, err, parley.CodeInvalid)
		diff(t, must(db.AgentsUp(ctx, 10))(t), []AgentUp{{"a", parley.HealthUnhealthy}})
	})
}

// TestHealthClaimRace: of several processes that want to look at the same agents
// at once, one looks at each.
func TestHealthClaimRace(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		for round := range 10 {
			now := epoch.Add(time.Duration(round) * time.Minute)
			var won atomic.Int64
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					var claims []HealthClaim
					for n := range 5 {
						claims = append(claims, HealthClaim{fmt.Sprint("agent-", (n+i)%5), now.Add(time.Minute)})
					}
					names, err := db.ClaimHealth(t.Context(), claims, fmt.Sprint(round, "-", i), now)
					if err != nil {
						t.Error(err)
					}
					won.Add(int64(len(names)))
				})
			}
			all.Wait()
			diff(t, won.Load(), int64(5))
		}
	})
}

// ended writes calls of an agent that ended at a time after so long.
func ended(t testing.TB, db *DB, agent string, outcomes map[string][]time.Duration, at time.Time) {
	t.Helper()
	check(t, db.submit(t.Context(), synced, func(s *session) error {
		n := 0
		for outcome, list := range outcomes {
			for _, took := range list {
				n++
				if _, err := s.exec(`INSERT INTO attempt (id, run, step, number, agent, input, policy, attempt_timeout, silence, state, held, visible_at,
 scheduled_at, claimed_at, settled_at, outcome) VALUES (?, 'run-1', 's', 1, ?, ?, '', 0, 0, 'closed', 0, 0, 0, ?, ?, ?)`,
					fmt.Sprint(agent, at.UnixMicro(), "-", n), agent, []byte("1"), unixMicro(at.Add(-took)), unixMicro(at), outcome); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// TestCalls: percentiles and errors are those of the newest calls that have ended
// in the window, of one agent, exactly.
func TestCalls(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		diff(t, must(db.Calls(ctx, []string{"a"}, epoch.Add(-time.Minute), epoch, 10))(t)["a"], parley.CallStats{Window: time.Minute})
		var hundred []time.Duration
		for n := range 100 {
			hundred = append(hundred, time.Duration(n+1)*time.Millisecond)
		}
		ended(t, db, "a", map[string][]time.Duration{"ok": hundred[:95], "error": hundred[95:98], "timeout": hundred[98:99], "unknown": hundred[99:], "cancelled": {time.Hour}}, epoch)
		ended(t, db, "a", map[string][]time.Duration{"ok": {time.Hour}}, epoch.Add(-time.Minute))
		ended(t, db, "b", map[string][]time.Duration{"error": {time.Hour}}, epoch)
		want := parley.CallStats{
			Count: 100, Errors: 5, P50: 50 * time.Millisecond, P95: 95 * time.Millisecond, P99: 99 * time.Millisecond, Window: 90 * time.Second,
		}
		now := epoch.Add(30 * time.Second)
		diff(t, must(db.Calls(ctx, []string{"a"}, epoch.Add(-time.Minute), now, 1000))(t)["a"], want)
		diff(t, want.ErrorRate(), 0.05)
		got := must(db.Calls(ctx, []string{"b"}, epoch.Add(-time.Minute), now, 1))(t)["b"]
		diff(t, got, parley.CallStats{Count: 1, Errors: 1, P50: time.Hour, P95: time.Hour, P99: time.Hour, Window: 30 * time.Second})
		// Many at once, more than one statement is about.
		names := make([]string, 0, 40)
		for i := range 38 {
			names = append(names, fmt.Sprint("nobody", i))
		}
		names = append(names, "a", "b")
		all := must(db.Calls(ctx, names, epoch.Add(-time.Minute), now, 1000))(t)
		diff(t, len(all), 40)
		diff(t, all["a"], want)
		diff(t, all["b"].Errors, 1)
		diff(t, all["nobody7"], parley.CallStats{Window: 90 * time.Second})
		diff(t, len(must(db.Calls(ctx, nil, epoch, now, 10))(t)), 0)
		// What is under way has not ended.
		c := bridge(t, db, "b1")
		begin(t, db, "run-2", attempt("run-2", "s", 1), attempt("run-2", "other", 1))
		claim(t, db, c, attempt("run-2", "s", 1).ID, "t")
		diff(t, must(db.InFlight(ctx))(t), map[string]int{attempt("run-2", "s", 1).Agent: 1})
	})
}

// TestPercentile: the smallest value that enough of the others are not above.
func TestPercentile(t *testing.T) {
	for _, c := range []struct{ n, p, want int }{{1, 50, 1}, {1, 99, 1}, {2, 50, 1}, {2, 95, 2}, {3, 50, 2}, {10, 95, 10}, {100, 99, 99}, {1000, 99, 990}, {1001, 99, 991}} {
		var list []time.Duration
		for i := range c.n {
			list = append(list, time.Duration(i+1))
		}
		if got := percentile(list, c.p); got != time.Duration(c.want) {
			t.Errorf("p%d of %d: %d, want %d", c.p, c.n, got, c.want)
		}
		if !slices.IsSorted(list) {
			t.Error("moved")
		}
	}
}

// BenchmarkCalls is what the numbers of one agent cost with 100,000 calls in the
// window.
func BenchmarkCalls(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkCalls(b, newDB(b, Options{})) })
	b.Run("postgres", func(b *testing.B) { benchmarkCalls(b, openedAt(b, pgtest.Copy(b, migrated(b)), Options{})) })
}

func benchmarkCalls(b *testing.B, db *DB) {
	b.Helper()
	list := make([]time.Duration, 10_000)
	for i := range list {
		list[i] = time.Duration(i) * time.Microsecond
	}
	for n := range 10 {
		ended(b, db, "a", map[string][]time.Duration{"ok": list}, epoch.Add(time.Duration(n)*time.Second))
	}
	for _, limit := range []int{2000, 100_000} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			for b.Loop() {
				if s := must(db.Calls(b.Context(), []string{"a"}, epoch.Add(-time.Minute), epoch.Add(time.Minute), limit))(b)["a"]; s.Count != limit {
					b.Fatalf("%+v", s)
				}
			}
		})
	}
}

// TestAgentHealthCheck: how an agent is looked at is stored as it is, and so is
// that its record does not say it.
func TestAgentHealthCheck(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := newAgent("a")
		check(t, db.CreateAgent(ctx, a))
		for _, h := range []*parley.HealthCheck{nil, {Off: true}, {Interval: 10 * time.Second, Timeout: 1500 * time.Millisecond}, nil} {
			a.Health = h
			a = changeAgent(t, db, a)
			diff(t, must(db.Agent(ctx, "a"))(t).Health, h)
		}
	})
}
