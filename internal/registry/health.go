package registry

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// The ranges of how an agent is looked at.
const (
	minLookInterval = time.Second
	maxLookInterval = time.Hour
	minLookTimeout  = 100 * time.Millisecond
	maxLookTimeout  = 30 * time.Second
)

// checkHealth reports what is wrong with how an agent is to be looked at.
func checkHealth(h parley.HealthCheck, f *faults) {
	if d := h.Interval; d != 0 && (d < minLookInterval || d > maxLookInterval || d%time.Millisecond != 0) {
		f.add("health.interval_ms", faultValue, "must be 1 s to 1 h, in whole milliseconds; 0 is the server's")
	}
	if d := h.Timeout; d != 0 && (d < minLookTimeout || d > maxLookTimeout || d%time.Millisecond != 0) {
		f.add("health.timeout_ms", faultValue, "must be 100 ms to 30 s, in whole milliseconds; 0 is the server's")
	}
	if h.Interval != 0 && h.Timeout > h.Interval {
		f.add("health.timeout_ms", faultValue, "must be at most interval_ms")
	}
}

// health lays what a spec says over what is stored.
func health(stored, spec *parley.HealthCheck) *parley.HealthCheck {
	switch {
	case spec == nil:
		return stored
	case *spec == (parley.HealthCheck{}):
		return nil
	}
	return new(*spec)
}

// health reads the member health of an agents file.
func (a *entryReader) health(n *yaml.Node) *parley.HealthCheck {
	path := a.path + ".health"
	members := a.members(n, path, []string{"enabled", "interval", "interval_ms", "timeout", "timeout_ms"})
	if members == nil {
		return nil
	}
	var h parley.HealthCheck
	if n := members["enabled"]; n != nil {
		if on := a.boolean(n, path+".enabled"); on != nil {
			h.Off = !*on
		}
	}
	set(&h.Interval, a.span(members, path, "interval", "interval_ms"))
	set(&h.Timeout, a.span(members, path, "timeout", "timeout_ms"))
	return &h
}
