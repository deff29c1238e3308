package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

func sqliteDialect() dialect {
	return dialect{
		migrations: "migrations/sqlite",
		goose:      goose.DialectSQLite3,
		picked:     func(subselect string) string { return "IN (" + subselect + ")" },
		rebind:     func(text string) string { return text },
		text:       func(s string) string { return s },
		plain:      func(s string) string { return s },
		writers:    1,
		version:    `SELECT 'SQLite ' || sqlite_version()`,
		begun:      `SELECT count(*) > 0 FROM sqlite_master WHERE name = 'goose_db_version'`,
		others: `SELECT CASE WHEN max(name = 'goose_db_version') THEN CASE WHEN NOT max(name IN ('attempt', 'definition', 'late')) THEN 'goose_db_version' END
 WHEN max(name = 'agents') THEN 'agents' END FROM sqlite_master WHERE type = 'table'`,
		backup:    `VACUUM INTO ?`,
		connector: sqliteConnector,
		connect:   sqliteConnect,
		prepare:   sqlitePrepare,
		classify:  sqliteClassify, full: sqliteFull, damaged: sqliteDamaged, explain: sqliteExplain,
		there: `SELECT count(*) > 0 FROM sqlite_master WHERE name = ?`,
		name:  func(path string) string { return path },
	}
}

func sqliteConnector(path string, _ Options, use use) (driver.Connector, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	pragmas := []string{"busy_timeout(10000)", "foreign_keys(1)", "temp_store(MEMORY)"}
	if use != forReading && use != forLooking {
		// A checkpoint each 16 MiB, and a log that shrinks to 64 MiB after a
		// burst. 16 MiB of pages: a commit that has split a page walks over
		// the whole table of the cache, so that a larger one costs time.
		pragmas = append(pragmas, "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-16384)",
			"wal_autocheckpoint(4096)", "journal_size_limit(67108864)")
	} else {
		pragmas = append(pragmas, "query_only(1)", "cache_size(-8192)")
	}
	query := url.Values{"_pragma": pragmas}
	if use == forLooking {
		query.Set("mode", "ro")
		if _, err := os.Stat(abs + "-wal"); errors.Is(err, os.ErrNotExist) {
			// Nobody has it open: reading as usual would leave files beside it.
			query.Set("immutable", "1")
		}
	}
	u := url.URL{Scheme: "file", Path: abs, RawQuery: query.Encode()}
	return sqlite.NewConnector(u.String())
}

// sqlitePrepare makes the file, readable by its owner only; SQLite gives the
// files beside it the same mode.
func sqlitePrepare(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// full reports whether a disk has no room.
func full(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_FULL
}

func sqliteClassify(err error) errorClass {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return classOther
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT:
		return classConflict
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL:
		return classBusy
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return classFatal
	case sqlite3.SQLITE_ERROR:
		// It has no code of its own for what is not there.
		if text := e.Error(); strings.Contains(text, "no such table") || strings.Contains(text, "no such column") || strings.Contains(text, "has no column named") {
			return classSchema
		}
	}
	return classOther
}

func sqliteFull(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_FULL
}

// sqliteDamaged reports that a file is no database, or that it is not as it was written.
func sqliteDamaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_NOTADB || e.Code()&0xff == sqlite3.SQLITE_CORRUPT)
}

// sqliteExplain tells of a disk without room where SQLite speaks of an error of the disk:
// it cannot make, or enlarge, the file that those who use the database share.
func sqliteExplain(err error) (format string, cause error) {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE {
		return "there is no room for the file %s-shm, without which the database cannot be used: %w; make room on its disk, the database is as it was", err
	}
	return "", nil
}

// sqliteLink is the write connection of SQLite, used below database/sql because
// its bookkeeping costs as much as the statements. It is also the engine of its
// session: each statement is executed at once.
type sqliteLink struct {
	conn       driver.Conn
	session    session
	statements map[string]*statement
	row        record
	// synced is the durability that the connection is set to.
	synced bool
	// living is the bridge that was found alive in the present transaction.
	living  Claim
	changed int64
	gone    bool
}

// statement is one prepared statement.
type statement struct {
	driver.Stmt
	execer  driver.StmtExecContext
	queryer driver.StmtQueryContext
}

func sqliteConnect(ctx context.Context, d *dialect, path string, o Options) (link, error) {
	c, err := d.connector(path, o, forWriting)
	if err != nil {
		return nil, err
	}
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l := &sqliteLink{conn: conn, statements: map[string]*statement{}, synced: true}
	l.session.engine, l.session.touches = l, true
	return l, nil
}

func (l *sqliteLink) run(units []*unit, synced bool) error {
	if err := l.begin(synced); err != nil {
		l.rollback()
		return err
	}
	for _, u := range units {
		if u.err = u.exec(&l.session); u.err != nil && !refusal(u.err) {
			l.rollback()
			return u.err
		}
	}
	if _, err := l.session.exec("COMMIT"); err != nil {
		l.rollback()
		return err
	}
	return nil
}

func (l *sqliteLink) risk(context.Context) (string, error) { return "", nil }

func (l *sqliteLink) broken() bool { return l.gone }

func (l *sqliteLink) close() error {
	var errs []error
	for _, st := range l.statements {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, l.conn.Close())...)
}

// begin takes the write lock at once, so that everything read in the
// transaction still holds when it writes. Without sync a commit is kept over a
// crash of the process, and over one of the machine when a later synced commit
// or a checkpoint has carried it.
func (l *sqliteLink) begin(synced bool) error {
	l.living = Claim{}
	if l.synced != synced {
		mode := "PRAGMA synchronous=NORMAL"
		if synced {
			mode = "PRAGMA synchronous=FULL"
		}
		// Not a cached statement: this pragma acts while it is compiled.
		if err := l.execOnce(mode); err != nil {
			return err
		}
		l.synced = synced
	}
	_, err := l.session.exec("BEGIN IMMEDIATE")
	return err
}

// rollback undoes the transaction. Where that fails, perhaps because SQLite has
// done so by itself, as it does when the disk is full, the connection is given
// up: a new one is in no transaction for certain.
func (l *sqliteLink) rollback() {
	if _, err := l.session.exec("ROLLBACK"); err != nil {
		l.gone = true
	}
}

// alive remembers its last answer: nobody else writes meanwhile, unless a unit
// of the transaction says otherwise.
func (l *sqliteLink) alive(bridge Claim) (bool, error) {
	if l.living == bridge {
		return true, nil
	}
	ok, err := l.session.exists(selectAlive, bridge.Worker, bridge.Inc)
	if ok && err == nil {
		l.living = bridge
	}
	return ok, err
}

func (l *sqliteLink) workersChanged() { l.living = Claim{} }

func (l *sqliteLink) queue(c *call) error { return lacking(sqliteClassify, l.execute(c), c.text) }

func (l *sqliteLink) execute(c *call) error {
	st, err := l.prepare(c.text)
	if err != nil {
		return err
	}
	if c.each != nil {
		return l.query(st, c)
	}
	// A statement is never interrupted half way: the background context is meant.
	res, err := st.execer.ExecContext(context.Background(), c.args)
	if err != nil {
		return err
	}
	if l.changed, err = res.RowsAffected(); err != nil {
		return err
	}
	if c.changed != nil {
		*c.changed = l.changed
	}
	if c.changes >= 0 && c.changes != l.changed {
		return errLate
	}
	return nil
}

// guesses: a statement has been executed when it is queued.
func (l *sqliteLink) guesses() bool { return false }

func (l *sqliteLink) wait() (int64, error) { return l.changed, nil }

// prepare gives the statement of a text, which must be one of a bounded
// number of texts: statements stay prepared until the connection ends.
func (l *sqliteLink) prepare(text string) (*statement, error) {
	if st, ok := l.statements[text]; ok {
		return st, nil
	}
	p, err := l.conn.Prepare(text)
	if err != nil {
		return nil, err
	}
	execer, ok1 := p.(driver.StmtExecContext)
	queryer, ok2 := p.(driver.StmtQueryContext)
	if !ok1 || !ok2 {
		return nil, errors.Join(errors.New("the driver's statements take no context"), p.Close())
	}
	st := &statement{p, execer, queryer}
	l.statements[text] = st
	return st, nil
}

// execOnce runs a text that must not be kept prepared.
func (l *sqliteLink) execOnce(text string) error {
	p, err := l.conn.Prepare(text)
	if err != nil {
		return err
	}
	_, err = p.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return errors.Join(err, p.Close())
}

func (l *sqliteLink) query(st *statement, c *call) (err error) {
	rows, err := st.queryer.QueryContext(context.Background(), c.args)
	if err != nil {
		return err
	}
	each := c.each
	defer func() { err = errors.Join(err, rows.Close()) }()
	l.row.values = append(l.row.values[:0], make([]driver.Value, len(rows.Columns()))...)
	for {
		if err := rows.Next(l.row.values); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		l.row.next, l.row.err = 0, nil
		if err := each(&l.row); err != nil {
			return err
		}
		if l.row.err != nil {
			return l.row.err
		}
	}
}
