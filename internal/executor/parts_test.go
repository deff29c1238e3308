package executor

import (
	"context"
	"slices"
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
			timers.run(ctx, func(run string) {
				mu.Lock()
				defer mu.Unlock()
				fired = append(fired, run+" "+time.Since(start).String())
			})
		}()
		synctest.Wait()
		for run, after := range map[string]time.Duration{"c": 3 * time.Second, "a": time.Second, "past": -time.Second, "b": 2 * time.Second} {
			timers.at(start.Add(after), run)
		}
		timers.at(start.Add(2*timerHorizon), "far") // left to the sweeps
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

// TestLeaseIsJudgedByWatching: a worker is silent when the same beat was seen
// for a whole lease on the watcher's clock; a beat, a new incarnation or a
// death that is known starts anew (protocol.md P17).
func TestLeaseIsJudgedByWatching(t *testing.T) {
	const lease = 15 * time.Second
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	w := newLeaseWatch(lease)
	a := store.Worker{Name: "a", Inc: 1, Beat: 1}
	b := store.Worker{Name: "b", Inc: 1, Beat: 1}
	w.saw([]store.Worker{a, b}, at(0))
	b.Beat = 2
	w.saw([]store.Worker{a, b}, at(10))
	if dead := w.silent(at(14)); len(dead) > 0 {
		t.Errorf("dead after 14 s: %v", dead)
	}
	if dead := w.silent(at(15)); !slices.Equal(dead, []store.Worker{a}) {
		t.Errorf("dead after 15 s: %v, want a", dead)
	}
	a.Inc, a.Dead = 2, false
	w.saw([]store.Worker{a, b}, at(16))
	b.Dead = true
	w.saw([]store.Worker{a, b}, at(20))
	if dead := w.silent(at(30)); len(dead) > 0 {
		t.Errorf("dead: %v; a has registered anew, b is known to be", dead)
	}
	if dead := w.silent(at(31)); len(dead) != 1 {
		t.Errorf("dead: %v, want a again", dead)
	}
}

// TestC7_DigestComparesValues: equal JSON values have equal digests, however
// they are spelled (language rule C7).
func TestC7_DigestComparesValues(t *testing.T) {
	equal := [][]string{
		{`{"a":1,"b":[2]}`, ` { "b" : [2.0], "a" : 10e-1 } `},
		{`"é"`, `"\u00e9"`},
		{`12345678901234567890`, `1.2345678901234567890e19`},
		{`0`, `-0`, `0.0`},
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
	for _, other := range []string{`{"a":1,"b":[3]}`, `{"a":1}`, `"e"`, `12345678901234567891`, `1`, `null`, `""`, `[]`, `{}`, `1e999999999`} {
		d := digest([]byte(other))
		if old, ok := seen[d]; ok {
			t.Errorf("%s and %s are taken for equal", other, old)
		}
		seen[d] = other
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
