package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/parley-project/parley"
)

const (
	// schemaEvery is how often the version of the schema is looked at, and
	// schemaWait bounds one look.
	schemaEvery = time.Second
	schemaWait  = 3 * time.Second
)

// ErrSchema is in the chain of errors of calls that were refused because the
// schema of the database is not the one of this program, or has lost a table. The
// error is a [parley.Error] of code unavailable that says what to do.
var ErrSchema = errors.New("store: the schema is not that of this program")

// SchemaError says that the schema of the database is another one than this
// program's.
type SchemaError struct {
	said *parley.Error
	// Has is the version of the database, 0 if it has none, Needs that of the program.
	Has, Needs int64
}

// Error gives the code and the words.
func (e *SchemaError) Error() string { return e.said.Error() }

// Unwrap gives the [parley.Error].
func (e *SchemaError) Unwrap() error { return e.said }

// Is reports whether target is [ErrSchema].
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

// Told says that the log has a line about this already, when it began: those who
// are refused because of it need none of their own.
func (e *SchemaError) Told() bool { return true }

// schemaWatch is what is known of the schema while [DB.WatchSchema] runs.
type schemaWatch struct {
	// watched: only then is anything refused. Programs that change the schema
	// open databases of every version.
	watched atomic.Bool
	fault   atomic.Pointer[SchemaError]
	// soon asks for a look.
	soon chan struct{}

	// lack is what the schema lacks though it has the right version.
	lack atomic.Pointer[lack]

	looking sync.Mutex // one look at a time, so that an older one is never noted after a newer one
	// lapsed: there was a fault that is not over, lost: of an older schema, without
	// some of what was in it. Both are protected by looking.
	lapsed, lost bool
}

// WatchSchema looks each second whether the schema of the database is still the one
// of this program, until ctx ends. While it is not, because somebody has undone
// steps, has dropped it, or because a newer program has brought it further, all
// calls of the DB are refused with [ErrSchema] and nothing is asked of the
// database but its version. One line of the log says that it began, one that it is
// over. If the schema is only newer, what ends a call that is under way is still
// tried: the answer of an agent, what its bridge knows of it, and the bridge's sign
// of life (see [DB.Answer], [DB.Move], [DB.Beat]).
//
// A schema of the right version that lacks a table refuses only what needs that,
// with the same error, and has a line at its begin and its end, too.
//
// When a schema that was older is whole again, again is called before
// [DB.SchemaReady] says so: what was in the database may be gone. It is repeated
// until it goes well.
func (db *DB) WatchSchema(ctx context.Context, again func(context.Context) error) error {
	db.schema.watched.Store(true)
	defer db.schema.watched.Store(false)
	tick := time.NewTicker(schemaEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-db.schema.soon:
		case <-tick.C:
		}
		if err := db.lookAtVersion(ctx); err != nil {
			continue // a database that does not answer says so elsewhere
		}
		db.lookForLack(ctx)
		lapsed, lost := db.schemaLapsed()
		if !lapsed {
			continue
		}
		if lost {
			if err := again(ctx); err != nil {
				if ctx.Err() == nil {
					db.options.Logger.Warn("the schema is whole again, but the work does not go on yet", "event", "schema", "error", err)
				}
				continue
			}
		}
		db.schemaHealed()
	}
}

// schemaLapsed reports whether the schema is whole again after a fault, and whether
// something was lost in it.
func (db *DB) schemaLapsed() (lapsed, lost bool) {
	db.schema.looking.Lock()
	defer db.schema.looking.Unlock()
	whole := db.schema.fault.Load() == nil
	return whole && db.schema.lapsed, whole && db.schema.lost
}

func (db *DB) schemaHealed() {
	db.schema.looking.Lock()
	defer db.schema.looking.Unlock()
	if db.schema.fault.Load() == nil {
		db.schema.lapsed, db.schema.lost = false, false
		db.options.Logger.Warn("the schema of the database is that of this program again; the work goes on", "event", "schema")
	}
}

// SchemaReady gives why the schema is of no use at present: nil, or a
// [parley.Error] that says what to do.
func (db *DB) SchemaReady() error {
	if fault := db.schema.fault.Load(); fault != nil {
		return fault
	}
	if lack := db.schema.lack.Load(); lack != nil {
		return lack.said
	}
	if lapsed, _ := db.schemaLapsed(); lapsed {
		return parley.Errorf(parley.CodeUnavailable, "the schema of the database is whole again; what the configuration declares is being brought into it")
	}
	return nil
}

// lookAtVersion notes whether the schema is this program's. After an error nothing
// is known anew.
func (db *DB) lookAtVersion(ctx context.Context) error {
	db.schema.looking.Lock()
	defer db.schema.looking.Unlock()
	ctx, stop := context.WithTimeout(ctx, schemaWait)
	defer stop()
	needs, err := db.newest()
	if err != nil {
		return err
	}
	var has sql.NullInt64
	err = db.begun(ctx, func() error {
		return db.readers.QueryRowContext(ctx, `SELECT max(version_id) FROM `+goose.DefaultTablename).Scan(&has)
	})
	if err != nil && db.dialect.classify(err) != classSchema {
		return err
	}
	db.noteVersion(has.Int64, needs)
	return nil
}

// noteVersion is called by one at a time.
func (db *DB) noteVersion(has, needs int64) {
	old := db.schema.fault.Load()
	if has == needs {
		db.schema.fault.Store(nil)
		return
	}
	if old != nil && old.Has == has {
		return
	}
	fault := newSchemaError(has, needs)
	db.schema.fault.Store(fault)
	db.schema.lapsed, db.schema.lost = true, db.schema.lost || has < needs
	level := slog.LevelInfo // one step of many that are undone or applied
	if old == nil {
		level = slog.LevelError
	}
	db.options.Logger.Log(context.Background(), level, "the schema of the database is not that of this program", "event", "schema",
		"database", db.dialect.name(db.path), "has", has, "needs", needs, "advice", fault.said.Message)
}

func newSchemaError(has, needs int64) *SchemaError {
	e := &SchemaError{Has: has, Needs: needs}
	switch {
	case has == 0:
		e.said = parley.Errorf(parley.CodeUnavailable, "the database has no schema of Parley any more: bring its copy back, "+
			"or type parley migrate up to make an empty one; this process waits and then goes on by itself")
	case has < needs:
		e.said = parley.Errorf(parley.CodeUnavailable, "the schema of the database is at version %d, this program needs %d: "+
			"type parley migrate up; this process waits and then goes on by itself", has, needs)
	default:
		e.said = parley.Errorf(parley.CodeUnavailable, "the schema of the database is at version %d, newer than the %d of this program: "+
			"start the newer program in the place of this process; it begins nothing more, and only ends calls that are under way", has, needs)
	}
	return e
}

// newest is the version of the schema that this program is made for.
func (db *DB) newest() (int64, error) {
	files, err := fs.ReadDir(migrations, db.dialect.migrations)
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("migrations: %w", err)
	}
	number, _, _ := strings.Cut(path.Base(files[len(files)-1].Name()), "_")
	return strconv.ParseInt(number, 10, 64)
}

// underWay marks a context: what is done with it ends calls that are under way.
type underWay struct{}

// endsCalls marks what is tried with a newer schema, too. An answer in hand that
// was thrown away would have the agent called again, or its run fail.
func endsCalls(ctx context.Context) context.Context { return context.WithValue(ctx, underWay{}, true) }

// schemaAllows refuses what the schema is not for.
func (db *DB) schemaAllows(ctx context.Context) error {
	fault := db.schema.fault.Load()
	if fault == nil || !db.schema.watched.Load() {
		return nil
	}
	if fault.Has > fault.Needs && ctx.Value(underWay{}) != nil {
		return nil
	}
	return fault
}

// schemaFault gives the fault of the schema if err, an error of a statement, comes
// from one, and nil if it does not.
func (db *DB) schemaFault(err error) *SchemaError {
	if err == nil || !db.schema.watched.Load() || db.dialect.classify(err) != classSchema {
		return nil
	}
	// What was known before the statement does not count.
	_ = db.lookAtVersion(context.Background())
	return db.schema.fault.Load()
}
