package workflow

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// script plays one run: facts in, and a look at what follows.
type script struct {
	t     *testing.T
	state *State
	now   time.Time
	open  map[string]Schedule
	types []string
	last  Decision
	// history is every event so far, where a test asks for it.
	history []parley.Event
	// refused is why the last line of a golden script did nothing.
	refused error
	// refusal is why the last answer to an approval was not taken.
	refusal *parley.Error
}

func play(t *testing.T, document string) *script {
	t.Helper()
	return playWith(t, document, Start{Input: json.RawMessage(`{"x":1}`)})
}

func playWith(t *testing.T, document string, start Start) *script {
	t.Helper()
	def, problems := Parse(ParseOptions{File: "test.yaml"}, []byte(document))
	if def == nil {
		t.Fatalf("the document does not compile: %v", problems)
	}
	s := &script{
		t: t, state: NewState("run-1", def, DefaultRunLimits()), open: make(map[string]Schedule),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	start.At = s.now
	s.apply(start)
	return s
}

func (s *script) apply(f Fact) {
	s.last = s.state.Apply(f)
	for _, e := range s.last.Events {
		name := string(e.Type)
		if e.Step != "" {
			name = strings.TrimPrefix(name, "step.") + " " + e.Step
		}
		s.types = append(s.types, name)
	}
	for _, c := range s.last.Close {
		delete(s.open, c.TaskID)
	}
	for _, c := range s.last.Schedule {
		s.open[c.Task.ID] = c
	}
}

// task gives what is in flight for a step.
func (s *script) task(path string) Schedule {
	s.t.Helper()
	for _, c := range s.open {
		if c.Task.Step == path {
			return c
		}
	}
	s.t.Fatalf("nothing is in flight for %s; history %q", path, s.types)
	return Schedule{}
}

func (s *script) answer(path, output string) *script {
	s.t.Helper()
	id := s.task(path).Task.ID
	s.apply(Settled{At: s.now, TaskID: id, Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: json.RawMessage(output)}})
	return s
}

func (s *script) settle(path string, r parley.Result, jitter float64) *script {
	s.t.Helper()
	r.TaskID = s.task(path).Task.ID
	s.apply(Settled{
		At: s.now, TaskID: r.TaskID, Result: r, Jitter: jitter,
		AgentRetry: AgentRetry(parley.RetryConfig{MaxRetries: 2, InitialDelay: time.Second, MaxDelay: 3 * time.Second, Multiplier: 2}),
	})
	return s
}

func (s *script) fail(path string, code parley.Code) *script {
	s.t.Helper()
	return s.settle(path, parley.Result{Outcome: parley.OutcomeError, Err: parley.Errorf(code, "no")}, 0.5)
}

func (s *script) after(d time.Duration) *script {
	s.now = s.now.Add(d)
	s.apply(Tick{At: s.now, Jitter: 0.5})
	return s
}

func (s *script) want(status parley.RunStatus, history ...string) *script {
	s.t.Helper()
	if s.state.Status() != status {
		s.t.Errorf("the run is %s (%v), want %s", s.state.Status(), s.state.Err(), status)
	}
	if diff := cmp.Diff(history, s.types); diff != "" {
		s.t.Errorf("history (-want +got):\n%s", diff)
	}
	s.types = nil
	return s
}

func (s *script) step(path string) parley.Step {
	s.t.Helper()
	steps := s.state.View().Steps
	i := slices.IndexFunc(steps, func(x parley.Step) bool { return x.ID == path })
	if i < 0 {
		s.t.Fatalf("no step %s", path)
	}
	return steps[i]
}

func (s *script) output(want string) {
	s.t.Helper()
	if got := string(s.state.View().Output); got != want {
		s.t.Errorf("output %s, want %s", got, want)
	}
}

func TestS1_StepsRunInOrderAndSkippingDoesNotSpread(t *testing.T) {
	play(t, `
name: t
steps:
  - {id: a, agent: one}
  - {id: b, agent: one, if: "false"}
  - {id: c, set: "${a.output.v}"}
`).want(parley.RunRunning, "run.started", "scheduled a").
		answer("a", `{"v":1.50}`).
		want(parley.RunCompleted, "completed a", "skipped b", "completed c", "run.completed").
		output("1.50")
}

func TestS2_InputIsEvaluatedOnce(t *testing.T) {
	s := play(t, `
name: t
steps: [{id: a, agent: one, input: {at: "${string(now)}"}, retry: {attempts: 2, delay: 10s, jitter: none}}]
`)
	first := string(s.task("a").Task.Input)
	s.now = s.now.Add(time.Minute)
	s.fail("a", parley.CodeAgentError)
	if got := string(s.task("a").Task.Input); got != first {
		t.Errorf("the retry is sent %s, the first attempt was sent %s", got, first)
	}
}

func TestS3_FailureEndsTheScopeAtOnce(t *testing.T) {
	s := play(t, `
name: t
steps:
  - id: g
    steps: [{id: a, agent: one, retry: {attempts: 1}}, {id: b, agent: one}]
  - {id: c, agent: one}
`)
	s.fail("g/a", parley.CodeAgentError).
		want(parley.RunFailed, "run.started", "scheduled g", "scheduled g/a", "failed g/a", "failed g", "run.failed")
	if got := s.state.Err().Step; got != "g/a" {
		t.Errorf("error.step is %q, the origin is g/a", got)
	}
	for _, path := range []string{"g/b", "c"} {
		if got := s.step(path).Status; got != parley.StepCancelled {
			t.Errorf("%s never started and is %s", path, got)
		}
	}
}

func TestS6_BlockOutputIsOfTheLastCompletedOrHandled(t *testing.T) {
	play(t, `
name: t
steps:
  - id: g
    steps: [{id: a, set: 1}, {id: b, set: 2}, {id: c, set: 3, if: "false"}]
`).want(parley.RunCompleted, "run.started", "scheduled g", "completed g/a", "completed g/b", "skipped g/c", "completed g", "run.completed").
		output("2")
	play(t, `{"name":"t","steps":[{"id":"a","set":1},{"id":"b","fail":{"code":"Oops","message":"x"},"on_error":"continue"}]}`).
		want(parley.RunCompleted, "run.started", "completed a", "failed b", "run.completed").
		output("null")
}

func TestS9_SecondRoundHasItsOwnPath(t *testing.T) {
	s := play(t, `
name: t
steps:
  - id: g
    retry: {attempts: 2, delay: 10s, jitter: none, on: [agent_rejected]}
    steps: [{id: a, agent: one}, {id: b, set: "${a.output.v}"}]
output: "${steps.g.output}"
`)
	if got := s.task("g/a").Task.ID; got != "run-1.g/a.1" {
		t.Errorf("task id %s", got)
	}
	s.fail("g/a", parley.CodeAgentRejected).
		want(parley.RunRunning, "run.started", "scheduled g", "scheduled g/a", "failed g/a", "retrying g")
	if due := s.state.Due(); !due.Equal(s.now.Add(10 * time.Second)) {
		t.Errorf("the next round is due at %s, want %s", due, s.now.Add(10*time.Second))
	}
	s.after(9 * time.Second).want(parley.RunRunning)
	s.after(time.Second).want(parley.RunRunning, "scheduled g", "scheduled g#2/a")
	s.answer("g#2/a", `{"v":2}`).want(parley.RunCompleted, "completed g#2/a", "completed g#2/b", "completed g", "run.completed")
	s.output("2")
}

func TestS12_ErrorAtStartIsOneEvent(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","input":{"v":"${workflow.input.absent}"}}]}`).
		want(parley.RunFailed, "run.started", "failed a", "run.failed")
	if e := s.state.Err(); e.Code != parley.CodeExpression || !strings.Contains(e.Message, "absent") {
		t.Errorf("error %v", e)
	}
}

func TestP1_ParseReadsTextThenResponse(t *testing.T) {
	doc := `{"name":"t","steps":[{"id":"a","agent":"one","parse":"json","retry":{"attempts":1}}]}`
	play(t, doc).answer("a", `"{\"n\":1}"`).output(`{"n":1}`)
	play(t, doc).answer("a", "{\"text\":\"```json\\n[1]\\n```\",\"response\":\"2\"}").output(`[1]`)
	play(t, doc).answer("a", `{"response":" 2 "}`).output(`2`)
	for _, output := range []string{
		`{"text":"2","response":{"raw":"x"}}`, `{"response":"2","text":["x"]}`, `{"response":"2","text":null}`, `{"text":"2","Response":7,"TEXT":"3"}`,
	} {
		play(t, doc).answer("a", output).output(`2`)
	}
	for _, output := range []string{`{"n":1}`, `{"text":"no json"}`, `7`, `null`, `{"Text":"1"}`} {
		if e := play(t, doc).answer("a", output).state.Err(); e == nil || e.Code != parley.CodeInvalidOutput {
			t.Errorf("%s gives %v", output, e)
		}
	}
}

func TestP1_OrderIsParseOutputSchema(t *testing.T) {
	play(t, `
name: t
steps:
  - id: a
    agent: one
    parse: json
    output: {score: "${result.score}"}
    schema: {type: object, required: [score], properties: {score: {type: number}}}
`).answer("a", `{"text":"{\"score\":0.10}"}`).output(`{"score":0.1}`)
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","schema":{"type":"string"},"retry":{"attempts":2,"delay":"1s","on":["invalid_output"]}}]}`)
	s.answer("a", `1`).want(parley.RunRunning, "run.started", "scheduled a", "retrying a")
	s.answer("a", `"x"`).want(parley.RunCompleted, "completed a", "run.completed")
}

func TestR1_DefaultCodes(t *testing.T) {
	doc := `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":2}}]}`
	for _, code := range []parley.Code{parley.CodeAgentUnavailable, parley.CodeAgentError, parley.CodeStalled} {
		if s := play(t, doc).fail("a", code); s.state.Status() != parley.RunRunning {
			t.Errorf("%s is not retried", code)
		}
	}
	for _, code := range []parley.Code{parley.CodeAgentRejected, parley.CodeInvalidOutput, parley.CodeTimeout, parley.CodeOutcomeUnknown, parley.CodeUnknownAgent, parley.CodeLimit} {
		if s := play(t, doc).fail("a", code); s.state.Status() != parley.RunFailed {
			t.Errorf("%s is retried", code)
		}
	}
	for _, limit := range []string{"attempt_timeout", "exchange"} {
		err := parley.Errorf(parley.CodeTimeout, "late").WithDetails(map[string]string{"limit": limit})
		if s := play(t, doc).settle("a", parley.Result{Outcome: parley.OutcomeError, Err: err}, 0); s.state.Status() != parley.RunRunning {
			t.Errorf("timeout of %s is not retried", limit)
		}
	}
}

func TestR1_OutcomeUnknownIsNeverRetriedByStar(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":5,"on":["*"]}}]}`)
	s.settle("a", parley.Result{Outcome: parley.OutcomeUnknown}, 0).
		want(parley.RunFailed, "run.started", "scheduled a", "failed a", "run.failed")
	if got := s.state.Err().Code; got != parley.CodeOutcomeUnknown {
		t.Errorf("code %s", got)
	}
}

func TestR2_DelayIsCappedThenJitteredAndAtLeastRetryAfter(t *testing.T) {
	p := RetryPolicy{Attempts: 9, Delay: time.Second, Multiplier: 3, MaxDelay: 5 * time.Second}
	for n, want := range []time.Duration{time.Second, 3 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := p.delay(n+1, 0.5); got != want {
			t.Errorf("retry %d after %s, want %s", n+1, got, want)
		}
	}
	p.FullJitter = true
	if got := p.delay(3, 0.5); got != 2500*time.Millisecond {
		t.Errorf("the cap comes before the jitter: %s", got)
	}
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":2,"delay":"1s"}}]}`)
	s.settle("a", parley.Result{Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentUnavailable, "429"), RetryAfter: 7 * time.Second}, 0)
	if got := s.task("a").At.Sub(s.now); got != 7*time.Second {
		t.Errorf("the retry is after %s, the agent asked for 7s", got)
	}
}

func TestR3_EachPolicyCountsItsOwn(t *testing.T) {
	s := play(t, `
name: t
steps:
  - id: a
    agent: one
    retry:
      - {attempts: 2, delay: 0s, on: [agent_error]}
      - {attempts: 3, delay: 0s, on: [agent_unavailable]}
`)
	for _, code := range []parley.Code{parley.CodeAgentUnavailable, parley.CodeAgentError, parley.CodeAgentUnavailable} {
		if s.fail("a", code); s.state.Status() != parley.RunRunning {
			t.Fatalf("%s ended the run", code)
		}
	}
	if s.fail("a", parley.CodeAgentError); s.state.Status() != parley.RunFailed {
		t.Error("the first policy grants one retry only")
	}
}

func TestR4_AgentRetryConfigIsTheDefault(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one"}]}`)
	s.fail("a", parley.CodeAgentError).fail("a", parley.CodeAgentError).
		want(parley.RunRunning, "run.started", "scheduled a", "retrying a", "retrying a")
	if got := s.task("a").Task.ID; got != "run-1.a.3" {
		t.Errorf("the third attempt is %s", got)
	}
	s.fail("a", parley.CodeAgentError).want(parley.RunFailed, "failed a", "run.failed")
}

func TestT1_StepTimeoutEndsAtOnceAndIsNotRetried(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","timeout":"1m","retry":{"attempts":9,"on":["*"]}}]}`)
	s.after(59*time.Second).want(parley.RunRunning, "run.started", "scheduled a")
	s.after(time.Second).want(parley.RunFailed, "failed a", "run.failed")
	if diff := cmp.Diff([]Close{{TaskID: "run-1.a.1", Outcome: parley.OutcomeTimeout, Unanswered: true}}, s.last.Close); diff != "" {
		t.Errorf("close (-want +got):\n%s", diff)
	}
	if e := s.state.Err(); e.Code != parley.CodeTimeout || !strings.Contains(string(e.Details), `"timeout"`) {
		t.Errorf("error %v %s", e, e.Details)
	}
}

func TestT1_RetryThatWouldBeginTooLateFailsNow(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","timeout":"10s","retry":{"attempts":3,"delay":"10s","jitter":"none"}}]}`)
	s.fail("a", parley.CodeAgentError).want(parley.RunFailed, "run.started", "scheduled a", "failed a", "run.failed")
	if e := s.state.Err(); e.Code != parley.CodeAgentError || string(e.Details) != `{"limit":"timeout"}` {
		t.Errorf("error %v %s", e, e.Details)
	}
}

func TestT2_SilenceAndAttemptTimeoutGoToTheBridge(t *testing.T) {
	s := play(t, `{"name":"t","silence":"2m","steps":[{"id":"a","agent":"one","attempt_timeout":"1h"}]}`)
	if c := s.task("a"); c.Silence != 2*time.Minute || c.AttemptTimeout != time.Hour {
		t.Errorf("scheduled with %s and %s", c.Silence, c.AttemptTimeout)
	}
	if c := play(t, `{"name":"t","steps":[{"id":"a","agent":"one"}]}`).task("a"); c.Silence != 5*time.Minute {
		t.Errorf("silence is %s when nothing is said", c.Silence)
	}
}

func TestT3_RunTimeoutCancelsTheBody(t *testing.T) {
	s := play(t, `{"name":"t","timeout":"1h","steps":[{"id":"a","agent":"one"},{"id":"b","agent":"one"}]}`)
	s.after(time.Hour).want(parley.RunFailed, "run.started", "scheduled a", "cancelled a", "run.failed")
	if e := s.state.Err(); e.Code != parley.CodeTimeout || string(e.Details) != `{"limit":"run"}` {
		t.Errorf("error %v %s", e, e.Details)
	}
}

func TestT3_StartMayShortenTheTimeout(t *testing.T) {
	for start, want := range map[time.Duration]string{0: "1m0s", time.Hour: "1m0s", time.Second: "1s"} {
		s := playWith(t, "name: t\ntimeout: 1m\nsteps: [{id: a, agent: x}]", Start{Timeout: start})
		s.after(time.Minute)
		if e := s.state.Err(); e == nil || e.Code != parley.CodeTimeout || !strings.Contains(e.Message, " "+want+" ") {
			t.Errorf("with %s: %v", start, e)
		}
	}
}

func TestT3_WhatIsRecordedFirstWins(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","timeout":"1m"}]}`)
	id := s.task("a").Task.ID
	s.after(time.Minute)
	s.apply(Settled{At: s.now, TaskID: id, Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`)}})
	if len(s.last.Events) > 0 || s.state.Status() != parley.RunFailed {
		t.Errorf("a late answer gave %v", s.last.Events)
	}
}

// TestT3_TheLoserIsRecordedAsLate: while the run goes on, its history says which
// answers came too late; they change nothing.
func TestT3_TheLoserIsRecordedAsLate(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","timeout":"1m","on_error":"continue"},{"id":"b","agent":"one"}]}`)
	task, events := s.task("a").Task.ID, slices.Clone(s.last.Events)
	s.after(time.Minute)
	events = append(events, s.last.Events...)
	before := s.step("a")
	e, ok := s.state.Late(LateAnswer{
		At: s.now, Came: s.now.Add(-time.Second), TaskID: task, Step: "a", Attempt: 1, Outcome: parley.OutcomeError, Bytes: 0,
		Err: parley.Errorf(parley.CodeAgentError, "no"),
	})
	want := parley.Event{Seq: int64(len(events)) + 1, At: s.now, Type: parley.EventStepLate, Run: "run-1", Step: "a", Attempt: 1, Data: json.RawMessage(
		`{"task_id":"run-1.a.1","outcome":"error","came_at":"` + s.now.Add(-time.Second).Format(time.RFC3339Nano) + `","bytes":0,"error":{"code":"agent_error","message":"no","retryable":false}}`,
	)}
	if !ok || !cmp.Equal(e, want) {
		t.Fatalf("%t: %+v %s", ok, e, e.Data)
	}
	s.replayed(append(events, e))
	if got := s.step("a"); !reflect.DeepEqual(got, before) {
		t.Errorf("a late answer has changed its step: %+v", got)
	}
	s.answer("b", `1`)
	if e, ok := s.state.Late(LateAnswer{At: s.now, TaskID: task, Step: "a", Attempt: 1}); ok || s.state.Status() != parley.RunCompleted {
		t.Errorf("the run is %s, and %+v follows its end", s.state.Status(), e)
	}
}

func TestT4_NoOtherTimerCountsWhileCancelling(t *testing.T) {
	s := play(t, "name: t\nsteps: [{id: p, timeout: 2s, parallel: [{id: w, wait: 1s}, {id: a, agent: x}]}]")
	s.apply(Cancel{At: s.now, Grace: time.Minute})
	if due := s.state.Due(); !due.Equal(s.now.Add(time.Minute)) {
		t.Errorf("due at %s, want the end of the grace, %s", due, s.now.Add(time.Minute))
	}
	s.after(10 * time.Second)
	if step := s.step("p/w"); step.Status != parley.StepRunning {
		t.Errorf("a timer fired in the grace: %+v", step)
	}
}

func TestT4_TimersNeverFireEarly(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","timeout":"1s"}]}`)
	s.now = s.now.Add(time.Second - time.Microsecond)
	if s.apply(Tick{At: s.now}); len(s.last.Events) > 0 {
		t.Errorf("a timer fired early: %v", s.last.Events)
	}
}

func TestH1_ContinueHandlesAFailure(t *testing.T) {
	s := play(t, `
name: t
steps:
  - {id: a, agent: one, on_error: continue, retry: {attempts: 1}}
  - {id: b, set: {status: "${steps.a.status}", handled: "${steps.a.handled}", code: "${steps.a.error.code}", out: "${a.output}"}}
`)
	s.fail("a", parley.CodeAgentError).want(parley.RunCompleted, "run.started", "scheduled a", "failed a", "completed b", "run.completed")
	s.output(`{"status":"FAILED","handled":true,"code":"agent_error","out":null}`)
	if x := s.step("a"); x.Status != parley.StepFailed || !x.Handled {
		t.Errorf("step a is %s, handled %t", x.Status, x.Handled)
	}
}

func TestC3_CancelWaitsForAgentsInFlight(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one"},{"id":"b","agent":"one"}]}`)
	s.apply(Cancel{At: s.now, By: "me", Reason: "enough", Grace: 30 * time.Second})
	s.want(parley.RunRunning, "run.started", "scheduled a", "run.cancelling")
	if diff := cmp.Diff([]string{"run-1.a.1"}, s.last.RequestCancel); diff != "" {
		t.Errorf("request cancel (-want +got):\n%s", diff)
	}
	s.apply(Cancel{At: s.now})
	s.want(parley.RunRunning) // accepted once
	s.answer("a", `1`).want(parley.RunCancelled, "completed a", "run.cancelled")
	if got := s.step("a").Status; got != parley.StepCompleted {
		t.Errorf("a success inside the grace is %s", got)
	}
	if got := s.step("b").Status; got != parley.StepCancelled {
		t.Errorf("the step that never started is %s", got)
	}
}

func TestC3_GraceEndsTheWait(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one"}]}`)
	s.apply(Cancel{At: s.now, Grace: 30 * time.Second})
	s.after(29 * time.Second)
	s.after(time.Second).want(parley.RunCancelled, "run.started", "scheduled a", "run.cancelling", "cancelled a", "run.cancelled")
}

func TestC3_FailureDuringCancelIsNotRetried(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"one","retry":{"attempts":9}}]}`)
	s.apply(Cancel{At: s.now, Grace: time.Minute})
	s.fail("a", parley.CodeAgentError).want(parley.RunCancelled, "run.started", "scheduled a", "run.cancelling", "failed a", "run.cancelled")
}

func TestC6_RetryTakesCompletedStepsOver(t *testing.T) {
	doc := `
name: t
steps:
  - {id: a, agent: one, session: s}
  - id: g
    steps: [{id: b, agent: one}, {id: c, agent: one, retry: {attempts: 1}}]
output: {a: "${a.output.v}", c: "${g.output}"}
`
	old := play(t, doc).answer("a", `{"v":1}`).answer("g/b", `{"v":2}`).fail("g/c", parley.CodeAgentError)
	if old.state.Status() != parley.RunFailed {
		t.Fatalf("the old run is %s", old.state.Status())
	}
	s := playWith(t, doc, Start{Input: json.RawMessage(`{"x":1}`), RetriedFrom: "run-0", Copied: old.state.Copies()})
	s.want(parley.RunRunning, "run.started", "completed a", "scheduled g", "completed g/b", "scheduled g/c")
	s.answer("g/c", `{"v":3}`).want(parley.RunCompleted, "completed g/c", "completed g", "run.completed")
	s.output(`{"a":1,"c":{"v":3}}`)
}

func TestC10_FinishEndsTheRun(t *testing.T) {
	play(t, `{"name":"t","steps":[{"id":"g","steps":[{"id":"a","finish":{"v":"${workflow.input.x}"}},{"id":"b","agent":"one"}]},{"id":"c","agent":"one"}]}`).
		want(parley.RunCompleted, "run.started", "scheduled g", "completed g/a", "cancelled g", "run.completed").
		output(`{"v":1}`)
}

func TestFail_AuthorsCodeMessageDetails(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","fail":{"code":"TooBig","message":"x is ${workflow.input.x}","details":{"x":"${workflow.input.x}"}}}]}`)
	want := &parley.Error{Code: "TooBig", Message: "x is 1", Step: "a", Details: json.RawMessage(`{"x":1}`)}
	if diff := cmp.Diff(want, s.state.Err(), cmp.AllowUnexported(parley.Error{})); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestLimits_AreErrorsWithNameAndValue(t *testing.T) {
	def, _ := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"id":"a","agent":"one"},{"id":"b","set":"${a.output}"},
		{"id":"p","parallel":[{"id":"c","agent":"x"},{"id":"d","agent":"x"}]},{"id":"w","for_each":"${[1,2]}","steps":[{"id":"e","agent":"x"}]}]}`))
	for name, change := range map[string]func(*RunLimits){
		"output":              func(l *RunLimits) { l.Value = 10 },
		"all values of a run": func(l *RunLimits) { l.RunValues = 20 },
		"executions":          func(l *RunLimits) { l.Executions = 1 },
		"running":             func(l *RunLimits) { l.Running = 1 },
		"items":               func(l *RunLimits) { l.Items = 1 },
	} {
		limits := DefaultRunLimits()
		change(&limits)
		s := &script{t: t, state: NewState("r", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
		s.apply(Start{At: s.now, Input: json.RawMessage(`1`)})
		s.answer("a", `"0123456789"`)
		if name == "items" {
			s.answer("p/c", "1").answer("p/d", "1")
		}
		if e := s.state.Err(); e == nil || e.Code != parley.CodeLimit || !strings.Contains(string(e.Details), name) {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// TestLimits_ApproversAreNoBytes: a limit is said in what it counts.
func TestLimits_ApproversAreNoBytes(t *testing.T) {
	to, err := json.Marshal(map[string]any{"x": strings.Split(strings.Repeat("a,", 100)+"a", ",")})
	if err != nil {
		t.Fatal(err)
	}
	s := playWith(t, `{"name":"t","steps":[{"id":"a","approval":{"title":"Go?","to":"${workflow.input.x}"}}]}`, Start{Input: to})
	if e := s.state.Err(); e == nil || e.Code != parley.CodeLimit || e.Message != "to: 101, the limit is 100" {
		t.Errorf("the run ended with %v", e)
	}
}

// TestS3_RunningSiblingsAreCancelled lets two steps run side by side, as
// `needs` will.
func TestS3_RunningSiblingsAreCancelled(t *testing.T) {
	def, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"id":"a","agent":"one"},{"id":"b","agent":"one"}]}`))
	if def == nil {
		t.Fatal(problems)
	}
	def.Body.Steps[1].Needs = nil
	s := &script{t: t, state: NewState("r", def, DefaultRunLimits()), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
	s.apply(Start{At: s.now, Input: json.RawMessage(`{}`)})
	s.fail("b", parley.CodeAgentRejected).
		want(parley.RunFailed, "run.started", "scheduled a", "scheduled b", "failed b", "cancelled a", "run.failed")
	if len(s.open) > 0 {
		t.Errorf("left open: %v", s.open)
	}
}

func TestC10_ReplayRefusesAGap(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","set":1}]}`)
	again := NewState("run-1", s.state.Definition(), DefaultRunLimits())
	if err := again.Replay(s.last.Events[1]); err == nil {
		t.Error("a history that begins with event 2 was accepted")
	}
	if err := again.Replay(parley.Event{Seq: 1, Type: parley.EventStepCompleted, Step: "nobody", Data: json.RawMessage(`{}`)}); err == nil {
		t.Error("an event of a step that does not exist was accepted")
	}
}

func TestC1_ViewSaysWhatWasUndone(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x","compensate":{"id":"u","agent":"x"}},{"id":"b","agent":"x"}]}`)
	s.answer("a", "1")
	if v := s.state.View(); v.Compensated || v.Phase != "body" {
		t.Errorf("before: %v, %s", v.Compensated, v.Phase)
	}
	s.fail("b", parley.CodeAgentRejected)
	if v := s.state.View(); !v.Compensated || v.Phase != "compensating" || v.Status != parley.RunRunning {
		t.Errorf("meanwhile: %v, %s, %s", v.Compensated, v.Phase, v.Status)
	}
	s.answer("a/u", "1")
	if v := s.state.View(); !v.Compensated || v.Phase != "" || v.Status != parley.RunFailed {
		t.Errorf("after: %v, %q, %s", v.Compensated, v.Phase, v.Status)
	}
}

func TestH3_ErrorOfAHandlerNamesWhatItHandled(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x","on_error":{"steps":[{"id":"h","agent":"y"}]}}]}`)
	s.fail("a", parley.CodeAgentRejected).fail("a/h", parley.CodeInvalidOutput)
	e := s.state.Err()
	if e == nil || e.Code != parley.CodeInvalidOutput || e.Step != "a/h" || e.Cause == nil || e.Cause.Code != parley.CodeAgentRejected || e.Cause.Step != "a" {
		t.Errorf("the run fails with %+v", e)
	}
}

func TestC2_RunNamesWhatCouldNotBeUndone(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x","compensate":{"id":"u","agent":"x"}},
		{"id":"b","agent":"x","compensate":{"id":"v","agent":"x"}},{"id":"c","agent":"x","compensate":{"id":"w","agent":"x"}},
		{"id":"d","agent":"x"}]}`)
	s.answer("a", "1").answer("b", "1").answer("c", "1").fail("d", parley.CodeAgentRejected)
	s.fail("c/w", parley.CodeAgentRejected).answer("b/v", "1").fail("a/u", parley.CodeAgentRejected)
	var d struct {
		Failed []string `json:"compensation_failed"`
	}
	e := s.state.Err()
	if e == nil || json.Unmarshal(e.Details, &d) != nil || !slices.Equal(d.Failed, []string{"a", "c"}) || e.Code != parley.CodeAgentRejected || e.Step != "d" {
		t.Errorf("the run fails with %+v %s", e, e.Details)
	}
}

// TestC10_TheChainOfEventsIsRecorded: how many runs have led to one is part of its
// history, so that whoever goes on with it knows.
func TestC10_TheChainOfEventsIsRecorded(t *testing.T) {
	def := testParse(t, "name: w\nsteps: [{id: a, set: 1}]")
	state := NewState("run-1", def, DefaultRunLimits())
	d := state.Apply(Start{At: time.Unix(1, 0).UTC(), Input: json.RawMessage(`{}`), Chain: 3})
	again := NewState("run-1", def, DefaultRunLimits())
	for _, e := range d.Events {
		if err := again.Replay(e); err != nil {
			t.Fatal(err)
		}
	}
	if state.Chain() != 3 || again.Chain() != 3 {
		t.Errorf("the chain is %d, and %d when replayed", state.Chain(), again.Chain())
	}
}

// TestC4_FinishDoesNotDecideAgainHowARunEnds: what is done after the body of a run
// cannot make it complete, nor change its output. In finally the rest is left out.
func TestC4_FinishDoesNotDecideAgainHowARunEnds(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x","compensate":[{"id":"u","finish":2},{"id":"v","agent":"y"}]},{"id":"b","agent":"x"}]}`)
	s.answer("a", "1").fail("b", parley.CodeAgentRejected).answer("a/v", "3").
		want(parley.RunFailed, "run.started", "scheduled a", "completed a", "scheduled b", "failed b", "run.phase", "compensating a", "completed a/u",
			"scheduled a/v", "completed a/v", "compensated a", "run.failed")
	rest := `"finally":[{"id":"f","finish":2},{"id":"g","agent":"x"}]`
	play(t, `{"name":"t","steps":[{"id":"a","agent":"x"}],`+rest+`}`).fail("a", parley.CodeAgentRejected).
		want(parley.RunFailed, "run.started", "scheduled a", "failed a", "run.phase", "completed f", "run.failed")
	play(t, `{"name":"t","steps":[{"id":"a","agent":"x"}],`+rest+`}`).answer("a", "1").
		want(parley.RunCompleted, "run.started", "scheduled a", "completed a", "run.phase", "completed f", "run.completed").output("1")
}
