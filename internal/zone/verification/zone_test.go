package verification_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone/verification"
)

// TestZN7_Answer: a question is answered in its thread, once, and the person sees
// that it was taken.
func TestZN7_Answer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		m := r.ask(message("what is up?"))
		pass(time.Second)
		r.want(m, "You asked: what is up?")
		if got := r.slack.Reactions("C0CHAN", m.TS); len(got) != 1 || got[0] != "white_check_mark" {
			t.Errorf("reactions %v", got)
		}
		pass(time.Hour)
		r.want(m, "You asked: what is up?")
		asked, fetched := r.exec.counts()
		if asked != 1 || fetched != 0 {
			t.Errorf("asked %d times, fetched %d times", asked, fetched)
		}
		if r.counter("parley_zone_questions_total", "answered") != 1 {
			t.Error("not counted")
		}
	})
}

var _ = verification.ModeHTTP
