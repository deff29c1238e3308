package dryrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// TestSameSeedSameBytes: a workflow, a script and a seed give the same history,
// byte for byte, and it ends and replays.
func TestSameSeedSameBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := &generator{t: rt}
		source, script := g.workflow(), g.script()
		def, problems := workflow.Parse(workflow.ParseOptions{}, source)
		if def == nil {
			rt.Fatalf("the random workflow does not compile: %v\n%s", problems, source)
		}
		first, err := play(rt, def, script)
		if err != nil {
			rt.Fatalf("%v\n%s\n%s", err, source, script)
		}
		second, err := play(rt, def, script)
		if err != nil {
			rt.Fatal(err)
		}
		a, b := history(rt, first), history(rt, second)
		if !bytes.Equal(a, b) {
			rt.Fatalf("a second time it gives something else:\n%s\n%s", a, b)
		}
		replays(t, def, first)
		if !first.Run.Status.Terminal() {
			rt.Fatalf("the run is %s", first.Run.Status)
		}
		for i, e := range first.Events {
			if i > 0 && e.At.Before(first.Events[i-1].At) {
				rt.Fatalf("event %d is earlier than the one before it", e.Seq)
			}
		}
	})
}

func play(t *rapid.T, def *workflow.Definition, source []byte) (*Result, error) {
	script, problems := Parse("script.yaml", source)
	if script == nil {
		t.Fatalf("%v\n%s", problems, source)
	}
	return Run(context.Background(), Config{Definition: def, Test: script.Tests[0], Run: "dry", Limits: DefaultLimits()})
}

func history(t *rapid.T, r *Result) []byte {
	b, err := json.Marshal([]any{r.Events, r.Run, r.Calls})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// generator makes random workflows and scripts for them.
type generator struct {
	t *rapid.T
	n int
	// approvals are the ids of steps that ask people; aside: steps cannot be
	// compensated here.
	approvals []string
	aside     bool
}

func (g *generator) pick(name string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.t, name)
}

func (g *generator) workflow() []byte {
	random := map[string]any{"name": "random", "timeout": g.pick("timeout", "1m", "1h", "30d"), "steps": g.steps(0)}
	if g.aside = true; rapid.Bool().Draw(g.t, "finally") {
		random["finally"] = g.steps(1)
	}
	doc, err := json.Marshal(random)
	if err != nil {
		g.t.Fatal(err)
	}
	return doc
}

func (g *generator) steps(depth int) []any {
	out := make([]any, rapid.IntRange(1, 3).Draw(g.t, "steps"))
	for i := range out {
		out[i] = g.step(depth)
	}
	return out
}

func (g *generator) step(depth int) map[string]any {
	g.n++
	s := map[string]any{"id": fmt.Sprintf("s%d", g.n)}
	kinds := []string{"agent", "agent", "agents", "wait", "set", "event", "emit", "approval"}
	if depth < 2 {
		kinds = append(kinds, "group", "parallel", "conditional", "switch", "each", "repeat", "fork")
	}
	switch kind := g.pick("kind", kinds...); kind {
	default:
		g.outside(kind, s)
	case "agent":
		s["agent"], s["input"] = g.pick("agent", "a", "b", "c"), map[string]any{"n": g.n}
		if rapid.Bool().Draw(g.t, "bounded") {
			s["attempt_timeout"], s["silence"] = g.pick("attempt", "1s", "1m"), g.pick("silence", "1s", "1m")
		}
	case "agents":
		s["agents"] = []string{"a", "b", "c"}
		if rapid.Bool().Draw(g.t, "hedged") {
			s["hedge_after"] = g.pick("hedge", "0s", "1s", "1m")
		}
	case "wait":
		s["wait"] = g.pick("wait", "0s", "1s", "30d")
	case "set":
		s["set"] = "${run.started_at}"
	case "group":
		s["steps"] = g.steps(depth + 1)
	case "parallel":
		s["parallel"], s["max_parallel"] = []any{g.step(depth + 1), g.step(depth + 1), g.step(depth + 1)}, rapid.IntRange(1, 3).Draw(g.t, "width")
		s["losers"] = g.pick("losers", "cancel", "wait")
	case "conditional":
		s["if"], s["then"], s["else"] = g.pick("if", "true", "false"), g.steps(depth+1), g.steps(depth+1)
	case "switch":
		s["switch"] = []any{map[string]any{"when": g.pick("when", "true", "false"), "steps": g.steps(depth + 1)}}
	case "each":
		s["for_each"], s["steps"], s["max_parallel"] = "${[1, 2, 3]}", g.steps(depth+1), rapid.IntRange(1, 3).Draw(g.t, "width")
		s["item_errors"] = g.pick("item errors", "stop", "continue", "collect")
	case "repeat":
		s["repeat"], s["steps"] = map[string]any{"max": 2, "until": g.pick("until", "each.index > 0", "true")}, g.steps(depth+1)
	case "fork":
		s["fork"] = map[string]any{"x": g.steps(depth + 1), "y": g.steps(depth + 1)}
		s["join"], s["losers"] = g.pick("join", "all", "any"), g.pick("losers", "cancel", "wait")
	}
	g.follow(s)
	return s
}

// outside makes a step that people and other runs have to do with.
func (g *generator) outside(kind string, s map[string]any) {
	switch kind {
	case "event":
		s["event"], s["key"], s["timeout"] = "news", g.pick("key", "", "k"), "1d"
		s["fresh"] = rapid.Bool().Draw(g.t, "fresh")
	case "emit":
		s["emit"] = map[string]any{"event": "news", "key": g.pick("key", "", "k"), "data": g.n}
	case "approval":
		g.approvals = append(g.approvals, s["id"].(string))
		s["approval"] = map[string]any{
			"title": "Sure?", "to": []string{"boss"}, "min": rapid.IntRange(1, 2).Draw(g.t, "min"), "on_timeout": g.pick("on timeout", "fail", "approve", "reject"),
			"escalate": []any{map[string]any{"after": "30s", "to": []string{"chief"}}},
		}
		s["timeout"] = g.pick("asked for", "1m", "1d")
	}
}

// follow says what follows from the end of a step.
func (g *generator) follow(s map[string]any) {
	if !g.aside && rapid.IntRange(0, 3).Draw(g.t, "compensate") == 0 {
		g.aside = true
		s["compensate"] = g.steps(2)
		g.aside = false
	}
	switch g.pick("on error", "fail", "continue", "handler") {
	case "continue":
		s["on_error"] = "continue"
	case "handler":
		g.n++
		s["on_error"] = map[string]any{
			"steps": []any{map[string]any{"id": fmt.Sprintf("s%d", g.n), "agent": "b"}}, "then": g.pick("then", "continue", "fail"), "compensate": !g.aside,
		}
	}
	if rapid.Bool().Draw(g.t, "retry") {
		s["retry"] = map[string]any{"attempts": 3, "delay": g.pick("delay", "0s", "1s"), "on": []string{"*"}}
	}
	if rapid.IntRange(0, 3).Draw(g.t, "limited") == 0 {
		s["timeout"] = g.pick("step timeout", "1s", "1m")
	}
}

func (g *generator) script() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "seed: %d\nagents:\n", rapid.IntRange(0, 5).Draw(g.t, "seed"))
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "  %s:\n    on_cancel: %s\n    unmatched: echo\n    cases:\n", name, g.pick("on cancel", "obey", "ignore"))
		for range rapid.IntRange(1, 3).Draw(g.t, "cases") {
			fmt.Fprintf(&b, "      - {times: %d, after: %s, %s}\n", rapid.IntRange(1, 3).Draw(g.t, "times"), g.pick("after", "0s", "1s", "2m", "6m"),
				g.pick("answer", "output: 1", "error: agent_unavailable", "error: agent_rejected", "error: outcome_unknown", "error: cancelled", "silence: true",
					"output: '${input}', talks: true", "ask: 'Sure?'", "ask: {text: 'Sure?', reply: {text: yes, after: 1h}, work: 2m}, output: '${reply.text}'"))
		}
	}
	if rapid.Bool().Draw(g.t, "cancel") {
		fmt.Fprintf(&b, "cancel: {at: %s, grace: %s}\n", g.pick("cancel at", "0s", "1s", "30s", "1d"), g.pick("grace", "0s", "5s"))
	}
	b.WriteString("events:\n  - {name: other}\n")
	for range rapid.IntRange(0, 4).Draw(g.t, "events") {
		fmt.Fprintf(&b, "  - {at: %s, name: news, key: %q, %s}\n", g.pick("at", "0s", "1s", "1h", "2d"), g.pick("key", "", "k"), g.pick("id", "id: x", "data: 1"))
	}
	b.WriteString("approvals:\n  {")
	for _, id := range g.approvals {
		fmt.Fprintf(&b, "%s: %s, ", id, g.pick("answer", "[]", "approve", "reject", "{choice: approve, after: 40s}",
			"[{choice: approve, by: ann, roles: [boss]}, {choice: approve, by: bob, roles: [boss], after: 2s}, {choice: approve, by: eve, refused: true, after: 50s}]"))
	}
	b.WriteString("}\n")
	return []byte(b.String())
}

// TestLimits: a dry run that takes too much is ended, and says why.
func TestLimits(t *testing.T) {
	def, problems := workflow.Parse(workflow.ParseOptions{}, []byte(
		`{"name":"t","steps":[{"id":"a","agent":"a","retry":{"attempts":100,"delay":"0s"}}]}`,
	))
	if def == nil {
		t.Fatal(problems)
	}
	script, problems := Parse("script.yaml", []byte(`agents: {a: {error: agent_error}}`))
	if script == nil {
		t.Fatal(problems)
	}
	c := Config{Definition: def, Test: script.Tests[0], Run: "dry", Limits: DefaultLimits()}
	if r, err := Run(t.Context(), c); err != nil || len(r.Calls) != 100 {
		t.Fatalf("within the limits: %v", err)
	}
	c.Limits.Facts = 50
	if _, err := Run(t.Context(), c); parley.CodeOf(err) != parley.CodeLimit {
		t.Errorf("too many facts: %v", err)
	}
	c.Limits = DefaultLimits()
	c.Limits.Bytes = 1000
	if _, err := Run(t.Context(), c); parley.CodeOf(err) != parley.CodeLimit {
		t.Errorf("too many bytes: %v", err)
	}
	c.Limits = DefaultLimits()
	tooLong := errors.New("too long")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tooLong)
	if _, err := Run(ctx, c); !errors.Is(err, tooLong) {
		t.Errorf("no time left: %v", err)
	}
}

// TestEmptyScript: without a script the first call says what is missing.
func TestEmptyScript(t *testing.T) {
	def, problems := workflow.Parse(workflow.ParseOptions{}, []byte(`{"name":"t","steps":[{"id":"a","agent":"greeter"}]}`))
	if def == nil {
		t.Fatal(problems)
	}
	_, err := Run(t.Context(), Config{Definition: def, Test: Empty().Tests[0], Run: "dry", Limits: DefaultLimits()})
	if parley.CodeOf(err) != parley.CodeUnknownAgent || !strings.Contains(err.Error(), "greeter") {
		t.Errorf("gives %v", err)
	}
}

// FuzzParse: no script ends the program.
func FuzzParse(f *testing.F) {
	f.Add([]byte("agents: {a: {output: 1}}"))
	f.Add([]byte("tests: [{name: a, expect: {steps: {a: FAILED}}, agents: {x: [{ask: b}]}}]"))
	f.Add([]byte("events: [{at: 1s, name: x, data: 1}]\napprovals: {a: [approve, {choice: reject, after: 1s}], b: approve}\nexpect: {emits: [a, {name: b}]}"))
	f.Add([]byte(`{"agents":{"a":{"cases":[{"when":{"x":1},"output":null}]}}}`))
	f.Fuzz(func(t *testing.T, source []byte) {
		script, problems := Parse("x", source)
		if (script == nil) == (len(problems) == 0) {
			t.Errorf("gives %v and %v", script, problems)
		}
	})
}
