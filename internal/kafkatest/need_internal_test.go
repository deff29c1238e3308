package kafkatest

import (
	"errors"
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

// TestOnOtherPorts: a start that found a port taken is made again, three times in
// all, and any other failure stands.
func TestOnOtherPorts(t *testing.T) {
	taken, broken := errors.New("start Kafka: the broker ended: Address already in use."), errors.New("no disk")
	for _, c := range []struct {
		errs  []error
		want  error
		tries int
	}{
		{[]error{nil}, nil, 1},
		{[]error{taken, taken, nil}, nil, 3},
		{[]error{taken, taken, taken, nil}, taken, 3},
		{[]error{broken, nil}, broken, 1},
		{[]error{taken, broken, nil}, broken, 2},
	} {
		tries := 0
		_, err := onOtherPorts(func() (*Cluster, error) {
			tries++
			return nil, c.errs[tries-1]
		})
		if tries != c.tries || !errors.Is(err, c.want) {
			t.Errorf("%v: %d tries and %v, want %d and %v", c.errs, tries, err, c.tries, c.want)
		}
	}
}
