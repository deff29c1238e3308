package jsonrpcbench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// pass is what one entrant did in one round.
type pass struct {
	ops           int64
	wall, cpu     time.Duration
	bytes, allocs uint64
	p50, p99      time.Duration
}

func (p pass) rate() float64             { return float64(p.ops) / p.wall.Seconds() }
func (p pass) each(total uint64) float64 { return float64(total) / float64(p.ops) }

// runner drives the operations of one connected entrant.
type runner struct {
	load   load
	remote *remote
	ops    []op
	sent   int64 // notifications, since the connection began
}

func newRunner(ctx context.Context, l load, r *remote) (*runner, error) {
	u := &runner{load: l, remote: r}
	ctx = context.WithoutCancel(ctx) // what a call with a live context costs is a variant
	for range l.workers {
		o, err := l.worker(ctx, r)
		if err != nil {
			return nil, err
		}
		u.ops = append(u.ops, o)
	}
	return u, nil
}

// check runs every worker's operation once and compares the whole answers.
func (u *runner) check() error {
	errs := make([]error, len(u.ops))
	var wg sync.WaitGroup
	for i, o := range u.ops {
		wg.Go(func() { errs[i] = o(true) })
	}
	wg.Wait()
	if u.load.kind == notify {
		u.sent += int64(len(u.ops))
	}
	return errors.Join(first(errs), u.settle())
}

// settle waits until the server has handled every notification.
func (u *runner) settle() error {
	if u.load.kind != notify {
		return nil
	}
	for end := time.Now().Add(20 * time.Second); u.remote.received() < u.sent; {
		if time.Now().After(end) {
			return fmt.Errorf("sent %d notifications, %d were handled", u.sent, u.remote.received())
		}
		time.Sleep(50 * time.Microsecond)
	}
	return nil
}

// measure runs the load for d and counts; with timed, for another d/2 and
// measures each operation.
func (u *runner) measure(d time.Duration, timed bool) (pass, error) {
	if err := u.check(); err != nil {
		return pass{}, err
	}
	if _, err := u.run(d/8, nil); err != nil { // warm up
		return pass{}, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := u.run(d, nil)
	if err != nil {
		return p, err
	}
	runtime.ReadMemStats(&after)
	p.bytes, p.allocs = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	if timed {
		err = u.latency(&p, d/2)
	}
	return p, err
}

// maxSamples bounds the latencies that one worker keeps in one pass.
const maxSamples = 1 << 20

func (u *runner) latency(p *pass, d time.Duration) error {
	took := make([][]time.Duration, len(u.ops))
	for i := range took {
		took[i] = make([]time.Duration, 0, maxSamples/len(u.ops))
	}
	if _, err := u.run(d, took); err != nil {
		return err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) > 0 {
		p.p50, p.p99 = all[len(all)/2], all[len(all)*99/100]
	}
	return nil
}

// run lets all workers go for d. If took is not nil it keeps the latencies.
func (u *runner) run(d time.Duration, took [][]time.Duration) (pass, error) {
	var (
		stop  atomic.Bool
		wg    sync.WaitGroup
		start = make(chan struct{})
		done  = make([]int64, len(u.ops))
		errs  = make([]error, len(u.ops))
	)
	for i, o := range u.ops {
		wg.Go(func() {
			<-start
			if took == nil {
				done[i], errs[i] = repeat(&stop, o)
			} else {
				done[i], errs[i] = repeatTimed(&stop, o, &took[i])
			}
		})
	}
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	cpu, begin := cpuTime(), time.Now()
	close(start)
	wg.Wait()
	var p pass
	for _, n := range done {
		p.ops += n
	}
	err := first(errs)
	if u.load.kind == notify {
		u.sent += p.ops
		if err == nil {
			err = u.settle()
		}
	}
	p.wall, p.cpu = time.Since(begin), cpuTime()-cpu
	return p, err
}

// first is the first error: the others say the same.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func repeat(stop *atomic.Bool, o op) (n int64, err error) {
	for n == 0 || !stop.Load() {
		if err := o(false); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func repeatTimed(stop *atomic.Bool, o op, took *[]time.Duration) (n int64, err error) {
	for n == 0 || !stop.Load() && len(*took) < cap(*took) {
		begin := time.Now()
		if err := o(false); err != nil {
			return n, err
		}
		*took = append(*took, time.Since(begin))
		n++
	}
	return n, nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
