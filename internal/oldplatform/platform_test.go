package oldplatform_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// now is when the tests import.
func now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// platform is a database of the existing platform.
type platform struct {
	t    testing.TB
	url  string
	conn *pgx.Conn
}

// newPlatform makes one with the rows of testdata.
func newPlatform(t testing.TB) *platform {
	t.Helper()
	p := emptyPlatform(t)
	p.file("rows.sql")
	return p
}

// emptyPlatform makes one without rows.
func emptyPlatform(t testing.TB) *platform {
	t.Helper()
	p := &platform{t: t, url: testDatabase(t)}
	p.conn = p.connect()
	p.file("schema.sql")
	return p
}

func (p *platform) connect() *pgx.Conn {
	p.t.Helper()
	conn, err := pgx.Connect(context.Background(), p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (p *platform) file(name string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		p.t.Fatal(err)
	}
	p.exec(string(text))
}

// exec runs statements.
func (p *platform) exec(text string) {
	p.t.Helper()
	if _, err := p.conn.PgConn().Exec(context.Background(), text).ReadAll(); err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
}

// user makes a user of the database's own, whose password is reader.
func (p *platform) user() string {
	p.t.Helper()
	role := "reader_" + strings.TrimPrefix(p.conn.Config().Database, "parley_")
	p.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'reader'`)
	p.t.Cleanup(func() { p.exec(`DROP OWNED BY ` + role + `; DROP ROLE ` + role) })
	return role
}

// as gives the URL for another user, whose password is reader.
func (p *platform) as(user string) string {
	p.t.Helper()
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	u.User = url.UserPassword(user, "reader")
	return u.String()
}

// text gives one value as text.
func (p *platform) text(query string) string {
	p.t.Helper()
	var s *string
	if err := p.conn.QueryRow(context.Background(), `SELECT (`+query+`)::text`).Scan(&s); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	if s == nil {
		return ""
	}
	return *s
}

// target is a store that is imported into.
type target struct {
	t       testing.TB
	db      *store.DB
	dir     string
	secrets *registry.Secrets
	notices []oldplatform.Notice
}

func newTarget(t testing.TB) *target {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "parley.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &target{t: t, db: db, dir: dir, secrets: registry.NewSecrets(registry.SecretsConfig{KeyFile: filepath.Join(dir, "agents.key")})}
}

// take imports a platform; change may alter the options.
func (x *target) take(p *platform, change ...func(*oldplatform.Options)) *oldplatform.Report {
	x.t.Helper()
	report, err := x.try(p, change...)
	if err != nil {
		x.t.Fatal(err)
	}
	return report
}

func (x *target) try(p *platform, change ...func(*oldplatform.Options)) (*oldplatform.Report, error) {
	o := oldplatform.Options{Address: p.url, Protocol: parley.ProtocolJSONRPC}
	for _, f := range change {
		f(&o)
	}
	x.notices = nil
	return oldplatform.Import(x.t.Context(), x.target(func(n oldplatform.Notice) { x.notices = append(x.notices, n) }), o)
}

// target is where an import into the store goes.
func (x *target) target(tell func(oldplatform.Notice)) oldplatform.Target {
	return oldplatform.Target{
		Store: x.db, Now: now, Tell: tell,
		Registry: func(s registry.Store) *registry.Registry {
			return registry.New(registry.Config{
				Store: s, Protocols: []string{parley.ProtocolSimpleA2A, parley.ProtocolJSONRPC}, Secrets: x.secrets, Now: now,
				NewID: func() string { return "never stored" },
			})
		},
	}
}

func dry(o *oldplatform.Options) { o.DryRun = true }

// table gives the counts of one table.
func table(t testing.TB, r *oldplatform.Report, name string) oldplatform.Counts {
	t.Helper()
	for _, c := range r.Tables {
		if c.Table == name {
			return *c
		}
	}
	t.Fatalf("the report has no table %s", name)
	return oldplatform.Counts{}
}

// testDatabase gives the URL of an empty database.
func testDatabase(t testing.TB) string { return pgtest.Database(t) }
