package direct

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// Retry says how often and when a request is sent again of which nothing ran. The
// zero value is usable.
type Retry struct {
	// Attempts is how often it is sent at most; default 3.
	Attempts int
	// Base and Max bound the pauses: each is random up to Base, twice that, and so
	// on; default 200 ms and 5 s. Whoever asks for a longer pause than Max is not
	// called again here, but by who called.
	Base, Max time.Duration
	// Now is the clock; default time.Now. Jitter gives a number in [0, 1); default
	// is random.
	Now    func() time.Time
	Jitter func() float64
}

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = 3
	}
	if r.Base == 0 {
		r.Base = 200 * time.Millisecond
	}
	if r.Max == 0 {
		r.Max = 5 * time.Second
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Jitter == nil {
		r.Jitter = rand.Float64
	}
	return r
}

// An Exchange sends a request once and tells what came of it.
type Exchange func(ctx context.Context) ([]byte, zone.Info, *zone.TransportError)

// Do lets once send a request until something other comes of it than a failure
// for which again says yes, the attempts are used up, or ctx would end before the
// next one. Info.Attempts of what it returns counts all of them.
func (r Retry) Do(ctx context.Context, once Exchange, again func(*zone.TransportError) bool) ([]byte, zone.Info, error) {
	r = r.withDefaults()
	sent := 0
	for n := 1; ; n++ {
		body, info, fault := once(ctx)
		sent += info.Attempts
		info.Attempts = sent
		if fault == nil {
			return body, info, nil
		}
		fault.Info = info
		if n >= r.Attempts || !again(fault) || !r.wait(ctx, n, fault.RetryAfter) {
			return nil, info, fault
		}
	}
}

// wait reports whether there is to be another attempt, when it is time for it.
func (r Retry) wait(ctx context.Context, n int, asked time.Duration) bool {
	pause := min(r.Max, r.Base<<min(n-1, 16))
	pause = pause/2 + time.Duration(float64(pause/2)*r.Jitter())
	pause = max(pause, asked)
	if deadline, ok := ctx.Deadline(); asked > r.Max || ok && deadline.Sub(r.Now()) <= pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
