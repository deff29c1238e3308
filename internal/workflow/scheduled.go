package workflow

import (
	"time"

	"github.com/parley-project/parley"
)

// ScheduledAt is the time of the firing that started the run, or the run that it
// was copied from; zero if no schedule did.
func (s *State) ScheduledAt() time.Time { return s.scheduledAt }

// Trace is the trace context that the run passes on: that of what has started it.
func (s *State) Trace() parley.Trace { return s.trace }
