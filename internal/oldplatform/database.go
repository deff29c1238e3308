package oldplatform

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley"
)

// connectTimeout bounds the connecting if the URL says nothing about it.
const connectTimeout = 10 * time.Second

// database is a connection to a database that has the tables of the existing
// platform.
type database struct {
	conn *pgx.Conn
	// columns are those of its tables, by table.
	columns map[string][]string
}

// open connects to the database that address names, in the spelling of libpq or
// of SQLAlchemy (postgresql+asyncpg://…), and refuses one that is not of the
// existing platform. The caller closes it.
func open(ctx context.Context, address string) (*database, error) {
	cfg, err := pgx.ParseConfig(plainURL(address))
	if err != nil {
		// The text of the driver may quote a part of a password.
		return nil, parley.Errorf(parley.CodeInvalid,
			"this is no address of a PostgreSQL database: give the DATABASE_URL of the existing platform, such as postgresql://user@host:5432/name")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	// Times without a zone are UTC over there; those with one are shown as UTC.
	cfg.RuntimeParams["timezone"] = "UTC"
	cfg.RuntimeParams["application_name"] = "parley"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, unreachable(ctx, cfg, err)
	}
	d := &database{conn: conn}
	if err := d.recognise(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// plainURL takes the driver out of the scheme: postgresql+asyncpg://.
func plainURL(address string) string {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(address), "://")
	if !ok {
		return address
	}
	if base, _, ok := strings.Cut(scheme, "+"); ok {
		scheme = base
	}
	return scheme + "://" + rest
}

// place names a database for people, without its password.
func place(cfg *pgx.ConnConfig) string {
	u := url.URL{Scheme: "postgresql", Host: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), Path: cfg.Database}
	return u.String()
}

func unreachable(ctx context.Context, cfg *pgx.ConnConfig, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return parley.Errorf(parley.CodeUnavailable, "%s does not let us in: %s (SQLSTATE %s); look at the user, the password and the name in the address",
			place(cfg), e.Message, e.Code)
	}
	return parley.Errorf(parley.CodeUnavailable, "%s cannot be reached; look at the host and the port in the address, and at its sslmode: %w", place(cfg), err)
}

// failed turns an error of the database into one for people.
func failed(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*parley.Error](err); ok {
		return err
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return parley.Errorf(parley.CodeUnavailable, "%s: %s (SQLSTATE %s)", doing, e.Message, e.Code)
	}
	return parley.Errorf(parley.CodeUnavailable, "%s: %w", doing, err)
}

// closeTimeout bounds the farewell to the database.
const closeTimeout = 5 * time.Second

func (d *database) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// What was to be read or written is done, or its error is known.
	_ = d.conn.Close(ctx)
}

// table is what a database of the existing platform has to have.
type table struct {
	name    string
	columns []string
}

// tables are those that are read, with the columns that they have had from the
// first revision on.
func tables() []table {
	return []table{
		{"agents", []string{
			"id", "name", "url", "description", "auth_type", "auth_config", "timeout_ms", "retry_config", "status",
			"created_by", "updated_by", "created_at", "updated_at",
		}},
		{"workflow_definitions", []string{
			"id", "name", "description", "version", "workflow_data", "status", "created_by", "updated_by", "created_at", "updated_at",
		}},
		{"workflow_runs", []string{
			"run_id", "workflow_id", "workflow_name", "workflow_definition_id", "status", "input_data", "triggered_by",
			"created_at", "updated_at", "completed_at", "cancelled_at", "cancelled_by", "error_message",
		}},
		{"step_executions", []string{
			"id", "run_id", "step_id", "step_name", "agent_name", "status", "input_data", "output_data", "started_at",
			"completed_at", "error_message",
		}},
		{"audit_logs", []string{"id", "entity_type", "entity_id", "action", "user_id", "changes", "created_at", "updated_at"}},
	}
}

// uncarried are the tables of the existing platform that have no counterpart
// here; their rows are counted.
func uncarried() []string { return []string{"workflow_steps", "ai_chat_sessions"} }

// recognise reads which tables there are and refuses what is no database of the
// existing platform.
func (d *database) recognise(ctx context.Context) error {
	const text = "looking at the tables"
	rows, err := d.conn.Query(ctx, `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()`)
	if err != nil {
		return failed(ctx, text, err)
	}
	d.columns = make(map[string][]string)
	var name, column string
	_, err = pgx.ForEachRow(rows, []any{&name, &column}, func() error {
		d.columns[name] = append(d.columns[name], column)
		return nil
	})
	if err != nil {
		return failed(ctx, text, err)
	}
	where := place(d.conn.Config())
	if d.has("run", "definition_id") && d.has("attempt", "orphanings") {
		return parley.Errorf(parley.CodeInvalid, "%s is a store of Parley, not a database of the existing platform: give the DATABASE_URL of its API", where)
	}
	for _, t := range tables() {
		if _, ok := d.columns[t.name]; !ok {
			return parley.Errorf(parley.CodeInvalid,
				"%s is no database of the existing platform: it has no table %s; give the DATABASE_URL of its API, with its database and its schema", where, t.name)
		}
		for _, c := range t.columns {
			if !d.has(t.name, c) {
				return parley.Errorf(parley.CodeInvalid,
					"%s is no database of the existing platform that we know: its table %s has no column %s; bring it to its newest revision first (alembic upgrade head)",
					where, t.name, c)
			}
		}
	}
	return nil
}

// has reports whether a table has a column.
func (d *database) has(table, column string) bool { return slices.Contains(d.columns[table], column) }
