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
	"github.com/parley-project/parley/internal/store"
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
// of SQLAlchemy (postgresql+asyncpg://…?ssl=require), and refuses one that is not
// of the existing platform. The caller closes it.
func open(ctx context.Context, address string) (*database, error) {
	cfg, err := pgx.ParseConfig(store.PlainURL(address))
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
	// Its texts are as the database keeps them, if one does not say.
	cfg.RuntimeParams["client_encoding"] = "UTF8"
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
	return parley.Errorf(parley.CodeUnavailable, "%s cannot be reached; look at the host and the port in the address, and at its sslmode: %w", place(cfg), store.OneLine(err))
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
// existing platform. The catalogue also names what the user may not read.
func (d *database) recognise(ctx context.Context) error {
	const text = "looking at the tables"
	rows, err := d.conn.Query(ctx, `SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 JOIN pg_attribute a ON a.attrelid = c.oid WHERE pg_table_is_visible(c.oid) AND n.nspname <> 'pg_catalog' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
 AND a.attnum > 0 AND NOT a.attisdropped`)
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
			return d.absent(ctx, t.name)
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

// absent says why a table is not seen.
func (d *database) absent(ctx context.Context, name string) error {
	where := place(d.conn.Config())
	var user, schema string
	err := d.conn.QueryRow(ctx, `SELECT current_user::text, n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname = $1 AND NOT has_schema_privilege(n.oid, 'USAGE') ORDER BY 2 LIMIT 1`, name).Scan(&user, &schema)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return parley.Errorf(parley.CodeInvalid,
			"%s is no database of the existing platform: it has no table %s; give the DATABASE_URL of its API, with its database and its schema", where, name)
	case err != nil:
		return failed(ctx, "looking at the tables", err)
	}
	return parley.Errorf(parley.CodeInvalid, "%s: the user %s may not look into the schema %s: have its owner say GRANT USAGE ON SCHEMA %s TO %s, and GRANT SELECT ON ALL TABLES IN SCHEMA %[4]s TO %[5]s",
		where, user, schema, pgx.Identifier{schema}.Sanitize(), pgx.Identifier{user}.Sanitize())
}

// mayRead refuses a user who may not read all that an import reads.
func (d *database) mayRead(ctx context.Context) error {
	names := uncarried()
	for _, t := range tables() {
		names = append(names, t.name)
	}
	var user, schema string
	var lacking []string
	err := d.conn.QueryRow(ctx, `SELECT current_user::text, n.nspname::text, array_agg(c.relname::text ORDER BY c.relname)
 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE pg_table_is_visible(c.oid) AND c.relname = ANY ($1)
 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT has_table_privilege(c.oid, 'SELECT') GROUP BY 2`, names).Scan(&user, &schema, &lacking)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return failed(ctx, "looking at the privileges", err)
	}
	var quoted []string
	for _, name := range lacking {
		quoted = append(quoted, pgx.Identifier{schema, name}.Sanitize())
	}
	return parley.Errorf(parley.CodeInvalid, "%s: the user %s may not read %s: have the owner say GRANT SELECT ON %s TO %s",
		place(d.conn.Config()), user, strings.Join(lacking, ", "), strings.Join(quoted, ", "), pgx.Identifier{user}.Sanitize())
}

// mayChange refuses a user who may not change table agents.
func (d *database) mayChange(ctx context.Context) error {
	var user, owner, schema string
	var owns, creates bool
	err := d.conn.QueryRow(ctx, `SELECT current_user::text, pg_get_userbyid(c.relowner)::text, n.nspname::text, pg_has_role(c.relowner, 'USAGE'),
 has_schema_privilege(n.oid, 'CREATE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass('agents')`).Scan(&user, &owner, &schema, &owns, &creates)
	where, quoted := place(d.conn.Config()), pgx.Identifier{user}.Sanitize()
	switch {
	case err != nil:
		return failed(ctx, "looking at the privileges", err)
	case !owns:
		return parley.Errorf(parley.CodeInvalid, "%s: the user %s may not change the table agents, which belongs to %s: give the URL with that user, or have an administrator say GRANT %s TO %s",
			where, user, owner, pgx.Identifier{owner}.Sanitize(), quoted)
	case !creates:
		return parley.Errorf(parley.CodeInvalid, "%s: the user %s may not make an index in the schema %s: have its owner say GRANT CREATE ON SCHEMA %s TO %s",
			where, user, schema, pgx.Identifier{schema}.Sanitize(), quoted)
	}
	return nil
}

// has reports whether a table has a column.
func (d *database) has(table, column string) bool { return slices.Contains(d.columns[table], column) }
