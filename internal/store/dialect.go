package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
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
	// classLimit: a value is larger than the database can hold.
	classLimit
	// classRepeat: nothing was written because of others, and it may go well the
	// next time: a deadlock, or two who inserted the same at once.
	classRepeat
	// classLost: the connection is gone, or there was none. What was not yet
	// committed is not written.
	classLost
	// classSchema: there is no such table or column.
	classSchema
	// classDenied: the database's user has not the right to it.
	classDenied
	// classFatal: what is on the disk is not known any more. Nothing may be
	// written after it: an fsync that is repeated can report success on lost data.
	classFatal
)

// use says what a connection of database/sql is for.
type use int

const (
	forReading use = iota
	forWriting
	// forNotices: it writes nothing but notifications.
	forNotices
	// forLooking: it reads, and leaves no trace.
	forLooking
)

// link is a connection that writes. It belongs to one writer.
type link interface {
	// run executes units in one transaction and commits it. Each unit's err says
	// whether it was refused. After an error of run nothing of it is written,
	// unless it is ErrInDoubt.
	run(units []*unit, synced bool) error
	// risk says why the database may lose what it has committed, "" if it does not.
	risk(ctx context.Context) (string, error)
	// broken reports whether the link is of no use any more.
	broken() bool
	close() error
}

// dialect is everything in which the databases differ. The statements
// themselves are common: they are written with ? placeholders, each used
// once, with ON CONFLICT, RETURNING and partial indexes.
type dialect struct {
	// migrations is the folder of the schema files, goose their dialect.
	migrations string
	goose      goose.Dialect
	// locker keeps two processes from changing the schema at once.
	locker lock.SessionLocker
	// picked is the condition that a subselect with a limit has picked the row.
	// It picks once, and passes rows by that somebody else is changing.
	picked func(subselect string) string
	// rebind turns ? placeholders into the database's own.
	rebind func(string) string
	// text gives a string as the database can hold it, and plain the string
	// again. Equal strings are equal texts.
	text, plain func(string) string
	// guesses: units are refused after a write that could be refused before it, if
	// they are executed again.
	guesses bool
	// notifies: processes can wake each other.
	notifies bool
	// time is a query for the database's clock, in microseconds; "" for one that
	// has none of its own.
	time string
	// version is a query for the version of the database's program, begun one for
	// whether there is the table that counts the steps of the schema.
	version, begun string
	// others is a query that gives the name of a table that may be something else's,
	// since none that would be beside ours is there: agents, or the one that counts steps.
	others string
	// twoPlaces is a query that gives a row if steps would be made elsewhere than where the
	// tables are: the names of both places; "" where there is one place.
	twoPlaces string
	// backup is a statement that copies the database into a file; "" is none.
	backup string
	// snapshot is the isolation in which a transaction sees one state throughout.
	snapshot sql.IsolationLevel
	// together asks questions on one connection in one round trip, see
	// [DB.together]; nil: in a transaction, one after another.
	together func(ctx context.Context, conn *sql.Conn, list []inquiry, s *silence) (given bool, err error)
	// writers is the most connections that write, 0 what the options say.
	writers int
	// connector opens connections for database/sql.
	connector func(target string, o Options, use use) (driver.Connector, error)
	// connect opens a connection that writes.
	connect func(ctx context.Context, d *dialect, target string, o Options) (link, error)
	// prepare makes the database if there is none yet.
	prepare func(target string) error
	// classify tells the errors of the driver apart; full those of a disk without room.
	classify func(error) errorClass
	full     func(error) bool
	// damaged reports errors of a file that holds no database, or not as it was
	// written; nil where a server has the files.
	damaged func(error) bool
	// explain gives what a refusal of the database means and what to do, as a format
	// for the database's name and the error; "" for what class says enough of. nil is
	// none.
	explain func(error) (format string, cause error)
	// silence is how long who reads waits for an answer; 0 is as long as it takes.
	silence time.Duration
	// readOnly is a query for whether what writes may not ("on"); "" where nobody can
	// set that.
	readOnly string
	// there is a query for whether there is a table.
	there string
	// name is how the database is called in texts: without a password.
	name func(target string) string
}

// dialectOf gives the dialect of a target: a PostgreSQL URL or a path.
func dialectOf(target string) dialect {
	if scheme, _, ok := strings.Cut(target, "://"); ok && (strings.EqualFold(scheme, "postgres") || strings.EqualFold(scheme, "postgresql")) {
		return postgresDialect()
	}
	return sqliteDialect()
}
