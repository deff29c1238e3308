package bridge

import (
	"sync"
	"sync/atomic"
)

// maxResting bounds the goroutines that wait for the next call. Calls that tell
// their results have given their slots back, so that there are more goroutines
// than calls in flight, and those of a burst come back together.
const maxResting = 512

// crew runs calls, each on a goroutine that it has to itself. One that is done
// with its call rests until the next one comes: a fresh goroutine has to grow
// its stack step by step, which took 3 % of the CPU of a workflow.
type crew struct {
	next    chan func()
	resting atomic.Int64
	members sync.WaitGroup
}

func newCrew() *crew { return &crew{next: make(chan func())} }

// do runs work at once, and does not wait for it.
func (c *crew) do(work func()) {
	select {
	case c.next <- work:
	default:
		c.members.Go(func() { c.serve(work) })
	}
}

func (c *crew) serve(work func()) {
	for work != nil {
		work()
		work = c.rest()
	}
}

// rest gives what is to be done next, or nil if enough others wait for it or
// nothing comes any more.
func (c *crew) rest() (work func()) {
	defer c.resting.Add(-1)
	if c.resting.Add(1) > maxResting {
		return nil
	}
	return <-c.next
}

// dismiss waits until all work is done. None is given to the crew afterwards.
func (c *crew) dismiss() {
	close(c.next)
	c.members.Wait()
}
