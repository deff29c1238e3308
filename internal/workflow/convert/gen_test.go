package convert_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/parley-project/parley/internal/workflow"
)

type object = map[string]any

type gen struct {
	t     *rapid.T
	n     int
	known []string
	// aside: inside of what compensates or comes last, which cannot be compensated.
	aside bool
	// small: inside of a handler, where steps are simple.
	small bool
}

func (g *gen) id() string { g.n++; return fmt.Sprintf("s-%d", g.n) }

func (g *gen) bytes(doc object) []byte {
	b, err := json.Marshal(doc)
	if err != nil {
		g.t.Fatal(err)
	}
	return b
}

func (g *gen) value() any {
	values := []any{"${workflow.input.x}", "text", 1.5, nil, object{"a": []any{"${workflow.input.s}"}}}
	if len(g.known) > 0 {
		id := rapid.SampledFrom(g.known).Draw(g.t, "ref")
		values = append(values, "${"+id+".output}", `${steps["`+id+`"].status}`)
	}
	return rapid.SampledFrom(values).Draw(g.t, "value")
}

func (g *gen) common(s object) object {
	s["id"] = g.id()
	if s["then"] == nil && s["condition"] == nil && rapid.IntRange(0, 4).Draw(g.t, "if") == 0 {
		s["if"] = rapid.SampledFrom([]any{"workflow.input.x == 1", "${workflow.input.s != \"\"}", true}).Draw(g.t, "cond")
	}
	if g.small {
		return s
	}
	switch rapid.IntRange(0, 5).Draw(g.t, "on_error") {
	case 0:
		s["on_error"] = "continue"
	case 1:
		s["on_error"] = g.handlers()
	}
	if !g.aside && rapid.IntRange(0, 4).Draw(g.t, "compensate") == 0 {
		s["compensate"] = g.compensate(s["id"].(string))
	}
	return s
}

// handlers makes those of on_error, one alone or a list.
func (g *gen) handlers() any {
	g.small = true
	defer func() { g.small = false }()
	h := object{"steps": g.apart(2), "then": rapid.SampledFrom([]string{"continue", "fail"}).Draw(g.t, "then")}
	if h["then"] == "continue" && rapid.Bool().Draw(g.t, "shaped") {
		h["output"] = object{"code": "${error.code}", "v": g.value()}
	}
	if rapid.Bool().Draw(g.t, "undo") {
		h["compensate"] = true
	}
	if rapid.Bool().Draw(g.t, "one") {
		return h
	}
	first := object{"match": []string{"agent_error", "invalid_input"}, "if": "error.message != ''", "then": "continue"}
	return []any{first, h, "continue"}
}

// compensate makes what undoes a step: one step, or a list.
func (g *gen) compensate(id string) any {
	before := g.known
	defer func() { g.known, g.aside, g.small = before, false, false }()
	g.known, g.aside, g.small = append(slices.Clip(before), id), true, true
	if rapid.Bool().Draw(g.t, "one") {
		return object{"id": g.id(), "agent": "a", "input": g.value()}
	}
	return g.list(2)
}

// jump lets a step go to the last one of its list when it fails.
func (g *gen) jump(ids []string, step func(int) object) {
	if len(ids) > 2 && !g.small && rapid.IntRange(0, 2).Draw(g.t, "jump") == 0 {
		step(0)["on_error"] = object{"goto": ids[len(ids)-1]}
	}
}

// apart makes a list whose steps are not seen after it.
func (g *gen) apart(depth int) []any {
	before := slices.Clip(g.known)
	defer func() { g.known = before }()
	return g.list(depth)
}

// last makes the finally of a document.
func (g *gen) last(doc object) {
	if rapid.IntRange(0, 2).Draw(g.t, "finally") != 0 {
		return
	}
	g.known, g.aside = nil, true
	doc["finally"] = append(g.list(1), object{"id": g.id(), "agent": "a", "input": object{"how": "${run.outcome}"}})
}

func (g *gen) listDoc() []byte {
	doc := object{"name": "Random One", "version": "3", "steps": g.list(0)}
	if rapid.Bool().Draw(g.t, "output") {
		doc["output"] = g.value()
	}
	g.last(doc)
	return g.bytes(doc)
}

func (g *gen) list(depth int) (all []any) {
	var ids []string
	for range rapid.IntRange(1, 3).Draw(g.t, "steps") {
		s := g.step(depth)
		all, ids = append(all, s), append(ids, s["id"].(string))
	}
	g.jump(ids, func(i int) object { return all[i].(object) })
	if rapid.IntRange(0, 3).Draw(g.t, "woven") == 0 {
		all = append(all, object{"id": g.id(), "agent": "b", "needs": []string{}, "input": nil})
	}
	return all
}

func (g *gen) step(depth int) object {
	kind := rapid.SampledFrom([]string{
		"agent", "agent", "agents", "leaf", "steps", "parallel", "then", "switch", "each", "repeat", "fork",
	}).Draw(g.t, "kind")
	if depth > 1 {
		kind = rapid.SampledFrom([]string{"agent", "leaf"}).Draw(g.t, "small")
	}
	before := slices.Clip(g.known)
	s := object{}
	switch kind {
	case "agent":
		s["agent"] = rapid.SampledFrom([]string{"a", "a", "bad"}).Draw(g.t, "agent")
		s["input"] = rapid.SampledFrom([]any{object{"v": g.value()}, g.value()}).Draw(g.t, "input")
	case "agents":
		s["agents"] = []string{"a", "b"}
	case "leaf":
		s = g.leaf()
	default:
		s = g.composite(kind, depth+1)
	}
	g.common(s)
	g.known = append(before, s["id"].(string))
	return s
}

// leaf makes a step that calls nobody.
func (g *gen) leaf() object {
	return rapid.SampledFrom([]object{
		{"set": g.value()},
		{"validate": g.value(), "schema": object{"type": []string{"string", "object", "null", "number"}}},
		{"wait": "2s"},
		{"wait": object{"until": "${run.started_at}"}},
		{"emit": object{"event": "news", "key": "k", "data": g.value()}},
		{"event": "news", "key": "k", "match": "event.name == 'news'", "timeout": "1h"},
		{"event": "never-${workflow.input.x}", "timeout": "1m"},
		{"approval": object{"title": "Pay ${workflow.input.x}?", "to": []any{"boss"}, "escalate": []any{object{"after": "1m", "to": []any{"chief"}}}}},
		{"approval": object{"title": "Which?", "choices": []any{"one", "two"}, "on_timeout": "two", "form": object{"type": "object"}}, "timeout": "1h"},
		{"fail": object{"code": "Custom", "message": "as ${workflow.input.s} says"}},
	}).Draw(g.t, "leaf")
}

// composite makes a step that runs others.
func (g *gen) composite(kind string, depth int) object {
	s := object{}
	switch kind {
	case "steps":
		s["steps"] = g.apart(depth)
	case "parallel":
		s["parallel"] = []any{g.alone(depth), g.alone(depth)}
		g.width(s)
	case "then":
		s["if"], s["then"], s["else"] = "workflow.input.x == 1", g.apart(depth), g.apart(depth)
	case "switch":
		s["switch"] = []any{object{"when": "workflow.input.x > 0", "steps": g.apart(depth)}, object{"steps": g.apart(depth)}}
	case "each":
		s["for_each"], s["steps"] = "${workflow.input.list}", append(g.apart(depth), object{"id": g.id(), "agent": "bad", "input": "${each.item}"})
		for _, m := range []struct {
			name   string
			values []any
		}{
			{"max_parallel", []any{nil, 1, 2}}, {"tolerate", []any{nil, 1, "50%"}}, {"item_errors", []any{nil, "continue", "stop"}}, {"max_iterations", []any{nil, 1, 5}},
		} {
			if v := rapid.SampledFrom(m.values).Draw(g.t, m.name); v != nil {
				s[m.name] = v
			}
		}
	case "repeat":
		repeat := object{"max": 2}
		if rapid.Bool().Draw(g.t, "until") {
			repeat["until"] = rapid.SampledFrom([]string{"each.index > 0", "${workflow.input.x == 1}"}).Draw(g.t, "holds")
			repeat["on_max"] = rapid.SampledFrom([]string{"complete", "fail"}).Draw(g.t, "on_max")
		}
		s["repeat"], s["steps"] = repeat, append(g.apart(depth), object{"id": g.id(), "agent": "a", "input": []any{"${each.index}", "${each.is_last}"}})
	case "fork":
		s["fork"] = object{"one": g.apart(depth), "two": object{"steps": g.apart(depth), "timeout": "10m"}, "three": g.apart(depth)}
		s["join"] = rapid.SampledFrom([]any{"all", "any", "majority", 2}).Draw(g.t, "join")
		g.width(s)
	}
	return s
}

// alone makes a step that those after it do not see.
func (g *gen) alone(depth int) object {
	before := slices.Clip(g.known)
	defer func() { g.known = before }()
	return g.step(depth)
}

// width says how many run side by side, and what becomes of those that lose.
func (g *gen) width(s object) {
	if rapid.Bool().Draw(g.t, "wait") {
		s["losers"] = "wait"
	}
	if rapid.Bool().Draw(g.t, "most") {
		s["max_parallel"] = 1
	}
}

// graphDoc makes a plan of the old platform, with what only its form has.
func (g *gen) graphDoc() []byte {
	steps := object{}
	first := g.path(steps, "", 0)
	doc := object{"name": "Random Two", "workflow_id": "two", "version": "1", "start_step": first, "steps": steps, "created_by": "me", "description": nil}
	g.last(doc)
	return g.bytes(doc)
}

// path adds steps that follow each other and gives the first one.
func (g *gen) path(steps object, next string, depth int) (first string) {
	var ids []string
	for range rapid.IntRange(1, 3).Draw(g.t, "path") {
		s := g.graphStep(steps, depth)
		ids = append(ids, s["id"].(string))
	}
	for i, id := range ids {
		after := any(nil)
		if i+1 < len(ids) {
			after = ids[i+1]
		} else if next != "" {
			after = next
		}
		steps[id].(object)["next_step"] = after
	}
	g.jump(ids, func(i int) object { return steps[ids[i]].(object) })
	return ids[0]
}

func (g *gen) graphStep(steps object, depth int) object {
	kind := rapid.SampledFrom([]string{"agent", "agent", "parallel", "conditional", "group", "loop", "fork_join", "leaf", "list"}).Draw(g.t, "kind")
	if depth > 1 {
		kind = "agent"
	}
	s := object{"type": kind}
	before := slices.Clip(g.known)
	switch kind {
	case "agent":
		s["agent_name"] = "a"
		s["input_mapping"] = object{"v": g.value(), "w": rapid.SampledFrom([]any{"${workflow.input.o.two words}", "open ${", "${workflow.input.list}"}).Draw(g.t, "old")}
	case "parallel":
		var children []string
		for range 2 {
			child := g.graphStep(steps, depth+1)
			child["next_step"] = "nowhere else"
			delete(child, "next_step")
			children = append(children, child["id"].(string))
			g.known = before
		}
		s["parallel_steps"], s["max_parallelism"] = children, rapid.SampledFrom([]any{nil, 1, 2}).Draw(g.t, "most")
	case "conditional":
		s["condition"] = rapid.SampledFrom([]any{
			object{"expression": "${workflow.input.x} > 0.5"},
			object{"expression": "not ${workflow.input.s} or ${workflow.input.x} == true"},
			object{"expression": "${workflow.input.s} > 3"},
			object{"expression": "${workflow.input.list} contains 'a' and len(${workflow.input.list}) > 1"},
			"workflow.input.x == 1",
		}).Draw(g.t, "condition")
		s["if_true_step"] = g.path(steps, "", depth+1)
		g.known = before
		if rapid.Bool().Draw(g.t, "else") {
			s["if_false_step"] = g.path(steps, "", depth+1)
			g.known = before
		}
	case "group":
		s["steps"] = g.apart(depth + 1)
	case "loop":
		s["loop_config"] = object{
			"collection": "${workflow.input.list}", "loop_body": g.ids(steps, depth+1),
			"execution_mode": rapid.SampledFrom([]any{nil, "sequential", "parallel"}).Draw(g.t, "mode"),
			"on_error":       rapid.SampledFrom([]any{nil, "stop", "continue", "collect"}).Draw(g.t, "item_errors"),
			"max_iterations": rapid.SampledFrom([]any{nil, 1}).Draw(g.t, "iterations"),
		}
	case "fork_join":
		s["fork_join_config"] = object{
			"branches":    object{"x": object{"steps": g.ids(steps, depth+1), "timeout_seconds": 60.5}, "y": object{"steps": g.ids(steps, depth+1)}},
			"join_policy": rapid.SampledFrom([]any{nil, "all", "any", "majority", "n_of_m"}).Draw(g.t, "join"), "n_required": 1,
		}
	case "leaf":
		s = g.leaf()
		s["type"] = g.kindOf(s)
	case "list":
		s = g.composite(rapid.SampledFrom([]string{"then", "switch", "each", "repeat", "fork", "parallel"}).Draw(g.t, "kind"), depth+1)
		s["type"] = g.kindOf(s)
	}
	g.common(s)
	steps[s["id"].(string)] = s
	g.known = append(before, s["id"].(string))
	return s
}

// ids adds steps that a member names one by one.
func (g *gen) ids(steps object, depth int) (ids []string) {
	before := slices.Clip(g.known)
	defer func() { g.known = before }()
	for range rapid.IntRange(1, 2).Draw(g.t, "ids") {
		ids = append(ids, g.graphStep(steps, depth)["id"].(string))
	}
	return ids
}

// kindOf gives the kind of a step as the list form sees it.
func (g *gen) kindOf(s object) workflow.Kind {
	tree, problems := workflow.ReadTree(workflow.ParseOptions{}, g.bytes(s))
	if tree == nil {
		g.t.Fatal(problems)
	}
	return workflow.KindOf(tree, false)
}
