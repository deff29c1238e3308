package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// TestCoreDoesWhatTheInterpreterSays holds the core to an interpreter of the
// language that shares nothing with it but the compiled document: the same steps
// end in the same way at the same time, the same agents are called with the same
// input at the same time, and the run comes to the same.
func TestCoreDoesWhatTheInterpreterSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &planGen{t: t}
		var doc map[string]any
		reader := json.NewDecoder(bytes.NewReader(g.document()))
		reader.UseNumber()
		if err := reader.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		new(plain).simplify(doc)
		if doc["cleanup_timeout"] == "5s" {
			doc["cleanup_timeout"] = "5011ms"
		}
		source := written(doc)
		def, problems := Parse(ParseOptions{File: "random.json"}, source)
		if def == nil {
			t.Fatalf("the random document does not compile: %v\n%s", problems, source)
		}
		seed := rapid.Uint32().Draw(t, "seed")
		labels := map[string]string(nil)
		if rapid.IntRange(0, 3).Draw(t, "labels") == 0 {
			labels = map[string]string{"k": "v"}
		}
		if diff := compare(t, def, labels, seed); diff != "" {
			t.Fatalf("the core does not what the language says (-want +got):\n%s\nof %s", diff, source)
		}
	})
}

// plain rewrites a random document: each wait for an event is for one of its own, those in
// loops call agents, and no two times in it are the same, so that no two things happen at
// once.
type plain struct {
	n     int
	loops int // around
}

func (p *plain) simplify(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			p.simplify(item)
		}
	case map[string]any:
		switch {
		case v["event"] == nil || v["id"] == nil: // or what is published
		case p.loops == 0:
			v["event"] = "for " + v["id"].(string)
		default:
			for _, name := range []string{"event", "fresh", "match"} {
				delete(v, name)
			}
			v["agent"] = "a"
		}
		if v["for_each"] != nil || v["repeat"] != nil {
			p.loops++
			defer func() { p.loops-- }()
		}
		if v["agent"] == nil && v["agents"] == nil && v["workflow"] == nil {
			delete(v, "compensate_if")
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if text, ok := v[name].(string); ok && slices.Contains([]string{"wait", "timeout", "branch_timeout", "delay", "hedge_after", "after"}, name) {
				v[name] = p.apart(name, text)
			}
			p.simplify(v[name])
		}
	}
}

// apart gives a time that no other one in the document is a multiple of.
func (p *plain) apart(name, text string) string {
	if text == "0s" && name != "delay" {
		return text
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	p.n++
	return fmt.Sprintf("%dms", d.Milliseconds()+int64(2*p.n*p.n+7*p.n+1))
}

// world is what agents answer, to the core and to the interpreter alike.
func world(seed uint32) func(path string, attempt int, agent string) (time.Duration, parley.Result) {
	return func(path string, attempt int, agent string) (time.Duration, parley.Result) {
		h := fnv.New64a()
		fmt.Fprint(h, seed, path, attempt, agent)
		n := h.Sum64()
		n ^= n >> 29
		n *= 0xbf58476d1ce4e5b9
		n ^= n >> 32
		took := time.Duration(n>>8%uint64(40_000_000)+1) * time.Microsecond
		if n&1 == 0 {
			took /= 20
		}
		r := parley.Result{}
		switch n >> 1 & 15 {
		case 0, 1, 2:
			r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentError, "no <luck>")
		case 3:
			r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.CodeAgentRejected, "no")
		case 4:
			r.Outcome = parley.OutcomeUnknown
		case 5:
			r.Outcome = parley.OutcomeCancelled
		case 6:
			r.Outcome, r.Output = parley.OutcomeOK, json.RawMessage(`"text"`)
		case 7:
			r.Outcome, r.Output = parley.OutcomeOK, json.RawMessage(`5`)
		default:
			r.Outcome, r.Output = parley.OutcomeOK, json.RawMessage(`{"text":"{\"n\":1}","n":1.10}`)
		}
		return took.Truncate(time.Microsecond), r
	}
}

func compare(t *rapid.T, def *Definition, labels map[string]string, seed uint32) (diff string) {
	policy := AgentRetry(parley.RetryConfig{MaxRetries: 1, InitialDelay: 1234 * time.Millisecond, MaxDelay: time.Minute, Multiplier: 2})
	start, input := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC), json.RawMessage(`{"x":1}`)
	p := &player{
		t: t, start: start, now: start, answer: world(seed), policy: policy, open: map[string]*made{}, asked: map[string]int{},
		state: NewState("run-1", def, DefaultRunLimits()),
	}
	p.apply(Start{At: start, Input: input, Labels: labels, Jitter: 0.5})
	if !p.play() {
		return "" // two things at once: which is first is not said
	}
	in := &interpreter{def: def, input: input, labels: labels, start: start, answer: p.answer, agents: policy, jitter: 0.5}
	return cmp.Diff(in.run().said(start), p.told().said(start))
}

// player carries out a run with the core: agents answer when they are to, timers
// fire when they are due.
type player struct {
	t      *rapid.T
	state  *State
	start  time.Time
	now    time.Time
	answer func(path string, attempt int, agent string) (time.Duration, parley.Result)
	policy RetryPolicy
	// open are the calls in flight, by task; calls those that were made.
	open  map[string]*made
	calls []*made
	// heard is what events and people will say to those who wait for that, asked how often
	// an approval was asked, emits what was published.
	heard []telling
	asked map[string]int
	emits []string
}

func (p *player) apply(f Fact) {
	d := p.state.Apply(f)
	p.adopts(d)
	p.listens(d)
	for _, e := range d.Emit {
		p.emits = append(p.emits, emitted(e.ID, e.Name, e.Data))
	}
	for _, c := range d.Close {
		if call := p.open[c.TaskID]; c.Absorb || call.at.Before(p.now) {
			p.calls = append(p.calls, call)
		}
		delete(p.open, c.TaskID)
	}
	for _, s := range d.Schedule {
		took, _ := p.answer(s.Task.Step, s.Task.Attempt, s.Task.Agent)
		p.open[s.Task.ID] = &made{path: s.Task.Step, agent: s.Task.Agent, attempt: s.Task.Attempt, input: s.Task.Input, at: s.At, end: s.At.Add(took)}
	}
}

// play goes on until the run has ended; false if two things were due at once.
func (p *player) play() bool {
	for n := 0; !p.state.Status().Terminal(); n++ {
		if n > 20_000 {
			p.t.Fatalf("the run does not end")
		}
		first, next := "", p.state.Due()
		for _, id := range slices.Sorted(maps.Keys(p.open)) {
			if end := p.open[id].end; next.IsZero() || end.Before(next) {
				first, next = id, end
			} else if end.Equal(next) {
				return false
			}
		}
		if told, alone := p.news(next); !alone {
			return false
		} else if told {
			continue
		}
		if next.IsZero() || first == "" && p.timersAt(next) != 1 {
			if next.IsZero() {
				p.t.Fatalf("nothing is due")
			}
			return false
		}
		p.now = next
		if first == "" {
			p.apply(Tick{At: next, Jitter: 0.5})
			continue
		}
		call := p.open[first]
		if p.state.WaitsForChild(first) {
			p.childEnds(first)
			continue
		}
		_, r := p.answer(call.path, call.attempt, call.agent)
		r.TaskID = first
		p.apply(Settled{At: next, TaskID: first, Result: r, Jitter: 0.5, AgentRetry: p.policy})
	}
	return true
}

func (p *player) timersAt(t time.Time) (n int) {
	s := p.state
	for x := range s.open.all() {
		for _, u := range []time.Time{x.deadline, x.wakeAt, x.hedgeAt, x.branchDeadline()} {
			if u.Equal(t) {
				n++
			}
		}
		if x.retryAt.Equal(t) && len(x.flights) == 0 {
			n++
		}
	}
	for _, u := range []time.Time{s.deadline, s.cleanupUntil} {
		if u.Equal(t) {
			n++
		}
	}
	return n
}

func (p *player) told() told {
	s := p.state
	r := told{status: s.status, output: s.output, err: s.err, calls: p.calls, emits: p.emits}
	for _, path := range s.order {
		x := s.execs[path]
		r.steps = append(r.steps, &lived{path: path, status: x.status, handled: x.handled, output: x.output, err: x.err, end: x.endedAt})
	}
	return r
}

// text gives a value in one spelling.
func text(v json.RawMessage) string {
	if len(v) == 0 {
		return "null"
	}
	node, err := expr.ParseJSON(string(v))
	if err != nil {
		return string(v)
	}
	var any any
	if json.Unmarshal(node, &any) != nil {
		return string(v)
	}
	return string(written(any))
}

// said spells out a run, for comparison.
func (r told) said(start time.Time) []string {
	failure := func(e *parley.Error) string {
		if e == nil {
			return ""
		}
		return " " + string(e.Code) + " of " + e.Step
	}
	var all []string
	for _, x := range r.steps {
		line := fmt.Sprintf("step %s: %s at %s", x.path, x.status, x.end.Sub(start))
		switch x.status {
		case parley.StepCompleted:
			line += " " + text(x.output)
		case parley.StepFailed:
			line += fmt.Sprintf(" handled %v %s%s", x.handled, text(x.output), failure(x.err))
		}
		all = append(all, line)
	}
	for _, c := range r.calls {
		all = append(all, fmt.Sprintf("call %s of %s, attempt %d at %s: %s", c.agent, c.path, c.attempt, c.at.Sub(start), text(c.input)))
	}
	all = append(all, r.emits...)
	slices.Sort(all)
	end := fmt.Sprintf("run %s", r.status)
	if r.status == parley.RunCompleted {
		end += " " + text(r.output)
	}
	return append(all, end+failure(r.err))
}
