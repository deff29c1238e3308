package workflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// told gives what is open in words.
func (s *script) told() (lines []string) {
	for _, o := range s.state.Open() {
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s", o.Path, o.Status)
		if o.Task != "" {
			fmt.Fprintf(&b, " call %d of %s", o.Attempt, o.Agent)
		}
		if len(o.Needs) > 0 {
			fmt.Fprintf(&b, " needs %s", strings.Join(o.Needs, " "))
		}
		if o.Full > 0 {
			fmt.Fprintf(&b, " full %d", o.Full)
		}
		if o.Inside > 0 {
			fmt.Fprintf(&b, " inside %d", o.Inside)
		}
		for name, t := range map[string]time.Time{"retry": o.RetryAt, "wake": o.WakeAt} {
			if !t.IsZero() {
				fmt.Fprintf(&b, " %s in %s", name, t.Sub(s.now))
			}
		}
		if o.Question != nil {
			fmt.Fprintf(&b, " asks %s", o.Question.Text)
		}
		lines = append(lines, b.String())
	}
	return lines
}

// TestExplain_OpenSteps: each open step is told with what it waits for, wherever it
// stands.
func TestExplain_OpenSteps(t *testing.T) {
	s := play(t, `
name: t
steps:
  - {id: a, agent: x, retry: {attempts: 2, delay: 10s}}
  - {id: p, needs: [], max_parallel: 2, parallel: [{id: w, wait: 1h}, {id: g, steps: [{id: g1, agents: [y, z], hedge_after: 0s}, {id: g2, agent: y}]}, {id: h, agent: x}]}
  - {id: b, agent: x, needs: [p, a]}
  - {id: c, set: 1}
`)
	check := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.told()); diff != "" {
			t.Errorf("open (-want +got):\n%s", diff)
		}
	}
	s.apply(Asked{At: s.now, TaskID: "run-1.p/g/g1.1", News: 1, Question: &parley.Question{Kind: parley.QuestionInput, Text: "Whom?"}})
	s.fail("a", parley.CodeAgentError)
	check("a RUNNING call 2 of x retry in 5s", "p RUNNING inside 5", "p/w RUNNING wake in 1h0m0s", "p/g RUNNING inside 2",
		"p/g/g1 RUNNING call 1 of y asks Whom?", "p/g/g1 RUNNING call 2 of z", "p/g/g2 PENDING needs p/g/g1", "p/h PENDING full 2",
		"b PENDING needs a p", "c PENDING needs b")
	s.answer("a", `1`)
	s.after(time.Hour)
	check("p RUNNING inside 4", "p/g RUNNING inside 2", "p/g/g1 RUNNING call 1 of y asks Whom?", "p/g/g1 RUNNING call 2 of z", "p/g/g2 PENDING needs p/g/g1",
		"p/h RUNNING call 1 of x", "b PENDING needs p", "c PENDING needs b")
	s.apply(Terminate{At: s.now})
	if got := s.told(); got != nil {
		t.Errorf("open in a run that has ended: %q", got)
	}
}

// TestC5_DueWhilePaused: of a paused run only timeouts are due, so that nobody is
// woken for what may not act.
func TestC5_DueWhilePaused(t *testing.T) {
	s := play(t, `{"name":"t","timeout":"2h","steps":[{"id":"p","parallel":[{"id":"w","wait":"1m"},{"id":"v","wait":"3h","timeout":"1h"},{"id":"a","agents":["x","y"],"hedge_after":"10s"}]}]}`)
	due := func(want time.Duration) {
		t.Helper()
		if got := s.state.Due().Sub(s.now); got != want {
			t.Errorf("due in %s, want %s", got, want)
		}
	}
	due(10 * time.Second)
	s.apply(Pause{At: s.now})
	due(time.Hour)
	s.after(time.Minute)
	s.apply(Resume{At: s.now})
	due(-50 * time.Second)
}
