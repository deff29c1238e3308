package retention_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/retention"
	"github.com/parley-project/parley/internal/store"
)

var benchRuns = flag.Int("retention.runs", 2_000, "how many runs the benchmark removes")

// BenchmarkC7_ClaimsWhileRunsAreRemoved tells how long a claim takes, without a sweep
// and while one removes many runs.
func BenchmarkC7_ClaimsWhileRunsAreRemoved(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchClaims(b, openDB(b, store.Options{})) })
	b.Run("postgres", func(b *testing.B) {
		db, err := store.Open(b.Context(), pgtest.Database(b), store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := db.Close(); err != nil {
				b.Error(err)
			}
		})
		if err := db.Migrate(b.Context()); err != nil {
			b.Fatal(err)
		}
		benchClaims(b, db)
	})
}

func benchClaims(b *testing.B, db *store.DB) {
	for b.Loop() {
		seed(b, db)
		inc, err := db.Register(b.Context(), "bridge", now)
		if err != nil {
			b.Fatal(err)
		}
		c := &claimer{b: b, db: db, who: store.Claim{Worker: "bridge", Inc: inc}}
		alone := c.during(func() { time.Sleep(5 * time.Second) })
		var r retention.Report
		var took time.Duration
		swept := c.during(func() {
			begun := time.Now()
			if r, err = retention.New(config(db)).Sweep(b.Context()); err != nil {
				b.Error(err)
			}
			took = time.Since(begun)
		})
		if r.Removed != *benchRuns {
			b.Errorf("%d runs were removed", r.Removed)
		}
		b.ReportMetric(ms(alone, 50), "p50-alone-ms")
		b.ReportMetric(ms(alone, 99), "p99-alone-ms")
		b.ReportMetric(ms(swept, 50), "p50-swept-ms")
		b.ReportMetric(ms(swept, 99), "p99-swept-ms")
		b.ReportMetric(ms(swept, 100), "max-swept-ms")
		b.ReportMetric(float64(r.Removed)/took.Seconds(), "runs/s")
	}
}

func ms(sorted []time.Duration, percent int) float64 {
	return float64(sorted[min(len(sorted)*percent/100, len(sorted)-1)].Microseconds()) / 1000
}

// seed adds old runs of ten events and three attempts.
func seed(b *testing.B, db *store.DB) {
	var n atomic.Int64
	var g sync.WaitGroup
	value := json.RawMessage(`{"text":"` + strings.Repeat("x", 100) + `"}`)
	for range 128 {
		g.Go(func() {
			for i := n.Add(1); i <= int64(*benchRuns); i = n.Add(1) {
				id := fmt.Sprintf("run-%08d", i)
				at := now.Add(-100 * 24 * time.Hour)
				a := store.Archived{Run: store.Run{ID: id, Workflow: "any", Name: "any", Seq: 10, Status: parley.RunCompleted, CreatedAt: at, UpdatedAt: at, EndedAt: at}}
				for seq := range int64(10) {
					a.Events = append(a.Events, parley.Event{Seq: seq + 1, At: at, Type: parley.EventRunCompleted, Run: id, Data: value})
				}
				for k := range 3 {
					a.Attempts = append(a.Attempts, store.ArchivedAttempt{ID: fmt.Sprintf("%s.a.%d", id, k), Step: "a", Number: k, Agent: "x", Input: value, Output: value, ScheduledAt: at})
				}
				if err := db.AddArchived(b.Context(), a, at); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
}

// claimer starts runs and claims their attempts.
type claimer struct {
	b   *testing.B
	db  *store.DB
	who store.Claim
	n   atomic.Int64
}

// during claims by 8 at a time while f runs, and gives how long each claim took.
func (c *claimer) during(f func()) []time.Duration {
	ctx, stop := context.WithCancel(c.b.Context())
	var mu sync.Mutex
	var all []time.Duration
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for ctx.Err() == nil {
				took := c.claim()
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
			}
		})
	}
	f()
	stop()
	g.Wait()
	slices.Sort(all)
	return all
}

func (c *claimer) claim() time.Duration {
	n := c.n.Add(1)
	id := fmt.Sprintf("new-%d", n)
	a := store.Attempt{
		Task:  parley.Task{ID: id + ".a.1", Run: id, Step: "a", Attempt: 1, Agent: "x", Input: json.RawMessage(`{}`)},
		State: store.AttemptOpen, VisibleAt: now,
	}
	_, err := c.db.StartRun(c.b.Context(), store.Start{
		Run:    store.Run{ID: id, Workflow: "new", Name: "new", Version: "1", DefinitionID: "d", Seq: 1, Status: parley.RunRunning, CreatedAt: now, UpdatedAt: now},
		Events: []parley.Event{{Seq: 1, At: now, Type: parley.EventRunStarted, Run: id}}, Attempts: []store.Attempt{a},
	})
	if err != nil {
		c.b.Error(err)
	}
	begun := time.Now()
	got, err := c.db.Claim(c.b.Context(), c.who, []store.ClaimRequest{{TaskID: a.ID, Token: id}}, now)
	took := time.Since(begun)
	if err != nil || len(got) != 1 {
		c.b.Errorf("claim: %d, %v", len(got), err)
	}
	return took
}
