package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"modernc.org/sqlite"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// A copy of a database that is being written to is what it was at one instant:
// it has every run that was there before the call, and each of them whole.
func TestBackup(t *testing.T) {
	db := newDB(t, Options{})
	c := bridge(t, db, "b1")
	for _, call := range scenario(db, c) {
		check(t, call(t.Context()))
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("run-%d-%d", w+2, i)
				if _, err := db.StartRun(t.Context(), start(id, attempt(id, "a", 1), attempt(id, "b", 1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	err := db.Backup(t.Context(), file)
	stop()
	wg.Wait()
	check(t, err)
	info, err := os.Stat(file)
	check(t, err)
	diff(t, info.Mode().Perm(), os.FileMode(0o600))

	backup := reopen(t, file, Options{})
	checkEnded(t, backup)
	runs, total, err := backup.Runs(t.Context(), parley.RunQuery{Page: parley.Page{Limit: 500}})
	check(t, err)
	_, now, err := db.Runs(t.Context(), parley.RunQuery{})
	check(t, err)
	if total < 1 || total > now {
		t.Errorf("%d runs of %d", total, now)
	}
	for _, r := range runs {
		if r.ID != "run-1" {
			diff(t, len(must(backup.Attempts(t.Context(), r.ID))(t)), 2)
			diff(t, len(must(backup.Events(t.Context(), r.ID, 0, 0))(t)), 3)
		}
	}
	begin(t, backup, "new")
}

func TestBackupRefusals(t *testing.T) {
	db := newDB(t, Options{})
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	check(t, os.WriteFile(there, []byte("mine"), 0o600))
	wantCode(t, db.Backup(t.Context(), there), parley.CodeConflict)
	wantCode(t, db.Backup(t.Context(), db.path), parley.CodeConflict)
	text, err := os.ReadFile(there)
	check(t, err)
	diff(t, string(text), "mine")
	wantCode(t, db.Backup(t.Context(), filepath.Join(dir, "no", "folder")), parley.CodeInvalid)

	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := db.Backup(ctx, filepath.Join(dir, "late")); err == nil {
		t.Error("written although nobody waits")
	}
	if _, err := os.Stat(filepath.Join(dir, "late")); !os.IsNotExist(err) {
		t.Errorf("a file is left: %v", err)
	}

	err = reopen(t, pgtest.Database(t), Options{}).Backup(t.Context(), filepath.Join(dir, "pg"))
	wantCode(t, err, parley.CodeInvalid)
	if !strings.Contains(err.Error(), "pg_dump") {
		t.Error(err)
	}
}

// TestBackupWithoutRoom: a disk that is full is named, with what would do, and no
// half of a copy stays on it.
func TestBackupWithoutRoom(t *testing.T) {
	t.Parallel()
	db := openFaulty(t, &faults{}, func(d *dialect) {
		connector := d.connector
		d.connector = func(path string, o Options, use use) (driver.Connector, error) {
			if use != forWriting {
				return connector(path, o, use)
			}
			return sqlite.NewConnector("file:" + path + "?_pragma=max_page_count(200)")
		}
		d.backup = `CREATE TABLE copy AS SELECT zeroblob(10000000), ?` // which needs room, too
	})
	var size int64
	_, err := db.readers.Exec(`PRAGMA query_only = off; CREATE TABLE more AS SELECT zeroblob(100000)`)
	if err == nil {
		err = db.readers.QueryRow(`SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&size)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	err = db.Backup(t.Context(), file)
	wantCode(t, err, parley.CodeUnavailable)
	// All of it counts, also what is in the log and not yet in the file.
	if info, err := os.Stat(db.path); err != nil || info.Size() >= size {
		t.Fatalf("%v: the file holds all of the %d bytes already", err, size)
	}
	if want := fmt.Sprintf("the disk of %s is full, and the database has %d bytes: make room there", filepath.Dir(file), size); !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}
