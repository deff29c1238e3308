package workflow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// TestE4_RunScheduledAt checks that a run knows the firing that started it, also
// after its history was replayed, and that others have none.
func TestE4_RunScheduledAt(t *testing.T) {
	const doc = `{name: x, steps: [{id: a, set: "${run.scheduled_at}"}, {id: b, set: "${run.trigger}"}], output: ["${a.output}", "${b.output}"]}`
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		start Start
		want  string
	}{
		{Start{Input: json.RawMessage(`{}`), Trigger: "schedule", ScheduledAt: at}, `["2026-01-02T03:00:00Z","schedule"]`},
		{Start{Input: json.RawMessage(`{}`), Trigger: "api"}, `[null,"api"]`},
	} {
		def, problems := Parse(ParseOptions{}, []byte("---\n"+doc))
		if def == nil {
			t.Fatal(problems)
		}
		c.start.At = at.Add(time.Minute)
		s := NewState("run-1", def, DefaultRunLimits())
		d := s.Apply(c.start)
		if got := string(s.View().Output); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		again := NewState("run-1", def, DefaultRunLimits())
		for _, e := range d.Events {
			if err := again.Replay(e); err != nil {
				t.Fatal(err)
			}
		}
		if !again.ScheduledAt().Equal(c.start.ScheduledAt) || s.ScheduledAt() != c.start.ScheduledAt {
			t.Errorf("scheduled at %s after the replay", again.ScheduledAt())
		}
		if diff := cmp.Diff(s.View(), again.View(), cmp.Comparer(func(a, b *parley.Error) bool { return a == b })); diff != "" {
			t.Error(diff)
		}
	}
}
