package store

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/parley-project/parley/internal/pgtest"
)

// machine is the clock of a machine: somebody may set it, or suspend it.
type machine struct{ set, suspended atomic.Int64 }

// now moves the two readings of a time differently, which nothing but the machine
// itself can do otherwise. They stand in the first two words: whole seconds of
// the wall clock above 30 bits of nanoseconds, and the monotonic reading.
func (m *machine) now() time.Time {
	t := time.Now().Add(time.Duration(-m.suspended.Load())) // the monotonic clock stood still
	words := (*[2]uint64)(unsafe.Pointer(&t))
	words[0] += uint64(time.Duration(m.set.Load()+m.suspended.Load())/time.Second) << 30
	return t
}

// What the database said moves the clock only as far as it has to, and the
// machine's own clock not at all.
func TestClock(t *testing.T) {
	m := &machine{}
	local := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	c := newClock(Options{Now: func() time.Time { return local }, Logger: slog.New(slog.DiscardHandler)})
	said := func(ahead time.Duration) time.Time { return local.Add(ahead) }
	for _, s := range []struct {
		what            string
		asked, answered time.Duration
		said            time.Duration // ahead of the local clock when the clock was made
		ahead           time.Duration
	}{
		{"the first answer: in the middle", 0, 200 * time.Millisecond, time.Hour + 100*time.Millisecond, time.Hour},
		{"slow, agrees", time.Second, 9 * time.Second, time.Hour + time.Second, time.Hour},
		{"a bit behind", time.Second, time.Second + 2*time.Millisecond, time.Hour + time.Second - 5*time.Millisecond, time.Hour - 5*time.Millisecond},
		{"a bit ahead", time.Second, time.Second + 2*time.Millisecond, time.Hour + time.Second + 4*time.Millisecond, time.Hour + 2*time.Millisecond},
		{"a jump", time.Minute, time.Minute, -time.Hour + time.Minute, -time.Hour},
	} {
		c.learn(s.asked, s.answered, said(s.said))
		if got := c.now().Sub(local); got != s.ahead {
			t.Errorf("%s: %v ahead, want %v", s.what, got, s.ahead)
		}
	}

	c = newClock(Options{Now: m.now})
	began := c.now()
	for _, step := range []time.Duration{time.Hour, -2 * time.Hour} {
		m.set.Store(int64(step))
		if got := c.now().Sub(began).Abs(); got > time.Minute {
			t.Errorf("the machine's clock was set by %v: it moved by %v", step, got)
		}
		select {
		case <-c.soon:
		default:
			t.Errorf("the machine's clock was set by %v, and nobody asks", step)
		}
		c.slipped.Store(int64(step))
		if c.now(); len(c.soon) > 0 {
			t.Error("asked again for the same")
		}
	}
}

// Processes an hour apart agree about the time, which is the database's, also
// when somebody sets their clocks or suspends them, and when its own one jumps.
func TestNow(t *testing.T) {
	ctx := t.Context()
	fast, slow := &machine{}, &machine{}
	fast.set.Store(int64(time.Hour))
	slow.set.Store(int64(-time.Hour))
	d := postgresDialect()
	d.time = `SELECT us + ` + d.time[len(`SELECT `):] + ` FROM jumped`
	target := pgtest.Database(t)
	first := openedAt(t, target, Options{})
	for _, text := range []string{`CREATE TABLE jumped (us bigint)`, `INSERT INTO jumped VALUES (0)`} {
		check(t, first.submit(ctx, synced, func(s *session) error { _, err := s.exec(text); return err }))
	}
	jump := func(by time.Duration) {
		t.Helper()
		check(t, first.submit(ctx, synced, func(s *session) error {
			_, err := s.exec(`UPDATE jumped SET us = ?`, by.Microseconds())
			return err
		}))
	}
	var all []*DB
	for _, m := range []*machine{fast, slow} {
		db, err := open(ctx, d, target, Options{Now: m.now})
		check(t, err)
		t.Cleanup(func() { check(t, db.Close()) })
		all = append(all, db)
	}
	// The database of the tests is on this machine.
	agree := func(ahead time.Duration) bool {
		for _, db := range all {
			// The process may be stopped between two looks.
			before := time.Now().Round(0).Add(ahead - time.Second)
			now := db.Now()
			if after := time.Now().Round(0).Add(ahead + time.Second); now.Before(before) || now.After(after) {
				return false
			}
		}
		return true
	}
	await := func(what string, ahead time.Duration) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !agree(ahead); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: %v and %v", what, all[0].Now(), all[1].Now())
			}
		}
	}
	if !agree(0) {
		t.Fatalf("opened: %v and %v", all[0].Now(), all[1].Now())
	}
	fast.set.Store(0)
	slow.set.Store(int64(5 * time.Hour))
	if !agree(0) {
		t.Fatalf("set: %v and %v", all[0].Now(), all[1].Now())
	}
	slow.suspended.Store(int64(10 * time.Minute))
	await("suspended", 0)
	jump(time.Hour)
	await("the database's clock was set forward", time.Hour)
	jump(-time.Hour)
	for _, db := range all {
		db.clock.askSoon() // as after a connection that was lost
	}
	await("the database's clock was set back", -time.Hour)
	for _, db := range all {
		if now := db.Now(); now != now.Round(0) || now.Location() != time.UTC {
			t.Errorf("%v has a monotonic part, or is not in UTC", now)
		}
	}
}

// SQLite is one process's: its time is that of the process.
func TestNowAlone(t *testing.T) {
	db := newDB(t, Options{Now: func() time.Time { return epoch }})
	if got := db.Now(); got != epoch {
		t.Errorf("%v, want %v", got, epoch)
	}
}
