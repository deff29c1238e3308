package workflow

import (
	"strings"
	"testing"
)

// TestE1_ErrorsNameTheMember: what cannot be evaluated is named by the member of the
// step that it stands in, or by its place in there.
func TestE1_ErrorsNameTheMember(t *testing.T) {
	for member, step := range map[string]string{
		"'set'":                  `set: "v=${a.output}"`,
		"'q'":                    `set: {q: "v=${a.output}"}`,
		"'emit.data'":            `emit: {event: e, data: "v=${a.output}"}`,
		"'emit.event'":           `emit: {event: "v=${a.output}"}`,
		"'fail.message'":         `fail: {code: No, message: "v=${a.output}"}`,
		"'fail.details'":         `fail: {code: No, details: "v=${a.output}"}`,
		"'input'":                `agent: x, input: "v=${a.output}"`,
		"'event'":                `event: "v=${a.output}"`,
		"'wait.until'":           `wait: {until: "v=${a.output}"}`,
		"'approval.title'":       `approval: {title: "v=${a.output}"}`,
		"'validate'":             `validate: "v=${a.output}", schema: {}`,
		"'output'":               `set: 1, output: "v=${a.output}"`,
		"'on_error[0].output'":   `fail: {code: No}, on_error: [{output: "v=${a.output}"}]`,
		"'set': Field 'none'":    `set: "${a.output.none}"`,
		"'if'":                   `if: a.output.none, set: 1`,
		"'switch[0].when'":       `switch: [{when: a.output.none, steps: [{set: 1}]}]`,
		"'repeat.until'":         `repeat: {max: 2, until: a.output.none}, steps: [{set: 1}]`,
		"'on_error[0].if'":       `fail: {code: No}, on_error: [{if: a.output.none}]`,
		"'for_each': no such ke": `for_each: "${a.output.n + a.output.none}", steps: [{set: 1}]`,
	} {
		s := play(t, "name: t\nsteps:\n  - {id: a, set: {n: 1}}\n  - {id: x, "+step+"}\n")
		if err := s.step("x").Error; err == nil || !strings.Contains(err.Message, " in field "+member) {
			t.Errorf("%s: %v, want it to name %s", step, err, member)
		}
	}
	s := play(t, "name: t\nsteps:\n  - {id: a, set: {n: 1}}\noutput: \"v=${a.output}\"\n")
	if err := s.state.View().Error; err == nil || !strings.Contains(err.Message, "in field 'output': an object cannot stand inside text") {
		t.Errorf("output: %v", err)
	}
}

// TestE10_WhatAHandlerGivesNeedNotFitTheSchema: the schema of a step is asked of what the
// step itself gives. What a handler gives in its place may have members of its own.
func TestE10_WhatAHandlerGivesNeedNotFitTheSchema(t *testing.T) {
	const schema = `schema: {type: object, required: [score], properties: {score: {type: number}}, additionalProperties: false}`
	for handler, want := range map[string]string{
		`{output: {score: 0, why: "${error.code}"}}`:                               `"invalid_output"`,
		`[{match: [timeout]}, {steps: [{id: sorry, set: {why: "not now"}}]}]`:      `"not now"`,
		`[{match: [invalid_output], goto: b, output: {why: bad}}, {then: "fail"}]`: `"bad"`,
	} {
		s := play(t, "name: t\nsteps:\n  - {id: a, set: {score: high}, "+schema+", on_error: "+handler+"}\n  - {id: b, set: \"${a.output.why}\"}\n")
		s.output(want)
	}
	for _, handler := range []string{"continue", "[{match: [timeout], then: fail}, continue]"} {
		source := "name: t\nsteps:\n  - {id: a, set: {score: 1}, " + schema + ", on_error: " + handler + "}\n  - {id: b, set: \"${a.output.why}\"}\n"
		def, problems := Parse(ParseOptions{}, []byte(source))
		if def != nil || !strings.Contains(problems.Error(), `excludes "why"`) {
			t.Errorf("%s: %v", handler, problems)
		}
	}
}
