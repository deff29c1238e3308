package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestT1_RetryBeforeTheEndOfAListAround: a retry that would begin when the time of
// a list around the step is up is not made, however long ago that list began.
func TestT1_RetryBeforeTheEndOfAListAround(t *testing.T) {
	const step = `{"id":"a","agent":"x","retry":{"attempts":3,"delay":"4s","multiplier":1,"jitter":"none"}}`
	for path, around := range map[string]string{
		"g/a": `{"id":"g","timeout":"10s","steps":[` + step + `]}`,
		"f/a": `{"id":"f","fork":{"one":{"timeout":"10s","steps":[` + step + `]},"two":[{"id":"b","set":1}]}}`,
	} {
		s := play(t, `{"name":"t","steps":[`+around+`]}`)
		s.fail(path, parley.CodeAgentError).wantInFlight(path).after(5 * time.Second)
		s.now = s.now.Add(2 * time.Second)
		s.fail(path, parley.CodeAgentError).wantInFlight("")
		if e := s.step(path).Error; e == nil || e.Code != parley.CodeAgentError || !strings.Contains(string(e.Details), `"limit":"timeout"`) {
			t.Errorf("%s failed with %v", path, e)
		}
	}
}

// TestC5_EndedRunsAreNotPaused: a run that is ended while it is paused is no longer
// paused.
func TestC5_EndedRunsAreNotPaused(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"}]}`)
	s.apply(Pause{At: s.now, By: "me"})
	if !s.state.Paused() {
		t.Fatal("the run is not paused")
	}
	s.apply(Terminate{At: s.now, By: "me"})
	if s.state.Paused() || s.state.View().Paused {
		t.Errorf("the run is %s and paused", s.state.Status())
	}
}

// TestC6_OtherVersionWithFewerCases: what took a case that a version has no longer
// cannot be taken over; the last case that it has can.
func TestC6_OtherVersionWithFewerCases(t *testing.T) {
	const doc = `{"name":"t","version":"%d","steps":[{"id":"s","switch":[%s]},{"id":"c","agent":"x"}]}`
	cases := []string{
		`{"when":"false","steps":[{"id":"n","set":1}]}`, `{"when":"true","steps":[{"id":"m","set":2}]}`, `{"when":"true","steps":[{"id":"o","set":3}]}`,
	}
	s := play(t, fmt.Sprintf(doc, 1, strings.Join(cases, ",")))
	s.answer("c", `3`)
	for kept, want := range map[int]string{1: "s has no case 1", 2: "", 3: ""} {
		def, problems := Parse(ParseOptions{}, fmt.Appendf(nil, doc, 2, strings.Join(cases[:kept], ",")))
		if def == nil {
			t.Fatal(problems)
		}
		_, err := s.state.Rerun(def, "c", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with %d cases: %v", kept, err)
		}
	}
}

// TestC8_EmitIsRefused: an event that cannot be published fails its step, with the
// reason, and is not published.
func TestC8_EmitIsRefused(t *testing.T) {
	for spec, want := range map[string]struct {
		code  parley.Code
		words string
	}{
		`{"event":"paid"}`: {},
		`{"event":"paid","id":"${workflow.input.absent}"}`:       {parley.CodeExpression, "absent"},
		`{"event":"paid","id":"${''}"}`:                          {parley.CodeInvalidInput, "not empty"},
		`{"event":"paid","data":"${workflow.input.absent}"}`:     {parley.CodeExpression, "absent"},
		`{"event":"paid","key":"full"}`:                          {parley.CodeLimit, "waiting events"},
		`{"event":"paid","key":"full","id":"e1","data":{"n":1}}`: {parley.CodeLimit, "waiting events"},
	} {
		s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"},{"id":"e","emit":`+spec+`}]}`)
		s.state.SignalsFull("paid", "full")
		s.answer("a", `1`)
		if want.code == "" {
			if s.state.Status() != parley.RunCompleted || len(s.last.Emit) != 1 || s.last.Emit[0].ID != "run-1.e" {
				t.Errorf("%s: the run is %s, %+v is published", spec, s.state.Status(), s.last.Emit)
			}
			continue
		}
		s.wantCode(want.code)
		if !strings.Contains(s.state.Err().Message, want.words) || len(s.last.Emit) > 0 {
			t.Errorf("%s: %v, %+v is published", spec, s.state.Err(), s.last.Emit)
		}
	}
}

// TestC9_WhoMayAnswer: roles and users are named on one line each, at most a hundred.
func TestC9_WhoMayAnswer(t *testing.T) {
	names := func(n int) string {
		b, err := json.Marshal(slices.Repeat([]string{"ann"}, n))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for to, want := range map[string]parley.Code{
		names(100): "", names(101): parley.CodeLimit, `["any"]`: "", `"any"`: "", `[]`: parley.CodeInvalidInput, `null`: parley.CodeInvalidInput, `[1]`: parley.CodeInvalidInput, `[""]`: parley.CodeInvalidInput,
		`["a\nb"]`: parley.CodeInvalidInput, `["` + strings.Repeat("a", 255) + `"]`: "", `["` + strings.Repeat("a", 256) + `"]`: parley.CodeInvalidInput,
	} {
		s := playWith(t, `{"name":"t","steps":[{"id":"a","approval":{"title":"Go?","to":"${workflow.input.to}"}}]}`, Start{Input: json.RawMessage(`{"to":` + to + `}`)})
		code := parley.Code("")
		if e := s.state.Err(); e != nil {
			code = e.Code
		}
		if code != want {
			t.Errorf("to %.40s (%d bytes): %v, want %q", to, len(to), s.state.Err(), want)
		}
	}
}

// TestC9_WhatWasSaid: a rejection names who rejected, and the reason if one was given;
// what was filled in stands in the answer as it was written.
func TestC9_WhatWasSaid(t *testing.T) {
	const doc = `{"name":"t","steps":[{"id":"a","approval":{"title":"Go?","min":2,"form":{"type":"object","properties":{"n":{"type":"number"}}}}}]}`
	for comment, want := range map[string]string{"": "Rejected by ann", "too dear": "Rejected by ann: too dear"} {
		s := play(t, doc)
		if form := s.step("a").Approval.Form; !strings.Contains(string(form), `"properties"`) {
			t.Fatalf("the form is %s", form)
		}
		s.apply(Voted{At: s.now, Vote: Vote{Step: "a", Choice: "reject", By: "ann", Comment: comment}})
		if got := s.state.Err().Message; got != want {
			t.Errorf("with the comment %q the error is %q", comment, got)
		}
	}
	s := play(t, doc)
	s.apply(Voted{At: s.now, Vote: Vote{Step: "a", Choice: "approve", By: "ann", Data: json.RawMessage(`{"n": 1.50}`)}})
	if answers := s.step("a").Approval.Answers; len(answers) != 1 || string(answers[0].Data) != `{"n":1.50}` {
		t.Errorf("answers %+v", answers)
	}
}

// TestC9_AnAnswerThatIsTooLong: an answer that a value, or all of the run, has no room for
// is refused, and the step waits on for a shorter one.
func TestC9_AnAnswerThatIsTooLong(t *testing.T) {
	for _, limit := range []func(*RunLimits){func(l *RunLimits) { l.Value = 200 }, func(l *RunLimits) { l.RunValues = 2000 }} {
		s := play(t, `{"name":"t","steps":[{"id":"a","approval":{"title":"Go?","min":2}}]}`)
		limit(&s.state.limits)
		refused := 0
		for n := 2000; s.state.Status() == parley.RunRunning; n-- {
			if n < 0 { // each one that was taken has left less room
				t.Fatal("no answer is short enough")
			}
			v := Vote{Step: "a", Choice: "approve", By: fmt.Sprint("by", n), Comment: strings.Repeat("\"", n/3), Data: json.RawMessage(`"` + strings.Repeat("<", n/4) + `"`)}
			err := s.state.MayVote(v)
			if err != nil && (err.Code != parley.CodeLimit || !strings.Contains(err.Message, "answer: ") && !strings.Contains(err.Message, "all values")) {
				t.Fatal(err)
			}
			if err != nil {
				refused++
			}
			s.apply(Voted{At: s.now, Vote: v})
		}
		if s.state.Status() != parley.RunCompleted || refused < 10 {
			t.Errorf("the run is %s, %v, after %d refusals", s.state.Status(), s.state.Err(), refused)
		}
	}
}

// TestS7_ToleranceSaysHowMany: the error of a loop in which too much failed has the
// numbers, none of them negative.
func TestS7_ToleranceSaysHowMany(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"l","for_each":[1,2],"enough":3,"steps":[{"id":"a","agent":"x","retry":{"attempts":1}}]}]}`)
	if s.state.Status() == parley.RunRunning {
		s.fail("l[0]/a", parley.CodeAgentError)
	}
	if got := string(s.state.Err().Details); !strings.Contains(got, `"tolerated":0`) {
		t.Errorf("%v with details %s", s.state.Err(), got)
	}
}

// TestC3_LoopsDoNotDecideWhenCancelled: an iteration that fails while its run is
// cancelled does not fail the loop: loop and run are cancelled.
func TestC3_LoopsDoNotDecideWhenCancelled(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"l","for_each":[1,2,3],"max_parallel":2,"steps":[{"id":"a","agent":"x","retry":{"attempts":1}}]}]}`)
	s.apply(Cancel{At: s.now, Grace: time.Minute})
	s.fail("l[0]/a", parley.CodeAgentError).answer("l[1]/a", `1`)
	if got := s.step("l").Status; s.state.Status() != parley.RunCancelled || got != parley.StepCancelled {
		t.Errorf("the run is %s, the loop %s", s.state.Status(), got)
	}
}

// TestEventsHaveTheirTime: what a fact leads to has the time of the fact.
func TestEventsHaveTheirTime(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"}]}`)
	s.now = s.now.Add(time.Second)
	s.ask("a", "which?", 1)
	s.now = s.now.Add(time.Second)
	s.reply("a", "this")
	if len(s.last.Events) != 1 || !s.last.Events[0].At.Equal(s.now) {
		t.Errorf("events %+v, want one at %s", s.last.Events, s.now)
	}
}

// TestOutputIsBounded: an output of the workflow that is larger than a value may be
// fails the run.
func TestOutputIsBounded(t *testing.T) {
	def := testParse(t, "name: t\nsteps: [{id: a, set: '${workflow.input.s}'}]\noutput: '${a.output + a.output}'\n")
	limits := DefaultRunLimits()
	limits.Value = 100
	for n, want := range map[int]parley.RunStatus{40: parley.RunCompleted, 60: parley.RunFailed} {
		state := NewState("run-1", def, limits)
		state.Apply(Start{At: time.Unix(0, 0).UTC(), Input: json.RawMessage(`{"s":"` + strings.Repeat("x", n) + `"}`)})
		if e := state.Err(); state.Status() != want || want == parley.RunFailed && e.Code != parley.CodeLimit {
			t.Errorf("twice %d bytes: %s, %v", n, state.Status(), e)
		}
	}
}

// TestLimits_ValuesAboveTheDefault: where more than 8 MiB are allowed, they go from step
// to step, whole, in parts and read from an agent's text.
func TestLimits_ValuesAboveTheDefault(t *testing.T) {
	const large = 9 << 20
	def := testParse(t, `{"name":"t","steps":[{"id":"a","set":"${workflow.input}"},{"id":"b","set":{"in":"${a.output.s}"}},
		{"id":"c","agent":"x","input":"${b.output}","parse":"json"}]}`)
	limits := DefaultRunLimits()
	limits.Value = 2 * large
	s := &script{t: t, state: NewState("run-1", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
	s.apply(Start{At: s.now, Input: json.RawMessage(`{"s":"` + strings.Repeat("x", large) + `"}`)})
	s.answer("c", `{"text":"[\"`+strings.Repeat("y", large)+`\"]"}`)
	if e := s.state.Err(); s.state.Status() != parley.RunCompleted {
		t.Errorf("the run is %s: %v", s.state.Status(), e)
	}
}

// TestLimits_NothingGoesOnWithTooManyExecutions: whatever makes up for the failure of a
// step, the limit of executions ends the run.
func TestLimits_NothingGoesOnWithTooManyExecutions(t *testing.T) {
	handled := `{"set":1,"on_error":"continue"},{"set":2,"on_error":{"output":1}}`
	for name, steps := range map[string]string{
		"handlers":       `{"for_each":"${workflow.input}","steps":[` + handled + `]}`,
		"item_errors":    `{"for_each":"${workflow.input}","item_errors":"continue","steps":[{"for_each":"${workflow.input}","item_errors":"collect","steps":[{"set":1}]}]}`,
		"side by side":   `{"for_each":"${workflow.input}","max_parallel":100,"tolerate":1000,"steps":[{"for_each":"${workflow.input}","item_errors":"continue","steps":[{"set":1}]}]}`,
		"retries":        `{"for_each":"${workflow.input}","retry":{"attempts":100,"delay":"0s","on":["limit"]},"steps":[{"set":1}]},{"set":1}`,
		"a step outside": `{"steps":[{"for_each":"${workflow.input}","steps":[{"set":1}]}],"on_error":"continue"},` + handled,
	} {
		def, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[`+steps+`]}`))
		if def == nil {
			t.Fatal(name, problems)
		}
		limits := DefaultRunLimits()
		limits.Executions = 50
		s := &script{t: t, state: NewState("r", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
		s.apply(Start{At: s.now, Input: json.RawMessage(`[` + strings.Repeat("1,", 99) + `1]`)})
		for range 5 {
			s.after(time.Second)
		}
		if e := s.state.Err(); e == nil || e.Code != parley.CodeLimit || !strings.Contains(string(e.Details), `"executions"`) || len(s.state.order) > 55 {
			t.Errorf("%s: %d executions, %s, %v", name, len(s.state.order), s.state.Status(), e)
		}
	}
}

// TestLimits_LongPaths: a step deep in the graph form whose path no database can keep fails,
// and says why; one that stands less deep does not.
func TestLimits_LongPaths(t *testing.T) {
	id := func(r rune, n int) string { return strings.Repeat(string(r), n) }
	loop := func(id, body string) string {
		return `"` + id + `":{"id":"` + id + `","type":"loop","loop_config":{"collection":"${workflow.input.x}","loop_body":["` + body + `"]},"next_step":null}`
	}
	for length, fits := range map[int]bool{210: true, 255: false} {
		a, b, c := id('木', length), id('火', length), id('水', length)
		d := id('土', length)
		def := testParse(t, `{"name":"t","version":"1","start_step":"`+a+`","steps":{`+loop(a, b)+`,`+loop(b, c)+`,`+loop(c, d)+`,
			"`+d+`":{"id":"`+d+`","type":"agent","agent_name":"x","input_mapping":{},"next_step":null}}}`)
		s := &script{t: t, state: NewState("run-1", def, DefaultRunLimits()), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
		s.apply(Start{At: s.now, Input: json.RawMessage(`{"x":[1]}`)})
		if path := a + "[0]/" + b + "[0]/" + c + "[0]/" + d; fits {
			s.wantCalls(path)
			continue
		}
		s.wantCode(parley.CodeLimit)
		if e := s.state.Err(); !strings.Contains(e.Message, "path of a step: 3072 bytes, the limit is 2645") {
			t.Errorf("%v", e)
		}
	}
}

// TestC1_WhatUndoesARunHasExecutionsOfItsOwn: a run that fails by the limit of executions
// is compensated, and does what is to be done in any case; that is bounded too.
func TestC1_WhatUndoesARunHasExecutionsOfItsOwn(t *testing.T) {
	def := testParse(t, `{"name":"t","steps":[{"id":"a","set":1,"compensate":{"id":"u","agent":"x"}},{"for_each":"${workflow.input}","steps":[{"set":1}]}],
		"finally":[{"id":"f","agent":"x"},{"id":"l","for_each":"${workflow.input}","item_errors":"continue","steps":[{"set":1}]}]}`)
	limits := DefaultRunLimits()
	limits.Executions = 5
	s := &script{t: t, state: NewState("run-1", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
	s.apply(Start{At: s.now, Input: json.RawMessage(`[1,2,3,4,5,6,7,8,9]`)})
	s.wantCalls("a/u")
	s.fail("a/u", parley.CodeAgentError) // and is tried again
	s.answer("a/u", `1`).wantCalls("f")
	s.answer("f", `1`).wantCode(parley.CodeLimit)
	if text := string(s.state.Err().Details); strings.Contains(text, "compensation_failed") || !strings.Contains(text, `"finally_failed":{"code":"limit"`) || len(s.state.order) > 15 {
		t.Errorf("%d executions, the error says %s", len(s.state.order), text)
	}
}

// TestC1_WhatUndoesARunHasRoomForValuesOfItsOwn: a run that fails by the limit of all its
// values is compensated, and does what is to be done in any case; that is bounded too.
func TestC1_WhatUndoesARunHasRoomForValuesOfItsOwn(t *testing.T) {
	def := testParse(t, `{"name":"t","steps":[{"id":"a","set":"12345678","compensate":{"id":"u","agent":"x","input":"${workflow.input}"}},{"set":"12345678"}],
		"finally":[{"id":"f","agent":"x","input":"${workflow.input}"},{"id":"l","set":"12345678"}]}`)
	limits := DefaultRunLimits()
	limits.RunValues = 39
	s := &script{t: t, state: NewState("run-1", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
	s.apply(Start{At: s.now, Input: json.RawMessage(`"1234567890123456789012345"`)})
	s.wantCalls("a/u")
	s.answer("a/u", `"123456789"`).wantCalls("f")
	s.answer("f", `"1"`).wantCode(parley.CodeLimit)
	if text := string(s.state.Err().Details); strings.Contains(text, "compensation_failed") || !strings.Contains(text, `"finally_failed":{"code":"limit"`) {
		t.Errorf("the error says %s", text)
	}
}

// TestS7_PercentagesAreExact: as many iterations may fail as the percentage says, also
// where the machine's numbers come to a little less; and it is a number.
func TestS7_PercentagesAreExact(t *testing.T) {
	for _, c := range []struct {
		percent string
		n, may  int
	}{{"64.6%", 500, 323}, {"32.3%", 1000, 323}, {"10%", 30, 3}, {"33.3333%", 3, 0}, {"0.1%", 1000, 1}, {"100%", 1000, 1000}, {"99.99%", 1000, 999}} {
		def := testParse(t, `{"name":"t","steps":[{"id":"l","for_each":"${workflow.input}","tolerate":"`+c.percent+`","steps":[{"set":1}]}]}`)
		bound := def.Steps["l"].Loop.Tolerate.of(c.n)
		if float64(c.may) > bound || float64(c.may+1) <= bound {
			t.Errorf("%s of %d: %v may fail, not %d", c.percent, c.n, bound, c.may)
		}
	}
	if def, _ := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"for_each":[1],"tolerate":"NaN%","steps":[{"set":1}]}]}`)); def != nil {
		t.Error("NaN% was accepted")
	}
}

// TestC8_AnIDIsThatOfAnotherEventAfterADay: a run that waits again takes it, though it has
// taken one of that id before.
func TestC8_AnIDIsThatOfAnotherEventAfterADay(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"w","repeat":{"max":3},"steps":[{"id":"e","event":"daily"}]}]}`)
	s.sameAsReplayed()
	for _, c := range []struct {
		later time.Duration
		waits string
	}{{0, "w[1]/e"}, {24 * time.Hour, "w[1]/e"}, {time.Microsecond, "w[2]/e"}} {
		s.now = s.now.Add(c.later)
		s.apply(Signalled{At: s.now, Signal: parley.Signal{ID: "report", Name: "daily", Data: json.RawMessage(`1`), Time: s.now}})
		s.sameAsReplayed()
		if got := s.state.Awaited(); len(got) != 1 || got[0].Step != c.waits {
			t.Errorf("an event of that id at %s: %+v wait, want %s", s.now.Format(time.TimeOnly), got, c.waits)
		}
	}
}
