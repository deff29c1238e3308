package admission

import (
	"cmp"
	"math/bits"
	"slices"
)

// Queue holds the tasks that wait for one agent. The one of the lowest rank goes
// first; of two of the same rank, the one that came first. Tasks are moved about,
// so those of any size are best held by pointers. The zero value is empty.
type Queue[T any] struct {
	// items are a min-max heap (Atkinson, Sack, Santoro and Strothotte, 1986): what
	// stands on an even level, as the first one does, goes before all that is below
	// it, and what stands on an odd one after that. So first and last are both near.
	items []queued[T]
	came  uint64
}

type queued[T any] struct {
	rank int64
	came uint64
	task T
}

func before[T any](a, b *queued[T]) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.came, b.came))
}

// Len is how many tasks wait.
func (q *Queue[T]) Len() int { return len(q.items) }

// Head is the task that goes next. There must be one.
func (q *Queue[T]) Head() T { return q.items[0].task }

// Push lets a task wait.
func (q *Queue[T]) Push(task T, rank int64) {
	q.came++
	q.items = append(q.items, queued[T]{rank, q.came, task})
	q.rise(len(q.items) - 1)
}

// Pop takes out the task that goes next. There must be one.
func (q *Queue[T]) Pop() T { return q.take(0) }

// GiveWay takes out the task that would go last, if one of that rank goes before
// it; ok is false if none does.
func (q *Queue[T]) GiveWay(rank int64) (task T, ok bool) {
	last := min(1, len(q.items)-1)
	if len(q.items) > 2 && q.goes(2, 1, false) {
		last = 2
	}
	if last < 0 || rank >= q.items[last].rank {
		return task, false
	}
	return q.take(last), true
}

// take takes out the i-th item, which is the first or the last to go.
func (q *Queue[T]) take(i int) T {
	task, last := q.items[i].task, len(q.items)-1
	q.items[i] = q.items[last]
	q.items[last] = queued[T]{}
	if q.items = q.items[:last]; last == 0 {
		q.items = nil
	}
	if i < last {
		q.sink(i)
	}
	return task
}

// goes reports whether the i-th item goes first of the two, or last.
func (q *Queue[T]) goes(i, j int, first bool) bool {
	return (before(&q.items[i], &q.items[j]) < 0) == first
}

func (q *Queue[T]) swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }

// onFirst reports whether what stands at i goes before all below it.
func onFirst(i int) bool { return bits.Len(uint(i+1))%2 == 1 }

// rise moves the i-th item, which may stand too low, to its place.
func (q *Queue[T]) rise(i int) {
	first := onFirst(i)
	if up := (i - 1) / 2; i > 0 && q.goes(i, up, !first) {
		q.swap(i, up)
		i, first = up, !first
	}
	for i > 2 {
		up := ((i-1)/2 - 1) / 2
		if !q.goes(i, up, first) {
			return
		}
		q.swap(i, up)
		i = up
	}
}

// sink moves the i-th item, which may stand too high, to its place.
func (q *Queue[T]) sink(i int) {
	for first := onFirst(i); ; {
		next := i // of it, its children and theirs, the one that belongs here
		for _, below := range [...]struct{ from, to int }{{2*i + 1, 2*i + 3}, {4*i + 3, 4*i + 7}} {
			for j := below.from; j < min(below.to, len(q.items)); j++ {
				if q.goes(j, next, first) {
					next = j
				}
			}
		}
		if next == i {
			return
		}
		q.swap(i, next)
		if next <= 2*i+2 {
			return
		}
		if up := (next - 1) / 2; q.goes(next, up, !first) {
			q.swap(next, up)
		}
		i = next
	}
}

// Expire takes out the tasks that over reports, but for the first ones that are to
// be kept, and gives them in the order in which they would have gone.
func (q *Queue[T]) Expire(keep int, over func(T) bool) []T {
	if len(q.items) <= keep || !slices.ContainsFunc(q.items, func(i queued[T]) bool { return over(i.task) }) {
		return nil
	}
	slices.SortFunc(q.items, func(a, b queued[T]) int { return before(&a, &b) })
	var out []T
	n := keep
	for i := keep; i < len(q.items); i++ {
		if over(q.items[i].task) {
			out = append(out, q.items[i].task)
			continue
		}
		q.items[n] = q.items[i]
		n++
	}
	clear(q.items[n:])
	q.items = q.items[:n]
	for i := n / 2; i >= 0; i-- {
		q.sink(i)
	}
	return out
}
