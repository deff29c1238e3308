package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/parley-project/parley"
)

// Look is what a database says of itself.
type Look struct {
	// Name is how the database is called, without a password; Version is that of
	// its program.
	Name, Version string
	// Steps are those of the schema that this program knows, in their order.
	Steps []Migration
	// Risk says why the database may lose what it has committed, "" if it does not.
	Risk string
	// OwnClock says that the database has a clock of its own, and Ahead how far it
	// is ahead of that of this process.
	OwnClock bool
	Ahead    time.Duration
	// Damaged says of a database that cannot be opened that its file holds none, or not
	// as it was written.
	Damaged bool
}

// LookAt looks at a database and changes nothing: no file is made, and no step of
// the schema is applied. It refuses what [Open] refuses; where the schema is the
// reason, the Look has the rest. The file of SQLite has to be there.
func LookAt(ctx context.Context, target string, o Options) (l Look, err error) {
	o = o.withDefaults()
	db := &DB{path: target, options: o, dialect: dialectOf(target), looks: true}
	l.Name = db.dialect.name(target)
	c, err := db.dialect.connector(target, o, forLooking)
	if err != nil {
		return l, db.unopened(err)
	}
	db.readers = sql.OpenDB(c)
	defer func() { err = errors.Join(err, db.readers.Close()) }()
	if err := db.readers.QueryRowContext(ctx, db.dialect.version).Scan(&l.Version); err != nil {
		l.Damaged = db.dialect.damaged != nil && db.dialect.damaged(err)
		return l, db.unopened(err)
	}
	if db.dialect.time != "" {
		if err := db.lookAtServer(ctx, &l); err != nil {
			return l, db.unopened(err)
		}
	}
	l.Steps, err = db.lookAtSchema(ctx)
	return l, err
}

// lookAtServer asks what only a server that keeps the database knows. Connecting
// as what writes connects writes nothing there.
func (db *DB) lookAtServer(ctx context.Context, l *Look) error {
	w, err := db.dialect.connect(ctx, &db.dialect, db.path, db.options)
	if err != nil {
		return err
	}
	l.Risk, err = w.risk(ctx)
	if err := errors.Join(err, w.close()); err != nil {
		return err
	}
	db.clock = newClock(db.options)
	if err := db.askClock(ctx); err != nil {
		return err
	}
	l.OwnClock, l.Ahead = true, time.Duration(db.clock.ahead.Load())
	return nil
}

// lookAtSchema gives the steps without making the table that counts them, as
// asking for its version would.
func (db *DB) lookAtSchema(ctx context.Context) (steps []Migration, err error) {
	var begun bool
	if err := db.readers.QueryRowContext(ctx, db.dialect.begun).Scan(&begun); err != nil {
		return nil, db.unopened(err)
	}
	if begun {
		if steps, err = db.Status(ctx); err != nil {
			return nil, err
		}
		return steps, db.checkSchema(ctx)
	}
	if err := db.checkOthers(ctx); err != nil {
		return nil, err
	}
	known, err := schemaSteps(db.dialect.migrations)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInternal, "migrations: %w", err)
	}
	return stepsOf(known, nil), nil
}

// checkOthers refuses a database that belongs to something else.
func (db *DB) checkOthers(ctx context.Context) error {
	table, err := db.others(ctx)
	if err != nil || table == "" {
		return err
	}
	if table == goose.DefaultTablename {
		if table, err = db.othersSteps(ctx); err != nil || table == "" {
			return err
		}
	}
	return parley.Errorf(parley.CodeConflict,
		"the database %s has a table %s that is not Parley's: give Parley a database of its own (database.url); what the existing platform has in its database, parley import brings over",
		db.dialect.name(db.path), table)
}

// others gives the name of a table that may be something else's; "" if there is none.
func (db *DB) others(ctx context.Context) (string, error) {
	var table sql.NullString
	if err := db.readers.QueryRowContext(ctx, db.dialect.others).Scan(&table); err != nil {
		return "", db.failure(err)
	}
	return table.String, nil
}

// othersSteps is others where none of our tables is beside the one that counts steps: that
// is ours while nothing is counted there, as before the first step. Whoever makes our tables
// counts that in the same transaction, so that they have to be there after the counting.
func (db *DB) othersSteps(ctx context.Context) (string, error) {
	var counted bool
	if err := db.readers.QueryRowContext(ctx, `SELECT count(*) > 0 FROM `+goose.DefaultTablename+` WHERE version_id > 0`).Scan(&counted); err != nil {
		return "", db.failure(err)
	}
	if !counted {
		return "", nil
	}
	return db.others(ctx)
}
