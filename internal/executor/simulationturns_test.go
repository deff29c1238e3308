package executor_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// simulatedListener is started by events.
const simulatedListener = `
name: listener
concurrency: {limit: 1, when_full: cancel_oldest}
triggers: [{event: {name: go}}]
steps:
  - {id: work, agent: sure, input: {text: heard}, on_error: continue}
`

// simulatedTurns is how many runs of a workflow may run at the same time.
func simulatedTurns(workflow string) (most int, ok bool) {
	most, ok = map[string]int{"kid": 2, "listener": 1}[workflow]
	return most, ok
}

// published notes that somebody was told that an event was taken.
func (w *simWorld) published(id, name string, err error) {
	if err != nil || name != "go" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.published[id] = true
}

// unheard counts the events that have not started their runs yet.
func (w *simWorld) unheard(ctx context.Context) (n int) {
	db, err := sql.Open(w.engine.driver, w.target)
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT count(*) FROM signal WHERE run = '' AND starts_at > 0`).Scan(&n)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		w.t.Error(err)
	}
	return n
}

// The starts by events, as one process sees them.

func (s unsureStore) TakeEventStarts(ctx context.Context, now time.Time, limit int) ([]store.EventStart, error) {
	var got []store.EventStart
	err := s.write(ctx, func(ctx context.Context) (err error) { got, err = s.DB.TakeEventStarts(ctx, now, limit); return err })
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (s unsureStore) EndEventStart(ctx context.Context, e parley.Signal, taken bool) error {
	return s.write(ctx, func(ctx context.Context) error { return s.DB.EndEventStart(ctx, e, taken) })
}

// inTurn judges the bounds of how many runs there are at the same time: none is
// passed at the end of any commit, and nobody is counted who has ended.
func (j *judgment) inTurn() {
	running := map[string]int{}
	for i := range j.changes {
		c := &j.changes[i]
		if c.what != "run" {
			continue
		}
		before := 0
		if c.was != nil {
			before = c.was.Begun * (1 - c.was.Ended)
		}
		running[c.now.Workflow] += c.now.Begun*(1-c.now.Ended) - before
		if c.tx != "" && i+1 < len(j.changes) && j.changes[i+1].tx == c.tx {
			continue
		}
		for _, workflow := range slices.Sorted(maps.Keys(running)) {
			if most, ok := simulatedTurns(workflow); ok && running[workflow] > most {
				j.report("concurrency: entry %d: %d runs of %s run", c.n, running[workflow], workflow)
			}
		}
	}
	if j.turns > 0 || j.lanes > 0 {
		j.report("L1: %d turns are left in %d lanes", j.turns, j.lanes)
	}
}

// starts judges the runs that events have started: one each (rule C7).
func (j *judgment) starts() {
	times := map[string]int{}
	for _, run := range slices.Sorted(maps.Keys(j.histories)) {
		h := j.histories[run]
		if h.Run.Name != "listener" || len(h.Events) == 0 {
			continue
		}
		by := said.FindString(string(h.Events[0].Data))
		if times[by]++; times[by] > 1 {
			j.report("C7: run %s is started by %s, as another one", run, by)
		}
	}
	for _, by := range slices.Sorted(maps.Keys(j.published)) {
		if times[by] == 0 {
			j.report("C7: %s was taken, and has started nothing", by)
		}
	}
}
