package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// AD-6: agents that were there before protocols were have simple-a2a
// afterwards, and none is lost on the way there or back.
func TestProtocolMigration(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "parley.db")
	db, err := Open(ctx, path, Options{})
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
	check(t, db.read(ctx, `SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = 'agents_protocol'`,
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
	db := newDB(t, Options{})
	check(t, db.submit(ctx, synced, func(s *session) error {
		return s.execOnce(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)
	}))
	check(t, db.Close())
	_, err := Open(ctx, db.path, Options{})
	wantCode(t, err, parley.CodeConflict)
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
