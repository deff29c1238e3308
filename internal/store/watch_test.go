package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/store"
)

// TestLeaseIsJudgedByWatching: a worker is silent when the same beat was seen
// for a whole lease on the watcher's clock; a beat, a new incarnation or a
// death that is known starts anew (protocol.md P17).
func TestLeaseIsJudgedByWatching(t *testing.T) {
	const lease = 15 * time.Second
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	w := store.NewLeaseWatch(lease)
	a := store.Worker{Name: "a", Inc: 1, Beat: 1}
	b := store.Worker{Name: "b", Inc: 1, Beat: 1}
	watch := func(from, to int) {
		for s := from; s <= to; s++ {
			w.Saw([]store.Worker{a, b}, at(s))
		}
	}
	watch(0, 9)
	b.Beat = 2
	watch(10, 14)
	if dead := w.Silent(at(14)); len(dead) > 0 {
		t.Errorf("dead after 14 s: %v", dead)
	}
	if dead := w.Silent(at(15)); !slices.Equal(dead, []store.Worker{a}) {
		t.Errorf("dead after 15 s: %v, want a", dead)
	}
	a.Inc, a.Dead = 2, false
	watch(16, 19)
	b.Dead = true
	watch(20, 30)
	if dead := w.Silent(at(30)); len(dead) > 0 {
		t.Errorf("dead: %v; a has registered anew, b is known to be", dead)
	}
	if dead := w.Silent(at(31)); len(dead) != 1 {
		t.Errorf("dead: %v, want a again", dead)
	}
}

// TestLeaseDoesNotRunUnwatched: while the watcher could not look, since the
// database was away or everything was stopped, no worker could be seen to beat.
// It gets time for a beat before it is taken for dead, also after many such gaps
// with beats in between, and is dead in the end if there is none.
func TestLeaseDoesNotRunUnwatched(t *testing.T) {
	const lease = 15 * time.Second
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	w := store.NewLeaseWatch(lease)
	a := store.Worker{Name: "a", Inc: 1, Beat: 1}
	w.Saw([]store.Worker{a}, at(0))
	w.Saw([]store.Worker{a}, at(5))
	for _, back := range []int{35, 95, 3600} {
		if dead := w.Silent(at(back)); len(dead) > 0 {
			t.Fatalf("dead at %d s, the first look after a gap: %v", back, dead)
		}
		for s := back; s < back+5; s++ {
			w.Saw([]store.Worker{a}, at(s))
			if dead := w.Silent(at(s + 1)); len(dead) > 0 {
				t.Fatalf("dead %d s after a gap: %v", s+1-back, dead)
			}
		}
		a.Beat++
		w.Saw([]store.Worker{a}, at(back+5))
	}
	for s := 4000; s < 4400; s += 60 { // a look takes a minute: it is found all the same
		w.Saw([]store.Worker{a}, at(s))
	}
	if dead := w.Silent(at(4400)); !slices.Equal(dead, []store.Worker{a}) {
		t.Errorf("dead: %v, want a, which has not beaten for 7 looks", dead)
	}
}
