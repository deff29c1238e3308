package breaker

import (
	"fmt"
	"time"

	"github.com/parley-project/parley"
)

// parts is into how many parts the window is divided. What is older than the
// window, by at most one part less, counts no more.
const parts = 20

// window counts the calls of one bridge to one agent.
type window struct {
	// row are the times of the newest calls if they have all failed, as many as
	// may matter.
	row []time.Time
	// part is counted from the zero time; those up to last are valid.
	counts [parts]struct{ calls, failures int }
	last   int64
	// since is when the oldest call that may count was noted.
	since time.Time
}

// note counts a call.
func (w *window) note(set *parley.Breaker, failed bool, now time.Time) {
	w.advance(set.Window, now)
	if w.since.IsZero() {
		w.since = now
	}
	at := &w.counts[w.last%parts]
	at.calls++
	if !failed {
		w.row = w.row[:0]
		return
	}
	at.failures++
	w.row = append(w.row, now)
	old := max(0, len(w.row)-set.FailureThreshold)
	for old < len(w.row) && now.Sub(w.row[old]) >= set.Window {
		old++
	}
	w.row = append(w.row[:0], w.row[old:]...)
}

// advance forgets what is too old.
func (w *window) advance(size time.Duration, now time.Time) {
	part := now.UnixNano() / int64(max(size/parts, 1))
	if part-w.last >= parts || part < w.last {
		clear(w.counts[:])
		w.last = part
		w.since = time.Time{}
	}
	for w.last < part {
		w.last++
		clear(w.counts[w.last%parts : w.last%parts+1])
	}
}

// verdict says why the newest call, which has failed, opens the circuit; "" if
// it does not.
func (w *window) verdict(set *parley.Breaker) string {
	if n := set.FailureThreshold; len(w.row) >= n {
		return fmt.Sprintf("%d calls in a row have failed", n)
	}
	calls, failures := w.sum()
	least := set.MinimumCalls
	if least == 0 {
		least = set.FailureThreshold
	}
	if calls >= least && float64(failures) >= set.FailureRate*float64(calls) {
		return fmt.Sprintf("%d of %d calls within %v have failed", failures, calls, set.Window)
	}
	return ""
}

func (w *window) sum() (calls, failures int) {
	for _, p := range w.counts {
		calls += p.calls
		failures += p.failures
	}
	return calls, failures
}
