package bridge

import (
	"sync"
	"testing"
	"testing/synctest"
)

// A crew gives every piece of work a goroutine at once, keeps at most
// maxResting of them, and is gone when it is dismissed.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		for round := range 3 {
			const n = 3 * maxResting
			var all, begun sync.WaitGroup
			hold := make(chan struct{})
			all.Add(n)
			begun.Add(n)
			for range n {
				c.do(func() { defer all.Done(); begun.Done(); <-hold })
			}
			begun.Wait() // all at once, or this waits for ever
			close(hold)
			all.Wait()
			synctest.Wait()
			if got := c.resting.Load(); got != maxResting {
				t.Errorf("round %d: %d goroutines rest, want %d", round, got, maxResting)
			}
		}
		c.dismiss()
		// Goroutines that are left would block for ever, which fails the test.
	})
}

// One piece of work after another needs one goroutine.
func TestCrewRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		for range 100 {
			c.do(func() {})
			synctest.Wait()
		}
		if got := c.resting.Load(); got != 1 {
			t.Errorf("%d goroutines for one thing at a time, want 1", got)
		}
		c.dismiss()
	})
}
