package store

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/pgtest"
)

// TestHistoryIsOneQuestion: what goes on with a run reads it in one round trip. With four
// connections that read, a database 100 ms away had eight decisions a second.
func TestHistoryIsOneQuestion(t *testing.T) {
	var trips atomic.Int64
	db := openedAt(t, pgtest.Copy(t, migrated(t)), counted(&trips))
	begin(t, db, "run-1", attempt("run-1", "a", 1))
	must(db.History(t.Context(), "run-1"))(t) // the first one prepares
	before := trips.Load()
	h := must(db.History(t.Context(), "run-1"))(t)
	if n := trips.Load() - before; n != 1 {
		t.Errorf("%d round trips", n)
	}
	if h.Run.ID != "run-1" || len(h.Events) == 0 || len(h.Attempts) != 1 {
		t.Errorf("history %+v", h)
	}
}

// TestEventValuesAreOneQuestion: the inputs and outputs of a list of runs are read in one
// round trip. With two for each run, a page took 8 s from a database that is 100 ms away.
func TestEventValuesAreOneQuestion(t *testing.T) {
	var trips atomic.Int64
	db := openedAt(t, pgtest.Copy(t, migrated(t)), counted(&trips))
	var members []EventMember
	for _, run := range []string{"run-1", "run-2", "run-3"} {
		begin(t, db, run, attempt(run, "a", 1))
		members = append(members, EventMember{run, 1, "n"})
	}
	must(db.EventValues(t.Context(), members))(t) // the first one prepares
	before := trips.Load()
	values := must(db.EventValues(t.Context(), members))(t)
	if n := trips.Load() - before; n != 1 {
		t.Errorf("%d round trips", n)
	}
	for i, v := range values {
		if string(v.Value) != "1" {
			t.Errorf("run %d: %s", i, v.Value)
		}
	}
}

// TestEventValuesOfDamagedRows: one event that cannot be read is the trouble of those
// alone who ask for it.
func TestEventValuesOfDamagedRows(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var members []EventMember
		for _, run := range []string{"run-1", "run-2", "run-3", "run-4", "run-5"} {
			begin(t, db, run, attempt(run, "a", 1))
			members = append(members, EventMember{run, 1, "n"})
		}
		check(t, db.submit(t.Context(), synced, func(s *session) error {
			for run, data := range map[string]string{
				"run-1": `[{"at":1,`, "run-3": `[]`, "run-4": `[{"at":1,"data":"x","cuts":[{"at":7}]}]`, "run-5": `[{"at":1,"data":[]}]`,
			} {
				if _, err := s.exec(`UPDATE event SET data = ? WHERE run = ?`, []byte(data), run); err != nil {
					return err
				}
			}
			return nil
		}))
		for i, v := range must(db.EventValues(t.Context(), members))(t) {
			if whole := i == 1; (v.Err == nil) != whole || (string(v.Value) == "1") != whole {
				t.Errorf("%s: %s, %v", members[i].Run, v.Value, v.Err)
			}
		}
	})
}

// TestOneConnectionWritesForOne: who writes one thing after another needs one connection.
// With a database that is 100 ms away each of the others keeps a write for more than a
// second while it is made.
func TestOneConnectionWritesForOne(t *testing.T) {
	var dials atomic.Int64
	db := openedAt(t, pgtest.Copy(t, migrated(t)), Options{Writers: 4, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	before := dials.Load()
	for range 8 {
		check(t, writeRow(t, db))
	}
	if n := dials.Load() - before; n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestWholeSchemaIsOneQuestion: a schema to which nothing is missing is looked at once,
// not step by step.
func TestWholeSchemaIsOneQuestion(t *testing.T) {
	var trips atomic.Int64
	db := openedAt(t, pgtest.Copy(t, migrated(t)), counted(&trips))
	before := trips.Load()
	steps := must(db.Status(t.Context()))(t)
	n := trips.Load() - before
	if n > 3 {
		t.Errorf("%d round trips for %d steps", n, len(steps))
	}
}

// counted gives options with which round trips are counted, over one connection that
// reads and one that writes.
func counted(trips *atomic.Int64) Options {
	return Options{Readers: 1, Writers: 1, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &tripLine{Conn: c, trips: trips}, err
	}}
}

// tripLine counts what is sent after something was received.
type tripLine struct {
	net.Conn
	trips *atomic.Int64
	sent  atomic.Bool
}

func (l *tripLine) Write(b []byte) (int, error) {
	if !l.sent.Swap(true) {
		l.trips.Add(1)
	}
	return l.Conn.Write(b)
}

func (l *tripLine) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.sent.Store(false)
	return n, err
}

// TestTogetherIsOneState: questions that travel together see one state of the database,
// though somebody writes between them.
func TestTogetherIsOneState(t *testing.T) {
	db := openedAt(t, pgtest.Copy(t, migrated(t)), Options{})
	admin := administrator(t, db.path)
	admin(`SELECT pg_advisory_lock(7)`)
	var counts []int64
	count := inquiry{text: `SELECT count(*) FROM run`, each: func(r *record) error { counts = append(counts, r.int()); return nil }}
	waits := inquiry{text: `SELECT 1 FROM (SELECT pg_advisory_lock(7)) l`, each: func(*record) error { return nil }}
	var asking sync.WaitGroup
	asking.Go(func() { check(t, db.together(t.Context(), count, waits, count)) })
	for waiting := int64(0); waiting == 0; time.Sleep(10 * time.Millisecond) {
		check(t, db.read(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, // other tests lock in theirs
			func(r *record) error { waiting = r.int(); return nil }))
	}
	begin(t, db, "run-1", attempt("run-1", "a", 1))
	admin(`SELECT pg_advisory_unlock(7)`)
	asking.Wait()
	if len(counts) != 2 || counts[0] != 0 || counts[1] != 0 {
		t.Errorf("runs before and after the wait: %v", counts)
	}
}
