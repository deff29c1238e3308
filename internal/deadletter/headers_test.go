package deadletter_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/deadletter"
)

// TestHeadersOfOneName: a record may have several headers of one name. All of them
// are kept in their order, and are on the copy and on the record when it is
// published again; a header of ours is there once.
func TestHeadersOfOneName(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		d := record(7)
		d.Message.Header = map[string]string{"b": "3", "a": "2", "authorization": "Bearer hunter2", "dlq.id": "an older one"}
		for _, h := range []string{"b=1", "a=2", "authorization=Bearer hunter2", "dlq.id=an older one", "b=3", "b="} {
			name, value, _ := strings.Cut(h, "=")
			d.Message.Headers = append(d.Message.Headers, bus.Header{Name: name, Value: []byte(value)})
		}
		l := r.keep(d)
		var kept []string
		for _, h := range l.Headers {
			kept = append(kept, h.Name+"="+string(h.Value))
		}
		if d := cmp.Diff([]string{"b=1", "a=2", "authorization=[redacted]", "dlq.id=an older one", "b=3", "b="}, kept); d != "" {
			t.Error(d)
		}
		want := func(ours string, head ...string) {
			t.Helper()
			list := r.messages()
			if len(list) != 1 {
				t.Fatalf("%d messages", len(list))
			}
			var got []string
			id := 0
			for name, value := range list[0].All() {
				if got = append(got, name+"="+string(value)); name == ours {
					id++
				}
			}
			if strings.HasPrefix(got[0], "parley-replay=") {
				got = got[2:] // a replay has ours first
			}
			if d := cmp.Diff(head, got[:len(head)]); d != "" || id != 1 {
				t.Errorf("%q\n%s", got, d)
			}
		}
		r.running(func() { time.Sleep(5 * time.Second) })
		want("dlq.id", "b=1", "a=2", "authorization=[redacted]", "b=3", "b=")
		_, err := r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: l.ID})
		check(t, err)
		want("redriven-from", "b=1", "a=2", "dlq.id=an older one", "b=3", "b=")
	})
}

// TestReplayOfManyHeaders: a record with as many headers, or bytes of them, as a bus carries
// can be replayed. Ours stand first, where no reader cuts them off, and the last of the
// record's own make room for them. A replay of the replay loses no more.
func TestReplayOfManyHeaders(t *testing.T) {
	for name, c := range map[string]struct{ headers, bytes, kept int }{
		"62": {62, 2, 62}, "63": {63, 2, 62}, "64": {64, 2, 62}, "32 KiB": {32, 1000, 31},
	} {
		t.Run(name, func(t *testing.T) {
			onKeeper(t, deadletter.Limits{}, func(r *rig) {
				t := r.t
				d := record(7)
				d.Message.Header, d.Message.Headers = map[string]string{}, nil
				for i := range c.headers {
					h := bus.Header{Name: fmt.Sprintf("name-%019d", i), Value: bytes.Repeat([]byte("x"), c.bytes)}
					d.Message.Header[h.Name] = string(h.Value)
					d.Message.Headers = append(d.Message.Headers, h)
				}
				l := r.keep(d)
				for range 2 {
					_, err := r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: l.ID, Force: true})
					check(t, err)
					list := r.messages()
					if len(list) != 1 {
						t.Fatalf("%d messages", len(list))
					}
					m, size := list[0], 0
					for _, h := range m.Headers {
						size += len(h.Name) + len(h.Value)
					}
					if len(m.Headers) != c.kept+2 || size > 32<<10 || m.Headers[0].Name != "parley-replay" || m.Headers[1].Name != "redriven-from" ||
						m.Headers[c.kept+1].Name != fmt.Sprintf("name-%019d", c.kept-1) {
						t.Fatalf("%d headers of %d bytes, the first is %s", len(m.Headers), size, m.Headers[0].Name)
					}
					d.Message.Header, d.Message.Headers = m.Header, m.Headers
					d.Message.At.Offset++
					l = r.keep(d)
				}
			})
		})
	}
}
