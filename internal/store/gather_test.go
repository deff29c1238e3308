package store

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// heldLink is a connection whose commits last until they are let go.
type heldLink struct {
	begun chan int // the units of each
	end   chan struct{}
}

func (l heldLink) run(units []*unit, _ bool) error {
	l.begun <- len(units)
	<-l.end
	return nil
}

func (heldLink) risk(context.Context) (string, error) { return "", nil }
func (heldLink) broken() bool                         { return false }
func (heldLink) close() error                         { return nil }

// TestGather: what comes while a commit is under way shares the next one. That
// begins when the first has ended, when many wait, or when the first takes long.
func TestGather(t *testing.T) {
	for _, tc := range []struct {
		name string
		// more units come while the first commit is under way, which ends after took.
		more int
		took time.Duration
		// The next commit begins after that time.
		after time.Duration
	}{
		{"the first ends", 3, gatherFor / 2, gatherFor / 2},
		{"the first takes long", 3, time.Second, gatherFor},
		{"many wait", gatherEnough, time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &DB{options: Options{}.withDefaults(), queue: make(chan *unit, 100), committing: newCommits()}
				l := heldLink{make(chan int, 10), make(chan struct{})}
				for range 3 {
					db.links.give(l)
					w := &writer{db: db}
					db.writing.Go(w.loop)
				}
				var callers sync.WaitGroup
				submit := func() {
					callers.Go(func() {
						check(t, db.submit(t.Context(), synced, func(*session) error { return nil }))
					})
				}
				submit()
				if n := <-l.begun; n != 1 {
					t.Fatalf("the first commit is of %d units", n)
				}
				start := time.Now()
				for range tc.more {
					submit()
				}
				callers.Go(func() {
					time.Sleep(tc.took)
					l.end <- struct{}{}
				})
				if n, after := <-l.begun, time.Since(start); n != tc.more || after != tc.after {
					t.Errorf("the second commit is of %d units after %v, not of %d after %v", n, after, tc.more, tc.after)
				}
				l.end <- struct{}{}
				callers.Wait()
				close(db.queue)
				db.writing.Wait()
			})
		})
	}
}
