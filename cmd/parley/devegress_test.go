package main

import (
	"slices"
	"testing"
	"time"
)

// TestDevEgress: parley dev lets agents be on this machine and at public
// addresses, and nowhere else unless a flag says so.
func TestDevEgress(t *testing.T) {
	a := &app{dir: t.TempDir(), now: time.Now}
	for _, more := range [][]string{nil, {"10.0.0.0/8"}} {
		cfg, err := a.devConfig(devFlags{logLevel: "warn", logFormat: "text", allow: more})
		if want := append([]string{"127.0.0.0/8", "::1/128"}, more...); err != nil || !slices.Equal(cfg.EgressAllow, want) {
			t.Errorf("%v, %v; want %v", cfg.EgressAllow, err, want)
		}
	}
}
