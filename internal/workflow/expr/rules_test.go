package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parley-project/parley"
)

func TestE1_TheWholeStringKeepsItsTypeAndTextTakesScalars(t *testing.T) {
	d := document{
		input: `{"s":"a\"b\\\u00e9","n":12.50,"i":3,"t":true,"null":null,"list":[1],"obj":{"b":1,"a":2}}`,
		steps: map[string]StepInfo{"a": done(`{"text":"hi"}`)},
	}
	c := d.compiler(t)
	for _, tc := range []struct{ name, template, want string }{
		{"literal", `{"a": [1, "x", "$", "{}", "a } b"]}`, `{"a": [1, "x", "$", "{}", "a } b"]}`},
		{"whole string", one("workflow.input.s"), `"a\"b\\\u00e9"`},
		{"whole number", one("workflow.input.n"), `12.50`},
		{"whole boolean", one("workflow.input.t"), `true`},
		{"whole null", one("workflow.input.null"), `null`},
		{"whole list", one("workflow.input.list"), `[1]`},
		{"whole object", one("workflow.input.obj"), `{"b":1,"a":2}`},
		{"string in text", quote("<${workflow.input.s}>"), `"<a\"b\\é>"`},
		{"number in text", quote("n=${workflow.input.n}"), `"n=12.50"`},
		{"CEL number in text", quote("n=${workflow.input.n * 2}"), `"n=25"`},
		{"CEL double in text", quote("n=${10.0 / 4}"), `"n=2.5"`},
		{"boolean in text", quote("${workflow.input.t}!"), `"true!"`},
		{"CEL boolean in text", quote("${workflow.input.i > 2}!"), `"true!"`},
		{"timestamp in text", quote("at ${now}"), `"at 2026-11-21T10:04:05.6Z"`},
		{"two", quote("${workflow.input.i}${a.output.text}"), `"3hi"`},
		{"three", quote("${workflow.input.i} and ${a.output.text} and ${workflow.input.t}"), `"3 and hi and true"`},
		{"brace in a CEL string", one(`"}" + '{' + "\"}"`), `"}{\"}"`},
		{"brace in a triple string", one(`"""}"{"""`), `"}\"{"`},
		{"brace in a raw string", one(`r"\}" + r'\'`), `"\\}\\"`},
		{"quote in a comment", one("1 // it's one\n"), `1`},
		{"comments and strings", quote("a${'//}' // don't\n + \"}\" // \" '\n}b"), `"a//}}b"`},
		{"division", one("4 / 2 / size('}')"), `2`},
		{"comment to the end", one("1 // and a slash /"), `1`},
		{"map literal", one(`{"a": {"b": 1}}`), `{"a":{"b":1}}`},
		{"escaped opening", quote(`${"${"}x}`), `"${x}"`},
		{"escaped opening alone", one(`"${"`), `"${"`},
		{"opening written as escapes", `"\u0024\u007bworkflow.input.i\u007d"`, `3`},
		{"nested", `{"a":["x",{"b":"${workflow.input.i}"}],"c":"${workflow.input.t}"}`, `{"a":["x",{"b":3}],"c":true}`},
		{"member names are no templates", `{"${workflow.input.i}":1}`, `{"${workflow.input.i}":1}`},
		{"space around", quote("${ workflow.input.n }"), `12.50`},
		{"unicode text", quote("Größe ${workflow.input.i} 😀"), `"Größe 3 😀"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := evalTemplate(t, c, tc.template, At{}, d.scope())
			if err != nil || got != tc.want {
				t.Errorf("%s = %s, %v; want %s", tc.template, got, err, tc.want)
			}
		})
	}
}

func TestE1_TextRefusesNullListsAndObjects(t *testing.T) {
	d := document{input: `{"nil":null,"list":[],"obj":{}}`}
	c := d.compiler(t)
	for member, kind := range map[string]string{"nil": "null", "list": "a list", "obj": "an object"} {
		for _, expression := range []string{"workflow.input." + member, "[workflow.input." + member + "][0]"} {
			_, err := evalTemplate(t, c, `{"deep":{"n":`+quote("x ${"+expression+"}")+`}}`, At{}, d.scope())
			wantError(t, err, parley.CodeExpression,
				"Cannot resolve '${"+expression+"}' in field 'deep.n': "+kind+" cannot stand inside text")
		}
	}
	_, err := evalTemplate(t, c, quote("x ${optional.none()}"), At{}, d.scope())
	wantError(t, err, parley.CodeExpression, "null cannot stand inside text")
}

func TestE1_UnclosedIsAnErrorInListFormAndTextInGraphForm(t *testing.T) {
	d := document{input: `{}`}
	for _, text := range []string{"a ${workflow.input", `a ${"}`, "${", `${ {"a": 1}`} {
		x, findings := d.compiler(t).Template(json.RawMessage(`{"a":`+quote(text)+`}`), At{})
		wantFinding(t, findings, Finding{Code: CodeSyntax, Text: "never closed", Suggestion: `${"${"}`})
		if x != nil || findings[0].Pointer != "/a" || findings[0].Offset != strings.Index(text, "${") {
			t.Errorf("%s: %v, finding %+v", text, x, findings[0])
		}
		got, err := evalTemplate(t, d.compiler(t, graph), quote(text), At{}, d.scope())
		if err != nil || got != quote(text) {
			t.Errorf("%s in graph form = %s, %v", text, got, err)
		}
	}
}

func TestE1_AllFindingsComeAtOnceWithTheirPlace(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"a": done("1")}}
	_, findings := d.compiler(t).Template(json.RawMessage(
		`{"x":"ok ${b.output} and ${1 +}","y/z":["${a.output}", "é ${nope}"]}`,
	), At{})
	var got []string
	for _, f := range findings {
		got = append(got, fmt.Sprintf("%s@%d %s", f.Pointer, f.Offset, f.Code))
	}
	want := []string{"/x@3 reference", "/x@19 syntax", "/y~1z/1@3 reference"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestE1_TemplatesThatAreNoJSONAreRefused(t *testing.T) {
	c := document{}.compiler(t)
	for template, text := range map[string]string{
		``: "ends too early", `{"a":1`: "too early", `{"a":1,"a":2}`: "stands twice", `"a" 1`: "follows the value",
		"\"\xff\"": "UTF-8", `{a}`: "unexpected",
	} {
		x, findings := c.Template(json.RawMessage(template), At{})
		if x != nil {
			t.Errorf("%q compiled", template)
		}
		wantFinding(t, findings, Finding{Code: CodeSyntax, Text: text})
	}
	_, findings := c.Template(json.RawMessage(strings.Repeat("[", 65)+strings.Repeat("]", 65)), At{})
	wantFinding(t, findings, Finding{Code: CodeLimit, Text: "json_depth"})
}

func TestE2_PathsAreToldFromCEL(t *testing.T) {
	d := document{
		input: `{"a-b":1,"$x":2,"@y":3,"größe":4,"list":[{"k":[5,6]}],"with space":7,"n":8}`,
		steps: map[string]StepInfo{
			"step-1": done(`{"output":{"a-b":9,"n":10.0}}`), "a": done(`{"n":10.50,"output":11}`), "1": done("12"),
		},
	}
	c := d.compiler(t)
	for _, tc := range []struct {
		expression string
		isPath     bool
		want       string
	}{
		{"workflow.input.a-b", true, "1"},
		{"workflow.input.$x", true, "2"},
		{"workflow.input.@y", true, "3"},
		{"workflow.input.größe", true, "4"},
		{"workflow.input.list[0].k[1]", true, "6"},
		{"workflow.input", true, d.input},
		{"step-1.output.output.a-b", true, "9"},
		{"steps.step-1.output.output.n", true, "10.0"},
		{"step-1.output", true, `{"output":{"a-b":9,"n":10.0}}`},
		{"a.output.output", true, "11"},
		{"1.output", true, "12"},
		{"a.output.n", true, "10.50"},
		{"a.output.n+1", false, "11.5"},
		{"a.output.n - 1", false, "9.5"},
		{"(a.output.n)", false, "10.5"},
		{`workflow.input["with space"]`, false, "7"},
		{`steps["step-1"].output.output["a-b"]`, false, "9"},
		{`a.output["n"]`, false, "10.5"},
	} {
		x, findings := c.expression(tc.expression, At{})
		if x == nil {
			t.Errorf("%s: %+v", tc.expression, findings)
			continue
		}
		if _, isPath := x.(*pathExpr); isPath != tc.isPath {
			t.Errorf("%s is a path: %v", tc.expression, isPath)
		}
		if got, f := x.json(d.scope()); f != nil || string(got) != tc.want {
			t.Errorf("%s = %s, %v; want %s", tc.expression, got, f, tc.want)
		}
	}
	for _, text := range []string{
		"workflow.inputs", "workflow.input.", "workflow.input..a", "workflow.input[", "workflow.input[]", "workflow.input[-1]",
		"workflow.input[1234567890]", "workflow.input[a]", "b.output", "output", ".output", "a.outputs", "a.output.n!", "steps.output",
	} {
		if p, ok := parsePath(text, c.isStep, false); ok {
			t.Errorf("%s is a path: %+v", text, p)
		}
	}
}

func TestE2_GraphFormReadsOldPaths(t *testing.T) {
	d := document{
		input: `{"first name":"Ada","it's":2,"a:b":3,"x/y":{"k 2":[4]},"n":5,"\"q":6}`,
		steps: map[string]StepInfo{"step one": done(`{"full text":"hi"}`), "a.b": done("7"), "a": done(`{"k":8}`)},
	}
	c := d.compiler(t, graph)
	for template, want := range map[string]string{
		"${workflow.input.first name}":                                  `"Ada"`,
		"Dear ${workflow.input.first name}!":                            `"Dear Ada!"`,
		"${workflow.input.it's}":                                        `2`,
		"${workflow.input.it's} + ${workflow.input.it's}":               `"2 + 2"`,
		"${workflow.input.a:b}":                                         `3`,
		"${workflow.input.x/y.k 2[0]}":                                  `4`,
		"${step one.output.full text}":                                  `"hi"`,
		"${steps.step one.output.full text}":                            `"hi"`,
		"${a.b.output}":                                                 `7`,
		"${workflow.input.n + 1}":                                       `6`,
		`${workflow.input.n == 5 ? "}" : '{'}`:                          `"}"`,
		`${workflow.input."q}`:                                          `6`,
		`${a.output.k}`:                                                 `8`,
		`${"${"} ${a.output.k}`:                                         `"${ 8"`,
		`${ {"a": workflow.input.n} } is a map, ${workflow.input.it's}`: ``,
	} {
		x, findings := c.Template(json.RawMessage(quote(template)), At{})
		if x == nil {
			t.Errorf("%s: %+v", template, findings)
			continue
		}
		got, err := x.Eval(d.scope())
		if want == "" {
			wantError(t, err, parley.CodeExpression, "an object cannot stand inside text")
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%s = %s, %v; want %s", template, got, err, want)
		}
	}
	_, findings := d.compiler(t).Template(json.RawMessage(quote("${workflow.input.first name}")), At{})
	if !failed(findings) {
		t.Errorf("list form reads an old path: %+v", findings)
	}
	_, findings = c.Template(json.RawMessage(quote("${workflow.input.first name}")), At{})
	wantFinding(t, findings, Finding{Code: CodeExpression, Warning: true, Text: "read as a path"})
}

func TestE2_UnknownStepsAreErrorsAndInGraphFormWarnings(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"step-1": done("1")}}
	for _, expression := range []string{"step-2.output.x", "steps.step-2.output", `steps["step-2"].output`} {
		x, findings := d.compiler(t).Template(json.RawMessage(one(expression)), At{})
		want := Finding{Code: CodeReference, Text: `there is no step "step-2"`, Suggestion: `"step-1"`}
		if wantFinding(t, findings, want); x != nil {
			t.Errorf("%s compiled in list form", expression)
		}
		x, findings = d.compiler(t, graph).Template(json.RawMessage(`{"n":`+one(expression)+`}`), At{})
		want.Warning = true
		if wantFinding(t, findings, want); x == nil {
			t.Fatalf("%s does not compile in graph form", expression)
		}
		_, err := x.Eval(d.scope())
		wantError(t, err, parley.CodeExpression, "Cannot resolve '${"+expression+"}' in field 'n': there is no step")
	}
	_, findings := d.compiler(t, graph).Template(json.RawMessage(one("1 + 'a'")), At{})
	wantFinding(t, findings, Finding{Code: CodeExpression, Text: "cannot be applied"})
}

func TestE3_MissingIsAnErrorNullIsNull(t *testing.T) {
	d := document{
		input: `{"a":{"b":null,"list":[1,[2]]},"s":"x"}`,
		steps: map[string]StepInfo{
			"done":    done(`{"k":1}`),
			"nothing": {Status: parley.StepCompleted},
			"handled": {Status: parley.StepFailed, Handled: true, Output: json.RawMessage(`{"k":2}`)},
			"failed":  {Status: parley.StepFailed, Output: json.RawMessage(`{"k":3}`)},
			"skipped": {Status: parley.StepSkipped},
			"waiting": {Status: parley.StepPending},
		},
	}
	c := d.compiler(t)
	for expression, want := range map[string]string{
		"workflow.input.a.b": "null", "done.output.k": "1", "handled.output.k": "2", "nothing.output": "null",
		"failed.output": "null", "skipped.output": "null", "waiting.output": "null", "workflow.input.a.list[1][0]": "2",
	} {
		if got, err := evalTemplate(t, c, one(expression), At{}, d.scope()); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
	for expression, text := range map[string]string{
		"workflow.input.absent":       "Field 'absent' not found",
		"workflow.input.a.b.c":        "Field 'c' not found (null has no members)",
		"workflow.input.s.c":          "Field 'c' not found (a string has no members)",
		"workflow.input.a.list.c":     "Field 'c' not found (a list has no members)",
		"workflow.input.a.list[2]":    "Index 2 not found (the list has 2 items)",
		"workflow.input.a[0]":         "Index 0 not found (an object has no items)",
		"workflow.input.a.list[1][1]": "Index 1 not found (the list has 1 item)",
		"failed.output.k":             `Field 'k' not found: step "failed" has no output (it is FAILED)`,
		"skipped.output.k":            `Field 'k' not found: step "skipped" has no output (it is SKIPPED)`,
		"waiting.output[0]":           `Index 0 not found: step "waiting" has no output (it is PENDING)`,
		"nothing.output.k":            "Field 'k' not found (null has no members)",
	} {
		_, err := evalTemplate(t, c, `{"n":`+one(expression)+`}`, At{}, d.scope())
		wantError(t, err, parley.CodeExpression, "Cannot resolve '${"+expression+"}' in field 'n': "+text)
	}
	_, err := evalTemplate(t, c, one("workflow.input.absent"), At{}, d.scope())
	wantError(t, err, parley.CodeExpression, "Cannot resolve '${workflow.input.absent}': Field 'absent' not found")
	if s := d.scope(); s != nil {
		s.Step = nil
		_, err = evalTemplate(t, c, one("done.output"), At{}, s)
		wantError(t, err, parley.CodeExpression, `step "done" is not visible from here`)
	}
}

func TestE3_OfTwinMembersTheLastCounts(t *testing.T) {
	d := document{input: `{"a":1,"b":{"x":1},"\u0061":2,"b":{"x":3}}`}
	c := d.compiler(t)
	for expression, want := range map[string]string{
		"workflow.input.a": "2", "workflow.input.b.x": "3", "workflow.input.a + 0": "2", "size(workflow.input)": "2",
		"dyn(workflow.input)['b'].x + 0": "3",
	} {
		if got, err := evalTemplate(t, c, one(expression), At{}, d.scope()); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
}

func TestE4_Names(t *testing.T) {
	failure := &parley.Error{
		Code: "agent_error", Message: "no", Step: "b", Attempt: 2, Retryable: true,
		Details: json.RawMessage(`{"k":[1]}`), Cause: &parley.Error{Code: "timeout", Message: "late"},
	}
	d := document{input: `{"i":1}`, steps: map[string]StepInfo{
		"a": {Status: parley.StepCompleted, Output: json.RawMessage(`{"n":1}`), Attempts: 2, StartedAt: testTime, EndedAt: testTime},
		"b": {Status: parley.StepFailed, Handled: true, Error: failure}, "step-1": done("1"), "for": done("2"),
		"int": done("3"), "type": done("4"), "math": done("5"), "optional": done("6"), "size": done("7"), "cel": done("8"),
	}}
	c := d.compiler(t)
	s := d.scope()
	s.Result, s.Error, s.Run.Outcome, s.Run.Error = json.RawMessage(`{"r":1}`), failure, "FAILED", failure
	at := At{Result: true, Error: true, Outcome: true}
	for expression, want := range map[string]string{
		`[workflow.id, workflow.name, workflow.version]`: `["wf-1","Test","3"]`,
		`workflow.input.i + 1`:                           `2`,
		`workflow`:                                       `{"id":"wf-1","input":{"i":1},"name":"Test","version":"3"}`,
		`[steps.a.status, a.status]`:                     `["COMPLETED","COMPLETED"]`,
		`steps.a.attempts + a.output.n`:                  `3`,
		`[a.started_at, a.ended_at, b.started_at]`:       `["2026-11-21T10:04:05.6Z","2026-11-21T10:04:05.6Z",null]`,
		`[a.handled, b.handled]`:                         `[false,true]`,
		`a.case == null`:                                 `true`,
		`[a.error == null, b.error == null]`:             `[true,false]`,
		`b.error.code + b.error.cause.code`:              `"agent_errortimeout"`,
		`b.error.details.k[0] + b.error.attempt`:         `3`,
		`has(b.error.agent)`:                             `false`,
		`b.error.?agent.orValue("none")`:                 `"none"`,
		`b.error`: `{"attempt":2,"cause":{"attempt":0,"code":"timeout","message":"late","retryable":false,"step":""},` +
			`"code":"agent_error","details":{"k":[1]},"message":"no","retryable":true,"step":"b"}`,
		`run.id + run.labels.team + run.trigger`:       `"run-1blueapi"`,
		`run.deadline - run.started_at`:                `"3660s"`,
		`[run.scheduled_at, run.parent]`:               `[null,null]`,
		`run.outcome + run.error.code`:                 `"FAILEDagent_error"`,
		`now + duration("1s")`:                         `"2026-11-21T10:04:06.6Z"`,
		`result.r + 1`:                                 `2`,
		`error.message`:                                `"no"`,
		`steps["step-1"].output + steps["for"].output`: `3`,
		`steps[?"step-1"].?output.orValue(9)`:          `1`,
		`int.output + int("4") + math.output`:          `12`,
		`type(int.output) == int`:                      `true`,
		`math.greatest(1, math.output)`:                `5`,
		`optional.of(optional.output)`:                 `6`,
		`size.output + size([1])`:                      `8`,
		`cel.bind(x, cel.output, x + 1)`:               `9`,
		`[{"output": 5}].map(a, a.output)`:             `[5]`,
		`[{"output": 5}].map(int, int.output)`:         `[5]`,
		`a == steps.a && a != b`:                       `true`,
		`has(a.output) && !has(a.error)`:               `true`,
	} {
		if got, err := evalTemplate(t, c, one(expression), at, s); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
}

func TestE4_NamesOutOfScopeAreFindings(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"step-1": done("1"), "for": done("1"), "alpha": done("1")}}
	c := d.compiler(t)
	for _, tc := range []struct {
		expression string
		want       Finding
	}{
		{"result.x", Finding{Code: CodeExpression, Text: "`result` is in scope in the `output` of a step only"}},
		{"error.code", Finding{Code: CodeExpression, Text: "`error` is in scope in"}},
		{"run.outcome", Finding{Code: CodeExpression, Text: "`run.outcome` is in scope in `finally` only"}},
		{"has(run.error)", Finding{Code: CodeExpression, Text: "`run.error` is in scope in"}},
		{"each.item", Finding{Code: CodeExpression, Text: "`each` is in scope in loops only"}},
		{"event.data", Finding{Code: CodeExpression, Text: "`event` is in scope"}},
		{"plan.input.x + 1", Finding{Code: CodeExpression, Text: "`plan` is in scope in plans only"}},
		{"loop.item", Finding{Code: CodeReference, Text: "`loop.item` is in scope inside a loop only"}},
		{"loop.item.name[0]", Finding{Code: CodeReference, Text: "`loop.item` is in scope"}},
		{"plan.input.x", Finding{Code: CodeReference, Text: "`plan.input` is in scope inside a plan only"}},
		{"loop.index + 1", Finding{Code: CodeSyntax, Text: `"loop" is a reserved word`, Suggestion: "each"}},
		{"for.output + 1", Finding{Code: CodeSyntax, Text: `"for" is a reserved word`, Suggestion: `steps["for"]`}},
		{"alhpa.output + 1", Finding{Code: CodeReference, Text: `"alhpa"`, Suggestion: `did you mean "alpha"?`}},
		{"alpha.outptu", Finding{Code: CodeExpression, Text: `no member "outptu"`, Suggestion: `"output"`}},
		{"workflow.nmae", Finding{Code: CodeExpression, Text: `no member "nmae"`, Suggestion: `"name"`}},
		{"szie([])", Finding{Code: CodeExpression, Text: `"szie"`, Suggestion: `"size"`}},
		{"steps", Finding{Code: CodeExpression, Text: "must be followed by the id"}},
		{"steps[workflow.name].status", Finding{Code: CodeExpression, Text: "must be followed by the id"}},
		{"parley.Step{}", Finding{Code: CodeExpression, Text: "messages cannot be made here"}},
	} {
		x, findings := c.Template(json.RawMessage(one(tc.expression)), At{})
		if wantFinding(t, findings, tc.want); x != nil {
			t.Errorf("%s compiled", tc.expression)
		}
	}
	for _, expression := range []string{"workflow.id", "alpha.output", "run.id", "now", "alpha.output + 1", "steps.alpha.status"} {
		_, findings := c.Template(json.RawMessage(one(expression)), At{InputOnly: true})
		wantFinding(t, findings, Finding{Code: CodeExpression, Text: "only `workflow.input` is in scope here"})
	}
	for _, expression := range []string{"workflow.input", "workflow.input.x", "workflow.input.x + 1", "[1].map(alpha, alpha)"} {
		if _, findings := c.Template(json.RawMessage(one(expression)), At{InputOnly: true}); len(findings) > 0 {
			t.Errorf("%s: %+v", expression, findings)
		}
	}
}

func TestE5_VisibilityAndRefs(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"a": done("1"), "b": done("2"), "step-1": done("3"), "c": done("4")}}
	at := At{Visible: func(id string) (bool, string) {
		return id != "b", fmt.Sprintf("%q is not surely finished before \"x\"", id)
	}}
	want := Finding{Code: CodeReference, Text: `"b" is not surely finished before "x"`}
	for _, expression := range []string{
		"b.output", "steps.b.output.x", "b.output + 1", "steps.b.status", `steps["b"].output`, "has(b.output.x)", "b.?output",
		"[1].exists(x, x == b.output)", "cel.bind(y, b, y.output)", "{'k': [b.status]}", "[b.output].map(a, a)",
	} {
		x, findings := d.compiler(t).Template(json.RawMessage(one(expression)), at)
		if wantFinding(t, findings, want); x != nil {
			t.Errorf("%s compiled", expression)
		}
		if _, findings = d.compiler(t).Condition(expression, at); !failed(findings) {
			t.Errorf("condition %s: %+v", expression, findings)
		}
	}
	want.Warning = true
	_, findings := d.compiler(t, graph).Template(json.RawMessage(one("b.output.x")), at)
	wantFinding(t, findings, want)

	for template, refs := range map[string][]string{
		`{"x":"${c.output} ${a.output.n}","y":"${steps.a.status}"}`: {"a", "c"},
		one("step-1.output"): {"step-1"},
		one(`steps["step-1"].status == a.status || [1].exists(c, c > 1)`): {"a", "step-1"},
		`"x"`: nil,
	} {
		x, findings := d.compiler(t).Template(json.RawMessage(template), at)
		if x == nil {
			t.Fatalf("%s: %+v", template, findings)
		}
		if !slices.Equal(x.Refs(), refs) || x.Literal() != (refs == nil) {
			t.Errorf("%s refers to %v, literal %v", template, x.Refs(), x.Literal())
		}
	}
	condition, findings := d.compiler(t).Condition("c.output > a.output && a.output > 0", at)
	if condition == nil || !slices.Equal(condition.Refs(), []string{"a", "c"}) {
		t.Errorf("condition %v, %+v", condition, findings)
	}
}

func TestE5_StepsThatHaveNotRun(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{
		"p": {Status: parley.StepPending}, "s": {Status: parley.StepSkipped}, "x": {Status: parley.StepCancelled},
		"f": {Status: parley.StepFailed, Output: json.RawMessage("1")},
		"h": {Status: parley.StepFailed, Output: json.RawMessage("2"), Handled: true},
	}}
	got, err := evalTemplate(t, d.compiler(t), one("[p, s, x, f, h].map(v, [v.status, v.output])"), At{}, d.scope())
	if want := `[["PENDING",null],["SKIPPED",null],["CANCELLED",null],["FAILED",null],["FAILED",2]]`; err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
	hidden := d.scope()
	hidden.Step = func(string) (StepInfo, bool) { return StepInfo{}, false }
	_, err = evalTemplate(t, d.compiler(t), one("p.status + ''"), At{}, hidden)
	wantError(t, err, parley.CodeExpression, `step "p" is not visible from here`)
}
