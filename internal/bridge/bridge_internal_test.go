package bridge

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/parley-project/parley/internal/store"
)

// TestAge: time is measured by the clock that says more. A machine that was
// suspended shows it on the wall clock only, a clock that was set back on the
// monotonic one only (protocol.md §4.3).
func TestAge(t *testing.T) {
	from := time.Now()
	for _, c := range []struct {
		name       string
		mono, wall time.Duration
		want       time.Duration
	}{
		{"both", time.Second, time.Second, time.Second},
		{"suspended", time.Second, time.Hour, time.Hour},
		{"set back", time.Second, -time.Hour, time.Second},
	} {
		if got := age(from, shifted(from, c.mono, c.wall)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// shifted moves the two readings of a time differently, which nothing but the
// machine itself can do otherwise. They stand in the first two words: whole
// seconds of the wall clock above 30 bits of nanoseconds, and the monotonic
// reading.
func shifted(t time.Time, mono, wall time.Duration) time.Time {
	words := (*[2]uint64)(unsafe.Pointer(&t))
	words[0] += uint64(wall/time.Second) << 30
	words[1] += uint64(mono)
	return t
}

// TestMayBegin is the send guard, reading by reading.
func TestMayBegin(t *testing.T) {
	now := time.Now()
	b := &Bridge{cfg: Config{Now: func() time.Time { return now }, Lease: 15 * time.Second}, inc: 3, beat: now}
	for _, c := range []struct {
		name        string
		inc         int64
		beat, claim time.Time
		want        bool
	}{
		{"fresh", 3, now, now, true},
		{"just in time", 3, now.Add(-9999 * time.Millisecond), now.Add(-1999 * time.Millisecond), true},
		{"former life", 2, now, now, false},
		{"lease", 3, now.Add(-10 * time.Second), now, false},
		{"claim", 3, now, now.Add(-2 * time.Second), false},
		{"suspended since the beat", 3, shifted(now, 0, -time.Minute), now, false},
		{"suspended since the claim", 3, now, shifted(now, 0, -time.Minute), false},
	} {
		b.beat = c.beat
		if got := b.mayBegin(c.inc, c.claim); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestRemaining: setting the machine's clock ends no call. Its own limits run on
// the monotonic clock, the deadline is a time of the ledger's.
func TestRemaining(t *testing.T) {
	began := time.Now()
	ledger := began.Round(0).Add(3 * time.Hour)
	for _, c := range []struct {
		name      string
		wall      time.Duration
		attempt   time.Duration
		deadline  time.Duration
		limit     string
		remaining time.Duration
	}{
		{"attempt", time.Second, time.Minute, time.Hour, "attempt_timeout", 59 * time.Second},
		{"attempt, set forward", 2 * time.Hour, time.Minute, time.Hour, "attempt_timeout", 59 * time.Second},
		{"attempt, set back", -2 * time.Hour, time.Minute, time.Hour, "attempt_timeout", 59 * time.Second},
		{"deadline", time.Second, time.Hour, time.Minute, "timeout", time.Minute + deadlineSlack},
		{"deadline, set forward", 2 * time.Hour, time.Hour, time.Minute, "timeout", time.Minute + deadlineSlack},
	} {
		b := &Bridge{cfg: Config{
			Now:   func() time.Time { return shifted(began, time.Second, c.wall) },
			Clock: func() time.Time { return ledger },
		}}
		call := &call{b: b, since: began}
		call.row.Policy.AttemptTimeout, call.row.Deadline = c.attempt, ledger.Add(c.deadline)
		if d, l := call.remaining(); d != c.remaining || l.limit != c.limit {
			t.Errorf("%s: %v of %s, want %v of %s", c.name, d, l.limit, c.remaining, c.limit)
		}
	}
}

// FuzzDecodeTask: no record from a bus stops a bridge, and what is taken is
// within its limits.
func FuzzDecodeTask(f *testing.F) {
	for _, s := range []string{
		`{"run_id": "r", "task_id": "r.a.1", "agent_name": "one", "input_data": {"text": "\u00e9"}, "correlation_id": "c", "timestamp": "2026-11-21T10:04:05.974607"}`,
		`{"task_id":"\ud800","agent_name":"x"}`, `[]`, `null`, ``, `{"task_id":{}}`, "\xff", strings.Repeat(`{"a":`, 20_000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decodeTask(value)
		if err == nil && (r.TaskID == "" || r.Agent == "" || len(r.TaskID) > maxTaskID || len(r.Agent) > maxAgentName) {
			t.Errorf("taken: %.100q", value)
		}
	})
}

// TestLanesInUseAreKept: of more agents than are remembered those are forgotten of which
// nothing is known that another lane in their place would not know.
func TestLanesInUseAreKept(t *testing.T) {
	now := time.Now()
	b := &Bridge{cfg: Config{Now: func() time.Time { return now }}.withDefaults(), lanes: map[string]*lane{}}
	use := map[string]func(l *lane){
		"idle":     func(l *lane) { b.rememberLocked(l, store.Deferral{TaskID: "t", At: now.Add(time.Hour)}) },
		"called":   func(l *lane) { l.inFlight++ },
		"carried":  func(l *lane) { b.carryLocked(l, 7) },
		"waiting":  func(l *lane) { l.listed = true },
		"reserved": func(l *lane) { l.gate.Reserve(now) },
		"held":     func(l *lane) { l.gate.Hold(now.Add(time.Minute)) },
	}
	for name, f := range use {
		f(b.laneLocked(name))
	}
	for i := range idleLanes - len(use) {
		b.laneLocked(strconv.Itoa(i))
	}
	b.laneLocked("one more")
	for name := range use {
		if kept := b.lanes[name] != nil; kept != (name != "idle") {
			t.Errorf("%s: kept: %t", name, kept)
		}
	}
	if n := len(b.lanes); n != len(use) {
		t.Errorf("%d lanes, want those in use and the new one", n)
	}
	if b.away != 0 {
		t.Errorf("%d tasks are remembered of lanes that are forgotten", b.away)
	}
}
