package executor_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/store"
)

// simEngine is a kind of database that simulations have.
type simEngine struct {
	driver string // of database/sql
	// each: every process has connections of its own.
	each bool
	// grain is what times are multiples of: the coarser, the more is done at once.
	grain time.Duration
	// dial makes connections; nil if there are none.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// order is that of the journal's entries.
	order string
	// database gives a new one, that knows the workflow and keeps a journal.
	database func(*testing.T) (target string)
}

func simulatedSQLite(t *testing.T) simEngine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	prepareSimulated(t, file)
	note(t, "sqlite", file, sqliteJournal+`PRAGMA wal_checkpoint(TRUNCATE);`)
	template, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return simEngine{driver: "sqlite", order: "n", grain: time.Millisecond, database: func(t *testing.T) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "parley.db")
		if err := os.WriteFile(file, template, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}}
}

// simulatedPostgres: the clock of a simulation stands still while the database works,
// so that only what is done at the same time meets there. Entries are numbered when
// they are committed. What one commit holds has happened in some order, of which the
// ends of runs may be the last.
func simulatedPostgres(t *testing.T) simEngine {
	t.Helper()
	template := pgtest.Database(t)
	prepareSimulated(t, template)
	note(t, "pgx", template, postgresJournal)
	late, over := make(chan struct{}), t.Context().Done()
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for {
			select {
			case late <- struct{}{}:
				time.Sleep(time.Millisecond)
			case <-over:
				return
			}
		}
	})
	t.Cleanup(ticking.Wait)
	return simEngine{
		driver: "pgx", each: true, grain: 500 * time.Millisecond,
		order:    "min(n) OVER (PARTITION BY tx), what = 'run' AND is_now::json->>'ended' = '1', n",
		database: func(t *testing.T) string { t.Helper(); return pgtest.Copy(t, template) },
		dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return lateConn{conn, late}, err
		},
	}
}

// lateConn sends now and then when others have come before, by the time of those who
// do not simulate.
type lateConn struct {
	net.Conn
	late <-chan struct{}
}

func (c lateConn) Write(b []byte) (int, error) {
	if rand.N(4) == 0 {
		<-c.late
	}
	return c.Conn.Write(b)
}

// prepareSimulated makes a new database one that knows the workflow.
func prepareSimulated(t *testing.T, target string) {
	t.Helper()
	db, err := store.Open(t.Context(), target, store.Options{})
	if err == nil {
		err = db.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	x := executor.New(executor.Config{Store: db, Now: time.Now})
	definitions := 0
	catalog := executor.NewCatalog(executor.CatalogConfig{
		DB: db, Executor: x, Now: time.Now, NewID: func() string { definitions++; return fmt.Sprint("d-", definitions) }, KnownAgent: func(context.Context, string) bool { return true },
	})
	for _, source := range []string{simulatedKid, simulatedListener, simulated} {
		if _, _, err := catalog.Apply(t.Context(), parley.ApplyRequest{File: "simulated.yaml", Source: []byte(source)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// note has a database keep a journal.
func note(t *testing.T, driver, target, journal string) {
	t.Helper()
	db, err := sql.Open(driver, target)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), journal)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// The journals have the database itself note what becomes of its rows, in the order of
// its commits: whatever a statement's condition says, this is what it did.
const sqliteJournal = `
CREATE TABLE journal (n INTEGER PRIMARY KEY AUTOINCREMENT, tx TEXT NOT NULL DEFAULT '', what TEXT NOT NULL, id TEXT NOT NULL, was TEXT, is_now TEXT NOT NULL);
CREATE TRIGGER journal_begun AFTER INSERT ON attempt BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('attempt', new.id, json_object('state', new.state, 'owner', new.owner, 'inc', new.owner_inc,
  'token', new.token, 'orphanings', new.orphanings, 'held', new.held, 'outcome', new.outcome, 'output', CAST(new.output AS TEXT), 'policy', new.policy));
END;
CREATE TRIGGER journal_changed AFTER UPDATE ON attempt
 WHEN (old.state, old.owner, old.owner_inc, old.token, old.orphanings, old.held, old.outcome, old.output) IS NOT
  (new.state, new.owner, new.owner_inc, new.token, new.orphanings, new.held, new.outcome, new.output) BEGIN
 INSERT INTO journal (what, id, was, is_now) VALUES ('attempt', new.id, json_object('state', old.state, 'owner', old.owner, 'inc', old.owner_inc,
  'token', old.token, 'orphanings', old.orphanings, 'held', old.held, 'outcome', old.outcome, 'output', CAST(old.output AS TEXT), 'policy', old.policy),
  json_object('state', new.state, 'owner', new.owner, 'inc', new.owner_inc,
  'token', new.token, 'orphanings', new.orphanings, 'held', new.held, 'outcome', new.outcome, 'output', CAST(new.output AS TEXT), 'policy', new.policy));
END;
CREATE TRIGGER journal_started AFTER INSERT ON run BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('run', new.id, json_object('seq', new.seq, 'workflow', new.name, 'begun', new.started_at IS NOT NULL,
  'ended', new.ended_at IS NOT NULL, 'parent', coalesce(new.parent_run, ''), 'step', coalesce(new.parent_step, '')));
END;
CREATE TRIGGER journal_decided AFTER UPDATE ON run WHEN (old.seq, old.ended_at IS NULL) IS NOT (new.seq, new.ended_at IS NULL) BEGIN
 INSERT INTO journal (what, id, was, is_now) VALUES ('run', new.id, json_object('seq', old.seq, 'workflow', old.name, 'begun', old.started_at IS NOT NULL,
  'ended', old.ended_at IS NOT NULL), json_object('seq', new.seq, 'workflow', new.name, 'begun', new.started_at IS NOT NULL, 'ended', new.ended_at IS NOT NULL));
END;
CREATE TRIGGER journal_registered AFTER INSERT ON worker BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('worker', new.name, json_object('inc', new.inc, 'dead', new.dead));
END;
CREATE TRIGGER journal_worker AFTER UPDATE ON worker WHEN (old.inc, old.dead) IS NOT (new.inc, new.dead) BEGIN
 INSERT INTO journal (what, id, is_now) VALUES ('worker', new.name, json_object('inc', new.inc, 'dead', new.dead));
END;`

const postgresJournal = `
CREATE TABLE journal (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tx TEXT NOT NULL DEFAULT pg_current_xact_id()::text,
 what TEXT NOT NULL, id TEXT NOT NULL, was TEXT, is_now TEXT NOT NULL);
CREATE FUNCTION entry(a attempt) RETURNS TEXT LANGUAGE sql AS $$ SELECT json_build_object('state', a.state, 'owner', a.owner, 'inc', a.owner_inc,
 'token', a.token, 'orphanings', a.orphanings, 'held', a.held, 'outcome', a.outcome, 'output', convert_from(a.output, 'UTF8'), 'policy', a.policy) $$;
CREATE FUNCTION entry(r run) RETURNS TEXT LANGUAGE sql AS $$ SELECT json_build_object('seq', r.seq, 'workflow', r.name, 'begun', (r.started_at IS NOT NULL)::int,
 'ended', (r.ended_at IS NOT NULL)::int, 'parent', coalesce(r.parent_run, ''), 'step', coalesce(r.parent_step, '')) $$;
CREATE FUNCTION entry(w worker) RETURNS TEXT LANGUAGE sql AS $$ SELECT json_build_object('inc', w.inc, 'dead', w.dead) $$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
 IF TG_OP = 'INSERT' THEN
  INSERT INTO journal (what, id, is_now) VALUES (TG_TABLE_NAME, to_json(new)->>TG_ARGV[0], entry(new));
 ELSIF entry(old) <> entry(new) THEN
  INSERT INTO journal (what, id, was, is_now) VALUES (TG_TABLE_NAME, to_json(new)->>TG_ARGV[0], entry(old), entry(new));
 END IF;
 RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON attempt DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note('id');
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON run DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note('id');
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON worker DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note('name');`
