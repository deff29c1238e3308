package jsonrpcbench

import (
	"bytes"
	"encoding/json"
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
					if _, err := u.measure(2*time.Millisecond, c.timed()); err != nil {
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
