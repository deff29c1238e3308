package kafkatest

import (
	"testing"
)

// verdict is a test that is told how it ends.
type verdict struct {
	testing.TB
	word string
}

func (*verdict) Helper()             {}
func (v *verdict) Skip(args ...any)  { v.word = "skipped" }
func (v *verdict) Fatal(args ...any) { v.word = "failed" }

// TestNeedServer: a test that needs a server is left out of the quick tests, and
// never in CI.
func TestNeedServer(t *testing.T) {
	for _, c := range []struct {
		short    bool
		ci, want string
	}{{false, "", ""}, {false, "true", ""}, {true, "", "skipped"}, {true, "true", "failed"}} {
		v := &verdict{TB: t}
		needServer(v, c.short, c.ci)
		if v.word != c.want {
			t.Errorf("short %t, CI %q: %q, want %q", c.short, c.ci, v.word, c.want)
		}
	}
}
