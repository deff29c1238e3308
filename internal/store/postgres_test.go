package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// network makes connections whose next COMMIT meets a fault.
type network struct {
	mu     sync.Mutex
	fault  string
	commit func() // lets a held COMMIT go
}

// The faults of a COMMIT, as its sender sees them: all three are a connection
// that breaks.
const (
	commitLost     = "is lost"
	commitReplied  = "arrives, its reply is lost"
	commitDelayed  = "arrives later"
	commitMessage  = "COMMIT\x00"
	readyForQuery  = 'Z'
	anyMessageSize = 1 << 16
)

func (n *network) arm(fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault, n.commit = fault, func() {}
}

// release lets a COMMIT arrive that was held back, and waits for its end.
func (n *network) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commit()
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &faultyLine{Conn: c, n: n}, err
}

// faultyLine is a connection that a fault cuts. The driver reads in the background when
// a write takes long.
type faultyLine struct {
	net.Conn
	n       *network
	reading sync.Mutex
	gone    atomic.Bool
}

func (c *faultyLine) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.gone.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if c.gone.Load() {
		return 0, io.EOF
	}
	return n, err
}

func (c *faultyLine) Close() error {
	if c.gone.Load() {
		return nil // the fault closes it
	}
	return c.Conn.Close()
}

// cut ends the line for the driver: what comes from now on is for the fault.
func (c *faultyLine) cut() {
	c.gone.Store(true)
	c.SetReadDeadline(time.Now())
	c.reading.Lock() // whoever reads has left
	defer c.reading.Unlock()
	c.SetReadDeadline(time.Time{})
}

func (c *faultyLine) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(commitMessage)) {
		return c.Conn.Write(b)
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	fault := c.n.fault
	if fault == "" {
		return c.Conn.Write(b)
	}
	c.n.fault = ""
	c.cut()
	message := bytes.Clone(b)
	deliver := func() {
		c.SetDeadline(time.Now().Add(time.Minute))
		c.Conn.Write(message)
		reply := make([]byte, anyMessageSize)
		for {
			n, err := c.Conn.Read(reply)
			if err != nil || n >= 6 && reply[n-6] == readyForQuery {
				break
			}
		}
		c.Conn.Close()
	}
	switch fault {
	case commitLost:
		c.Conn.Close()
	case commitReplied:
		deliver()
	case commitDelayed:
		c.n.commit = deliver
	}
	return len(b), nil
}

// A COMMIT whose reply is lost may have happened, may not, or may happen later:
// the caller hears that the outcome is unknown, and repeating is harmless.
func TestCommitInDoubt(t *testing.T) {
	for _, fault := range []string{commitLost, commitReplied, commitDelayed} {
		t.Run(fault, func(t *testing.T) {
			n := &network{}
			db := reopen(t, pgtest.Database(t), Options{Writers: 1, Dial: n.dial})
			c := bridge(t, db, "b1")
			for i, call := range scenario(db, c) {
				before := dump(t, db)
				n.arm(fault)
				err := call(t.Context())
				if !errors.Is(err, ErrInDoubt) || parley.CodeOf(err) != parley.CodeUnavailable {
					t.Fatalf("call %d: error %v", i, err)
				}
				if now := dump(t, db); (now == before) != (fault != commitReplied) {
					t.Fatalf("call %d: changed: %v", i, now != before)
				}
				n.release()
				if err := call(t.Context()); err != nil && (fault == commitLost || !errors.Is(err, ErrStale)) {
					t.Fatalf("call %d repeated: error %v", i, err)
				}
			}
			checkEnded(t, db)
			if late := len(must(db.Late(t.Context(), "run-1.b.1"))(t)); late != 0 {
				t.Fatalf("%d late answers", late)
			}
		})
	}
}

// Any text can be stored and found again, and values are bytes.
func TestAnyText(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for i, odd := range []string{
			"nul \x00 in it", "\x00", "\x01", "\x0100", "\x01", "not \xff UTF-8 \xc3", "\u0001\u0000\u0001", "plain ☃",
		} {
			t.Run(fmt.Sprintf("%q", odd), func(t *testing.T) {
				run := fmt.Sprintf("run-%d", i)
				a := attempt(run, "a", 1)
				a.ContextID, a.CorrelationID, a.Agent = odd, odd, odd
				a.Input = json.RawMessage(fmt.Sprintf("%q", "\x00") + odd)
				st := start(run, a)
				st.IdempotencyKey, st.Run.TriggeredBy = fmt.Sprint(i, odd), odd
				must(db.StartRun(ctx, st))(t)
				st.Run.ID, st.Events, st.Attempts, st.Run.Seq = "other", []parley.Event{event("other", 1, parley.EventRunStarted, "")}, nil, 1
				diff(t, must(db.StartRun(ctx, st))(t), run)
				got := row(t, db, a.ID)
				diff(t, []string{got.ContextID, got.CorrelationID, got.Agent, string(got.Input)}, []string{odd, odd, odd, string(a.Input)})
				diff(t, must(db.RunRow(ctx, run))(t).TriggeredBy, odd)
				c := bridge(t, db, "bridge "+odd)
				c = claim(t, db, c, a.ID, "token "+odd)
				if !must(db.Move(ctx, Move{Kind: MoveFollow, TaskID: a.ID, From: c, AgentTaskID: odd, At: epoch}))(t) {
					t.Error("not mine")
				}
				diff(t, row(t, db, a.ID).AgentTaskID, odd)
				diff(t, len(must(db.Owned(ctx, c.Worker, c.Inc))(t)), 1)
			})
		}
	})
}

func FuzzPostgresText(f *testing.F) {
	f.Add("a\x00b", "a\x0100b")
	f.Add("\xff", "\x01ff")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := postgresText(a), postgresText(b)
		if postgresPlain(x) != a {
			t.Errorf("%q became %q", a, postgresPlain(x))
		}
		if strings.Contains(x, "\x00") || strings.ToValidUTF8(x, "") != x {
			t.Errorf("%q cannot be stored", x)
		}
		if (a == b) != (x == y) {
			t.Errorf("%q and %q are %q and %q", a, b, x, y)
		}
	})
}

// What is too long for an index is refused with words.
func TestTooLong(t *testing.T) {
	db := reopen(t, pgtest.Database(t), Options{})
	st := start("run-1")
	for i := range 4000 { // no compression helps
		st.IdempotencyKey += fmt.Sprintf("%x", i*i*i)
	}
	_, err := db.StartRun(t.Context(), st)
	wantCode(t, err, parley.CodeLimit)
}

// Attempts are found by the range of their ids, whatever order the database
// gives to texts.
func TestCollation(t *testing.T) {
	target := pgtest.Database(t)
	u, err := url.Parse(target)
	check(t, err)
	name := strings.TrimPrefix(u.Path, "/") + "_icu"
	conn, err := pgx.Connect(t.Context(), target)
	check(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'`)
	check(t, err)
	defer conn.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`)
	u.Path = "/" + name
	db := reopen(t, u.String(), Options{})
	for _, run := range []string{"run-1", "run-10", "Run-1", "run-1/x", "run-1 "} {
		begin(t, db, run, attempt(run, "a", 1), attempt(run, "B[2].c", 1))
	}
	diff(t, len(must(db.Attempts(t.Context(), "run-1"))(t)), 2)
	diff(t, len(must(db.History(t.Context(), "run-1"))(t).Attempts), 2)
}

// What cannot be opened is named, and what to do; a password never is.
func TestOpenPostgres(t *testing.T) {
	target := pgtest.Database(t)
	change := func(f func(*url.URL)) string {
		u, err := url.Parse(target)
		check(t, err)
		f(u)
		return u.String()
	}
	var log bytes.Buffer
	for name, c := range map[string]struct {
		target string
		code   parley.Code
		words  string
	}{
		"no URL":         {"postgres://user:hush@host:port:1/%zz", parley.CodeInvalid, "postgres://USER:PASSWORD@HOST"},
		"wrong password": {change(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "hush") }), parley.CodeUnavailable, "password"},
		"no database":    {change(func(u *url.URL) { u.Path = "/nowhere" }), parley.CodeUnavailable, "nowhere"},
		"nobody there": {
			change(func(u *url.URL) { u.Host, u.User = "127.0.0.1:1", url.UserPassword("me", "hush") }), parley.CodeUnavailable, "refused",
		},
		"nobody at two": {
			change(func(u *url.URL) { u.Host = "127.0.0.1:1,127.0.0.1:2" }), parley.CodeUnavailable, "; 127.0.0.1:2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.target, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			wantCode(t, err, c.code)
			u, _ := url.Parse(target)
			password, _ := u.User.Password()
			for _, secret := range []string{"hush", password, url.QueryEscape(password), u.User.String()} {
				if strings.Contains(err.Error()+log.String(), secret) {
					t.Errorf("a secret in %q, %q", err, &log)
				}
			}
			if !strings.Contains(err.Error(), c.words) || strings.ContainsAny(err.Error(), "\n\t") {
				t.Errorf("%q does not say %q, or not on one line", err, c.words)
			}
		})
	}
	db := reopen(t, target, Options{})
	if _, err := db.readers.ExecContext(t.Context(), `DELETE FROM run`); err == nil {
		t.Error("a reader has written")
	}
}

// TestQuestionsHaveAnEnd: whatever is asked on a connection that writes has a time
// after which the connection is given up.
func TestQuestionsHaveAnEnd(t *testing.T) {
	line := &boundedLine{}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &boundedConn{Conn: c, line: line}, err
	}
	db := openedAt(t, pgtest.Copy(t, migrated(t)), Options{Writers: 1, Dial: dial})
	begin(t, db, "run-1", attempt("run-1", "a", 1))
	if line.asked.Load() == 0 || line.endless.Load() > 0 {
		t.Errorf("%d questions about the server, %d of them without an end", line.asked.Load(), line.endless.Load())
	}
}

// boundedLine counts the questions about how safe a server is.
type boundedLine struct{ asked, endless atomic.Int64 }

type boundedConn struct {
	net.Conn
	line *boundedLine
	end  atomic.Bool
}

func (c *boundedConn) SetDeadline(t time.Time) error {
	c.end.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *boundedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(selectSafety)) {
		c.line.asked.Add(1)
		if !c.end.Load() {
			c.line.endless.Add(1)
		}
	}
	return c.Conn.Write(b)
}

// What the database's user has no right to is said with words about that, to writers
// and readers, and is no fault of Parley.
func TestMissingRights(t *testing.T) {
	ctx := t.Context()
	target := pgtest.Copy(t, migrated(t))
	conn := must(pgx.Connect(ctx, target))(t)
	defer func() { check(t, conn.Close(context.Background())) }()
	role := fmt.Sprintf("limited_%d", time.Now().UnixNano())
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'secret'", "GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role, "REVOKE ALL ON agents FROM " + role,
	} {
		must(conn.Exec(ctx, statement))(t)
	}
	defer func() { must(conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role))(t) }()
	u := must(url.Parse(target))(t)
	u.User = url.UserPassword(role, "secret")
	lines := &lineCounter{}
	db := openedAt(t, u.String(), Options{Logger: slog.New(lines)})
	_, _, read := db.Agents(ctx, parley.AgentQuery{})
	for _, err := range []error{read, db.CreateAgent(ctx, newAgent("a"))} {
		if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "grant it") || !strings.Contains(err.Error(), "table agents") {
			t.Errorf("error %v", err)
		}
	}
	// By its code the log bounds how often it says so.
	if log := strings.Join(lines.above(slog.LevelWarn), "\n"); !strings.Contains(log, "a write has failed error=unavailable: ") {
		t.Errorf("the log says %s", log)
	}
}
