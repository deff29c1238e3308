package kafka

import (
	"context"
	"slices"
	"sync"

	"github.com/parley-project/parley/internal/bus"
)

// handleFunc takes a message; done acknowledges it.
type handleFunc func(ctx context.Context, m bus.Message, done func())

// item is a record that waits for its handler.
type item struct {
	message bus.Message
	// part says whether the record is still ours to handle; nil where nobody
	// owns partitions.
	part *partition
	done func()
	// size is what the record takes while it waits.
	size int64
	// deferred: the record stays in hand after its handler has returned.
	deferred bool
}

// member is one subscription of this process.
type member struct {
	handle  handleFunc
	ctx     context.Context //nolint:containedctx // a member's context ends with its subscription
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newMember(ctx context.Context, h handleFunc) *member {
	m := &member{handle: h}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return m
}

// line is the records of one key in their order.
type line struct {
	key  string
	wait []item
}

// queue hands records to the members of one subject in this process: those of
// a key one at a time in their order, different keys beside each other, by no
// more than the given number of workers. It is bounded by who adds.
type queue struct {
	limit int
	tasks sync.WaitGroup

	mu      sync.Mutex // protects what follows
	members []*member
	next    int
	lines   map[string]*line
	ready   []*line
	waiting int
	bytes   int64 // of those that wait
	// busy of the workers have a record in hand; the others take one next.
	workers int
	busy    int
	over    bool
	// eased, if not nil, is called without mu when a record has left.
	eased func()
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, lines: make(map[string]*line)}
}

func (q *queue) join(m *member) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.members = append(q.members, m)
}

// part takes a member out and says whether it was the last: then what waits is
// dropped.
func (q *queue) part(m *member) (empty bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.members = slices.DeleteFunc(q.members, func(o *member) bool { return o == m })
	if len(q.members) == 0 {
		q.over, q.ready, q.lines = true, nil, nil
		return true
	}
	return false
}

// add puts records into their lines.
func (q *queue) add(items []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	q.waiting += len(items)
	for _, it := range items {
		q.bytes += it.size
		l := q.lines[it.message.Key]
		if l == nil {
			l = &line{key: it.message.Key}
			q.lines[it.message.Key] = l
			q.ready = append(q.ready, l)
		}
		l.wait = append(l.wait, it)
	}
	for q.workers < q.limit && q.workers-q.busy < len(q.ready) {
		q.workers++
		q.tasks.Go(q.work)
	}
}

// work handles one record after the other until no line is ready.
func (q *queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 && !q.over {
		l := q.ready[0]
		q.ready[0] = nil // let go of the line
		q.ready = q.ready[1:]
		it := l.wait[0]
		l.wait[0] = item{} // let go of the value
		l.wait = l.wait[1:]
		q.waiting--
		q.bytes -= it.size
		q.next++
		to := q.members[q.next%len(q.members)]
		to.running.Add(1) // under mu: a member that parts waits for it
		eased := q.eased
		q.busy++
		q.mu.Unlock()
		if it.part == nil || it.part.begin() {
			ctx := to.ctx
			if it.deferred {
				ctx = it.part.during(to)
			}
			to.handle(ctx, it.message, it.done)
			if it.part != nil {
				it.part.finished()
			}
		}
		to.running.Done()
		if eased != nil {
			eased()
		}
		q.mu.Lock()
		q.busy--
		if len(l.wait) > 0 {
			q.ready = append(q.ready, l)
		} else {
			delete(q.lines, l.key)
		}
	}
	q.workers--
}

// length is the number of records that wait, and their bytes.
func (q *queue) length() (records int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, q.bytes
}

// disband ends a queue with all its members and waits for their handlers.
func (q *queue) disband() {
	q.mu.Lock()
	members := q.members
	q.over, q.ready, q.lines = true, nil, nil
	q.mu.Unlock()
	for _, m := range members {
		m.cancel()
	}
	q.tasks.Wait()
}
