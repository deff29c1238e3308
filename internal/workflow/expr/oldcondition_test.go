package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// oldDocument is what the conditions of oldConditions are about.
func oldDocument() document {
	return document{
		input: `{"n":5,"d":2.5,"s":"it's","t":true,"f":false,"nil":null,"list":[1,"a",null,{"k":1}],"o":{"k":"v"},
			"empty":{"s":"","l":[ ],"o":{ },"z":0,"zf":0.0},"big":9007199254740993,"two words":"x"}`,
		steps: map[string]StepInfo{"step-1": done(`{"score":0.9,"items":[{"name":"x"}]}`), "check": {Status: parley.StepFailed}},
	}
}

// oldConditions are conditions and what they come to.
func oldConditions() map[string]bool {
	return map[string]bool{
		"${workflow.input.n} == 5": true, "${workflow.input.n} != 5": false, "${workflow.input.n} == 5.0": true,
		"${workflow.input.n} > 4": true, "${workflow.input.n} >= 5": true, "${workflow.input.n} < -1": false,
		"${workflow.input.n} <= 5.5": true, "${workflow.input.d} == 25e-1": true, "${workflow.input.big} == 9007199254740992": false,
		"${workflow.input.s} == \"it's\"": true, `${workflow.input.s} == 'it\'s'`: true, "'b' > 'a'": true, "'a' >= 'b'": false,
		"${workflow.input.t}": true, "${workflow.input.f}": false, "${workflow.input.nil}": false, "not ${workflow.input.nil}": true,
		"not not true": true, "not true": false, "${workflow.input.t} == True": true, "${workflow.input.f} == False": true,
		"${workflow.input.nil} == None": true, "${workflow.input.nil} == null": true, "null != 3": true, "'5' == 5": false,
		"true == 1": true, "[1, 'a'] == [1.0, \"a\"]": true, "${workflow.input.o} == ${workflow.input.o}": true,
		"${workflow.input.list} == []": false, "[1] != [1, 2]": true,
		"1 in ${workflow.input.list}": true, "1.0 in ${workflow.input.list}": true, "2 in ${workflow.input.list}": false,
		"2 not in ${workflow.input.list}": true, "None in ${workflow.input.list}": true, "'k' in ${workflow.input.o}": true,
		"'v' in ${workflow.input.o}": false, "1 in ${workflow.input.o}": false, "'t' in ${workflow.input.s}": true,
		"${workflow.input.list} contains 'a'": true, "${workflow.input.s} contains 't'": true, "${workflow.input.o} contains 'k'": true,
		"'a' contains ${workflow.input.list}": false, "'x' in ['x', 'y']": true,
		"len(${workflow.input.list}) == 4": true, "len(${workflow.input.s}) > 3": true, "len(${workflow.input.o}) == 1": true, "len('äö') == 2": true,
		"${workflow.input.empty.s}": false, "${workflow.input.empty.l}": false, "${workflow.input.empty.o}": false,
		"${workflow.input.empty.z}": false, "${workflow.input.empty.zf}": false, "${workflow.input.list}": true, "${workflow.input.o}": true,
		"'a'": true, "''": false, "0": false, "-0.0": false, "0.1": true, "[]": false, "[0]": true,
		"true or false and false": true, "(true or false) and false": false, "not true or true": true, "not (true or true)": false,
		"true and 'x' == 'x' and 1 < 2": true, "(0 or 5) == 5": true, "(1 and 'x') == 'x'": true,
		"${step-1.output.score} >= 0.8": true, "${step-1.output.items[0].name} == 'x'": true, "${steps.step-1.output.score} < 1": true,
		"${check.output}": false, "${check.output.x} == null": true, "${workflow.input.absent} == null": true,
		"${workflow.input.absent.deeper[3]} != 'x'": true, "${unknown.output.x} == null": true, "${loop.item} == null": true,
		"${workflow.input.two words} == 'x'": true, "  \t1==1\n": true, "false and null > 3": false, "true or null > 3": true,
	}
}

func TestOldConditions(t *testing.T) {
	d := oldDocument()
	c := d.compiler(t, graph)
	for text, want := range oldConditions() {
		x, findings := c.OldCondition(text, At{})
		if x == nil {
			t.Errorf("%s: %+v", text, findings)
			continue
		}
		got, warning := x.Eval(d.scope())
		if got != want || (warning != nil && !strings.Contains(text, "contains ${")) {
			t.Errorf("%s = %v, %v; want %v", text, got, warning, want)
		}
	}
}

func TestOldConditions_FaultsMakeTheWholeFalse(t *testing.T) {
	d := document{input: `{"list":[1],"n":1}`}
	c := d.compiler(t, graph)
	for text, fault := range map[string]string{
		"null > 3": "null and a number have no order", "5 > '3'": "a number and a string have no order",
		"true or false and 1 < 'a' or true":    "",
		"(null > 3) or true":                   "have no order",
		"not (null > 3)":                       "have no order",
		"${workflow.input.absent} > 3 or true": "have no order",
		"1 in 5":                               "a number cannot contain a number",
		"1 not in 5":                           "a number cannot contain a number",
		"5 in 'x5'":                            "a string cannot contain a number",
		"len(5) == 1 or true":                  "a number has no len",
		"${workflow.input.list} < [2]":         "have no order",
		"'a' contains ${workflow.input.list}":  "a string cannot contain a list",
	} {
		x, findings := c.OldCondition(text, At{})
		if x == nil {
			t.Fatalf("%s: %+v", text, findings)
		}
		got, warning := x.Eval(d.scope())
		if fault == "" {
			if !got || warning != nil {
				t.Errorf("%s = %v, %v", text, got, warning)
			}
			continue
		}
		if wantError(t, warning, parley.CodeExpression, fault); got {
			t.Errorf("%s is true", text)
		}
	}
}

func TestOldConditions_SyntaxErrorsAreFindings(t *testing.T) {
	c := document{input: `{}`, steps: map[string]StepInfo{"a": done("1")}}.compiler(t, graph)
	for text, want := range map[string]string{
		"":                           "a value is missing",
		"1 +1":                       "unexpected",
		"1 < 2 < 3":                  "cannot be chained",
		"1 = 1":                      "unexpected",
		"true && false":              "unexpected",
		"'a":                         "never closed",
		"${workflow.input.x":         "never closed",
		"${1 + 1}":                   "is no path",
		"(true":                      "`)` is missing",
		"true)":                      "unexpected",
		"[1, 2":                      "`,` or `]`",
		"len true":                   "`(` is missing",
		"len(true":                   "`)` is missing",
		"1 not 2":                    "followed by `in`",
		"__import__('os')":           "unexpected",
		"exec('x')":                  "unexpected",
		"1.2.3":                      "is no number",
		"01 == 1":                    "is no number",
		"a.output == 1":              "unexpected",
		"True == truely":             "unexpected",
		"not":                        "a value is missing",
		strings.Repeat("(", 100):     "expression_depth",
		strings.Repeat("[", 100):     "expression_depth is more than 64 levels",
		strings.Repeat("len(", 100):  "expression_depth is more than 64 levels",
		strings.Repeat("not ", 3000): "expression_text",
		strings.Repeat("not ", 500):  "a value is missing",
		"1 == 1 or":                  "a value is missing",
		"'a' in":                     "a value is missing",
		"true\x00":                   "unexpected",
	} {
		x, findings := c.OldCondition(text, At{})
		if x != nil || !failed(findings) || !strings.Contains(findings[len(findings)-1].Text, want) {
			t.Errorf("%.40s: %v %+v, want %q", text, x, findings, want)
		}
	}
	for _, opening := range []string{"(", "[", "len("} {
		_, findings := c.OldCondition(strings.Repeat(opening, 65), At{})
		wantFinding(t, findings, Finding{Code: CodeLimit, Text: "expression_depth is more than 64 levels"})
	}
	_, findings := c.OldCondition("1 == 1 and '${a.output}' == 'x'", At{})
	wantFinding(t, findings, Finding{Code: CodeExpression, Warning: true, Text: "plain text"})
	_, findings = c.OldCondition("${b.output.x} == 1", At{})
	wantFinding(t, findings, Finding{Code: CodeReference, Warning: true, Text: `no step "b"`, Suggestion: `"a"`})
	if _, findings = c.OldCondition("1 == 1 and x", At{}); findings[0].Offset != 11 {
		t.Errorf("offset %+v", findings)
	}
}

// TestE11_OldConditionsHaveALimit compares a value with each item of a list: the
// work grows with the product of their sizes.
func TestE11_OldConditionsHaveALimit(t *testing.T) {
	var members strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&members, `"k%d":{"a":[1,2]},`, i)
	}
	object := `{` + members.String() + `"z":1}`
	d := document{input: `{"o":` + object + `,"p":` + object + `,"q":{"z":2,` + strings.TrimSuffix(members.String(), ",") + `},` +
		`"objects":[` + strings.Repeat(`{"a":1},`, 2000) + `1],"twins":[` + strings.Repeat(object+",", 40) + `1],` +
		`"s":"` + strings.Repeat("x", 10_000) + `","texts":[` + strings.Repeat(`"a",`, 5000) + `1],"escaped":[` + strings.Repeat(`"a\n",`, 5000) + `1]}`}
	c := d.compiler(t, graph)
	for text, want := range map[string]any{
		"${workflow.input.o} in ${workflow.input.objects}":                       "expression_cost",
		"${workflow.input.twins} == ${workflow.input.twins}":                     "expression_cost",
		"${workflow.input.q} in ${workflow.input.twins}":                         "expression_cost",
		"${workflow.input.s} in ${workflow.input.escaped}":                       "expression_cost",
		"true or ${workflow.input.twins} == ${workflow.input.twins}":             true,
		"${workflow.input.s} in ${workflow.input.texts}":                         false,
		"${workflow.input.o} == ${workflow.input.p}":                             true,
		"${workflow.input.o} == ${workflow.input.q}":                             false,
		"'a\\n' in ${workflow.input.escaped} and 1 in ${workflow.input.objects}": true,
		"len(${workflow.input.objects}) == 2001":                                 true,
	} {
		x, findings := c.OldCondition(text, At{})
		if x == nil {
			t.Fatalf("%s: %+v", text, findings)
		}
		for range 3 {
			got, warning := x.Eval(d.scope())
			if limit, ok := want.(string); ok {
				if wantError(t, warning, parley.CodeLimit, limit); got {
					t.Errorf("%s is true", text)
				}
			} else if got != want || warning != nil {
				t.Errorf("%s = %v, %v", text, got, warning)
			}
		}
	}
}
