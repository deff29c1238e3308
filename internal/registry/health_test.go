package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// TestHealthFile: how an agent is looked at, in a file, in the units of a file;
// what is wrong is said with its place.
func TestHealthFile(t *testing.T) {
	for text, want := range map[string]any{
		`{}`:                                parley.HealthCheck{},
		`{enabled: true}`:                   parley.HealthCheck{},
		`{enabled: false}`:                  parley.HealthCheck{Off: true},
		`{interval: 10s, timeout: 500ms}`:   parley.HealthCheck{Interval: 10 * time.Second, Timeout: 500 * time.Millisecond},
		`{interval_ms: 60000}`:              parley.HealthCheck{Interval: time.Minute},
		`{interval_ms: soon}`:               "must be a whole number",
		`{interval: 10ms}`:                  "must be 1 s to 1 h",
		`{timeout: 1m}`:                     "must be 100 ms to 30 s",
		`{interval: 2s, timeout: 3s}`:       "must be at most interval_ms",
		`{interval: 2s, interval_ms: 2000}`: "interval_ms says the same as interval",
		`{every: 2s}`:                       "every",
		`[]`:                                "must be a mapping",
	} {
		specs, problems := registry.LoadFile("agents.yaml", fmt.Appendf(nil, "agents:\n  - {name: a, url: http://h/, health: %s}\n", text))
		if fault, ok := want.(string); ok {
			if len(problems) == 0 || !strings.Contains(fmt.Sprint(problems), fault) || !strings.Contains(fmt.Sprint(problems), "agents.yaml:2") {
				t.Errorf("%s: %v, want %q", text, problems, fault)
			}
			continue
		}
		if len(problems) > 0 || len(specs) != 1 {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if d := cmp.Diff(want, *specs[0].Health); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}
