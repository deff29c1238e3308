package schedule

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

const (
	// pollEvery is how often is looked for what other processes have changed, and
	// whether runs have ended that firings wait for.
	pollEvery = 2 * time.Second
	// openEvery is the same while firings wait.
	openEvery = 500 * time.Millisecond
	// batch bounds the schedules that are read at a time, atOnce those that are
	// handled at a time, visit the changes of one before others have their turn.
	batch  = 200
	atOnce = 16
	visit  = 50
)

// Config of a [Scheduler] and a [Book]. Start and Cancel are those of a Scheduler
// alone; all but Logger is required.
type Config struct {
	DB *store.DB
	// Now is the time that all processes of the store agree about: [store.DB.Now].
	Now func() time.Time
	// NewID gives a text that was never used before.
	NewID func() string
	// Start begins a run; again under its key it gives the same.
	Start func(ctx context.Context, req parley.StartRequest) (run parley.Run, existing bool, err error)
	// Cancel asks for the end of a run.
	Cancel func(ctx context.Context, req parley.CancelRequest) (parley.Run, error)
	// MaxInput is the most bytes of input that Start takes; default 8 MiB.
	MaxInput int64
	Logger   *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// Scheduler fires the schedules of a store.
type Scheduler struct {
	cfg  Config
	wake chan struct{}

	mu sync.Mutex // protects cancelled
	// cancelled has the run that was cancelled last for each schedule that waits for
	// its end.
	cancelled map[string]string
}

// New makes a Scheduler.
func New(cfg Config) *Scheduler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scheduler{cfg: cfg, wake: make(chan struct{}, 1), cancelled: make(map[string]string)}
}

// Wake has the scheduler look at once at what has changed.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyhow
	}
}

// Run fires schedules until ctx ends. It is called once.
func (s *Scheduler) Run(ctx context.Context) error {
	// Another version of the program may have deployed workflows meanwhile.
	asked := false
	for ctx.Err() == nil {
		if !asked {
			err := s.cfg.DB.ChangeAllWorkflows(ctx)
			s.tell(ctx, err)
			asked = err == nil
		}
		t := time.NewTimer(s.round(ctx))
		select {
		case <-t.C:
		case <-s.wake:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

// tell logs what went wrong; it is tried again.
func (s *Scheduler) tell(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("schedules could not be looked at; it is tried again", "event", "schedule", "error", err)
	}
}

// round does what there is to do now, and says how long there is nothing.
func (s *Scheduler) round(ctx context.Context) time.Duration {
	s.tell(ctx, reconcile(ctx, s.cfg))
	open, err := s.open(ctx)
	s.tell(ctx, err)
	now := s.cfg.Now()
	if err == nil {
		s.tell(ctx, s.due(ctx, now))
	}
	wait := pollEvery
	if open {
		wait = openEvery
	}
	// One that was due by then and still is has failed: it waits for the next look.
	next, err := s.cfg.DB.NextSchedule(ctx, now)
	s.tell(ctx, err)
	if err == nil && !next.IsZero() {
		wait = min(wait, max(next.Sub(s.cfg.Now()), 10*time.Millisecond))
	}
	return wait
}

// due handles the schedules that are due at a time, each once: those that fail hold up
// no others.
func (s *Scheduler) due(ctx context.Context, now time.Time) error {
	for last := (store.Schedule{}); ; {
		list, err := s.cfg.DB.DueSchedules(ctx, now, last, batch)
		if err != nil || len(list) == 0 {
			return err
		}
		s.all(ctx, list)
		last = list[len(list)-1]
	}
}

// open handles the schedules with a firing that is being started or waits.
func (s *Scheduler) open(ctx context.Context) (found bool, err error) {
	for after := ""; ; {
		list, err := s.cfg.DB.OpenSchedules(ctx, after, batch)
		if err != nil || len(list) == 0 {
			return found, err
		}
		found = true
		s.all(ctx, list)
		after = list[len(list)-1].ID
	}
}

// all handles some schedules.
func (s *Scheduler) all(ctx context.Context, list []store.Schedule) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, row := range list {
		g.Go(func() error {
			err := s.handle(ctx, row)
			// Stale: somebody else has moved it.
			if err != nil && !errors.Is(err, store.ErrStale) && ctx.Err() == nil {
				s.cfg.Logger.Warn("a schedule could not be handled; it is tried again", "event", "schedule", "schedule", row.ID, "workflow", row.Workflow, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions give no errors
}
