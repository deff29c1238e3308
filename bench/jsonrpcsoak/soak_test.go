package jsonrpcsoak

import (
	"io"
	"testing"
	"time"
)

// TestSoak: a moment of the soak. Every answer is right, no error comes that no
// fault explains, and nothing is left when it ends.
func TestSoak(t *testing.T) {
	r, err := Run(t.Context(), 2*time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if r.Calls == 0 || len(r.Samples) == 0 {
		t.Errorf("%d calls, %d samples", r.Calls, len(r.Samples))
	}
	if r.Wrong != 0 {
		t.Errorf("%d wrong answers", r.Wrong)
	}
	for text, n := range r.Unexpected {
		t.Errorf("%d × %s", n, text)
	}
	if r.Left != 0 {
		t.Errorf("%d goroutines are left:\n%s", r.Left, r.Stacks)
	}
}

// TestGrowth: what grows is seen, what swings is not.
func TestGrowth(t *testing.T) {
	swings, grows := new(Report), new(Report)
	for i := range 100 {
		swings.Samples = append(swings.Samples, Sample{Goroutines: 50 + i%7})
		grows.Samples = append(grows.Samples, Sample{Goroutines: 50 + i})
	}
	goroutines := func(s Sample) float64 { return float64(s.Goroutines) }
	if from, to := swings.Growth(goroutines); from != 53 || to != 53 {
		t.Errorf("swinging: from %v to %v", from, to)
	}
	if from, to := grows.Growth(goroutines); from != 80 || to != 140 {
		t.Errorf("growing: from %v to %v", from, to)
	}
}
