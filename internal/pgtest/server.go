package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options adjust a [Server].
type Options struct {
	// Durable has the server sync what it commits. Without it a commit
	// survives the death of the server, but not that of the machine.
	Durable bool
	// Settings are parameters of postgresql.conf by their names.
	Settings map[string]string
}

// Server is a PostgreSQL of one test. Its methods may be called from any
// goroutine; what goes wrong is an error of the test. It is gone when the test
// has ended.
type Server struct {
	tb testing.TB
	c  *cluster
}

// Start starts a new server with the database "postgres" and no other, or
// fails the test. PARLEY_TEST_POSTGRES does not matter to it.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	c, err := newCluster(tb.Context(), o)
	if err != nil {
		tb.Fatalf("PostgreSQL for tests: %v", err)
	}
	return newServer(tb, c)
}

func newServer(tb testing.TB, c *cluster) *Server {
	s := &Server{tb: tb, c: c}
	tb.Cleanup(func() { s.check("removing the server", errors.Join(c.kill(), c.remove())) })
	return s
}

func (s *Server) check(what string, err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Errorf("%s: %v", what, err)
	}
}

// URL is where a database of the server is found; it stays the same for the
// life of the server. The user is a superuser.
func (s *Server) URL(database string) string { return s.c.url(database) }

// Addr is the host and port of the server.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.c.port) }

// Exec runs one statement in the database postgres.
func (s *Server) Exec(statement string) {
	s.tb.Helper()
	s.check(statement, execute(s.URL("postgres"), statement))
}

// Set changes parameters that a running server can change, but not those of
// [Options].
func (s *Server) Set(name, value string) {
	s.tb.Helper()
	s.Exec("ALTER SYSTEM SET " + pgx.Identifier{name}.Sanitize() + " = '" + value + "'")
	s.Exec("SELECT pg_reload_conf()")
}

// Stop shuts the server down: connections are cut, all that was committed is
// kept.
func (s *Server) Stop() { s.tb.Helper(); s.check("stopping the server", s.c.end()) }

// Kill ends all processes of the server with SIGKILL.
func (s *Server) Kill() { s.tb.Helper(); s.check("killing the server", s.c.kill()) }

// Restart starts a server that was stopped or killed, and waits until it
// answers. One that is running is stopped first.
func (s *Server) Restart() {
	s.tb.Helper()
	s.check("stopping the server", s.c.end())
	s.check("starting the server", s.c.start(context.Background()))
}

// Pause stops all processes of the server with SIGSTOP: connections stay, and
// nobody answers.
func (s *Server) Pause() { s.tb.Helper(); s.check("pausing the server", s.c.signal(syscall.SIGSTOP)) }

// Continue is the end of Pause.
func (s *Server) Continue() {
	s.tb.Helper()
	s.check("continuing the server", s.c.signal(syscall.SIGCONT))
}

// Standby starts a server that replicates this one, which waits for it with
// every synced commit from the return of Standby on. Without a standby it has
// nobody to wait for: after the death of the standby, or before another one
// attaches, commits hang, until synchronous_standby_names is set to nothing.
// The standby keeps what it has when this server dies, and can be promoted.
func (s *Server) Standby(tb testing.TB) *Server {
	tb.Helper()
	c, err := s.c.standby(tb.Context())
	if err != nil {
		tb.Fatalf("PostgreSQL standby for tests: %v", err)
	}
	standby := newServer(tb, c)
	s.Set("synchronous_standby_names", "*")
	if err := await(tb.Context(), s.URL("postgres"), `SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'`); err != nil {
		tb.Fatalf("PostgreSQL standby for tests: %v", err)
	}
	return standby
}

// Promote makes a standby a primary of its own, which waits for nobody, and
// waits until it can be written to.
func (s *Server) Promote() {
	s.tb.Helper()
	s.Exec("SELECT pg_promote(true, 60)")
	s.check("promoting", await(context.Background(), s.URL("postgres"), `SELECT NOT pg_is_in_recovery()`))
}

// standby makes a server of a copy of the data folder, taken while the server
// runs.
func (c *cluster) standby(ctx context.Context) (_ *cluster, err error) {
	s, err := newFolder(ctx, Options{})
	if err != nil {
		return nil, err
	}
	s.args = c.args
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "SELECT pg_backup_start('standby', true)"); err != nil {
		return nil, err
	}
	if err := s.copyData(c.data()); err != nil {
		return nil, err
	}
	var label string
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%d user=%s password=''%s'' application_name=standby'\nsynchronous_standby_names = ''\n",
		c.port, user, password)
	for name, text := range map[string]string{"backup_label": label, "standby.signal": "", "postgresql.auto.conf": conf} {
		file := filepath.Join(s.data(), name)
		if err := s.give(file, os.WriteFile(file, []byte(text), 0o600)); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// copyData copies a data folder that may be in use.
func (c *cluster) copyData(from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(c.data(), name)
		if e.IsDir() {
			return c.give(to, os.Mkdir(to, 0o700))
		}
		if name == "postmaster.pid" || name == "postmaster.opts" {
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.give(to, os.WriteFile(to, text, 0o600))
	})
}

// await asks until a query gives true.
func await(ctx context.Context, server, query string) error {
	ctx, stop := context.WithTimeout(ctx, startWithin)
	defer stop()
	for {
		ok, err := ask(ctx, server, query)
		if ok || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ping asks whether a server answers.
func ping(ctx context.Context, server string) error {
	_, err := ask(ctx, server, "SELECT true")
	return err
}

func ask(ctx context.Context, server, query string) (yes bool, err error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, query).Scan(&yes)
	return yes, err
}

// CPU is what the living processes of the server have used of all cores.
func (s *Server) CPU() time.Duration {
	s.tb.Helper()
	pids, err := s.c.processes()
	s.check("finding the processes of the server", err)
	ticks := 0
	for _, pid := range pids {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // one that has ended is of no interest
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		for i, field := range bytes.Fields(rest) {
			if i == 11 || i == 12 { // user and system time
				n, err := strconv.Atoi(string(field))
				s.check("reading the time of a process", err)
				ticks += n
			}
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
