package bridge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestComeAgain: however many tasks of an agent find no room, few of them come
// again each second, and none much later than after two minutes; few ones come
// when they would without that bound.
func TestComeAgain(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(1, 2))
	come := func(n int, patience time.Duration) (after []time.Duration) {
		var p pace
		for range n {
			after = append(after, p.comeAgain(now, patience, random.Float64()).Sub(now))
		}
		slices.Sort(after)
		return after
	}
	after := come(100_000, deferAtMost)
	if last := after[len(after)-1]; last > turnAtMost+time.Second || after[0] < deferAtMost/2 {
		t.Errorf("they come after %v to %v", after[0], last)
	}
	const most = 2000 // a second of those that were put off first, and one of those that came after them
	for i := most + 1; i < len(after); i++ {
		if d := after[i] - after[i-most-1]; d < time.Second {
			t.Fatalf("more than %d tasks within %v, %v after now", most, d, after[i])
		}
	}
	for _, patience := range []time.Duration{deferFirst, deferAtMost} {
		if few := come(100, patience); few[99] > patience*3/2 || few[0] < patience/2 || few[99]-few[0] < patience/2 {
			t.Errorf("few come after %v to %v", few[0], few[99])
		}
	}
}
