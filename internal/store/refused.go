package store

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley"
)

// postgresExplain tells what an administrator has to know of a refusal.
func postgresExplain(err error) (format string, cause error) {
	if takesNoWrites(err) {
		return "the database %s takes no writes: %w; " + whyNoWrites, pgconn.ErrReadOnlyConnection
	}
	if unread, ok := errors.AsType[unreadError](err); ok {
		return "the login to the database %s cannot be prepared: %w; check the files that database.url and database.password name", unread
	}
	if strange, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate of the database %s is not accepted: %w; check sslrootcert, and the host, in database.url", strange
	}
	if lacking, ok := errors.AsType[encodingError](err); ok {
		return "the database %s cannot hold all texts: %w; make one with ENCODING 'UTF8' TEMPLATE template0, and name that in database.url", lacking
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return "", nil
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case strings.HasPrefix(e.Code, "28"):
		return "the database %s refuses the login: %w; check database.url and database.password", e
	case e.Code == "3D000":
		return "the database %s is not there: %w; create it, or check database.url", e
	case e.Code == "53300":
		return "the database %s has no connection left for this process: %w; raise its max_connections or the CONNECTION LIMIT " +
			"of the user or the database, or close what others have open", e
	case e.Code == "42501" && connecting:
		return "the database %s refuses its user the right to connect: %w; type: GRANT CONNECT ON DATABASE", e
	case e.Code == "42704" && connecting:
		return "the database %s does not know a setting that it is asked for: %w; take it out of database.url, or if it is not there use PostgreSQL 14 or newer", e
	case e.Code == "42501" && strings.Contains(e.Message, "schema"):
		return "the database %s refuses its user the right to make tables: %w; type: GRANT CREATE ON SCHEMA, or name the owner of the tables in database.url", e
	case e.Code == "3F000":
		return "the database %s has none of the schemas in which tables would be made: %w; create one (CREATE SCHEMA), or set search_path for its user", e
	case e.Code == "08P01" && connecting && strings.Contains(e.Message, "startup parameter"), e.Code == "42P05", e.Code == "26000":
		return "the database %s cannot be used through this pooler: %w; " +
			"name PostgreSQL itself in database.url", e
	case e.Code == "55P03":
		return "others keep locked what is needed of the database %s: %w; wait for them, or end their transactions (pg_blocking_pids " +
			"names them), then try again", e
	case e.Code == "57014":
		return "somebody has cancelled a statement in the database %s; try again: %w", e
	default:
		return "", nil
	}
}

func postgresFull(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "53100"
}

// whyNoWrites is what is said of a database that can be read only.
const whyNoWrites = "it is a standby, or default_transaction_read_only is on for it or its user; the work goes on when that is over"

// takesNoWrites says of an error that the server can be read only: it is a standby,
// or somebody has set it so.
func takesNoWrites(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "25006" {
		return true
	}
	return errors.Is(err, pgconn.ErrReadOnlyConnection) || errors.Is(err, pgconn.ErrStandbyConnection)
}

// explained is the error for callers of a refusal that the dialect can explain; nil
// for any other.
func (db *DB) explained(err error) error {
	if db.dialect.explain == nil {
		return nil
	}
	format, cause := db.dialect.explain(err)
	if format == "" {
		return nil
	}
	return parley.Errorf(parley.CodeUnavailable, format, db.dialect.name(db.path), cause)
}

// writesWait bounds one answer of [DB.TakesWrites].
const writesWait = time.Second

// fullFor is how long it counts that a write has found the disk full: others may find
// room, and nobody need write at all before somebody has made some.
const fullFor = 15 * time.Second

// writeLook is one look at a time at whether the database takes writes.
type writeLook struct {
	turn chan struct{}
	last atomic.Pointer[error]
	// full is when a write has found the disk full the last time.
	full atomic.Pointer[time.Time]
}

// TakesWrites reports whether the database takes writes, by looking at a connection
// that writes, and without writing a row. The error is a [parley.Error] that says
// why it does not. Where that is not known within a second, because those
// connections are busy, it says what the last look did. It does not either for as long
// as writes find the disk full, and 15 s after that.
func (db *DB) TakesWrites(ctx context.Context) error {
	if at := db.writes.full.Load(); at != nil && db.options.Now().Sub(*at) < fullFor {
		return parley.Errorf(parley.CodeUnavailable, "it cannot write: its disk is full; make room there, and the work goes on")
	}
	if db.dialect.readOnly == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, writesWait)
	defer stop()
	select {
	case db.writes.turn <- struct{}{}:
		done := make(chan struct{})
		look := context.WithoutCancel(ctx) // who asked may not wait as long
		begun := db.beside(func() {
			defer close(done)
			err := db.lookAtWrites(look)
			db.writes.last.Store(&err)
			<-db.writes.turn
		})
		if !begun {
			<-db.writes.turn
			return errClosed()
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	default: // somebody looks already
	}
	if last := db.writes.last.Load(); last != nil {
		return *last
	}
	return nil
}

// beside does work in a goroutine of its own, for which Close waits. It reports false
// when the database is closed.
func (db *DB) beside(work func()) (begun bool) {
	db.closing.RLock()
	defer db.closing.RUnlock()
	if !db.closed {
		db.writing.Go(work)
	}
	return !db.closed
}

func (db *DB) lookAtWrites(ctx context.Context) error {
	err := db.submit(ctx, prompt, func(s *session) error {
		setting := ""
		if err := s.query(db.dialect.readOnly, func(r *record) error { setting = r.str(); return nil }); err != nil {
			return err
		}
		if setting == "on" {
			return pgconn.ErrReadOnlyConnection
		}
		return nil
	})
	if errors.Is(err, ErrSchema) { // the check of the schema says that
		return nil
	}
	return inPublic(err)
}

// inPublic has an error that the database takes no writes in words that everybody may
// read: without a name, and without the server's.
func inPublic(err error) error {
	if takesNoWrites(err) {
		return parley.Errorf(parley.CodeUnavailable, "it takes no writes: %s", whyNoWrites)
	}
	return err
}
