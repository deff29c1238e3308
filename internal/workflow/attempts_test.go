package workflow

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestR1_WhatNeverBeganIsNoAttempt: an attempt whose time has come does not count if the
// step's timeout is over first, since the run was paused or nobody looked at it.
func TestR1_WhatNeverBeganIsNoAttempt(t *testing.T) {
	const again = `"timeout":"1m","retry":{"attempts":3,"delay":"30s","multiplier":1,"jitter":"none","on":["expression","Odd"]}`
	for name, paused := range map[string]bool{"paused": true, "late": false} {
		s := play(t, `{"name":"t","steps":[{"id":"w","set":"${workflow.input.none}","on_error":"continue",`+again+`},
			{"id":"g","needs":[],"on_error":"continue","steps":[{"id":"f","fail":{"code":"Odd"}}],`+again+`},
			{"id":"h","needs":[],"set":"${workflow.input.none}","on_error":{"steps":[{"id":"hh","agent":"one"}]},`+again+`}]}`)
		s.now = s.now.Add(10 * time.Second)
		if paused {
			s.apply(Pause{At: s.now, By: "ann"})
		}
		s.after(2 * time.Minute)
		for _, id := range []string{"w", "g", "h"} {
			if x := s.step(id); x.Attempts != 1 || x.Error == nil || x.Error.Code != parley.CodeTimeout {
				t.Errorf("%s: %s has %d attempts and %v, want 1 and a timeout", name, id, x.Attempts, x.Error)
			}
		}
	}
}

// TestR1_AQuestionAfterARetry: who asks has begun: the question is shown, and the attempt
// counts.
func TestR1_AQuestionAfterARetry(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":3,"delay":"30s","multiplier":1,"jitter":"none"}}]}`)
	s.fail("a", parley.CodeAgentError)
	s.after(31*time.Second).ask("a", "which?", 1)
	if x := s.step("a"); x.Phase != parley.PhaseInputRequired || x.Attempts != 2 || x.Question == nil {
		t.Errorf("it is %s after %d attempts and asks %v", x.Phase, x.Attempts, x.Question)
	}
}

// TestR1_AnAgentThatIsNotCalledHasNoAttempt: what an agent is told could not be evaluated,
// however often that was tried.
func TestR1_AnAgentThatIsNotCalledHasNoAttempt(t *testing.T) {
	const bad = `"agent":"one","input":"${workflow.input.none}","on_error":"continue"`
	s := play(t, `{"name":"t","steps":[{"id":"a",`+bad+`,"retry":{"attempts":3,"delay":"30s","multiplier":1,"jitter":"none","on":["expression"]}},
		{"id":"b",`+bad+`,"needs":[]},{"id":"c","agent":"one","needs":[]}]}`)
	for range 3 {
		for _, id := range []string{"a", "b"} {
			if x := s.step(id); x.Attempts != 0 {
				t.Errorf("%s is %s after %d attempts, want none", id, x.Status, x.Attempts)
			}
		}
		s.after(30 * time.Second)
	}
}
