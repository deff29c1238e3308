package workflow

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// retryOf gives the data of the last step.retrying of the last decision.
func (s *script) retryOf() (r stepRetrying) {
	s.t.Helper()
	for _, e := range s.last.Events {
		if e.Type == parley.EventStepRetrying {
			if err := json.Unmarshal(e.Data, &r); err != nil {
				s.t.Fatal(err)
			}
			return r
		}
	}
	s.t.Fatalf("nothing is retried; history %q", s.types)
	return r
}

func TestR1_AttemptsCountAllCalls(t *testing.T) {
	for _, attempts := range []int{1, 2, 5} {
		s := play(t, fmt.Sprintf(`{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":%d,"delay":"0s"}}]}`, attempts))
		calls := 1
		for ; calls < 10; calls++ {
			if s.fail("a", parley.CodeAgentError); s.state.Status().Terminal() {
				break
			}
		}
		if calls != attempts || s.step("a").Attempts != attempts {
			t.Errorf("attempts: %d gave %d calls, the step shows %d", attempts, calls, s.step("a").Attempts)
		}
	}
}

// TestR1_OnReplacesTheDefaultCodes: naming codes replaces the default set, "*"
// is everything but cancelled, limit and expression, and not_on takes away.
func TestR1_OnReplacesTheDefaultCodes(t *testing.T) {
	for _, tt := range []struct {
		policy  string
		retried []parley.Code
		final   []parley.Code
	}{
		{`"on":["agent_rejected"]`, []parley.Code{"agent_rejected"}, []parley.Code{"agent_error", "agent_unavailable", "stalled"}},
		{
			`"on":["*"]`,
			[]parley.Code{"agent_error", "agent_rejected", "invalid_output", "unknown_agent", "timeout", "NotEnough"},
			[]parley.Code{"cancelled", "limit", "expression", "outcome_unknown"},
		},
		{`"on":["*"],"not_on":["agent_rejected"]`, []parley.Code{"agent_error"}, []parley.Code{"agent_rejected"}},
		{`"not_on":["stalled"]`, []parley.Code{"agent_error", "agent_unavailable"}, []parley.Code{"stalled", "agent_rejected"}},
		{`"on":["outcome_unknown"]`, []parley.Code{"outcome_unknown"}, []parley.Code{"agent_error"}},
	} {
		doc := `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":2,` + tt.policy + `}}]}`
		for _, code := range tt.retried {
			if s := play(t, doc).fail("a", code); s.state.Status() != parley.RunRunning {
				t.Errorf("%s: %s is not retried", tt.policy, code)
			}
		}
		for _, code := range tt.final {
			if s := play(t, doc).fail("a", code); s.state.Status() != parley.RunFailed {
				t.Errorf("%s: %s is retried", tt.policy, code)
			}
		}
	}
}

// TestR1_LimitOfAttemptsIsAnError: policies that grant more than a step may have
// end in error limit, which keeps what the agent said.
func TestR1_LimitOfAttemptsIsAnError(t *testing.T) {
	def, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":9,"delay":"0s"}}]}`))
	if def == nil {
		t.Fatal(problems)
	}
	limits := DefaultRunLimits()
	limits.Attempts = 2
	s := &script{t: t, state: NewState("run-1", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
	s.apply(Start{At: s.now, Input: json.RawMessage(`{}`)})
	s.fail("a", parley.CodeAgentError).fail("a", parley.CodeAgentError)
	err := s.state.Err()
	if err == nil || err.Code != parley.CodeLimit || !strings.Contains(string(err.Details), `"attempts"`) ||
		err.Cause == nil || err.Cause.Code != parley.CodeAgentError || err.Step != "a" {
		t.Errorf("error %v, cause %v", err, err.Cause)
	}
}

// TestR2_DelayIsRecordedAndCountedFromTheFailure: what was drawn stands in the
// event, and an executor that comes late does not wait once more.
func TestR2_DelayIsRecordedAndCountedFromTheFailure(t *testing.T) {
	doc := `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":3,"delay":"10s"}}]}`
	for _, tt := range []struct {
		name        string
		ended, want time.Duration // before and after the executor's look
	}{
		{"at once", 0, 5 * time.Second},
		{"looked 2 s later", 2 * time.Second, 3 * time.Second},
		{"looked an hour later", time.Hour, 0},
		{"a clock that is ahead", -time.Minute, 5 * time.Second},
	} {
		s := play(t, doc)
		id := s.task("a").Task.ID
		s.apply(Settled{At: s.now, Ended: s.now.Add(-tt.ended), TaskID: id, Jitter: 0.5, Result: parley.Result{
			TaskID: id, Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentError, "no"),
		}})
		if got := s.task("a").At.Sub(s.now); got != tt.want {
			t.Errorf("%s: the retry begins %s after the look, want %s", tt.name, got, tt.want)
		}
		if r := s.retryOf(); r.DelayMS != 5000 || !r.At.Equal(s.now.Add(tt.want)) {
			t.Errorf("%s: recorded %d ms, at %s", tt.name, r.DelayMS, r.At)
		}
	}
}

// TestR2_AnyDelayIsWithinItsBounds: no policy gives a delay below 0 or above its
// max_delay, and without jitter they never shrink.
func TestR2_AnyDelayIsWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := RetryPolicy{
			Delay:      time.Duration(rapid.Int64Range(0, int64(365*24*time.Hour/time.Millisecond)).Draw(t, "delay")) * time.Millisecond,
			MaxDelay:   time.Duration(rapid.Int64Range(0, int64(365*24*time.Hour/time.Millisecond)).Draw(t, "max")) * time.Millisecond,
			Multiplier: rapid.OneOf(rapid.Float64Range(1, 10), rapid.Float64Range(1, math.MaxFloat64)).Draw(t, "multiplier"),
		}
		before := time.Duration(0)
		for n := 1; n <= 100; n++ {
			p.FullJitter = false
			plain := p.delay(n, 0.7)
			if plain < before || plain > p.MaxDelay || (n == 1 && plain != min(p.Delay, p.MaxDelay)) {
				t.Fatalf("%+v: retry %d after %s, the one before after %s", p, n, plain, before)
			}
			p.FullJitter = true
			if drawn := p.delay(n, rapid.Float64Range(0, 0.999).Draw(t, "jitter")); drawn < 0 || drawn > plain {
				t.Fatalf("%+v: retry %d is drawn as %s out of [0, %s]", p, n, drawn, plain)
			}
			before = plain
		}
	})
}

// TestR3_NoMatchIsNoRetry: codes that no policy of a list matches are final, and
// the first one that matches decides alone.
func TestR3_NoMatchIsNoRetry(t *testing.T) {
	doc := `
name: t
steps:
  - id: a
    agent: one
    retry:
      - {attempts: 1, on: [agent_error]}
      - {attempts: 5, delay: 0s, on: [agent_error, stalled]}
`
	if s := play(t, doc).fail("a", parley.CodeAgentUnavailable); s.state.Status() != parley.RunFailed {
		t.Error("agent_unavailable is matched by no policy and was retried")
	}
	if s := play(t, doc).fail("a", parley.CodeAgentError); s.state.Status() != parley.RunFailed {
		t.Error("the first policy that matches agent_error grants no retry, and another one did")
	}
	if s := play(t, doc).fail("a", parley.CodeStalled); s.state.Status() != parley.RunRunning || s.retryOf().Policy != 1 {
		t.Error("stalled is not retried by the second policy")
	}
}

// TestR4_OtherKindsHaveOneAttempt: without `retry` only agent steps are tried
// again, also where the workflow has a default.
func TestR4_OtherKindsHaveOneAttempt(t *testing.T) {
	for _, top := range []string{``, `"retry":{"attempts":5,"on":["*"]},`} {
		play(t, `{"name":"t",`+top+`"steps":[{"id":"a","fail":{"code":"Oops","message":"x"}}]}`).
			want(parley.RunFailed, "run.started", "failed a", "run.failed")
		s := play(t, `{"name":"t",`+top+`"steps":[{"id":"g","steps":[{"id":"a","agent":"one","retry":{"attempts":1}}]}]}`)
		s.fail("g/a", parley.CodeAgentError).want(parley.RunFailed, "run.started", "scheduled g", "scheduled g/a", "failed g/a", "failed g", "run.failed")
	}
}

// TestR4_PolicyOfStepAndWorkflowGoBeforeTheAgents: the agent's own policy is for
// steps that have none at all.
func TestR4_PolicyOfStepAndWorkflowGoBeforeTheAgents(t *testing.T) {
	for doc, attempts := range map[string]int{
		`{"name":"t","steps":[{"id":"a","agent":"one"}]}`:                                                                 3, // 1 + max_retries of 2
		`{"name":"t","retry":{"attempts":4,"delay":"0s"},"steps":[{"id":"a","agent":"one"}]}`:                             4,
		`{"name":"t","retry":{"attempts":4,"delay":"0s"},"steps":[{"id":"a","agent":"one","retry":{"attempts":2}}]}`:      2,
		`{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":5,"delay":"0s","on":["agent_error"]}}]}`:        5,
		`{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":5,"delay":"0s","on":["agent_rejected"]}}]}`:     1,
		`{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":1,"on":["agent_error","agent_unavailable"]}}]}`: 1,
	} {
		s := play(t, doc)
		for !s.state.Status().Terminal() {
			s.fail("a", parley.CodeAgentError)
		}
		if got := s.step("a").Attempts; got != attempts {
			t.Errorf("%s: %d attempts, want %d", doc, got, attempts)
		}
	}
}

// TestT1_NoRetryBeginsAfterAnyDeadline: the run's, and that of a step around,
// end the retries as the step's own does; Retry-After cannot move them.
func TestT1_NoRetryBeginsAfterAnyDeadline(t *testing.T) {
	const policy = `retry: {attempts: 9, delay: 1s, jitter: none}`
	unavailable := parley.Result{Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentUnavailable, "429"), RetryAfter: 20 * time.Second}
	for name, tt := range map[string]struct{ doc, path string }{
		"step":  {"name: t\nsteps: [{id: a, agent: one, timeout: 20s, " + policy + "}]", "a"},
		"run":   {"name: t\ntimeout: 20s\nsteps: [{id: a, agent: one, " + policy + "}]", "a"},
		"group": {"name: t\nsteps: [{id: g, timeout: 20s, steps: [{id: h, steps: [{id: a, agent: one, " + policy + "}]}]}]", "g/h/a"},
	} {
		s := play(t, tt.doc)
		if got := s.task(tt.path).Task.Deadline; !got.Equal(s.now.Add(20 * time.Second)) {
			t.Errorf("%s: the task has until %s", name, got)
		}
		s.settle(tt.path, unavailable, 0)
		if e := s.state.Err(); e == nil || e.Code != parley.CodeAgentUnavailable || string(e.Details) != `{"limit":"timeout"}` {
			t.Errorf("%s: %s, error %v", name, s.state.Status(), e)
		}
		s = play(t, tt.doc)
		in := unavailable
		in.RetryAfter -= time.Millisecond
		if s.settle(tt.path, in, 0); s.state.Status() != parley.RunRunning {
			t.Errorf("%s: a retry that begins in time was not waited for: %v", name, s.state.Err())
		}
	}
}

// TestT1_EveryRetryBeginsInTime: whatever the policy, the wishes of the agent and
// the draw, no attempt is scheduled at or after the end of its time.
func TestT1_EveryRetryBeginsInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := play(t, fmt.Sprintf(`{"name":"t","timeout":"%ds","steps":[{"id":"a","agent":"one","timeout":"%ds","retry":{"attempts":100,"delay":"%dms","max_delay":"10m"}}]}`,
			rapid.IntRange(1, 600).Draw(rt, "run"), rapid.IntRange(1, 600).Draw(rt, "step"), rapid.IntRange(0, 60_000).Draw(rt, "delay")))
		for !s.state.Status().Terminal() {
			next := s.task("a")
			if !next.At.Before(next.Task.Deadline) {
				rt.Fatalf("attempt %d begins at %s, its time is up at %s", next.Task.Attempt, next.At, next.Task.Deadline)
			}
			s.now = next.At.Add(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "took")) * time.Millisecond)
			if due := s.state.Due(); !due.After(s.now) {
				s.apply(Tick{At: s.now})
				continue
			}
			s.settle("a", parley.Result{
				Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentUnavailable, "no"),
				RetryAfter: time.Duration(rapid.IntRange(0, 100_000).Draw(rt, "wish")) * time.Millisecond,
			}, rapid.Float64Range(0, 0.999).Draw(rt, "jitter"))
		}
	})
}

// TestT1_TimeoutNamesTheAttempt: the error of a step's timeout says which attempt, of
// which agent, was under way; where no agent is called, none.
func TestT1_TimeoutNamesTheAttempt(t *testing.T) {
	const (
		retried = `{id: x, agent: w, timeout: 1m, retry: {attempts: 3, delay: 20s, jitter: none}, on_error: {output: "${error.attempt}"}}`
		hedged  = `{id: x, agents: [v, w], hedge_after: 10s, timeout: 1m, on_error: {output: "${error.attempt}"}}`
	)
	for name, c := range map[string]struct {
		step   string
		before func(*script)
		output string
		agent  string
	}{
		"first":         {step: retried, output: "1", agent: "w"},
		"second":        {step: retried, before: func(s *script) { s.fail("x", parley.CodeAgentError).after(20 * time.Second) }, output: "2", agent: "w"},
		"last of two":   {step: hedged, before: func(s *script) { s.after(10 * time.Second) }, output: "2", agent: "w"},
		"one has ended": {step: hedged, before: func(s *script) { s.after(10 * time.Second); s.fail("x", parley.CodeAgentError) }, output: "", agent: ""},
		"wait":          {step: `{id: x, wait: 1h, timeout: 1m, on_error: {output: "${error.attempt}"}}`, output: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, "name: t\nsteps:\n  - "+c.step+"\n")
			end := s.now.Add(time.Minute)
			if c.before != nil {
				c.before(s)
			}
			if c.output == "" { // either of them may be the one that has failed
				left := s.task("x").Task
				c.output, c.agent = strconv.Itoa(left.Attempt), left.Agent
			}
			s.now = end
			s.apply(Tick{At: s.now})
			v := s.step("x")
			if v.Error == nil || v.Error.Code != parley.CodeTimeout || strconv.Itoa(v.Error.Attempt) != c.output || v.Error.Agent != c.agent {
				t.Fatalf("error %+v, want attempt %s of %q", v.Error, c.output, c.agent)
			}
			if string(v.Output) != c.output {
				t.Errorf("the handler sees %s, want %s", v.Output, c.output)
			}
		})
	}
}

// TestR1_AttemptsAreCalls: an attempt that waits for the end of its delay is not
// counted, for callers and for expressions, whatever the kind of the step, also if it
// never begins.
func TestR1_AttemptsAreCalls(t *testing.T) {
	const doc = `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":3,"delay":"30s","multiplier":1,"jitter":"none"}},
		{"id":"w","set":"${workflow.input.none}","needs":[],"retry":{"attempts":3,"delay":"30s","multiplier":1,"jitter":"none","on":["expression"]}},{"id":"b","agent":"other","needs":[]}],
		"finally":[{"id":"f","set":"${[steps.a.attempts, steps.w.attempts]}"}]}`
	began := func(agent int) *script {
		s := play(t, doc)
		s.fail("a", parley.CodeAgentError)
		if a, w := s.step("a"), s.step("w"); a.Attempts != 1 || w.Attempts != 1 || a.Phase != parley.PhaseBackoff || w.Phase != parley.PhaseBackoff {
			t.Errorf("in backoff: a %s after %d, w %s after %d attempts", a.Phase, a.Attempts, w.Phase, w.Attempts)
		}
		if agent == 2 {
			s.after(30 * time.Second)
		}
		return s
	}
	for name, c := range map[string]struct {
		agent int
		end   func(*script)
		want  string
	}{
		"in backoff":     {1, func(s *script) { s.fail("b", parley.CodeAgentRejected) }, `[1,1]`},
		"after it":       {2, func(s *script) { s.fail("b", parley.CodeAgentRejected) }, `[2,2]`},
		"failed again":   {2, func(s *script) { s.fail("a", parley.CodeAgentRejected) }, `[2,2]`},
		"answered early": {1, func(s *script) { s.fail("a", parley.CodeAgentRejected) }, `[2,1]`},
	} {
		s := began(c.agent)
		c.end(s)
		if got := string(s.step("f").Output); got != c.want {
			t.Errorf("%s: finally sees %s, want %s", name, got, c.want)
		}
		if got := fmt.Sprintf("[%d,%d]", s.step("a").Attempts, s.step("w").Attempts); got != c.want {
			t.Errorf("%s: callers see %s, want %s", name, got, c.want)
		}
	}
}

// TestT3_TimersActInTheOrderOfTheirTimes: nobody looked for hours, and now several are
// due. What was over before a time was up has ended, and not been cut off.
func TestT3_TimersActInTheOrderOfTheirTimes(t *testing.T) {
	for name, c := range map[string]struct {
		document string
		status   parley.RunStatus
		history  []string
	}{
		"a wait before the group's timeout": {
			"steps: [{id: g, timeout: 20m, steps: [{id: w, wait: 10m}, {id: s, set: 1}]}]", parley.RunCompleted,
			[]string{"timer.fired g/w", "completed g/w", "completed g/s", "completed g", "run.completed"},
		},
		"a wait before the run's timeout": {
			"timeout: 20m\nsteps: [{id: w, wait: 10m}]", parley.RunCompleted,
			[]string{"timer.fired w", "completed w", "run.completed"},
		},
		"a wait before a branch's timeout": {
			"steps: [{id: f, branch_timeout: 20m, fork: {a: [{id: w, wait: 10m}], b: [{id: v, wait: 1s}]}}]", parley.RunCompleted,
			[]string{"timer.fired f/v", "completed f/v", "timer.fired f/w", "completed f/w", "completed f", "run.completed"},
		},
		"the first of two waits": {
			"steps: [{id: f, join: any, fork: {a: [{id: w, wait: 10m}], b: [{id: v, wait: 9m}]}}]", parley.RunCompleted,
			[]string{"timer.fired f/v", "completed f/v", "cancelled f/w", "completed f", "run.completed"},
		},
		"a group's timeout before a wait": {
			"steps: [{id: g, timeout: 10m, steps: [{id: w, wait: 20m}]}]", parley.RunFailed,
			[]string{"cancelled g/w", "failed g", "run.failed"},
		},
		"a group's timeout before the run's": {
			"timeout: 20m\nsteps: [{id: g, timeout: 10m, on_error: continue, steps: [{id: w, wait: 1d}]}]", parley.RunCompleted,
			[]string{"cancelled g/w", "failed g", "run.completed"},
		},
		"at one time what is around": {
			"steps: [{id: g, timeout: 10m, steps: [{id: w, wait: 10m}]}]", parley.RunFailed,
			[]string{"cancelled g/w", "failed g", "run.failed"},
		},
		"what follows has no time left": {
			"steps: [{id: g, timeout: 20m, steps: [{id: w, wait: 10m}, {id: a, agent: x}]}]", parley.RunFailed,
			[]string{"timer.fired g/w", "completed g/w", "scheduled g/a", "cancelled g/a", "failed g", "run.failed"},
		},
		"no retry begins that has no time left": {
			"steps: [{id: g, timeout: 20m, retry: {attempts: 2, delay: 10m, jitter: none, max_delay: 1h, on: [X]}, steps: [{id: w, wait: 5m}, {id: x, fail: {code: X}}]}]",
			parley.RunFailed,
			[]string{"timer.fired g/w", "completed g/w", "failed g/x", "retrying g", "failed g", "run.failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, "name: t\n"+c.document)
			s.types = nil
			if name == "no retry begins that has no time left" {
				s.after(5 * time.Minute)
			}
			s.after(5 * time.Hour)
			s.want(c.status, c.history...)
			if len(s.last.Schedule) > 0 || len(s.open) > 0 {
				t.Errorf("%d calls are made", len(s.last.Schedule))
			}
			if name == "no retry begins that has no time left" && s.state.Err().Code != parley.CodeTimeout {
				t.Errorf("the run fails with %v", s.state.Err())
			}
		})
	}
}
