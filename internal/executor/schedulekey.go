package executor

import (
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// scheduleKey begins the idempotency keys of runs that schedules have started.
const scheduleKey = "parley:schedule:"

// ScheduleKey is the idempotency key of the run that a firing starts: there is one
// for each schedule and time (language rule C7).
func ScheduleKey(schedule string, at time.Time) string {
	return scheduleKey + schedule + ":" + at.UTC().Format(time.RFC3339Nano)
}

// ownKey refuses a key that a schedule might use: its firing would take the run of
// somebody else for its own.
func ownKey(key string) error {
	if strings.HasPrefix(key, scheduleKey) {
		return parley.Errorf(parley.CodeInvalid, "idempotency_key: keys that begin with %s are those of schedules; use another", scheduleKey)
	}
	return nil
}
