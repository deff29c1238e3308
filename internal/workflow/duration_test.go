package workflow

import (
	"testing"
	"time"
)

func TestD4_Durations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "30s": 30 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute,
		"2d": 2 * day, "0s": 0, "0ms": 0, "365d": 365 * day, "1.5s": 1500 * time.Millisecond, "1m1m": 2 * time.Minute,
		"0.5h": 30 * time.Minute, "1d12h30m15s250ms": 36*time.Hour + 30*time.Minute + 15250*time.Millisecond,
		"PT5M": 5 * time.Minute, "P1D": day, "P1DT12H": 36 * time.Hour, "PT0.25S": 250 * time.Millisecond, "P2W": 14 * day,
		"PT1H30M": 90 * time.Minute, "PT0S": 0, "P365D": 365 * day,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "5", "0", "5 s", " 5s", "5s ", "-5s", "+5s", "5x", "s", "5M", "5H", "1w", "1y", "1mo", ".5s", "5.s", "1.2.3s", "1e3s", "1us", "1µs", "1ns",
		"0.5ms", "1.0001s", "366d", "365d1ms", "99999999999999999999d", "1h-5m",
		"P", "PT", "P1", "P1Y", "P1M", "P1YT1M", "PT1D", "P1H", "PT5M5H", "PT5M5M", "P1DT", "PTT5M", "P-1D", "P1D1W", "P1W1D1", "p1d", "pt5m", "PT5", "P1.D", "PT0.0001S", "P366D",
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}
