package jsonrpcbench

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"
)

// TestPayloads: the sizes that the cases are named after, and one spelling of
// the typed payload, so that a typed echo can be compared byte by byte.
func TestPayloads(t *testing.T) {
	for _, c := range []struct {
		name string
		text []byte
		size int
	}{
		{"small", smallParams(), 198},
		{"tiny", tinyParams(), 105},
		{"large", largeParams(), 64 << 10},
		{"message", parseMessage(), 290},
	} {
		if len(c.text) != c.size {
			t.Errorf("%s: %d bytes, want %d", c.name, len(c.text), c.size)
		}
		if !json.Valid(c.text) {
			t.Errorf("%s: not JSON: %s", c.name, c.text)
		}
	}
	s, err := sampleTask()
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(s); !bytes.Equal(got, smallParams()) {
		t.Errorf("the struct is written %s", got)
	}
}

// TestEntrants: everyone in every case answers correctly, alone and under a
// moment of load, and ends when it is closed.
func TestEntrants(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			for _, e := range c.entrants {
				t.Run(e.name, func(t *testing.T) {
					u, err := open(t.Context(), e, c.load)
					if err != nil {
						t.Fatal(err)
					}
					if u == nil {
						return
					}
					if _, err := u.run(time.Millisecond, nil); err != nil {
						t.Error(err)
					}
					if err := u.check(); err != nil {
						t.Error(err)
					}
					if err := u.remote.close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
			}
		})
	}
}

// TestMeasure: the figures of a pass.
func TestMeasure(t *testing.T) {
	var kept []byte
	r := &remote{call: func(_ context.Context, params []byte, into *[]byte) error {
		kept = make([]byte, 1<<10)
		*into = append(*into, params...)
		return nil
	}}
	u, err := newRunner(t.Context(), load{kind: call, params: tinyParams(), workers: 1}, r)
	if err != nil {
		t.Fatal(err)
	}
	p, err := u.measure(300*time.Millisecond, true)
	if err != nil {
		t.Fatal(err)
	}
	if p.ops == 0 || p.wall < 5*time.Millisecond || p.cpu == 0 || p.p99 < p.p50 || p.p99 == 0 {
		t.Errorf("%+v", p)
	}
	if b, n := p.each(p.bytes), p.each(p.allocs); b < 1<<10 || b > 2<<10 || n < 0.9 || n > 2 {
		t.Errorf("%v B and %v allocations per call, one of 1 KiB was made (%d)", b, n, len(kept))
	}
	r.call = func(_ context.Context, params []byte, into *[]byte) error {
		*into = append(append(*into, '!'), params[1:]...)
		return nil
	}
	if _, err := u.measure(time.Millisecond, false); err == nil {
		t.Error("a wrong answer is not found")
	}
}

// TestRows: a bar is judged against what it names, and in its direction.
func TestRows(t *testing.T) {
	one := func(name string, as role, rate, cpu float64) *result {
		wall := time.Second
		return &result{entrant: entrant{name: name, role: as}, passes: []pass{
			{ops: int64(rate), wall: wall, cpu: time.Duration(rate * cpu)},
		}}
	}
	m := &matchResult{match: match{title: "case", unit: "calls/s", load: load{kind: notify}, bars: []bar{
		timesPeer("≥ 2× best peer", 2),
		{metric: throughput, text: "≥ 0.6× floor", against: theFloor, limit: 0.6},
		{metric: throughput, text: "> 1000 messages/s", limit: 1000, scale: 2, unit: "messages/s"},
		{metric: cpuEach, text: "< 0.5× best peer", against: bestPeer, limit: 0.5},
	}}, results: []*result{
		one("Parley", ours, 600, 40), one("slow", peer, 200, 90), one("fast", peer, 250, 100), one("floor", floor, 1100, 10),
		one("other", variant, 500, 50),
	}}
	want := []Row{
		{Metric: throughput, Value: 600, Bar: "≥ 2× best peer", Ratio: 2.4, Holds: true, Best: "fast"},
		{Metric: throughput, Value: 600, Bar: "≥ 0.6× floor", Ratio: 600.0 / 1100, Holds: false, Best: "fast"},
		{Metric: throughput, Value: 1200, Bar: "> 1000 messages/s", Ratio: 1.2, Holds: true},
		{Metric: cpuEach, Value: 40, Bar: "< 0.5× best peer", Ratio: 40.0 / 90, Holds: true, Best: "slow"},
		{Metric: bytesEach, Holds: true},
		{Metric: allocsEach, Holds: true},
		{Metric: throughput, Value: 500, Ratio: 2, Holds: true, Best: "fast"},
	}
	got := m.rows()
	if len(got) != len(want) {
		t.Fatalf("%d rows: %+v", len(got), got)
	}
	for i, w := range want {
		g := got[i]
		if g.Metric != w.Metric || g.Value != w.Value || g.Bar != w.Bar || g.Holds != w.Holds || w.Value != 0 && (g.Best != w.Best || math.Abs(g.Ratio-w.Ratio) > 1e-9) {
			t.Errorf("row %d: got %+v, want %+v", i, g, w)
		}
	}
}

// TestParseBenchmark reads what go test prints.
func TestParseBenchmark(t *testing.T) {
	p, err := parseBenchmark("goos: linux\nBenchmarkHarness-2   \t 5120476\t       200.0 ns/op\t       8 B/op\t       1 allocs/op\nPASS\n")
	if err != nil || p.ops != 5120476 || p.each(uint64(p.cpu)) != 200 || p.each(p.allocs) != 1 || p.each(p.bytes) != 8 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := parseBenchmark("PASS\n"); err == nil {
		t.Error("nothing was read without an error")
	}
}
