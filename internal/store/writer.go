package store

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
)

// errLate is returned by a unit that was refused after it had written. The
// transaction is rolled back; the units beside it are repeated one by one.
var errLate = errors.New("store: refused after a write")

// ErrInDoubt is in the chain of errors after which it is not known whether
// anything was written: the reply to a COMMIT was lost, or PostgreSQL has
// committed without its standby. It may even be written later. Read again, and
// repeat only what may be repeated (protocol.md §4.1).
var ErrInDoubt = errors.New("whether it was written is not known")

// durability says what a unit's caller waits for.
type durability int

const (
	// synced: the commit is on the disk.
	synced durability = iota
	// prompt: committed at once, but synced only if a neighbour is.
	prompt
	// lazy: committed with the next group, or after the flush interval.
	lazy
)

// unit is one write that is executed as a whole or not at all.
type unit struct {
	durability durability
	// exec runs in a transaction that it shares with others. It may be called
	// again after a rollback. An error for which refusal reports true says
	// that nothing was written.
	exec func(*session) error
	// again says that it was executed before, and rolled back.
	again bool
	err   error
	done  chan error
	// taken is set by the writer, or by a caller who does not wait any more.
	taken atomic.Bool
}

// refusal reports whether err is an answer of a unit instead of a failure.
func refusal(err error) bool {
	if errors.Is(err, ErrStale) {
		return true
	}
	e, ok := errors.AsType[*parley.Error](err)
	return ok && e.Code != parley.CodeInternal && e.Code != parley.CodeUnavailable
}

// submit has the writer execute a unit and waits for its outcome. If ctx ends
// before the unit was begun, it is never executed.
func (db *DB) submit(ctx context.Context, d durability, exec func(*session) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := db.schemaAllows(ctx); err != nil {
		return err
	}
	u := &unit{durability: d, exec: exec, done: make(chan error, 1)}
	if err := db.enqueue(ctx, u); err != nil {
		return err
	}
	select {
	case err := <-u.done:
		return err
	case <-ctx.Done():
		if u.taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		// A commit is never given up half way: its outcome is known shortly.
		return <-u.done
	}
}

func (db *DB) enqueue(ctx context.Context, u *unit) error {
	db.closing.RLock()
	defer db.closing.RUnlock()
	if db.closed {
		return errClosed()
	}
	select {
	case db.queue <- u:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func errClosed() error { return parley.Errorf(parley.CodeUnavailable, "the database is closed") }

// points names what a unit consists of, for failpoints.
type points func() []string

func point(name string) points { return func() []string { return []string{name} } }

// transition is submit with the failpoints of the protocol's transitions.
func (db *DB) transition(ctx context.Context, d durability, p points, exec func(*session) error) error {
	if db.options.Failpoint == nil {
		return db.submit(ctx, d, exec)
	}
	names := p()
	for _, name := range names {
		if err := db.options.Failpoint(name + ".before"); err != nil {
			return err
		}
	}
	if err := db.submit(ctx, d, exec); err != nil {
		return err
	}
	for _, name := range names {
		if err := db.options.Failpoint(name + ".after"); err != nil {
			return err
		}
	}
	return nil
}

// writer executes units of one DB. There may be several, which take what waits
// from the same queue.
type writer struct {
	db *DB
	// link is there while a group is committed, see links.
	link  link
	group []*unit
	// due says when the group must not wait any longer.
	due *time.Timer
}

// links are the connections of one DB that write while nobody writes over them. That
// which was used last is taken first: where one is enough no other is made, which takes
// more than a second with a database that is far away.
type links struct {
	using sync.Mutex // protects idle
	idle  []link
}

// take gives a connection, nil if there is none.
func (l *links) take() link {
	l.using.Lock()
	defer l.using.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return nil
	}
	taken := l.idle[last]
	l.idle = l.idle[:last]
	return taken
}

// give takes a connection back.
func (l *links) give(idle link) {
	l.using.Lock()
	defer l.using.Unlock()
	l.idle = append(l.idle, idle)
}

const (
	// gatherEnough is how many units are worth another commit while one is under
	// way, and gatherFor how long fewer wait for that to end at most: what many
	// share costs the server little more than what one has for itself.
	gatherEnough = 32
	gatherFor    = 2 * time.Millisecond
)

// commits lets the writers of one DB take turns.
type commits struct {
	// collecting is full while one of them takes units from the queue.
	collecting chan struct{}
	underway   atomic.Int32
	// idle gets a value when none is under way any more.
	idle chan struct{}
}

func newCommits() *commits {
	return &commits{collecting: make(chan struct{}, 1), idle: make(chan struct{}, 1)}
}

func (c *commits) end() {
	if c.underway.Add(-1) > 0 {
		return
	}
	select {
	case c.idle <- struct{}{}:
	default:
	}
}

// loop runs until the queue is closed and drained.
func (w *writer) loop() {
	c := w.db.committing
	w.due = time.NewTimer(w.db.options.Flush)
	for open := true; open; {
		c.collecting <- struct{}{}
		w.due.Stop()
		open = w.collect()
		c.underway.Add(1)
		<-c.collecting
		w.commitGroup()
		c.end()
	}
}

// collect takes what waits until it is due: at once if nothing is being
// committed, soon if something is, and after a while if all of it is lazy. It is
// false when the queue is closed.
func (w *writer) collect() (open bool) {
	urgent, yielded := false, false
	for len(w.group) < w.db.options.Group {
		select {
		case u, ok := <-w.db.queue:
			if !ok {
				return false
			}
			urgent = w.add(u, urgent)
			continue
		default:
		}
		if urgent && !yielded {
			// Those whom the last commit has woken get the chance to come along.
			yielded = true
			runtime.Gosched()
			continue
		}
		if urgent && (len(w.group) >= gatherEnough || w.db.committing.underway.Load() == 0) {
			return true
		}
		select {
		case u, ok := <-w.db.queue:
			if !ok {
				return false
			}
			urgent = w.add(u, urgent)
		case <-w.db.committing.idle:
		case <-w.due.C:
			return true
		}
	}
	return true
}

// add takes a unit into the group, and reports whether that is urgent now.
func (w *writer) add(u *unit, urgent bool) bool {
	w.group = append(w.group, u)
	switch {
	case u.durability != lazy && !urgent:
		w.due.Reset(gatherFor)
		return true
	case len(w.group) == 1:
		w.due.Reset(w.db.options.Flush)
	}
	return urgent
}

// repeats is how often a unit is executed whose transaction failed because of
// others.
const repeats = 5

// commitGroup executes the group in one transaction, or, if that fails, each
// unit in one of its own, and answers all of them.
func (w *writer) commitGroup() {
	units := w.group[:0]
	for _, u := range w.group {
		if u.taken.CompareAndSwap(false, true) {
			units = append(units, u)
		}
	}
	start := w.db.options.Now()
	w.link = w.db.links.take()
	err := w.reattempt(units)
	if errors.Is(err, errLate) && w.db.dialect.guesses {
		again(units)
		err = w.reattempt(units)
	}
	if w.ends(err) {
		w.fail(units, err)
	} else if err != nil {
		again(units)
		w.single(units)
	}
	if w.link != nil {
		w.db.links.give(w.link)
		w.link = nil
	}
	if took := w.db.options.Now().Sub(start); took > time.Second {
		w.db.options.Logger.Warn("a commit was slow", "took", took, "units", len(units))
	}
	for _, u := range units {
		u.done <- u.err
	}
	clear(w.group)
	w.group = w.group[:0]
}

func again(units []*unit) {
	for _, u := range units {
		u.again = true
	}
}

// singleFor is how long units are tried one by one, each of which may wait 10 s for
// rows that others have locked. After that all that are left would wait in vain
// behind them.
const singleFor = 20 * time.Second

// single executes each unit in a transaction of its own.
func (w *writer) single(units []*unit) {
	began := w.db.options.Now()
	for i := range units {
		err := w.reattempt(units[i : i+1])
		for n := 1; n < repeats && err != nil && w.db.dialect.classify(err) == classRepeat; n++ {
			err = w.reattempt(units[i : i+1])
		}
		if err != nil {
			w.fail(units[i:i+1], err)
		}
		stuck := err != nil && w.db.dialect.classify(err) == classBusy && w.db.options.Now().Sub(began) >= singleFor
		if stuck || w.ends(err) && !errors.Is(err, ErrInDoubt) {
			w.fail(units[i+1:], err) // there is no database to try the others on
			return
		}
	}
}

// ends reports whether an error of a transaction is that of each of its units.
func (w *writer) ends(err error) bool {
	if err == nil || errors.Is(err, ErrInDoubt) || w.db.dialect.classify(err) == classLost {
		return err != nil
	}
	// A newer schema may fit some of them.
	fault := w.db.schemaFault(err)
	return fault != nil && fault.Has < fault.Needs
}

// fail answers units whose transaction has failed.
func (w *writer) fail(units []*unit, err error) {
	answer := ErrStale
	if !errors.Is(err, errLate) {
		if w.db.dialect.full(err) {
			w.db.writes.full.Store(new(w.db.options.Now()))
		}
		if answer = w.db.failure(err); !errors.Is(answer, ErrSchema) { // that has its line
			w.db.options.Logger.Warn("a write has failed", "error", answer, "units", len(units))
		}
	}
	for _, u := range units {
		u.err = answer
	}
}

// reattempt is attempt, and once more if the connection turns out to be gone.
func (w *writer) reattempt(units []*unit) error {
	fresh := w.link == nil
	err := w.attempt(units)
	if fresh || err == nil || errors.Is(err, ErrInDoubt) || w.db.dialect.classify(err) != classLost {
		return err
	}
	return w.attempt(units)
}

// attempt executes units in one transaction. After an error nothing of it is
// written, unless it is in doubt; otherwise each unit's err says whether it was
// refused.
func (w *writer) attempt(units []*unit) (err error) {
	if failed := w.db.failed.Load(); failed != nil {
		return *failed
	}
	if len(units) == 0 {
		return nil
	}
	sync := false
	for _, u := range units {
		sync = sync || u.durability == synced
	}
	if w.link == nil {
		if w.link, err = w.db.connect(context.Background()); err != nil {
			return err
		}
	}
	err = w.link.run(units, sync)
	if w.link.broken() {
		w.closeLink()
	}
	if err != nil {
		if w.db.dialect.classify(err) == classFatal && w.db.failed.CompareAndSwap(nil, &err) {
			close(w.db.fatal)
			w.db.options.Logger.Error("the database has failed, nothing is written any more", "error", err)
		}
		return err
	}
	for _, u := range units {
		if u.err == nil && u.durability == synced {
			w.db.commits.Add(1)
			break
		}
	}
	return nil
}

func (w *writer) closeLink() {
	w.db.closeLink(w.link)
	w.link = nil
}

func (db *DB) closeLink(l link) {
	if err := l.close(); err != nil && !l.broken() {
		db.options.Logger.Warn("closing a connection of the database", "error", err)
	}
}
