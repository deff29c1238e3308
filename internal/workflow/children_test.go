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

// childFact plays what becomes of a run that a step has asked for.
func (s *script) childFact(word, task, what string) bool {
	f := ChildEnded{At: s.now, TaskID: "run-1." + task, Run: "run-2", Workflow: "w", Version: "1", Jitter: 0.5}
	switch word {
	case "begun":
		s.apply(ChildStarted{At: s.now, TaskID: f.TaskID, Run: what, Workflow: "w", Version: "1"})
		return true
	case "completed":
		f.Status, f.Output = parley.RunCompleted, json.RawMessage(what)
	case "failed":
		f.Status, f.Err = parley.RunFailed, parley.Errorf(parley.Code(what), "no")
		f.Err.Step = "inner"
	case "stopped":
		f.Status, f.Err = parley.RunCancelled, parley.Errorf(parley.CodeCancelled, "The run was cancelled by ann")
	case "refused":
		f.Run, f.Err = "", parley.Errorf(parley.Code(what), "no")
	case "void":
		f.Run, f.Status = "", parley.RunCancelled
	default:
		return false
	}
	s.apply(f)
	return true
}

// tellChildren writes what the last decision says about runs.
func (s *script) tellChildren(b *strings.Builder, begun time.Time) {
	short := func(task string) string { return strings.TrimPrefix(task, "run-1.") }
	for _, c := range s.last.Children {
		name := c.Workflow
		if c.Version != "" {
			name += "@" + c.Version
		}
		fmt.Fprintf(b, "      run %s as %s with %s", name, short(c.Parent.TaskID), c.Input)
		if c.Detached {
			b.WriteString(", detached")
		}
		if !c.Until.IsZero() {
			fmt.Fprintf(b, ", at most until %s", c.Until.Sub(begun))
		}
		b.WriteByte('\n')
	}
	for _, c := range s.last.StopChildren {
		fmt.Fprintf(b, "      stop %s", short(c.TaskID))
		if c.Terminate {
			b.WriteString(", at once")
		}
		if c.Detached {
			b.WriteString(", if it has not begun")
		}
		if c.Left {
			b.WriteString(", nobody waits")
		}
		b.WriteByte('\n')
	}
}

// TestS11_FixedNamesMeanWhatTheyMeantAtTheStart: the version that was found when
// the run was started is the one that is asked for, and is in the history.
func TestS11_FixedNamesMeanWhatTheyMeantAtTheStart(t *testing.T) {
	s := playWith(t, "name: t\nsteps:\n  - {id: a, workflow: report@stable}\n  - {id: b, workflow: other}\n", Start{
		Input: json.RawMessage(`{}`), Children: []ResolvedChild{{"report@stable", "report", "3"}, {"other", "other-id", "7"}},
	})
	if d := cmp.Diff([]ChildRef{{"a", "report@stable"}, {"b", "other"}}, s.state.Definition().Children); d != "" {
		t.Errorf("the names of the definition (-want +got):\n%s", d)
	}
	want := []ChildCall{{
		Parent: Parent{Run: "run-1", Step: "a", TaskID: "run-1.a.1", Depth: 2}, Workflow: "report", Version: "3", Input: json.RawMessage(`{}`),
		Until: s.now.Add(30 * 24 * time.Hour),
	}}
	if d := cmp.Diff(want, s.last.Children); d != "" {
		t.Errorf("asked for (-want +got):\n%s", d)
	}
	s.sameAsReplayed()
	s.childFact("completed", "a.1", `1`)
	s.sameAsReplayed()
	if got := s.last.Children; len(got) != 1 || got[0].Workflow != "other-id" || got[0].Version != "7" {
		t.Errorf("asked for %+v", got)
	}
}

// TestS11_RunsNest: 32 runs stand in each other and no more; each knows its parent.
func TestS11_RunsNest(t *testing.T) {
	const doc = "name: t\nsteps:\n  - {id: a, workflow: t, input: {up: '${run.parent}'}}\n"
	for depth, want := range map[int]string{31: "", 32: `limit`} {
		s := playWith(t, doc, Start{Input: json.RawMessage(`{}`), Parent: &Parent{Run: "run-0", Step: "b", TaskID: "run-0.b.1", Depth: depth}})
		s.sameAsReplayed()
		run := s.state.View()
		if run.Parent == nil || *run.Parent != (parley.RunParent{Run: "run-0", Step: "b"}) {
			t.Errorf("the parent is %+v", run.Parent)
		}
		if got := parley.CodeOf(errorOf(s.state)); string(got) != want {
			t.Errorf("at depth %d: %q", depth, got)
		}
		if want != "" {
			var d struct {
				Limit      string
				Value, Got int
			}
			if err := json.Unmarshal(s.state.Err().Details, &d); err != nil || d.Limit != "nesting of runs" || d.Value != 32 || d.Got != 33 {
				t.Errorf("details %s", s.state.Err().Details)
			}
			continue
		}
		if c := s.last.Children[0]; c.Parent.Depth != 32 || string(c.Input) != `{"up":"run-0"}` {
			t.Errorf("asked for %+v", c)
		}
	}
}

func errorOf(s *State) error {
	if err := s.Err(); err != nil {
		return err
	}
	return nil
}

// TestS11_TheDeadlineIsTheSmallerOne: a start that names an end is over by then.
func TestS11_TheDeadlineIsTheSmallerOne(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for until, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 3 * time.Hour: time.Hour, 0: time.Hour} {
		start := Start{Input: json.RawMessage(`{}`)}
		if until > 0 {
			start.Until = begun.Add(until)
		}
		s := playWith(t, "name: t\ntimeout: 1h\nsteps: [{id: a, agent: x}]\n", start)
		if got := s.state.Deadline().Sub(begun); got != want {
			t.Errorf("until %s: %s, want %s", until, got, want)
		}
	}
}

// TestS11_ViewNamesTheChild: while it runs, and after that.
func TestS11_ViewNamesTheChild(t *testing.T) {
	s := play(t, "name: t\nsteps: [{id: a, workflow: report}]\n")
	step := func() parley.Step { return s.state.View().Steps[0] }
	if v := step(); v.Phase != parley.PhaseWaiting || *v.Child != (parley.ChildRun{Workflow: "report"}) {
		t.Errorf("asked for: %s %+v", v.Phase, v.Child)
	}
	s.childFact("begun", "a.1", "run-2")
	if o := s.state.Open(); len(o) != 1 || o[0].Child == nil || o[0].Child.Run != "run-2" {
		t.Errorf("open: %+v", o)
	}
	s.childFact("completed", "a.1", `1`)
	if v := step(); v.Status != parley.StepCompleted || *v.Child != (parley.ChildRun{Run: "run-2", Workflow: "w", Version: "1"}) {
		t.Errorf("ended: %s %+v", v.Status, v.Child)
	}
}
