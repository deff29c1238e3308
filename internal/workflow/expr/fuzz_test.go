package expr

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

func fuzzDocument() document {
	return document{
		input: `{"n":1,"s":"x","list":[1,2.5,null],"o":{"a":{"b":"c"}}}`,
		steps: map[string]StepInfo{
			"a": done(`{"n":1.50,"text":"hi","list":[{"k":1}]}`), "step-1": done(`"x"`), "int": {Status: parley.StepFailed},
		},
	}
}

// FuzzTemplate: whatever the text, compiling ends, and what a template gives
// is one JSON value within the limits.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"${workflow.input.n}", "a ${a.output.text} b ${1 + 2}", `${"${"}`, "${", "${{}}", "${'}'}", `${r"\}"}`, "${[1,2].map(x, x)}",
		"${steps['step-1'].output}", "${int.output}", "${workflow.input.it's}", "${loop.item}", "${parse_json('[1]')}", "$${a}", "${a.?b}",
		"${'%s'.format([a.output])}", "${1 == 1.0}", "${\"\"\"}\"\"\"}", "${b'x'}", "${0x}", "${a\n}",
		"${loop.item.name} ${loop.index}", "${each.item.list[1]}", "${each.previous.?critic.?output.?notes.orValue('')}", "${[each]}",
		"${each.parent.parent.index}", "${event.data.amount + 1}", "${plan.input.goal}", "${plan.input.n - 1}", "${run.scheduled_at}",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	d := fuzzDocument()
	list, g := d.compiler(f), d.compiler(f, graph)
	scope, at := loopScope(d)
	f.Fuzz(func(t *testing.T, text string, graphForm bool) {
		c := list
		if graphForm {
			c = g
		}
		text = unquote([]byte(quote(text))) // what is not UTF-8 is no JSON text
		template := `{"k":` + quote(text) + `}`
		x, findings := c.Template(json.RawMessage(template), at)
		if (x == nil) != failed(findings) {
			t.Fatalf("template %v with findings %+v", x, findings)
		}
		for _, finding := range findings {
			if finding.Text == "" || finding.Code == "" || finding.Offset < 0 || finding.Offset > len(text) || finding.Pointer != "/k" {
				t.Errorf("finding %+v", finding)
			}
		}
		if x == nil {
			return
		}
		if x.Literal() && !strings.Contains(text, "${") {
			if got, err := x.Eval(scope); err != nil || string(got) != template {
				t.Errorf("literal %s gave %s, %v", template, got, err)
			}
			return
		}
		got, err := x.Eval(scope)
		if err != nil {
			if code := parley.CodeOf(err); code != parley.CodeExpression && code != parley.CodeLimit {
				t.Errorf("error %v", err)
			}
			return
		}
		if !json.Valid(got) || len(got) > maxValue {
			t.Errorf("%s gave %s", template, got)
		}
		again, err := x.Eval(scope)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s gave %s, then %s", template, got, again)
		}
	})
}

// FuzzCondition: conditions of both grammars compile or have findings, and
// evaluate to the same each time.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		"true", "workflow.input.n > 0", "${a.output.n == 1.5}", "${a.output.n} == 1.5", "not (1 in [1]) or len('x') == 1",
		"'a' contains ${workflow.input.list}", "None == null", "a.output", "1 < 2 < 3", "${workflow.input.o} == ${workflow.input.o}", "${}", "not",
		"event.data.amount > 1.5", "each.is_last || each.index > 1", "${loop.item.name} == 'x'", "has(each.previous.critic)", "${plan.input.n} > 1",
	} {
		f.Add(seed)
	}
	d := fuzzDocument()
	list, g := d.compiler(f), d.compiler(f, graph)
	scope, at := loopScope(d)
	f.Fuzz(func(t *testing.T, text string) {
		condition, findings := list.Condition(text, at)
		if (condition == nil) != failed(findings) {
			t.Fatalf("condition %v with findings %+v", condition, findings)
		}
		if condition != nil {
			a, errA := condition.Eval(scope)
			b, errB := condition.Eval(scope)
			if a != b || (errA == nil) != (errB == nil) {
				t.Errorf("%v, %v; then %v, %v", a, errA, b, errB)
			}
		}
		old, findings := g.OldCondition(text, at)
		if (old == nil) != failed(findings) {
			t.Fatalf("old condition %v with findings %+v", old, findings)
		}
		if old == nil {
			return
		}
		if value, warning := old.Eval(scope); value && warning != nil {
			t.Errorf("true with warning %v", warning)
		}
	})
}

// FuzzPath: the scanner agrees with the slow resolver, and no text makes it
// panic.
func FuzzPath(f *testing.F) {
	f.Add(`{"a":{"b":[1,2]}}`, "x.output.a.b[1]")
	f.Add(`{"a\u0062":"\\\""}`, "x.output.ab")
	f.Add(`[[],[{}]]`, "x.output[1][0]")
	f.Add(`{"a":1,"a":2}`, "x.output.a")
	f.Add(`{"a`, "steps.x.output.a")
	f.Add("\"\xff", "x.output[0]")
	f.Add(`{"a":[{"b-c":1.50}]}`, "loop.item.a[0].b-c")
	f.Add(`[1,2]`, "each.item[1]")
	f.Add(`{"a":1}`, "plan.input.a")
	f.Add(`{"a":1}`, "loop.index.a")
	known := func(id string) bool { return id == "x" }
	f.Fuzz(func(t *testing.T, value, text string) {
		old, okOld := parsePath(text, known, true)
		p, ok := parsePath(text, known, false)
		if ok && !okOld {
			t.Fatalf("%q is a path and no old path", text)
		}
		if !okOld {
			return
		}
		if p == nil {
			p = old
		}
		s := document{input: value, steps: map[string]StepInfo{"x": done(value)}}.scope()
		s.PlanInput, s.Each = json.RawMessage(value), &EachInfo{Item: json.RawMessage(value), Index: 7, Total: 8}
		got, fault := p.resolve(s)
		if p.root == rootLoop && p.name != "item" {
			value = map[string]string{"index": "7", "total": "8", "is_first": "false", "is_last": "false"}[p.name]
		}
		if !json.Valid([]byte(value)) {
			return
		}
		want, found := slowResolve(trim([]byte(value)), p.segments)
		if found != (fault == nil) || string(got) != string(trim(want)) {
			t.Fatalf("%s of %s = %s, %v; want %s", text, value, got, fault, want)
		}
	})
}

// FuzzParseJSON: what is accepted is valid, stands in the text as it was, and
// is accepted again.
func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{"1", " {} ", "```json\n[1]\n```", "```\n\n```", "{\"a\":1,\"a\":1}", "\"\\ud800\"", "``````", "\"\xff\"", "[[[[]]]]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseJSON(text)
		if err != nil {
			return
		}
		if !json.Valid(got) || !strings.Contains(text, string(got)) || depthOf(got) > maxDepth {
			t.Fatalf("%q gave %s", text, got)
		}
		again, err := ParseJSON(string(got))
		if err != nil || string(again) != string(got) {
			t.Fatalf("%s gave %s, %v", got, again, err)
		}
		if member(got, "a"); kindOf(got) == "nothing" {
			t.Fatal("no kind")
		}
	})
}
