package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// statementWait bounds the answer to statements before a COMMIT. Waiting for
	// rows that others have locked is shorter: lock_timeout.
	statementWait = 20 * time.Second
	// commitWait bounds the answer to a COMMIT, which may wait for a standby. After
	// it nobody knows what became of it.
	commitWait = 60 * time.Second
)

// errLost is in the chain of errors of a connection that is gone.
var errLost = errors.New("the connection to the database was lost")

// pgLink is a write connection of PostgreSQL. The statements of all units of a
// transaction that are known travel together: see pgGroup.
type pgLink struct {
	conn       *pgconn.PgConn
	statements map[string]*pgStatement
	prepared   int
	// warned is set by a warning of the server, alone by the one that somebody has
	// ended the wait for the standby.
	warned string
	alone  bool
	gone   bool
	// careful is how many transactions guess nothing yet, since a guess was wrong.
	careful int
}

// carefulFor is how many transactions after a wrong guess make none: so many that
// what wrong guesses cost is a few hundredths at most, and so few that a rare one is
// soon forgotten.
const carefulFor = 32

// postgresConnect opens a connection to the host that takes writes.
func postgresConnect(ctx context.Context, _ *dialect, target string, o Options) (link, error) {
	c, err := postgresConfig(target, o, map[string]string{
		"synchronous_commit": "on", "plan_cache_mode": "force_generic_plan", "enable_hashjoin": "off", "enable_mergejoin": "off",
	})
	if err != nil {
		return nil, err
	}
	l := &pgLink{statements: map[string]*pgStatement{}}
	c.ValidateConnect = replicated(settled(pgconn.ValidateConnectTargetSessionAttrsReadWrite))
	c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			l.warned, l.alone = n.Message, n.Routine == "SyncRepWaitForLSN"
		}
	}
	// A connection that breaks has its driver ask the server, over another one, to
	// cancel what is under way. A COMMIT must never be cancelled: it would be
	// written without the standby.
	var connected atomic.Bool
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("nothing is cancelled")
		}
		return o.Dial(ctx, network, address)
	}
	if l.conn, err = pgconn.ConnectConfig(ctx, &c.Config); err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	connected.Store(true)
	return l, nil
}

const selectSafety = `SELECT current_setting('fsync'), current_setting('synchronous_standby_names'),
 (SELECT count(*) FROM pg_stat_replication)::text, current_setting('idle_in_transaction_session_timeout')`

// risk looks for the ways in which a server loses what it has committed
// (protocol.md §4.13).
func (l *pgLink) risk(ctx context.Context) (string, error) {
	if err := l.within(statementWait); err != nil {
		return "", err
	}
	res := l.conn.ExecParams(ctx, selectSafety, nil, nil, nil, nil).Read()
	if res.Err != nil {
		return "", l.lost(res.Err)
	}
	if len(res.Rows) != 1 {
		return "", l.lost(errors.New("it did not say how it is set up"))
	}
	fsync, names, standbys, limit := string(res.Rows[0][0]), string(res.Rows[0][1]), string(res.Rows[0][2]), string(res.Rows[0][3])
	switch {
	case fsync == "off":
		return "fsync is off, so that it loses what it has committed when the machine fails: set fsync = on", nil
	case standbys != "0" && names == "":
		return "a standby is attached that no commit waits for, so that a failover loses what was committed: set synchronous_standby_names", nil
	case limit != stoppedLimit:
		return "it has not got the settings of the session, as behind a pooler that ignores them, so that limits of the server can cut a COMMIT off " +
			"and rows stay locked: name PostgreSQL itself in database.url", nil
	default:
		return "", nil
	}
}

func (l *pgLink) broken() bool { return l.gone || l.conn.IsClosed() }

func (l *pgLink) close() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	return l.conn.Close(ctx)
}

// within sets the time at which the connection is given up.
func (l *pgLink) within(d time.Duration) error {
	if err := l.conn.Conn().SetDeadline(time.Now().Add(d)); err != nil {
		return l.lost(err)
	}
	return nil
}

// lost gives the connection up unless err is an answer of the server after which
// it goes on.
func (l *pgLink) lost(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.SeverityUnlocalized == "ERROR" {
		return err
	}
	l.gone = true
	return fmt.Errorf("%w: %w", errLost, err)
}

func (l *pgLink) run(units []*unit, synced bool) error {
	l.careful = max(0, l.careful-1)
	g := newPGGroup(l, units, synced)
	err := g.execute()
	g.stop()
	if errors.Is(err, errLate) {
		l.careful = carefulFor
	}
	if takesNoWrites(err) {
		l.gone = true // the next connection may find another server, or this one changed
	}
	if err != nil {
		l.rollback(g.begun)
		return err
	}
	if !g.begun {
		return nil // every unit was refused, or had nothing to write
	}
	return l.commit()
}

// rollback undoes the transaction, or gives up the connection, which does it
// too.
func (l *pgLink) rollback(begun bool) {
	if l.broken() || !begun {
		return
	}
	if err := l.within(statementWait); err != nil {
		return
	}
	if _, err := l.conn.Exec(context.Background(), "ROLLBACK").ReadAll(); err != nil || l.conn.TxStatus() != 'I' {
		l.gone = true
	}
}

// commit says ErrInDoubt unless the server's answer is plain.
func (l *pgLink) commit() error {
	l.warned, l.alone = "", false
	if err := l.within(commitWait); err != nil {
		return err // it was not sent
	}
	res, err := l.conn.Exec(context.Background(), "COMMIT").ReadAll()
	switch {
	case err != nil:
		// An error that leaves the session alive says that it was rolled back.
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.SeverityUnlocalized == "ERROR" && !l.conn.IsClosed() && l.warned == "" {
			return err
		}
		l.gone = true
		return fmt.Errorf("%w: the answer to its COMMIT was lost: %w", ErrInDoubt, err)
	case l.alone && l.awaitStandby():
		return nil
	case l.warned != "":
		return fmt.Errorf("%w: the server warned: %s", ErrInDoubt, l.warned)
	case len(res) != 1 || res[0].CommandTag.String() != "COMMIT":
		return errors.New("the transaction was rolled back")
	}
	return nil
}

// awaitStandby reports whether the standby has what was committed without it, because
// somebody has ended the wait. Others are shown it already, and so would be the caller
// who reads again: to be told that it is in doubt is no help to them.
func (l *pgLink) awaitStandby() bool {
	for range repeats {
		before := l.warned
		l.warned = ""
		_, err := l.conn.Exec(context.Background(), awaitStandby).ReadAll()
		if err == nil && l.warned == "" {
			return true
		}
		if l.warned == "" {
			l.warned = before
		}
		if l.conn.IsClosed() {
			break
		}
	}
	l.gone = true
	return false
}
