package workflow

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestOpenList: whatever begins and ends, those that run are given in the order in
// which they began, and the list is not much longer than they are many.
func TestOpenList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list openList
		var want []*execution
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			if len(want) == 0 || rapid.Bool().Draw(t, "begins") {
				x := &execution{}
				list.add(x)
				want = append(want, x)
			} else {
				i := rapid.IntRange(0, len(want)-1).Draw(t, "ends")
				list.remove(want[i])
				want = slices.Delete(want, i, i+1)
			}
			if got := list.now(); !slices.Equal(got, want) {
				t.Fatalf("%d run, want %d", len(got), len(want))
			}
			if len(list.places) > 2*len(want)+1 {
				t.Fatalf("%d places for %d", len(list.places), len(want))
			}
		}
	})
}
