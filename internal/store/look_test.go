package store

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// TestLookAt: a look tells what the database has, and only that.
func TestLookAt(t *testing.T) { eachTarget(t, testLookAt) }

func testLookAt(t *testing.T, target string) {
	ctx := t.Context()
	db, err := Open(ctx, target, Options{})
	check(t, err)
	check(t, db.MigrateUpTo(ctx, 1))
	missing := func() int {
		began := time.Now()
		l, err := LookAt(ctx, target, Options{})
		check(t, err)
		off := time.Since(began) + time.Second // the clock is asked at some time within
		if !strings.Contains(l.Version, "SQL") || l.Name == "" {
			t.Errorf("%+v", l)
		}
		if l.OwnClock != (db.dialect.time != "") || l.Ahead.Abs() > off {
			t.Errorf("the clock: %v %v", l.OwnClock, l.Ahead)
		}
		n := 0
		for _, s := range l.Steps {
			if s.AppliedAt.IsZero() {
				n++
			}
		}
		return n
	}
	all := len(must(db.Status(ctx))(t))
	diff(t, missing(), all-1) // beside one that has it open
	check(t, db.Migrate(ctx))
	diff(t, missing(), 0)
	check(t, db.submit(ctx, synced, func(s *session) error {
		_, err := s.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
		return err
	}))
	check(t, db.Close())
	l, err := LookAt(ctx, target, Options{})
	if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "use a newer program") || len(l.Steps) != all {
		t.Errorf("a newer schema: %v, %d steps", err, len(l.Steps))
	}
}

// TestLookAtANewDatabase: one without a schema gets none.
func TestLookAtANewDatabase(t *testing.T) {
	t.Parallel()
	target := pgtest.Database(t)
	for range 2 {
		l, err := LookAt(t.Context(), target, Options{})
		check(t, err)
		if len(l.Steps) == 0 || !l.Steps[0].AppliedAt.IsZero() {
			t.Errorf("%+v", l)
		}
	}
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "other.db"), Options{})
	check(t, err)
	check(t, db.Close())
	none := filepath.Join(t.TempDir(), "none.db")
	if _, err := LookAt(t.Context(), none, Options{}); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("the file was made")
	}
}

// TestLookAtLeavesNoTrace: neither the file nor its folder change, whether nobody
// has it open, or somebody was killed who had.
func TestLookAtLeavesNoTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "parley.db")
	db, err := Open(t.Context(), file, Options{})
	check(t, err)
	check(t, db.Migrate(t.Context()))
	killed := filepath.Join(t.TempDir(), "killed")
	check(t, os.CopyFS(killed, os.DirFS(dir)))
	check(t, db.Close())
	for _, dir := range []string{dir, killed} {
		before := contents(t, dir)
		l, err := LookAt(t.Context(), filepath.Join(dir, "parley.db"), Options{})
		check(t, err)
		if len(l.Steps) == 0 || l.Steps[len(l.Steps)-1].AppliedAt.IsZero() {
			t.Errorf("%+v", l)
		}
		diff(t, contents(t, dir), before)
	}
}

// contents gives the sums of the files of a folder, but for the index of the log,
// which is memory that processes share.
func contents(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		check(t, err)
		if strings.HasSuffix(e.Name(), "-shm") {
			b = nil
		}
		all[e.Name()] = sha256.Sum256(b)
	}
	return all
}
