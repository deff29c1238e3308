package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
)

// A store of values is that of one database, whose id it carries as its mark: values
// that the sweep of another does not know it would remove. The id is in the row of
// value_ref without an object.

const (
	selectDatabaseID   = `SELECT digest FROM value_ref WHERE object = ''`
	insertDatabaseID   = `INSERT INTO value_ref (object, run, digest, size, at) VALUES ('', '', ?, 0, ?) ON CONFLICT DO NOTHING`
	selectAnyReference = `SELECT object FROM value_ref WHERE run <> '' LIMIT 1`
)

// OwnValues takes the store of values for this database, unless it has it already. The
// error has code conflict if the store is that of another one; [ErrAway] is in the chain
// of one that says that this cannot be told now. Until it is known that the store is
// this database's, values stay in the database, and no object is removed.
func (db *DB) OwnValues(ctx context.Context) error {
	if db.options.Values == nil {
		return nil
	}
	id, err := db.databaseID(ctx)
	if err != nil {
		return err
	}
	object, err := db.readOne(ctx, selectAnyReference)
	if err != nil {
		return err
	}
	err = db.claimValues(ctx, id, object)
	if owned, ok := errors.AsType[*values.OwnedError](err); ok {
		db.ownsValues.Store(false)
		return parley.Errorf(parley.CodeConflict,
			"the store of values is not that of this database: %w; this database is %s. Two that share one remove the values of each other: "+
				"give this one a place of its own (values.dir, or bucket and prefix of values.s3), with a copy of the objects that are there if it has some among them. "+
				"Only if no other database uses the place any more, remove %s and start again", owned, id, owned.Mark)
	}
	if err != nil {
		return parley.Errorf(parley.CodeUnavailable, "it cannot be told now whose the store of values is; that is tried again: %w", awayError{err})
	}
	db.ownsValues.Store(true)
	return nil
}

// claimValues asks the store of values. A folder that is not mounted has no mark, and
// must not be made: so one of the objects, if there are any, is asked for first.
func (db *DB) claimValues(ctx context.Context, id, object string) error {
	if object != "" && !db.ownsValues.Load() {
		_, err := db.options.Values.Get(ctx, object, 0)
		if err != nil && !errors.Is(err, values.ErrLonger) && !errors.Is(err, values.ErrGone) {
			return err
		}
	}
	return values.Claim(ctx, db.options.Values, id, db.Now())
}

// databaseID gives the id of the database, which is made when it is asked for first, and
// is durable before anybody is told.
func (db *DB) databaseID(ctx context.Context) (string, error) {
	id, err := db.readOne(ctx, selectDatabaseID)
	if err != nil || id != "" {
		return id, err
	}
	fresh := make([]byte, 16)
	_, _ = rand.Read(fresh) // it never fails
	err = db.submit(ctx, synced, func(s *session) error {
		s.at("")
		return s.later(-1, insertDatabaseID, hex.EncodeToString(fresh), db.Now().UnixMicro())
	})
	if err != nil {
		return "", err
	}
	return db.readOne(ctx, selectDatabaseID) // another process may have been faster
}

func (db *DB) readOne(ctx context.Context, query string) (found string, err error) {
	err = db.read(ctx, query, func(r *record) error { found = r.str(); return nil })
	return found, err
}
