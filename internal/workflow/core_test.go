package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// TestCoreProperties drives random workflows with facts in random order, some
// of them late or repeated, and holds every decision to what must be true of
// any: the history has no gap and replays to the same state, no task is
// scheduled twice, no execution ends twice, and the run ends exactly once.
func TestCoreProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &planGen{t: t}
		source := g.document()
		def, problems := Parse(ParseOptions{File: "random.json"}, source)
		if def == nil {
			t.Fatalf("the random document does not compile: %v\n%s", problems, source)
		}
		newDriver(t, def).drive()
	})
}

// planGen makes random documents in list form.
type planGen struct {
	t     *rapid.T
	n     int
	known []string // ids of steps that surely ended before the next one
	// undone: nothing here may be compensated, or end the run.
	undone bool
	// handlers counts them.
	handlers int
}

func (g *planGen) document() []byte {
	doc := map[string]any{"name": "random", "steps": g.steps(0)}
	if rapid.IntRange(0, 3).Draw(g.t, "has finally") == 0 {
		g.undone = true
		known := slices.Clip(g.known)
		doc["finally"] = g.steps(2)
		g.known = known
		doc["cleanup_timeout"] = rapid.SampledFrom([]string{"5s", "1h"}).Draw(g.t, "cleanup")
	}
	if rapid.Bool().Draw(g.t, "output") && len(g.known) > 0 {
		doc["output"] = map[string]any{"v": "${" + rapid.SampledFrom(g.known).Draw(g.t, "ref") + ".output}"}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		g.t.Fatal(err)
	}
	return b
}

func (g *planGen) steps(depth int) []any {
	n := rapid.IntRange(1, 4).Draw(g.t, "steps")
	out := make([]any, n)
	for i := range out {
		out[i] = g.step(depth)
	}
	return out
}

func (g *planGen) step(depth int) map[string]any {
	g.n++
	before := slices.Clip(g.known)
	id := fmt.Sprintf("s%d", g.n)
	s := map[string]any{"id": id}
	kinds := []string{"agent", "agent", "agent", "set", "wait", "fail", "finish", "validate", "event", "emit", "approval", "workflow"}
	if depth < 3 {
		kinds = append(kinds, "group", "parallel", "conditional", "switch", "woven", "fork", "for_each", "repeat", "plan")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(g.t, "kind"); kind {
	case "agent":
		g.agents(s)
		s["input"] = map[string]any{"v": g.value()}
		if rapid.Bool().Draw(g.t, "parse") {
			s["parse"] = "json"
		}
	case "set", "finish":
		s[kind] = g.value()
		if kind == "finish" {
			s["if"] = rapid.SampledFrom([]string{"false", "run.labels.size() > 0"}).Draw(g.t, "finish if")
			if g.undone {
				delete(s, "finish")
				s["set"] = 1
			}
		}
	case "validate":
		s["validate"], s["schema"] = g.value(), map[string]any{"type": rapid.SampledFrom([]string{"string", "integer"}).Draw(g.t, "type")}
	case "event":
		s["event"], s["fresh"] = rapid.SampledFrom([]string{"ping", "pong"}).Draw(g.t, "event"), rapid.Bool().Draw(g.t, "fresh")
		if rapid.Bool().Draw(g.t, "match") {
			s["match"] = rapid.SampledFrom([]string{"event.data > 2", "event.data.none == 1"}).Draw(g.t, "matches")
			s["timeout"] = "1h"
		}
	case "approval":
		s["approval"] = map[string]any{
			"title": "Go on?", "min": rapid.IntRange(1, 2).Draw(g.t, "min"), "to": rapid.SampledFrom([]any{"any", []string{"ann", "bob"}, "${workflow.input.x}"}).Draw(g.t, "to"),
			"escalate": []any{map[string]any{"after": "1m", "to": []string{"eve"}}}, "on_timeout": rapid.SampledFrom([]string{"fail", "approve", "reject"}).Draw(g.t, "on timeout"),
		}
		s["timeout"] = "1h"
	case "workflow":
		g.child(s)
	case "emit":
		s["emit"] = map[string]any{"event": "ping", "data": g.value()}
	case "wait":
		s["wait"] = rapid.SampledFrom([]any{"0s", "1s", "1m", map[string]any{"until": "${now}"}, map[string]any{"until": "${workflow.input.x}"}}).Draw(g.t, "wait for")
	case "fail":
		s["fail"] = map[string]any{"code": "Oops", "message": "no ${workflow.input.x}"}
		s["if"] = rapid.SampledFrom([]string{"false", "true", "workflow.input.x > 1"}).Draw(g.t, "fail if")
	default:
		g.composite(s, kind, depth)
	}
	g.common(s, before)
	if s["then"] != nil && s["if"] == nil {
		s["if"] = rapid.SampledFrom([]string{"true", "false", "workflow.input.x == 1", "workflow.input.absent == 1"}).Draw(g.t, "decides")
	}
	g.known = append(g.known, id)
	return s
}

// composite makes a step hold others. What stands in one of them cannot be referred
// to from the next one.
func (g *planGen) composite(s map[string]any, kind string, depth int) {
	before := g.known
	apart := func() []any {
		defer func() { g.known = slices.Clip(before) }()
		return g.steps(depth + 1)
	}
	beside := func() (all []any) {
		for range rapid.IntRange(2, 4).Draw(g.t, "width") {
			all = append(all, g.step(depth+1))
			g.known = slices.Clip(before)
		}
		return all
	}
	switch kind {
	case "group":
		s["steps"] = g.steps(depth + 1)
	case "parallel":
		s["parallel"] = beside()
		if rapid.Bool().Draw(g.t, "wait") {
			s["losers"] = "wait"
		}
	case "conditional":
		s["then"], s["else"] = apart(), apart()
	case "switch":
		s["switch"] = []any{
			map[string]any{"when": rapid.SampledFrom([]string{"true", "false", "workflow.input.x > 1"}).Draw(g.t, "when"), "steps": apart()},
			map[string]any{"steps": apart()},
		}
	case "fork":
		branches := map[string]any{"l": apart(), "r": apart()}
		if rapid.Bool().Draw(g.t, "third") {
			branches["s"] = map[string]any{"steps": apart(), "timeout": "1m"}
		}
		s["fork"], s["join"] = branches, rapid.SampledFrom([]any{"all", "any", "majority", 2}).Draw(g.t, "join")
		s["losers"] = rapid.SampledFrom([]string{"wait", "cancel"}).Draw(g.t, "losers")
		s["branch_timeout"] = rapid.SampledFrom([]string{"1s", "1h"}).Draw(g.t, "branch timeout")
	case "for_each":
		s["for_each"], s["steps"] = rapid.SampledFrom([]any{[]int{1, 2, 3}, []int{}, "${workflow.input.x}", []string{"a"}}).Draw(g.t, "items"), apart()
		g.some(s, map[string][]any{
			"max_iterations": {2}, "tolerate": {1, "50%"}, "item_errors": {"stop", "continue"}, "enough": {1, 2}, "max_parallel": {2, 3},
		})
	case "plan":
		var steps []any
		for i := range rapid.IntRange(1, 3).Draw(g.t, "planned") {
			one := g.planned(i)
			if i > 0 && rapid.Bool().Draw(g.t, "beside") {
				one["needs"] = []string{}
			}
			steps = append(steps, one)
		}
		// As an expression: one that cannot be run is known beforehand if it stands there itself.
		plan, err := json.Marshal(steps)
		if err != nil {
			g.t.Fatal(err)
		}
		s["plan"], s["input"], s["allow"] = "${"+string(plan)+"}", map[string]any{"v": g.value()}, map[string]any{
			"agents": []string{"a", "b"}, "kinds": []string{"agent", "group", "parallel", "fork_join", "loop", "conditional", "wait", "set", "fail"},
		}
	case "repeat":
		repeat := map[string]any{"max": rapid.IntRange(1, 3).Draw(g.t, "max")}
		g.some(repeat, map[string][]any{"until": {"each.index > 0", "workflow.input.absent > 1"}, "on_max": {"fail", "complete"}})
		s["repeat"], s["steps"] = repeat, apart()
	case "woven":
		steps := beside()
		for i := range steps {
			need := []string{}
			for j := range i {
				if rapid.Bool().Draw(g.t, "needs") {
					need = append(need, steps[j].(map[string]any)["id"].(string))
				}
			}
			steps[i].(map[string]any)["needs"] = need
		}
		s["steps"] = steps
	}
	if kind == "parallel" || kind == "woven" {
		if n := rapid.IntRange(0, 2).Draw(g.t, "max parallel"); n > 0 {
			s["max_parallel"] = n
		}
	}
}

// planned makes the n-th step of a plan. Its names may be those of steps around it.
func (g *planGen) planned(n int) map[string]any {
	call := func() map[string]any {
		return map[string]any{"agent": rapid.SampledFrom([]string{"a", "b"}).Draw(g.t, "planned agent"), "input": "${plan.input.v}"}
	}
	one := call()
	kinds := []string{"agent", "agent", "group", "parallel", "fork", "for_each", "repeat", "conditional", "wait", "set", "fail", "after"}
	switch rapid.SampledFrom(kinds).Draw(g.t, "planned kind") {
	case "for_each":
		one = map[string]any{"for_each": []int{1, 2}, "steps": []any{call()}}
		g.some(one, map[string][]any{"max_parallel": {2}, "item_errors": {"continue"}})
	case "repeat":
		one = map[string]any{"repeat": map[string]any{"max": 2}, "steps": []any{call(), call()}}
	case "conditional":
		one = map[string]any{"if": rapid.Bool().Draw(g.t, "planned if"), "then": []any{call()}, "else": []any{call()}}
		one["if"] = fmt.Sprint(one["if"])
	case "wait":
		one = map[string]any{"wait": "1s"}
	case "set":
		one = map[string]any{"set": "${plan.input.v}"}
	case "fail":
		one = map[string]any{"fail": map[string]any{"code": "Oops"}}
	case "after":
		one = map[string]any{"steps": []any{map[string]any{"id": fmt.Sprint("first", n), "agent": "a"}, map[string]any{"agent": "b", "input": fmt.Sprintf("${first%d.output}", n)}}}
	case "group":
		one = map[string]any{"steps": []any{call(), call()}}
	case "parallel":
		one = map[string]any{"parallel": []any{call(), call()}}
	case "fork":
		one = map[string]any{"fork": map[string]any{"l": []any{call()}, "r": []any{call()}}, "join": "any"}
	}
	if rapid.Bool().Draw(g.t, "named") {
		one["id"] = fmt.Sprintf("s%d", n+1)
	}
	g.some(one, map[string][]any{
		"on_error": {"continue", map[string]any{"steps": []any{call()}}}, "timeout": {"1s", "30s"},
		"retry": {map[string]any{"attempts": 2, "delay": "1s", "on": []string{"*"}}},
	})
	return one
}

// handler makes one that matches some errors.
func (g *planGen) handler(before []string) map[string]any {
	h := map[string]any{}
	g.some(h, map[string][]any{
		"match": {[]string{"agent_error", "agent_rejected"}, []string{"timeout", "expression"}}, "compensate": {true},
		"if": {"error.code != 'timeout'", "error.details.none == 1"}, "then": {"fail", "continue"},
	})
	if rapid.Bool().Draw(g.t, "handler steps") {
		known := g.known
		g.known = before
		h["steps"] = g.steps(3)
		g.known = known
	}
	return h
}

// some gives an object some of the members that it may have.
func (g *planGen) some(s map[string]any, members map[string][]any) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if rapid.IntRange(0, 3).Draw(g.t, name) == 0 {
			s[name] = rapid.SampledFrom(members[name]).Draw(g.t, "value of "+name)
		}
	}
}

// agents makes a step call one agent, or several, one after another or hedged.
func (g *planGen) agents(s map[string]any) {
	n := rapid.IntRange(1, 3).Draw(g.t, "agents")
	if n == 1 {
		s["agent"] = "a"
		return
	}
	s["agents"] = []string{"a", "b", "c"}[:n]
	if rapid.Bool().Draw(g.t, "hedged") {
		s["hedge_after"] = rapid.SampledFrom([]string{"0s", "1s", "1m"}).Draw(g.t, "hedge")
	}
}

func (g *planGen) common(s map[string]any, before []string) {
	if s["if"] == nil && rapid.IntRange(0, 4).Draw(g.t, "has if") == 0 {
		s["if"] = rapid.SampledFrom([]string{"true", "false", "workflow.input.x == 1", "workflow.input.absent == 1"}).Draw(g.t, "if")
	}
	switch rapid.IntRange(0, 8).Draw(g.t, "on error") {
	case 0, 1:
		s["on_error"] = "continue"
	case 2, 3:
		if g.handlers < 20 { // and not for ever
			g.handlers++
			s["on_error"] = g.handler(before)
		}
	}
	if !g.undone && rapid.IntRange(0, 3).Draw(g.t, "compensate") == 0 {
		g.undone = true
		known := g.known
		g.known = before
		s["compensate"] = g.steps(3)
		g.known, g.undone = known, false
		s["compensate_if"] = rapid.SampledFrom([]string{"started", "completed"}).Draw(g.t, "compensate if")
	}
	if rapid.IntRange(0, 2).Draw(g.t, "retry") == 0 {
		s["retry"] = map[string]any{
			"attempts": rapid.IntRange(1, 3).Draw(g.t, "attempts"), "delay": rapid.SampledFrom([]string{"0s", "1s", "1m"}).Draw(g.t, "delay"),
			"on": []string{rapid.SampledFrom([]string{"*", "agent_error", "Oops", "expression", "timeout"}).Draw(g.t, "on")},
		}
	}
	if rapid.IntRange(0, 4).Draw(g.t, "timeout") == 0 {
		s["timeout"] = rapid.SampledFrom([]string{"1s", "30s", "1h"}).Draw(g.t, "time")
	}
	if s["fail"] == nil && s["finish"] == nil && rapid.IntRange(0, 3).Draw(g.t, "shaped") == 0 {
		g.some(s, map[string][]any{"output": {"${result}", map[string]any{"r": "${result}"}, "${result.n}"}})
		if s["schema"] == nil {
			g.some(s, map[string][]any{"schema": {map[string]any{"type": "object"}, map[string]any{"type": []string{"string", "null", "integer"}}}})
		}
	}
}

func (g *planGen) value() any {
	if len(g.known) > 0 && rapid.Bool().Draw(g.t, "refer") {
		return "${" + rapid.SampledFrom(g.known).Draw(g.t, "ref") + ".output}"
	}
	return rapid.SampledFrom([]any{"${workflow.input.x}", "text", 12345678901234567, nil, "${workflow.input.absent}"}).Draw(g.t, "value")
}

// driver plays the world: agents that answer in any order, time, cancels.
type driver struct {
	t      *rapid.T
	def    *Definition
	state  *State
	events []parley.Event
	now    time.Time
	open   map[string]Schedule
	seen   map[string]bool
	// calls counts the attempts by execution and agent.
	calls    map[string]int
	ended    map[string]parley.EventType
	answered []string
	// waiting are the steps that wait for events, took the events that came, with their times.
	waiting map[string]bool
	took    map[string]time.Time
	// asked are the approvals that wait.
	asked   map[string]bool
	signals int
	// children are the runs that were asked for and are waited for.
	children map[string]*askedChild
	// told is the one that the fact is about.
	told string
}

func newDriver(t *rapid.T, def *Definition) *driver {
	return &driver{
		t: t, def: def, state: NewState("run-1", def, DefaultRunLimits()),
		now:  time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC),
		open: make(map[string]Schedule), seen: make(map[string]bool), calls: make(map[string]int), ended: make(map[string]parley.EventType),
		waiting: make(map[string]bool), took: make(map[string]time.Time), asked: make(map[string]bool),
		children: make(map[string]*askedChild),
	}
}

func (d *driver) drive() {
	labels := map[string]string{}
	if rapid.Bool().Draw(d.t, "labels") {
		labels["k"] = "v"
	}
	d.apply(Start{At: d.now, Input: json.RawMessage(`{"x":1}`), Labels: labels})
	for steps := 0; !d.state.Status().Terminal(); steps++ {
		if steps > 400 {
			d.t.Fatalf("the run does not end; in flight %v, due %v", d.state.InFlight(), d.state.Due())
		}
		d.act()
	}
	if len(d.open)+len(d.waiting)+len(d.asked)+len(d.children) > 0 {
		d.t.Fatalf("the run has ended and left %v open", d.open)
	}
	last := d.events[len(d.events)-1].Type
	if last != parley.EventRunCompleted && last != parley.EventRunFailed && last != parley.EventRunCancelled {
		d.t.Fatalf("the last event is %s", last)
	}
	for _, f := range []Fact{Tick{At: d.now.Add(1000 * time.Hour)}, Cancel{At: d.now}, Start{At: d.now}, Terminate{At: d.now}, Pause{At: d.now}, Resume{At: d.now}} {
		if got := d.state.Apply(f); len(got.Events) > 0 {
			d.t.Fatalf("%T after the end gave %v", f, got.Events)
		}
	}
}

func (d *driver) act() {
	ids := d.state.InFlight()
	d.now = d.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(d.t, "ms")) * time.Millisecond)
	if d.controlled() {
		return
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return d.state.Paused() && d.open[id].Held })
	switch n := rapid.IntRange(0, 26).Draw(d.t, "act"); {
	case n == 0:
		d.apply(Cancel{At: d.now, By: "me", Grace: 10 * time.Second})
	case n == 1 && len(d.answered) > 0:
		// A late or repeated answer changes nothing.
		id := rapid.SampledFrom(d.answered).Draw(d.t, "again")
		if got := d.state.Apply(Settled{At: d.now, TaskID: id, Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`)}}); len(got.Events) > 0 {
			d.t.Fatalf("a second answer to %s gave %v", id, got.Events)
		}
	case len(d.waiting) > 0 && (n <= 6 || len(ids) == 0):
		d.signal()
	case len(d.children) > 0 && (n <= 8 || len(ids) == 0):
		d.child()
	case len(d.asked) > 0 && (n <= 10 || len(ids) == 0):
		d.vote()
	case n <= 3 || len(ids) == 0:
		if due := d.state.Due(); !due.IsZero() && due.After(d.now) && len(ids) == 0 {
			d.now = due
		}
		d.apply(Tick{At: d.now, Jitter: 0.5})
	case n > 20:
		d.converse(ids)
	default:
		d.settle(rapid.SampledFrom(ids).Draw(d.t, "task"))
	}
}

// controlled pauses, resumes or terminates the run now and then.
func (d *driver) controlled() bool {
	n := rapid.IntRange(0, 99).Draw(d.t, "control")
	switch {
	case d.state.Paused() && n < 40:
		d.apply(Resume{At: d.now, By: "me"})
	case n < 8:
		d.apply(Pause{At: d.now, By: "me", Reason: "lunch"})
	case n == 99:
		d.apply(Terminate{At: d.now, By: "me", Reason: "enough"})
		if !d.state.Status().Terminal() {
			d.t.Fatalf("the run was terminated and is %s", d.state.Status())
		}
	default:
		return false
	}
	return true
}

// heldBack holds a decision about a paused run to rule C5.
func (d *driver) heldBack(dec Decision) {
	if dec.Hold != nil && *dec.Hold != d.state.Paused() && !d.state.Status().Terminal() {
		d.t.Fatalf("paused is %v, and what is open is held back: %v", d.state.Paused(), *dec.Hold)
	}
	for _, s := range dec.Schedule {
		if s.Held != d.state.Paused() {
			d.t.Fatalf("paused is %v, and %s is held back: %v", d.state.Paused(), s.Task.ID, s.Held)
		}
	}
	if !d.state.Paused() {
		for id, s := range d.open {
			s.Held = false
			d.open[id] = s
		}
		return
	}
	for _, e := range dec.Events {
		if x := d.state.execs[e.Step]; e.Type == parley.EventStepScheduled && (x.step.Kind != KindAgent || e.Attempt == 1) ||
			e.Type == parley.EventTimerFired && x.step.Fork == nil {
			d.t.Fatalf("%s of %s while the run is paused", e.Type, e.Step)
		}
	}
}

func (d *driver) settle(id string) {
	s, ok := d.open[id]
	if !ok {
		d.t.Fatalf("%s is in flight and was not scheduled, or was closed", id)
	}
	if s.At.After(d.now) {
		d.now = s.At
	}
	r := parley.Result{TaskID: id}
	switch rapid.IntRange(0, 6).Draw(d.t, "answer") {
	case 0:
		r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentError, "no <luck>")
	case 1:
		r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentRejected, "no")
	case 2:
		r.Outcome = parley.OutcomeUnknown
	case 3:
		r.Outcome = parley.OutcomeCancelled
	default:
		r.Outcome, r.Output = parley.OutcomeOK, json.RawMessage(`{"text":"{\"n\":1}","n":1.10}`)
	}
	d.answered = append(d.answered, id)
	d.apply(Settled{
		At: d.now, TaskID: id, Result: r, Jitter: rapid.Float64Range(0, 0.999).Draw(d.t, "jitter"),
		AgentRetry: AgentRetry(parley.RetryConfig{MaxRetries: 1, InitialDelay: time.Second, MaxDelay: time.Minute, Multiplier: 2}),
	})
}

func (d *driver) apply(f Fact) {
	dec := d.state.Apply(f)
	for _, e := range dec.Events {
		if e.Seq != int64(len(d.events))+1 {
			d.t.Fatalf("event %d follows event %d", e.Seq, len(d.events))
		}
		d.events = append(d.events, e)
		if e.Step != "" && strings.HasPrefix(string(e.Type), "step.") {
			if before, ok := d.ended[e.Step]; ok && e.Type != parley.EventStepCompensating && e.Type != parley.EventStepCompensated {
				d.t.Fatalf("%s of %s after its %s", e.Type, e.Step, before)
			}
			switch e.Type {
			case parley.EventStepCompleted, parley.EventStepFailed, parley.EventStepCancelled, parley.EventStepSkipped:
				d.ended[e.Step] = e.Type
			}
		}
	}
	for _, c := range dec.Close {
		if _, ok := d.open[c.TaskID]; !ok {
			d.t.Fatalf("closed %s, which is not open", c.TaskID)
		}
		delete(d.open, c.TaskID)
	}
	for _, s := range dec.Schedule {
		if d.seen[s.Task.ID] {
			d.t.Fatalf("%s was scheduled twice", s.Task.ID)
		}
		d.seen[s.Task.ID] = true
		if len(s.Task.Input) == 0 || s.Task.Agent == "" {
			d.t.Fatalf("scheduled %+v", s.Task)
		}
		d.count(s.Task)
		if !d.state.Status().Terminal() {
			d.open[s.Task.ID] = s
		}
	}
	d.heldBack(dec)
	d.listen(dec)
	d.asks(dec)
	d.adopts(dec)
	d.sameAsReplayed()
}

// signal tells of a new event, or again of an earlier one.
func (d *driver) signal() {
	d.signals++
	if rapid.IntRange(0, 3).Draw(d.t, "no event") == 0 {
		d.now = d.now.Add(time.Hour)
		d.apply(Tick{At: d.now, Jitter: 0.5})
		return
	}
	id := rapid.IntRange(max(d.signals-2, 1), d.signals).Draw(d.t, "signal")
	d.apply(Signalled{At: d.now, Signal: parley.Signal{
		ID: fmt.Sprint(id), Name: []string{"ping", "pong"}[id%2], Data: fmt.Append(nil, id%5),
		Time: d.now.Add(-time.Duration(rapid.IntRange(0, 2).Draw(d.t, "age")) * time.Second),
	}})
}

// vote has somebody answer an approval, or time pass.
func (d *driver) vote() {
	if rapid.IntRange(0, 3).Draw(d.t, "no vote") == 0 {
		d.now = d.now.Add(30 * time.Minute)
		d.apply(Tick{At: d.now, Jitter: 0.5})
		return
	}
	d.apply(Voted{At: d.now, Vote: Vote{
		Step: rapid.SampledFrom(slices.Sorted(maps.Keys(d.asked))).Draw(d.t, "vote for"), By: rapid.SampledFrom([]string{"ann", "bob", "eve"}).Draw(d.t, "by"),
		Choice: rapid.SampledFrom([]string{"approve", "approve", "reject", "none"}).Draw(d.t, "choice"), Data: json.RawMessage(`{"n": 1.10}`),
	}})
}

// asks holds what a decision says about approvals to what the state says.
func (d *driver) asks(dec Decision) {
	for _, path := range dec.Answered {
		if !d.asked[path] {
			d.t.Fatalf("%s asks no more, and did not", path)
		}
		delete(d.asked, path)
	}
	for _, q := range dec.Ask {
		d.asked[q.Step] = true
	}
	if got := d.state.Asked(); len(got) != len(d.asked) && !d.state.Cancelling() {
		d.t.Fatalf("%v ask, the decisions have said %v", got, d.asked)
	}
}

// listen holds what a decision says about events to what the state says, and
// each event to one wait.
func (d *driver) listen(dec Decision) {
	for _, e := range dec.Events {
		if e.Type != parley.EventSignalReceived {
			continue
		}
		var s parley.Signal
		err := json.Unmarshal(e.Data, &s)
		if at, ok := d.took[s.ID]; err != nil || ok && s.Time.Sub(at) <= 24*time.Hour {
			d.t.Fatalf("the event %s is taken again, %v", e.Data, err)
		}
		d.took[s.ID] = s.Time
	}
	for _, path := range dec.Unsubscribe {
		if !d.waiting[path] {
			d.t.Fatalf("%s waits no more, and did not", path)
		}
		delete(d.waiting, path)
	}
	for _, w := range dec.Subscribe {
		if d.waiting[w.Step] {
			d.t.Fatalf("%s waits twice", w.Step)
		}
		d.waiting[w.Step] = true
	}
	if got := d.state.Awaited(); len(got) != len(d.waiting) && !d.state.Cancelling() {
		d.t.Fatalf("%v wait, the decisions have said %v", got, d.waiting)
	}
}

// count holds the calls of one agent for one execution to what the policy says,
// however often the run was taken over, and keeps those that are not hedged
// from being side by side.
func (d *driver) count(task parley.Task) {
	key := task.Step + " of " + task.Agent
	d.calls[key]++
	step := d.state.execs[task.Step].step
	most := 2 // that of the agents' own policy
	if step.Retry != nil {
		most = 0
		for _, p := range step.Retry {
			most += p.Attempts
		}
	}
	if d.calls[key] > most {
		d.t.Fatalf("%s is called %d times, its policy allows %d", key, d.calls[key], most)
	}
	for id, open := range d.open {
		if open.Task.Step == task.Step && (!step.Hedged || open.Task.Agent == task.Agent) {
			d.t.Fatalf("%s is scheduled while %s is in flight", task.ID, id)
		}
	}
}

func (d *driver) sameAsReplayed() {
	again := NewState("run-1", d.def, DefaultRunLimits())
	for _, e := range d.events {
		if err := again.Replay(e); err != nil {
			d.t.Fatal(err)
		}
	}
	defer func() {
		if rapid.IntRange(0, 3).Draw(d.t, "crash") == 0 {
			d.state = again // whoever goes on knows nothing but the history
		}
	}()
	if again.Status().Terminal() {
		d.nothingOpen(again)
	}
	if !reflect.DeepEqual(d.state, again) {
		d.t.Fatalf("replay gives another state:\n%+v\n%+v\nafter %s", describe(d.state), describe(again), d.events[len(d.events)-1].Type)
	}
}

// nothingOpen: who has ended waits for nothing any more.
func (d *driver) nothingOpen(s *State) {
	for _, step := range s.View().Steps {
		if !step.Status.Terminal() {
			d.t.Fatalf("%s is %s in a run that is %s", step.ID, step.Status, s.Status())
		}
	}
	if !s.Due().IsZero() || len(s.Awaited()) > 0 || len(s.Asked()) > 0 || len(s.InFlight()) > 0 || len(s.Open()) > 0 {
		d.t.Fatalf("a run that is %s is due at %s, awaits %v, has asked %v, has in flight %v, is open at %v",
			s.Status(), s.Due(), s.Awaited(), s.Asked(), s.InFlight(), s.Open())
	}
}

func describe(s *State) string {
	b, err := json.MarshalIndent(s.View(), "", " ")
	if err != nil {
		return err.Error()
	}
	var x strings.Builder
	for _, p := range s.order {
		fmt.Fprintf(&x, "%+v\n", *s.execs[p])
	}
	return string(b) + x.String() + fmt.Sprintf("%+v", *s)
}
