package expr

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestE10_WhatCanNeverBeWhatIsWanted: what an expression surely gives is known before it is
// evaluated, by its type or by the schema that is declared for it, and is told then.
func TestE10_WhatCanNeverBeWhatIsWanted(t *testing.T) {
	d := document{input: `{}`, steps: map[string]StepInfo{"a": done(`[]`), "b": done(`{}`)}}
	c := d.compiler(t, func(o *Options) {
		o.InputSchema = json.RawMessage(`{"properties":{"l":{"type":"array","items":{"type":"object"}},"o":{"type":"object"},"s":{"type":"string"},
			"n":{"type":"integer"},"t":{"type":"boolean"},"nil":{"type":"null"},"two":{"type":["null","string"]},"any":{"anyOf":[{"type":"array"}]}}}`)
		o.StepSchemas = map[string]json.RawMessage{"a": json.RawMessage(`{"type":"array"}`)}
	})
	all := []Wanted{Anything, List, Name, Text, Time}
	takes := map[string][]Wanted{
		"list":    {Anything, List},
		"object":  {Anything},
		"null":    {Anything},
		"string":  {Anything, Name, Text, Time},
		"number":  {Anything, Text},
		"unknown": all,
	}
	for expression, kind := range map[string]string{
		"workflow.input.l": "list", "a.output": "list", "[1]": "list", "[1].map(x, x)": "list", "workflow.input.l[0]": "object", "workflow.input.o": "object",
		"{'a': 1}": "object", "workflow": "object", "steps.b": "object", "workflow.input.nil": "null", "null": "null", "workflow.input.s": "string", "'a'": "string",
		"b'a'": "string", "now": "string", "workflow.input.n": "number", "1": "number", "1.5": "number", "workflow.input.t": "number", "1 < 2": "number",
		"workflow.input.two": "unknown", "workflow.input.any": "unknown", "b.output": "unknown", "workflow.input.l[0].x": "unknown", "optional.none()": "unknown",
		"dyn([1])": "unknown", "b.output + b.output": "unknown", "b.output + ''": "string",
	} {
		for _, wanted := range all {
			ok := slices.Contains(takes[kind], wanted)
			x, findings := c.Template(json.RawMessage(one(expression)), At{Wanted: wanted})
			if (x != nil) != ok || !ok && (len(findings) != 1 || !strings.HasPrefix(findings[0].Text, wanted.String()+" is wanted here, this gives ")) {
				t.Errorf("%s as %s: template %v, findings %+v", expression, wanted, x != nil, findings)
			}
			if x, findings = c.Template(json.RawMessage(`[`+one(expression)+`]`), At{Wanted: wanted}); x == nil {
				t.Errorf("%s inside of %s: %+v", expression, wanted, findings)
			}
		}
		inText := slices.Contains(takes[kind], Text)
		x, findings := c.Template(json.RawMessage(quote("é ${"+expression+"}")), At{})
		if (x != nil) != inText || !inText && (len(findings) != 1 || findings[0].Offset != 3 || !strings.HasSuffix(findings[0].Text, " cannot stand inside text")) {
			t.Errorf("%s in text: template %v, findings %+v", expression, x != nil, findings)
		}
	}
	old := d.compiler(t, func(o *Options) { o.Graph = true })
	x, findings := old.Template(json.RawMessage(quote("x ${[1]}")), At{})
	if x == nil || len(findings) != 1 || !findings[0].Warning {
		t.Errorf("graph form: %+v", findings)
	}
}
