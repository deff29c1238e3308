package executor

import (
	"context"
	"testing"
)

// TestWakeupsKeep: nobody gets a run that another one looks at; what comes for it
// meanwhile comes after that, each once.
func TestWakeupsKeep(t *testing.T) {
	q := newWakeups()
	ctx, stop := context.WithCancel(t.Context())
	take := func(want wakeup) {
		t.Helper()
		if got, ok := q.take(ctx); !ok || got != want {
			t.Fatalf("%+v comes, not %+v", got, want)
		}
	}
	whole, task, other := wakeup{run: "a"}, wakeup{run: "a", task: "a.x.1"}, wakeup{run: "b"}
	q.add(whole)
	take(whole)
	q.add(task)
	q.add(whole)
	q.add(other)
	take(other)
	q.add(whole) // it waits already
	if !q.has("a") || q.has("b") {
		t.Errorf("waiting: %v", q.waiting)
	}
	q.done("b")
	q.done("a")
	take(task)
	q.done("a")
	take(whole)
	q.done("a")
	if q.has("a") || len(q.kept) > 0 || len(q.ready) > 0 {
		t.Errorf("left: %v, %v, %d", q.waiting, q.kept, len(q.ready))
	}
	stop()
	if w, ok := q.take(ctx); ok {
		t.Errorf("%+v comes from nowhere", w)
	}
}

// TestWakeupsKeepIsBounded: of what comes for a run that is being looked at, so
// much is kept; sweeps find the rest.
func TestWakeupsKeepIsBounded(t *testing.T) {
	q := newWakeups()
	ctx, stop := context.WithCancel(t.Context())
	q.add(wakeup{run: "a"})
	q.take(ctx)
	for range keptMost + 10 {
		q.add(wakeup{run: "a", task: "a.x.1"})
	}
	q.add(wakeup{run: "b"})
	if w, _ := q.take(ctx); w.run != "b" {
		t.Fatalf("%+v comes", w)
	}
	q.done("a")
	n := 0
	for len(q.ready) > 0 {
		if _, ok := q.take(ctx); ok {
			n++
			q.done("a")
		}
	}
	stop()
	if n != keptMost || q.has("a") {
		t.Errorf("%d of %d came, waiting: %v", n, keptMost, q.waiting)
	}
}
