package oldplatform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley"
)

const (
	// lockWait is how long a change waits for its lock: everybody who uses the
	// table after it waits along, so it gives up soon and tries again.
	lockWait = time.Second
	// indexWait is the same for what lets others read and write meanwhile, and
	// only waits for transactions to end that began before.
	indexWait = 30 * time.Second
	// lockPause is the time between two tries, patience how long they go on.
	lockPause = 500 * time.Millisecond
	patience  = 30 * time.Second
)

// The names of AD-6 (seed 001).
const (
	protocolColumn = "protocol"
	configColumn   = "protocol_config"
	protocolIndex  = "ix_agents_protocol"
)

// MigrateOptions are those of [MigrateUp] and [MigrateDown].
type MigrateOptions struct {
	// Address is as in [Options].
	Address string
	// Tell is told what was done, and what a person should know, a line each.
	Tell func(text string)
	// Patience bounds how long others may keep table agents from being changed;
	// default 30 s.
	Patience time.Duration
}

// MigrateUp adds the protocol columns and their index to table agents of the
// existing platform (AD-6). Its API and its bridge go on working meanwhile, and
// afterwards: nothing that they do names the columns. No row is changed: all
// agents have protocol simple-a2a. What is there already stays, so that it may
// be repeated.
//
// The error is a [*parley.Error]: invalid as in [Import], or if the user may not
// change the table, conflict if there are
// columns of these names and another kind, unavailable if the database fails, or
// others hold the table for too long.
func MigrateUp(ctx context.Context, o MigrateOptions) error {
	return migrating(ctx, o, func(m *migration) error {
		missing, err := m.missing(ctx)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			if err := m.change(ctx, lockWait, `ALTER TABLE agents `+strings.Join(missing, ", ")); err != nil {
				return err
			}
			m.tell("agents: added the columns %s (%s for every agent) and %s", protocolColumn, parley.ProtocolSimpleA2A, configColumn)
		}
		made, err := m.makeIndex(ctx)
		if err != nil {
			return err
		}
		if made {
			m.tell("agents: added the index %s", protocolIndex)
		}
		if len(missing) == 0 && !made {
			m.tell("nothing to do: the columns and the index are there")
		}
		return m.tellProtocols(ctx)
	})
}

// MigrateDown removes what [MigrateUp] adds, and says which settings go with it.
// No row is lost. It may be repeated. Errors are as there.
func MigrateDown(ctx context.Context, o MigrateOptions) error {
	return migrating(ctx, o, func(m *migration) error {
		if _, err := m.missing(ctx); err != nil {
			return err
		}
		if err := m.tellDropped(ctx); err != nil {
			return err
		}
		if err := m.change(ctx, indexWait, `DROP INDEX CONCURRENTLY IF EXISTS `+protocolIndex); err != nil {
			return err
		}
		var drop []string
		for _, column := range []string{protocolColumn, configColumn} {
			if m.db.has("agents", column) {
				drop = append(drop, "DROP COLUMN IF EXISTS "+column)
			}
		}
		if len(drop) == 0 {
			m.tell("nothing to do: the columns are not there")
			return nil
		}
		if err := m.change(ctx, lockWait, `ALTER TABLE agents `+strings.Join(drop, ", ")); err != nil {
			return err
		}
		m.tell("agents: dropped the columns %s and %s and the index %s", protocolColumn, configColumn, protocolIndex)
		return nil
	})
}

type migration struct {
	db      *database
	options MigrateOptions
	// trying ends when there shall be no further try. Statements that are under
	// way then go on: whether they did what they do would not be known.
	trying context.Context //nolint:containedctx // it is a deadline, and bounds no call
}

func (m *migration) tell(format string, args ...any) { m.options.Tell(fmt.Sprintf(format, args...)) }

func migrating(ctx context.Context, o MigrateOptions, do func(*migration) error) error {
	d, err := open(ctx, o.Address)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.mayChange(ctx); err != nil {
		return err
	}
	if o.Patience <= 0 {
		o.Patience = patience
	}
	trying, stop := context.WithTimeout(ctx, o.Patience)
	defer stop()
	return do(&migration{d, o, trying})
}

// missing gives the parts of ALTER TABLE that are needed, and refuses columns
// that are there with another meaning.
func (m *migration) missing(ctx context.Context) ([]string, error) {
	rows, err := m.db.conn.Query(ctx, `SELECT column_name, data_type, is_nullable, coalesce(column_default, '') FROM information_schema.columns
 WHERE to_regclass(format('%I.%I', table_schema, table_name)) = to_regclass('agents') AND column_name IN ($1, $2)`, protocolColumn, configColumn)
	if err != nil {
		return nil, failed(ctx, "looking at table agents", err)
	}
	found := make(map[string]bool)
	var name, kind, nullable, value string
	var wrong error
	_, err = pgx.ForEachRow(rows, []any{&name, &kind, &nullable, &value}, func() error {
		found[name] = true
		fits := name == configColumn && strings.HasPrefix(kind, "json") ||
			name == protocolColumn && (kind == "character varying" || kind == "text") && nullable == "NO" &&
				strings.HasPrefix(value, "'"+parley.ProtocolSimpleA2A+"'")
		if !fits {
			wrong = parley.Errorf(parley.CodeConflict,
				"table agents has a column %s already, of type %s with default %q, which is not what this migration makes: rename or drop it first", name, kind, value)
		}
		return nil
	})
	if err != nil {
		return nil, failed(ctx, "looking at table agents", err)
	}
	var add []string
	if !found[protocolColumn] {
		// A constant default is not written into the rows: the table is locked for a
		// moment only.
		add = append(add, "ADD COLUMN "+protocolColumn+" VARCHAR NOT NULL DEFAULT '"+parley.ProtocolSimpleA2A+"'")
	}
	if !found[configColumn] {
		add = append(add, "ADD COLUMN "+configColumn+" JSONB")
	}
	return add, wrong
}

// makeIndex makes the index while others write. One that an earlier try has left
// unfinished is made anew.
func (m *migration) makeIndex(ctx context.Context) (made bool, err error) {
	const text = "making the index"
	for {
		var valid bool
		err := m.db.conn.QueryRow(ctx, `SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE i.indrelid = to_regclass('agents') AND c.relname = $1`, protocolIndex).Scan(&valid)
		switch {
		case err == nil && valid:
			return made, nil
		case err == nil:
			if err := m.change(ctx, indexWait, `DROP INDEX CONCURRENTLY IF EXISTS `+protocolIndex); err != nil {
				return false, err
			}
		case !errors.Is(err, pgx.ErrNoRows):
			return false, failed(ctx, text, err)
		}
		err = m.try(ctx, indexWait, `CREATE INDEX CONCURRENTLY `+protocolIndex+` ON agents (`+protocolColumn+`)`)
		if err != nil && !isLocked(err) {
			return false, failed(ctx, text, err)
		}
		if made = err == nil; !made && m.trying.Err() != nil {
			return false, m.held(ctx)
		}
	}
}

// change executes a statement that takes a lock, as often as that needs.
func (m *migration) change(ctx context.Context, wait time.Duration, statement string) error {
	for {
		err := m.try(ctx, wait, statement)
		if err == nil || !isLocked(err) {
			return failed(ctx, "changing table agents", err)
		}
		select {
		case <-time.After(lockPause):
		case <-m.trying.Done():
			return m.held(ctx)
		}
	}
}

// try executes one statement within a bound on the wait for its lock.
func (m *migration) try(ctx context.Context, wait time.Duration, statement string) error {
	if _, err := m.db.conn.Exec(ctx, fmt.Sprintf(`SET lock_timeout = %d`, wait.Milliseconds())); err != nil {
		return err
	}
	_, err := m.db.conn.Exec(ctx, statement)
	return err
}

// isLocked reports whether a statement has given up waiting for its lock.
func isLocked(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "55P03" || e.Code == "40P01")
}

// held says who holds table agents.
func (m *migration) held(ctx context.Context) error {
	rows, err := m.db.conn.Query(ctx, `SELECT DISTINCT l.pid::text || coalesce(' (' || nullif(a.application_name, '') || ')', '')
 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.relation = 'agents'::regclass AND l.granted AND l.pid <> pg_backend_pid() LIMIT 10`)
	if err != nil {
		return failed(ctx, "looking for locks", err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return failed(ctx, "looking for locks", err)
	}
	slices.Sort(pids)
	return parley.Errorf(parley.CodeUnavailable,
		"other sessions hold table agents all the time (pid %s): end their transactions, then do this again; nothing is half done", strings.Join(pids, ", "))
}

// tellProtocols names what is to be done after the columns are there.
func (m *migration) tellProtocols(ctx context.Context) error {
	n, err := m.number(ctx, `SELECT count(*) FROM agents WHERE `+protocolColumn+` = '`+parley.ProtocolSimpleA2A+`'`)
	if err == nil && n > 0 {
		m.tell("%d agents say %s; for one that speaks JSON-RPC 2.0: UPDATE agents SET %s = '%s' WHERE name = '…'",
			n, parley.ProtocolSimpleA2A, protocolColumn, parley.ProtocolJSONRPC)
	}
	return err
}

// tellDropped says which settings go with the columns.
func (m *migration) tellDropped(ctx context.Context) error {
	if m.db.has("agents", protocolColumn) {
		n, err := m.number(ctx, `SELECT count(*) FROM agents WHERE `+protocolColumn+` <> '`+parley.ProtocolSimpleA2A+`'`)
		if err != nil {
			return err
		}
		m.tell("%d agents have another protocol than %s, which is dropped with the column", n, parley.ProtocolSimpleA2A)
	}
	if m.db.has("agents", configColumn) {
		n, err := m.number(ctx, `SELECT count(*) FROM agents WHERE `+configColumn+` IS NOT NULL`)
		if err != nil {
			return err
		}
		m.tell("%d agents have a %s, which is dropped with the column", n, configColumn)
	}
	return nil
}

func (m *migration) number(ctx context.Context, query string) (n int, err error) {
	err = m.db.conn.QueryRow(ctx, query).Scan(&n)
	return n, failed(ctx, "counting", err)
}
