package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// BenchmarkWorkflowWrites is what a run of three steps in a row costs the
// store of one process: one start and three decisions, by 100 runs at once.
func BenchmarkWorkflowWrites(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { workflowWrites(b, newDB(b, Options{}), func() time.Duration { return 0 }) })
	server := pgtest.Start(b, pgtest.Options{Durable: true})
	for _, writers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("postgres, %d writers", writers), func(b *testing.B) {
			server.Exec(`DROP DATABASE IF EXISTS bench`)
			server.Exec(`CREATE DATABASE bench`)
			db := reopen(b, server.URL("bench"), Options{Writers: writers})
			workflowWrites(b, db, server.CPU)
			check(b, db.Close())
		})
	}
}

func workflowWrites(b *testing.B, db *DB, server func() time.Duration) {
	b.Helper()
	const concurrent = 100
	c := bridge(b, db, "b1")
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	theirs := server()
	commits, cpu, begun := db.SyncedCommits(), cpuTime(b), time.Now()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range concurrent {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				workflow(b, db, c, "run-"+uuid.Must(uuid.NewV7()).String())
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/n, "cpu-µs/run")
	b.ReportMetric(float64((server()-theirs).Microseconds())/n, "server-µs/run")
	b.ReportMetric(n/time.Since(begun).Seconds(), "runs/s")
	b.ReportMetric(4*n/float64(db.SyncedCommits()-commits), "units/commit")
}

// workflow makes the writes of one run of three steps.
func workflow(b *testing.B, db *DB, c Claim, id string) {
	b.Helper()
	born := func(step int) Attempt {
		c.Token = fmt.Sprintf("%s-%d", id, step)
		return claimed(attempt(id, fmt.Sprintf("step-%d", step), 1), c)
	}
	a := born(1)
	run := begin(b, db, id, a)
	for step := 1; step <= 3; step++ {
		d := next(run, 2)
		ans := answer(a.ID, `{"text":"some output of a step, as an agent gives it","n":12345}`)
		d.Answer, d.Close = &ans, []Close{{TaskID: a.ID, Absorb: true}}
		if step < 3 {
			a = born(step + 1)
			d.Insert = []Attempt{a}
		} else {
			d.Run.Status, d.Run.EndedAt, d.Run.Due = parley.RunCompleted, epoch, time.Time{}
		}
		if err := db.Decide(b.Context(), d); err != nil {
			b.Error(err)
			return
		}
		run = d.Run
	}
}

// cpuTime is what the process has used of all cores.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
