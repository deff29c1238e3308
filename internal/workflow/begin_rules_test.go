package workflow

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestS2_AStepWhoseConditionFailsIsNotRetriedPastIt: a policy that grants another
// attempt after any expression does not make a step run of which `if` never held.
func TestS2_AStepWhoseConditionFailsIsNotRetriedPastIt(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","set":1,"if":"workflow.input.absent == 1","retry":{"attempts":2,"delay":"1s","on":["expression"]}}]}`)
	s.after(time.Hour).want(parley.RunFailed, "run.started", "failed a", "run.failed")
}

// TestS2_ARetryEvaluatesWhatCouldNotBe: a composite of which the list, or the
// condition, could not be evaluated does not run as if it had been.
func TestS2_ARetryEvaluatesWhatCouldNotBe(t *testing.T) {
	for _, kind := range []string{
		`"for_each":"${workflow.input.absent}","steps":[{"id":"b","set":1}]`,
		`"switch":[{"when":"workflow.input.absent == 1","steps":[{"id":"b","set":1}]}]`,
	} {
		s := play(t, `{"name":"t","steps":[{"id":"a",`+kind+`,"retry":{"attempts":2,"delay":"1s","jitter":"none","on":["expression"]}}]}`)
		s.after(time.Second).want(parley.RunFailed, "run.started", "scheduled a", "retrying a", "failed a", "run.failed")
	}
}

// TestT1_NoRetryAfterTheTimeoutOfAStepThatFailsAsItBegins: its time runs from then.
func TestT1_NoRetryAfterTheTimeoutOfAStepThatFailsAsItBegins(t *testing.T) {
	for _, list := range []string{
		`{"id":"a","fail":{"code":"Oops"},"timeout":"30s",%s}`,
		`{"id":"g","timeout":"30s","steps":[{"id":"a","fail":{"code":"Oops"},%s}]}`,
		`{"id":"f","branch_timeout":"30s","join":1,"fork":{"l":[{"id":"a","fail":{"code":"Oops"},%s}],"r":[{"id":"b","fail":{"code":"Oops"}}]}}`,
	} {
		s := play(t, `{"name":"t","steps":[`+replaced(list, `"retry":{"attempts":2,"delay":"1m","jitter":"none","on":["Oops"]}`)+`]}`)
		if s.state.Status() != parley.RunFailed {
			t.Errorf("%s: a retry is waited for that can only begin too late; history %q", list, s.types)
		}
	}
}

// TestC2_WhatUndoesAStepIsRetriedAfterTheTimeOfItsBranch: the time of a branch that
// has ended bounds nothing any more.
func TestC2_WhatUndoesAStepIsRetriedAfterTheTimeOfItsBranch(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"f","branch_timeout":"10s","join":"all","fork":{
		"l":[{"id":"a","set":1,"compensate":{"id":"u","agent":"one"}}],
		"r":[{"id":"b","agent":"one"}]}}]}`)
	s.after(10 * time.Second)
	if until := s.task("f/a/u").Task.Deadline; !until.Equal(s.now.Add(10 * time.Minute)) {
		t.Errorf("what undoes a step has until %s, want that of the cleanup", until)
	}
	if s.fail("f/a/u", parley.CodeAgentError); s.state.Status().Terminal() {
		t.Fatalf("it was not tried again; history %q", s.types)
	}
}

// TestC2_TheTimeOfABranchEndsWithItsFork: a branch that was cut off since another one has
// failed comes to no end of its own, and its time bounds nothing any more.
func TestC2_TheTimeOfABranchEndsWithItsFork(t *testing.T) {
	const document = `{"name":"t","timeout":"1h","steps":[{"id":"f","branch_timeout":"10s","join":"all",%s,"fork":{
		"l":[{"id":"a","set":1,"compensate":{"id":"u","agent":"one"}},{"id":"c","agent":"one"}],
		"r":[{"id":"b","agent":"one"}]}}]}`
	s := play(t, replaced(document, `"on_error":{"compensate":true}`)).fail("f/b", parley.CodeAgentRejected)
	if until := s.task("f/a/u").Task.Deadline; !until.Equal(s.now.Add(time.Hour)) {
		t.Errorf("what undoes a step has until %s, want that of the run", until)
	}
	if s.after(10 * time.Second); len(s.last.Events) > 0 {
		t.Errorf("while a step is undone the branch runs out of time: %q", s.types)
	}
	if s.fail("f/a/u", parley.CodeAgentError); s.step("f/a/u").Status != parley.StepRunning {
		t.Errorf("it was not tried again; history %q", s.types)
	}

	s = play(t, replaced(document, `"retry":{"attempts":2,"delay":"1m","jitter":"none","on":["join_failed"]}`)).fail("f/b", parley.CodeAgentRejected)
	if due := s.state.Due(); due.Equal(s.now.Add(10 * time.Second)) {
		t.Errorf("the run looks again at %s, when the time of the branch is up", due)
	}
	if s.after(10 * time.Second); len(s.last.Events) > 0 {
		t.Errorf("while the fork waits for its retry its branch runs out of time: %q", s.types)
	}
	if s.after(50 * time.Second); s.task("f#2/b").Task.Attempt != 1 {
		t.Errorf("the fork was not done again; history %q", s.types)
	}
}

// TestC1_WhatWasNeverBegunIsNotCompensated: what an agent, a run or a list needs could
// not be evaluated, however often.
func TestC1_WhatWasNeverBegunIsNotCompensated(t *testing.T) {
	for _, what := range []string{
		`"agent":"one","input":"${workflow.input.absent}"`,
		`"workflow":"w","input":"${workflow.input.absent}"`,
		`"workflow":"${workflow.input.absent}","among":["w"]`,
		`"for_each":"${workflow.input.absent}","steps":[{"id":"b","set":1}]`,
		`"switch":[{"when":"workflow.input.absent > 1","steps":[{"id":"b","set":1}]}]`,
	} {
		s := play(t, `{"name":"t","steps":[{"id":"a",`+what+`,"compensate_if":"started",
			"compensate":{"id":"u","set":1},"retry":{"attempts":2,"delay":"1s","jitter":"none","on":["expression"]}}]}`)
		s.after(time.Second).want(parley.RunFailed, "run.started", "scheduled a", "retrying a", "failed a", "run.failed")
	}
}

// TestC1_WhatHasBegunIsCompensated: though it failed.
func TestC1_WhatHasBegunIsCompensated(t *testing.T) {
	for what, fails := range map[string]func(*script){
		`"agent":"one"`: func(s *script) { s.fail("a", parley.CodeAgentRejected) },
		`"workflow":"w"`: func(s *script) {
			s.apply(ChildEnded{At: s.now, TaskID: "run-1.a.1", Run: "run-2", Status: parley.RunFailed, Err: parley.Errorf(parley.CodeAgentRejected, "no")})
		},
		`"steps":[{"id":"b","agent":"one"}]`: func(s *script) { s.fail("a/b", parley.CodeAgentRejected) },
	} {
		s := play(t, `{"name":"t","steps":[{"id":"a",`+what+`,"compensate_if":"started","compensate":{"id":"u","agent":"one"}}]}`)
		if fails(s); s.state.Status().Terminal() || s.task("a/u").Task.Agent != "one" {
			t.Errorf("%s is not undone; history %q", what, s.types)
		}
	}
}

// TestR2_TheDelayIsDrawnAlsoForWhatFailsAsTheRunBegins: and as it is resumed.
func TestR2_TheDelayIsDrawnAlsoForWhatFailsAsTheRunBegins(t *testing.T) {
	const document = `{"name":"t","steps":[%s{"id":"a","fail":{"code":"Oops"},"retry":{"attempts":2,"delay":"10s","on":["Oops"]}}]}`
	s := playWith(t, replaced(document, ""), Start{Input: []byte(`{}`), Jitter: 0.5})
	if got := s.retryOf().DelayMS; got != 5000 {
		t.Errorf("at the start: a delay of %d ms, want half of 10 s", got)
	}
	s = play(t, replaced(document, `{"id":"b","agent":"one"},`))
	s.apply(Pause{At: s.now})
	s.answer("b", `1`).apply(Resume{At: s.now, Jitter: 0.25})
	if got := s.retryOf().DelayMS; got != 2500 {
		t.Errorf("at resume: a delay of %d ms, want a quarter of 10 s", got)
	}
}

// replaced gives a document with its gap filled.
func replaced(document, gap string) string { return strings.Replace(document, "%s", gap, 1) }
