package kafka_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pulse begins to measure how long something takes. It counts only the time in which this
// process could run: what a slow machine takes from it is not the bus's.
func pulse(t *testing.T) (took func() time.Duration) {
	t.Helper()
	const beat = 10 * time.Millisecond
	var beats atomic.Int64
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for tick := time.NewTicker(beat); ; { // of late ticks only one is kept
			select {
			case <-tick.C:
				beats.Add(1)
			case <-t.Context().Done():
				tick.Stop()
				return
			}
		}
	})
	t.Cleanup(tasks.Wait)
	return func() time.Duration { return time.Duration(beats.Load()) * beat }
}
