package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/parley-project/parley"
)

// Backup writes a copy of a running SQLite database to file, which must not be
// there, with mode 0600: the state at one instant of the call. Writers go on
// meanwhile. When it returns without an error the copy is on the disk, and
// [Open] opens it like any other; after an error there is no file. For PostgreSQL
// it is an error that says what to use instead.
func (db *DB) Backup(ctx context.Context, file string) (err error) {
	if db.dialect.backup == "" {
		return parley.Errorf(parley.CodeInvalid,
			"PostgreSQL has backups of its own: use pg_dump --format=custom, or pg_basebackup for the whole server")
	}
	// The name is taken first: VACUUM would write into a file of somebody else.
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return parley.Errorf(parley.CodeConflict, "%s is there already: give the backup another name", file)
	}
	if err != nil {
		return parley.Errorf(parley.CodeInvalid, "the backup cannot be written: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	c, err := db.dialect.connector(db.path, db.options, forWriting)
	if err != nil {
		return db.failure(err)
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, pool.Close()) }()
	if _, err := pool.ExecContext(ctx, db.dialect.backup, file); err != nil {
		if full(err) && ctx.Err() == nil {
			return noRoom(ctx, pool, file, err)
		}
		return db.readFailure(ctx, fmt.Errorf("backup: %w", err))
	}
	if err := f.Sync(); err != nil {
		return parley.Errorf(parley.CodeUnavailable, "the backup cannot be written: %w", err)
	}
	return syncFolder(filepath.Dir(file))
}

// noRoom says how much room a copy needs, as far as that can be known. The size of the
// file would not do: what was written last is in its log, for up to 16 MiB.
func noRoom(ctx context.Context, db *sql.DB, file string, err error) error {
	need, size := "", int64(0)
	if db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&size) == nil {
		need = fmt.Sprintf(", and the database has %d bytes", size)
	}
	return parley.Errorf(parley.CodeUnavailable, "the backup cannot be written: the disk of %s is full%s: make room there, or give the backup a place on another disk: %w",
		filepath.Dir(file), need, err)
}

// syncFolder keeps the name of a new file.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return parley.Errorf(parley.CodeUnavailable, "the backup cannot be written: %w", err)
	}
	return nil
}
