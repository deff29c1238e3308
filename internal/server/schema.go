package server

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// target is what the store opens: the URL, or the file in the data folder.
func target(data string, url parley.Secret) string {
	if url.IsZero() {
		return filepath.Join(data, "parley.db")
	}
	return string(url.Reveal())
}

// checkSchema refuses a database to which steps are missing. An empty one that this
// process has for itself is no older schema: it is made.
func checkSchema(ctx context.Context, db *store.DB, own bool) error {
	steps, err := db.Status(ctx)
	if err != nil {
		return err
	}
	missing := 0
	for _, s := range steps {
		if s.AppliedAt.IsZero() {
			missing++
		}
	}
	switch {
	case missing == 0:
		return nil
	case missing == len(steps) && own:
		return db.Migrate(ctx)
	}
	return parley.Errorf(parley.CodeConflict,
		"the schema of the database is older than this program: %d of %d steps are missing; type: parley migrate up (or set database.migrate: auto)", missing, len(steps))
}

// Database is a database that no server runs on in this process: for its
// schema and for copies. The caller closes it.
type Database struct {
	db   *store.DB
	data string
	// Values says where values are kept that are not in the database.
	Values ValuesConfig
	lock   *folderLock
	shared bool
}

// Step is one step of the schema.
type Step struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	// AppliedAt is zero for a step that the database does not have.
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// OpenDatabase opens what a server with these settings would work on: the URL,
// or the SQLite file of the data folder, which has to be there. With alone the
// folder must have no server; the error has code conflict if it has one.
func OpenDatabase(ctx context.Context, data string, url parley.Secret, alone bool) (*Database, error) {
	d := &Database{data: data, shared: !url.IsZero()}
	if url.IsZero() && alone {
		var err error
		if d.lock, err = lockFolder(data); err != nil {
			return nil, err
		}
	}
	var err error
	if d.db, err = store.Open(ctx, target(data, url), store.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		if d.lock != nil {
			_ = d.lock.release()
		}
		return nil, err
	}
	return d, nil
}

// Close closes the database.
func (d *Database) Close() error {
	err := d.db.Close()
	if d.lock != nil {
		if e := d.lock.release(); err == nil {
			err = e
		}
	}
	return err
}

// Shared says that it is PostgreSQL, which several processes may use and which has
// tools of its own for copies.
func (d *Database) Shared() bool { return d.shared }

// Steps gives every step that this program knows, in their order.
func (d *Database) Steps(ctx context.Context) ([]Step, error) {
	list, err := d.db.Status(ctx)
	if err != nil {
		return nil, err
	}
	steps := make([]Step, len(list))
	for i, m := range list {
		steps[i] = Step{Version: m.Version, Name: m.Name, AppliedAt: m.AppliedAt}
	}
	return steps, nil
}

// Up applies the steps that are missing.
func (d *Database) Up(ctx context.Context) error { return d.db.Migrate(ctx) }

// Down undoes every step above version to; below 1 are all tables gone.
func (d *Database) Down(ctx context.Context, to int64) error { return d.db.MigrateDown(ctx, to) }
