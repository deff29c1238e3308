package expr

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// loopScope stands in the second of three iterations of a loop in the last of
// two iterations of a repeat, in a plan, with an event.
func loopScope(d document) (*Scope, At) {
	s := d.scope()
	previous := map[string]StepInfo{
		"critic": done(`{"score":0.5,"notes":"shorter"}`), "write": {Status: parley.StepSkipped},
	}
	s.Each = &EachInfo{
		Item: json.RawMessage(` {"name":"x","n":12.50,"list":[1,{"a-b":12345678901234567890}]} `), Index: 1, Total: 3,
		Previous: &PreviousInfo{IDs: []string{"write", "critic"}, Step: func(id string) (StepInfo, bool) {
			info, ok := previous[id]
			return info, ok
		}},
		Parent: &EachInfo{Index: 1, Total: 2, Last: true},
	}
	s.Event = json.RawMessage(`{"id":"e-1","name":"paid","key":"o-7","data":{"amount":12.5},"time":"2026-11-21T10:04:05Z"}`)
	s.PlanInput = json.RawMessage(`{"goal":"sort","n":1.50}`)
	return s, At{Each: []LoopAt{{}, {}}, Event: true, Plan: true}
}

func loopDocument() document {
	return document{input: `{"n":1}`, steps: map[string]StepInfo{
		"critic": {Status: parley.StepPending}, "write": {Status: parley.StepPending}, "step-1": done("1"),
	}}
}

func TestE2_LoopAndPlanPathsAreReadAsTheyStand(t *testing.T) {
	d := loopDocument()
	s, at := loopScope(d)
	for expression, want := range map[string]string{
		"loop.item":             `{"name":"x","n":12.50,"list":[1,{"a-b":12345678901234567890}]}`,
		"loop.item.name":        `"x"`,
		"loop.item.n":           `12.50`,
		"loop.item.list[1].a-b": `12345678901234567890`,
		"each.item.list[1].a-b": `12345678901234567890`,
		"each.item.n":           `12.50`,
		"loop.index":            `1`,
		"each.index":            `1`,
		"loop.total":            `3`,
		"loop.is_first":         `false`,
		"loop.is_last":          `false`,
		"plan.input":            `{"goal":"sort","n":1.50}`,
		"plan.input.n":          `1.50`,
		"plan.input.n + 1":      `2.5`,
	} {
		for _, form := range [][]func(*Options){nil, {graph}} {
			x, findings := d.compiler(t, form...).expression(expression, at)
			if x == nil || len(findings) > 0 {
				t.Errorf("%s: %+v", expression, findings)
				continue
			}
			if _, isPath := x.(*pathExpr); isPath == strings.Contains(expression, " ") {
				t.Errorf("%s is a path: %v", expression, isPath)
			}
			if got, f := x.json(s); f != nil || string(got) != want {
				t.Errorf("%s = %s, %v; want %s", expression, got, f, want)
			}
		}
	}
	got, err := evalTemplate(t, d.compiler(t), quote("${loop.index} of ${each.total}: ${loop.item.name}, ${plan.input.goal}"), at, s)
	if want := `"1 of 3: x, sort"`; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestE2_StepsNamedLikeLoopsAreSteps(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{
		"loop": done(`{"item":1}`), "each": done(`{"item":2}`), "each.item": done(`{"item":3}`), "plan": done(`{"input":4}`),
	}}
	s, at := loopScope(d)
	c := d.compiler(t, graph)
	for expression, want := range map[string]string{
		"loop.output.item": "1", "each.output.item": "2", "each.item.output.item": "3", "plan.output.input": "4", "loop.index": "1",
	} {
		if got, err := evalTemplate(t, c, one(expression), at, s); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
}

func TestE3_MissingMembersOfItemsAndPlanInputAreErrors(t *testing.T) {
	d := loopDocument()
	s, at := loopScope(d)
	c := d.compiler(t)
	for expression, text := range map[string]string{
		"loop.item.absent":      "Field 'absent' not found",
		"loop.item.name.x":      "Field 'x' not found (a string has no members)",
		"each.item.list[2]":     "Index 2 not found (the list has 2 items)",
		"plan.input.absent":     "Field 'absent' not found",
		"plan.input.absent + 1": "no such key: absent",
	} {
		_, err := evalTemplate(t, c, `{"n":`+one(expression)+`}`, at, s)
		wantError(t, err, parley.CodeExpression, "Cannot resolve '${"+expression+"}' in field 'n': "+text)
	}
	s.Each.Item, s.PlanInput, s.Event = nil, nil, nil // a repeat, a plan without input
	for expression, want := range map[string]string{
		"loop.item": "null", "each.item == null": "true", "plan.input": "null", "plan.input == null": "true", "event == null": "true",
	} {
		if got, err := evalTemplate(t, c, one(expression), at, s); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
	_, err := evalTemplate(t, c, one("loop.item.name"), at, s)
	wantError(t, err, parley.CodeExpression, "Field 'name' not found (null has no members)")
	s.Each = nil
	_, err = evalTemplate(t, c, one("loop.index"), at, s)
	wantError(t, err, parley.CodeExpression, "loop.index is in scope inside a loop only")
	_, err = evalTemplate(t, c, one("each.index + 1"), at, s)
	wantError(t, err, parley.CodeExpression, `null has no member "index"`)
}

func TestE4_Each(t *testing.T) {
	d := loopDocument()
	s, at := loopScope(d)
	c := d.compiler(t)
	first := *s.Each
	first.Previous, first.Index, first.First = nil, 0, true
	begin := *s
	begin.Each = &first
	for _, tc := range []struct {
		scope            *Scope
		expression, want string
	}{
		{s, "each.index + each.total + each.parent.index", "5"},
		{s, "[each.is_first, each.is_last, each.parent.is_last]", "[false,false,true]"},
		{s, "each.item.n * 2", "25"},
		{s, "[each.parent.item, each.parent.previous, each.parent.parent]", "[null,null,null]"},
		{s, "each.parent.?item.?name.orValue('none')", `"none"`},
		{s, "each.parent.parent.?item.orValue('none')", `"none"`},
		{s, "each.previous.critic.output.score + 0.25", "0.75"},
		{s, "each.previous['critic'].status", `"COMPLETED"`},
		{s, "[each.previous.write.status, each.previous.write.output, steps.write.status]", `["SKIPPED",null,"PENDING"]`},
		{s, `each.previous.?critic.?output.?notes.orValue("")`, `"shorter"`},
		{s, `each.previous.?write.?output.?notes.orValue("none")`, `"none"`},
		{s, "each.previous.map(id, id)", `["critic","write"]`},
		{s, "has(each.previous) && has(each.previous.critic)", "true"},
		{s, "[1].map(each, each + 1)", "[2]"},
		{&begin, "each.previous == null && each.is_first", "true"},
		{&begin, "has(each.previous)", "false"},
		{&begin, `each.previous.?critic.?output.?notes.orValue("")`, `""`},
		{&begin, "each", `{"index":0,"is_first":true,"is_last":false,"item":` + string(trim(s.Each.Item)) +
			`,"parent":{"index":1,"is_first":false,"is_last":true,"item":null,"parent":null,"previous":null,"total":2},"previous":null,"total":3}`},
	} {
		x, findings := c.Template(json.RawMessage(one(tc.expression)), at)
		if x == nil || len(findings) > 0 {
			t.Errorf("%s: %+v", tc.expression, findings)
			continue
		}
		if got, err := x.Eval(tc.scope); err != nil || string(got) != tc.want {
			t.Errorf("%s = %s, %v; want %s", tc.expression, got, err, tc.want)
		}
		if refs := x.Refs(); len(refs) > 0 && !strings.Contains(tc.expression, "steps.") {
			t.Errorf("%s refers to %v", tc.expression, refs)
		}
	}
	_, err := evalTemplate(t, c, one("each.previous.critic.status"), at, &begin)
	wantError(t, err, parley.CodeExpression, "no such key")
}

func TestE4_EachFindings(t *testing.T) {
	d := loopDocument()
	c := d.compiler(t, func(o *Options) {
		o.StepSchemas = map[string]json.RawMessage{
			"critic": json.RawMessage(`{"type":"object","properties":{"notes":{}},"additionalProperties":false}`),
		}
	})
	for _, tc := range []struct {
		expression string
		at         At
		want       Finding
	}{
		{"each.item.x", At{}, Finding{Code: CodeExpression, Text: "`each` is in scope in loops only"}},
		{"each.item.x + 1", At{}, Finding{Code: CodeExpression, Text: "`each` is in scope in loops only"}},
		{"each.indx + 1", At{Each: []LoopAt{{}}}, Finding{Code: CodeExpression, Text: `no member "indx"`, Suggestion: `"index"`}},
		{"loop.index.x", At{Each: []LoopAt{{}}}, Finding{Code: CodeReference, Text: "`loop.index` has no members"}},
		{"loop.index + 1", At{Each: []LoopAt{{}}}, Finding{Code: CodeSyntax, Text: `"loop" is a reserved word`, Suggestion: "each"}},
		{"each.parent.item", At{Each: []LoopAt{{}}}, Finding{Code: CodeExpression, Text: "`each.parent` of the outermost loop is null"}},
		{"each.parent.parent.index", At{Each: []LoopAt{{}, {}}}, Finding{Code: CodeExpression, Text: "outermost loop is null"}},
		{"each.previous == null", At{Each: []LoopAt{{Parallel: true}}}, Finding{
			Code: CodeExpression, Text: "one iteration at a time only", Suggestion: "max_parallel",
		}},
		{"each.parent.previous.critic.output", At{Each: []LoopAt{{}, {Parallel: true}}}, Finding{Code: CodeExpression, Text: "one iteration at a time"}},
		{"each.previous.?crtic.?output", At{Each: []LoopAt{{}}}, Finding{Code: CodeReference, Text: `no step "crtic"`, Suggestion: `"critic"`}},
		{"each.previous.critic.outptu", At{Each: []LoopAt{{}}}, Finding{Code: CodeExpression, Text: `no member "outptu"`, Suggestion: `"output"`}},
		{"each.previous.critic.output.score", At{Each: []LoopAt{{}}}, Finding{
			Code: CodeExpression, Text: "the schema of `each.previous.critic.output` excludes \"score\"",
		}},
		{"each.index", At{Each: []LoopAt{{}}, InputOnly: true}, Finding{Code: CodeExpression, Text: "only `workflow.input` is in scope"}},
		{"event.data", At{Each: []LoopAt{{}}}, Finding{Code: CodeExpression, Text: "`event` is in scope in `match` and triggers only"}},
		{"plan.inptu", At{Plan: true}, Finding{Code: CodeExpression, Text: `no member "inptu"`, Suggestion: `"input"`}},
	} {
		x, findings := c.Template(json.RawMessage(one(tc.expression)), tc.at)
		if wantFinding(t, findings, tc.want); x != nil {
			t.Errorf("%s compiled", tc.expression)
		}
	}
	for _, expression := range []string{
		"each.parent == null", "each.parent.?item", "has(each.parent.item)", "each.previous.critic.output.notes", "each.previous[each.item]",
	} {
		if _, findings := c.Template(json.RawMessage(one(expression)), At{Each: []LoopAt{{}}}); len(findings) > 0 {
			t.Errorf("%s: %+v", expression, findings)
		}
	}
}

func TestE4_EventRunAndError(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"create": done(`{"total":12}`)}}
	s, at := loopScope(d)
	at.Error, at.Outcome = true, true
	s.Run.ScheduledAt, s.Run.Parent, s.Run.Outcome = testTime, "run-0", "COMPLETED"
	s.Error = &parley.Error{Code: "timeout", Message: "late"}
	c := d.compiler(t)
	for expression, want := range map[string]string{
		"event.data.amount >= steps.create.output.total": "true",
		"event.name + event.key + event.id":              `"paido-7e-1"`,
		"timestamp(event.time) < now":                    "true",
		"event.?data.?note.orValue('none')":              `"none"`,
		"event":                                          string(s.Event),
		"run.scheduled_at":                               `"2026-11-21T10:04:05.6Z"`,
		"now - run.scheduled_at":                         `"0s"`,
		"run.parent + '!'":                               `"run-0!"`,
		"[run.outcome, run.error]":                       `["COMPLETED",null]`,
		"has(run.error)":                                 "false",
		"error.code":                                     `"timeout"`,
	} {
		if got, err := evalTemplate(t, c, one(expression), at, s); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
	condition, findings := c.Condition("event.data.amount >= steps.create.output.total", At{Event: true})
	if condition == nil {
		t.Fatalf("%+v", findings)
	}
	if ok, err := condition.Eval(s); err != nil || !ok {
		t.Errorf("match is %v, %v", ok, err)
	}
	_, err := evalTemplate(t, c, one("event.data.absent > 1"), at, s)
	wantError(t, err, parley.CodeExpression, "no such key: absent")
}

func TestE10_StaticTypesOfLoops(t *testing.T) {
	c := loopDocument().compiler(t)
	at := At{Each: []LoopAt{{}}, Plan: true}
	for expression, text := range map[string]string{
		"each.index + 'a'":        "+ cannot be applied to",
		"each.is_first > 1":       "cannot be applied to",
		"each.parent.total + 'a'": "+ cannot be applied to",
	} {
		x, findings := c.Template(json.RawMessage(one(expression)), at)
		if x != nil || !strings.Contains(findings[0].Text, text) {
			t.Errorf("%s: %+v", expression, findings)
		}
	}
	_, findings := c.Condition("each.index + 1", at)
	wantFinding(t, findings, Finding{Code: CodeExpression, Text: "a condition gives bool, this gives int"})
}

func TestS10_PlansReferToTheirStepsAndInputOnly(t *testing.T) {
	d := document{input: `{"n":1}`, steps: map[string]StepInfo{"a": done(`{"n":12.50,"ok":true}`), "b": done("2")}}
	s, at := loopScope(d)
	at.PathsOnly = true
	c := d.compiler(t)
	for template, want := range map[string]string{
		one("a.output.n"):       "12.50",
		one("steps.a.output.n"): "12.50",
		one("plan.input.goal"):  `"sort"`,
		`{"t":` + quote("n=${a.output.n}, ${plan.input.goal}") + `}`: `{"t":"n=12.50, sort"}`,
		`"none"`: `"none"`,
	} {
		if got, err := evalTemplate(t, c, template, at, s); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", template, got, err, want)
		}
	}
	if x, findings := c.Condition("a.output.ok", at); x == nil {
		t.Errorf("condition: %+v", findings)
	}
	refused := Finding{Code: CodeExpression, Text: "a plan may refer to its own steps and to `plan.input`, and to nothing else"}
	for _, expression := range []string{
		"workflow.input.n", "workflow.id", "loop.item", "each.index", "a.output.n + 1", "1", `"${"`, "plan.input.n + 1", "event.data", "run.id", "steps.a.status",
	} {
		x, findings := c.Template(json.RawMessage(one(expression)), at)
		if wantFinding(t, findings, refused); x != nil {
			t.Errorf("%s compiled", expression)
		}
		if x, findings := c.Condition(expression, at); x != nil {
			t.Errorf("condition %s compiled: %+v", expression, findings)
		}
	}
	_, findings := c.OldCondition("1 == 1", at)
	wantFinding(t, findings, refused)
	_, findings = c.Template(json.RawMessage(one("c.output.n")), at)
	wantFinding(t, findings, Finding{Code: CodeReference, Text: `there is no step "c"`})
	if _, findings = c.Template(json.RawMessage(one("a.output.n + plan.input.n")), At{Plan: true}); len(findings) > 0 {
		t.Errorf("with expressions allowed: %+v", findings)
	}
}

// TestE5_OneTextInManyPlaces compiles the same text where it may stand and where
// it may not: what is known of the text does not carry over the place.
func TestE5_OneTextInManyPlaces(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"a": done("1")}}
	c := d.compiler(t)
	hidden := At{Visible: func(string) (bool, string) { return false, "not before this" }}
	for range 2 {
		for _, text := range []string{"a.output + 1", "each.index + a.output"} {
			if x, findings := c.Template(json.RawMessage(one(text)), At{Each: []LoopAt{{}}}); x == nil {
				t.Errorf("%s: %+v", text, findings)
			}
		}
		_, findings := c.Template(json.RawMessage(one("a.output + 1")), hidden)
		wantFinding(t, findings, Finding{Code: CodeReference, Text: "not before this"})
		_, findings = c.Template(json.RawMessage(one("each.index + a.output")), At{})
		wantFinding(t, findings, Finding{Code: CodeExpression, Text: "`each` is in scope in loops only"})
		for _, before := range []string{"", "text "} {
			_, findings = c.Template(json.RawMessage(quote(before+"${1 +}")), At{})
			if wantFinding(t, findings, Finding{Code: CodeSyntax, Text: "not CEL"}); findings[0].Offset != len(before) {
				t.Errorf("offset %d", findings[0].Offset)
			}
		}
	}
}

func TestE8_MissingMembersOfEachEventAndPlan(t *testing.T) {
	d := loopDocument()
	s, at := loopScope(d)
	c := d.compiler(t)
	for expression, text := range map[string]string{
		"each.item.absent > 1":                   "no such key: absent",
		"each.item.name.absent == 1":             "no such",
		"each.parent.item.x == 1":                "no such",
		"each.parent.previous.critic.status":     "no such",
		"each.previous.step_3.status":            "",
		"each.previous.write.output.notes == ''": "no such",
		"event.data.amount":                      "gives bool, this gave double",
		"plan.input.absent == 1":                 "no such key: absent",
	} {
		condition, findings := c.Condition(expression, at)
		if text == "" {
			wantFinding(t, findings, Finding{Code: CodeReference, Text: `there is no step "step_3"`})
			continue
		}
		if condition == nil {
			t.Errorf("%s: %+v", expression, findings)
			continue
		}
		got, err := condition.Eval(s)
		if wantError(t, err, parley.CodeExpression, text); got {
			t.Errorf("%s is true", expression)
		}
	}
	for expression, want := range map[string]bool{
		"each.item.?absent.orValue(0) > 1": false, "has(event.data.amount) && event.?key.hasValue()": true,
		"each.previous.?write.?output.?notes.orValue('') == ''": true, "each.parent.parent == null": true, "!has(plan.input.absent)": true,
	} {
		condition, findings := c.Condition(expression, at)
		if condition == nil {
			t.Fatalf("%s: %+v", expression, findings)
		}
		if got, err := condition.Eval(s); err != nil || got != want {
			t.Errorf("%s = %v, %v", expression, got, err)
		}
	}
}
