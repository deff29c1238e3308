package workflow

import (
	"time"

	"github.com/parley-project/parley"
)

// ScheduledAt is the time of the firing that started the run, or the run that it
// was copied from; zero if no schedule did.
func (s *State) ScheduledAt() time.Time { return s.scheduledAt }

// Bound is how long the body may take by the start of the run, if that is less than by
// its workflow; 0 otherwise. That of a run that a step has started is the step's affair.
func (s *State) Bound() time.Duration {
	bound := s.timeout // of a run that waits, or waited, for its turn
	if !s.startedAt.IsZero() {
		bound = s.deadline.Sub(s.startedAt)
	}
	if s.parent != nil || bound >= s.def.Timeout {
		return 0
	}
	return max(bound, 0)
}

// Trace is the trace context that the run passes on: that of what has started it.
func (s *State) Trace() parley.Trace { return s.trace }
