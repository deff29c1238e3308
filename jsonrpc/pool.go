package jsonrpc

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A pool runs jobs on goroutines that are started on demand and used again. It
// starts every job at once, whatever the other jobs do, but it does not wake a
// goroutine for each of them: whoever is awake takes the next job and wakes one
// other, and only when there are more. Of a hundred quick jobs one goroutine
// runs nearly all; a hundred that block get a goroutine each.
type pool struct {
	max int
	run func(*job)

	released atomic.Int32 // jobs that are active, but hold no place

	mu      sync.Mutex
	head    *job // waiting jobs, first come first served
	tail    *job
	active  int       // jobs waiting and running
	done    uint64    // jobs that ended
	workers int       // goroutines that were not dismissed
	idle    []*worker // the last in is the first out, so that the rest can end
	waking  bool      // a worker was woken, and has not looked yet
	closed  bool
	quiet   chan struct{} // closed when nothing is active; nil when nobody waits
	trimmer *time.Timer
	round   int // of trimming
	tasks   sync.WaitGroup
}

// A worker is a goroutine of the pool.
type worker struct {
	wake  chan struct{}
	since int  // the round in which it became idle
	freed bool // its job has released its place
}

// idleTime is how long an idle goroutine is kept, at least; twice of it at most.
const idleTime = 10 * time.Second

// submit runs j, and says whether it does: with all places taken it does not.
func (p *pool) submit(j *job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fullLocked() || p.closed {
		return false
	}
	p.active++
	if p.head == nil {
		p.head = j
	} else {
		p.tail.next = j
	}
	p.tail = j
	p.wakeLocked()
	return true
}

// fullLocked says that all places are taken; p.mu is held.
func (p *pool) fullLocked() bool { return p.active-int(p.released.Load()) >= p.max }

// release gives the place of the job that w runs to another job. It is called
// when the job is done and before anybody is told, since who was told may take
// the place at once, whenever the goroutine of w gets to its end.
func (p *pool) release(w *worker) {
	if !w.freed {
		w.freed = true
		p.released.Add(1)
	}
}

// submitSoon submits j. With all places taken it lets them run, as long as some
// of them end: quick jobs that come faster than they are done hold up who
// submits them, and are not refused. Jobs that all wait, perhaps for an answer
// that who submits has to read, do not hold it up.
func (p *pool) submitSoon(j *job) bool {
	const patience = 100 // turns without any job ending
	var done uint64
	for turn := 0; turn < patience; turn++ {
		if p.submit(j) {
			return true
		}
		p.mu.Lock()
		if p.done != done {
			done, turn = p.done, 0
		}
		p.mu.Unlock()
		runtime.Gosched()
	}
	return false
}

// wakeLocked sees to it that somebody looks for waiting jobs.
func (p *pool) wakeLocked() {
	if p.waking || p.head == nil {
		return
	}
	p.waking = true
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		w.wake <- struct{}{}
		return
	}
	p.workers++
	p.tasks.Go(p.work)
	if p.workers == 1 {
		p.trimLater()
	}
}

// work is the goroutine of a worker.
func (p *pool) work() {
	w := &worker{wake: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		p.waking = false
		for p.head != nil {
			j := p.head
			p.head, j.next = j.next, nil
			p.wakeLocked()
			p.runUnlocked(w, j)
		}
		if p.closed {
			return
		}
		w.since = p.round
		p.idle = append(p.idle, w)
		p.mu.Unlock()
		_, wanted := <-w.wake
		p.mu.Lock()
		if !wanted {
			return
		}
	}
}

// runUnlocked runs j on the goroutine of w, without p.mu. The lock is taken again
// even when the job ends its goroutine by runtime.Goexit, as testing's FailNow does.
func (p *pool) runUnlocked(w *worker, j *job) {
	exited := true
	j.worker = w
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.doneLocked()
		if w.freed {
			w.freed = false
			p.released.Add(-1)
		}
		if exited {
			p.workers--
		}
	}()
	p.run(j)
	exited = false
}

func (p *pool) doneLocked() {
	p.active--
	p.done++
	if p.active == 0 && p.quiet != nil {
		close(p.quiet)
		p.quiet = nil
	}
}

// enter counts a job that the caller runs itself, and says whether it may.
func (p *pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fullLocked() || p.closed {
		return false
	}
	p.active++
	return true
}

// leave ends what enter began.
func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doneLocked()
}

// handling returns how many places are taken.
func (p *pool) handling() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active - int(p.released.Load())
}

// running returns how many jobs are active.
func (p *pool) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active
}

// wait waits until no job is active, or ctx ends.
func (p *pool) wait(ctx context.Context) {
	p.mu.Lock()
	if p.active == 0 {
		p.mu.Unlock()
		return
	}
	if p.quiet == nil {
		p.quiet = make(chan struct{})
	}
	quiet := p.quiet
	p.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// close refuses jobs, ends the idle goroutines, and waits for the others.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.trimmer != nil {
		p.trimmer.Stop()
	}
	p.dismiss(len(p.idle))
	p.mu.Unlock()
	p.tasks.Wait()
}

// dismiss ends the n workers that have been idle for longest; p.mu is held.
func (p *pool) dismiss(n int) {
	for _, w := range p.idle[:n] {
		close(w.wake)
	}
	kept := copy(p.idle, p.idle[n:])
	clear(p.idle[kept:])
	p.idle = p.idle[:kept]
	p.workers -= n
}

// trimLater arranges for idle goroutines to be looked for; p.mu is held.
func (p *pool) trimLater() {
	if p.trimmer == nil {
		p.trimmer = time.AfterFunc(idleTime, p.trim)
	} else {
		p.trimmer.Reset(idleTime)
	}
}

// trim ends the goroutines that have been idle for a whole round.
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	n := 0
	for n < len(p.idle) && p.idle[n].since < p.round {
		n++
	}
	p.dismiss(n)
	p.round++
	if p.workers > 0 {
		p.trimLater()
	}
}

// busy says whether other jobs than the caller's are active.
func (p *pool) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active > 1
}
