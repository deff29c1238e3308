package convert_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// played is what came of a run: the calls in their order, and the run as people
// see it.
type played struct {
	Calls []string
	Run   any
}

// play runs a definition with agents that answer by what they are asked, in the
// order of the calls; seed is what they are like, one in four may fail.
func play(def *workflow.Definition, input string, seed int) (p played, err error) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := workflow.NewState("run-1", def, workflow.DefaultRunLimits())
	var open []workflow.Schedule
	apply := func(f workflow.Fact) workflow.Decision {
		d := state.Apply(f)
		for _, e := range d.Emit {
			p.Calls = append(p.Calls, fmt.Sprintf("emit %s %s %s %s", e.ID, e.Name, e.Key, sorted(e.Data)))
		}
		for _, s := range d.Schedule {
			p.Calls = append(p.Calls, fmt.Sprintf("%s %s %s", s.Task.Step, s.Task.Agent, sorted(s.Task.Input)))
			open = append(open, s)
		}
		for _, c := range d.Close {
			for i := range open {
				if open[i].Task.ID == c.TaskID {
					open = append(open[:i:i], open[i+1:]...)
					break
				}
			}
		}
		return d
	}
	apply(workflow.Start{At: now, Input: json.RawMessage(input), Trigger: "test"})
	for n := 0; !state.Status().Terminal(); n++ {
		if n > 500 {
			return p, fmt.Errorf("the run does not end: %v", p.Calls)
		}
		now = now.Add(time.Second)
		if len(open) == 0 {
			if f := told(state, now, seed+n); f != nil && len(apply(f).Events) > 0 {
				continue
			}
			if due := state.Due(); due.After(now) {
				now = due
			}
			apply(workflow.Tick{At: now})
			continue
		}
		s := open[0]
		open = open[1:]
		if s.At.After(now) {
			now = s.At
		}
		apply(workflow.Settled{At: now, TaskID: s.Task.ID, Result: answer(s.Task, seed)})
	}
	run := state.View()
	run.Seq = 0 // a fault of an old condition is an event more
	b, err := json.Marshal(run)
	if err != nil {
		return p, err
	}
	err = json.Unmarshal(b, &p.Run)
	wordless(p.Run)
	return p, err
}

// sorted writes a value with the members of objects by name: their order means
// nothing.
func sorted(v json.RawMessage) string {
	var value any
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return string(v)
	}
	b, err := json.Marshal(value)
	if err != nil {
		return string(v)
	}
	return string(b)
}

// wordless takes the texts of errors away, at every depth: they quote expressions.
func wordless(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["code"] != nil {
			delete(v, "message")
		}
		for _, m := range v {
			wordless(m)
		}
	case []any:
		for _, item := range v {
			wordless(item)
		}
	}
}

// told is what somebody outside does about what the run waits for; nil is nothing.
// Nobody hears of some approvals.
func told(state *workflow.State, now time.Time, n int) workflow.Fact {
	if asked := state.Asked(); len(asked) > 0 && n%4 != 0 {
		q := asked[0]
		return workflow.Voted{At: now, Vote: workflow.Vote{
			Step: q.Step, Choice: q.Asked.Choices[n%len(q.Asked.Choices)], By: "ann", Roles: q.Asked.To, Data: json.RawMessage(`{"amount": 1}`),
		}}
	}
	if awaited := state.Awaited(); len(awaited) > 0 {
		return workflow.Signalled{At: now, Signal: parley.Signal{
			ID: fmt.Sprintf("e%d", n), Name: awaited[0].Name, Key: awaited[0].Key, Data: json.RawMessage(`{"amount": 100, "n": 1}`), Time: now,
		}}
	}
	return nil
}

// answer depends on the step and what it is asked alone.
func answer(task parley.Task, seed int) parley.Result {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s %s %s", seed, task.Step, task.Agent, sorted(task.Input))
	n := h.Sum32()
	r := parley.Result{TaskID: task.ID, Outcome: parley.OutcomeOK}
	if n%8 == 0 && seed%4 == 0 || n%3 == 0 && task.Agent == "bad" {
		r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentRejected, "no luck with %s", task.Step)
		return r
	}
	score := []string{"0.5", "1", "true", `"high"`, "null", "0.9"}[n/8%6]
	r.Output = json.RawMessage(fmt.Sprintf(`{"text": "t%d", "n": %d, "score": %s, "items": [1, {"a b": %d}], "tags": ["a", %d]}`, n%5, n%3, score, n%7, n%2))
	return r
}

// sameRuns plays two definitions and says where they differ.
func sameRuns(a, b *workflow.Definition) error {
	for seed := range 6 {
		for _, input := range []string{`{"x": 1, "list": ["a", "b"], "o": {"two words": 3}, "s": "text"}`, `{"x": 0, "list": [], "o": null, "s": ""}`} {
			one, err := play(a, input, seed)
			if err != nil {
				return err
			}
			two, err := play(b, input, seed)
			if err != nil {
				return err
			}
			if x, y := strings.Join(one.Calls, "\n"), strings.Join(two.Calls, "\n"); x != y {
				return fmt.Errorf("seed %d, input %s, calls:\n%s\n-- but then --\n%s", seed, input, x, y)
			}
			if diff := cmp.Diff(one.Run, two.Run); diff != "" {
				return fmt.Errorf("seed %d, input %s, run:\n%s", seed, input, diff)
			}
		}
	}
	return nil
}
