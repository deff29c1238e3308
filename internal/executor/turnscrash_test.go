package executor_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

const naps = "name: naps\nconcurrency: {key: k, limit: 1}\nsteps: [{id: nap, wait: 100ms}, {id: more, wait: 100ms}]\n"

var errCrash = errors.New("the process is dead")

// napper is one process that starts runs which wait for each other, until it dies at
// one of its writes: before it, or after it without having heard of that.
type napper struct {
	file string
	// diesAt is the number of the write, counting what comes before it and after it;
	// 0 is never.
	diesAt, writes atomic.Int64
	dead           atomic.Bool
}

func (n *napper) hit(string) error {
	if n.writes.Add(1) == n.diesAt.Load() {
		n.dead.Store(true)
	}
	if n.dead.Load() {
		return errCrash
	}
	return nil
}

// live runs the process; started says which runs there are at its end.
func (n *napper) live(t *testing.T, life, runs int) (started []string) {
	db, err := store.Open(t.Context(), n.file, store.Options{Failpoint: n.hit})
	check(t, err)
	defer func() { check(t, db.Close()) }()
	hub := memory.New(memory.Options{})
	defer func() { check(t, hub.Close()) }()
	ids := 0
	x := executor.New(executor.Config{
		Store: db, Turns: db, Signals: db, Take: db.Publish, Bus: hub, Now: time.Now, Jitter: func() float64 { return 0.5 },
		NewID: func() string { ids++; return fmt.Sprintf("run-%d-%d", life, ids) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for i := range runs {
		run, _, err := x.Start(ctx, parley.StartRequest{Workflow: "naps", IdempotencyKey: fmt.Sprint(i)})
		if err == nil {
			started = append(started, run.ID)
		} else if !n.dead.Load() {
			t.Error(err)
		}
	}
	time.Sleep(5 * time.Second)
	cancel()
	running.Wait()
	return started
}

// TestConcurrency_CrashAtEveryWrite: whenever the process dies that starts, ends and
// admits runs, all of them run once, one after another, in the order of their
// acceptance, and nothing is left of what was counted.
func TestConcurrency_CrashAtEveryWrite(t *testing.T) {
	for at := int64(1); ; at++ {
		reached := false
		file := filepath.Join(t.TempDir(), "parley.db")
		synctest.Test(t, func(t *testing.T) {
			db, err := store.Open(t.Context(), file, store.Options{})
			check(t, err)
			check(t, db.Migrate(t.Context()))
			c := executor.NewCatalog(executor.CatalogConfig{
				DB: db, Executor: executor.New(executor.Config{Store: db, Now: time.Now}), Now: time.Now,
				NewID: func() string { return "d" }, KnownAgent: func(context.Context, string) bool { return true },
			})
			_, _, err = c.Apply(t.Context(), parley.ApplyRequest{Source: []byte(naps)})
			check(t, err)
			n := &napper{file: file}
			n.diesAt.Store(at)
			n.live(t, 1, 3)
			reached = n.dead.Load()
			n.diesAt.Store(0)
			n.dead.Store(false)
			runs := n.live(t, 2, 3)
			inOrder(t, db, at, runs)
			if next, err := db.NextTurn(t.Context(), store.Lane{Workflow: "naps", Key: "k"}); next != "" || err != nil {
				t.Errorf("died at %d: %s waits, %v", at, next, err)
			}
			check(t, db.Close())
		})
		if !reached {
			if at < 15 {
				t.Errorf("there are only %d writes", at)
			}
			return
		}
	}
}

// inOrder holds that runs ran one after another as they were accepted.
func inOrder(t *testing.T, db *store.DB, at int64, runs []string) {
	var rows []store.Run
	for _, id := range runs {
		row, err := db.RunRow(t.Context(), id)
		check(t, err)
		rows = append(rows, row)
		if row.Status != parley.RunCompleted {
			t.Errorf("died at %d: %s is %s", at, id, row.Status)
		}
	}
	slices.SortStableFunc(rows, func(a, b store.Run) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for i := 1; i < len(rows); i++ {
		if rows[i].StartedAt.Before(rows[i-1].EndedAt) {
			t.Errorf("died at %d: %s began at %v, before %s had ended at %v", at, rows[i].ID, rows[i].StartedAt, rows[i-1].ID, rows[i-1].EndedAt)
		}
	}
	if len(rows) != 3 {
		t.Errorf("died at %d: %d runs", at, len(rows))
	}
}
