package workflow

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestS3_StatusOfWhatNeverBegins: expressions see of a step that was not begun what
// callers see: PENDING as long as it may begin, CANCELLED when it never will.
func TestS3_StatusOfWhatNeverBegins(t *testing.T) {
	cancelled := func(s *script) { s.apply(Cancel{At: s.now, Grace: time.Minute}) }
	for name, c := range map[string]struct {
		source string
		do     func(*script)
		// seen is what the step "look" gives; shown are the statuses by path.
		seen  string
		shown map[string]parley.StepStatus
	}{
		"failed fork": {
			source: `
  - {id: f, fork: {a: [{id: a1, fail: {code: No}}, {id: a2, agent: x}], b: [{id: w, wait: 1h}, {id: b1, agent: x}]}, on_error: continue}
  - {id: look, set: "${[steps.a2.status, steps.b1.status]}"}
`,
			seen:  `["CANCELLED","CANCELLED"]`,
			shown: map[string]parley.StepStatus{"f/a2": parley.StepCancelled},
		},
		"failed run": {
			source: `
  - {id: bad, fail: {code: No}}
  - {id: never, agent: x}
  - {id: g, steps: [{id: inside, agent: x}]}
finally: [{id: look, set: "${[steps.never.status, steps.g.status, steps.inside.status]}"}]
`,
			seen:  `["CANCELLED","CANCELLED","CANCELLED"]`,
			shown: map[string]parley.StepStatus{"never": parley.StepCancelled, "g": parley.StepCancelled},
		},
		"cancelled run": {
			source: `
  - {id: w, wait: 1h}
  - {id: s, set: 1}
finally: [{id: look, set: "${steps.s.status}"}, {id: hold, wait: 1h}, {id: later, set: 1}]
`,
			do: cancelled, seen: `"CANCELLED"`,
			shown: map[string]parley.StepStatus{"s": parley.StepCancelled, "later": parley.StepPending},
		},
		"being cancelled": {
			source: "\n  - {id: a, agent: x}\n  - {id: look, set: 1}\n  - {id: g, needs: [], steps: [{id: b, agent: x}, {id: c, set: 1}]}\n",
			do:     cancelled, shown: map[string]parley.StepStatus{"look": parley.StepCancelled, "g/c": parley.StepCancelled},
		},
		"finish": {
			source: `
  - {id: end, finish: 1}
  - {id: never, agent: x}
finally: [{id: look, set: "${steps.never.status}"}, {id: hold, wait: 1h}]
`,
			seen: `"CANCELLED"`, shown: map[string]parley.StepStatus{"never": parley.StepCancelled},
		},
		"branch not taken": {
			source: `
  - {id: c, if: "false", then: [{id: yes, set: 1}], else: [{id: no, set: 1}]}
  - {id: s, switch: [{when: "true", steps: [{id: one, set: 1}]}, {steps: [{id: two, set: 1}]}]}
  - {id: skipped, if: "false", steps: [{id: in, set: 1}]}
  - {id: h, set: 1, on_error: {steps: [{id: handler, set: 1}]}}
  - {id: look, set: "${[steps.yes.status, steps.no.status, steps.one.status, steps.two.status, steps['in'].status]}"}
`,
			seen: `["PENDING","COMPLETED","COMPLETED","PENDING","PENDING"]`,
		},
		"of what was cancelled": {
			source: `
  - {id: p, steps: [{id: bad, agent: x, retry: {attempts: 1}}, {id: c, needs: [], if: "true", then: [{id: w, wait: 1h}], else: [{id: no, set: 1}]}], on_error: continue}
  - {id: look, set: "${[steps.w.status, steps.no.status]}"}
`,
			do:   func(s *script) { s.fail("p/bad", parley.CodeAgentError) },
			seen: `["CANCELLED","PENDING"]`,
		},
		"told by a conditional that is cancelled": {
			source: `
  - {id: look, if: "true", then: [{id: a, agent: x}], else: [{id: no, set: 1}], output: "${steps.no.status}"}
`,
			do: func(s *script) {
				cancelled(s)
				s.answer("look/a", "1")
			},
			seen: `"PENDING"`,
		},
		"may begin": {
			source: `
  - {id: p, parallel: [{id: g, steps: [{id: one, wait: 1h}, {id: two, set: 1}]}, {id: three, set: 1}]}
  - {id: after, set: 1}
`,
			shown: map[string]parley.StepStatus{"p/g/two": parley.StepPending, "after": parley.StepPending},
		},
		"iteration before": {
			source: `
  - {id: l, for_each: [1, 2], item_errors: continue, steps: [{id: look, set: "${each.previous == null ? '' : each.previous.late.status}"}, {id: bad, fail: {code: No}}, {id: late, set: 1}]}
`,
			seen: `"CANCELLED"`, shown: map[string]parley.StepStatus{"l[0]/late": parley.StepCancelled},
		},
		"waits for the others": {
			source: "\n  - {id: p, losers: wait, max_parallel: 2, parallel: [{id: bad, agent: x, retry: {attempts: 1}}, {id: w, agent: x}, {id: late, set: 1}]}\n",
			do: func(s *script) {
				s.apply(Pause{At: s.now})
				s.fail("p/bad", parley.CodeAgentError).answer("p/w", `1`)
			},
			shown: map[string]parley.StepStatus{"p/late": parley.StepPending},
		},
		"while it is undone": {
			source: `
  - {id: a, set: 1, compensate: [{id: u, wait: 1h}, {id: v, set: 1}]}
  - {id: bad, fail: {code: No}}
  - {id: never, set: 1}
`,
			shown: map[string]parley.StepStatus{"a/v": parley.StepPending, "never": parley.StepCancelled},
		},
		"before it is done again": {
			source: `
  - {id: f, retry: {attempts: 2, delay: 1h, on: ["*"]}, fork: {b: [{id: w, wait: 1h}, {id: late, set: 1}], a: [{id: bad, fail: {code: No}}]}}
`,
			shown: map[string]parley.StepStatus{"f/late": parley.StepCancelled},
		},
		"while it is handled": {
			source: `
  - {id: f, on_error: {steps: [{id: h, wait: 1h}, {id: i, set: 1}]}, fork: {b: [{id: w, wait: 1h}, {id: late, set: 1}], a: [{id: bad, fail: {code: No}}]}}
`,
			shown: map[string]parley.StepStatus{"f/late": parley.StepCancelled, "f/i": parley.StepPending},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, "name: t\nsteps:"+c.source)
			if c.do != nil {
				c.do(s)
			}
			for _, v := range s.state.View().Steps {
				if id := v.ID[max(0, len(v.ID)-4):]; id == "look" && c.seen != "" && v.ID != "l[0]/look" && string(v.Output) != c.seen {
					t.Errorf("%s sees %s (%v), want %s", v.ID, v.Output, v.Error, c.seen)
				}
			}
			for path, want := range c.shown {
				if got := s.step(path).Status; got != want {
					t.Errorf("%s is %s, want %s", path, got, want)
				}
				if text, ok := s.state.StepState(path); !ok || text != string(want) {
					t.Errorf("%s is said to be %q, want %s", path, text, want)
				}
			}
			for _, o := range s.state.Open() {
				if o.Status != s.step(o.Path).Status {
					t.Errorf("%s is explained as %s, and %s", o.Path, o.Status, s.step(o.Path).Status)
				}
			}
		})
	}
}
