package registry

import (
	"math"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// The ranges of a breaker.
const (
	maxThreshold    = 1000    // calls in a row
	maxMinimumCalls = 100_000 // calls in the window
	maxProbes       = 100     // calls at a time
	minBreakerTime  = time.Second
	maxBreakerTime  = time.Hour
)

// CheckBreaker reports every fault of a breaker as the registry does for that of
// a record: the error is a [*parley.Error] of code invalid, or nil.
func CheckBreaker(b parley.Breaker) error {
	var f faults
	checkBreaker(b, &f)
	return f.err("breaker")
}

// checkBreaker reports what is wrong with a breaker; the zero value is none.
func checkBreaker(b parley.Breaker, f *faults) {
	if b == (parley.Breaker{}) {
		return
	}
	if b.FailureThreshold < 1 || b.FailureThreshold > maxThreshold {
		f.add("breaker.failure_threshold", faultValue, "must be 1 to %d calls", maxThreshold)
	}
	if !(b.FailureRate > 0 && b.FailureRate <= 1) || math.IsNaN(b.FailureRate) {
		f.add("breaker.failure_rate_threshold", faultValue, "must be more than 0 and at most 1")
	}
	if b.MinimumCalls < 0 || b.MinimumCalls > maxMinimumCalls {
		f.add("breaker.minimum_calls", faultValue, "must be 0 (failure_threshold) to %d calls", maxMinimumCalls)
	}
	if b.HalfOpenCalls < 1 || b.HalfOpenCalls > maxProbes {
		f.add("breaker.half_open_max_calls", faultValue, "must be 1 to %d calls", maxProbes)
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"timeout_seconds", b.OpenFor}, {"window_size_seconds", b.Window}} {
		if t.d < minBreakerTime || t.d > maxBreakerTime || t.d%time.Millisecond != 0 {
			f.add("breaker."+t.name, faultValue, "must be 1 s to 1 h, in whole milliseconds")
		}
	}
	switch b.OnOpen {
	case "", parley.OnOpenWait, parley.OnOpenFail:
	default:
		f.add("breaker.on_open", faultValue, "must be one of wait, fail")
	}
}

// breaker reads the member breaker of an agents file. What it does not say has
// its default, also that it is enabled.
func (a *entryReader) breaker(n *yaml.Node) *parley.Breaker {
	path := a.path + ".breaker"
	members := a.members(n, path, []string{
		"enabled", "failure_threshold", "failure_rate_threshold", "minimum_calls", "timeout", "timeout_seconds", "half_open_max_calls",
		"window", "window_size_seconds", "on_open",
	})
	if members == nil {
		return nil
	}
	at := func(name string) (*yaml.Node, string) {
		n := members[name]
		if n != nil {
			a.at["breaker."+name] = place{n, path + "." + name}
		}
		return n, path + "." + name
	}
	b := parley.DefaultBreaker()
	if n, p := at("enabled"); n != nil {
		set(&b.Enabled, a.boolean(n, p))
	}
	if n, p := at("failure_threshold"); n != nil {
		set(&b.FailureThreshold, a.integer(n, p))
	}
	if n, p := at("failure_rate_threshold"); n != nil {
		set(&b.FailureRate, a.number(n, p))
	}
	if n, p := at("minimum_calls"); n != nil {
		set(&b.MinimumCalls, a.integer(n, p))
	}
	if n, p := at("half_open_max_calls"); n != nil {
		set(&b.HalfOpenCalls, a.integer(n, p))
	}
	set(&b.OpenFor, a.seconds(members, path, "timeout", "timeout_seconds"))
	set(&b.Window, a.seconds(members, path, "window", "window_size_seconds"))
	if n, p := at("on_open"); n != nil {
		if s := a.text(n, p); s != nil {
			b.OnOpen = parley.OnOpen(*s)
		}
	}
	return &b
}

// seconds reads a time that is given as a duration, or in seconds under its old
// name.
func (a *entryReader) seconds(members map[string]*yaml.Node, path, name, old string) *time.Duration {
	n, o := members[name], members[old]
	key := "breaker." + old
	switch {
	case n != nil && o != nil:
		a.problem(o, path+"."+old, faultDuplicate, old+" says the same as "+name+"; give one of them")
	case n != nil:
		a.at[key] = place{n, path + "." + name}
		return a.duration(n, path+"."+name)
	case o != nil:
		a.at[key] = place{o, path + "." + old}
		if f := a.number(o, path+"."+old); f != nil {
			return new(secondsOf(*f))
		}
	}
	return nil
}

// secondsOf gives a time in seconds; what does not fit is out of every range.
func secondsOf(f float64) time.Duration {
	return time.Duration(math.Round(min(max(f, -1e6), 1e6)*1000)) * time.Millisecond
}
