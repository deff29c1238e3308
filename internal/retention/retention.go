// Package retention removes runs that have been over for long enough, after it has
// written them to an archive if there is one.
//
// A sweep takes a lease in the database, so that of several processes one works at a
// time, and goes through the workflows that have runs which are over. It removes them
// in small transactions and rests after each for as long as that took, so that nobody
// who writes meanwhile waits for long. A run is on the disk of the archive before it
// leaves the database: after a crash it may be in the archive twice.
package retention

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/archive"
	"github.com/parley-project/parley/internal/store"
)

// Rule says how long runs are kept. 0 is for ever.
type Rule struct {
	// Age: runs that ended longer ago are removed.
	Age time.Duration
	// Runs: those that are not among so many that ended last are removed.
	Runs int
}

// Config of a [Sweeper]. DB, Now and Holder are required.
type Config struct {
	DB *store.DB
	// Now is the time of the database's rows.
	Now func() time.Time
	// Clock measures how long something took; default Now.
	Clock func() time.Time
	// Every is the time between two sweeps; default 10 min.
	Every time.Duration
	// Holder names this process.
	Holder string
	// Rule is that of workflows which Workflows does not name.
	Rule      Rule
	Workflows map[string]Rule
	// Archive keeps the runs that are removed; nil does not.
	Archive *archive.Folder
	Logger  *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// None reports whether nothing is ever removed.
func (c *Config) None() bool {
	for _, r := range c.Workflows {
		if r != (Rule{}) {
			return false
		}
	}
	return c.Rule == (Rule{})
}

const (
	// batchRuns bounds the runs that one transaction removes, batchBytes the lines
	// that are written to the archive at a time, unless a single one is larger.
	batchRuns  = 25
	batchBytes = 8 << 20
	// lease is how long a process has the sweep to itself, which is renewed after a
	// fifth of that.
	lease = 5 * time.Minute
)

// errLost: another process sweeps.
var errLost = errors.New("another process removes runs")

// Sweeper removes runs. One goroutine at a time may use it.
type Sweeper struct {
	cfg Config
	// held is when the lease was taken or renewed last.
	held time.Time
	// unread counts the runs of a sweep that cannot be archived. away is why one of
	// them cannot be now.
	unread int
	away   error
}

// New makes a sweeper.
func New(cfg Config) *Sweeper {
	if cfg.Every <= 0 {
		cfg.Every = 10 * time.Minute
	}
	if cfg.Clock == nil {
		cfg.Clock = cfg.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{cfg: cfg}
}

// Run sweeps at once, and again and again until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		if _, err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Error("runs that are over could not be removed; it is tried again", "error", err, "after", s.cfg.Every)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Report is what a sweep has done.
type Report struct {
	// Removed are runs, Archived those that were written to the archive.
	Removed, Archived int
	// Busy: another process sweeps, so that nothing was done.
	Busy bool
}

// Sweep removes what may be removed now, and what an earlier sweep has left behind.
func (s *Sweeper) Sweep(ctx context.Context) (r Report, err error) {
	begun := s.cfg.Clock()
	s.held, s.unread, s.away = time.Time{}, 0, nil
	if err = s.sweep(ctx, &r); err == nil {
		err = s.away
	}
	if r.Busy = errors.Is(err, errLost); r.Busy {
		err = nil
	} else if left := s.cfg.DB.LeaveRetention(context.WithoutCancel(ctx), s.cfg.Holder); err == nil {
		err = left
	}
	s.cfg.Metrics.swept(r, err)
	if r.Removed > 0 || r.Archived > 0 {
		s.cfg.Logger.Info("runs that are over were removed", "removed", r.Removed, "archived", r.Archived, "took", s.cfg.Clock().Sub(begun).Round(time.Millisecond))
	}
	if s.unread > 1 {
		s.cfg.Logger.Error("runs that are over cannot be archived and stay", "runs", s.unread)
	}
	return r, err
}

func (s *Sweeper) sweep(ctx context.Context, r *Report) error {
	if err := s.hold(ctx); err != nil {
		return err
	}
	if err := s.purge(ctx); err != nil {
		return err
	}
	for workflow := ""; ; {
		var err error
		if workflow, err = s.cfg.DB.EndedWorkflow(ctx, workflow); err != nil || workflow == "" {
			return err
		}
		rule, named := s.cfg.Workflows[workflow]
		if !named {
			rule = s.cfg.Rule
		}
		if rule == (Rule{}) {
			continue
		}
		if err := s.workflow(ctx, store.Past{Workflow: workflow, Now: s.cfg.Now(), Age: rule.Age, Runs: rule.Runs}, r); err != nil {
			return err
		}
	}
}

// hold keeps the lease, or says that somebody else has it.
func (s *Sweeper) hold(ctx context.Context) error {
	now := s.cfg.Now()
	if !s.held.IsZero() && now.Sub(s.held) < lease/5 {
		return nil
	}
	ok, err := s.cfg.DB.TakeRetention(ctx, s.cfg.Holder, now, now.Add(lease))
	if err == nil && !ok {
		err = errLost
	}
	s.held = now
	return err
}

// workflow removes the runs of one workflow.
func (s *Sweeper) workflow(ctx context.Context, p store.Past, r *Report) error {
	end, err := s.cfg.DB.PastEnd(ctx, p)
	if err != nil {
		return err
	}
	for after := (store.Ended{}); ; {
		list, err := s.cfg.DB.PastRuns(ctx, p, after, end, batchRuns)
		if err != nil || len(list) == 0 {
			return err
		}
		after = list[len(list)-1]
		if err := s.batch(ctx, p, list, r); err != nil {
			return err
		}
	}
}

// batch archives and removes some runs.
func (s *Sweeper) batch(ctx context.Context, p store.Past, list []store.Ended, r *Report) error {
	for len(list) > 0 {
		if err := s.hold(ctx); err != nil {
			return err
		}
		ids, n, err := s.archive(ctx, &p, list)
		if err != nil {
			return err
		}
		list = list[n:]
		if s.cfg.Archive != nil {
			r.Archived += len(ids)
		}
		begun := s.cfg.Clock()
		removed, err := s.cfg.DB.RemoveRuns(ctx, p, ids)
		r.Removed += removed
		if err != nil {
			return err
		}
		if err := s.rest(ctx, s.cfg.Clock().Sub(begun)); err != nil {
			return err
		}
		if err := s.purge(ctx); err != nil {
			return err
		}
	}
	return nil
}

// archive writes the first runs of a list, as many as fit, and gives those that are
// to be removed and how many it has looked at. p is told what is in the archive.
func (s *Sweeper) archive(ctx context.Context, p *store.Past, list []store.Ended) (ids []string, looked int, err error) {
	var lines bytes.Buffer
	if s.cfg.Archive != nil {
		p.Late = make(map[string]int)
	}
	for _, e := range list {
		if lines.Len() >= batchBytes {
			break
		}
		looked++
		if s.cfg.Archive == nil {
			ids = append(ids, e.ID)
			continue
		}
		a, err := s.cfg.DB.Archived(ctx, e.ID)
		switch {
		case parley.CodeOf(err) == parley.CodeNotFound:
			continue // it is gone already
		case err != nil && (ctx.Err() != nil || parley.CodeOf(err) == parley.CodeUnavailable && !errors.Is(err, store.ErrAway)):
			return nil, 0, err
		case err != nil: // the others are not kept for it
			s.keep(e.ID, err)
			continue
		}
		lines.Write(archive.Encode(&a))
		ids = append(ids, e.ID)
		for i := range a.Attempts {
			p.Late[e.ID] += len(a.Attempts[i].Late)
		}
	}
	if s.cfg.Archive != nil {
		err = s.cfg.Archive.Append(s.cfg.Now(), lines.Bytes())
	}
	return ids, looked, err
}

// keep notes that a run stays, since it cannot be archived. The log names the first of
// a sweep, which has failed if it may be archived the next time.
func (s *Sweeper) keep(run string, err error) {
	if errors.Is(err, store.ErrAway) {
		s.away = err
	}
	if s.unread++; s.unread == 1 {
		s.cfg.Logger.Error("a run that is over cannot be archived and stays", "run", run, "error", err)
	}
}

// purge removes what is left of runs that are gone.
func (s *Sweeper) purge(ctx context.Context) error {
	for {
		if err := s.hold(ctx); err != nil {
			return err
		}
		begun := s.cfg.Clock()
		more, err := s.cfg.DB.PurgeRemoved(ctx)
		if err != nil || !more {
			return err
		}
		if err := s.rest(ctx, s.cfg.Clock().Sub(begun)); err != nil {
			return err
		}
	}
}

// rest leaves the database to others for a while.
func (s *Sweeper) rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(min(max(d, 0), time.Second))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
