package admission

import (
	"cmp"
	"slices"
)

// Queue holds the tasks that wait for one agent. The one of the lowest rank goes
// first; of two of the same rank, the one that came first. Tasks are moved about,
// so those of any size are best held by pointers. The zero value is empty.
type Queue[T any] struct {
	// items are a binary heap.
	items []queued[T]
	came  uint64
	// most is no less than the highest rank.
	most int64
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
	if len(q.items) == 0 || rank > q.most {
		q.most = rank
	}
	q.came++
	q.items = append(q.items, queued[T]{rank, q.came, task})
	q.rise(len(q.items) - 1)
}

// Pop takes out the task that goes next. There must be one.
func (q *Queue[T]) Pop() T { return q.take(0) }

// GiveWay takes out the task that would go last, if one of that rank goes before
// it; ok is false if none does.
func (q *Queue[T]) GiveWay(rank int64) (task T, ok bool) {
	if len(q.items) == 0 || rank >= q.most {
		return task, false
	}
	last := 0
	for i := range q.items {
		if before(&q.items[last], &q.items[i]) < 0 {
			last = i
		}
	}
	if q.most = q.items[last].rank; rank >= q.most {
		return task, false
	}
	return q.take(last), true
}

// take takes out the i-th item.
func (q *Queue[T]) take(i int) T {
	task, last := q.items[i].task, len(q.items)-1
	q.items[i] = q.items[last]
	q.items[last] = queued[T]{}
	if q.items = q.items[:last]; last == 0 {
		q.items = nil
	}
	if i < last {
		q.sink(i)
		q.rise(i)
	}
	return task
}

func (q *Queue[T]) rise(i int) {
	for i > 0 {
		up := (i - 1) / 2
		if before(&q.items[up], &q.items[i]) < 0 {
			return
		}
		q.items[up], q.items[i] = q.items[i], q.items[up]
		i = up
	}
}

func (q *Queue[T]) sink(i int) {
	for {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < len(q.items); down++ {
			if before(&q.items[down], &q.items[least]) < 0 {
				least = down
			}
		}
		if least == i {
			return
		}
		q.items[i], q.items[least] = q.items[least], q.items[i]
		i = least
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
	return out
}
