package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// TestC6_NothingIsPaidTwice runs random workflows again and again: each run of a
// chain fails or is ended at a random moment, also before it has begun, and the
// next one retries it, or is begun at one of its steps. No agent step that has
// COMPLETED in any run of the chain is called once more, unless the run was told to:
// by the step that a rerun begins at, or by the retry of a step around it, which runs
// it again whole.
func TestC6_NothingIsPaidTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runChain(t, false) })
}

// TestC6_NorByAnotherVersion does the same with chains in which a run may be begun again
// on another version: what is not done again there is not called again either, whatever
// else the version says of it.
func TestC6_NorByAnotherVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runChain(t, true) })
}

// runChain carries out runs of a random document; with versions a rerun may be on another
// one.
func runChain(t *rapid.T, versions bool) {
	g := &planGen{t: t}
	var doc map[string]any
	if err := json.Unmarshal(g.document(), &doc); err != nil {
		t.Fatal(err)
	}
	keeps := rapid.IntRange(0, 3).Draw(t, "compensates") == 0
	callsOnly(doc, keeps)
	source := written(doc)
	def, problems := Parse(ParseOptions{File: "random.json"}, source)
	if def == nil {
		t.Fatalf("the random document does not compile: %v\n%s", problems, source)
	}
	c := &chain{t: t, def: def, paid: map[string]string{}, now: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)}
	if versions {
		c.doc = doc
	}
	f := Start{Input: json.RawMessage(`{"x":1}`)}
	for range rapid.IntRange(2, 5).Draw(t, "runs") {
		c.run(f)
		var ok bool
		if f, ok = c.next(); !ok {
			return
		}
	}
}

// callsOnly takes out of a random document what waits for others than agents.
func callsOnly(v any, compensates bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			callsOnly(item, compensates)
		}
	case map[string]any:
		if v["event"] != nil || v["approval"] != nil || v["workflow"] != nil {
			for _, name := range []string{"event", "fresh", "match", "approval", "workflow", "among", "detach"} {
				delete(v, name)
			}
			v["agent"] = "a"
		}
		if e, ok := v["emit"].(map[string]any); ok {
			delete(v, "emit")
			v["set"] = e["data"]
		}
		if !compensates {
			delete(v, "compensate")
			delete(v, "compensate_if")
		}
		for _, item := range v {
			callsOnly(item, compensates)
		}
	}
}

// chain carries out runs of which each takes over from the one before.
type chain struct {
	t   *rapid.T
	def *Definition
	// doc is what def was written as, if runs may be begun again on other versions.
	doc    map[string]any
	now    time.Time
	n      int
	state  *State
	events []parley.Event
	open   map[string]bool
	// paid are the agent steps that have completed, by path without rounds, with the
	// run that they have done so in.
	paid map[string]string
}

// run carries out a run, and ends it at some moment.
func (c *chain) run(f Start) {
	c.n++
	c.state, c.events, c.open = NewState(fmt.Sprintf("run-%d", c.n), c.def, DefaultRunLimits()), nil, map[string]bool{}
	f.At, f.Jitter = c.now, 0.5
	if rapid.IntRange(0, 3).Draw(c.t, "queued") == 0 {
		f.Turn = &Turn{Limit: 1, WhenFull: parley.WhenFullQueue, Wait: true}
	}
	left := rapid.IntRange(0, 25).Draw(c.t, "facts")
	c.apply(f)
	for n := 0; !c.state.Status().Terminal(); n++ {
		if n > 2_000 {
			c.t.Fatalf("the run does not end")
		}
		if left--; left < 0 && !c.state.Cancelling() {
			c.stop()
			continue
		}
		c.act()
	}
	for path, x := range c.state.execs {
		if x.status == parley.StepRunning {
			c.t.Fatalf("%s has ended, and its step %s is %s", c.state.RunID(), path, x.status)
		}
	}
}

func (c *chain) stop() {
	if rapid.Bool().Draw(c.t, "terminated") || c.state.phase != phaseBody {
		c.apply(Terminate{At: c.now, By: "me"})
		return
	}
	c.apply(Cancel{At: c.now, Grace: 10 * time.Second})
}

func (c *chain) act() {
	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(c.t, "ms")) * time.Millisecond)
	ids := c.state.InFlight()
	switch n := rapid.IntRange(0, 9).Draw(c.t, "act"); {
	case c.state.Queued():
		c.apply(Admit{At: c.now, Jitter: 0.5})
	case n == 0 && !c.state.Cancelling():
		c.apply(Pause{At: c.now})
		c.apply(Tick{At: c.now, Jitter: 0.5})
		c.apply(Resume{At: c.now})
	case n <= 2 || len(ids) == 0:
		if due := c.state.Due(); len(ids) == 0 && due.After(c.now) {
			c.now = due
		}
		c.apply(Tick{At: c.now, Jitter: 0.5})
	default:
		r := parley.Result{TaskID: rapid.SampledFrom(ids).Draw(c.t, "task"), Outcome: parley.OutcomeOK, Output: json.RawMessage(`{"text":"{\"n\":1}"}`)}
		switch rapid.IntRange(0, 7).Draw(c.t, "result") {
		case 0:
			r.Outcome, r.Output, r.Err = parley.OutcomeError, nil, parley.Errorf(parley.CodeAgentError, "no luck")
		case 1:
			r.Outcome, r.Output, r.Err = parley.OutcomeError, nil, parley.Errorf(parley.CodeAgentRejected, "no")
		}
		c.apply(Settled{At: c.now, TaskID: r.TaskID, Result: r, Jitter: 0.5, AgentRetry: AgentRetry(parley.RetryConfig{InitialDelay: time.Second, MaxDelay: time.Minute, Multiplier: 2})})
	}
}

var roundIn = regexp.MustCompile(`#\d+`)

// first is the path of an execution in first rounds.
func first(path string) string { return roundIn.ReplaceAllString(path, "") }

func (c *chain) apply(f Fact) {
	d := c.state.Apply(f)
	c.events = append(c.events, d.Events...)
	for _, e := range d.Events {
		x := c.state.execs[e.Step]
		if x == nil || !inBody(x.region) {
			continue
		}
		switch path := first(e.Step); e.Type {
		case parley.EventStepScheduled:
			var p stepScheduled
			if err := json.Unmarshal(e.Data, &p); err != nil {
				c.t.Fatal(err)
			}
			if p.Round > 1 {
				maps.DeleteFunc(c.paid, func(paid, _ string) bool {
					return strings.HasPrefix(paid, path+"/") || strings.HasPrefix(paid, path+"[")
				})
			}
			if p.Agent != "" && c.paid[path] != "" {
				c.t.Fatalf("%s calls %s, which has completed in %s", c.state.RunID(), e.Step, c.paid[path])
			}
		case parley.EventStepCompleted:
			if x.step.Kind == KindAgent && c.paid[path] == "" {
				c.paid[path] = c.state.RunID()
			}
		}
	}
}

// inBody reports whether a list stands in the body of the run: in no handler, and
// nothing that undoes or cleans up.
func inBody(r *region) bool {
	for ; r != nil; r = r.around() {
		if r.block.Role != roleBody {
			return false
		}
	}
	return true
}

// next gives what a run is begun with that goes on from the last one, as whoever has
// nothing but its history reads it.
func (c *chain) next() (f Start, ok bool) {
	old := NewState(c.state.RunID(), c.def, DefaultRunLimits())
	for _, e := range c.events {
		if err := old.Replay(e); err != nil {
			c.t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(c.state, old) {
		c.t.Fatalf("replay gives another state:\n%s", cmp.Diff(describe(c.state), describe(old)))
	}
	f = Start{Input: json.RawMessage(`{"x":1}`), RetriedFrom: old.RunID(), Copied: old.Copies(), Edits: old.Edits()}
	if old.hasUndone() {
		return f, false
	}
	if rapid.IntRange(0, 3).Draw(c.t, "rerun") > 0 {
		return f, old.Status() != parley.RunCompleted
	}
	def, doc := c.version()
	from := rapid.SampledFrom(slices.Sorted(maps.Keys(def.Steps))).Draw(c.t, "from")
	step := def.Steps[from]
	r, err := old.Rerun(def, from, nil)
	if err != nil || step.Block.Role != roleBody {
		return f, old.Status() != parley.RunCompleted
	}
	f.RerunFrom, f.Copied, f.Edits = from, r.Copied, r.Edits
	again := map[string]bool{}
	dependents(step, again)
	if was := c.def.Steps[step.ID]; was != nil {
		dependents(was, again)
	}
	c.def, c.doc = def, doc
	maps.DeleteFunc(c.paid, func(path, _ string) bool { return c.isAgain(path, again) })
	return f, true
}

// version gives the version that a run is begun again on, if there may be others.
func (c *chain) version() (*Definition, map[string]any) {
	if c.doc == nil || rapid.Bool().Draw(c.t, "same version") {
		return c.def, c.doc
	}
	var doc map[string]any
	if err := json.Unmarshal(written(c.doc), &doc); err != nil {
		c.t.Fatal(err)
	}
	c.n++
	c.change(doc, "doc")
	def, _ := Parse(ParseOptions{File: "random.json"}, written(doc))
	if def == nil {
		return c.def, c.doc
	}
	return def, doc
}

// change changes some of the members that steps have, and takes some steps in or out.
func (c *chain) change(v any, name string) any {
	some := func(what string) bool { return rapid.IntRange(0, 7).Draw(c.t, what) == 0 }
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = c.change(v[i], "")
		}
		if name != "steps" && name != "then" && name != "else" {
			return v
		}
		if some("step out") && len(v) > 1 {
			i := rapid.IntRange(0, len(v)-1).Draw(c.t, "which")
			v = slices.Delete(v, i, i+1)
		}
		if some("step in") {
			c.n++
			i := rapid.IntRange(0, len(v)).Draw(c.t, "where")
			v = slices.Insert(v, i, any(map[string]any{"id": fmt.Sprintf("n%d", c.n), "agent": "a"}))
		}
		return v
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key] = c.change(v[key], key)
		}
		if v["id"] == nil {
			return v
		}
		values := map[string][]any{
			"timeout": {"1s", "1h"}, "on_error": {"continue"}, "retry": {map[string]any{"attempts": 2}}, "if": {"true", "false", "workflow.input.absent == 1"},
		}
		if v["parallel"] != nil || v["for_each"] != nil {
			values["max_parallel"] = []any{1, 2, 3}
		}
		if v["for_each"] != nil {
			maps.Copy(values, map[string][]any{"enough": {1, 2}, "tolerate": {1}, "item_errors": {"stop", "continue"}, "max_iterations": {1, 2}})
		}
		if v["fork"] != nil {
			maps.Copy(values, map[string][]any{"join": {"all", "any", 2}, "losers": {"wait", "cancel"}, "branch_timeout": {"1s", "1h"}})
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			switch {
			case !some(key):
			case rapid.Bool().Draw(c.t, "without"):
				delete(v, key)
			default:
				v[key] = rapid.SampledFrom(values[key]).Draw(c.t, "value of "+key)
			}
		}
	}
	return v
}

// isAgain reports whether a rerun does that step again: it is one of those named, or
// stands in one.
func (c *chain) isAgain(path string, again map[string]bool) bool {
	for name := range strings.SplitSeq(path, "/") {
		if id, _, _ := strings.Cut(name, "["); again[id] {
			return true
		}
	}
	return false
}
