package workflow

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// goOn begins a run that retries the one before, as its history tells of that.
func (s *script) goOn(f Start) *script {
	s.t.Helper()
	f.At, f.Input, f.RetriedFrom = s.now, json.RawMessage(`{"x":1}`), "run-0"
	if f.Copied == nil {
		f.Copied = s.state.Copies()
	}
	s.state = NewState("run-1", s.state.Definition(), DefaultRunLimits())
	s.open, s.history = make(map[string]Schedule), nil
	s.apply(f)
	s.sameAsReplayed()
	return s
}

// wantCalls compares the steps whose agents are called now.
func (s *script) wantCalls(paths ...string) {
	s.t.Helper()
	var got []string
	for _, c := range s.open {
		got = append(got, c.Task.Step)
	}
	slices.Sort(got)
	if diff := cmp.Diff(paths, got); diff != "" {
		s.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// failsAtOnce is a workflow of which a retry fails in its first decision, before it
// comes to most of what it has taken over.
const failsAtOnce = `
name: t
steps:
  - id: lo
    for_each: [0, 1, 2]
    max_parallel: 3
    steps:
      - {id: f, if: "run.trigger == 'retry' && each.index == 0", fail: {code: Oops}}
      - {id: paid, agent: x, input: "${each.item}"}
      - {id: last, agent: x, input: "${each.item}"}
  - {id: ind, agent: x, needs: []}
`

func paidFor(t *testing.T) *script {
	s := play(t, failsAtOnce)
	s.answer("ind", `1`).answer("lo[1]/paid", `1`).answer("lo[2]/paid", `2`)
	s.apply(Terminate{At: s.now})
	return s
}

// TestC6_RetriesOfRetries: what a run has taken over and not come to goes to the run
// that retries it, through any number of runs.
func TestC6_RetriesOfRetries(t *testing.T) {
	s := paidFor(t)
	for range 3 {
		if s.goOn(Start{Trigger: "retry"}); s.state.Status() != parley.RunFailed {
			t.Fatalf("the retry is %s", s.state.Status())
		}
		s.wantCalls()
	}
	s.goOn(Start{Trigger: "other"}).wantCalls("lo[0]/paid", "lo[1]/last", "lo[2]/last")
}

// TestC6_RetriesThatNeverBegan: the same for runs that waited for their turn.
func TestC6_RetriesThatNeverBegan(t *testing.T) {
	s := paidFor(t)
	queued := Start{Trigger: "retry", Turn: &Turn{Limit: 1, WhenFull: parley.WhenFullQueue, Wait: true}}
	for _, end := range []Fact{Cancel{At: s.now}, Terminate{At: s.now}} {
		s.goOn(queued).apply(end)
		if s.state.Status() != parley.RunCancelled {
			t.Fatalf("the retry is %s", s.state.Status())
		}
	}
	queued.Trigger = "other"
	s.goOn(queued).apply(Admit{At: s.now})
	s.wantCalls("lo[0]/paid", "lo[1]/last", "lo[2]/last")
}

// TestC6_RerunsOfRetries: what was not come to is taken over by a rerun unless it
// depends on the step that is done again, whether that was come to or not.
func TestC6_RerunsOfRetries(t *testing.T) {
	for from, want := range map[string][]string{
		"paid": {"lo[0]/paid", "lo[1]/paid", "lo[2]/paid"},
		"last": {"lo[0]/paid", "lo[1]/last", "lo[2]/last"},
		"ind":  {"ind", "lo[0]/paid", "lo[1]/last", "lo[2]/last"},
		"lo":   {"lo[0]/paid", "lo[1]/paid", "lo[2]/paid"},
	} {
		for name, begin := range map[string]Start{
			"failed": {Trigger: "retry"},
			"queued": {Trigger: "retry", Turn: &Turn{Limit: 1, WhenFull: parley.WhenFullQueue, Wait: true}},
		} {
			t.Run(from+" of one that "+name, func(t *testing.T) {
				s := paidFor(t).goOn(begin)
				s.apply(Terminate{At: s.now})
				r, err := s.state.Rerun(s.state.Definition(), from, nil)
				if err != nil {
					t.Fatal(err)
				}
				s.again(r, from)
				s.wantCalls(want...)
			})
		}
	}
}

// TestC6_PlansOfRetries: the same for the steps of a plan, which go with it.
func TestC6_PlansOfRetries(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"g","if":"run.trigger == 'retry'","fail":{"code":"Oops"}},
		{"id":"a","agent":"x","needs":[]},
		{"id":"w","needs":[],"plan":[{"id":"a","agent":"y"},{"id":"b","agent":"y"}],"allow":{"agents":["y"]}}]}`)
	s.answer("a", `1`).answer("w/a", `2`).fail("w/b", parley.CodeAgentRejected)
	s.goOn(Start{Trigger: "retry"})
	for from, want := range map[string][]string{"a": {"a", "w/b"}, "w": {"w/a"}} {
		s := &script{t: t, state: s.state, now: s.now}
		r, err := s.state.Rerun(s.state.Definition(), from, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.again(r, from)
		s.wantCalls(want...)
	}
	s.goOn(Start{Trigger: "retry"}).goOn(Start{}).wantCalls("w/b")

	// The plan has begun again, and its step not.
	s = play(t, `{"name":"t","steps":[{"id":"a","agent":"x"},{"id":"w","needs":[],"plan":[{"id":"b","agent":"y","if":"run.trigger == '' || run.labels.none == ''"},{"id":"a","agent":"y","needs":[]}],
		"allow":{"agents":["y"],"expressions":true}}]}`)
	s.answer("a", `1`).answer("w/a", `2`)
	s.apply(Terminate{At: s.now})
	if s.goOn(Start{Trigger: "retry"}); s.step("w/b").Status != parley.StepFailed {
		t.Fatalf("w/b is %s", s.step("w/b").Status)
	}
	r, err := s.state.Rerun(s.state.Definition(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.again(r, "a")
	s.wantCalls("a", "w/b")
}

// TestC6_WhatWasUsedIsNotHandedOn: of what a run has come to, it takes over what it has
// made of it: failures that were handled are done again, and conditions are evaluated.
func TestC6_WhatWasUsedIsNotHandedOn(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"h","agent":"x","on_error":"continue"},{"id":"d","if":"run.trigger == 'retry'","then":[{"id":"n","agent":"x"}],"else":[{"id":"m","agent":"x"}]}]}`)
	s.fail("h", parley.CodeAgentRejected).answer("d/m", `1`)
	r, err := s.state.Rerun(s.state.Definition(), "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.again(r, "m")
	s.wantCalls("d/m")
	s.fail("d/m", parley.CodeAgentRejected).goOn(Start{Trigger: "retry"}).wantCalls("h")
	s.answer("h", `1`).wantCalls("d/n")
}

// TestC6_NothingInsideOfWhatIsOne: of a loop that has completed, nothing is taken over
// but its output, also if it has not come to all of what was taken over for it.
func TestC6_NothingInsideOfWhatIsOne(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"w","for_each":[1,2,3],"max_parallel":3,"enough":1,"steps":[{"id":"a","agent":"x"},{"id":"b","agent":"x","if":"run.trigger == ''"}]},
		{"id":"z","agent":"x"}]}`)
	s.answer("w[0]/a", `1`).answer("w[2]/a", `1`)
	s.apply(Terminate{At: s.now})
	s.goOn(Start{Trigger: "retry"}).wantCalls("z")
	s.apply(Terminate{At: s.now})
	if got := s.state.Copies(); len(got) != 1 || got[0].Path != "w" {
		t.Errorf("copies %+v", got)
	}
}

// TestC6_RoundsUseNoCopies: a step that is run again whole may go over another list, so
// that what was taken over for the old one is of no use any more.
func TestC6_RoundsUseNoCopies(t *testing.T) {
	s := play(t, `
name: t
steps:
  - id: g
    retry: {attempts: 2, delay: 0s, on: ["*"]}
    steps:
      - {id: l, agent: x}
      - id: w
        for_each: "${l.output}"
        max_parallel: 2
        steps:
          - {id: f, if: "run.trigger == 'retry' && each.index == 0", fail: {code: Oops}}
          - {id: p, agent: x, input: "${each.item}"}
          - {id: q, agent: x}
`)
	s.answer("g/l", `[1,2]`).answer("g/w[1]/p", `20`)
	s.apply(Terminate{At: s.now})
	s.goOn(Start{Trigger: "retry"}).after(time.Second)
	s.wantCalls("g#2/l")
	if s.answer("g#2/l", `[8,9]`); s.state.Status() != parley.RunFailed {
		t.Fatalf("the retry is %s", s.state.Status())
	}
	s.goOn(Start{}).wantCalls("g/w[0]/p", "g/w[1]/p")
	if got := string(s.task("g/w[1]/p").Task.Input); got != "9" {
		t.Errorf("the second item is %s", got)
	}
}

// TestC6_InsideOfWhatWasTakenOverAsOne: a run that has taken a loop over as one knows
// nothing of what is in it, so that no rerun begins there: it would be paid again.
func TestC6_InsideOfWhatWasTakenOverAsOne(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"g","if":"run.trigger == 'retry'","fail":{"code":"Oops"}},
		{"id":"w","for_each":[1,2],"needs":[],"steps":[{"id":"a","agent":"x"},{"id":"b","agent":"x"}]},{"id":"z","agent":"x"}]}`)
	for _, path := range []string{"w[0]/a", "w[0]/b", "w[1]/a", "w[1]/b"} {
		s.answer(path, `1`)
	}
	s.fail("z", parley.CodeAgentRejected)
	for _, trigger := range []string{"", "retry"} { // it has been come to, or has not
		s.goOn(Start{Trigger: trigger})
		s.apply(Terminate{At: s.now})
		_, err := s.state.Rerun(s.state.Definition(), "b", nil)
		if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "has taken w over as one from run run-0: begin at w, or run run-0 again") {
			t.Errorf("with the trigger %q: %v", trigger, err)
		}
		r, err := s.state.Rerun(s.state.Definition(), "w", nil)
		if err != nil || slices.ContainsFunc(r.Copied, func(c Copied) bool { return strings.HasPrefix(c.Path, "w") }) {
			t.Errorf("with the trigger %q, from w: %v, %v", trigger, r.Copied, err)
		}
	}
}

// TestC6_HandledFailuresStayOne: a step that holds others and has failed in a run that
// a rerun goes on from, which was handled, is not begun again by a retry of the rerun.
func TestC6_HandledFailuresStayOne(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"h","on_error":"continue","steps":[{"id":"a","agent":"x"},{"id":"b","agent":"x"}]},{"id":"z","agent":"x"}]}`)
	s.answer("h/a", `1`).fail("h/b", parley.CodeAgentRejected).answer("z", `1`)
	r, err := s.state.Rerun(s.state.Definition(), "z", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.again(r, "z")
	s.fail("z", parley.CodeAgentRejected).goOn(Start{}).wantCalls("z")
}

// TestC6_BranchesWhoseTimeWasUp: what has completed in one of a fork that has failed is
// taken over as elsewhere.
func TestC6_BranchesWhoseTimeWasUp(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"f","fork":{"one":{"timeout":"10s","steps":[{"id":"a","agent":"x"},{"id":"b","agent":"x"}]},"two":[{"id":"c","agent":"x"}]}}]}`)
	s.answer("f/a", `1`).after(10 * time.Second)
	if s.state.Status() != parley.RunFailed {
		t.Fatalf("the run is %s", s.state.Status())
	}
	s.goOn(Start{}).wantCalls("f/b", "f/c")
}

// TestC6_OtherCasesOfRetries: a run that has taken over which case a step chooses has
// not come to what stands in another one, nor in what was skipped.
func TestC6_OtherCasesOfRetries(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"d","if":"true","then":[{"id":"n","set":1}],"else":[{"id":"m","set":2}]},
		{"id":"k","if":"false","steps":[{"id":"o","set":1}]},{"id":"c","agent":"x"}]}`)
	s.answer("c", `1`)
	r, err := s.state.Rerun(s.state.Definition(), "c", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.goOn(Start{Copied: r.Copied, Turn: &Turn{Limit: 1, WhenFull: parley.WhenFullQueue, Wait: true}})
	s.apply(Cancel{At: s.now})
	for from, want := range map[string]string{"m": "d has chosen another case", "o": "has skipped k", "n": ""} {
		_, err := s.state.Rerun(s.state.Definition(), from, nil)
		if want == "" != (err == nil) || err != nil && (parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), want)) {
			t.Errorf("from %s: %v", from, err)
		}
	}
}

// TestC6_OneCopyOfAStep: a step that could not use what was taken over for it is handed
// on once, as it has ended.
func TestC6_OneCopyOfAStep(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agent":"x"},
		{"id":"b","plan":[{"id":"p","agent":"y"},{"id":"q","agent":"y"}],"allow":{"agents":["y"]},"needs":[],"on_error":"continue"}]}`)
	s.answer("b/p", `1`)
	s.apply(Terminate{At: s.now})
	limits := DefaultRunLimits()
	limits.PlanBytes = 1
	state := NewState("run-1", s.state.Definition(), limits)
	state.Apply(Start{At: s.now, Input: json.RawMessage(`{}`), RetriedFrom: "run-0", Copied: s.state.Copies()})
	state.Apply(Terminate{At: s.now})
	r, err := state.Rerun(s.state.Definition(), "a", nil)
	if err != nil || len(r.Copied) != 1 || r.Copied[0].Status != parley.StepFailed {
		t.Errorf("copies %+v, %v", r.Copied, err)
	}
}
