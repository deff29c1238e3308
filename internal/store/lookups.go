package store

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Who decides about a run that another process works on looks up one attempt for
// each of its steps. Those who come while another look is under way share the next
// one: for the server many attempts of one query are little more work than one.

// lookupSizes are how many attempts a query may ask for, so that few texts are
// prepared. The last is the most.
var lookupSizes = [...]int{1, 4, 16, 64}

// lookups are the attempts that callers of [DB.Attempt] wait for.
type lookups struct {
	// turn is full while one of the callers asks for what all of them want.
	turn chan struct{}

	mu      sync.Mutex // protects waiting
	waiting []*lookup
}

// lookup is one attempt that a caller waits for.
type lookup struct {
	id string
	// done is closed when the rest is set.
	done  chan struct{}
	found bool
	a     Attempt
	err   error
}

// Attempt gives one attempt, without its input, as it is in the database at some
// time during the call; ok is false if there is none of that id.
func (db *DB) Attempt(ctx context.Context, id string) (a Attempt, ok bool, err error) {
	l := &lookup{id: id, done: make(chan struct{})}
	db.lookups.add(l)
	for waits := true; waits; {
		select {
		case <-l.done:
			waits = false
		case <-ctx.Done():
			db.lookups.drop(l)
			return a, false, context.Cause(ctx)
		case db.lookups.turn <- struct{}{}:
			db.lookUp(ctx, l)
			<-db.lookups.turn
		}
	}
	if l.err != nil || !l.found {
		return a, false, l.err
	}
	f := fetcher{db: db}
	f.output(&l.a)
	err = f.fetch(ctx)
	return l.a, err == nil, err
}

func (q *lookups) add(l *lookup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, l)
}

func (q *lookups) drop(l *lookup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(o *lookup) bool { return o == l })
}

// take gives those that are next.
func (q *lookups) take() []*lookup {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), lookupSizes[len(lookupSizes)-1])
	next := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return next
}

// putBack has those that are not done wait again, before all others.
func (q *lookups) putBack(list []*lookup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(list, q.waiting...)
}

// lookUp asks for those that are next, as the caller who waits for mine. If that
// one's time is over meanwhile, another one asks for the others.
func (db *DB) lookUp(ctx context.Context, mine *lookup) {
	list := db.lookups.take()
	if len(list) == 0 {
		return
	}
	wanted := make(map[string][]*lookup, len(list))
	for _, l := range list {
		wanted[l.id] = append(wanted[l.id], l)
	}
	text, args := lookupQuery(list)
	err := db.read(ctx, text, func(r *record) error {
		// One that cannot be read is not to be the trouble of the others, and nobody
		// is to share what another one changes.
		for _, l := range wanted[r.str()] {
			r.next, l.found = 0, true
			l.a, l.err = readAttempt(r)
			l.err = db.readFailure(ctx, l.err)
		}
		return nil
	}, args...)
	if err != nil && ctx.Err() != nil {
		db.lookups.putBack(slices.DeleteFunc(list, func(l *lookup) bool { return l == mine }))
		return
	}
	for _, l := range list {
		if err != nil {
			l.err = err
		}
		close(l.done)
	}
}

const selectAttempt = `SELECT ` + endColumns + ` FROM attempt WHERE id = ?`

// lookupQuery gives the query for attempts. Where it has room for more it asks for
// the first one again.
func lookupQuery(list []*lookup) (text string, args []any) {
	size := lookupSizes[0]
	for _, s := range lookupSizes {
		if size = s; s >= len(list) {
			break
		}
	}
	for i := range size {
		if i >= len(list) {
			i = 0
		}
		args = append(args, list[i].id)
	}
	return lookupText(size), args
}

func lookupText(size int) string {
	if size == 1 {
		return selectAttempt
	}
	return `SELECT ` + endColumns + ` FROM attempt WHERE id IN (?` + strings.Repeat(", ?", size-1) + `)`
}
