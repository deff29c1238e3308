package executor

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzProgress: whatever a record of progress holds, what a run keeps of it is
// JSON of at most 64 KiB, or nothing.
func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"run":"r","task_id":"r.a.1","type":"chunk","state":"working","text":"x","chunks":[{"text":"y"}],"dropped_bytes":7}`), 1)
	f.Add([]byte(`{"text":"\u0000<\n","state":"<<<<"}`), 40_000)
	f.Add([]byte(`{"chunks":["\u2028",1e400,[]]}`), 9)
	f.Fuzz(func(t *testing.T, value []byte, times int) {
		var r progressRecord
		if json.Unmarshal(value, &r) != nil || len(r.TaskID) > maxProgressID {
			return
		}
		times = min(max(times, 1), 20_000)
		if n := len(r.Text); n > 0 && n*times < 4*maxProgress {
			r.Text = strings.Repeat(r.Text, times)
		}
		if n := len(r.Chunks); n > 0 && n*times < 1000 {
			for range times {
				r.Chunks = append(r.Chunks, r.Chunks[0])
			}
		}
		b, err := r.data()
		if err != nil {
			return
		}
		var d progressData
		if len(b) > maxProgress || json.Unmarshal(b, &d) != nil {
			t.Fatalf("%d bytes: %.200s", len(b), b)
		}
		if len(d.Text) < len(r.Text) && d.DroppedBytes == 0 {
			t.Fatalf("%d of %d bytes of text are kept, and nothing is said", len(d.Text), len(r.Text))
		}
	})
}
