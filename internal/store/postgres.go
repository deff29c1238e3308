package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/parley-project/parley"
)

const (
	// dialTimeout bounds the making of one connection.
	dialTimeout = 5 * time.Second
	// silenceWait is how long nobody may receive what was sent. It is longer than
	// statements wait for rows: a server that does reads nothing meanwhile.
	silenceWait = 15 * time.Second
	// stoppedLimit is how long a process that was stopped keeps rows locked.
	stoppedLimit = "10s"
	// schemaLock is the advisory lock under which the schema is changed.
	schemaLock = 0x7061726c6579
	// stepWait is how long a step of the schema waits for a table that others use.
	// Everybody who comes later waits behind it: it is shorter than they wait for locks.
	stepWait = 5 * time.Second
)

// keepAlive finds out within some ten seconds, or silenceWait, that the other side
// is gone.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
}

func postgresDialect() dialect {
	return dialect{
		migrations: "migrations/postgres",
		goose:      goose.DialectPostgres,
		locker:     postgresLocker{step: stepWait},
		// As IN (…) the subselect may be executed again for each row, with a limit
		// of its own each time.
		picked:   func(subselect string) string { return "= ANY (ARRAY(" + subselect + " FOR UPDATE SKIP LOCKED))" },
		rebind:   numberParameters,
		text:     postgresText,
		plain:    postgresPlain,
		guesses:  true,
		notifies: true,
		time:     `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`,
		version:  `SELECT 'PostgreSQL ' || current_setting('server_version')`,
		begun:    `SELECT to_regclass('goose_db_version') IS NOT NULL`,
		others: `SELECT CASE WHEN 'goose_db_version' = ANY (t) THEN CASE WHEN NOT t && ARRAY['attempt', 'definition', 'late'] THEN 'goose_db_version' END
 WHEN 'agents' = ANY (t) THEN 'agents' END FROM (SELECT array_agg(tablename::text) t FROM pg_tables WHERE schemaname = current_schema()) x`,
		twoPlaces: twoPlaces,
		snapshot:  sql.LevelRepeatableRead,
		together:  postgresTogether,
		connector: postgresConnector,
		connect:   postgresConnect,
		prepare:   func(string) error { return nil },
		classify:  postgresClassify, full: postgresFull,
		explain:  postgresExplain,
		there:    `SELECT to_regclass(?) IS NOT NULL`,
		silence:  readWait,
		readOnly: `SELECT current_setting('transaction_read_only')`,
		name:     postgresName,
	}
}

// postgresConfig reads a target, and the files that it names, for a new connection.
// Every session gets what the store relies on, whatever the server's defaults are; use
// adds its own.
func postgresConfig(target string, o Options, parameters map[string]string) (*pgx.ConnConfig, error) {
	c, err := parsePostgres(target)
	if err != nil {
		return nil, err
	}
	if o.Current != nil {
		now, err := o.Current()
		if err != nil {
			return nil, unreadError{err}
		}
		current, err := parsePostgres(now)
		if err != nil {
			return nil, err
		}
		c.User, c.Password = current.User, current.Password
	}
	// A COMMIT must not be interrupted by a timeout, and a process that was
	// stopped must not keep rows locked. A COMMIT that did not wait for the standby
	// says so by a warning.
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "parley"
	}
	maps.Copy(c.RuntimeParams, map[string]string{
		"client_encoding": "UTF8", "statement_timeout": "0", "lock_timeout": "10s",
		"idle_in_transaction_session_timeout": stoppedLimit, "default_transaction_isolation": "read committed",
		"enable_seqscan": "off", "jit": "off", "client_min_messages": "notice", "timezone": "UTC",
		"standard_conforming_strings": "on",
	})
	maps.Copy(c.RuntimeParams, parameters)
	c.DialFunc = o.Dial
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = dialTimeout
	}
	// No decision from a standby.
	c.ValidateConnect = settled(pgconn.ValidateConnectTargetSessionAttrsPrimary)
	return c, nil
}

// parsePostgres parses a target and reads the files that it names.
func parsePostgres(target string) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(PlainURL(target))
	if err == nil {
		return c, nil
	}
	// The driver has no other name for what is no mistake in the URL.
	if text := err.Error(); strings.Contains(text, ": failed to configure TLS (") || strings.Contains(text, ": failed to read service (") {
		return nil, unreadError{errors.Unwrap(err)}
	}
	// The cause may hold the password.
	return nil, parley.Errorf(parley.CodeInvalid,
		"the database URL cannot be read: it is postgres://USER:PASSWORD@HOST:PORT/DATABASE, with the special characters of its parts as %%XX")
}

// unreadError says that the file of a password or a certificate is of no use as it is
// now. What it is about is no error of the caller's, so that it does not unwrap.
type unreadError struct{ error }

// postgresConnector opens the connections of database/sql, each with what files hold
// when it is made.
func postgresConnector(target string, o Options, use use) (driver.Connector, error) {
	parameters := map[string]string{}
	decides := false
	switch use {
	case forReading:
		parameters["default_transaction_read_only"], parameters["synchronous_commit"], decides = "on", "on", true
		parameters["default_transaction_isolation"] = "repeatable read" // see [postgresTogether]
	case forLooking:
		parameters["default_transaction_read_only"] = "on"
	case forNotices:
		parameters["synchronous_commit"] = "off"
	case forWriting:
		parameters["synchronous_commit"], decides = "on", true
	}
	return stdlib.GetConnector(pgx.ConnConfig{}, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		now, err := postgresConfig(target, o, parameters)
		if err != nil {
			return err
		}
		*c = *now
		if decides {
			c.ValidateConnect = replicated(c.ValidateConnect)
		}
		return nil
	})), nil
}

// postgresName says which database it is, and as whom, without a secret.
func postgresName(target string) string {
	target = PlainURL(target)
	c, err := pgx.ParseConfig(target)
	if err == nil {
		return fmt.Sprintf("%s on %s as %s", c.Database, net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), c.User)
	}
	u, err := url.Parse(target) // a file that it names is of no use, perhaps
	if err != nil {
		return "(a URL that cannot be read)"
	}
	return fmt.Sprintf("%s on %s as %s", strings.TrimPrefix(u.Path, "/"), u.Host, u.User.Username())
}

// settled refuses a database that cannot hold all texts, and ends the limits of
// sessions that only newer servers have, whatever the server, the database or the user
// is set to: an older server refuses to be asked for them at the start. Then check looks
// at what the server is.
func settled(check pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if e := conn.ParameterStatus("server_encoding"); !holdsAll(e) {
			return encodingError(e)
		}
		var sets []string
		version := serverVersion(conn.ParameterStatus("server_version"))
		if version >= 17 { // it would cut a COMMIT off, too
			sets = append(sets, "SET transaction_timeout = 0")
		}
		if version >= 14 { // who listens is silent for long
			sets = append(sets, "SET idle_session_timeout = 0")
		}
		if len(sets) > 0 {
			if _, err := conn.Exec(ctx, strings.Join(sets, "; ")).ReadAll(); err != nil {
				return err
			}
		}
		return check(ctx, conn)
	}
}

// encodingError is the name of an encoding that lacks characters.
type encodingError string

// Error says so.
func (e encodingError) Error() string { return "its encoding is " + string(e) }

// holdsAll reports whether a database of that encoding takes every text that it is sent.
// One of SQL_ASCII keeps the bytes as they come.
func holdsAll(encoding string) bool { return encoding == "UTF8" || encoding == "SQL_ASCII" }

// twoPlaces gives the schema that has the tables of Parley and the one that new tables go
// to, if they are two.
const twoPlaces = `SELECT n.nspname, current_schema() FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass('goose_db_version') AND n.nspname <> current_schema()
 AND EXISTS (SELECT 1 FROM pg_tables t WHERE t.schemaname = n.nspname AND t.tablename = 'attempt')`

// awaitStandby is a commit that says nothing. It waits, as every synced one does, until
// the standby has it and with it all that came before. Without a standby to wait for
// nothing is written.
const awaitStandby = `SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
 THEN pg_logical_emit_message(true, 'parley', ''::text) END`

// replicated waits, after check, until the standby has all that the server shows. One
// that was restarted, or has died, while commits waited for the standby shows them
// afterwards: what was in doubt looks decided, and is gone if the standby takes over
// now. So nobody is answered, and no agent called, by what such a server shows; its
// connections have ended with it, so that it is enough to look when one is made.
func replicated(check pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := check(ctx, conn); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, awaitStandby).ReadAll(); err != nil {
			if ctx.Err() == nil {
				return err // the connection was cut, or the server refuses it
			}
			// Not wrapped: the driver says no more of an error than that it is a timeout.
			return fmt.Errorf("its standby (synchronous_standby_names) has not confirmed what it shows: %v", err)
		}
		return nil
	}
}

// serverVersion gives the first number of a version such as 17.2 or 18beta1, 0 for
// none.
func serverVersion(text string) (version int) {
	for i := 0; i < len(text) && text[i] >= '0' && text[i] <= '9' && version < 1000; i++ {
		version = version*10 + int(text[i]-'0')
	}
	return version
}

// postgresClassify tells errors apart by their SQLSTATE. Without one there was
// no answer of the server.
func postgresClassify(err error) errorClass {
	if errors.Is(err, errLate) {
		return classOther
	}
	if _, ok := errors.AsType[unreadError](err); ok {
		return classLost
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return classLost
	}
	if takesNoWrites(err) {
		return classLost
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if errors.Is(err, errLost) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
			return classLost
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err) {
			return classLost
		}
		if _, ok := errors.AsType[net.Error](err); ok {
			return classLost
		}
		return classOther
	}
	switch {
	// Admin shutdown, crash, idle or transaction timeout: the session is over.
	case strings.HasPrefix(e.Code, "57P") || strings.HasPrefix(e.Code, "08") || e.Code == "25P03" || e.Code == "25P04":
		return classLost
	case e.Code == "53300": // too many connections
		return classLost
	// Deadlock, serialization, a unique key that somebody else was faster with, a
	// statement that somebody has cancelled: no limit of ours does.
	case e.Code == "40P01" || e.Code == "40001" || e.Code == "23505" || e.Code == "57014":
		return classRepeat
	case strings.HasPrefix(e.Code, "23"):
		return classConflict
	case e.Code == "42P01" || e.Code == "42703" || e.Code == "3F000": // no such table, column, schema
		return classSchema
	case e.Code == "42501":
		return classDenied
	case strings.HasPrefix(e.Code, "54"):
		return classLimit
	// Resources, locks, the server's own disk.
	case strings.HasPrefix(e.Code, "53") || strings.HasPrefix(e.Code, "55") || strings.HasPrefix(e.Code, "58"):
		return classBusy
	default:
		return classOther
	}
}

// postgresText gives a string as a column of type text can hold it. U+0000,
// U+0001 and bytes that are no UTF-8 become U+0001 and two digits each; all
// other strings stay as they are.
func postgresText(s string) string {
	plain := utf8.ValidString(s)
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] > 1
	}
	if plain {
		return s
	}
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r > 1 && (r != utf8.RuneError || n > 1) {
			b.WriteString(s[i : i+n])
		} else {
			b.Write([]byte{1, digits[s[i]>>4], digits[s[i]&15]})
		}
		i += n
	}
	return b.String()
}

// postgresPlain is the reverse of postgresText.
func postgresPlain(s string) string {
	if strings.IndexByte(s, 1) < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == 1 && i+2 < len(s) {
			b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// postgresLocker holds an advisory lock while the schema is looked at or
// changed, so that several processes may start at once.
type postgresLocker struct {
	// step is how long each step waits for a table.
	step time.Duration
}

func (l postgresLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range []string{
		`SET lock_timeout = 0`, // it may take as long as the migrations of another process do
		fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, schemaLock),
		fmt.Sprintf(`SET lock_timeout = %d`, l.step.Milliseconds()),
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (postgresLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`SELECT pg_advisory_unlock(%d)`, schemaLock))
	return err
}
