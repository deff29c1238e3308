package workflow

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

func (s *script) ask(path, text string, news int) *script {
	s.t.Helper()
	f := Asked{At: s.now, TaskID: s.task(path).Task.ID, News: news, AgentTaskID: "at-1"}
	if text != "" {
		f.Question = &parley.Question{Kind: parley.QuestionInput, Text: text, Parts: json.RawMessage(`[ {"a": "<1>"} ]`)}
	}
	s.apply(f)
	return s
}

func (s *script) reply(path, text string) *script {
	s.t.Helper()
	s.apply(Replied{At: s.now, TaskID: s.task(path).Task.ID, Reply: parley.Reply{Text: text, Data: json.RawMessage(`{"n": 1.10}`), By: "ann"}})
	return s
}

// replayed gives the state that the events make, which has to be the same.
func (s *script) replayed(events []parley.Event) {
	s.t.Helper()
	again := NewState("run-1", s.state.def, DefaultRunLimits())
	for _, e := range events {
		if err := again.Replay(e); err != nil {
			s.t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(s.state, again) {
		s.t.Fatalf("replay gives another state:\n%s\n%s", describe(s.state), describe(again))
	}
}

const twoSteps = `
name: w
steps:
  - {id: a, agent: x, retry: {attempts: 2, delay: 1s}, timeout: 1h}
  - {id: b, agent: x}
`

// together plays two steps at the same time.
func together(t *testing.T) *script {
	t.Helper()
	def := testParse(t, twoSteps)
	def.Body.Steps[1].Needs = nil
	s := &script{
		t: t, state: NewState("run-1", def, DefaultRunLimits()), open: make(map[string]Schedule),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	s.apply(Start{At: s.now, Input: json.RawMessage(`{"x":1}`)})
	return s
}

// TestWaits_QuestionAndAnswer: a question is a phase of the step that anybody
// can see and answer, and the answer leads back to work.
func TestWaits_QuestionAndAnswer(t *testing.T) {
	s := together(t)
	var events []parley.Event
	do := func(f func()) {
		t.Helper()
		f()
		events = append(events, s.last.Events...)
		s.replayed(events)
	}
	do(func() {})
	do(func() { s.ask("a", "Which city?", 1) })
	v := s.step("a")
	if v.Phase != parley.PhaseInputRequired || v.Question == nil || v.Question.Text != "Which city?" || string(v.Question.Parts) != `[{"a":"\u003c1\u003e"}]` {
		t.Fatalf("step %+v, question %+v", v, v.Question)
	}
	if w := s.state.Waiting(); len(w) != 1 || w[0].Step != "a" || w[0].TaskID != "run-1.a.1" {
		t.Fatalf("waiting: %+v", w)
	}
	if text, ok := s.state.StepState("a"); !ok || text != "RUNNING (input_required)" {
		t.Errorf("state %q", text)
	}
	if got := string(s.last.Events[0].Data); got != `{"question":{"kind":"input","text":"Which city?","parts":[{"a":"\u003c1\u003e"}]},"task_id":"run-1.a.1","agent_task_id":"at-1","news":1}` {
		t.Error(got)
	}
	do(func() { s.ask("a", "Which city?", 1) }) // the same again is no news
	do(func() { s.reply("b", "nobody asked") })
	if len(s.last.Events) > 0 {
		t.Fatalf("an answer to nothing gave %v", s.last.Events)
	}
	do(func() { s.reply("a", "Köln") })
	if got := string(s.last.Events[0].Data); got != `{"task_id":"run-1.a.1","reply":{"text":"Köln","data":{"n":1.10}},"by":"ann"}` {
		t.Error(got)
	}
	if v := s.step("a"); v.Phase == parley.PhaseInputRequired || v.Question != nil || len(s.state.Waiting()) > 0 {
		t.Fatalf("step %+v", v)
	}
	do(func() { s.reply("a", "again") })
	do(func() { s.ask("a", "", 2) }) // the agent goes on, as the run knows
	if len(s.last.Events) > 0 {
		t.Fatalf("gave %v", s.last.Events)
	}
	do(func() { s.ask("a", "When?", 3) })
	do(func() { s.ask("a", "Who?", 4) })
	if v := s.step("a"); v.Question.Text != "Who?" {
		t.Fatalf("question %+v", v.Question)
	}
	do(func() { s.ask("a", "", 5) })
	if got := string(s.last.Events[0].Data); got != `{"task_id":"run-1.a.1","resolved":"agent","news":5}` {
		t.Error(got)
	}
	do(func() { s.ask("a", "late?", 4) })
	do(func() { s.ask("a", "late?", 5) })
	s.answer("a", `1`).answer("b", `2`).want(parley.RunCompleted,
		"run.started", "scheduled a", "scheduled b", "waiting a", "answered a", "waiting a", "waiting a", "answered a",
		"completed a", "completed b", "run.completed")
	s.apply(Asked{At: s.now, TaskID: "run-1.a.1", Question: &parley.Question{Kind: "input"}, News: 9})
	s.apply(Replied{At: s.now, TaskID: "run-1.a.1"})
	if len(s.last.Events) > 0 {
		t.Fatalf("after the end: %v", s.last.Events)
	}
}

// TestWaits_AuthAnswersAreWithheld: what is typed to get an agent in may be a
// secret, so that the history only says that it was.
func TestWaits_AuthAnswersAreWithheld(t *testing.T) {
	s := together(t)
	s.apply(Asked{At: s.now, TaskID: "run-1.a.1", Question: &parley.Question{Kind: parley.QuestionAuth, Text: "Log in"}, News: 1})
	s.reply("a", "hunter2")
	if got := string(s.last.Events[0].Data); got != `{"task_id":"run-1.a.1","reply":{"withheld":true},"by":"ann"}` {
		t.Error(got)
	}
}

// TestWaits_NextAttemptAsksAnew: a question belongs to its attempt, and so do
// the numbers of its changes.
func TestWaits_NextAttemptAsksAnew(t *testing.T) {
	s := together(t).ask("a", "one?", 7).fail("a", parley.CodeAgentError)
	if v := s.step("a"); v.Phase != parley.PhaseBackoff || v.Question != nil {
		t.Fatalf("step %+v", v)
	}
	s.after(2*time.Second).ask("a", "two?", 1)
	if w := s.state.Waiting(); len(w) != 1 || w[0].TaskID != "run-1.a.2" || w[0].Question.Text != "two?" {
		t.Fatalf("waiting %+v", w)
	}
}

// TestT2_TimeoutRunsOnWhileWaiting: nobody has to answer, but the step ends all
// the same.
func TestT2_TimeoutRunsOnWhileWaiting(t *testing.T) {
	s := together(t).ask("a", "one?", 1)
	if due := s.state.Due(); !due.Equal(s.now.Add(time.Hour)) {
		t.Fatalf("due %v", due)
	}
	s.after(time.Hour)
	if v := s.step("a"); v.Status != parley.StepFailed || v.Error.Code != parley.CodeTimeout || v.Question != nil {
		t.Fatalf("step %+v", v)
	}
}

// TestC3_ACancelledRunAsksNobody: a question that comes while a run is being
// cancelled is not recorded, one that stands is not shown any more.
func TestC3_ACancelledRunAsksNobody(t *testing.T) {
	s := together(t).ask("a", "one?", 1)
	s.apply(Cancel{At: s.now, By: "me", Grace: time.Minute})
	s.reply("a", "too late")
	s.ask("b", "two?", 1)
	for _, id := range []string{"a", "b"} {
		if v := s.step(id); v.Phase != parley.PhaseCancelling || v.Question != nil {
			t.Errorf("step %+v", v)
		}
	}
	if len(s.state.Waiting()) > 0 {
		t.Error("somebody is asked")
	}
	s.after(2 * time.Minute)
	s.want(parley.RunCancelled, "run.started", "scheduled a", "scheduled b", "waiting a", "run.cancelling", "cancelled a", "cancelled b", "run.cancelled")
}

// TestLimits_Questions: an agent cannot ask for ever, nor fill the run with what
// it asks.
func TestLimits_Questions(t *testing.T) {
	for name, limits := range map[string]func(*RunLimits){
		"questions":           func(l *RunLimits) { l.Questions = 2 },
		"all values of a run": func(l *RunLimits) { l.RunValues = 1024 },
	} {
		s := together(t)
		limits(&s.state.limits)
		for i := 1; i < 20 && s.state.Status() == parley.RunRunning; i++ {
			s.ask("a", strings.Repeat("?", 200), i)
		}
		v := s.step("a")
		if v.Status != parley.StepFailed || v.Error.Code != parley.CodeLimit || !strings.Contains(v.Error.Message, name) {
			t.Errorf("%s: step %+v, error %v", name, v, v.Error)
		}
		if !slices.ContainsFunc(s.last.Close, func(c Close) bool { return c.TaskID == "run-1.a.1" && c.Outcome == parley.OutcomeCancelled }) {
			t.Errorf("%s: the attempt is not closed: %v", name, s.last.Close)
		}
	}
}

// TestLimits_AnswersCount: what people answer is a part of all values of the run.
func TestLimits_AnswersCount(t *testing.T) {
	s := together(t)
	s.ask("a", "?", 1)
	before := s.state.bytes
	s.reply("a", "yes")
	if grown, want := s.state.bytes-before, int64(len(`yes`+`{"n":1.10}`)); grown != want {
		t.Errorf("the values grew by %d bytes, want %d", grown, want)
	}
}

// TestProgress: what an agent tells has a number in the history and no effect;
// it is not recorded of what has ended, nor beyond the limits.
func TestProgress(t *testing.T) {
	bytes := together(t)
	bytes.state.limits.ProgressBytes = 10
	for _, want := range []parley.EventType{parley.EventStepChunk, parley.EventRunWarning} {
		e, ok := bytes.state.Progress(bytes.now, parley.EventStepChunk, "run-1.a.1", json.RawMessage(`"123456"`))
		if !ok || e.Type != want {
			t.Fatalf("%v: %+v, want %s", ok, e, want)
		}
	}

	s := together(t)
	events := slices.Clone(s.last.Events)
	s.state.limits.Progress, s.state.limits.ProgressBytes = 3, 64
	tell := func(typ parley.EventType, task, data string) bool {
		e, ok := s.state.Progress(s.now, typ, task, json.RawMessage(data))
		if ok {
			if e.Seq != int64(len(events))+1 || e.Step != "a" || e.Attempt != 1 || e.Run != "run-1" {
				t.Fatalf("event %+v", e)
			}
			events = append(events, e)
		}
		return ok
	}
	if !tell(parley.EventStepAccepted, "run-1.a.1", `{}`) || !tell(parley.EventStepChunk, "run-1.a.1", `{"text":"x"}`) {
		t.Fatal("not recorded")
	}
	if tell(parley.EventStepCompleted, "run-1.a.1", `{}`) || tell(parley.EventStepProgress, "run-1.a.2", `{}`) || tell("run.warning", "run-1.a.1", `{}`) {
		t.Fatal("recorded")
	}
	if !tell(parley.EventStepProgress, "run-1.a.1", `{}`) {
		t.Fatal("not recorded")
	}
	warning, ok := s.state.Progress(s.now, parley.EventStepChunk, "run-1.a.1", json.RawMessage(`{}`))
	if !ok || warning.Type != parley.EventRunWarning || warning.Step != "" ||
		string(warning.Data) != `{"message":"No more progress of the run's agents is recorded: the limit is 3 events and 64 bytes","code":"limit","limit":"progress"}` {
		t.Fatalf("%v: %+v %s", ok, warning, warning.Data)
	}
	events = append(events, warning)
	s.state.limits = DefaultRunLimits()
	if tell(parley.EventStepProgress, "run-1.a.1", `{}`) {
		t.Fatal("recorded after the warning")
	}
	s.replayed(events)
	if s.state.Seq() != int64(len(events)) {
		t.Errorf("seq %d", s.state.Seq())
	}
	s.answer("a", `1`)
	if tell(parley.EventStepProgress, "run-1.a.1", `{}`) {
		t.Error("recorded after the step's end")
	}
}

// converse asks and answers at random, at times what is late or repeated.
func (d *driver) converse(ids []string) {
	id := rapid.SampledFrom(append(d.answered, ids...)).Draw(d.t, "asked task")
	if rapid.IntRange(0, 2).Draw(d.t, "reply") == 0 {
		d.apply(Replied{At: d.now, TaskID: id, Reply: parley.Reply{Text: "yes <\xff>", Data: json.RawMessage(`{"n": 12345678901234567890}`), By: "me"}})
		return
	}
	f := Asked{At: d.now, TaskID: id, News: rapid.IntRange(1, 6).Draw(d.t, "news")}
	switch rapid.IntRange(0, 3).Draw(d.t, "question") {
	case 0:
	case 1:
		f.Question = &parley.Question{Kind: parley.QuestionAuth, Text: "log in\x00\xfe"}
	default:
		f.Question = &parley.Question{Kind: parley.QuestionInput, Text: "which <one>?", Parts: json.RawMessage(`[ 1.0, "<>" ]`)}
	}
	d.apply(f)
}

// TestC9_AnEmptyListOfApproversIsNobody: whoever computes who may answer, and finds nobody,
// has not said that everybody may.
func TestC9_AnEmptyListOfApproversIsNobody(t *testing.T) {
	for _, approval := range []string{
		`{title: Pay, to: "${workflow.input.x > 0 ? [] : ['ann']}"}`,
		`{title: Pay, to: [ann], escalate: [{after: 1m, to: "${['boss'].filter(b, b == 'none')}"}]}`,
	} {
		s := play(t, "name: t\nsteps: [{id: ask, timeout: 1h, approval: "+approval+"}]\n")
		s.wantCode(parley.CodeInvalidInput)
		if asked := s.state.Asked(); len(asked) > 0 {
			t.Errorf("%s asks %v", approval, asked)
		}
	}
}
