package server

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The garbage that may gather before it is collected: four times what lives
// while that is little, since each collection costs the same work again; no more
// than gcSlack bytes while it is much, so that thousands of tasks in flight do
// not take five times the memory that they need; never less than what lives.
const (
	gcMostPercent  = 400
	gcLeastPercent = 100
	gcSlack        = 128 << 20
)

// TuneGC sets how much garbage the process may gather, after each collection
// anew by what is alive then, until stop is called. It is for programs that are
// a server and little else; GOGC in the environment is better left to decide
// where it is set.
func TuneGC() (stop func()) {
	t := &gcTuner{}
	t.percent.Store(gcMostPercent)
	debug.SetGCPercent(gcMostPercent)
	t.watch()
	return func() { t.stopped.Store(true) }
}

type gcTuner struct {
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
	want := gcPercent(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	if had := t.percent.Load(); want*10 < had*9 || want*9 > had*10 || (want != had && want == gcMostPercent) {
		t.percent.Store(want)
		debug.SetGCPercent(int(want))
	}
	t.watch()
}

// gcPercent is GOGC for so many bytes that are alive.
func gcPercent(live uint64) int64 {
	return int64(min(max(gcSlack*100/max(live, 1), gcLeastPercent), gcMostPercent))
}
