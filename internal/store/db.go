package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
)

// ErrStale says that a fenced write was refused: the row is not as its writer
// saw it. Nothing was written. The writer reads again and decides anew.
var ErrStale = errors.New("store: refused: the row has changed")

// ErrReplaced is the [ErrStale] of a bridge whose name a later life has that is
// not known to be dead.
var ErrReplaced = fmt.Errorf("%w: a later life has the name", ErrStale)

// Failpoint is called before ("P4.before") and after ("P4.after") the commit
// of each unit of a transition, from the goroutine of its caller. An error
// before: the unit is not executed and the error is returned. An error after:
// the unit was committed and the error is returned, as if the reply was lost.
// A unit of several transitions, such as a merged write, calls it for each.
// After a refusal it is not called.
type Failpoint func(name string) error

// Options adjust a [DB]. The zero value of each member is its default.
type Options struct {
	// Now is the clock of this process, with its monotonic reading; default
	// time.Now. See [DB.Now].
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
	// Writers is how many connections write at once; default 4. SQLite has one.
	Writers int
	// Current gives the URL of the PostgreSQL database as it is now, of which user and
	// password count for each new connection; default the target.
	Current func() (string, error)
	// Dial makes the connections to PostgreSQL; default a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Values keeps values apart that are longer than ApartAbove bytes; 0 keeps none
	// apart, but those that are can be read. Without Values they cannot.
	Values     values.Store
	ApartAbove int
	// RefuseUnsafe has Open refuse a PostgreSQL that can lose what it has
	// committed: one that does not sync, or with a standby that nobody waits for.
	// Without it that is a warning in the log.
	RefuseUnsafe bool
	// Patience is how long Open waits for a database that cannot be reached; default
	// not at all.
	Patience time.Duration
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
	if o.Writers <= 0 {
		o.Writers = 4
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive(), Control: endSilence}).DialContext
	}
	return o
}

// DB is an open database. All methods may be called concurrently. A few
// goroutines, owned by the DB, write; Close ends them.
type DB struct {
	// path is the target that was opened: it may hold a password.
	path    string
	options Options
	dialect dialect
	// looks: nothing may be changed, not even to read.
	looks   bool
	readers *sql.DB
	// reads caches the prepared statements of readers by their text.
	reads   sync.Map
	lookups lookups
	// pages says where the last page of a list ended, if there may be more behind it.
	pages sync.Map

	// closing guards queue against sends after its close.
	closing    sync.RWMutex
	closed     bool
	queue      chan *unit
	writing    sync.WaitGroup
	links      links
	committing *commits
	fatal      chan struct{}
	// failed is set once and for all when the disk cannot be trusted.
	failed  atomic.Pointer[error]
	commits atomic.Int64
	// ownsValues: the store of values was seen to be that of this database.
	ownsValues atomic.Bool
	// risk is what was warned of last.
	risk   atomic.Pointer[string]
	schema schemaWatch
	writes writeLook
	// damagedRows are those that the log has told of.
	damagedRows damagedRows
	// clock is nil for a database without one of its own; unwatch ends what
	// follows it.
	clock   *clock
	unwatch func()
	// notices is the connection of Notify, made by the first one.
	notices struct {
		once sync.Once
		pool *sql.DB
		err  error
	}
}

// Open opens a database. A target that begins with postgres:// or postgresql://, in
// upper or lower case, is the URL of a PostgreSQL database, which has to be there; with several hosts
// the one that takes writes is used. Any other target is the path of an SQLite
// file, which is made, with mode 0600, if it is not there. Open refuses a
// database whose schema is newer than this program; [DB.Migrate] brings an older
// one up to date and is needed for a new one. ctx bounds the opening only. The
// caller closes the DB.
func Open(ctx context.Context, target string, o Options) (*DB, error) {
	o = o.withDefaults()
	return openPatiently(ctx, o, func() (*DB, error) { return open(ctx, dialectOf(target), target, o) })
}

func open(ctx context.Context, d dialect, target string, o Options) (_ *DB, err error) {
	o = o.withDefaults()
	db := &DB{
		path: target, options: o, dialect: d, queue: make(chan *unit, o.Queue), fatal: make(chan struct{}), committing: newCommits(),
		lookups: lookups{turn: make(chan struct{}, 1)}, schema: schemaWatch{soon: make(chan struct{}, 1)}, writes: writeLook{turn: make(chan struct{}, 1)},
	}
	if d.writers > 0 {
		db.options.Writers = min(d.writers, o.Writers)
	}
	if err := d.prepare(target); err != nil {
		return nil, db.unopened(err)
	}
	first, err := db.connect(ctx)
	if err != nil {
		return nil, db.unopened(err)
	}
	readers, err := d.connector(target, db.options, forReading)
	if err != nil {
		return nil, errors.Join(db.unopened(err), first.close())
	}
	db.readers = sql.OpenDB(readers)
	db.readers.SetMaxOpenConns(o.Readers)
	db.readers.SetMaxIdleConns(o.Readers)
	if err := db.checkSchema(ctx); err != nil {
		return nil, errors.Join(err, first.close(), db.readers.Close())
	}
	if err := db.openClock(ctx); err != nil {
		return nil, errors.Join(db.unopened(err), first.close(), db.readers.Close())
	}
	db.links.give(first) // the others are made when they are needed
	for range db.options.Writers {
		w := &writer{db: db}
		db.writing.Go(w.loop)
	}
	return db, nil
}

// unopened is the error of a database that cannot be opened.
func (db *DB) unopened(err error) error {
	if _, ok := errors.AsType[*parley.Error](err); ok {
		return err
	}
	if said := db.explained(err); said != nil {
		return said
	}
	return parley.Errorf(parley.CodeUnavailable, "cannot open the database %s: %w", db.dialect.name(db.path), OneLine(err))
}

// connect opens a connection that writes. It warns of a database that is not
// safe, or refuses it.
func (db *DB) connect(ctx context.Context) (link, error) {
	l, err := db.dialect.connect(ctx, &db.dialect, db.path, db.options)
	if err != nil {
		return nil, err
	}
	risk, err := l.risk(ctx)
	if risk != "" && db.options.RefuseUnsafe {
		err = parley.Errorf(parley.CodeInvalid, "the database %s is not safe: %s", db.dialect.name(db.path), risk)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	if old := db.risk.Swap(&risk); risk != "" && (old == nil || *old != risk) {
		db.options.Logger.Warn("the database is not safe", "reason", risk)
	}
	if db.clock != nil {
		db.clock.askSoon() // it may be another server than before
	}
	return l, nil
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
	db.unwatch()
	for l := db.links.take(); l != nil; l = db.links.take() {
		db.closeLink(l)
	}
	var errs []error
	db.reads.Range(func(_, st any) bool {
		errs = append(errs, st.(*sql.Stmt).Close())
		return true
	})
	db.notices.once.Do(func() {})
	if db.notices.pool != nil {
		errs = append(errs, db.notices.pool.Close())
	}
	return errors.Join(append(errs, db.readers.Close())...)
}

// Ping reports whether the database answers, whatever its schema is.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	return inPublic(db.readFailure(ctx, db.begun(ctx, func() error { return db.readers.QueryRowContext(ctx, `SELECT 1`).Scan(&one) })))
}

// Fatal is closed when the disk has failed in a way after which nothing may be
// written any more: the process has to end and start anew.
func (db *DB) Fatal() <-chan struct{} { return db.fatal }

// SyncedCommits counts the commits that were waited for. Units that share a
// commit count once.
func (db *DB) SyncedCommits() int64 { return db.commits.Load() }

// failure turns an error of the database into one for callers.
func (db *DB) failure(err error) error {
	if errors.Is(err, ErrInDoubt) {
		return parley.Errorf(parley.CodeUnavailable, "the database did not say what became of a write: %w", err)
	}
	if fault := db.schemaFault(err); fault != nil {
		return fault
	}
	if said := db.explained(err); said != nil {
		return said
	}
	switch db.dialect.classify(err) {
	case classSchema:
		return db.lacks(err)
	case classConflict:
		return parley.Errorf(parley.CodeConflict, "the database has this already: %w", err)
	case classBusy:
		return parley.Errorf(parley.CodeUnavailable, "the database cannot write now: %w", err)
	case classRepeat:
		return parley.Errorf(parley.CodeUnavailable, "the database was too busy with the same rows, try again: %w", err)
	case classLost:
		return parley.Errorf(parley.CodeUnavailable, "the database %s cannot be reached: %w", db.dialect.name(db.path), OneLine(err))
	case classLimit:
		return parley.Errorf(parley.CodeLimit, "a value is too long for the database: %w", err)
	case classDenied:
		return parley.Errorf(parley.CodeUnavailable, "the database %s refuses its user the right to this: %w; "+
			"grant it all rights to the tables of Parley, or name their owner in database.url", db.dialect.name(db.path), err)
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

// readTries is how often a query is begun whose connection turns out to be gone.
const readTries = 3

// read runs a query on the readers and calls each with every row.
func (db *DB) read(ctx context.Context, query string, each func(*record) error, args ...any) error {
	if err := db.schemaAllows(ctx); err != nil {
		return err
	}
	args = db.textArgs(args)
	return db.readFailure(ctx, db.heard(ctx, func(ctx context.Context, s *silence) error {
		var rows *sql.Rows
		err := db.begun(ctx, func() error {
			st, err := db.prepared(ctx, query) //nolint:sqlclosecheck // kept for the next call, closed by Close
			if err == nil {
				rows, err = st.QueryContext(ctx, args...) //nolint:sqlclosecheck,rowserrcheck // closed by eachRow
			}
			return lacking(db.dialect.classify, err, query)
		})
		if err != nil {
			return err
		}
		return db.eachRow(rows, s, each)
	}))
}

// readVaried is read for texts of which there is any number: none is kept prepared.
func (db *DB) readVaried(ctx context.Context, query string, each func(*record) error, args ...any) error {
	if err := db.schemaAllows(ctx); err != nil {
		return err
	}
	args = db.textArgs(args)
	return db.readFailure(ctx, db.heard(ctx, func(ctx context.Context, s *silence) error {
		var rows *sql.Rows
		err := db.begun(ctx, func() (err error) {
			rows, err = db.readers.QueryContext(ctx, db.dialect.rebind(query), args...) //nolint:sqlclosecheck,rowserrcheck // closed by eachRow
			return lacking(db.dialect.classify, err, query)
		})
		if err != nil {
			return err
		}
		return db.eachRow(rows, s, each)
	}))
}

// begun repeats what begins to read, as long as it finds connections of a
// database that was restarted. Where none can be made, that is the answer: with
// many who ask, each try more is one that others wait for.
func (db *DB) begun(ctx context.Context, f func() error) error {
	err := f()
	for n := 1; n < readTries && err != nil && ctx.Err() == nil && db.dialect.classify(err) == classLost; n++ {
		if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			return err
		}
		err = f()
	}
	return err
}

// textArgs gives arguments as the database can hold them.
func (db *DB) textArgs(args []any) []any {
	for i, a := range args {
		if s, ok := a.(string); ok {
			if t := db.dialect.text(s); t != s {
				args = slices.Clone(args)
				args[i] = t
			}
		}
	}
	return args
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
	if err := db.schemaAllows(ctx); err != nil {
		return err
	}
	return db.readFailure(ctx, db.heard(ctx, func(ctx context.Context, s *silence) error {
		var tx *sql.Tx
		err := db.begun(ctx, func() (err error) {
			tx, err = db.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: db.dialect.snapshot})
			return err
		})
		if err != nil {
			return err
		}
		// What looks why it failed needs a connection, too.
		defer func() { _ = tx.Rollback() }()
		s.end() // each question has its own
		defer s.begin()
		return f(tx)
	}))
}

// readOn is read within a snapshot.
func (db *DB) readOn(ctx context.Context, r reader, query string, each func(*record) error, args ...any) error {
	return db.heard(ctx, func(ctx context.Context, s *silence) error {
		rows, err := r.QueryContext(ctx, db.dialect.rebind(query), db.textArgs(args)...)
		if err != nil {
			return lacking(db.dialect.classify, err, query)
		}
		return db.eachRow(rows, s, each)
	})
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

// eachRow calls each with every row. What that takes is no silence.
func (db *DB) eachRow(rows *sql.Rows, s *silence, each func(*record) error) (err error) {
	defer func() {
		s.begin() // the rest of the rows may be read
		err = errors.Join(err, rows.Close())
	}()
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
	for ; rows.Next(); s.begin() {
		s.end()
		if err := rows.Scan(scan...); err != nil {
			return err
		}
		for i, v := range values {
			if s, ok := v.(string); ok {
				v = db.dialect.plain(s)
			}
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
