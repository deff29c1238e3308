package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/parley-project/parley"
)

// migrate runs f with the steps of the schema and what goes them, on a connection of its
// own.
func (db *DB) migrate(f func(*goose.Provider, []schemaStep) error) (err error) {
	steps, err := schemaSteps(db.dialect.migrations)
	if err != nil {
		return parley.Errorf(parley.CodeInternal, "migrations: %w", err)
	}
	as := forWriting
	if db.looks {
		as = forLooking
	}
	c, err := db.dialect.connector(db.path, db.options, as)
	if err != nil {
		return db.failure(err)
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, pool.Close()) }()
	goes := make([]*goose.Migration, 0, len(steps))
	for _, s := range steps {
		goes = append(goes, s.migration())
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithSlog(db.options.Logger), goose.WithGoMigrations(goes...)}
	if db.dialect.locker != nil {
		options = append(options, goose.WithSessionLocker(db.dialect.locker))
	}
	p, err := goose.NewProvider(db.dialect.goose, pool, nil, options...)
	if err != nil {
		return parley.Errorf(parley.CodeInternal, "migrations: %w", err)
	}
	if err := f(p, steps); err != nil {
		if _, ok := errors.AsType[*parley.Error](err); ok {
			return err
		}
		return db.failure(err)
	}
	return nil
}

// steps is migrate for what goes through the steps, or makes some: it refuses to do that
// where it would make all tables a second time, so that those that are there would seem
// to be empty.
func (db *DB) steps(ctx context.Context, f func(*goose.Provider) error) error {
	if err := db.onePlace(ctx); err != nil {
		return err
	}
	return db.migrate(func(p *goose.Provider, _ []schemaStep) error { return f(p) })
}

func (db *DB) onePlace(ctx context.Context) error {
	if db.dialect.twoPlaces == "" {
		return nil
	}
	var has, next string
	err := db.begun(ctx, func() error { return db.readers.QueryRowContext(ctx, db.dialect.twoPlaces).Scan(&has, &next) })
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return db.failure(err)
	}
	return parley.Errorf(parley.CodeConflict,
		"the tables of the database %s are in the schema %s, and new ones would go to %s: have search_path of its user name %[2]s first", db.dialect.name(db.path), has, next)
}

// Migrate brings the schema to the newest version, each step in a transaction.
// It does nothing if the schema is the newest already.
func (db *DB) Migrate(ctx context.Context) error {
	return db.steps(ctx, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// MigrateUpTo is Migrate up to version to, for tests of what later versions do
// to the rows of earlier ones.
func (db *DB) MigrateUpTo(ctx context.Context, to int64) error {
	return db.steps(ctx, func(p *goose.Provider) error {
		_, err := p.UpTo(ctx, to)
		return err
	})
}

// MigrateDown undoes every step above version to. Going below 1 drops all
// tables.
func (db *DB) MigrateDown(ctx context.Context, to int64) error {
	return db.steps(ctx, func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, to)
		return err
	})
}

// Migration is one step of the schema.
type Migration struct {
	Version int64
	// Name is that of its file, without the folder.
	Name string
	// AppliedAt is when the database got it, zero if it has not.
	AppliedAt time.Time
}

// Status gives every step that this program knows, in their order, and which of
// them the database has.
func (db *DB) Status(ctx context.Context) ([]Migration, error) {
	var list []Migration
	err := db.migrate(func(p *goose.Provider, steps []schemaStep) error {
		if list = db.whole(ctx, steps); list != nil {
			return nil
		}
		if err := db.onePlace(ctx); err != nil {
			return err
		}
		// Something is missing: it waits for whoever changes the schema just now.
		if _, err := p.GetDBVersion(ctx); err != nil {
			return err
		}
		applied, err := db.applied(ctx)
		if err == nil {
			list = stepsOf(steps, applied)
		}
		return err
	})
	return list, err
}

// whole gives every step if the database has all of them and none that this program
// does not know, else nil. It is one question, for which nobody waits.
func (db *DB) whole(ctx context.Context, steps []schemaStep) []Migration {
	applied, err := db.applied(ctx)
	if err != nil || len(applied) != len(steps) {
		return nil // there is no such table, perhaps; or what comes next fails as well
	}
	list := stepsOf(steps, applied)
	if slices.ContainsFunc(list, func(m Migration) bool { return m.AppliedAt.IsZero() }) {
		return nil
	}
	return list
}

// applied gives when the database got the steps that it has, by their versions. To ask
// for one step after the other would take as many round trips.
func (db *DB) applied(ctx context.Context) (map[int64]time.Time, error) {
	rows, err := db.readers.QueryContext(ctx, `SELECT version_id, tstamp FROM `+goose.DefaultTablename+` WHERE is_applied AND version_id > 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err says what failed
	applied := make(map[int64]time.Time)
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, err
		}
		applied[version] = at.UTC()
	}
	return applied, rows.Err()
}

// stepsOf gives steps with the times at which a database got them.
func stepsOf(steps []schemaStep, applied map[int64]time.Time) []Migration {
	list := make([]Migration, 0, len(steps))
	for _, s := range steps {
		list = append(list, Migration{Version: s.version, Name: s.name, AppliedAt: applied[s.version]})
	}
	return list
}

// SchemaVersion gives the version that the database is at; 0 is a new one.
func (db *DB) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	err := db.steps(ctx, func(p *goose.Provider) (err error) {
		version, err = p.GetDBVersion(ctx)
		return err
	})
	return version, err
}

// checkSchema refuses a database that a newer program has made, and one that
// belongs to something else: looking at its version would make a table in it.
func (db *DB) checkSchema(ctx context.Context) error {
	if err := db.checkOthers(ctx); err != nil {
		return err
	}
	return db.migrate(func(p *goose.Provider, steps []schemaStep) error {
		if db.whole(ctx, steps) != nil {
			return nil
		}
		if err := db.onePlace(ctx); err != nil {
			return err
		}
		at, err := p.GetDBVersion(ctx)
		if err != nil {
			return err
		}
		if newest := steps[len(steps)-1].version; at > newest {
			return parley.Errorf(parley.CodeConflict,
				"the database %s has schema version %d, this program knows %d: use a newer program", db.dialect.name(db.path), at, newest)
		}
		return nil
	})
}
