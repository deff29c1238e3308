package workflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// inFlight names the steps that wait for an agent, sorted.
func (s *script) inFlight() string {
	var list []string
	for _, c := range s.open {
		list = append(list, c.Task.Step)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (s *script) wantInFlight(want string) *script {
	s.t.Helper()
	if got := s.inFlight(); got != want {
		s.t.Errorf("in flight: %q, want %q", got, want)
	}
	return s
}

func (s *script) wantCode(want parley.Code) *script {
	s.t.Helper()
	if e := s.state.Err(); e == nil || e.Code != want {
		s.t.Errorf("the run ended %s with %v, want code %s", s.state.Status(), e, want)
	}
	return s
}

func TestS5_MaxParallelStartsTheEarliestNext(t *testing.T) {
	for _, document := range []string{
		`{"name":"t","steps":[{"id":"w","parallel":[{"id":"a","agent":"x"},{"id":"b","agent":"x"},{"id":"c","agent":"x"},{"id":"d","agent":"x"}],"max_parallel":2}]}`,
		`{"name":"t","steps":[{"id":"w","fork":{"a":[{"id":"a","agent":"x"}],"b":[{"id":"b","agent":"x"}],"c":[{"id":"c","agent":"x"}],"d":[{"id":"d","agent":"x"}]},"max_parallel":2}]}`,
		`{"name":"t","steps":[{"id":"w","max_parallel":2,"steps":[{"id":"a","agent":"x","needs":[]},{"id":"b","agent":"x","needs":[]},{"id":"c","agent":"x","needs":[]},{"id":"d","agent":"x","needs":[]}]}]}`,
	} {
		s := play(t, document).wantInFlight("w/a w/b")
		s.answer("w/b", "1").wantInFlight("w/a w/c")
		s.answer("w/c", "1").wantInFlight("w/a w/d")
		s.answer("w/a", "1").answer("w/d", "1")
		if s.state.Status() != parley.RunCompleted {
			t.Errorf("%s: %s", document, s.state.Status())
		}
	}
}

func TestS5_ForEachRunsOneAtATimeUnlessToldOtherwise(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"w","for_each":[1,2,3],"steps":[{"id":"a","agent":"x"}]}]}`)
	s.wantInFlight("w[0]/a").answer("w[0]/a", "1").wantInFlight("w[1]/a")
	s = play(t, `{"name":"t","steps":[{"id":"w","for_each":[1,2,3],"max_parallel":2,"steps":[{"id":"a","agent":"x"}]}]}`)
	s.wantInFlight("w[0]/a w[1]/a").answer("w[1]/a", "1").wantInFlight("w[0]/a w[2]/a")
}

// forEach is a loop over four items, all at once, with more members.
func forEach(t *testing.T, members string) *script {
	t.Helper()
	return play(t, fmt.Sprintf(`{"name":"t","steps":[{"id":"w","for_each":[1,2,3,4],"max_parallel":4,%s,
		"steps":[{"id":"a","agent":"x","retry":{"attempts":1}}]}]}`, members))
}

// TestS3_NothingStartsBesideAFailure: of two that go on at the same moment the first
// fails, so the second starts nothing.
func TestS3_NothingStartsBesideAFailure(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"p","parallel":[
		{"id":"a","steps":[{"id":"w","wait":"1s"},{"id":"f","fail":{"code":"Boom","message":"x"}}]},
		{"id":"b","steps":[{"id":"v","wait":"1s"},{"id":"z","agent":"x"}]}]}]}`)
	s.types = nil
	s.after(time.Second).want(parley.RunFailed, "timer.fired p/a/w", "completed p/a/w", "timer.fired p/b/v", "completed p/b/v",
		"failed p/a/f", "failed p/a", "cancelled p/b", "failed p", "run.failed")
}

func TestS7_FailuresAboveTheToleranceEndTheLoop(t *testing.T) {
	s := forEach(t, `"tolerate":"50%"`)
	s.fail("w[0]/a", parley.CodeAgentError).fail("w[1]/a", parley.CodeAgentError).wantInFlight("w[2]/a w[3]/a")
	s.fail("w[2]/a", parley.CodeAgentError).wantCode("tolerance_exceeded")
	if got := s.step("w[3]/a").Status; got != parley.StepCancelled {
		t.Errorf("the open iteration is %s", got)
	}
	forEach(t, `"tolerate":0`).fail("w[2]/a", parley.CodeAgentRejected).wantCode(parley.CodeAgentRejected)
}

func TestS7_WhatFailedIsNullAndCounted(t *testing.T) {
	failTwo := func(s *script) *script {
		return s.fail("w[0]/a", parley.CodeAgentError).fail("w[1]/a", parley.CodeAgentError).answer("w[3]/a", `"d"`).answer("w[2]/a", `"c"`)
	}
	failTwo(forEach(t, `"item_errors":"continue"`)).output(`{"iterations":[null,null,"c","d"],"total_count":4,"failed_count":2}`)
	failTwo(forEach(t, `"tolerate":2`)).output(`{"iterations":[null,null,"c","d"],"total_count":4,"failed_count":2}`)
	failTwo(forEach(t, `"item_errors":"collect","tolerate":1`)).wantCode("tolerance_exceeded")
}

func TestS7_EnoughEndsTheLoop(t *testing.T) {
	s := forEach(t, `"enough":2`)
	s.fail("w[0]/a", parley.CodeAgentError).answer("w[3]/a", `"d"`).answer("w[1]/a", `"b"`)
	s.output(`{"iterations":[null,"b",null,"d"],"total_count":4,"failed_count":1}`)
	s = forEach(t, `"enough":2`)
	s.fail("w[0]/a", parley.CodeAgentError).fail("w[1]/a", parley.CodeAgentError).fail("w[2]/a", parley.CodeAgentError)
	s.wantCode("tolerance_exceeded")
	// A tolerance that is given counts, though two may still complete.
	s = forEach(t, `"enough":2,"tolerate":1`)
	s.fail("w[0]/a", parley.CodeAgentError).fail("w[1]/a", parley.CodeAgentError).wantCode("tolerance_exceeded")
}

func TestS8_RepeatEndsWhenUntilHolds(t *testing.T) {
	document := func(members string) string {
		return `{"name":"t","steps":[{"id":"w","repeat":{"max":2` + members + `},"steps":[{"id":"a","agent":"x","retry":{"attempts":1}}]}]}`
	}
	until := `,"until":"steps.a.output.n > 1"`
	play(t, document(until)).answer("w[0]/a", `{"n":2}`).
		output(`{"iterations":[{"n":2}],"total_count":1,"satisfied":true,"last":{"n":2}}`)
	play(t, document(until)).answer("w[0]/a", `{"n":1}`).answer("w[1]/a", `{"n":1}`).
		output(`{"iterations":[{"n":1},{"n":1}],"total_count":2,"satisfied":false,"last":{"n":1}}`)
	play(t, document(until+`,"on_max":"fail"`)).answer("w[0]/a", `{"n":1}`).answer("w[1]/a", `{"n":1}`).wantCode("max_iterations")
	play(t, document("")).answer("w[0]/a", `1`).answer("w[1]/a", `2`).
		output(`{"iterations":[1,2],"total_count":2,"satisfied":true,"last":2}`)
	play(t, document(until)).fail("w[0]/a", parley.CodeAgentRejected).wantCode(parley.CodeAgentRejected)
}

func TestH1_AHandledFailureHasTheHandlersOutput(t *testing.T) {
	document := func(handler string) string {
		return `{"name":"t","steps":[{"id":"a","agent":"x","retry":{"attempts":1},"on_error":` + handler + `},
			{"id":"z","set":["${steps.a.status}","${steps.a.handled}","${steps.a.output}"]}]}`
	}
	play(t, document(`"continue"`)).fail("a", parley.CodeAgentError).output(`["FAILED",true,null]`)
	play(t, document(`{"output":"${error.code}"}`)).fail("a", parley.CodeAgentError).output(`["FAILED",true,"agent_error"]`)
	play(t, document(`{"steps":[{"id":"h","set":7}]}`)).fail("a", parley.CodeAgentError).output(`["FAILED",true,7]`)
	play(t, document(`{"steps":[{"id":"h","set":7}],"then":"fail"}`)).fail("a", parley.CodeAgentError).wantCode(parley.CodeAgentError)
}

func TestH2_GotoSkipsWhatIsBetween(t *testing.T) {
	document := `{"name":"t","steps":[{"id":"a","agent":"x","retry":{"attempts":1},"on_error":{"goto":"d"}},
		{"id":"b","agent":"x"},{"id":"c","agent":"x"},{"id":"d","agent":"x"},{"id":"e","agent":"x"}]}`
	s := play(t, document).fail("a", parley.CodeAgentError).wantInFlight("d")
	for _, id := range []string{"b", "c"} {
		if got := s.step(id).Status; got != parley.StepSkipped {
			t.Errorf("%s is %s", id, got)
		}
	}
	s.answer("d", "1").wantInFlight("e").answer("e", "2").output("2")
	play(t, document).answer("a", "1").wantInFlight("b")
}

func TestC4_FailingFinallyFailsACompletedRunOnly(t *testing.T) {
	document := `{"name":"t","steps":[{"id":"a","agent":"x","retry":{"attempts":1}}],
		"finally":[{"id":"f","agent":"y","input":"${run.outcome}","retry":{"attempts":1}}]}`
	s := play(t, document).answer("a", "1").wantInFlight("f").fail("f", parley.CodeAgentError)
	s.wantCode("finally_failed")
	if got := s.state.Status(); got != parley.RunFailed {
		t.Errorf("the run is %s", got)
	}
	if e := s.state.Err(); e.Step != "f" || e.Cause == nil || e.Cause.Code != parley.CodeAgentError {
		t.Errorf("the error does not say which step of finally failed, and how: %+v", e)
	}
	s = play(t, document).fail("a", parley.CodeAgentRejected).wantInFlight("f").fail("f", parley.CodeAgentError)
	s.wantCode(parley.CodeAgentRejected)
	if e := s.state.Err(); !strings.Contains(string(e.Details), "finally") {
		t.Errorf("the error of finally is not added: %s", e.Details)
	}
}

func TestC4_CancelIsRefusedWhileCleaningUp(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"}],"finally":[{"id":"f","agent":"y"}]}`)
	s.answer("a", "1").wantInFlight("f")
	s.apply(Cancel{At: s.now, By: "ann", Grace: time.Second})
	s.wantInFlight("f")
	if s.state.Cancelling() {
		t.Error("a run that is in finally is being cancelled")
	}
	s.apply(Terminate{At: s.now, By: "ann"})
	if got := s.state.Status(); got != parley.RunCancelled {
		t.Errorf("a terminated run is %s", got)
	}
}

// TestC3_WhatWaitsInsideIsCancelled: nothing is open in a run that has ended.
func TestC3_WhatWaitsInsideIsCancelled(t *testing.T) {
	for _, inner := range []string{`"wait":"1h"`, `"event":"paid"`, `"approval":{"title":"Pay?"}`, `"agent":"x"`, `"steps":[{"id":"i","wait":"1h"}]`} {
		s := play(t, `{"name":"t","steps":[{"id":"g","steps":[{"id":"e",`+inner+`}]}]}`)
		s.apply(Cancel{At: s.now, By: "ann", Grace: time.Second})
		s.after(time.Second)
		for _, step := range s.state.View().Steps {
			if step.Status != parley.StepCancelled {
				t.Errorf("%s: %s is %s in a run that is %s", inner, step.ID, step.Status, s.state.Status())
			}
		}
	}
}

// TestPhases: what runs says what it is about.
func TestPhases(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"g","steps":[{"id":"a","agent":"x","retry":{"attempts":2,"delay":"5s"}},{"id":"w","wait":"1h"},{"id":"e","event":"paid"}]}]}`)
	want := func(path string, phase parley.StepPhase) {
		t.Helper()
		if got := s.step(path).Phase; got != phase {
			t.Errorf("%s is %q, want %q", path, got, phase)
		}
	}
	want("g", parley.PhaseWorking)
	want("g/a", parley.PhaseQueued)
	s.fail("g/a", parley.CodeAgentUnavailable)
	want("g/a", parley.PhaseBackoff)
	s.after(5*time.Second).answer("g/a", "1")
	want("g/w", parley.PhaseWaiting)
	s.after(time.Hour)
	want("g/e", parley.PhaseWaiting)
	s.apply(Cancel{At: s.now, By: "ann", Grace: time.Second})
	if got := s.step("g/e").Status; got != parley.StepCancelled {
		t.Errorf("g/e is %s", got)
	}
}
