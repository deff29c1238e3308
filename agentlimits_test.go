package parley_test

import (
	"testing"

	"github.com/parley-project/parley"
)

// TestParseRate: a number and a unit, and nothing else.
func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"10/s": 10, "0.5/s": 0.5, "90/m": 1.5, "1/h": parley.MinRate, "3600/h": 1,
		"10": 0, "": 0, "/s": 0, "10/": 0, "10/d": 0, "-1/s": 0, "0/s": 0, "NaN/s": 0, "Inf/s": 0, "10/s/s": 0, "1e300/s": 0, " 1/s": 0,
	} {
		if got, ok := parley.ParseRate(text); got != want || ok != (want > 0) {
			t.Errorf("%q: %v, %v, want %v", text, got, ok, want)
		}
	}
}
