package server

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestCircuitText: a circuit whose time is over is not spoken of as open until then.
func TestCircuitText(t *testing.T) {
	until := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	c := parley.BreakerState{Agent: "a", Circuit: parley.CircuitOpen, Until: until}
	for at, want := range map[time.Time]string{
		until.Add(-time.Second): "is open after failures until 2026-11-22T12:00:00Z",
		until:                   "the time of a's open circuit is over",
	} {
		if got := circuitText("a", c, at); !strings.Contains(got, want) {
			t.Errorf("at %v: %s", at, got)
		}
	}
}
