package oldplatform

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/parley-project/parley"
)

// agentRow is one row of table agents. JSON is text, as PostgreSQL spells it;
// what is NULL is nil.
type agentRow struct {
	ID, Name, URL, Status    string
	Description, AuthType    *string
	AuthConfig, RetryConfig  *string
	Protocol, ProtocolConfig *string
	TimeoutMS                int64
	CreatedBy, UpdatedBy     *string
	CreatedAt, UpdatedAt     pgtype.Timestamp
}

// definitionRow is one row of table workflow_definitions.
type definitionRow struct {
	ID, Name, Status     string
	Description          *string
	Version              int64
	Data                 string
	CreatedBy, UpdatedBy *string
	CreatedAt, UpdatedAt pgtype.Timestamp
}

// runRow is one row of table workflow_runs.
type runRow struct {
	ID, WorkflowID, WorkflowName, Status           string
	DefinitionID, Input, TriggeredBy               *string
	CancelledBy, Error                             *string
	CreatedAt, UpdatedAt, CompletedAt, CancelledAt pgtype.Timestamp
}

// size is how many bytes have no bound over there: that of the values, and of the
// error, whose text is mostly an agent's.
func (r *runRow) size() int64 { return int64(len(textOf(r.Input)) + len(textOf(r.Error))) }

// stepRow is one row of table step_executions: one attempt.
type stepRow struct {
	ID, RunID, StepID, StepName, Agent, Status string
	Input                                      string
	Output, Error                              *string
	Parent, Branch, Join                       *string
	StartedAt, CompletedAt                     pgtype.Timestamp
}

// size is that of [runRow.size].
func (r *stepRow) size() int64 {
	return int64(len(r.Input) + len(textOf(r.Output)) + len(textOf(r.Error)))
}

// auditRow is one row of table audit_logs.
type auditRow struct {
	ID, EntityType, EntityID, Action string
	User, Changes                    *string
	CreatedAt                        pgtype.Timestamp
}

// timeOf gives a time of the existing platform, naive UTC; the zero time is none.
// What JSON cannot tell as a time is refused: it would spoil each list that it is
// in.
func timeOf(t pgtype.Timestamp) (time.Time, error) {
	switch {
	case !t.Valid:
		return time.Time{}, nil
	case t.InfinityModifier != pgtype.Finite:
		return time.Time{}, parley.Errorf(parley.CodeInvalid, "one of its times is infinite")
	case t.Time.UTC().Year() < 1 || t.Time.UTC().Year() > 9999:
		return time.Time{}, parley.Errorf(parley.CodeInvalid, "one of its times is outside of the years 1 to 9999")
	}
	return t.Time.UTC(), nil
}

// textOf gives a text that may be NULL.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// optional is the expression for a column that came with a later revision.
func (d *database) optional(table, column string) string {
	if d.has(table, column) {
		return column + "::text"
	}
	return "NULL::text"
}

// begin starts the snapshot: everything that is read in it is of one instant,
// and nothing can be written.
func (d *database) begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil {
		// A long import is no reason to be thrown out. Not every server knows all of them.
		_, err = tx.Exec(ctx, `SELECT set_config(name, '0', true) FROM pg_settings
 WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')`)
	}
	return tx, failed(ctx, "beginning to read", err)
}

const (
	// pageRows and pageBytes bound the rows of one table that are held at a time; a
	// row that is larger is held alone.
	pageRows  = 64
	pageBytes = 4 << 20
	// sizesAhead is of how many rows the sizes are read before them.
	sizesAhead = 1024
)

// selection is what is read of a table.
type selection struct {
	// name is that of the cursor.
	name string
	// columns are the expressions that are read of from, which has an order in which
	// no two rows are equal.
	columns, from string
	// long are the columns that have no bound over there.
	long []string
}

// sorted is a table in an order, whose long columns are not written out before
// they are sorted.
func sorted(rows, order string) string {
	return `(` + rows + ` ORDER BY ` + order + ` OFFSET 0) AS t`
}

// size is the expression for the bytes of the long columns.
func (s *selection) size() string {
	var parts []string
	for _, column := range s.long {
		parts = append(parts, `coalesce(octet_length(`+column+`::text), 0)::bigint`)
	}
	return strings.Join(parts, " + ")
}

// cursor reads the rows of a query in pages. Their sizes are read before them, so
// that a page can be as large as it may be.
type cursor[T any] struct {
	tx   pgx.Tx
	name string
	rows []T
	// sizes are those of the rows that come next, in bytes; all says that no others
	// follow.
	sizes []int64
	all   bool
}

// declare opens a cursor in the snapshot; it ends with it.
func declare[T any](ctx context.Context, tx pgx.Tx, s *selection) (*cursor[T], error) {
	for name, columns := range map[string]string{s.name: s.columns, sizesOf(s.name): s.size()} {
		if _, err := tx.Exec(ctx, `DECLARE `+name+` NO SCROLL CURSOR FOR SELECT `+columns+` FROM `+s.from); err != nil {
			return nil, failed(ctx, "reading "+s.name, err)
		}
	}
	return &cursor[T]{tx: tx, name: s.name}, nil
}

// sizesOf names the cursor of the sizes.
func sizesOf(name string) string { return name + "_sizes" }

// peek gives the next row without taking it, or nil at the end.
func (c *cursor[T]) peek(ctx context.Context) (*T, error) {
	if len(c.rows) == 0 {
		if err := c.turn(ctx); err != nil || len(c.rows) == 0 {
			return nil, failed(ctx, "reading "+c.name, err)
		}
	}
	return &c.rows[0], nil
}

// turn reads the next page.
func (c *cursor[T]) turn(ctx context.Context) (err error) {
	if len(c.sizes) == 0 && !c.all {
		if c.sizes, err = fetch(ctx, c.tx, sizesOf(c.name), sizesAhead, pgx.RowTo[int64]); err != nil {
			return err
		}
		c.all = len(c.sizes) < sizesAhead
	}
	n := fitting(c.sizes)
	if n == 0 {
		return nil
	}
	c.sizes = c.sizes[n:]
	c.rows, err = fetch(ctx, c.tx, c.name, n, pgx.RowToStructByPos[T])
	return err
}

// fitting gives how many rows of these sizes are a page: at least one, if there
// are any.
func fitting(sizes []int64) int {
	held := int64(0)
	for n, size := range sizes {
		if held += size; n == pageRows || n > 0 && held > pageBytes {
			return n
		}
	}
	return len(sizes)
}

func fetch[T any](ctx context.Context, tx pgx.Tx, name string, n int, to pgx.RowToFunc[T]) ([]T, error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(`FETCH FORWARD %d FROM %s`, n, name))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, to)
}

// next takes the next row, or gives nil at the end. The cursor does not hold it
// any longer.
func (c *cursor[T]) next(ctx context.Context) (*T, error) {
	head, err := c.peek(ctx)
	if head == nil || err != nil {
		return nil, err
	}
	row := *head
	var none T
	*head, c.rows = none, c.rows[1:]
	return &row, nil
}

func (d *database) agents(ctx context.Context, tx pgx.Tx) (*cursor[agentRow], error) {
	return declare[agentRow](ctx, tx, &selection{
		name: "agents_read",
		columns: `id::text, name, url, status, description, auth_type, auth_config::text, retry_config::text,
 ` + d.optional("agents", "protocol") + `, ` + d.optional("agents", "protocol_config") + `, timeout_ms::bigint,
 created_by, updated_by, created_at::timestamp, updated_at::timestamp`,
		from: sorted(`SELECT * FROM agents`, `created_at, id`),
		long: []string{"description", "auth_config", "retry_config"},
	})
}

// definitions gives the versions of each workflow in their order.
func (d *database) definitions(ctx context.Context, tx pgx.Tx) (*cursor[definitionRow], error) {
	return declare[definitionRow](ctx, tx, &selection{
		name: "definitions_read",
		columns: `id::text, name, status, description, version::bigint, workflow_data::text, created_by, updated_by,
 created_at::timestamp, updated_at::timestamp`,
		from: sorted(`SELECT * FROM workflow_definitions`, `name, version, id`),
		long: []string{"description", "workflow_data"},
	})
}

func (d *database) runs(ctx context.Context, tx pgx.Tx) (*cursor[runRow], error) {
	return declare[runRow](ctx, tx, &selection{
		name: "runs_read",
		columns: `run_id, workflow_id, workflow_name, status, workflow_definition_id::text, input_data::text, triggered_by, cancelled_by,
 error_message, created_at::timestamp, updated_at::timestamp, completed_at::timestamp, cancelled_at::timestamp`,
		from: sorted(`SELECT * FROM workflow_runs`, `run_id`),
		long: []string{"input_data", "error_message"},
	})
}

// steps gives the rows of all runs in the order of [database.runs].
func (d *database) steps(ctx context.Context, tx pgx.Tx) (*cursor[stepRow], error) {
	const table = "step_executions"
	return declare[stepRow](ctx, tx, &selection{
		name: "steps_read",
		columns: `id, run_id, step_id, step_name, agent_name, status, input_data::text, output_data::text, error_message,
 ` + d.optional(table, "parent_step_id") + `, ` + d.optional(table, "branch_name") + `, ` + d.optional(table, "join_policy") + `,
 started_at::timestamp, completed_at::timestamp`,
		from: sorted(`SELECT s.* FROM step_executions s JOIN workflow_runs r ON r.run_id = s.run_id`, `r.run_id, s.started_at, s.id`),
		long: []string{"input_data", "output_data", "error_message"},
	})
}

func (d *database) audits(ctx context.Context, tx pgx.Tx) (*cursor[auditRow], error) {
	return declare[auditRow](ctx, tx, &selection{
		name:    "audit_read",
		columns: `id::text, entity_type, entity_id::text, action, user_id, changes::text, created_at::timestamp`,
		from:    sorted(`SELECT * FROM audit_logs`, `created_at, id`),
		long:    []string{"changes"},
	})
}

// orphans counts the steps of runs that are not there.
func (d *database) orphans(ctx context.Context, tx pgx.Tx) (int, error) {
	return count(ctx, tx, `SELECT count(*) FROM step_executions s WHERE NOT EXISTS (SELECT 1 FROM workflow_runs r WHERE r.run_id = s.run_id)`)
}

func count(ctx context.Context, tx pgx.Tx, query string) (n int, err error) {
	err = tx.QueryRow(ctx, query).Scan(&n)
	return n, failed(ctx, "counting", err)
}
