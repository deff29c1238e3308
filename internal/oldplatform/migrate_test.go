package oldplatform_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
)

// migrate runs one direction and gives what it said.
func (p *platform) migrate(do func(context.Context, oldplatform.MigrateOptions) error) (string, error) {
	var said []string
	err := do(p.t.Context(), oldplatform.MigrateOptions{Address: p.url, Tell: func(text string) { said = append(said, text) }})
	return strings.Join(said, "\n"), err
}

const (
	oldAgents = `SELECT md5(string_agg(md5(ROW(id, name, url, description, auth_type, auth_config, timeout_ms, retry_config, status,
 created_by, updated_by, created_at, updated_at)::text), '' ORDER BY id)) FROM agents`
	protocolIndex = `SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname = 'ix_agents_protocol' AND i.indisvalid`
)

// TestAD6_MigrateOld: the protocol columns come and go without a row being lost
// or changed, and again.
func TestAD6_MigrateOld(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	rows := p.text(oldAgents)
	for round := range 2 {
		for again := range 2 {
			said := must(p.migrate(oldplatform.MigrateUp))(t)
			diff(t, strings.Contains(said, "nothing to do"), again == 1)
			diff(t, strings.Contains(said, "6 agents say simple-a2a"), true)
			diff(t, p.text(oldAgents), rows)
			diff(t, p.text(protocolIndex), "1")
			diff(t, p.text(`SELECT count(*) FROM agents WHERE protocol = 'simple-a2a' AND protocol_config IS NULL`), "6")
		}
		p.exec(`UPDATE agents SET protocol = 'jsonrpc-2.0', protocol_config = '{}' WHERE name IN ('NoToken', 'BrokenAgent')`)
		p.exec(`UPDATE agents SET protocol_config = '{"a": 1}' WHERE name = 'WriterAgent'`)
		for again := range 2 {
			said := must(p.migrate(oldplatform.MigrateDown))(t)
			diff(t, strings.Contains(said, "nothing to do"), again == 1)
			diff(t, strings.Contains(said, "2 agents have another protocol than simple-a2a") && strings.Contains(said, "3 agents have a protocol_config"), again == 0)
			diff(t, p.text(oldAgents), rows)
			diff(t, p.text(`SELECT count(*) FROM information_schema.columns WHERE table_name = 'agents' AND column_name LIKE 'protocol%'`), "0")
			diff(t, p.text(protocolIndex), "0")
		}
		_ = round
	}
}

// api writes as the API of the existing platform does, until stop: it names its
// columns, and knows none of ours.
type api struct {
	stop    chan struct{}
	done    sync.WaitGroup
	written atomic.Int64
	failed  atomic.Pointer[string]
}

func (p *platform) startAPI(workers int) *api {
	a := &api{stop: make(chan struct{})}
	for w := range workers {
		conn := p.connect()
		// The server tells who waits for too long: its clock runs for the wait alone.
		_, err := conn.Exec(context.Background(), `SET lock_timeout = 10000`)
		check(p.t, err)
		a.done.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-a.stop:
					return
				default:
				}
				name := fmt.Sprintf("agent-%d-%d", w, n)
				ctx := context.Background()
				tx, err := conn.Begin(ctx)
				if err == nil {
					_, err = tx.Exec(ctx, `INSERT INTO agents (name, url, auth_type, timeout_ms, status) VALUES ($1, 'http://h/', 'none', 30000, 'active')`, name)
				}
				if err == nil {
					var got string
					err = tx.QueryRow(ctx, `SELECT name FROM agents WHERE name = $1 AND status <> 'deleted'`, name).Scan(&got)
				}
				if err == nil {
					_, err = tx.Exec(ctx, `UPDATE agents SET updated_at = now() WHERE name = $1`, name)
				}
				if err == nil {
					err = tx.Commit(ctx)
				}
				if err != nil {
					text := err.Error()
					a.failed.Store(&text)
					return
				}
				a.written.Add(1)
			}
		})
	}
	return a
}

func (a *api) end(t testing.TB) {
	t.Helper()
	close(a.stop)
	a.done.Wait()
	if text := a.failed.Load(); text != nil {
		t.Errorf("the old API has failed: %s", *text)
	}
}

// TestAD6_OldAPIGoesOn: the API of the existing platform writes agents all the
// time, and neither fails nor loses one while the columns come and go.
func TestAD6_OldAPIGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	a := p.startAPI(4)
	for range 3 {
		before := a.written.Load()
		must(p.migrate(oldplatform.MigrateUp))(t)
		must(p.migrate(oldplatform.MigrateDown))(t)
		for a.written.Load() == before && a.failed.Load() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	must(p.migrate(oldplatform.MigrateUp))(t)
	a.end(t)
	diff(t, p.text(`SELECT count(*) FROM agents WHERE protocol = 'simple-a2a'`), fmt.Sprint(6+a.written.Load()))
}

// TestAD6_Locked: a session that holds the table for ever is named, and nobody
// else waits behind the migration for long.
func TestAD6_Locked(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	holder := p.connect()
	_, err := holder.Exec(t.Context(), `SET application_name = 'old-report'; BEGIN; SELECT * FROM agents`)
	check(t, err)
	failed := make(chan error, 1)
	go func() {
		failed <- oldplatform.MigrateUp(t.Context(), oldplatform.MigrateOptions{Address: p.url, Tell: func(string) {}, Patience: 4 * time.Second})
	}()
	p.exec(`SET lock_timeout = 2000`)
	for range 20 {
		p.text(`SELECT count(*) FROM agents`) // fails if it waits for longer
		time.Sleep(50 * time.Millisecond)
	}
	err = <-failed
	// A reader of the loop may be named beside it.
	if want := fmt.Sprintf("%d (old-report)", holder.PgConn().PID()); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not name %s", err, want)
	}
	diff(t, p.text(`SELECT count(*) FROM information_schema.columns WHERE table_name = 'agents' AND column_name LIKE 'protocol%'`), "0")
	_, err = holder.Exec(t.Context(), `ROLLBACK`)
	check(t, err)
	must(p.migrate(oldplatform.MigrateUp))(t)
}

// TestAD6_IndexLetsOthersWrite: while the index waits for a transaction that has
// written, others go on writing.
func TestAD6_IndexLetsOthersWrite(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	must(p.migrate(oldplatform.MigrateUp))(t)
	p.exec(`DROP INDEX ix_agents_protocol`)
	holder := p.connect()
	_, err := holder.Exec(t.Context(), `BEGIN; UPDATE agents SET description = 'held' WHERE name = 'NoToken'`)
	check(t, err)
	failed := make(chan error, 1)
	go func() {
		failed <- oldplatform.MigrateUp(t.Context(), oldplatform.MigrateOptions{Address: p.url, Tell: func(string) {}})
	}()
	for p.text(`SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%' AND wait_event_type = 'Lock'
 AND datname = current_database() AND pid <> pg_backend_pid()`) == "0" {
		time.Sleep(5 * time.Millisecond)
	}
	p.exec(`SET lock_timeout = 5000; UPDATE agents SET description = 'free' WHERE name = 'WriterAgent'`)
	_, err = holder.Exec(t.Context(), `COMMIT`)
	check(t, err)
	check(t, <-failed)
	diff(t, p.text(protocolIndex), "1")
}

// TestAD6_UnfinishedIndex: an index that a try before has left unusable is made anew.
func TestAD6_UnfinishedIndex(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	must(p.migrate(oldplatform.MigrateUp))(t)
	p.exec(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_agents_protocol'::regclass`)
	diff(t, p.text(protocolIndex), "0")
	diff(t, strings.Contains(must(p.migrate(oldplatform.MigrateUp))(t), "added the index"), true)
	diff(t, p.text(protocolIndex), "1")
}

// TestAD6_OtherColumns: columns of these names that mean something else stay.
func TestAD6_OtherColumns(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"protocol INTEGER", "protocol TEXT", "protocol VARCHAR NOT NULL DEFAULT 'soap'", "protocol_config TEXT"} {
		p := newPlatform(t)
		p.exec(`ALTER TABLE agents ADD COLUMN ` + strings.Replace(column, "TEXT", "TEXT DEFAULT 'x'", 1))
		for _, migrate := range []func(context.Context, oldplatform.MigrateOptions) error{oldplatform.MigrateUp, oldplatform.MigrateDown} {
			told, err := p.migrate(migrate)
			if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "rename or drop it first") || told != "" {
				t.Errorf("%s: %v, told %q", column, err, told)
			}
		}
		diff(t, p.text(`SELECT count(*) FROM information_schema.columns WHERE table_name = 'agents' AND column_name LIKE 'protocol%'`), "1")
	}
}

// TestRefusesOthers: what is no database of the existing platform is refused with
// a text that says why and what to do, and never shows a password.
func TestRefusesOthers(t *testing.T) {
	t.Parallel()
	empty, half, ours := emptyPlatform(t), emptyPlatform(t), emptyPlatform(t)
	empty.exec(`DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
	half.exec(`ALTER TABLE workflow_runs DROP COLUMN cancelled_by`)
	ours.exec(`CREATE TABLE run (id TEXT, definition_id TEXT); CREATE TABLE attempt (id TEXT, orphanings INT)`)
	gone := strings.Replace(empty.url, empty.conn.Config().Database, "pw_s3cr3t_gone", 1)
	for address, want := range map[string]string{
		empty.url:                               "has no table agents",
		half.url:                                "its table workflow_runs has no column cancelled_by",
		ours.url:                                "is a store of Parley",
		gone:                                    "does not let us in",
		"postgresql://u:s3cr3t@127.0.0.1:1/db":  "cannot be reached",
		"postgresql://u:s3cr3t@host:port/%zz":   "no address of a PostgreSQL database",
		"postgresql+asyncpg://u:s3cr3t@[::1:/x": "no address of a PostgreSQL database",
	} {
		_, err := newTarget(t).try(&platform{t: t, url: address})
		up := oldplatform.MigrateUp(t.Context(), oldplatform.MigrateOptions{Address: address, Tell: func(string) {}})
		down := oldplatform.MigrateDown(t.Context(), oldplatform.MigrateOptions{Address: address, Tell: func(string) {}})
		for _, err := range []error{err, up, down} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ":s3cr3t") || strings.Contains(err.Error(), "\n") {
				t.Errorf("want %q, on one line: %q", want, err)
			}
			if code := parley.CodeOf(err); code != parley.CodeInvalid && code != parley.CodeUnavailable {
				t.Errorf("%v has code %s", err, code)
			}
		}
	}
}

// TestAddresses: the URL of the existing platform's own configuration will do.
func TestAddresses(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, scheme := range []string{"postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg2"} {
		_, rest, _ := strings.Cut(p.url, "://")
		check(t, oldplatform.MigrateDown(t.Context(), oldplatform.MigrateOptions{Address: " " + scheme + "://" + rest + "\n", Tell: func(string) {}}))
	}
}
