// Package jsonrpcsoak keeps the JSON-RPC library busy for minutes with
// everything that it has to bear at once (calls, notifications, batches,
// cancelled and timed out calls, overload, panics, garbage in both directions,
// connections that come and go, on every transport) and watches memory,
// goroutines and file descriptors. What grows, leaks.
package jsonrpcsoak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Report is the outcome of a soak.
type Report struct {
	Samples []Sample
	// Calls, Failed, Wrong: operations that succeeded, that failed as they may
	// under such a load, and answers that were not what was sent.
	Calls, Failed, Wrong int64
	// Unexpected counts the errors that no fault explains, by their text.
	Unexpected map[string]int64
	// Left is how many goroutines more than before were there after everything
	// was closed; Stacks shows all, if there are any.
	Left   int
	Stacks string
}

// Sample is what the process held at one moment at which no act was under way,
// after a collection: connections and clients that live on, and what leaked.
type Sample struct {
	At          time.Duration // since the beginning
	Heap        uint64        // bytes of live objects
	RSS         uint64        // bytes; 0 where the system does not tell
	Goroutines  int
	Descriptors int // 0 where the system does not tell
}

// Run soaks for d and takes a sample every d/120, but not more than five a second.
func Run(ctx context.Context, d time.Duration, progress io.Writer) (*Report, error) {
	runtime.GC()
	before := runtime.NumGoroutine()
	w, err := newWorld(ctx)
	if err != nil {
		return nil, err
	}
	work, stop := context.WithCancel(ctx) // no deadline: what is interrupted must not look timed out
	defer time.AfterFunc(d, stop).Stop()
	defer stop()
	var actors sync.WaitGroup
	for i, a := range w.actors() {
		actors.Go(func() { w.repeat(work, uint64(i), a) })
	}
	r := &Report{Unexpected: make(map[string]int64)}
	begin := time.Now()
	tick := time.NewTicker(max(d/120, 200*time.Millisecond))
	defer tick.Stop()
	for work.Err() == nil {
		select {
		case <-tick.C:
			r.Samples = append(r.Samples, w.sample(begin))
			if n := len(r.Samples); n%12 == 0 {
				fmt.Fprintf(progress, "  %v, %d calls\n", r.Samples[n-1], w.done.Load())
			}
		case <-work.Done():
		}
	}
	actors.Wait()
	err = errors.Join(context.Cause(ctx), w.close())
	r.Calls, r.Failed, r.Wrong = w.done.Load(), w.failed.Load(), w.wrong.Load()
	w.mu.Lock()
	maps.Copy(r.Unexpected, w.unexpected)
	w.mu.Unlock()
	r.Left, r.Stacks = left(before)
	return r, err
}

// left waits for goroutines that are about to end, and counts those that stay.
func left(before int) (n int, stacks string) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		n = runtime.NumGoroutine() - before
		if n <= 0 {
			return 0, ""
		}
		if time.Now().After(end) {
			text := make([]byte, 1<<20)
			return n, string(text[:runtime.Stack(text, true)])
		}
	}
}

// String is one line for people.
func (s Sample) String() string {
	return fmt.Sprintf("%s: heap %.1f MiB, RSS %.0f MiB, %d goroutines, %d descriptors",
		s.At.Round(time.Second), mib(s.Heap), mib(s.RSS), s.Goroutines, s.Descriptors)
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// sample stops the load for a moment, and lets end what the last acts left.
func (w *world) sample(begin time.Time) Sample {
	w.gate.Lock()
	defer w.gate.Unlock()
	const still = 5 // looks in a row without fewer goroutines
	for n, calm := runtime.NumGoroutine(), 0; calm < still; calm++ {
		time.Sleep(20 * time.Millisecond)
		if now := runtime.NumGoroutine(); now < n {
			n, calm = now, 0
		}
	}
	return sample(time.Since(begin))
}

func sample(at time.Duration) Sample {
	runtime.GC()
	debug.FreeOSMemory() // collects again: what pools kept through the first time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := Sample{At: at, Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine()}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseUint(f[1], 10, 64)
			s.RSS = pages * uint64(os.Getpagesize())
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Descriptors = len(open)
	}
	return s
}

// Growth is the change of one figure between the second fifth of the soak, when
// pools and caches have their size, and the last one: medians, because a
// connection may just be coming or going.
func (r *Report) Growth(figure func(Sample) float64) (from, to float64) {
	fifth := max(len(r.Samples)/5, 1)
	middle := func(s []Sample) float64 {
		if len(s) == 0 {
			return 0
		}
		var all []float64
		for _, x := range s {
			all = append(all, figure(x))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	n := len(r.Samples)
	return middle(r.Samples[min(fifth, n):min(2*fifth, n)]), middle(r.Samples[max(n-fifth, 0):])
}

// repeat runs an actor until the time is over.
func (w *world) repeat(ctx context.Context, seed uint64, a actor) {
	d := newDice(seed)
	for ctx.Err() == nil {
		w.gate.RLock()
		err := a.act(ctx, d)
		w.gate.RUnlock()
		switch {
		case err == nil:
			w.done.Add(1)
		case ctx.Err() != nil: // the end interrupts what it meets
		case errors.Is(err, errWrong):
			w.wrong.Add(1)
			w.note(a.name, err)
		case excused(err):
			w.failed.Add(1)
		default:
			w.note(a.name, err)
		}
	}
}

// tally is what the actors count.
type tally struct {
	done, failed, wrong atomic.Int64

	mu         sync.Mutex
	unexpected map[string]int64
}

// maxNoted bounds the different texts that are kept.
const maxNoted = 100

func (t *tally) note(actor string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := actor + ": " + err.Error()
	if _, known := t.unexpected[text]; !known && len(t.unexpected) >= maxNoted {
		text = "others"
	}
	t.unexpected[text]++
}
