package deadletter

import (
	"context"
	"log/slog"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// Config of a [Keeper]. DB, Bus and Retry are required.
type Config struct {
	DB  *store.DB
	Bus bus.Bus
	// Retry retries the run of a task's dead letter and resolves the letter with
	// it: [executor.Executor.Replay].
	Retry func(ctx context.Context, run string, req parley.ReplayRequest) (parley.Run, error)
	// Admit is asked before each replay, and its error is given if nothing new is to
	// be begun, since the process stops; nil: always.
	Admit func() error
	// Copies: a copy of each goes to [bus.SubjectDeadLetters].
	Copies bool
	// Now is the clock of this process; default time.Now. Clock gives the time
	// that dead letters are written in and compared with: default DB's.
	Now, Clock func() time.Time
	// Logger gets what goes wrong in the background; default none.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	Limits  Limits
}

// Limits bound what is kept. Zero members take the default.
type Limits struct {
	// Rows bounds the number of dead letters; default 10,000.
	Rows int64
	// Bytes bounds what they take in the store, about; default 1 GiB.
	Bytes int64
	// Age bounds how long one is kept; default 30 days.
	Age time.Duration
	// Batch bounds the time that one batch of replays takes; default 20 s.
	Batch time.Duration
}

const (
	// sweepEvery is how often copies are looked for, purgeEvery how often the
	// limits.
	sweepEvery = time.Second
	purgeEvery = time.Minute
	// purgeAfter is after how many records that were kept the limits are looked
	// at before their time.
	purgeAfter = 500
)

// Keeper keeps dead letters. Its methods may be called concurrently, also
// without Run, which does what happens by itself.
type Keeper struct {
	cfg Config
	// full asks for the limits to be looked at.
	full chan struct{}
	kept chan struct{}
}

// New makes a Keeper.
func New(cfg Config) *Keeper {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Clock == nil {
		cfg.Clock = cfg.DB.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &cfg.Limits
	l.Rows, l.Bytes = orDefault(l.Rows, 10_000), orDefault(l.Bytes, 1<<30)
	l.Age, l.Batch = orDefault(l.Age, 30*24*time.Hour), orDefault(l.Batch, 20*time.Second)
	return &Keeper{cfg: cfg, full: make(chan struct{}, 1), kept: make(chan struct{}, purgeAfter)}
}

func orDefault[T int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

func (k *Keeper) now() time.Time { return k.cfg.Clock().UTC().Truncate(time.Microsecond) }

// Keep is a [bus.DeadLetters]: it returns when the record, or the task, is stored.
// The same one again changes nothing.
func (k *Keeper) Keep(ctx context.Context, d bus.DeadLetter) error {
	l := letterOf(d, k.now())
	fresh, err := k.cfg.DB.KeepDeadLetter(ctx, l)
	if err != nil {
		return err
	}
	if fresh {
		k.cfg.Metrics.kept()
		k.cfg.Logger.Warn("a record is a dead letter", "event", "dead_letter", "id", l.ID, "kind", l.Kind, "code", l.Code,
			"topic", d.Message.At.Topic, "partition", d.Message.At.Partition, "offset", d.Message.At.Offset)
		k.count()
	}
	return nil
}

// count has the limits looked at when many records were kept: a flood of them
// must not fill the disk within a minute.
func (k *Keeper) count() {
	select {
	case k.kept <- struct{}{}:
		return
	default:
	}
	for range purgeAfter {
		select {
		case <-k.kept:
		default:
		}
	}
	select {
	case k.full <- struct{}{}:
	default:
	}
}

// letterOf makes the dead letter of a record.
func letterOf(d bus.DeadLetter, now time.Time) parley.DeadLetter {
	m := d.Message
	l := parley.DeadLetter{
		Kind: parley.DeadLetterRecord, Code: parley.Code(d.Code), Reason: d.Reason, Attempts: d.Attempts, Agent: d.Agent,
		Source: &parley.DeadLetterSource{
			Subject: m.Subject, Topic: m.At.Topic, Partition: m.At.Partition, Offset: m.At.Offset, Group: d.Group,
		},
		Run: d.Run, Task: d.Task, FirstFailedAt: d.FirstFailedAt, CreatedAt: now, Key: []byte(m.Key), Headers: parley.DeadLetterHeaderList(m.All()), Value: m.Value, Tombstone: m.Value == nil,
	}
	if d.Foreign {
		l.Kind, l.HTTPStatus = parley.DeadLetterForeign, d.HTTPStatus
	}
	return l.Seal()
}

// Run does what happens by itself until ctx ends: it publishes copies and keeps
// the limits. Any number of processes may do so on one store.
func (k *Keeper) Run(ctx context.Context) error {
	sweep, purge := time.NewTicker(sweepEvery), time.NewTicker(purgeEvery)
	defer sweep.Stop()
	defer purge.Stop()
	k.tidy(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			if k.cfg.Copies {
				k.publishCopies(ctx)
			}
		case <-purge.C:
			k.tidy(ctx)
		case <-k.full:
			k.tidy(ctx)
		}
	}
}

// tidy keeps the limits and counts what waits.
func (k *Keeper) tidy(ctx context.Context) {
	n, err := k.cfg.DB.PurgeDeadLetters(ctx, store.DeadLetterLimits{
		Rows: k.cfg.Limits.Rows, Bytes: k.cfg.Limits.Bytes, Before: k.now().Add(-k.cfg.Limits.Age),
	})
	k.cfg.Metrics.purged(n)
	if n > 0 {
		k.cfg.Logger.Warn("dead letters were removed: they were too old, or too many", "event", "dead_letters_removed", "count", n)
	}
	if err == nil {
		var waiting int
		_, waiting, err = k.cfg.DB.DeadLetters(ctx, parley.DeadLetterQuery{
			Filter: parley.DeadLetterFilter{State: parley.DeadLetterWaiting}, Page: parley.Page{Limit: 1},
		})
		if err == nil {
			k.cfg.Metrics.waiting(waiting)
		}
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Logger.Warn("the limits of dead letters were not looked at; it is tried again", "event", "dead_letters", "error", err)
	}
}

// Get gives one dead letter whole. not_found.
func (k *Keeper) Get(ctx context.Context, id string) (parley.DeadLetter, error) {
	return k.cfg.DB.DeadLetter(ctx, id)
}

// List gives one page of dead letters, without keys, headers and values, and the
// number of all that match.
func (k *Keeper) List(ctx context.Context, q parley.DeadLetterQuery) ([]parley.DeadLetter, int, error) {
	return k.cfg.DB.DeadLetters(ctx, q)
}
