package executor

import (
	"strings"

	"github.com/parley-project/parley"
)

// ownKey refuses a key that a schedule might use: its firing would take the run of
// somebody else for its own.
func ownKey(key string) error {
	if strings.HasPrefix(key, parley.ScheduleKeyPrefix) {
		return parley.Errorf(parley.CodeInvalid, "idempotency_key: keys that begin with %s are those of schedules; use another", parley.ScheduleKeyPrefix)
	}
	return nil
}
