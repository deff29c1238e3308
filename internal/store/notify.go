package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
)

const (
	// channel is that of all wake-ups.
	channel = "parley"
	// maxPayload is below what PostgreSQL takes: 8,000 bytes.
	maxPayload = 7900
	// A listener that has lost its connection waits this long, and twice as long
	// each time, before it tries again.
	listenAgain, listenAgainMost = 100 * time.Millisecond, 5 * time.Second
	// listenCheck is how often a silent connection is looked at.
	listenCheck = 30 * time.Second
	// listenLasts is how long a connection has to last to be one.
	listenLasts = 2 * listenAgainMost
)

// Notify wakes the processes that listen on the same database: each of them
// gets the payload, at most 7,900 bytes of UTF-8 without U+0000, once or not at
// all. Nothing may depend on it; it saves the wait for the next sweep. On SQLite,
// which has one process, it does nothing.
func (db *DB) Notify(ctx context.Context, payload string) error {
	if !db.dialect.notifies {
		return nil
	}
	if len(payload) > maxPayload {
		return parley.Errorf(parley.CodeLimit, "a wake-up has %d bytes, at most %d are taken", len(payload), maxPayload)
	}
	if strings.ContainsRune(payload, 0) {
		return parley.Errorf(parley.CodeInvalid, "a wake-up holds U+0000")
	}
	pool, err := db.noticePool()
	if err != nil {
		return db.readFailure(ctx, err)
	}
	err = db.begun(ctx, func() error {
		_, err := pool.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, payload)
		return err
	})
	return db.readFailure(ctx, err)
}

// noticePool is one connection whose commits wait for no disk.
func (db *DB) noticePool() (*sql.DB, error) {
	db.notices.once.Do(func() {
		c, err := db.dialect.connector(db.path, db.options, forNotices)
		if err != nil {
			db.notices.err = err
			return
		}
		db.notices.pool = sql.OpenDB(c)
		db.notices.pool.SetMaxOpenConns(1)
	})
	if db.notices.pool == nil && db.notices.err == nil {
		return nil, parley.Errorf(parley.CodeUnavailable, "the database is closed")
	}
	return db.notices.pool, db.notices.err
}

// Listen calls each, one call at a time, with the payload of every [DB.Notify]
// of any process from about now on, this one's too, until ctx ends; it returns
// the context's error then. It has a connection of its own, which it makes anew
// when it is lost; what was sent meanwhile is not seen. On SQLite it waits for
// ctx.
func (db *DB) Listen(ctx context.Context, each func(payload string)) error {
	if !db.dialect.notifies {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	wait := listenAgain
	for {
		began := db.options.Now()
		err := db.listen(ctx, listenCheck, each)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A connection that is cut soon after it was made is no better than none.
		if db.options.Now().Sub(began) >= listenLasts {
			wait = listenAgain
		}
		db.options.Logger.Warn("wake-ups of the database are not heard", "error", db.failure(err), "again", wait)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		// Not all of those who have lost the same server come back at once.
		case <-time.After(wait/2 + rand.N(wait/2)): //nolint:gosec // no secret
		}
		wait = min(2*wait, listenAgainMost)
	}
}

// listen is Listen with one connection, which is looked at after check without a
// word.
func (db *DB) listen(ctx context.Context, check time.Duration, each func(string)) (err error) {
	c, err := postgresConfig(db.path, db.options, nil)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		err = errors.Join(err, conn.Close(end))
	}()
	err = db.heard(ctx, func(ctx context.Context, _ *silence) error {
		_, err := conn.Exec(ctx, `LISTEN `+channel)
		return err
	})
	if err != nil {
		return err
	}
	for {
		waiting, stop := context.WithTimeout(ctx, check)
		n, err := conn.WaitForNotification(waiting)
		quiet := waiting.Err() != nil && ctx.Err() == nil
		stop()
		switch {
		case err == nil:
			each(n.Payload)
		case quiet && !conn.IsClosed():
			err := db.heard(ctx, func(ctx context.Context, _ *silence) error { return conn.Ping(ctx) })
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}
