package server

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The garbage that may gather before it is collected: four times what lives
// while that is little, since each collection costs the same work again; no more
// than gcSlack bytes while it is much, so that thousands of tasks in flight do
// not take five times the memory that they need; never less than what lives.
//
// Above gcFloor bytes in all the process besides keeps no more than an eighth,
// and gcSpare bytes, beyond what lives: pages that are free go back to the
// system, and more is collected. Where gcLarge bytes live and more, that would
// cost too much time: there it grows to as much again.
const (
	gcMostPercent  = 400
	gcLeastPercent = 100
	gcSlack        = 128 << 20
	gcFloor        = 208 << 20
	gcSpare        = 16 << 20
	gcLarge        = 288 << 20
)

// TuneGC sets how much garbage the process may gather and how much memory it
// may keep, after each collection anew by what is alive then, until stop is
// called. It is for programs that are a server and little else; GOGC in the
// environment is better left to decide where it is set, and a limit that is set
// (GOMEMLIMIT) stays.
func TuneGC() (stop func()) {
	t := &gcTuner{limits: debug.SetMemoryLimit(-1) == math.MaxInt64}
	t.percent.Store(gcMostPercent)
	debug.SetGCPercent(gcMostPercent)
	t.watch()
	return func() { t.stopped.Store(true) }
}

type gcTuner struct {
	// limits: the memory limit is the tuner's.
	limits  bool
	percent atomic.Int64
	stopped atomic.Bool
}

// watch has tune called after the next collection.
func (t *gcTuner) watch() {
	sentinel := new(*gcTuner)
	*sentinel = t // not a tiny object: those are freed in batches
	runtime.AddCleanup(sentinel, (*gcTuner).tune, t)
}

// tune is called after a collection.
func (t *gcTuner) tune() {
	if t.stopped.Load() {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	live := samples[0].Value.Uint64() + samples[1].Value.Uint64()
	want := gcPercent(live)
	if had := t.percent.Load(); want*10 < had*9 || want*9 > had*10 || (want != had && want == gcMostPercent) {
		t.percent.Store(want)
		debug.SetGCPercent(int(want))
	}
	if t.limits {
		debug.SetMemoryLimit(memoryLimit(live))
	}
	t.watch()
}

// gcPercent is GOGC for so many bytes that are alive.
func gcPercent(live uint64) int64 {
	return int64(min(max(gcSlack*100/max(live, 1), gcLeastPercent), gcMostPercent))
}

// memoryLimit is GOMEMLIMIT for so many bytes that are alive.
func memoryLimit(live uint64) int64 {
	limit := max(live+live/8+gcSpare, gcFloor)
	if live > gcLarge {
		limit = max(limit, 2*live-gcLarge)
	}
	return int64(limit)
}
