package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// clockEvery is how often the database is asked for its time, and clockAsks
	// how often at a time: the fastest answer is the one that counts.
	clockEvery = 5 * time.Second
	clockAsks  = 3
	// clockWait bounds that.
	clockWait = 10 * time.Second
	// clockNews is a difference that is told, and after which the machine is
	// taken for one that was suspended or set.
	clockNews = time.Second
)

// Now gives the time that rows are written in and compared with, which all
// processes that share the database agree about: the database's own. It follows
// that by asking every few seconds, and by this process's monotonic clock in
// between, so setting the clock of the machine changes nothing; it jumps when the
// database's does. On SQLite, which no two processes share, it is [Options].Now.
//
// It has no monotonic part: durations are measured by another clock.
func (db *DB) Now() time.Time {
	if db.clock == nil {
		return db.options.Now()
	}
	return db.clock.now()
}

// clock is a database's clock as seen from this process.
type clock struct {
	local  func() time.Time
	logger *slog.Logger
	// began is when the clock was made, by the local one.
	began time.Time
	// ahead is how far the database's clock is ahead of the local one as that was
	// then and has run since, in nanoseconds.
	ahead atomic.Int64
	// slipped is how far the local clock was away, the last time that the database
	// was asked, from where its monotonic part says that it has to be.
	slipped atomic.Int64
	// soon asks for the database to be asked.
	soon chan struct{}

	learning sync.Mutex // protects known
	known    bool
}

func newClock(o Options) *clock {
	return &clock{local: o.Now, logger: o.Logger, began: o.Now(), soon: make(chan struct{}, 1)}
}

// passed is how long ago the clock was made.
func (c *clock) passed() time.Duration { return c.local().Sub(c.began) }

// slip is how far the local time is from where it has to be after so long: the
// machine was suspended, which stops the monotonic clock, or somebody has set it.
func (c *clock) slip(local time.Time, passed time.Duration) time.Duration {
	return local.Round(0).Sub(c.began.Round(0)) - passed
}

func (c *clock) now() time.Time {
	local := c.local()
	passed := local.Sub(c.began)
	if d := c.slip(local, passed) - time.Duration(c.slipped.Load()); d.Abs() >= clockNews {
		c.askSoon()
	}
	return c.began.Round(0).UTC().Add(passed + time.Duration(c.ahead.Load()))
}

// askSoon has the database asked before its time.
func (c *clock) askSoon() {
	select {
	case c.soon <- struct{}{}:
	default:
	}
}

// learn takes what the database's clock said at some time between two instants,
// given as what passed says. The clock is changed only as far as it contradicts
// that: how long answers take today does not move it.
func (c *clock) learn(asked, answered time.Duration, said time.Time) {
	c.learning.Lock()
	defer c.learning.Unlock()
	at := said.Sub(c.began.Round(0))
	least, most := at-answered, at-asked
	before := time.Duration(c.ahead.Load())
	after := min(max(before, least), most)
	if !c.known {
		after = least + (most-least)/2
	}
	c.ahead.Store(int64(after))
	switch change := after - before; {
	case change.Abs() < clockNews:
	case !c.known:
		c.logger.Warn("the clock of this machine is not the database's, which is the one that counts", "event", "clock", "database_ahead", change)
	default:
		c.logger.Warn("the clock of the database has jumped", "event", "clock", "by", change)
	}
	c.known = true
}

// askClock asks the database for its time.
func (db *DB) askClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockWait)
	defer cancel()
	local := db.clock.local()
	db.clock.slipped.Store(int64(db.clock.slip(local, local.Sub(db.clock.began))))
	err := db.begun(ctx, func() error {
		conn, err := db.readers.Conn(ctx) // not part of what is measured
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it goes back to the pool
		for range clockAsks {
			var micros int64
			asked := db.clock.passed()
			if err := conn.QueryRowContext(ctx, db.dialect.time).Scan(&micros); err != nil {
				return err
			}
			db.clock.learn(asked, db.clock.passed(), time.UnixMicro(micros))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("asking the database for its time: %w", err)
	}
	return nil
}

// openClock begins to follow the database's clock, if it has one.
func (db *DB) openClock(ctx context.Context) error {
	db.unwatch = func() {}
	if db.dialect.time == "" {
		return nil
	}
	db.clock = newClock(db.options)
	if err := db.askClock(ctx); err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { db.serveClock(serving) })
	db.unwatch = func() { stop(); ended.Wait() }
	return nil
}

// serveClock asks regularly until ctx ends. While nobody answers the clock goes
// on as it is.
func (db *DB) serveClock(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-db.clock.soon:
		case <-tick.C:
		}
		if err := db.askClock(ctx); err != nil && ctx.Err() == nil {
			db.options.Logger.Debug("the database's time is not known anew", "event", "clock", "error", err)
		}
	}
}
