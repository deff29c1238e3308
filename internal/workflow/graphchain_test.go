package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// graphPlan is a random plan of the graph form: a conditional, behind each branch
// and behind itself chains that part by goto and meet again.
type graphPlan struct {
	steps map[string]map[string]any
}

// randomChain makes steps of which each may name later ones as next_step and goto.
func (p *graphPlan) randomChain(t *rapid.T, name string, n int, end string) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", name, i)
	}
	later := func(i int, what string) any {
		to := rapid.IntRange(i+1, n).Draw(t, what)
		if to == n {
			return nil
		}
		return ids[to]
	}
	for i, id := range ids {
		step := map[string]any{"agent_name": id, "retry": map[string]any{"attempts": 1}, "next_step": later(i, "next")}
		if step["next_step"] == nil && end != "" && rapid.Bool().Draw(t, "end") {
			step["next_step"] = end
		}
		if to := later(i, "goto"); to != nil && rapid.Bool().Draw(t, "handles") {
			step["on_error"] = map[string]any{"goto": to}
		}
		p.steps[id] = step
	}
	return ids
}

// walk gives the calls that a reader of the plan expects.
func (p *graphPlan) walk(id any, prefix, end string, fails map[string]bool) (calls []string, lost bool) {
	for id != nil && id != end {
		step := p.steps[id.(string)]
		if step["type"] == "conditional" {
			branch := "if_false_step"
			if step["condition"] == "true" {
				branch = "if_true_step"
			}
			inside, lost := p.walk(step[branch], prefix+id.(string)+"/", step["next_step"].(string), fails)
			if calls = append(calls, inside...); lost {
				return calls, true
			}
			id = step["next_step"]
			continue
		}
		calls = append(calls, prefix+id.(string))
		if !fails[id.(string)] {
			id = step["next_step"]
			continue
		}
		handler, ok := step["on_error"].(map[string]any)
		if !ok {
			return calls, true
		}
		id = handler["goto"]
	}
	return calls, false
}

// TestH2_GraphFlowIsWhatAReaderExpects: whatever chains part and meet, by next_step
// and by goto, in a branch and on the main path, the agents are called that somebody
// calls who follows the plan with a finger, and a replay is where the run is.
func TestH2_GraphFlowIsWhatAReaderExpects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &graphPlan{steps: map[string]map[string]any{}}
		main := p.randomChain(t, "m", rapid.IntRange(1, 7).Draw(t, "main"), "")
		branches := p.randomChain(t, "b", rapid.IntRange(2, 7).Draw(t, "branches"), main[0])
		second := branches[rapid.IntRange(1, len(branches)-1).Draw(t, "else")]
		p.steps["c"] = map[string]any{
			"type": "conditional", "condition": rapid.SampledFrom([]string{"true", "false"}).Draw(t, "condition"),
			"if_true_step": branches[0], "if_false_step": second, "next_step": main[0],
		}
		source, err := json.Marshal(map[string]any{"name": "t", "start_step": "c", "steps": p.steps})
		if err != nil {
			t.Fatal(err)
		}
		def, problems := Parse(ParseOptions{File: "random.json"}, source)
		if def == nil {
			t.Fatalf("%v\n%s", problems, source)
		}
		fails := map[string]bool{}
		for _, id := range slices.Sorted(maps.Keys(p.steps)) {
			fails[id] = rapid.IntRange(0, 2).Draw(t, "fails") == 0
		}
		want, lost := p.walk("c", "", "", fails)
		state := NewState("r", def, DefaultRunLimits())
		again := NewState("r", def, DefaultRunLimits())
		var got []string
		d := state.Apply(Start{Input: json.RawMessage(`{}`)})
		for {
			for _, e := range d.Events {
				if err := again.Replay(e); err != nil {
					t.Fatal(err)
				}
			}
			if len(d.Schedule) != 1 {
				break
			}
			task := d.Schedule[0].Task
			got = append(got, task.Step)
			r := parley.Result{TaskID: task.ID, Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`)}
			if fails[task.Agent] {
				r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentRejected, "no")
			}
			d = state.Apply(Settled{TaskID: task.ID, Result: r})
		}
		if !slices.Equal(got, want) || lost != (state.Status() == parley.RunFailed) || !state.Status().Terminal() {
			t.Fatalf("called %q, want %q; %s\n%s", got, want, state.Status(), source)
		}
		a, b := mustJSON(t, state.View()), mustJSON(t, again.View())
		if a != b {
			t.Fatalf("replayed %s\nwant %s", b, a)
		}
	})
}

func mustJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestGraph_SecondsOfABranch: a time that would be rounded to nothing was no limit.
func TestGraph_SecondsOfABranch(t *testing.T) {
	for seconds, want := range map[string]time.Duration{"0.001": time.Millisecond, "1.5": 1500 * time.Millisecond, "31536000": 365 * 24 * time.Hour, "0.0004": 0, "0": 0, "-1": 0, "31536001": 0, `"5"`: 0} {
		def, problems := Parse(ParseOptions{}, []byte(`{"name": "t", "start_step": "f", "steps": {"a": {"type": "set", "set": 1}, "b": {"type": "set", "set": 1},
			"f": {"type": "fork_join", "fork_join_config": {"branch_timeout_seconds": `+seconds+`, "branches": {"x": {"steps": ["a"]}, "y": {"steps": ["b"]}}}}}}`))
		if (def != nil) != (want > 0) || def != nil && def.Steps["f"].Fork.Branches[0].Timeout != want {
			t.Errorf("%s: %v", seconds, problems)
		}
	}
}
