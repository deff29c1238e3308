package kafka

import (
	"maps"
	"sync"
	"time"
)

const (
	// dialAgain limits a connection to a broker that said nothing to the last one for as long
	// or longer: one that is back answers at once.
	dialAgain = 2 * time.Second
	// downPast is for how long a broker counts as silent. One that is only slow then gets
	// dialLimit again.
	downPast = 5 * time.Minute
)

// downs are the brokers that said nothing when they were last connected to. The zero value
// has none.
type downs struct {
	mu    sync.Mutex // protects since
	since map[string]time.Time
}

// limit is how long a connection may take.
func (d *downs) limit(address string, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, ok := d.since[address]; ok && now.Sub(at) < downPast {
		return dialAgain
	}
	return dialLimit
}

// dialed notes how a connection went: ended is why it was given up, if it was. The time of
// the first that failed stays.
func (d *downs) dialed(address string, now time.Time, took time.Duration, ended error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.since, func(_ string, at time.Time) bool { return now.Sub(at) >= downPast })
	if ended == nil {
		delete(d.since, address)
		return
	}
	if _, known := d.since[address]; known || took < dialAgain {
		return
	}
	if d.since == nil {
		d.since = make(map[string]time.Time)
	}
	d.since[address] = now
}
