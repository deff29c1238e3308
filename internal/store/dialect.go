package store

import (
	"database/sql/driver"
	"errors"
	"net/url"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// errorClass says what an error of the database means for the writer.
type errorClass int

const (
	// classOther: the statement failed; the unit that made it is guilty.
	classOther errorClass = iota
	// classConflict: a unique key or another constraint was violated.
	classConflict
	// classBusy: the database cannot take the write now (locked, disk full).
	classBusy
	// classFatal: what is on the disk is not known any more. Nothing may be
	// written after it: an fsync that is repeated can report success on lost data.
	classFatal
)

// dialect is everything in which the databases differ. The statements
// themselves are common: they are written with ? placeholders, each used
// once, with ON CONFLICT, RETURNING and partial indexes.
type dialect struct {
	// migrations is the folder of the schema files, goose their dialect.
	migrations string
	goose      goose.Dialect
	// skipLocked follows a subselect that picks rows to be updated.
	skipLocked string
	// lockShared follows a SELECT whose rows must stay as they are until the
	// transaction ends.
	lockShared string
	// rebind turns ? placeholders into the database's own.
	rebind func(string) string
	// begin starts a transaction that is synced at its end, or not.
	begin func(s *session, synced bool) error
	// doubtfulCommit: a COMMIT that fails may have happened all the same, so
	// that its units are not repeated: their callers are told instead.
	doubtfulCommit bool
	// connector opens connections: the writing one, or reading ones.
	connector func(path string, o Options, write bool) (driver.Connector, error)
	// prepare makes the database if there is none yet.
	prepare func(path string) error
	// classify tells the errors of the driver apart.
	classify func(error) errorClass
}

func sqliteDialect() dialect {
	return dialect{
		migrations: "migrations/sqlite",
		goose:      goose.DialectSQLite3,
		rebind:     func(text string) string { return text },
		begin:      sqliteBegin,
		connector:  sqliteConnector,
		prepare:    sqlitePrepare,
		classify:   sqliteClassify,
	}
}

// sqliteBegin takes the write lock at once, so that everything read in the
// transaction still holds when it writes. Without sync a commit is kept over a
// crash of the process, and over one of the machine when a later synced commit
// or a checkpoint has carried it.
func sqliteBegin(s *session, synced bool) error {
	if s.synced != synced {
		mode := "PRAGMA synchronous=NORMAL"
		if synced {
			mode = "PRAGMA synchronous=FULL"
		}
		// Not a cached statement: this pragma acts while it is compiled.
		if err := s.execOnce(mode); err != nil {
			return err
		}
		s.synced = synced
	}
	_, err := s.exec("BEGIN IMMEDIATE")
	return err
}

func sqliteConnector(path string, _ Options, write bool) (driver.Connector, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	pragmas := []string{"busy_timeout(10000)", "foreign_keys(1)", "temp_store(MEMORY)"}
	if write {
		// A checkpoint each 16 MiB, and a log that shrinks to 64 MiB after a
		// burst. 16 MiB of pages: a commit that has split a page walks over
		// the whole table of the cache, so that a larger one costs time.
		pragmas = append(pragmas, "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-16384)",
			"wal_autocheckpoint(4096)", "journal_size_limit(67108864)")
	} else {
		pragmas = append(pragmas, "query_only(1)", "cache_size(-8192)")
	}
	u := url.URL{Scheme: "file", Path: abs, RawQuery: url.Values{"_pragma": pragmas}.Encode()}
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
	default:
		return classOther
	}
}
