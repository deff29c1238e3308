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

// stepRow is one row of table step_executions: one attempt.
type stepRow struct {
	ID, RunID, StepID, StepName, Agent, Status string
	Input                                      string
	Output, Error                              *string
	Parent, Branch, Join                       *string
	StartedAt, CompletedAt                     pgtype.Timestamp
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
		// A long import is no reason to be thrown out.
		_, err = tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0`)
	}
	return tx, failed(ctx, "beginning to read", err)
}

// pageRows bounds the rows of one table that are held at a time.
const pageRows = 64

// cursor reads the rows of a query in pages.
type cursor[T any] struct {
	tx    pgx.Tx
	name  string
	rows  []T
	ended bool
}

// declare opens a cursor in the snapshot; it ends with it.
func declare[T any](ctx context.Context, tx pgx.Tx, name, query string) (*cursor[T], error) {
	_, err := tx.Exec(ctx, `DECLARE `+name+` NO SCROLL CURSOR FOR `+query)
	return &cursor[T]{tx: tx, name: name}, failed(ctx, "reading "+name, err)
}

// peek gives the next row without taking it, or nil at the end.
func (c *cursor[T]) peek(ctx context.Context) (*T, error) {
	if len(c.rows) == 0 && !c.ended {
		rows, err := c.tx.Query(ctx, fmt.Sprintf(`FETCH FORWARD %d FROM %s`, pageRows, c.name))
		if err != nil {
			return nil, failed(ctx, "reading "+c.name, err)
		}
		if c.rows, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T]); err != nil {
			return nil, failed(ctx, "reading "+c.name, err)
		}
		c.ended = len(c.rows) < pageRows
	}
	if len(c.rows) == 0 {
		return nil, nil
	}
	return &c.rows[0], nil
}

// next takes the next row, or gives nil at the end.
func (c *cursor[T]) next(ctx context.Context) (*T, error) {
	row, err := c.peek(ctx)
	if row != nil {
		c.rows = c.rows[1:]
	}
	return row, err
}

func (d *database) agents(ctx context.Context, tx pgx.Tx) (*cursor[agentRow], error) {
	return declare[agentRow](ctx, tx, "agents_read", `SELECT id::text, name, url, status, description, auth_type, auth_config::text,
 retry_config::text, `+d.optional("agents", "protocol")+`, `+d.optional("agents", "protocol_config")+`, timeout_ms::bigint,
 created_by, updated_by, created_at::timestamp, updated_at::timestamp FROM agents ORDER BY created_at, id`)
}

// definitions gives the versions of each workflow in their order.
func (d *database) definitions(ctx context.Context, tx pgx.Tx) (*cursor[definitionRow], error) {
	return declare[definitionRow](ctx, tx, "definitions_read", `SELECT id::text, name, status, description, version::bigint,
 workflow_data::text, created_by, updated_by, created_at::timestamp, updated_at::timestamp
 FROM workflow_definitions ORDER BY name, version, id`)
}

func (d *database) runs(ctx context.Context, tx pgx.Tx) (*cursor[runRow], error) {
	return declare[runRow](ctx, tx, "runs_read", `SELECT run_id, workflow_id, workflow_name, status, workflow_definition_id::text,
 input_data::text, triggered_by, cancelled_by, error_message, created_at::timestamp, updated_at::timestamp,
 completed_at::timestamp, cancelled_at::timestamp FROM workflow_runs ORDER BY run_id`)
}

// steps gives the rows of all runs in the order of [database.runs].
func (d *database) steps(ctx context.Context, tx pgx.Tx) (*cursor[stepRow], error) {
	optional := func(column string) string {
		return strings.Replace(d.optional("step_executions", column), column+"::", "s."+column+"::", 1)
	}
	return declare[stepRow](ctx, tx, "steps_read", `SELECT s.id, s.run_id, s.step_id, s.step_name, s.agent_name, s.status,
 s.input_data::text, s.output_data::text, s.error_message, `+optional("parent_step_id")+`, `+optional("branch_name")+`,
 `+optional("join_policy")+`, s.started_at::timestamp, s.completed_at::timestamp
 FROM step_executions s JOIN workflow_runs r ON r.run_id = s.run_id ORDER BY r.run_id, s.started_at, s.id`)
}

func (d *database) audits(ctx context.Context, tx pgx.Tx) (*cursor[auditRow], error) {
	return declare[auditRow](ctx, tx, "audit_read", `SELECT id::text, entity_type, entity_id::text, action, user_id, changes::text,
 created_at::timestamp FROM audit_logs ORDER BY created_at, id`)
}

// orphans counts the steps of runs that are not there.
func (d *database) orphans(ctx context.Context, tx pgx.Tx) (int, error) {
	return count(ctx, tx, `SELECT count(*) FROM step_executions s WHERE NOT EXISTS (SELECT 1 FROM workflow_runs r WHERE r.run_id = s.run_id)`)
}

func count(ctx context.Context, tx pgx.Tx, query string) (n int, err error) {
	err = tx.QueryRow(ctx, query).Scan(&n)
	return n, failed(ctx, "counting", err)
}
