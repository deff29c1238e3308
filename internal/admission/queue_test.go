package admission_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-project/parley/internal/admission"
)

// TestQueue: against a sorted list, whatever is done.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type task struct{ rank, n int }
		var q admission.Queue[task]
		var want []task
		order := func(a, b task) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.n, b.n)) }
		for n := range rapid.IntRange(0, 80).Draw(t, "before") {
			rank := rapid.IntRange(-5, 5).Draw(t, "rank")
			q.Push(task{rank, -100 + n}, int64(rank))
			want = append(want, task{rank, -100 + n})
		}
		slices.SortFunc(want, order)
		for n := range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rank := rapid.IntRange(-5, 5).Draw(t, "rank"); rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1, 2:
				q.Push(task{rank, n}, int64(rank))
				want = append(want, task{rank, n})
				slices.SortFunc(want, order)
			case 3:
				if len(want) > 0 {
					if got := q.Pop(); got != want[0] {
						t.Fatalf("%v, want %v", got, want[0])
					}
					want = want[1:]
				}
			case 4:
				got, ok := q.GiveWay(int64(rank))
				if should := len(want) > 0 && want[len(want)-1].rank > rank; ok != should || ok && got != want[len(want)-1] {
					t.Fatalf("%v, %v gives way to rank %d of %v", got, ok, rank, want)
				}
				if ok {
					want = want[:len(want)-1]
				}
			case 5:
				keep := rapid.IntRange(0, 5).Draw(t, "keep")
				var gone, left []task
				for i, w := range want {
					if i >= keep && w.n%2 == 0 {
						gone = append(gone, w)
					} else {
						left = append(left, w)
					}
				}
				if got := q.Expire(keep, func(x task) bool { return x.n%2 == 0 }); !slices.Equal(got, gone) {
					t.Fatalf("%v have expired, want %v", got, gone)
				}
				want = left
			}
			if q.Len() != len(want) || len(want) > 0 && q.Head() != want[0] {
				t.Fatalf("%d tasks, want %v", q.Len(), want)
			}
		}
		for i := 0; q.Len() > 0; i++ {
			if got := q.Pop(); got != want[i] {
				t.Fatalf("%v goes, want %v of %v", got, want[i], want)
			}
		}
	})
}
