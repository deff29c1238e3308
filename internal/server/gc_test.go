package server

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestGCPercent: four times what lives while that is little, 128 MiB beyond,
// and never less than as much again.
func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int64{0: 400, 1 << 20: 400, 32 << 20: 400, 64 << 20: 200, 128 << 20: 100, 4 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d MiB alive: %d, want %d", live>>20, got, want)
		}
	}
}

// TestMemoryLimit: little is left alone, and what lives always fits.
func TestMemoryLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: 208, 100 << 20: 208, 200 << 20: 241, 512 << 20: 736, 4 << 30: 7904} {
		if got := memoryLimit(live) >> 20; got != want {
			t.Errorf("%d MiB alive: %d MiB, want %d", live>>20, got, want)
		}
	}
}

// TestTuneGC: what is alive decides after the next collection.
func TestTuneGC(t *testing.T) {
	before, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	stop := TuneGC()
	defer func() {
		stop()
		debug.SetGCPercent(before)
		debug.SetMemoryLimit(limit)
	}()
	ballast := make([]byte, 96<<20)
	for range 100 {
		runtime.GC()
		got := debug.SetGCPercent(400)
		debug.SetGCPercent(got)
		if got > 90 && got <= 140 {
			runtime.KeepAlive(ballast)
			return
		}
		time.Sleep(10 * time.Millisecond) // cleanups run in a goroutine of their own
	}
	t.Error("the percentage stays")
}
