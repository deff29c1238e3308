package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/parley-project/parley"
)

// table evaluates expressions; a want that starts with "error: " is part of
// the text of an error of code expression.
func table(t *testing.T, d document, cases map[string]string) {
	t.Helper()
	c := d.compiler(t)
	for expression, want := range cases {
		got, err := evalTemplate(t, c, one(expression), At{}, d.scope())
		if text, ok := strings.CutPrefix(want, "error: "); ok {
			if err == nil {
				t.Errorf("%s = %s, want an error", expression, got)
				continue
			}
			wantError(t, err, parley.CodeExpression, text)
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
		}
	}
}

// TestE6_WholeNumbersAreSortedAmongOthers: whether a score is 1 or 0.9 is a matter of
// chance, and both are numbers.
func TestE6_WholeNumbersAreSortedAmongOthers(t *testing.T) {
	table(t, document{
		input: `{"l":[0.8,1,0.5,-2,1e0],"max":[9223372036854775807,9223372036854775806,9.3e18],"huge":[1,1e999],"s":[{"n":"a","v":1},{"n":"b","v":0.5},{"n":"c","v":1.0}],
			"one":[null],"words":["b","a"],"mixed":[1,"a"],"objects":[{},{}],"many":[3,1,2,1,3,2,1,3,2,1,3,2,1,3,2]}`,
	}, map[string]string{
		"workflow.input.l.sort()":                               "[-2,0.5,0.8,1,1]",
		"workflow.input.l.sort().map(x, type(x) == int)":        "[true,false,false,true,false]",
		"workflow.input.max.sort()":                             "[9223372036854775806,9223372036854775807,9300000000000000000]",
		"[2, 1.5, 1u].sort()":                                   "[1,1.5,2]",
		"workflow.input.s.sortBy(x, x.v).map(x, x.n)":           `["b","a","c"]`,
		"workflow.input.s.sortBy(x, -x.v).map(x, x.n)":          `["a","c","b"]`,
		"lists.range(15).sortBy(i, workflow.input.many[i])":     "[1,3,6,9,12,2,5,8,11,14,0,4,7,10,13]",
		"workflow.input.words.sort()":                           `["a","b"]`,
		"[].sort() == [] && [].sortBy(x, x) == []":              "true",
		"workflow.input.mixed.sort()":                           "error: list elements must have the same type",
		"workflow.input.objects.sort()":                         "error: list elements must be comparable",
		"workflow.input.one.sort()":                             "error: list elements must be comparable",
		"workflow.input.huge.sort()":                            "error: out of range",
		"[1.0, 0.0 / 0.0].sort()":                               "error: NaN",
		"workflow.input.s.sortBy(x, x.none)":                    "error: no such key",
		"workflow.input.l.map(x, x * 2).sort()":                 "[-4,1,1.6,2,2]",
		"workflow.input.words.sortBy(x, size(x)) == ['b', 'a']": "true",
	})
}

func TestE6_NumbersMix(t *testing.T) {
	table(t, document{
		input: `{"i":3,"d":2.5,"whole":2.0,"e":1e2,"max":9223372036854775807,"big":9223372036854775808,"minus":-0,"huge":1e999}`,
	}, map[string]string{
		"[workflow.input.i, workflow.input.d, workflow.input.max].map(x, type(x) == int)": "[true,false,true]",
		"type(workflow.input.whole) == double && type(workflow.input.e) == double":        "true",
		"type(workflow.input.big) == double":                                              "true",
		"workflow.input.huge + 1":                                                         "error: out of range",
		"workflow.input.i + workflow.input.d":                                             "5.5",
		"workflow.input.d + workflow.input.i":                                             "5.5",
		"workflow.input.i - workflow.input.d":                                             "0.5",
		"workflow.input.d - workflow.input.i":                                             "-0.5",
		"workflow.input.i * workflow.input.d":                                             "7.5",
		"workflow.input.d * workflow.input.i":                                             "7.5",
		"workflow.input.i / workflow.input.d":                                             "1.2",
		"workflow.input.d / 5":                                                            "0.5",
		"1 + 2.5":                                                                         "3.5",
		"2.5 - 1":                                                                         "1.5",
		"2 * 2.5":                                                                         "5",
		"5 / 2.0":                                                                         "2.5",
		"5.0 / 2":                                                                         "2.5",
		"1 - 0.5 - 1":                                                                     "-0.5",
		"7 / 2":                                                                           "3",
		"workflow.input.i / 2":                                                            "1",
		"double(workflow.input.i) / 2":                                                    "1.5",
		"7 % 4":                                                                           "3",
		"workflow.input.max + 1":                                                          "error: overflow",
		"1 / 0":                                                                           "error: division by zero",
		"workflow.input.i == 3.0":                                                         "true",
		"3 == 3.0 && 3 != 3.5 && 3u == 3.0":                                               "true",
		"[1, 2] == [1.0, 2.0]":                                                            "true",
		"2 in [1.0, 2.0]":                                                                 "true",
		"[1, 2].exists(x, x == 2.0)":                                                      "true",
		"1 < 1.5 && 1.5 > 1 && workflow.input.i >= 2.5":                                   "true",
		"1u + 2u":                                                                         "3",
		"workflow.input.i + 'x'":                                                          "error: no such overload",
		"workflow.input.i + null":                                                         "error: no such overload",
		"'a' + 'b' + string(1)":                                                           `"ab1"`,
		"b'a' + b'b'":                                                                     `"YWI="`,
		"duration('1m') + duration('30s')":                                                `"90s"`,
		"timestamp('2026-01-01T00:00:00Z') + duration('24h')":                             `"2026-01-02T00:00:00Z"`,
		"timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z')": `"86400s"`,
		"int('3') + int(2.9) + int(double('1.5'))":                              "6",
	})
	d := document{input: "{}"}
	for _, expression := range []string{"1 + 'a'", "'a' == 1", "1u + 1", "true + 1", "'a' - 'b'", "[1] == ['a']"} {
		_, findings := d.compiler(t).Template(json.RawMessage(one(expression)), At{})
		wantFinding(t, findings, Finding{Code: CodeExpression, Text: "cannot be applied to"})
	}
}

func TestE7_CELBecomesJSON(t *testing.T) {
	table(t, document{
		input: `{"exact":[1.50, {"z":1E2,"a":12345678901234567890}],"n":1.50,"s":"\u00e9\ud83d\ude00"}`,
	}, map[string]string{
		"now":                                    `"2026-11-21T10:04:05.6Z"`,
		"timestamp('2026-01-01T01:00:00+01:00')": `"2026-01-01T00:00:00Z"`,
		"duration('90s')":                        `"90s"`,
		"duration('1.5s')":                       `"1.5s"`,
		"duration('-1.000000001s')":              `"-1.000000001s"`,
		"duration('0s')":                         `"0s"`,
		"duration('1h')":                         `"3600s"`,
		"b'\\xff\\x00'":                          `"/wA="`,
		"optional.none()":                        "null",
		"optional.of([optional.none()])":         "[null]",
		"0.0 / 0.0":                              "error: NaN",
		"[1.0 / 0.0]":                            "error: +Inf is no JSON number",
		"{1: 2}":                                 "error: keys of type int",
		"{'a': {true: 1}}":                       "error: keys of type bool",
		"int":                                    "error: a value of type type is no JSON",
		"{'b': 1, 'a': {'d': 2, 'c': 3}}":        `{"a":{"c":3,"d":2},"b":1}`,
		"1.0":                                    "1",
		"0.1 + 0.2":                              "0.30000000000000004",
		"1e21":                                   "1e+21",
		"1e-7":                                   "1e-07",
		"-2.5":                                   "-2.5",
		"[1u, -1, true, null, 'a\\n<']":          `[1,-1,true,null,"a\n<"]`,
		"dyn(workflow.input.exact)":              `[1.50, {"z":1E2,"a":12345678901234567890}]`,
		"{'kept': workflow.input.exact[1]}":      `{"kept":{"z":1E2,"a":12345678901234567890}}`,
		"workflow.input.exact":                   `[1.50, {"z":1E2,"a":12345678901234567890}]`,
		"workflow.input.exact[1].z":              "1E2",
		"workflow.input.exact[1].a":              "12345678901234567890",
		"workflow.input.s":                       `"\u00e9\ud83d\ude00"`,
		"workflow.input.s + ''":                  `"é😀"`,
		"[workflow.input.n]":                     "[1.5]",
	})
}

func TestE8_MissingMembersAreErrorsUnlessAskedFor(t *testing.T) {
	d := document{input: `{"nil":null,"o":{"x":1}}`, steps: map[string]StepInfo{"a": {Status: parley.StepSkipped}}}
	table(t, d, map[string]string{
		"workflow.input.o.y + 1":                   "error: no such key: y",
		"workflow.input.nil.y + 1":                 "error: ",
		"a.output.y + 1":                           "error: ",
		"a.error.code + ''":                        `error: null has no member "code"`,
		"has(workflow.input.o.y)":                  "false",
		"has(workflow.input.o.x)":                  "true",
		"workflow.input.?o.?y.?z.orValue(0)":       "0",
		"workflow.input.?nil.?y.orValue('none')":   `"none"`,
		"a.?output.?y.orValue(0)":                  "0",
		"workflow.input.nil == null":               "true",
		"a.output == null":                         "true",
		"workflow.input.o[?'x'].orValue(0)":        "1",
		"workflow.input.?o.x.optMap(v, v + 1)":     "2",
		"workflow.input.o.?y.hasValue()":           "false",
		"workflow.input.nil.y == 1 || 1 < 2":       "true", // CEL's || forgives
		"cel.bind(o, workflow.input.o, o.x + o.x)": "2",
	})
	c := d.compiler(t)
	for text, want := range map[string]bool{
		"workflow.input.o.x == 1": true, "${workflow.input.o.x > 1}": false, " true ": true, "a.status == 'SKIPPED'": true,
	} {
		condition, findings := c.Condition(text, At{})
		if condition == nil {
			t.Fatalf("%s: %+v", text, findings)
		}
		if got, err := condition.Eval(d.scope()); err != nil || got != want {
			t.Errorf("%s = %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"workflow.input.o.y == 1":  "no such key: y",
		"workflow.input.o.x":       "a condition gives bool, this gave a number",
		"${workflow.input.absent}": "Field 'absent' not found",
		"dyn(1)":                   "a condition gives bool, this gave int",
	} {
		condition, findings := c.Condition(text, At{})
		if condition == nil {
			t.Fatalf("%s: %+v", text, findings)
		}
		got, err := condition.Eval(d.scope())
		if wantError(t, err, parley.CodeExpression, want); got {
			t.Errorf("%s is true", text)
		}
	}
	for text, want := range map[string]Finding{
		"1":                         {Code: CodeExpression, Text: "a condition gives bool, this gives int"},
		"'a' + 'b'":                 {Code: CodeExpression, Text: "gives string"},
		"${workflow.input.o.x} > 1": {Code: CodeSyntax, Text: "one expression", Suggestion: "workflow.input.o.x > 1"},
		"1 < ${workflow.input.o.x}": {Code: CodeSyntax, Text: "not CEL", Suggestion: "1 < workflow.input.o.x"},
		"":                          {Code: CodeSyntax, Text: "empty"},
		"${workflow.input.o.x":      {Code: CodeSyntax, Text: "one expression"},
		"b.output":                  {Code: CodeReference, Text: `there is no step "b"`},
	} {
		condition, findings := c.Condition(text, At{})
		if condition != nil {
			t.Errorf("%s compiled", text)
		}
		if len(findings) > 1 {
			findings = findings[:1]
		}
		wantFinding(t, findings, want)
	}
	path, findings := d.compiler(t, graph).Condition("b.output.ok", At{})
	if path == nil {
		t.Fatalf("%+v", findings)
	}
	_, err := path.Eval(d.scope())
	wantError(t, err, parley.CodeExpression, `there is no step "b"`)
}

func TestE9_Functions(t *testing.T) {
	fence := "```"
	table(t, document{
		input: `{"list":[1,2.5,3],"words":["b","a"],"text":" ` + fence + `json\n{\"b\":1,\"a\":2.50}\n` + fence + `\n","o":{"z":1,"a":[1.50]}}`,
	}, map[string]string{
		"parse_json(workflow.input.text)":                           `{"b":1,"a":2.50}`,
		"parse_json(workflow.input.text).a + 1":                     "3.5",
		"parse_json('[1]')[0]":                                      "1",
		"parse_json('')":                                            "error: parse_json: not JSON: there is no value",
		"parse_json('secret value')":                                "error: parse_json: not JSON: unexpected text (at byte 0)",
		"to_json(workflow.input.o)":                                 `"{\"z\":1,\"a\":[1.50]}"`,
		"to_json([1, 'a', null])":                                   `"[1,\"a\",null]"`,
		"to_json({1: 2})":                                           "error: keys of type int",
		"parse_json(to_json(workflow.input.o)) == workflow.input.o": "true",
		"sum(workflow.input.list)":                                  "6.5",
		"sum([1, 2])":                                               "3",
		"sum([])":                                                   "0",
		"sum(workflow.input.words)":                                 "error: sum: item 0 is string, not a number",
		"sum([9223372036854775807, 1])":                             "error: overflow",
		"avg([1, 2])":                                               "1.5",
		"avg(workflow.input.list)":                                  "2.1666666666666665",
		"avg([])":                                                   "error: avg: the list is empty",
		"merge(workflow.input.o, {'a': 2, 'b': 3})":                 `{"a":2,"b":3,"z":1}`,
		"merge({'a': {'x': 1}}, {'a': {'y': 2}})":                   `{"a":{"y":2}}`,
		"merge({'a': 1}, {'a': 'x'}).a":                             `"x"`,
		"cel.bind(x, 2, x * x)":                                     "4",
		"'a-b'.split('-')":                                          `["a","b"]`,
		"'Abc'.lowerAscii() + 'abc'.substring(1)":                   `"abcbc"`,
		"'%s is %d, %.2f'.format(['a', 1, 2.5])":                    `"a is 1, 2.50"`,
		"['a', 'b'].join(', ')":                                     `"a, b"`,
		"['a', 'b'].join()":                                         `"ab"`,
		"'banana'.replace('a', 'o')":                                `"bonono"`,
		"'banana'.replace('a', 'o', 1)":                             `"bonana"`,
		"'banana'.replace('', '-', 2)":                              `"-b-anana"`,
		"workflow.input.words.sort()":                               `["a","b"]`,
		"[3, 1, 2].sortBy(x, -x)":                                   "[3,2,1]",
		"[[1], [2, 3]].flatten()":                                   "[1,2,3]",
		"[1, 1, 2].distinct()":                                      "[1,2]",
		"lists.range(3)":                                            "[0,1,2]",
		"workflow.input.list.slice(0, 2)":                           "[1,2.5]",
		"workflow.input.list.reverse()":                             "[3,2.5,1]",
		"math.greatest(1, 2.5) + math.ceil(1.2)":                    "4.5",
		"base64.encode(b'hi') + string(base64.decode('aGk='))":      `"aGk=hi"`,
		"workflow.input.list.filter(x, x > 1).map(x, x * 2)":        "[5,6]",
		"workflow.input.o.map(k, k).size()":                         "2",
		"'abc'.matches('^a.c$')":                                    "true",
		"size(workflow.input.o) + size('äö') + size(workflow.input.list)": "7",
		"timestamp('2026-01-01T00:30:00+01:00').getHours()":               "23",
		"now.getFullYear()": "2026",
		"'z' in workflow.input.o && 2.5 in workflow.input.list": "true",
		"workflow.input.o == {'a': [1.5], 'z': 1.0}":            "true",
	})
	for _, expression := range []string{"now()", "rand()", "getenv('HOME')", "http.get('x')", "eval('1')", "yaml.parse('1')"} {
		_, findings := document{}.compiler(t).Template(json.RawMessage(one(expression)), At{})
		if !failed(findings) {
			t.Errorf("%s compiles", expression)
		}
	}
}

// TestE9_MapsHaveAnOrder: the same expression over the same state has the same
// value each time.
func TestE9_MapsHaveAnOrder(t *testing.T) {
	d := document{input: `{"o":{"z":1,"b":2,"y":3,"a":4,"x":5,"c":6,"w":7,"z":8}}`}
	c := d.compiler(t)
	s := d.scope()
	s.Run.Labels = map[string]string{"e": "", "b": "", "d": "", "a": "", "c": ""}
	for expression, want := range map[string]string{
		"workflow.input.o.map(k, k)":                                      `["z","b","y","a","x","c","w"]`,
		"workflow.input.o.map(k, workflow.input.o[k])":                    `[8,2,3,4,5,6,7]`,
		"{'z': 1, 'b': 2, 'y': 3, 'a': 4, 'x': 5}.map(k, k)":              `["a","b","x","y","z"]`,
		"{5: 1, 1: 2, 'a': 3, 4: 3, 2: 4, 3: 5, true: 1}.map(k, k)":       `[true,1,2,3,4,5,"a"]`,
		"{'z': 1 + now.getHours(), 'b': 2, 'y': 3, 'a': 4}.map(k, k)":     `["a","b","y","z"]`,
		"merge(workflow.input.o, {'zz': 1, 'aa': 2}).map(k, k)":           `["a","aa","b","c","w","x","y","z","zz"]`,
		"run.labels.map(k, k)":                                            `["a","b","c","d","e"]`,
		"parse_json('{\"c\":1,\"a\":2,\"b\":3}').map(k, k)":               `["c","a","b"]`,
		"'%s'.format([{'z': 1, 'b': 2, 'y': 3, 'a': 4, 'x': 5, 'c': 6}])": `"{a: 4, b: 2, c: 6, x: 5, y: 3, z: 1}"`,
		"'%s'.format([workflow.input.o])":                                 `"{a: 4, b: 2, c: 6, w: 7, x: 5, y: 3, z: 8}"`,
	} {
		for range 20 {
			if got, err := evalTemplate(t, c, one(expression), At{}, s); err != nil || got != want {
				t.Errorf("%s = %s, %v; want %s", expression, got, err, want)
				break
			}
		}
	}
}

func TestE9_ParseJSON(t *testing.T) {
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	for text, want := range map[string]string{
		`{"b": 1, "a": 1.50}`: `{"b": 1, "a": 1.50}`, " \n 1 \t": "1", "```\n1\n```": "1", "```json\n{}\n```": "{}",
		"\n```JSON\r\n\"x\"\r\n```  ": `"x"`, "````\n[]\n````": "[]", deep: deep, `"\ud800"`: `"\ud800"`, "null": "null",
		"\"```\"": "\"```\"",
	} {
		got, err := ParseJSON(text)
		if err != nil || string(got) != want {
			t.Errorf("%q = %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]parley.Code{
		"": "expression", "``````": "expression", "```json\n```": "expression", "Here it is: {}": "expression",
		"{} {}": "expression", "```\n1\n```\n```\n2\n```": "expression", "```\n1": "expression", `{"a":1,"a":2}`: "expression",
		"{'a':1}": "expression", "NaN": "expression", "\"\xff\"": "expression", "[1,]": "expression",
		"[" + deep + "]": "limit",
	} {
		got, err := ParseJSON(text)
		if err == nil {
			t.Errorf("%.40q = %.40s", text, got)
			continue
		}
		wantError(t, err, want, "")
		if strings.Contains(err.Error(), "Here") {
			t.Errorf("the error shows the text: %v", err)
		}
	}
}

func TestE10_DeclaredSchemas(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"a": done(`{}`), "b": done(`{}`), "step-1": done(`{}`)}}
	c := d.compiler(t, func(o *Options) {
		o.InputSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["topic"],"properties":{
			"topic":{"type":"string"},"list":{"type":"array","items":{"$ref":"#/$defs/item"}},
			"open":{"type":"object"},"map":{"additionalProperties":{"properties":{"k":{}}}},"any":{"properties":{"z":{}},"anyOf":[{}]},
			"never":false, "yes":true},
			"$defs":{"item":{"properties":{"name":{"type":"string"}},"patternProperties":{"^x-":{}}}}}`)
		o.StepSchemas = map[string]json.RawMessage{
			"a":      json.RawMessage(`{"type":"object","required":["steps"]}`),
			"step-1": json.RawMessage(`{"properties":{"score":{"type":"number"}},"additionalProperties":false}`),
		}
	})
	excludes, unmentioned := "excludes", "does not mention"
	for expression, text := range map[string]string{
		"workflow.input.topic": "", "workflow.input.tpic": excludes, "workflow.input.list[0].name": "",
		"workflow.input.list[0].nmae": unmentioned, "workflow.input.list[0].x-y": "", "workflow.input.open.anything": "",
		"workflow.input.map.any.k": "", "workflow.input.map.any.j": unmentioned, "workflow.input.any.x.y": "",
		"workflow.input.never": excludes, "workflow.input.yes.x": "",
		"workflow.input.topic.x":  "is declared as string and has no member",
		"workflow.input.topic[0]": "is declared as string and has no items",
		"a.output.steps":          "", "a.output.other": unmentioned, "b.output.whatever": "", "step-1.output.score": "",
		"step-1.output.socre": excludes, "a.output": "",

		"workflow.input.tpic + ''": excludes, "has(workflow.input.tpic)": excludes, "workflow.input.?tpic": excludes,
		"a.output.other + 1": unmentioned, "has(a.output.other)": "", "a.output.?other.orValue(1)": "",
		"a.?output.other.orValue(1)": "", `steps["step-1"].output.socre + 1`: excludes,
		`workflow.input["tpic"] + ''`: excludes, "workflow.input.list[size(workflow.input.list) - 1].nmae + ''": unmentioned,
		"workflow.input.list.map(x, x.nmae)": "", "workflow.input.open[workflow.input.topic].x + ''": "",
		"cel.bind(workflow, {'input': {'x': 1}}, workflow.input.x)": "",
	} {
		x, findings := c.Template(json.RawMessage(one(expression)), At{})
		if text == "" {
			if len(findings) > 0 {
				t.Errorf("%s: %+v", expression, findings)
			}
			continue
		}
		want := Finding{Code: CodeExpression, Text: text, Warning: text == unmentioned}
		if wantFinding(t, findings, want); (x != nil) != want.Warning {
			t.Errorf("%s: template %v", expression, x)
		}
	}
	_, findings := c.Template(json.RawMessage(one("workflow.input.tpic")), At{})
	wantFinding(t, findings, Finding{Code: CodeExpression, Text: "`workflow.input` excludes \"tpic\"", Suggestion: `"topic"`})
	if _, err := NewCompiler(Options{InputSchema: json.RawMessage("{")}); err == nil {
		t.Error("a schema that is not JSON passes")
	}
}

func TestE10_StaticTypes(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"a": done(`{}`)}}
	for expression, text := range map[string]string{
		"workflow.name + 1":      "cannot be applied to (string, int)",
		"a.attempts + 'x'":       "cannot be applied to (int, string)",
		"a.status == 1":          "cannot be applied to (string, int)",
		"run.started_at > 5":     "cannot be applied to",
		"size(1)":                "cannot be applied to (int)",
		"'a'.nope()":             "",
		"a.error.coed":           `no member "coed"`,
		"duration('five')":       `"five" is no duration`,
		"'a'.matches('(')":       "not a regular expression: missing closing )",
		"timestamp('yesterday')": `"yesterday" is no timestamp`,
		"'%d'.format(['a'])":     "",
		"int('x') + 1":           "type conversion error",
		"bool(string('maybe'))":  "type conversion error",
		"'x' ? 1 : 2":            "cannot be applied to",
		"sum(1)":                 "cannot be applied to (int)",
		"1 +":                    "not CEL",
		"[1, 2":                  "not CEL: mismatched input end",
	} {
		x, findings := d.compiler(t).Template(json.RawMessage(one(expression)), At{})
		if x != nil || !failed(findings) || !strings.Contains(findings[0].Text, text) {
			t.Errorf("%s: %+v, want %q", expression, findings, text)
		}
	}
}

func TestE11_LimitsAtCompileTime(t *testing.T) {
	d := document{input: `{}`}
	c := d.compiler(t)
	nested := func(n int) string { return strings.Repeat("[", n-1) + "1" + strings.Repeat("]", n-1) }
	for name, tc := range map[string]struct{ expression, limit string }{
		"text":            {"'" + strings.Repeat("x", maxText-1) + "'", "expression_text"},
		"text that fits":  {"'" + strings.Repeat("x", maxText-2) + "'", ""},
		"depth":           {nested(65), "expression_depth"},
		"depth that fits": {nested(64), ""},
		"very deep":       {nested(3000), "recursion"},
		"deep parens":     {strings.Repeat("(", 4000) + "1" + strings.Repeat(")", 4000), "recursion"},
		"long sum":        {"1" + strings.Repeat("+1", 70), "expression_depth"},
		"long or":         {"true" + strings.Repeat(" || true", 70), ""},
		"long path":       {"workflow.input" + strings.Repeat(".a", 4100), "expression_text"},
	} {
		x, findings := c.Template(json.RawMessage(one(tc.expression)), At{})
		if tc.limit == "" {
			if x == nil {
				t.Errorf("%s: %+v", name, findings)
			}
			continue
		}
		t.Run(name, func(t *testing.T) { wantFinding(t, findings, Finding{Code: CodeLimit, Text: tc.limit}) })
	}
}

func TestE11_LimitsAtRunTime(t *testing.T) {
	text := strings.Repeat("x", 4000)
	half := strings.Repeat("y", maxResult/2)
	d := document{input: fmt.Sprintf(`{"text":%q,"half":%q,"list":[%s0],"numbers":[%s0],"deep":%s}`, text, half,
		strings.Repeat(`"`+text+`",`, 300), strings.Repeat("0,", 30_000), strings.Repeat("[", 63)+strings.Repeat("]", 63))}
	c := d.compiler(t)
	for expression, limit := range map[string]string{
		"workflow.input.text.replace('x', workflow.input.text)":                                             "expression_result",
		"workflow.input.text.replace('', workflow.input.text)":                                              "expression_result",
		"workflow.input.half + workflow.input.half":                                                         "expression_cost",
		"workflow.input.half + workflow.input.half + 'x'":                                                   "expression_cost",
		"workflow.input.list.slice(0, 300).join(',')":                                                       "expression_result",
		"'%s%s%s'.format([workflow.input.half, workflow.input.half, 'x'])":                                  "expression_",
		"'%s'.format([workflow.input.list])":                                                                "expression_",
		"workflow.input.list.slice(0, 300)":                                                                 "expression_result",
		"to_json(workflow.input.list)":                                                                      "expression_",
		"dyn(workflow.input)":                                                                               "expression_result",
		"[workflow.input.list]":                                                                             "expression_result",
		"workflow.input.numbers.map(x, workflow.input.numbers.map(y, x + y).size())":                        "expression_cost",
		"lists.range(50000).map(x, x * x).filter(x, x % 2 == 0).size() > 0":                                 "expression_cost",
		"workflow.input.numbers + workflow.input.numbers + workflow.input.numbers + workflow.input.numbers": "expression_result",
		"cel.bind(a, workflow.input.text + workflow.input.text, cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, " +
			"cel.bind(e, d + d, cel.bind(f, e + e, f + f + f + f))))))": "expression_",
		"[workflow.input.deep, 1]":   "",
		"[[workflow.input.deep, 1]]": "json_depth",
	} {
		got, err := evalTemplate(t, c, one(expression), At{}, d.scope())
		if limit == "" {
			if err != nil {
				t.Errorf("%s: %v", expression, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s gave %d bytes", expression, len(got))
			continue
		}
		wantError(t, err, parley.CodeLimit, limit)
	}
	got, err := evalTemplate(t, c, one("workflow.input"), At{}, d.scope())
	if err != nil || got != d.input {
		t.Errorf("a path is bounded like CEL: %v", err)
	}
	_, err = evalTemplate(t, c, `[[`+one("workflow.input.deep")+`]]`, At{}, d.scope())
	wantError(t, err, parley.CodeLimit, "json_depth")
	d.input = quote(half)
	_, err = evalTemplate(t, c, `[`+strings.Repeat(one("workflow.input")+",", 17)+`1]`, At{}, d.scope())
	wantError(t, err, parley.CodeLimit, "larger than 8388608")
	larger := d.scope()
	larger.MaxValue = 9 << 20
	if got, err := evalTemplate(t, c, `[`+strings.Repeat(one("workflow.input")+",", 17)+`1]`, At{}, larger); err != nil || len(got) < maxValue {
		t.Errorf("%d bytes, %v: more than 8 MiB were allowed", len(got), err)
	}
	_, err = evalTemplate(t, c, `[`+strings.Repeat(one("workflow.input")+",", 20)+`1]`, At{}, larger)
	wantError(t, err, parley.CodeLimit, "larger than 9437184")
	larger.MaxValue = 9 // never less
	if got, err := evalTemplate(t, c, one("workflow.input"), At{}, larger); err != nil || got != d.input {
		t.Errorf("a small limit is that of values, not of templates: %v", err)
	}
	if _, f := parseJSON(`"` + strings.Repeat("x", maxValue) + `"`); f == nil || f.limit != "value_size" {
		t.Errorf("CEL reads JSON of any length: %v", f)
	}
	_, err = evalTemplate(t, c, one("lists.range(1000000)"), At{}, d.scope())
	wantError(t, err, parley.CodeLimit, "expression_result")
}

func TestE11_RegularExpressionsHaveALimit(t *testing.T) {
	d := document{input: "{}"}
	c := d.compiler(t)
	deep := strings.Repeat("(", 1100) + strings.Repeat(")", 1100)
	for pattern, text := range map[string]string{
		"x{900}y{900}": "regex_size", "x{1001}": "regex_size", "(((x{10}){10}){10}){10}": "regex_size", deep: "regex_size",
		"a{2,1}": "not a regular expression: invalid repeat count: `{2,1}`", "(": "not a regular expression: missing closing ): `(`",
		"[b-a]": "not a regular expression: invalid character class range",
	} {
		code, limit := CodeExpression, parley.CodeExpression
		if text == "regex_size" {
			code, limit = CodeLimit, parley.CodeLimit
		}
		x, findings := c.Template(json.RawMessage(one("'x'.matches('"+pattern+"')")), At{})
		if wantFinding(t, findings, Finding{Code: code, Text: text}); x != nil {
			t.Errorf("%s compiled", pattern)
		}
		d.input = quote(pattern)
		_, err := evalTemplate(t, c, one("'x'.matches(workflow.input)"), At{}, d.scope())
		wantError(t, err, limit, text)
	}
	if got, err := evalTemplate(t, c, one("'zz'.matches('^z{2,300}$') && matches('a', 'a|b')"), At{}, d.scope()); err != nil || got != "true" {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestE11_SizesAreKnownBeforeAnythingIsBuilt(t *testing.T) {
	half := types.String(strings.Repeat("x", maxResult/2))
	list := types.NewRefValList(types.DefaultTypeAdapter, make([]ref.Val, maxElements))
	for name, v := range map[string]ref.Val{
		"string": add(half, half+"x"), "bytes": add(types.Bytes(half), types.Bytes(half+"x")),
		"list": add(list, types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.True})),
	} {
		if err, ok := v.(*types.Err); !ok || evalFault(err).limit != "expression_result" {
			t.Errorf("%s: %.40v", name, v)
		}
	}
	if v := add(half, half); types.IsError(v) {
		t.Errorf("what fits: %v", v)
	}
	str, int3 := func(s string) ref.Val { return types.String(s) }, types.Int(3)
	words := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{str("ab"), str("c"), str("")})
	for name, n := range map[string][2]int{
		"replace":       {replaceSize([]ref.Val{str("banana"), str("a"), str("xyz")}), len("bxyznxyznxyz")},
		"replace some":  {replaceSize([]ref.Val{str("aaaaa"), str("a"), str("xx"), int3}), len("xxxxxxaa")},
		"replace empty": {replaceSize([]ref.Val{str("ab"), str(""), str("--")}), len("--a--b--")},
		"join":          {joinSize([]ref.Val{words, str(", ")}), len("ab, c, ")},
		"format": {
			formatSize([]ref.Val{str("%s%x"), types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{words, types.Bytes("abc")})}),
			len("%s%x") + 512 + 32 + (2 + 4) + (2 + 2) + 2 + 512 + 6,
		},
		"join tight": {joinSize([]ref.Val{words}), len("abc")},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", name, n[0], n[1])
		}
	}
}

// TestE10_WhatStandsBesideARef: it counts in 2020-12, so that the schema that is referred to
// does not mention everything; in draft-07 it means nothing.
func TestE10_WhatStandsBesideARef(t *testing.T) {
	const schema = `{%s"$ref":"#/$defs/a","properties":{"b":{}},"$defs":{"a":{"properties":{"c":{}}}}}`
	for draft, mentioned := range map[string]bool{
		"": true, `"$schema":"https://json-schema.org/draft/2020-12/schema",`: true, `"$schema":"http://json-schema.org/draft-07/schema#",`: false,
	} {
		c := document{}.compiler(t, func(o *Options) { o.InputSchema = json.RawMessage(fmt.Sprintf(schema, draft)) })
		_, findings := c.Template(json.RawMessage(one("workflow.input.b")), At{})
		if (len(findings) == 0) != mentioned {
			t.Errorf("%s: %+v", draft, findings)
		}
		if _, findings := c.Template(json.RawMessage(one("workflow.input.c")), At{}); len(findings) > 0 {
			t.Errorf("%s: %+v", draft, findings)
		}
	}
}
