package store

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// deafness takes what is said on the connections that there are, and gives it to
// nobody: they stay open, and nobody answers.
type deafness struct {
	// life is that of the connections that are made now; those of others are deaf.
	life  atomic.Int64
	dials atomic.Int64
}

func (d *deafness) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.dials.Add(1)
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &deafLine{Conn: c, d: d, life: d.life.Load()}, err
}

type deafLine struct {
	net.Conn
	d    *deafness
	life int64
}

func (l *deafLine) Write(b []byte) (int, error) {
	if l.d.life.Load() != l.life {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// silentWait is how long the tests wait for an answer.
const silentWait = time.Second

// openDeaf opens a new database that gives up who does not answer for silentWait.
func openDeaf(t *testing.T, o Options) (*DB, *deafness) {
	t.Helper()
	deaf := &deafness{}
	o.Dial = deaf.dial
	d := postgresDialect()
	d.silence = silentWait
	db, err := open(t.Context(), d, pgtest.Copy(t, migrated(t)), o)
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, deaf
}

// unlessSilent repeats f until it goes well, as often as what it asks was without an answer
// for silentWait, by the clock of the test: the process or the server may be stopped. f
// gives what it took beside that.
func unlessSilent(t *testing.T, f func() (beside time.Duration, err error)) {
	t.Helper()
	for {
		began := time.Now()
		beside, err := f()
		if errors.Is(err, errSilent) && time.Since(began)-beside >= silentWait {
			continue
		}
		check(t, err)
		return
	}
}

// TestReadingHasAnEnd: a server that does not answer on a connection that stays open
// keeps nobody who reads, and the next one gets another connection.
func TestReadingHasAnEnd(t *testing.T) {
	t.Parallel()
	db, deaf := openDeaf(t, Options{Readers: 1})
	begin(t, db, "run-1", attempt("run-1", "a", 1))
	for name, read := range map[string]func() error{
		"prepared": func() error { _, err := db.RunRow(context.Background(), "run-1"); return err },
		"varied":   func() error { _, _, err := db.Runs(context.Background(), parley.RunQuery{Text: "x"}); return err },
		"snapshot": func() error { _, err := db.History(context.Background(), "run-1"); return err },
	} {
		heard := func() (time.Duration, error) { return 0, read() }
		unlessSilent(t, heard)
		deaf.life.Add(1)
		done := make(chan error, 1)
		go func() { done <- read() }()
		select {
		case err := <-done:
			if parley.CodeOf(err) != parley.CodeUnavailable || !errors.Is(err, errSilent) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits for a minute", name)
		}
		unlessSilent(t, heard)
	}
}

// TestRowsTakeTheirTime: what is done with rows is no silence of the server.
func TestRowsTakeTheirTime(t *testing.T) {
	t.Parallel()
	db, _ := openDeaf(t, Options{})
	var rows int
	unlessSilent(t, func() (inRows time.Duration, err error) {
		rows = 0
		err = db.read(t.Context(), `SELECT generate_series(1, 3)`, func(*record) error {
			began := time.Now()
			rows++
			time.Sleep(silentWait + silentWait/5)
			inRows += time.Since(began)
			return nil
		})
		return inRows, err
	})
	diff(t, rows, 3)
}

// TestListenerIsNotHeard: one whose server does not answer any more, although the
// connection stays open, gets another one.
func TestListenerIsNotHeard(t *testing.T) {
	t.Parallel()
	db, deaf := openDeaf(t, Options{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	heard := make(chan struct{}, 1)
	done := make(chan error, 1)
	listen := func() error {
		return db.listen(ctx, silentWait/10, func(string) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}
	go func() {
		err := listen()
		for deaf.life.Load() == 0 && errors.Is(err, errSilent) {
			err = listen() // the process was stopped for silentWait
		}
		done <- err
	}()
	waitUntil(t, "heard", func() bool { check(t, db.Notify(t.Context(), "one")); return len(heard) > 0 })
	deaf.life.Add(1)
	select {
	case err := <-done:
		if !errors.Is(err, errSilent) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it listens for a minute to nobody")
	}
}

// TestNoConnectionForMany: many who read while no connection can be made are answered
// soon, and have the server refuse one connection for each of them at most.
func TestNoConnectionForMany(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	s.Exec(`CREATE ROLE app LOGIN SUPERUSER PASSWORD 'one'`)
	s.Exec(`CREATE DATABASE app OWNER app`)
	deaf := &deafness{}
	db := reopen(t, "postgres://app:one@"+s.Addr()+"/app?sslmode=disable", Options{Dial: deaf.dial})
	check(t, readRuns(t, db))
	s.Exec(`ALTER ROLE app NOLOGIN`)
	// It waits for their end; after one more read the connections that were cut are gone.
	s.Exec(`SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'app'`)
	_ = readRuns(t, db)
	const many = 200
	before := deaf.dials.Load()
	var reading sync.WaitGroup
	for range many {
		reading.Go(func() {
			if err := readRuns(t, db); parley.CodeOf(err) != parley.CodeUnavailable {
				t.Errorf("error %v", err)
			}
		})
	}
	reading.Wait()
	if tries := deaf.dials.Load() - before; tries > many+many/10 { // and what watches the clock
		t.Errorf("%d connections were tried for %d who read", tries, many)
	}
	s.Exec(`ALTER ROLE app LOGIN`)
	check(t, readRuns(t, db))
}
