package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// AD-6: agents that were there before protocols were have simple-a2a
// afterwards, and none is lost on the way there or back.
func TestProtocolMigration(t *testing.T) { eachTarget(t, testProtocolMigration) }

func testProtocolMigration(t *testing.T, target string) {
	ctx := t.Context()
	db, err := Open(ctx, target, Options{})
	check(t, err)
	defer func() { check(t, db.Close()) }()
	diff(t, must(db.SchemaVersion(ctx))(t), int64(0))
	check(t, db.MigrateUpTo(ctx, 1))
	diff(t, must(db.SchemaVersion(ctx))(t), int64(1))
	check(t, db.submit(ctx, synced, func(s *session) error {
		for _, name := range []string{"old-1", "old-2"} {
			_, err := s.exec(`INSERT INTO agents (id, name, url, created_at, updated_at) VALUES (?, ?, 'http://h/', 1, 2)`, "id-"+name, name)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	count := func() (n int64) {
		check(t, db.read(ctx, `SELECT count(*) FROM agents`, func(r *record) error { n = r.int(); return nil }))
		return n
	}

	check(t, db.Migrate(ctx))
	check(t, db.Migrate(ctx))
	agents, total, err := db.Agents(ctx, parley.AgentQuery{Protocol: parley.ProtocolSimpleA2A})
	check(t, err)
	diff(t, total, 2)
	diff(t, agents[0], parley.Agent{
		ID: "id-old-1", Name: "old-1", URL: "http://h/", Protocol: parley.ProtocolSimpleA2A, Auth: parley.Auth{Type: parley.AuthNone},
		Timeout: 30 * time.Second, Retry: parley.DefaultRetryConfig(), Status: parley.AgentActive,
		CreatedAt: time.UnixMicro(1).UTC(), UpdatedAt: time.UnixMicro(2).UTC(),
	})
	index := false
	indexes := `SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = 'agents_protocol'`
	if db.dialect.goose == goose.DialectPostgres {
		indexes = `SELECT 1 FROM pg_indexes WHERE indexname = 'agents_protocol'`
	}
	check(t, db.read(ctx, indexes,
		func(*record) error { index = true; return nil }))
	if !index {
		t.Error("no index on protocol")
	}
	b := newAgent("new")
	check(t, db.CreateAgent(ctx, b))

	check(t, db.MigrateDown(ctx, 1))
	diff(t, count(), int64(3))
	if _, err := db.Agent(ctx, "old-1"); err == nil {
		t.Error("protocol columns are there")
	}
	check(t, db.Migrate(ctx))
	diff(t, count(), int64(3))
	diff(t, must(db.Agent(ctx, "new"))(t).Protocol, parley.ProtocolSimpleA2A)
	check(t, db.MigrateDown(ctx, 0))
	diff(t, must(db.SchemaVersion(ctx))(t), int64(0))
	check(t, db.Migrate(ctx))
	diff(t, count(), int64(0))
}

func TestNewerSchemaIsRefused(t *testing.T) {
	ctx := t.Context()
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		check(t, db.submit(ctx, synced, func(s *session) error {
			_, err := s.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, ` + map[bool]string{true: "true", false: "1"}[db.dialect.guesses] + `)`)
			return err
		}))
		check(t, db.Close())
		_, err := Open(ctx, target, Options{})
		wantCode(t, err, parley.CodeConflict)
		if u, _ := url.Parse(target); u.User != nil {
			if password, _ := u.User.Password(); strings.Contains(err.Error(), password) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A database of something else that has a table of our names, such as the
// existing platform's, is refused, and nothing is made in it.
func TestOthersDatabaseIsRefused(t *testing.T) {
	ctx := t.Context()
	target := pgtest.Database(t)
	conn := must(pgx.Connect(ctx, target))(t)
	defer func() { check(t, conn.Close(ctx)) }()
	must(conn.Exec(ctx, `CREATE TABLE agents (id UUID PRIMARY KEY); CREATE TABLE workflow_runs (run_id TEXT)`))(t)
	_, err := Open(ctx, target, Options{})
	wantCode(t, err, parley.CodeConflict)
	if err == nil || !strings.Contains(err.Error(), "parley import") {
		t.Errorf("error %v", err)
	}
	tables := 0
	check(t, conn.QueryRow(ctx, `SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()`).Scan(&tables))
	diff(t, tables, 2)
}

// So is a file of something else.
func TestOthersFileIsRefused(t *testing.T) {
	target := newTarget(t)
	file := sql.OpenDB(must(sqlite.NewConnector("file:" + target))(t))
	must(file.ExecContext(t.Context(), `CREATE TABLE agents (id TEXT)`))(t)
	check(t, file.Close())
	_, err := Open(t.Context(), target, Options{})
	wantCode(t, err, parley.CodeConflict)
	if err == nil || !strings.Contains(err.Error(), "a table agents that is not Parley's") {
		t.Errorf("error %v", err)
	}
}

// A database in which something else counts the steps of its own schema, where Parley
// would count its, is refused, wherever those are: they are none of ours. One whose steps
// Parley has all undone is Parley's still.
func TestOthersStepsAreRefused(t *testing.T) {
	ctx := t.Context()
	for _, steps := range []struct{ first, last int64 }{{1, 3}, {1, 30}, {20260102150405, 20260102150405}} {
		eachTarget(t, func(t *testing.T, target string) {
			db := reopen(t, target, Options{})
			check(t, db.MigrateDown(ctx, 0))
			db = reopen(t, target, Options{})
			check(t, db.MigrateDown(ctx, 0))
			check(t, db.submit(ctx, synced, func(s *session) error {
				for step := steps.first; step <= steps.last; step++ {
					_, err := s.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, `+map[bool]string{true: "true", false: "1"}[db.dialect.guesses]+`)`, step)
					if err != nil {
						return err
					}
				}
				return nil
			}))
			_, err := Open(ctx, target, Options{})
			wantCode(t, err, parley.CodeConflict)
			if err == nil || !strings.Contains(err.Error(), "a database of its own") {
				t.Errorf("error %v", err)
			}
			if _, err := LookAt(ctx, target, Options{}); parley.CodeOf(err) != parley.CodeConflict {
				t.Errorf("who looks hears %v", err)
			}
		})
	}
}

// The status names every step, and when it was applied.
func TestStatus(t *testing.T) {
	ctx := t.Context()
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		check(t, db.MigrateDown(ctx, 2))
		list := must(db.Status(ctx))(t)
		if len(list) < 7 {
			t.Fatalf("%d steps", len(list))
		}
		for i, m := range list {
			if i > 0 && m.Version <= list[i-1].Version || m.AppliedAt.IsZero() == (m.Version <= 2) || !strings.HasSuffix(m.Name, ".sql") {
				t.Errorf("%+v", m)
			}
			if m.Version <= 2 && time.Since(m.AppliedAt).Abs() > time.Hour {
				t.Errorf("applied at %v", m.AppliedAt)
			}
		}
	})
}

// turns counts how often a database is asked: once for each connection, and for whatever is
// sent after something was received.
type turns struct {
	net.Conn
	heard atomic.Bool
	count *atomic.Int64
}

func (c *turns) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard.Store(true)
	return n, err
}

func (c *turns) Write(b []byte) (int, error) {
	if c.heard.Swap(false) {
		c.count.Add(1)
	}
	return c.Conn.Write(b)
}

// A step takes as many round trips however many statements it has, so that a far database
// is not waited for once for each of them; and the status takes as many however many steps
// are missing.
func TestMigrationOfFarDatabase(t *testing.T) {
	ctx := t.Context()
	var count atomic.Int64
	db, err := Open(ctx, pgtest.Database(t), Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		count.Add(1)
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &turns{Conn: c, count: &count}, err
	}})
	check(t, err)
	defer func() { check(t, db.Close()) }()
	steps := int64(len(must(db.Status(ctx))(t)))
	for _, c := range []struct {
		name string
		most int64
		do   func() error
	}{
		{"status", 20, func() error { _, err := db.Status(ctx); return err }},
		{"up", 25 + 4*steps, func() error { return db.Migrate(ctx) }},
		{"down", 25 + 4*steps, func() error { return db.MigrateDown(ctx, 0) }},
	} {
		count.Store(0)
		check(t, c.do())
		if n := count.Load(); n > c.most {
			t.Errorf("%s: %d round trips, want at most %d", c.name, n, c.most)
		}
	}
}

// A step that needs a table which somebody has in use for long gives up before those who
// have queued behind it do, and says so.
func TestMigrationDoesNotQueueForLong(t *testing.T) {
	target := pgtest.Copy(t, migrated(t))
	admin := administrator(t, target)
	d := postgresDialect()
	d.locker = postgresLocker{step: 100 * time.Millisecond}
	db, err := open(t.Context(), d, target, Options{})
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	const before = 28 // the step that changes attempt
	admin(`BEGIN`)
	admin(`SELECT 1 FROM attempt`)
	done := make(chan error, 1)
	go func() { done <- db.MigrateDown(context.Background(), before) }()
	select {
	case err = <-done:
	case <-time.After(2 * time.Minute):
		t.Error("it waits for two minutes")
		admin(`ROLLBACK`)
		<-done
	}
	if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "others keep locked what is needed") {
		t.Errorf("error %v", err)
	}
	admin(`ROLLBACK`)
	check(t, db.MigrateDown(t.Context(), before))
	check(t, db.Migrate(t.Context()))
}

// Each step can be undone and done again with rows in every table, and both
// databases have the same tables, columns and indexes.
func TestMigrations(t *testing.T) {
	ctx := t.Context()
	shapes := map[string]string{}
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		c := bridge(t, db, "b1")
		for _, call := range scenario(db, c) {
			check(t, call(ctx))
		}
		check(t, db.CreateAgent(ctx, newAgent("a")))
		newest := must(db.SchemaVersion(ctx))(t)
		for version := newest - 1; version > 0; version-- {
			check(t, db.MigrateDown(ctx, version))
			check(t, db.MigrateUpTo(ctx, version+1))
			check(t, db.MigrateDown(ctx, version))
		}
		for version := int64(2); version <= newest; version++ {
			check(t, db.MigrateUpTo(ctx, version))
		}
		check(t, db.Close())
		db = reopen(t, target, Options{})
		checkEnded(t, db)
		shapes[t.Name()] = shape(t, db)
	})
	diff(t, shapes["TestMigrations/postgres"], shapes["TestMigrations/sqlite"])
}

// shape names the columns and indexes of every table.
func shape(t *testing.T, db *DB) string {
	t.Helper()
	columns := `SELECT m.name, p.name FROM sqlite_master m JOIN pragma_table_info(m.name) p WHERE m.type = 'table'`
	indexes := `SELECT tbl_name, name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL`
	if db.dialect.goose == goose.DialectPostgres {
		columns = `SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public'`
		indexes = `SELECT tablename::text, indexname::text FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey' AND indexname NOT LIKE '%_key'`
	}
	var list []string
	for _, query := range []string{columns, indexes} {
		check(t, db.read(t.Context(), query, func(r *record) error {
			if line := r.str() + "." + r.str(); !strings.HasPrefix(line, "goose_") && !strings.HasPrefix(line, "sqlite_") {
				list = append(list, line)
			}
			return nil
		}))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

func TestOpen(t *testing.T) {
	db := newDB(t, Options{})
	begin(t, db, "run-1")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(db.path + suffix)
		check(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", suffix, info.Mode())
		}
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "foreign_keys": "1", "synchronous": "2", "busy_timeout": "10000"} {
		check(t, db.submit(t.Context(), synced, func(s *session) error {
			return s.query(`PRAGMA `+pragma, func(r *record) error {
				if got := must(json.Marshal(r.values[0]))(t); string(got) != want && string(got) != `"`+want+`"` {
					t.Errorf("%s is %s", pragma, got)
				}
				return nil
			})
		}))
	}
	if _, err := db.readers.ExecContext(t.Context(), `DELETE FROM run`); err == nil {
		t.Error("a reader has written")
	}
	_, err := Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "folder"), Options{})
	wantCode(t, err, parley.CodeUnavailable)
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	check(t, os.WriteFile(garbage, []byte("this is no database, and it is long enough to see that it is none"), 0o600))
	_, err = Open(t.Context(), garbage, Options{})
	wantCode(t, err, parley.CodeUnavailable)
}
