package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// TestTimersFireInOrderAndNeverEarly: entries fire at their time, whatever the
// order in which they were asked for (language rule T4).
func TestTimersFireInOrderAndNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		timers := newTimers(time.Now)
		var mu sync.Mutex // protects fired
		var fired []string
		seen := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(fired)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			timers.run(ctx, func(e timer) {
				mu.Lock()
				defer mu.Unlock()
				fired = append(fired, e.run+" "+time.Since(start).String())
			})
		}()
		synctest.Wait()
		for run, after := range map[string]time.Duration{"c": 3 * time.Second, "a": time.Second, "past": -time.Second, "b": 2 * time.Second} {
			timers.at(timer{at: start.Add(after), run: run})
		}
		timers.at(timer{at: start.Add(2 * timerHorizon), run: "far"}) // left to the sweeps
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if got, want := seen(), []string{"past 0s", "a 1s", "b 2s"}; !slices.Equal(got, want) {
			t.Errorf("fired %q, want %q", got, want)
		}
		time.Sleep(3 * timerHorizon)
		stop()
		<-ended
		if got := seen(); len(got) != 4 || got[3] != "c 3s" {
			t.Errorf("fired %q", got)
		}
	})
}

// sweptStore has one worker and notes what a sweep says.
type sweptStore struct {
	Store
	dead []store.Worker
	at   time.Time
}

func (s *sweptStore) Wakeups(_ context.Context, now time.Time, _ int) (store.Wakeups, error) {
	s.at = now
	return store.Wakeups{}, nil
}

func (s *sweptStore) Sweep(_ context.Context, dead []store.Worker, _ time.Time) ([]store.Worker, error) {
	s.dead = dead
	return []store.Worker{{Name: "a", Inc: 1, Beat: 1}}, nil
}

// TestClockOfStoreJumps: what is due is judged by the clock of the store, who is
// dead by the own one: nobody dies when the former jumps (protocol.md §9).
func TestClockOfStoreJumps(t *testing.T) {
	own := time.Now()
	clock := own
	s := &sweptStore{}
	x := New(Config{Store: s, Now: func() time.Time { return own }, Clock: func() time.Time { return clock }})
	watch := store.NewLeaseWatch(15 * time.Second)
	type step struct {
		own, clock time.Duration
		dead       int
	}
	steps := []step{{0, 0, 0}, {time.Second, time.Hour, 0}, {time.Second, -2 * time.Hour, 0}}
	for range 12 {
		steps = append(steps, step{time.Second, 0, 0})
	}
	for _, step := range append(steps, step{time.Second, 0, 1}) {
		own, clock = own.Add(step.own), clock.Add(step.clock)
		if err := x.sweep(t.Context(), watch); err != nil || len(s.dead) != step.dead {
			t.Errorf("after %v, and a jump by %v: dead are %v, %v", step.own, step.clock, s.dead, err)
		}
		if want := clock.UTC().Truncate(time.Microsecond); s.at != want {
			t.Errorf("due is what was due at %v, want %v", s.at, want)
		}
	}
}

// brokenParts fail at everything that a sweep does beside looking for runs and
// bridges.
type brokenParts struct {
	Turns
	HandOffs
	Signals
}

var errBroken = errors.New("a run cannot be read")

func (brokenParts) CrowdedLanes(context.Context, int) ([]store.Lane, error) {
	return []store.Lane{{Workflow: "order"}}, nil
}

func (brokenParts) Crowding(context.Context, store.Lane) ([]string, error) { return nil, errBroken }

func (brokenParts) Overdue(context.Context, time.Time, int) ([]store.Attempt, error) {
	return nil, errBroken
}

func (brokenParts) PurgeSignals(context.Context, time.Time, int) (int, error) { return 0, errBroken }

// TestSweepGoesOn: what one part of a sweep cannot do is said, and keeps no other
// part back: runs are found, and a bridge that is silent is declared dead.
func TestSweepGoesOn(t *testing.T) {
	now := time.Now()
	s := &sweptStore{}
	x := New(Config{Store: s, Turns: brokenParts{}, HandOffs: brokenParts{}, Signals: brokenParts{}, Now: func() time.Time { return now }})
	watch := store.NewLeaseWatch(15 * time.Second)
	for range 20 {
		now = now.Add(time.Second)
		if err := x.sweep(t.Context(), watch); !errors.Is(err, errBroken) {
			t.Errorf("the sweep ended with %v", err)
		}
	}
	if len(s.dead) != 1 || !s.at.Equal(now.Truncate(time.Microsecond)) {
		t.Errorf("dead are %v, due is what was due at %v", s.dead, s.at)
	}
}

// TestC7_DigestComparesValues: equal JSON values have equal digests, however
// they are spelled (language rule C7).
func TestC7_DigestComparesValues(t *testing.T) {
	equal := [][]string{
		{`{"a":1,"b":[2]}`, ` { "b" : [2.0], "a" : 10e-1 } `},
		{`"é"`, `"\u00e9"`},
		{`12345678901234567890`, `1.2345678901234567890e19`},
		{`0`, `-0`, `0.0`, `0e5`, `-0.00E-7`},
		{`-120`, `-1.2e2`, `-12E+1`, `-0.00120e05`},
		{`1e999999999`, `0.1e1000000000`},
		{"1" + strings.Repeat("0", 700), `1e700`},
	}
	seen := map[string]string{}
	for _, spellings := range equal {
		first := digest([]byte(spellings[0]))
		for _, s := range spellings[1:] {
			if digest([]byte(s)) != first {
				t.Errorf("%s and %s differ", spellings[0], s)
			}
		}
		seen[first] = spellings[0]
	}
	for _, other := range []string{
		`{"a":1,"b":[3]}`, `{"a":1}`, `"e"`, `12345678901234567891`, `1`, `null`, `""`, `[]`, `{}`, `1e999999998`, `120`, `1e99999999999999999999`,
		strings.Repeat("7", 700), strings.Repeat("7", 699) + "8",
	} {
		d := digest([]byte(other))
		if old, ok := seen[d]; ok {
			t.Errorf("%s and %s are taken for equal", other, old)
		}
		seen[d] = other
	}
}

// TestDigestOfALongNumber: whoever starts a run chooses how long its numbers are; a
// digest takes time in proportion.
func TestDigestOfALongNumber(t *testing.T) {
	for name, number := range map[string]string{
		"one": strings.Repeat("7", 1_000_000), "many": "[" + strings.Repeat("1e400,", 150_000) + "1]",
	} {
		const most, tries = 3 * time.Second, 5
		least := most + 1 // the process may be stopped during one, not during all
		for n := 0; n < tries && least > most; n++ {
			began := time.Now()
			digest([]byte(number))
			least = min(least, time.Since(began))
		}
		if least > most {
			t.Errorf("%s: the digest of %d bytes took more than %v", name, len(number), most)
		}
	}
}

// TestHubHoldsNobodyWhoHasLeft: an entry lives as long as somebody watches.
func TestHubHoldsNobodyWhoHasLeft(t *testing.T) {
	h := newHub()
	one, two := h.join("r"), h.join("r")
	changed := h.next(one)
	h.changed("r", parley.RunRunning)
	<-changed
	h.leave("r", one)
	select {
	case <-two.ended:
		t.Error("a running run was told as ended")
	default:
	}
	h.changed("r", parley.RunFailed)
	<-two.ended
	if two.status != parley.RunFailed {
		t.Errorf("ended as %s", two.status)
	}
	h.leave("r", two)
	if len(h.watched) > 0 {
		t.Errorf("left behind: %v", h.watched)
	}
}

// TestCallDefinition: the workflow of an agent call follows from the agent's
// name, whatever characters that has.
func TestCallDefinition(t *testing.T) {
	for _, name := range []string{"writer", `odd "name" \ with ${x}`, "ü"} {
		row := callDefinition(name)
		def, problems := workflow.Parse(workflow.ParseOptions{Version: row.Version}, row.Source)
		if name == "writer" || name == "ü" {
			if def == nil || def.Body.Steps[0].Agent != name {
				t.Errorf("%s: %v", name, problems)
			}
		} else if def != nil && def.Body.Steps[0].Agent != name {
			t.Errorf("%s is called as %s", name, def.Body.Steps[0].Agent)
		}
	}
}
