package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// TestC6_SessionsGoOn: a step that is run again goes on with the conversation that
// a copied one left behind (rule P1).
func TestC6_SessionsGoOn(t *testing.T) {
	const doc = `{"name":"t","steps":[{"id":"a","agent":"one","session":"talk"},{"id":"b","agent":"one","session":"talk"}]}`
	s := play(t, doc)
	s.apply(Settled{At: s.now, TaskID: "run-1.a.1", Result: parley.Result{
		TaskID: "run-1.a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`), ContextID: "ctx-1",
	}})
	s.fail("b", parley.CodeAgentRejected)
	for range 2 { // also if it is run again once more
		s.again(Rerun{Copied: s.state.Copies()}, "")
		if got := s.task("b").Task.ContextID; got != "ctx-1" {
			t.Errorf("b is called in the conversation %q", got)
		}
		s.fail("b", parley.CodeAgentRejected)
	}
}

// TestC6_OtherVersion: a version that lacks what is to be copied is refused, with
// the names; what does not depend on the step in either of them is copied.
func TestC6_OtherVersion(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"},{"id":"g","steps":[{"id":"b","agent":"x"}]},
		{"id":"d","if":"true","then":[{"id":"n","set":1}],"else":[{"id":"m","set":2}]},{"id":"c","agent":"x"}]}`)
	s.answer("a", `1`).answer("g/b", `2`).answer("c", `3`)
	version := func(steps string) *Definition {
		def, problems := Parse(ParseOptions{Version: "2"}, []byte(`{"name":"t","version":"2","steps":[`+steps+`]}`))
		if def == nil {
			t.Fatal(problems)
		}
		return def
	}
	for name, c := range map[string]struct {
		steps, from string
		wrong       []string
		copied      []string
	}{
		"the same":      {`{"id":"a","agent":"y"},{"id":"g","steps":[{"id":"b","agent":"y"}]},{"id":"d","if":"true","then":[{"id":"n","set":1}]},{"id":"c","set":4}`, "c", nil, []string{"a", "g", "g/b", "d", "d/n"}},
		"another kind":  {`{"id":"a","set":1},{"id":"g","steps":[{"id":"b","agent":"y"}]},{"id":"d","if":"true","then":[{"id":"n","set":1}]},{"id":"c","agent":"x"}`, "c", []string{"a is of kind set, not agent"}, nil},
		"missing":       {`{"id":"a","agent":"x"},{"id":"c","agent":"x"}`, "c", []string{"g is missing", "g/b is missing", "d is missing", "d/n is missing"}, nil},
		"elsewhere":     {`{"id":"a","agent":"x"},{"id":"b","agent":"x"},{"id":"g","steps":[{"id":"h","agent":"x"}]},{"id":"d","if":"true","then":[{"id":"n","set":1}]},{"id":"c","agent":"x"}`, "c", []string{"g/b stands elsewhere, as b"}, nil},
		"new dependent": {`{"id":"g","steps":[{"id":"b","agent":"x"}]},{"id":"a","agent":"x"},{"id":"c","agent":"x"}`, "g", nil, []string{}},
		"old dependent": {`{"id":"a","agent":"x"},{"id":"c","agent":"x","needs":[]}`, "a", nil, []string{}},
	} {
		r, err := s.state.Rerun(version(c.steps), c.from, nil)
		var got []string
		if e := asParley(err); e != nil {
			var d struct {
				Steps []string `json:"steps"`
			}
			if json.Unmarshal(e.Details, &d) != nil || e.Code != parley.CodeConflict || !strings.Contains(e.Message, "Version 2 cannot take over what run run-1 has done: "+d.Steps[0]) {
				t.Errorf("%s: %v", name, err)
			}
			got = d.Steps
		}
		if diff := cmp.Diff(c.wrong, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if c.wrong != nil {
			continue
		}
		paths := []string{}
		for _, x := range r.Copied {
			paths = append(paths, x.Path)
		}
		if diff := cmp.Diff(c.copied, paths); diff != "" {
			t.Errorf("%s: copied (-want +got):\n%s", name, diff)
		}
	}
}

func asParley(err error) *parley.Error {
	if err == nil {
		return nil
	}
	return asError(err)
}

// TestC6_SkippedAroundIt: a run cannot be begun again inside of what it has skipped.
func TestC6_SkippedAroundIt(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"g","if":"false","steps":[{"id":"b","agent":"x"}]},{"id":"c","agent":"x"}]}`)
	s.answer("c", `1`)
	_, err := s.state.Rerun(s.state.Definition(), "b", nil)
	if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "has skipped g") {
		t.Errorf("error %v", err)
	}
}

// TestC6_EditsCount: an edited input is bounded as any other value, and shows.
func TestC6_EditsCount(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"}]}`)
	limits := DefaultRunLimits()
	limits.Value = 10
	state := NewState("run-2", s.state.Definition(), limits)
	state.Apply(Start{At: time.Unix(0, 0).UTC(), Input: json.RawMessage(`{}`), RerunFrom: "a", Edits: []Edit{{"a", json.RawMessage(`"0123456789"`)}}})
	if e := state.Err(); e == nil || e.Code != parley.CodeLimit {
		t.Errorf("error %v", e)
	}
	if state.RerunFrom() != "a" || len(state.Edits()) != 1 {
		t.Errorf("begun at %q with %v", state.RerunFrom(), state.Edits())
	}
}

// TestC6_CopiesTakeNoPlace: a step that was copied or is skipped does not run, so that
// the limit of steps that run beside each other is no reason for it to fail.
func TestC6_CopiesTakeNoPlace(t *testing.T) {
	const doc = `{"name":"t","steps":[{"id":"a","agent":"x","needs":[]},{"id":"b","agent":"x","needs":[]},{"id":"no","agent":"x","if":"false","needs":[]},
		{"id":"g","needs":[],"steps":[{"id":"c","agent":"x"}]}%s]}`
	old := play(t, fmt.Sprintf(doc, ""))
	old.answer("b", `2`).answer("g/c", `3`).fail("a", parley.CodeAgentRejected)
	limits := DefaultRunLimits()
	limits.Running = 1
	for more, want := range map[string]parley.RunStatus{"": parley.RunRunning, `,{"id":"d","agent":"x","needs":[]}`: parley.RunFailed} {
		s := play(t, fmt.Sprintf(doc, more))
		s.state, s.open, s.types = NewState("run-2", s.state.Definition(), limits), make(map[string]Schedule), nil
		s.apply(Start{At: s.now, Input: json.RawMessage(`{"x":1}`), RetriedFrom: "run-1", Copied: old.state.Copies()})
		if s.state.Status() != want {
			t.Errorf("with %q the run is %s: %v", more, s.state.Status(), s.state.Err())
		}
		if e := s.state.Err(); want == parley.RunFailed && (e == nil || e.Code != parley.CodeLimit) {
			t.Errorf("a step that begins beside another one: %v", e)
		}
		if want == parley.RunRunning {
			s.answer("a", `1`).output(`3`)
		}
	}
}

// TestC6_EditsOfBefore: an edited input stays that of a step which does not depend on
// the one that a later rerun begins at, and is evaluated anew for others.
func TestC6_EditsOfBefore(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x","needs":[]},{"id":"b","agent":"x","needs":[]},{"id":"c","agent":"x","needs":["a"]}]}`)
	edits := []Edit{{"b", json.RawMessage(`"edited"`)}, {"c", json.RawMessage(`"too"`)}}
	s.again(Rerun{Edits: edits}, "")
	s.answer("a", `1`).fail("b", parley.CodeAgentRejected)
	for from, want := range map[string][]Edit{"a": edits[:1], "b": edits[1:], "c": edits[:1]} {
		r, err := s.state.Rerun(s.state.Definition(), from, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Edits); diff != "" {
			t.Errorf("from %s (-want +got):\n%s", from, diff)
		}
	}
}

// TestC6_StepsOfPlansAreOthers: what a rerun says of a step of the workflow goes for
// none of a plan that has the same id.
func TestC6_StepsOfPlansAreOthers(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x","input":{"v":1}},
		{"id":"w","plan":[{"id":"a","agent":"y","input":{"own":true}},{"id":"b","agent":"y"}],"allow":{"agents":["y"]}}]}`)
	s.answer("a", `1`).fail("w/a", parley.CodeAgentRejected)
	r, err := s.state.Rerun(s.state.Definition(), "a", json.RawMessage(`{"v":2}`))
	if err != nil {
		t.Fatal(err)
	}
	s.again(r, "a")
	if got := string(s.task("a").Task.Input); got != `{"v":2}` {
		t.Errorf("a is called with %s", got)
	}
	if got := string(s.answer("a", `1`).task("w/a").Task.Input); got != `{"own":true}` {
		t.Errorf("the step of the plan is called with %s", got)
	}

	s = play(t, `{"name":"t","steps":[{"id":"w","plan":[{"id":"a","agent":"y"},{"id":"b","agent":"y"}],"allow":{"agents":["y"]}},{"id":"a","agent":"x","needs":[]}]}`)
	s.answer("a", `1`).answer("w/a", `2`).fail("w/b", parley.CodeAgentRejected)
	if r, err = s.state.Rerun(s.state.Definition(), "a", nil); err != nil {
		t.Fatal(err)
	}
	s.again(r, "a")
	if len(s.open) != 2 || s.task("w/b").Task.Agent != "y" {
		t.Errorf("the rerun calls %v", s.open)
	}
}

// TestC6_WhatHasEndedTheRunEndsItAgain: a run that a finish step has ended, and that is
// retried, or run again from a step of finally, does nothing of what stands behind that
// step. One that does a step beside it again does that.
func TestC6_WhatHasEndedTheRunEndsItAgain(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"},{"id":"d","if":"true","then":[{"id":"e","finish":"${a.output}"}]},{"id":"b","agent":"x"}],
		"finally":[{"id":"f","agent":"x"}]}`)
	s.answer("a", `1`).fail("f", parley.CodeAgentRejected).wantCode(parley.CodeFinallyFailed)
	s.goOn(Start{Trigger: "retry"}).wantCalls("f")
	s.answer("f", `2`).output(`1`)
	r, err := s.state.Rerun(s.state.Definition(), "f", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.again(r, "f")
	s.wantCalls("f")
	if s.answer("f", `3`).output(`1`); s.state.Status() != parley.RunCompleted {
		t.Errorf("the run is %s", s.state.Status())
	}

	s = play(t, `{"name":"t","steps":[{"id":"a","agent":"x"},{"id":"e","finish":1,"needs":[]}]}`)
	if r, err = s.state.Rerun(s.state.Definition(), "a", nil); err != nil {
		t.Fatal(err)
	}
	s.again(r, "a")
	s.wantCalls("a")
}
