package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// TestSchema_JudgesAsTheLibrary: taking the members of values out of the hands of the
// library changes no verdict, however little may be told of it, and no finding where all
// may be told.
func TestSchema_JudgesAsTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draft := rapid.SampledFrom([]string{schemaDraft07, schemaDraft2020}).Draw(t, "draft")
		object := drawSchemaObject(t, draft, 3)
		object["$schema"] = draft
		definitions := map[string]any{"a": drawSchema(t, draft, 2), "b": drawSchema(t, draft, 1)}
		object["$defs"] = definitions
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(drawValue(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		want := plainFindings(t, raw, value)
		s, err := ParseSchema(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		var got []SchemaFinding
		if fault, ok := errors.AsType[*SchemaError](s.Check(value)); ok {
			got = fault.Findings
		}
		if diff := cmp.Diff(sameWords(want), sameWords(got)); diff != "" && len(want) < schemaFindings {
			t.Errorf("%s against %s (-the library +Parley):\n%s", value, raw, diff)
		}
		told := rapid.IntRange(0, 4).Draw(t, "told")
		if fits := judged(t, s, value, told); fits != (want == nil) {
			t.Errorf("%s against %s fits: %t, with %d findings that may be told", value, raw, fits, told)
		}
	})
}

// TestSchema_FindingsAreBounded: what is kept of the findings has a bound, wherever in a
// large value they are, and those that are reported are the first of them each time.
func TestSchema_FindingsAreBounded(t *testing.T) {
	const many = 60_000
	list := "[" + strings.Repeat("1,", many) + "1]"
	var members strings.Builder
	for i := range many {
		fmt.Fprintf(&members, `"%d":1,`, i)
	}
	object := "{" + members.String() + `"x":1}`
	tree := "1"
	for range 5 {
		tree = "[" + strings.Repeat(tree+",", 8) + tree + "]"
	}
	named := "1"
	for range 16 {
		named = `{"a":` + named + `,"b":` + named + `}`
	}
	for name, c := range map[string]struct{ schema, value string }{
		"items":               {`{"items": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array"}]}}`, list},
		"items of draft-07":   {`{"$schema": "http://json-schema.org/draft-07/schema", "items": {"type": "string"}}`, list},
		"additional items":    {`{"$schema": "http://json-schema.org/draft-07/schema", "items": [true], "additionalItems": {"type": "string"}}`, list},
		"no more items":       {`{"prefixItems": [true], "items": false}`, list},
		"contains":            {`{"contains": {"type": "string"}}`, list},
		"too many":            {`{"contains": {"type": "integer"}, "maxContains": 3}`, list},
		"unevaluated items":   {`{"unevaluatedItems": false}`, list},
		"additional members":  {`{"additionalProperties": {"type": "string"}}`, object},
		"closed":              {`{"additionalProperties": false}`, object},
		"patterns":            {`{"patternProperties": {"^[0-9]": {"type": "string"}}}`, object},
		"names":               {`{"propertyNames": {"maxLength": 0}}`, object},
		"unevaluated members": {`{"unevaluatedProperties": {"type": "string"}}`, object},
		"lists of lists":      {`{"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "string"}]}`, tree},
		"twice at each level": {`{"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}], "type": "array"}`, tree},
		"a tree of members":   {`{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}`, named},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSchema(t, c.schema)
			p, err := s.take()
			if err != nil {
				t.Fatal(err)
			}
			doc, err := schemaDecode(json.RawMessage(c.value))
			if err != nil {
				t.Fatal(err)
			}
			p.begin(len(c.value))
			found, ok := errors.AsType[*jsonschema.ValidationError](p.root.Validate(doc))
			if n := len(kept(found, map[*jsonschema.ValidationError]bool{})); !ok || n > 2*schemaTold {
				t.Errorf("%d findings are kept", n)
			}
			s.give(p)
			first, again := s.Check(json.RawMessage(c.value)), s.Check(json.RawMessage(c.value))
			if len(first.Error()) > 2000 {
				t.Errorf("an error of %d bytes: %.200s", len(first.Error()), first)
			}
			if diff := cmp.Diff(first.(*SchemaError).Findings, again.(*SchemaError).Findings); diff != "" && !strings.HasPrefix(name, "unevaluated") {
				t.Errorf("other findings the second time:\n%s", diff)
			}
		})
	}
}

// kept adds the findings of a tree to those that were seen.
func kept(found *jsonschema.ValidationError, seen map[*jsonschema.ValidationError]bool) map[*jsonschema.ValidationError]bool {
	seen[found] = true
	for _, cause := range found.Causes {
		kept(cause, seen)
	}
	return seen
}

// TestSchema_OnlyJudged: what comes after too many findings, all of them in alternatives
// that others make good, has its place told at least.
func TestSchema_OnlyJudged(t *testing.T) {
	s := testSchema(t, `{"items": {"anyOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]}}`)
	value := "[" + strings.Repeat(`{"a":2},`, schemaTold) + `{"a":3}]`
	want := fmt.Sprintf("/%d: does not fit the schema", schemaTold)
	if err := s.Check(json.RawMessage(value)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := s.Check(json.RawMessage(strings.Replace(value, "3", "1", 1))); err != nil {
		t.Errorf("what fits is refused: %v", err)
	}
}

// TestSchema_JudgedAtTheFirst: where nobody wants to know what keeps a list from fitting,
// the first item that does not fit is the last one that is looked at.
func TestSchema_JudgedAtTheFirst(t *testing.T) {
	s := testSchema(t, `{"not": {"items": {"properties": {"a": {"type": "string"}}}}}`)
	if err := s.Check(json.RawMessage("[" + strings.Repeat(`{"a":1},`, 1000) + `{"a":1}]`)); err != nil {
		t.Fatal(err)
	}
	p, err := s.take()
	if err != nil {
		t.Fatal(err)
	}
	if n := p.most - p.visits; n > 10 {
		t.Errorf("%d visits", n)
	}
}

// judged reports whether a value fits, where so many findings may be told.
func judged(t *rapid.T, s *Schema, value json.RawMessage, told int) bool {
	doc, err := schemaDecode(value)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.take()
	if err != nil {
		t.Fatal(err)
	}
	defer s.give(p)
	p.begin(len(value))
	p.told = told
	return p.root.Validate(doc) == nil
}

// plainFindings gives what the library itself finds.
func plainFindings(t *rapid.T, schema, value json.RawMessage) []SchemaFinding {
	doc, err := schemaDecode(schema)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaURL, doc); err != nil {
		t.Fatal(err)
	}
	root, err := c.Compile(schemaURL)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	v, err := schemaDecode(value)
	if err != nil {
		t.Fatal(err)
	}
	found, ok := errors.AsType[*jsonschema.ValidationError](root.Validate(v))
	if !ok {
		return nil
	}
	return schemaCollect(found).Findings
}

// sameWords leaves out of findings what Parley says in other words: how many items of a
// list contain something. The library has names of members in another order each time,
// and now and then at the place of a neighbour.
func sameWords(findings []SchemaFinding) []string {
	var out []string
	for _, f := range findings {
		text := f.Text
		if strings.Contains(text, "contains") {
			text = "contains"
		}
		if strings.Contains(text, "; nearest: ") {
			text, _, _ = strings.Cut(text, "; nearest: ")
		}
		if strings.HasPrefix(text, "the name") {
			f.Pointer = ""
		}
		out = append(out, f.Pointer+" "+text)
	}
	slices.Sort(out)
	return out
}

// drawSchema gives a schema of at most the given depth.
func drawSchema(t *rapid.T, draft string, depth int) any {
	if depth <= 0 || rapid.IntRange(0, 9).Draw(t, "bool") == 0 {
		return rapid.SampledFrom([]any{true, false, map[string]any{"type": "integer"}, map[string]any{"type": "string"}, map[string]any{"minLength": 2}, map[string]any{"enum": longEnum()}}).Draw(t, "leaf")
	}
	return drawSchemaObject(t, draft, depth)
}

// drawSchemaObject gives a schema with one to four keywords.
func drawSchemaObject(t *rapid.T, draft string, depth int) map[string]any {
	sub := func() any { return drawSchema(t, draft, depth-1) }
	some := func() []any { return []any{sub(), sub()} }
	named := func(names ...string) map[string]any {
		out := map[string]any{}
		for _, name := range names {
			if rapid.Bool().Draw(t, "has "+name) {
				out[name] = sub()
			}
		}
		return out
	}
	number := func(most int) int { return rapid.IntRange(0, most).Draw(t, "number") }
	keywords := map[string]func(map[string]any){
		"type": func(o map[string]any) {
			o["type"] = rapid.SampledFrom([]any{"object", "array", "string", []any{"object", "array"}}).Draw(t, "type")
		},
		"enum":      func(o map[string]any) { o["enum"] = []any{1, "ab", nil, []any{1}, map[string]any{"a": 1}} },
		"const":     func(o map[string]any) { o["const"] = drawValue(t, 1) },
		"minLength": func(o map[string]any) { o["minLength"] = number(3) },
		"required":  func(o map[string]any) { o["required"] = []any{"a"} },

		"properties":           func(o map[string]any) { o["properties"] = named("a", "ab", "b", "c") },
		"patternProperties":    func(o map[string]any) { o["patternProperties"] = named("^a", "b$", "b") },
		"additionalProperties": func(o map[string]any) { o["additionalProperties"] = sub() },
		"propertyNames":        func(o map[string]any) { o["propertyNames"] = sub() },
		"maxProperties":        func(o map[string]any) { o["maxProperties"] = number(3) },
		"items":                func(o map[string]any) { o["items"] = sub() },
		"contains":             func(o map[string]any) { o["contains"] = sub() },
		"uniqueItems":          func(o map[string]any) { o["uniqueItems"] = true },

		"allOf": func(o map[string]any) { o["allOf"] = some() },
		"anyOf": func(o map[string]any) { o["anyOf"] = some() },
		"oneOf": func(o map[string]any) { o["oneOf"] = some() },
		"not":   func(o map[string]any) { o["not"] = sub() },
		"if":    func(o map[string]any) { o["if"], o["then"], o["else"] = sub(), sub(), sub() },
		"$ref": func(o map[string]any) {
			o["$ref"] = rapid.SampledFrom([]string{"#/$defs/a", "#/$defs/b"}).Draw(t, "ref")
		},
	}
	if draft == schemaDraft07 {
		keywords["items list"] = func(o map[string]any) { o["items"], o["additionalItems"] = some(), sub() }
		keywords["dependencies"] = func(o map[string]any) { o["dependencies"] = named("a", "b") }
	} else {
		keywords["prefixItems"] = func(o map[string]any) { o["prefixItems"] = some() }
		keywords["dependentSchemas"] = func(o map[string]any) { o["dependentSchemas"] = named("a", "b") }
		keywords["minContains"] = func(o map[string]any) {
			o["contains"], o["minContains"], o["maxContains"] = sub(), number(2), number(3)
		}
		keywords["unevaluatedItems"] = func(o map[string]any) { o["unevaluatedItems"] = sub() }
		keywords["unevaluatedProperties"] = func(o map[string]any) { o["unevaluatedProperties"] = sub() }
	}
	names := slices.Sorted(maps.Keys(keywords))
	out := map[string]any{}
	for range rapid.IntRange(1, 4).Draw(t, "keywords") {
		keywords[rapid.SampledFrom(names).Draw(t, "keyword")](out)
	}
	return out
}

// longEnum gives more values than are compared one by one.
func longEnum() []any {
	out := []any{true, nil, json.RawMessage("1.0"), []any{"a"}, []any{1, "b"}, map[string]any{"a": 1}, map[string]any{"b": []any{}}}
	for i := range schemaEnum {
		out = append(out, i+2, strings.Repeat("a", i))
	}
	return out
}

// drawValue gives a value of at most the given depth.
func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth <= 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "value") {
	case 0:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "constant")
	case 1:
		return rapid.SampledFrom([]any{0, 1, json.RawMessage("1.0"), json.RawMessage("1e0"), 2.5, 30}).Draw(t, "number")
	case 2, 3:
		return rapid.SampledFrom([]string{"", "a", "ab", "b", "1", "true", "null"}).Draw(t, "string")
	case 4:
		out := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			out = append(out, drawValue(t, depth-1))
		}
		return out
	default:
		out := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			out[rapid.SampledFrom([]string{"a", "ab", "b", "c", "ba"}).Draw(t, "name")] = drawValue(t, depth-1)
		}
		return out
	}
}
