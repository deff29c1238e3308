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
	w.Saw([]store.Worker{a, b}, at(0))
	b.Beat = 2
	w.Saw([]store.Worker{a, b}, at(10))
	if dead := w.Silent(at(14)); len(dead) > 0 {
		t.Errorf("dead after 14 s: %v", dead)
	}
	if dead := w.Silent(at(15)); !slices.Equal(dead, []store.Worker{a}) {
		t.Errorf("dead after 15 s: %v, want a", dead)
	}
	a.Inc, a.Dead = 2, false
	w.Saw([]store.Worker{a, b}, at(16))
	b.Dead = true
	w.Saw([]store.Worker{a, b}, at(20))
	if dead := w.Silent(at(30)); len(dead) > 0 {
		t.Errorf("dead: %v; a has registered anew, b is known to be", dead)
	}
	if dead := w.Silent(at(31)); len(dead) != 1 {
		t.Errorf("dead: %v, want a again", dead)
	}
}
