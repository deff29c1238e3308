package store

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

const (
	// Each part is read from a partial index, whose condition it repeats.
	countLive     = `SELECT status, count(*) FROM (SELECT status FROM run WHERE ended_at IS NULL LIMIT ?) AS counted GROUP BY status`
	countOpen     = `SELECT 'open', count(*) FROM (SELECT 1 FROM attempt WHERE state = 'open' LIMIT ?) AS counted`
	countUnderWay = `SELECT state, count(*) FROM attempt WHERE state IN ('claimed', 'following') GROUP BY state`
	countSettled  = `SELECT 'settled', count(*) FROM (SELECT 1 FROM attempt WHERE state = 'settled' AND ` + ofRun + ` LIMIT ?) AS counted`
	oldestVisible = `SELECT visible_at FROM attempt WHERE ` + visible + ` ORDER BY visible_at LIMIT 1`
	countBridges  = `SELECT count(*) FROM worker WHERE name <> '' AND dead = 0`
	oldestDue     = `SELECT due FROM run WHERE due IS NOT NULL AND ended_at IS NULL AND due <= ? ORDER BY due LIMIT 1`
)

// Backlog is what waits for a process to deal with it.
type Backlog struct {
	// Runs counts the runs that have not ended, and Attempts the attempts that are
	// not closed, by where they stand; what is not there is none.
	Runs     map[parley.RunStatus]int
	Attempts map[AttemptState]int
	// AttemptsLate is for how long an attempt could have been announced to the
	// bridges, RunsLate for how long a timer could have fired: the longest. Zero if
	// nothing is late.
	AttemptsLate, RunsLate time.Duration
	// Bridges counts the processes that call agents by this database and are not
	// known to be dead.
	Bridges int
}

// Backlog counts what waits at now, up to most of each kind; attempts under way
// are counted all, since bridges have bounds.
func (db *DB) Backlog(ctx context.Context, now time.Time, most int) (Backlog, error) {
	b := Backlog{Runs: map[parley.RunStatus]int{}, Attempts: map[AttemptState]int{}}
	run := func(r *record) error { b.Runs[parley.RunStatus(r.str())] = int(r.int()); return r.err }
	attempt := func(r *record) error {
		state := AttemptState(r.str())
		if n := int(r.int()); n > 0 {
			b.Attempts[state] = n
		}
		return r.err
	}
	late := func(by *time.Duration) func(*record) error {
		return func(r *record) error { *by = max(now.Sub(time.UnixMicro(r.int())), 0); return r.err }
	}
	for _, part := range []struct {
		query string
		take  func(*record) error
		args  []any
	}{
		{countLive, run, []any{int64(most)}},
		{countOpen, attempt, []any{int64(most)}},
		{countUnderWay, attempt, nil},
		{countSettled, attempt, []any{int64(most)}},
		{oldestVisible, late(&b.AttemptsLate), []any{unixMicro(now)}},
		{oldestDue, late(&b.RunsLate), []any{unixMicro(now)}},
		{countBridges, func(r *record) error { b.Bridges = int(r.int()); return r.err }, nil},
	} {
		if err := db.read(ctx, part.query, part.take, part.args...); err != nil {
			return Backlog{}, err
		}
	}
	return b, nil
}
