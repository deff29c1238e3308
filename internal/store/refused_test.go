package store

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// administrator gives what executes statements in the database at a URL as somebody
// else.
func administrator(t *testing.T, url string) func(statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return func(statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// cutOthers has everybody connect anew.
const cutOthers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

func alter(setting string) string {
	return `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I ` + strings.ReplaceAll(setting, "'", "''") + `', current_database()); END $$`
}

// TestReadOnlyDatabase: a database that takes no writes says so, in words of its own,
// to who writes and to who asks before, and takes them again without a new start.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Copy(t, migrated(t))
	db := openedAt(t, url, Options{})
	check(t, db.TakesWrites(t.Context()))
	commits := db.SyncedCommits()
	admin := administrator(t, url)
	admin(alter(`SET default_transaction_read_only = on`))
	admin(cutOthers)
	waitUntil(t, "noticed", func() bool { return db.TakesWrites(t.Context()) != nil })
	if said := db.TakesWrites(t.Context()); parley.CodeOf(said) != parley.CodeUnavailable || strings.Contains(said.Error(), "127.0.0.1") ||
		!strings.Contains(said.Error(), "default_transaction_read_only") {
		t.Errorf("it says %v", said)
	}
	_, err := db.StartRun(t.Context(), start("run-1"))
	wantCode(t, err, parley.CodeUnavailable)
	if !strings.Contains(err.Error(), "default_transaction_read_only") || strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("a write says %v", err)
	}
	waitUntil(t, "read", func() bool { return db.Ping(t.Context()) == nil }) // what was cut connects anew

	_, err = Open(t.Context(), url, Options{})
	if err == nil || !strings.Contains(err.Error(), "default_transaction_read_only") {
		t.Errorf("opening it: %v", err)
	}
	patient := make(chan error, 1)
	go func() {
		db, err := Open(context.Background(), url, Options{Patience: time.Minute})
		if err == nil {
			err = db.Close()
		}
		patient <- err
	}()
	admin(`SET default_transaction_read_only = off`)
	admin(alter(`RESET default_transaction_read_only`))
	waitUntil(t, "written again", func() bool { return db.TakesWrites(t.Context()) == nil })
	check(t, <-patient)
	diff(t, db.SyncedCommits(), commits)
	begin(t, db, "run-1")
}

// TestReadOnlyServer: a server that is set so while connections stay is left for
// another one.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	var dials atomic.Int64
	db := reopen(t, s.URL("postgres"), Options{Writers: 1, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	admin := administrator(t, s.URL("postgres"))
	s.Set("default_transaction_read_only", "on")
	waitUntil(t, "noticed", func() bool { return db.TakesWrites(t.Context()) != nil })
	before := dials.Load()
	_, err := db.StartRun(t.Context(), start("run-1"))
	wantCode(t, err, parley.CodeUnavailable)
	if dials.Load() == before {
		t.Error("no other server was looked for")
	}
	admin(`SET default_transaction_read_only = off`)
	admin(`ALTER SYSTEM RESET default_transaction_read_only`)
	admin(`SELECT pg_reload_conf()`)
	waitUntil(t, "written again", func() bool { return db.TakesWrites(t.Context()) == nil })
	begin(t, db, "run-1")
}

// TestPrimaryBecomesStandby: where a primary was is a standby. It is refused in words of
// its own, and goes on once it is promoted.
func TestPrimaryBecomesStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{})
	standby := primary.Standby(t)
	var at atomic.Value
	at.Store(primary.Addr())
	db := reopen(t, primary.URL("postgres"), Options{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at.Load().(string))
	}})
	begin(t, db, "run-1")
	at.Store(standby.Addr())
	primary.Kill()
	check(t, errors.Join(saysNoWrites("reading", db.Ping(t.Context())), saysNoWrites("asking", db.TakesWrites(t.Context()))))
	_, err := db.StartRun(t.Context(), start("run-2"))
	check(t, saysNoWrites("writing", err))
	standby.Promote()
	waitUntil(t, "written again", func() bool { return db.TakesWrites(t.Context()) == nil && db.Ping(t.Context()) == nil })
	begin(t, db, "run-2")
}

// saysNoWrites wants an error that says so, without a name or an address unless it is of
// a request.
func saysNoWrites(what string, err error) error {
	if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "it is a standby") ||
		what != "writing" && strings.Contains(err.Error(), "127.0.0.1") {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// TestTakesWritesDoesNotWait: who asks is answered in time, and keeps nobody, while
// those who write are busy.
func TestTakesWritesDoesNotWait(t *testing.T) {
	t.Parallel()
	db := openedAt(t, pgtest.Copy(t, migrated(t)), Options{Writers: 1})
	check(t, db.TakesWrites(t.Context()))
	release := stall(t, db)
	check(t, db.TakesWrites(t.Context())) // what is known, although the look waits
	least := time.Duration(math.MaxInt64) // the process may be stopped during one, not during all
	for range 10 {
		began := time.Now()
		check(t, db.TakesWrites(t.Context()))
		least = min(least, time.Since(began))
	}
	if least >= writesWait {
		t.Errorf("each of ten took %v or more", least)
	}
	if n := len(db.queue); n != 1 { // not one for each who has asked
		t.Errorf("%d looks wait", n)
	}
	release()
}

// TestLimitsOfSessions: what the database limits sessions to is not what the store's
// are limited to. They would end in the middle of a COMMIT, or while they listen.
func TestLimitsOfSessions(t *testing.T) {
	t.Parallel()
	url := pgtest.Copy(t, migrated(t))
	admin := administrator(t, url)
	limits := []string{"transaction_timeout", "idle_session_timeout", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}
	for _, name := range limits {
		admin(alter(fmt.Sprintf(`SET %s = '5s'`, name))) // it counts until the connection is made
	}
	log := &lineCounter{}
	db := openedAt(t, url, Options{Logger: slog.New(log)})
	c := bridge(t, db, "b1")
	for i, call := range scenario(db, c) {
		if err := call(t.Context()); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	checkEnded(t, db)
	heard := listening(t, db)
	time.Sleep(5500 * time.Millisecond)
	rouse(t, db, heard)
	look := `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN ('` + strings.Join(limits, `', '`) + `')`
	var read, written string
	check(t, db.read(t.Context(), look, func(r *record) error { read = r.str(); return nil }))
	check(t, db.submit(t.Context(), prompt, func(s *session) error {
		return s.query(look, func(r *record) error { written = r.str(); return nil })
	}))
	want := "idle_in_transaction_session_timeout=10000 idle_session_timeout=0 lock_timeout=10000 statement_timeout=0 transaction_timeout=0"
	diff(t, []string{read, written}, []string{want, want})
	if lines := log.above(slog.LevelWarn); len(lines) > 0 {
		t.Errorf("lines:\n%s", strings.Join(lines, "\n"))
	}
}

// TestSettingsOfOthers: what an administrator has set for the database makes nothing of
// ours wrong, neither the steps of the schema nor the work.
func TestSettingsOfOthers(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	admin := administrator(t, url)
	for _, setting := range []string{
		"standard_conforming_strings = off", "default_transaction_isolation = serializable", "default_transaction_deferrable = on",
		"bytea_output = escape", "datestyle = German", "timezone = 'Asia/Tokyo'", "transform_null_equals = on", "array_nulls = off",
		"plan_cache_mode = force_custom_plan", "client_min_messages = error", "enable_indexscan = off", "row_security = off",
	} {
		admin(alter(`SET ` + setting))
	}
	db := reopen(t, url, Options{})
	if at := must(db.Status(t.Context()))(t)[0].AppliedAt; time.Since(at).Abs() > time.Hour {
		t.Errorf("a step was applied at %v", at)
	}
	c := bridge(t, db, "b1")
	for i, call := range scenario(db, c) {
		if err := call(t.Context()); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	checkEnded(t, db)
}

// TestConnectionThatIsCutNamesNoStandby: a connection that ends while it is asked
// whether a standby has confirmed what is shown says nothing about a standby.
func TestConnectionThatIsCutNamesNoStandby(t *testing.T) {
	t.Parallel()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &standbyCut{c}, err
	}
	_, err := Open(t.Context(), pgtest.Copy(t, migrated(t)), Options{Dial: dial})
	wantCode(t, err, parley.CodeUnavailable)
	if strings.Contains(err.Error(), "standby") {
		t.Errorf("error %v", err)
	}
}

// standbyCut is a connection that ends with the question about a standby.
type standbyCut struct{ net.Conn }

func (c *standbyCut) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("synchronous_standby_names")) {
		_ = c.Close()
	}
	return c.Conn.Write(b)
}

func TestServerVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"17.2": 17, "18beta1": 18, "9.6.24 (Debian)": 9, "": 0, "x": 0, strings.Repeat("9", 30): 9999} {
		if got := serverVersion(text); got != want {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// TestRefusedStatements: what passes by itself is tried again at once, and what does
// not is told as such; in both cases everything is there once.
func TestRefusedStatements(t *testing.T) {
	url := pgtest.Copy(t, migrated(t))
	admin := administrator(t, url)
	db := openedAt(t, url, Options{})
	admin(`CREATE SEQUENCE refusals`)
	c := bridge(t, db, "b1")
	for _, tt := range []struct {
		code, says string
		passes     bool
	}{
		{"40001", "", true},
		{"40P01", "", true},
		{"57014", "", true}, // a statement that somebody has cancelled
		{"53100", "cannot write now", false},
		{"53200", "cannot write now", false},
		{"58030", "cannot write now", false},
		{"25006", "default_transaction_read_only", false},
	} {
		t.Run(tt.code, func(t *testing.T) {
			admin(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('refusals') <= 2 THEN RAISE 'refused' USING ERRCODE = '` + tt.code + `'; END IF; RETURN NEW; END $$`)
			for _, table := range []string{"run", "attempt", "event"} {
				admin(`CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION refuse()`)
			}
			t.Cleanup(func() { admin(`DROP FUNCTION refuse CASCADE`) })
			for i, call := range scenarioOf(db, c, "run-"+tt.code) {
				admin(`SELECT setval('refusals', 1, false)`)
				err := call(t.Context())
				for n := 0; err != nil; n++ {
					if tt.passes || n > 5 || parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), tt.says) {
						t.Fatalf("call %d: %v", i, err)
					}
					err = call(t.Context())
				}
			}
			full := strings.Contains(fmt.Sprint(db.TakesWrites(t.Context())), "disk is full")
			if want := tt.code == "53100"; full != want {
				t.Errorf("its disk is full: %v, want %v", full, want)
			}
			db.writes.full.Store(nil)
			h := must(db.History(t.Context(), "run-"+tt.code))(t)
			if h.Run.Status != parley.RunCompleted || len(h.Events) != 4 || len(h.Attempts) != 0 {
				t.Errorf("%s with %d events, %d attempts left", h.Run.Status, len(h.Events), len(h.Attempts))
			}
		})
	}
}

// scenarioOf is the life of a run of one step.
func scenarioOf(db *DB, c Claim, run string) []func(context.Context) error {
	a := attempt(run, "a", 1)
	mine := c
	mine.Token = run
	st := start(run, claimed(a, mine))
	st.IdempotencyKey = run
	d := next(st.Run, 2)
	ans := answer(a.ID, `1`)
	d.Answer, d.Close = &ans, []Close{{TaskID: a.ID, Absorb: true}}
	d.Run.Status, d.Run.EndedAt = parley.RunCompleted, epoch
	return []func(context.Context) error{
		func(ctx context.Context) error { _, err := db.StartRun(ctx, st); return err },
		func(ctx context.Context) error { return db.Decide(ctx, d) },
	}
}

// emptyDatabase makes a database of one's own, with these options.
func emptyDatabase(t *testing.T, options string) (target string) {
	t.Helper()
	beside := pgtest.Database(t)
	u := must(url.Parse(beside))(t)
	name := strings.TrimPrefix(u.Path, "/") + "_own"
	conn := must(pgx.Connect(t.Context(), beside))(t)
	must(conn.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0 `+options))(t)
	t.Cleanup(func() {
		must(conn.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`))(t)
		check(t, conn.Close(context.Background()))
	})
	u.Path = "/" + name
	return u.String()
}

// TestEncodings: a database whose encoding lacks characters is refused before anything is in
// it: what an agent answers could not be kept. One of bytes is good.
func TestEncodings(t *testing.T) {
	t.Parallel()
	for encoding, good := range map[string]bool{"UTF8": true, "SQL_ASCII": true, "LATIN1": false, "EUC_JP": false} {
		target := emptyDatabase(t, `ENCODING '`+encoding+`' LOCALE 'C'`)
		if !good {
			_, err := Open(t.Context(), target, Options{Patience: time.Hour})
			wantCode(t, err, parley.CodeUnavailable)
			if err == nil || !strings.Contains(err.Error(), encoding) || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
				t.Errorf("%s: %v", encoding, err)
			}
			continue
		}
		db := reopen(t, target, Options{})
		st := start("run-1", attempt("run-1", "☃", 1))
		st.Run.TriggeredBy = "\U0001f600 \x00 \xff"
		must(db.StartRun(t.Context(), st))(t)
		diff(t, must(db.RunRow(t.Context(), "run-1"))(t).TriggeredBy, st.Run.TriggeredBy)
	}
}

// TestWhereTablesGo: a search_path that names no schema that is there, or whose first one the
// user may not make tables in, is refused with what to do; one that has come to name another
// schema before the one that has the tables has nobody make them all a second time.
func TestWhereTablesGo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	refused := func(err error, code parley.Code, words ...string) {
		t.Helper()
		wantCode(t, err, code)
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v does not say %q", err, w)
			}
		}
	}
	target := emptyDatabase(t, "")
	admin := administrator(t, target)
	admin(alter(`SET search_path = nowhere`))
	_, err := Open(ctx, target, Options{})
	refused(err, parley.CodeUnavailable, "search_path", "CREATE SCHEMA")

	admin(`CREATE SCHEMA one; CREATE SCHEMA two; CREATE SCHEMA three; CREATE TABLE three.goose_db_version (version_id INT, is_applied BOOLEAN, tstamp TIMESTAMP)`)
	admin(alter(`SET search_path = one, three`)) // three is somebody else's
	db := must(Open(ctx, target, Options{}))(t)
	check(t, db.Migrate(ctx))
	check(t, db.MigrateDown(ctx, 29))
	check(t, db.Close())
	admin(alter(`SET search_path = two, one`))
	_, err = Open(ctx, target, Options{})
	refused(err, parley.CodeConflict, "in the schema one", "go to two", "name one first")
	admin(alter(`SET search_path = one, two`))
	db = must(Open(ctx, target, Options{}))(t)
	check(t, db.Migrate(ctx))
	check(t, db.Close())
	admin(alter(`SET search_path = two, one`))
	db = must(Open(ctx, target, Options{}))(t) // nothing is missing
	defer func() { check(t, db.Close()) }()
	refused(db.Migrate(ctx), parley.CodeConflict, "name one first")
	refused(db.MigrateDown(ctx, 29), parley.CodeConflict, "name one first")
	check(t, writeRow(t, db))

	role := fmt.Sprintf("maker_%d", time.Now().UnixNano())
	other := emptyDatabase(t, "")
	admin = administrator(t, other)
	admin(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'secret'; REVOKE CREATE ON SCHEMA public FROM public`)
	defer admin(`DROP ROLE ` + role)
	u := must(url.Parse(other))(t)
	u.User = url.UserPassword(role, "secret")
	_, err = Open(ctx, u.String(), Options{})
	refused(err, parley.CodeUnavailable, "GRANT CREATE ON SCHEMA")

	u = must(url.Parse(other))(t)
	u.RawQuery += "&pool_max_conns=4"
	_, err = Open(ctx, u.String(), Options{})
	refused(err, parley.CodeUnavailable, "pool_max_conns", "take it out of database.url")
}

// TestRefusedLogins: who is not let in says why, and goes on when that is over.
func TestRefusedLogins(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	s.Exec(`CREATE ROLE app LOGIN PASSWORD 'one'`)
	s.Exec(`CREATE DATABASE app OWNER app`)
	db := reopen(t, fmt.Sprintf("postgres://app:one@%s/app", s.Addr()), Options{})
	for _, tt := range []struct{ refuse, allow, says string }{
		{`ALTER ROLE app PASSWORD 'two'`, `ALTER ROLE app PASSWORD 'one'`, "check database.url and database.password"},
		{`ALTER ROLE app CONNECTION LIMIT 0`, `ALTER ROLE app CONNECTION LIMIT -1`, "CONNECTION LIMIT"},
		{`REVOKE CONNECT ON DATABASE app FROM app, public`, `GRANT CONNECT ON DATABASE app TO app`, "GRANT CONNECT"},
		{`ALTER ROLE app NOLOGIN`, `ALTER ROLE app LOGIN`, "refuses the login"},
	} {
		s.Exec(tt.refuse)
		s.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
		for name, err := range map[string]error{"reading": readRuns(t, db), "writing": writeRow(t, db), "asking": db.TakesWrites(t.Context())} {
			if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %s: %v", tt.refuse, name, err)
			}
		}
		s.Exec(tt.allow)
		check(t, readRuns(t, db))
		check(t, writeRow(t, db))
		check(t, db.TakesWrites(t.Context()))
	}
}

// TestPooler: a pooler is named as what it is, at the start and later. The errors are
// those of PgBouncer 1.18 in front of a server, as it comes and with all settings of
// sessions ignored.
func TestPooler(t *testing.T) {
	t.Parallel()
	db := &DB{dialect: postgresDialect(), path: "postgres://parley@pooler:6432/parley"}
	for _, tt := range []struct {
		code, message string
		connecting    bool
	}{
		{code: "08P01", message: "unsupported startup parameter: enable_seqscan", connecting: true},
		{code: "42P05", message: `prepared statement "s1" already exists`},
		{code: "26000", message: `prepared statement "s1" does not exist`},
	} {
		var err error = &pgconn.PgError{Severity: "ERROR", Code: tt.code, Message: tt.message}
		if tt.connecting {
			err = errors.Join(&pgconn.ConnectError{Config: &pgconn.Config{}}, &pgconn.PgError{Severity: "FATAL", Code: tt.code, Message: tt.message})
		}
		for name, got := range map[string]error{"opening": db.unopened(err), "working": db.failure(err)} {
			wantCode(t, got, parley.CodeUnavailable)
			if text := got.Error(); !strings.Contains(text, "pooler") || !strings.Contains(text, tt.message) || !strings.Contains(text, "database.url") {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
	if said := db.explained(&pgconn.PgError{Code: "08P01", Message: "invalid message format"}); said != nil {
		t.Errorf("what no pooler says is %v", said)
	}
}

func readRuns(t *testing.T, db *DB) error {
	_, _, err := db.Runs(t.Context(), parley.RunQuery{})
	return err
}

func writeRow(t *testing.T, db *DB) error {
	_, err := db.Register(t.Context(), "b", epoch)
	return err
}

// TestListenerThatIsCut: one whose connection is cut again and again does not spin.
func TestListenerThatIsCut(t *testing.T) {
	t.Parallel()
	url := pgtest.Copy(t, migrated(t))
	admin := administrator(t, url)
	log := &lineCounter{}
	db := openedAt(t, url, Options{Logger: slog.New(log)})
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = db.Listen(ctx, func(string) {}) })
	lines := func() []string { return log.above(slog.LevelWarn) }
	began := time.Now()
	for n := 0; n < 40 || len(lines()) == 0 && time.Since(began) < 2*time.Minute; n++ {
		time.Sleep(50 * time.Millisecond)
		admin(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	}
	stop()
	ended.Wait()
	took := time.Since(began)
	if n := len(lines()); n == 0 || n > mostListenLines(took) {
		t.Errorf("%d lines in %v:\n%s", n, took, strings.Join(lines(), "\n"))
	}
	for _, line := range lines() { // the logger counts what is unavailable
		if !strings.Contains(line, "error=unavailable:") {
			t.Errorf("a line is %s", line)
		}
	}
}

// mostListenLines is how often a listener may try within a time: after pauses that double,
// from the start again after each connection that lasted.
func mostListenLines(took time.Duration) int {
	ladder := func(least time.Duration) (lines int) {
		for at, wait := time.Duration(0), listenAgain; at <= least; wait = min(2*wait, listenAgainMost) {
			lines++
			at += wait / 2
		}
		return lines
	}
	return ladder(took) + int(took/listenLasts)*ladder(listenLasts)
}

// TestTableThatIsGone: a table that is missing although the version is right is told
// once, refuses what needs it and nothing else, and is noticed when it is back.
func TestTableThatIsGone(t *testing.T) {
	t.Parallel()
	eachSchemaRig(t, func(t *testing.T, r *schemaRig) {
		must(r.StartRun(t.Context(), start("run-1")))(t)
		rename := func(from, to string) {
			check(t, r.other.submit(t.Context(), synced, func(s *session) error {
				_, err := s.exec(`ALTER TABLE ` + from + ` RENAME TO ` + to)
				return err
			}))
		}
		rename("agents", "agents_away")
		for range 3 {
			_, _, read := r.Agents(t.Context(), parley.AgentQuery{})
			for i, err := range []error{read, r.CreateAgent(t.Context(), newAgent("refused"))} {
				if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "the table agents") {
					t.Errorf("call %d: %v", i, err)
				}
			}
		}
		if err := r.SchemaReady(); err == nil || !strings.Contains(err.Error(), "the table agents") {
			t.Errorf("the schema is %v", err)
		}
		begin(t, r.DB, "run-2") // needs no agents
		time.Sleep(2 * schemaEvery)
		r.wantLines(t, 1)
		rename("agents_away", "agents")
		waitUntil(t, "whole", func() bool { return r.SchemaReady() == nil })
		check(t, r.CreateAgent(t.Context(), newAgent("taken")))
		r.wantLines(t, 2)
	})
}

// TestPasswordIsReadAnew: a password that was changed, and is where it was read before, is
// used by whoever connects next: those who read, write, wake and listen.
func TestPasswordIsReadAnew(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	for name, open := range map[string]func(role, path string) (url string, o Options){
		"current": func(role, path string) (string, Options) {
			return fmt.Sprintf("postgres://%s:old@%s/%s", role, s.Addr(), role), Options{Current: func() (string, error) {
				password, err := os.ReadFile(path)
				if err == nil && len(password) == 0 {
					err = parley.Errorf(parley.CodeUnavailable, "the file is empty")
				}
				return fmt.Sprintf("postgres://%s:%s@elsewhere/other", role, password), err
			}}
		},
		"passfile": func(role, path string) (string, Options) {
			return fmt.Sprintf("postgres://%s@%s/%s?passfile=%s", role, s.Addr(), role, path), Options{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "password")
			put := func(password string) {
				if name == "passfile" && password != "" {
					password = "*:*:*:*:" + password
				}
				check(t, os.WriteFile(path, []byte(password), 0o600))
			}
			put("one")
			s.Exec(fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'one'`, name))
			s.Exec(fmt.Sprintf(`CREATE DATABASE %s OWNER %[1]s`, name))
			url, o := open(name, path)
			db := reopen(t, url, o)
			heard := listening(t, db)
			s.Exec(fmt.Sprintf(`ALTER ROLE %s PASSWORD 'two'`, name))
			refused := func(says string) {
				t.Helper()
				s.Exec(fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%s'`, name))
				for what, err := range map[string]error{"reading": readRuns(t, db), "writing": writeRow(t, db), "waking": db.Notify(t.Context(), "x")} {
					if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), says) {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
			refused("refuses the login")
			put("")
			if name == "current" {
				refused("the file is empty; check the files that database.url and database.password name")
			}
			put("two")
			check(t, errors.Join(readRuns(t, db), writeRow(t, db)))
			rouse(t, db, heard)
		})
	}
}

// TestCertificateIsReadAnew: a server that has another certificate is refused in words
// that say what to do, and taken when the file has its authority, by all who connect.
func TestCertificateIsReadAnew(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	root := filepath.Join(t.TempDir(), "root.pem")
	serve := func(trusted bool) {
		t.Helper()
		key, certificate := selfSigned(t)
		if trusted {
			check(t, os.WriteFile(root, certificate, 0o600))
		}
		for name, text := range map[string][]byte{"key": key, "cert": certificate} { // its files are its user's
			s.Exec(fmt.Sprintf(`COPY (SELECT unnest(string_to_array('%s', E'\n'))) TO PROGRAM 'umask 077; cat > %s.pem'`, text, name))
			s.Set("ssl_"+name+"_file", name+".pem")
		}
		s.Set("ssl", "on")
	}
	serve(true)
	url := s.URL("postgres")
	url = url[:strings.Index(url, "?")] + "?sslmode=verify-full&sslrootcert=" + root
	var db *DB
	waitUntil(t, "served with a certificate", func() (ok bool) {
		opened, err := Open(t.Context(), url, Options{})
		db = opened
		return err == nil
	})
	defer func() { check(t, db.Close()) }()
	check(t, db.Migrate(t.Context()))
	heard := listening(t, db)
	admin := administrator(t, s.URL("postgres"))
	refused := func(says string) {
		t.Helper()
		waitUntil(t, "refused", func() bool {
			admin(cutOthers)
			return readRuns(t, db) != nil
		})
		for what, err := range map[string]error{"reading": readRuns(t, db), "writing": writeRow(t, db), "waking": db.Notify(t.Context(), "x")} {
			if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	serve(false)
	refused("the certificate of the database")
	check(t, os.WriteFile(root, []byte("being written"), 0o600))
	refused("cannot be prepared")
	serve(true)
	waitUntil(t, "taken", func() bool { return readRuns(t, db) == nil && writeRow(t, db) == nil })
	rouse(t, db, heard)
}

// selfSigned makes a key, and a certificate for the loopback that is its own authority.
func selfSigned(t *testing.T) (key, certificate []byte) {
	t.Helper()
	k := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k))(t)
	pkcs8 := must(x509.MarshalPKCS8PrivateKey(k))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestNameWithoutItsFiles: a database is named even if a file that its URL names is of
// no use, and its password is not.
func TestNameWithoutItsFiles(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://ann:secret@db.example:5433/parley?sslmode=verify-full&sslrootcert=/none", Options{})
	if err == nil || !strings.Contains(err.Error(), "the login to the database parley on db.example:5433 as ann cannot be prepared: unable to read CA file: open /none") ||
		strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
