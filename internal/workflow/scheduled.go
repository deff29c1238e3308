package workflow

import "time"

// ScheduledAt is the time of the firing that started the run, or the run that it
// was copied from; zero if no schedule did.
func (s *State) ScheduledAt() time.Time { return s.scheduledAt }
