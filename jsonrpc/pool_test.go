package jsonrpc

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// withPool runs f in a bubble with a pool of so many places, whose jobs do what run
// says, by their number.
func withPool(t *testing.T, places int, run func(n int), f func(t *testing.T, p *pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pool{max: places}
		p.run = func(j *job) { run(j.entry) }
		f(t, p)
		p.close()
		if p.submit(&job{}) || p.enter() {
			t.Error("a job was taken after the end")
		}
	})
}

// has checks how many goroutines there are, and how many of them are idle.
func (p *pool) has(t *testing.T, workers, idle int) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers != workers || len(p.idle) != idle {
		t.Errorf("%d goroutines, %d of them idle, want %d and %d", p.workers, len(p.idle), workers, idle)
	}
}

// TestPoolReuse proves that jobs one after another need one goroutine, that a
// goroutine that its job has ended is not counted, and that all are idle in the end.
func TestPoolReuse(t *testing.T) {
	withPool(t, 8, func(n int) {
		switch n {
		case 1:
			runtime.Goexit()
		case 2:
			time.Sleep(time.Second)
		}
	}, func(t *testing.T, p *pool) {
		for range 20 {
			p.submit(&job{})
			p.has(t, 1, 1)
		}
		p.submit(&job{entry: 1})
		p.has(t, 0, 0)
		for range 8 {
			if !p.submit(&job{entry: 2}) {
				t.Error("no place")
			}
			synctest.Wait()
		}
		if p.submit(&job{}) || p.enter() {
			t.Error("there are more places than there should be")
		}
		p.has(t, 8, 0)
		time.Sleep(time.Second)
		p.has(t, 8, 8)
		if n := p.running(); n != 0 {
			t.Errorf("%d jobs", n)
		}
	})
}

// TestPoolTrim proves that a goroutine stays for idleTime after its last job, at
// least, and for twice of it at most; and that nothing goes on when all have gone.
func TestPoolTrim(t *testing.T) {
	withPool(t, 8, func(int) { time.Sleep(time.Millisecond) }, func(t *testing.T, p *pool) {
		for range 4 {
			p.submit(&job{})
		}
		time.Sleep(2*idleTime - time.Second) // just before it is looked for the second time
		p.mu.Lock()
		before := len(p.idle)
		p.mu.Unlock()
		p.submit(&job{})
		time.Sleep(time.Second / 2)
		p.has(t, before, before)
		time.Sleep(time.Second)
		p.has(t, 1, 1)
		time.Sleep(idleTime - 2*time.Second)
		p.has(t, 1, 1)
		time.Sleep(idleTime)
		p.has(t, 0, 0)
		round := p.round
		time.Sleep(time.Hour)
		if p.round != round {
			t.Errorf("%d rounds without a goroutine", p.round-round)
		}
		p.submit(&job{})
		p.has(t, 1, 0)
		time.Sleep(idleTime)
		p.has(t, 1, 1)
		time.Sleep(idleTime + time.Second)
		p.has(t, 0, 0)
	})
}

// TestPoolWait proves that all who wait for quiet are told of it, each time anew.
func TestPoolWait(t *testing.T) {
	withPool(t, 8, func(n int) { time.Sleep(time.Duration(n) * time.Second) }, func(t *testing.T, p *pool) {
		for range 2 {
			p.wait(t.Context()) // nothing to wait for
			start := time.Now()
			p.submit(&job{entry: 1})
			p.submit(&job{entry: 3})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					p.wait(t.Context())
					if took := time.Since(start); took != 3*time.Second {
						t.Errorf("told after %v", took)
					}
				})
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				p.wait(ctx)
				if took := time.Since(start); took != time.Second {
					t.Errorf("waited for %v", took)
				}
			})
			wg.Wait()
		}
	})
}

// TestPoolPlaces proves that a place is given on by release, once, that those who
// run their jobs themselves need one, and what busy means.
func TestPoolPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{max: 2}
		over := make(chan struct{})
		p.run = func(j *job) {
			if j.entry == 1 {
				p.release(j.worker)
				p.release(j.worker)
			}
			<-over
		}
		p.submit(&job{entry: 1})
		synctest.Wait()
		if p.handling() != 0 || p.running() != 1 || p.busy() {
			t.Errorf("%d places taken, %d jobs, %v", p.handling(), p.running(), p.busy())
		}
		if !p.enter() || !p.submit(&job{}) || p.enter() || p.submit(&job{}) || p.handling() != 2 || !p.busy() {
			t.Errorf("%d of 2 places taken", p.handling())
		}
		p.leave()
		if p.handling() != 1 || !p.enter() {
			t.Errorf("%d places taken", p.handling())
		}
		p.leave()
		close(over)
		synctest.Wait()
		if p.handling() != 0 || p.running() != 0 || p.released.Load() != 0 {
			t.Errorf("%d places taken, %d jobs, %d released", p.handling(), p.running(), p.released.Load())
		}
		p.close()
	})
}
