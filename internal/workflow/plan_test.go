package workflow

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestS10_FindingsAreInTheDetails: all that is wrong with a plan is said at once, and
// no agent is called.
func TestS10_FindingsAreInTheDetails(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"]}}]}`)
	s.answer("p", `[{"agent":"other"},{"finish":1},{"agent":"a","input":"${workflow.input.x}"},{"agent":"a","surprise":1}]`)
	e := s.state.Err()
	if e == nil || e.Code != parley.CodePlanInvalid || len(s.open) > 0 {
		t.Fatalf("%v, %d calls", e, len(s.open))
	}
	var found []struct{ Path, Code, Text string }
	if err := json.Unmarshal(e.Details, &found); err != nil || len(found) != 4 {
		t.Fatalf("%s, %v", e.Details, err)
	}
	for i, want := range []struct{ path, text string }{
		{"steps[0].agent", `agent "other" here: allow.agents`},
		{"steps[1]", "only agent, group, parallel, fork_join"},
		{"steps[2].input", "its own steps"},
		{"steps[3].surprise", "unknown member"},
	} {
		if found[i].Path != want.path || found[i].Code == "" || !strings.Contains(found[i].Text, want.text) {
			t.Errorf("finding %d: %+v, want %+v", i, found[i], want)
		}
	}
	if !strings.HasSuffix(e.Message, "(and 3 more)") {
		t.Errorf("the message is %q", e.Message)
	}
}

// TestS10_TooManySteps: the limit that is named is the one that the author has set.
func TestS10_TooManySteps(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"],"max_steps":2}}]}`)
	s.answer("p", `[{"agent":"a"},{"agent":"a"},{"agent":"a"}]`)
	want := "The plan cannot be run: steps[2]: the plan has more steps than `allow.max_steps` of 2"
	if e := s.state.Err(); e == nil || e.Code != parley.CodeLimit || e.Message != want || len(s.open) > 0 {
		t.Fatalf("%v, %d calls", e, len(s.open))
	}
}

// TestS10_PlansAreReadAsTheyWere: a plan that some version of Parley has accepted is read
// again by another one, whatever that knows of its values beforehand.
func TestS10_PlansAreReadAsTheyWere(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"]}}]}`)
	s.answer("p", `[{"id":"l","agent":"a","schema":{"type":"array"}},{"agent":"a","input":"of ${l.output}"}]`)
	if len(s.open) != 1 || s.state.Err() != nil {
		t.Errorf("%d calls, %v", len(s.open), s.state.Err())
	}
}

// TestS10_PlansHaveALimit: a plan that is too large is not even read.
func TestS10_PlansHaveALimit(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"]}}]}`)
	s.answer("p", "["+strings.Repeat(`{"agent":"a"},`, 1_000_000/4)+`{"agent":"a"}]`)
	if e := s.state.Err(); e == nil || e.Code != parley.CodeLimit || !strings.Contains(e.Message, "plan") || len(s.open) > 0 {
		t.Fatalf("%v, %d calls", e, len(s.open))
	}
}

// TestS10_ARetriedPlanInALoopIsReplayed: its second run stands behind the place of
// the iteration, and is found there.
func TestS10_ARetriedPlanInALoopIsReplayed(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"l","for_each":[1,2],"steps":[{"id":"g","steps":[
		{"id":"w","plan":[{"id":"one","agent":"a"}],"allow":{"agents":["a"]},"retry":{"attempts":2,"delay":"1s","jitter":"none","on":["agent_rejected"]}}]}]}]}`)
	s.sameAsReplayed()
	s.fact("fail l[0]/g/w/one.1 agent_rejected")
	s.sameAsReplayed()
	s.after(time.Second)
	s.sameAsReplayed()
	if len(s.open) != 1 || s.open["run-1.l[0]/g/w#2/one.1"].Task.Agent != "a" {
		t.Errorf("in flight: %v", s.open)
	}
}

// TestLimits_PlansInBytes: who lowers the limit later does not keep a run from being
// read that has a plan.
func TestLimits_PlansInBytes(t *testing.T) {
	def, _ := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"]}}]}`))
	small := DefaultRunLimits()
	small.PlanBytes = 30
	for limits, code := range map[RunLimits]parley.Code{small: parley.CodeLimit, DefaultRunLimits(): ""} {
		s := &script{t: t, state: NewState("r", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
		s.apply(Start{At: s.now, Input: json.RawMessage(`1`)})
		history := s.last.Events
		s.answer("p", `[{"agent":"a"},{"agent":"a"},{"agent":"a"}]`)
		if e := s.state.Err(); code != "" && (e == nil || e.Code != code) || code == "" && e != nil {
			t.Errorf("with %d bytes: %v", limits.PlanBytes, e)
		}
		again := NewState("r", def, small)
		for _, e := range append(history, s.last.Events...) {
			if err := again.Replay(e); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestS10_AGotoInAPlanLeadsToItsStep: what a plan goes to is its own step, also if the
// workflow has one of that id, or none.
func TestS10_AGotoInAPlanLeadsToItsStep(t *testing.T) {
	for _, id := range []string{"three", "p"} {
		s := play(t, `{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"]}}]}`)
		s.answer("p", `[{"id":"one","agent":"a","on_error":{"goto":"`+id+`"}},{"id":"two","agent":"a"},{"id":"`+id+`","agent":"a"}]`)
		s.fail("w/one", parley.CodeAgentRejected).answer("w/"+id, `3`).
			want(parley.RunCompleted, "run.started", "scheduled p", "completed p", "scheduled w", "scheduled w/one", "failed w/one", "skipped w/two",
				"scheduled w/"+id, "completed w/"+id, "completed w", "run.completed")
	}
}

// TestS10_PlansDoNotTakeThePathsOfHandlers: what handles or undoes a plan step stands at
// the same paths as its plan. A plan with a step of the same id is refused: the handler
// would take the plan's step for its own and call nobody, and no history of it could be
// read again. Ids of other steps are the plan's to use.
func TestS10_PlansDoNotTakeThePathsOfHandlers(t *testing.T) {
	const workflow = `{"name":"t","steps":[{"id":"p","agent":"p"},{"id":"w","plan":"${p.output}","allow":{"agents":["a"]},
		"on_error":{"match":["plan_invalid","agent_rejected"],"steps":[{"id":"tidy","agent":"h"}]},"compensate":[{"id":"undo","agent":"c"}]}]}`
	for plan, refused := range map[string]string{
		`[{"id":"tidy","agent":"a"}]`:                        `steps[0].id: a step in on_error or compensate of w has the id "tidy"`,
		`[{"id":"p","agent":"a"},{"id":"undo","agent":"a"}]`: `steps[1].id: a step in on_error or compensate of w has the id "undo"`,
		`[{"id":"p","agent":"a"}]`:                           "",
		`[{"id":"w","steps":[{"id":"tidy","agent":"a"}]}]`:   "",
	} {
		s := play(t, workflow)
		s.answer("p", plan)
		if refused == "" {
			for _, c := range s.open {
				s.answer(c.Task.Step, `1`)
			}
			if got := s.state.Status(); got != parley.RunCompleted {
				t.Errorf("%s: %s, %v", plan, got, s.state.Err())
			}
			continue
		}
		x := s.state.execs["w"]
		if x.err == nil || x.err.Code != parley.CodePlanInvalid || !strings.Contains(x.err.Message, refused) {
			t.Errorf("%s: the error is %v", plan, x.err)
		}
		s.answer("w/tidy", `1`) // which is the handler's
		if got := s.state.Status(); got != parley.RunCompleted {
			t.Errorf("%s: %s, %v", plan, got, s.state.Err())
		}
	}
}
