package parley_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestCheckKeyName: a key has a name of its own, which nothing else is recorded
// under.
func TestCheckKeyName(t *testing.T) {
	for _, name := range []string{"a", "Ann", "ci-2", "ann.b_c", "9", "schedules", "my-zone", strings.Repeat("a", 64)} {
		if err := parley.CheckKeyName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "-a", "_a", "a b", "a/b", "ann\n", "a\x00", "\u00e4", "a\xff", "agents file", strings.Repeat("a", 65),
		"system", "System", "api", "concurrency", "event", "folder", "kafka", "request", "rerun", "retry", "sample", "schedule", "Schedule", "timeout", "webhook", "workflow", "zone",
	} {
		if err := parley.CheckKeyName(name); parley.CodeOf(err) != parley.CodeInvalid || len(err.Error()) > 400 {
			t.Errorf("%q: %v", name, err)
		}
	}
}
