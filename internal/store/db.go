package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
)

// ErrStale says that a fenced write was refused: the row is not as its writer
// saw it. Nothing was written. The writer reads again and decides anew.
var ErrStale = errors.New("store: refused: the row has changed")

// Failpoint is called before ("P4.before") and after ("P4.after") the commit
// of each unit of a transition, from the goroutine of its caller. An error
// before: the unit is not executed and the error is returned. An error after:
// the unit was committed and the error is returned, as if the reply was lost.
// A unit of several transitions, such as a merged write, calls it for each.
// After a refusal it is not called.
type Failpoint func(name string) error

// Options adjust a [DB]. The zero value of each member is its default.
type Options struct {
	// Now is the clock that measures slow commits; default time.Now.
	Now func() time.Time
	// Logger gets what no caller is told; default none.
	Logger *slog.Logger
	// Failpoint is for crash tests; nil in production.
	Failpoint Failpoint
	// Flush is how long a lazy write waits for company; default 50 ms.
	Flush time.Duration
	// Queue bounds the units that wait for the writer (default 1024); more
	// make their callers wait. Group bounds the units of one commit (512).
	Queue, Group int
	// Readers bounds the connections for reading; default 4.
	Readers int
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Flush <= 0 {
		o.Flush = 50 * time.Millisecond
	}
	if o.Queue <= 0 {
		o.Queue = 1024
	}
	if o.Group <= 0 {
		o.Group = 512
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	return o
}

// DB is an open database. All methods may be called concurrently. One
// goroutine, owned by the DB, writes; Close ends it.
type DB struct {
	path    string
	options Options
	dialect dialect
	readers *sql.DB
	// reads caches the prepared statements of readers by their text.
	reads sync.Map

	// closing guards queue against sends after its close.
	closing sync.RWMutex
	closed  bool
	queue   chan *unit
	writing sync.WaitGroup
	fatal   chan struct{}
	commits atomic.Int64
}

// Open opens the SQLite database at path and makes it, with mode 0600, if it
// is not there. It refuses a database whose schema is newer than this program;
// [DB.Migrate] brings an older one up to date and is needed for a new one. ctx
// bounds the opening only. The caller closes the DB.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	return open(ctx, sqliteDialect(), path, o)
}

func open(ctx context.Context, d dialect, path string, o Options) (*DB, error) {
	o = o.withDefaults()
	db := &DB{path: path, options: o, dialect: d, queue: make(chan *unit, o.Queue), fatal: make(chan struct{})}
	if err := db.dialect.prepare(path); err != nil {
		return nil, parley.Errorf(parley.CodeUnavailable, "cannot open the database %s: %w", path, err)
	}
	s, err := db.connect(ctx)
	if err != nil {
		return nil, parley.Errorf(parley.CodeUnavailable, "cannot open the database %s: %w", path, err)
	}
	readers, err := db.dialect.connector(path, o, false)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	db.readers = sql.OpenDB(readers)
	db.readers.SetMaxOpenConns(o.Readers)
	db.readers.SetMaxIdleConns(o.Readers)
	if err := db.checkSchema(ctx); err != nil {
		return nil, errors.Join(err, s.close(), db.readers.Close())
	}
	db.writing.Go(func() { newWriter(db, s).loop() })
	return db, nil
}

// connect opens the connection that writes.
func (db *DB) connect(ctx context.Context) (*session, error) {
	c, err := db.dialect.connector(db.path, db.options, true)
	if err != nil {
		return nil, err
	}
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newSession(conn, &db.dialect), nil
}

// Close executes what was submitted, lazy writes too, then closes the
// database. Calls that come later fail. It may be called again.
func (db *DB) Close() error {
	db.closing.Lock()
	again := db.closed
	db.closed = true
	if !again {
		close(db.queue)
	}
	db.closing.Unlock()
	db.writing.Wait()
	if again {
		return nil
	}
	var errs []error
	db.reads.Range(func(_, st any) bool {
		errs = append(errs, st.(*sql.Stmt).Close())
		return true
	})
	return errors.Join(append(errs, db.readers.Close())...)
}

// Fatal is closed when the disk has failed in a way after which nothing may be
// written any more: the process has to end and start anew.
func (db *DB) Fatal() <-chan struct{} { return db.fatal }

// SyncedCommits counts the commits that were waited for. Units that share a
// commit count once.
func (db *DB) SyncedCommits() int64 { return db.commits.Load() }

// failure turns an error of the database into one for callers.
func (db *DB) failure(err error) error {
	switch db.dialect.classify(err) {
	case classConflict:
		return parley.Errorf(parley.CodeConflict, "the database has this already: %w", err)
	case classBusy:
		return parley.Errorf(parley.CodeUnavailable, "the database cannot write now: %w", err)
	case classFatal:
		return parley.Errorf(parley.CodeUnavailable, "the database has failed and must be opened anew: %w", err)
	default:
		return parley.Errorf(parley.CodeInternal, "database: %w", err)
	}
}

// reader is what reads: the pool, or one transaction of it.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// read runs a query on the readers and calls each with every row.
func (db *DB) read(ctx context.Context, query string, each func(*record) error, args ...any) error {
	st, err := db.prepared(ctx, query) //nolint:sqlclosecheck // kept for the next call, closed by Close
	if err != nil {
		return db.readFailure(ctx, err)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return db.readFailure(ctx, err)
	}
	return db.readFailure(ctx, eachRow(rows, each))
}

// prepared gives the statement of a text, which must be one of a bounded
// number of texts: statements stay prepared until Close.
func (db *DB) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := db.reads.Load(query); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := db.readers.PrepareContext(ctx, db.dialect.rebind(query))
	if err != nil {
		return nil, err
	}
	kept, loaded := db.reads.LoadOrStore(query, st)
	if loaded {
		defer st.Close() //nolint:errcheck // another goroutine was faster: this one was never used
	}
	return kept.(*sql.Stmt), nil
}

// snapshot runs f with a reader that sees one state of the database throughout.
func (db *DB) snapshot(ctx context.Context, f func(reader) error) error {
	tx, err := db.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return db.readFailure(ctx, err)
	}
	defer func() { _ = tx.Rollback() }()
	return db.readFailure(ctx, f(tx))
}

// readOn is read within a snapshot.
func (db *DB) readOn(ctx context.Context, r reader, query string, each func(*record) error, args ...any) error {
	rows, err := r.QueryContext(ctx, db.dialect.rebind(query), args...)
	if err != nil {
		return err
	}
	return eachRow(rows, each)
}

// readFailure keeps errors that are meant for callers as they are.
func (db *DB) readFailure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("reading the database: %w", cause)
	}
	if _, ok := errors.AsType[*parley.Error](err); ok {
		return err
	}
	return db.failure(err)
}

func eachRow(rows *sql.Rows, each func(*record) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	scan := make([]any, len(columns))
	for i := range scan {
		scan[i] = &values[i]
	}
	r := record{values: make([]driver.Value, len(columns))}
	for rows.Next() {
		if err := rows.Scan(scan...); err != nil {
			return err
		}
		for i, v := range values {
			r.values[i] = v
		}
		r.next = 0
		if err := each(&r); err != nil {
			return err
		}
		if r.err != nil {
			return r.err
		}
	}
	return rows.Err()
}
