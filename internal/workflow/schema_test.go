package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

func testSchema(t *testing.T, raw string) *Schema {
	t.Helper()
	s, err := ParseSchema(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("%.200s: %v", raw, err)
	}
	return s
}

// TestSchema_Check checks findings, their pointers, and that numbers are exact.
func TestSchema_Check(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{}`, `1`, ``},
		{`true`, `1`, ``},
		{`false`, `1`, ` is not allowed`},
		{`{"type": "object", "required": ["a", "b"]}`, `{}`, ` misses "a", "b"`},
		{`{"properties": {"a": {"properties": {"b/c": {"type": "integer"}}}}}`, `{"a": {"b/c": "x"}}`, `/a/b~1c is string, must be integer`},
		{`{"items": {"type": ["string", "null"]}}`, `["a", null, 1, 2.5]`, `/2 is number, must be null or string|/3 is number, must be null or string`},
		{`{"maximum": 9007199254740993}`, `9007199254740993`, ``},
		{`{"maximum": 9007199254740993}`, `9007199254740994`, ` must be at most 9007199254740993`},
		{`{"exclusiveMinimum": 0.1}`, `0.1`, ` must be more than 0.1`},
		{`{"multipleOf": 0.01}`, `0.07`, ``},
		{`{"multipleOf": 0.01}`, `0.075`, ` must be a multiple of 0.01`},
		{`{"const": 12345678901234567890}`, `12345678901234567891`, ` must be 12345678901234567890`},
		{`{"enum": ["a", 1.0]}`, `1`, ``},
		{`{"enum": ["a", "b"]}`, `"c"`, ` must be one of "a","b"`},
		{`{"additionalProperties": false}`, `{"secret": "s3cr3t"}`, ` has "secret", which the schema does not allow`},
		{`{"pattern": "^a+$"}`, `"secret"`, ` does not match the pattern "^a+$"`},
		{`{"maxLength": 3}`, `"äöüß"`, ` maxLength: got 4, want 3`},
		{`{"anyOf": [{"type": "string"}, {"properties": {"a": {"type": "string"}}, "required": ["a"]}]}`, `{"a": 1}`, ` fits none of the schemas in anyOf; nearest: /a is number, must be string`},
		{`{"oneOf": [{"type": "number"}, {"type": "integer"}]}`, `1`, ` fits more than one of the schemas in oneOf`},
		{`{"not": {"type": "number"}}`, `1`, ` fits the schema in not`},
		{`{"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}`, `1`, ` is number, must be string`},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false}`, `["a", 1]`, ` last 1 additionalItem(s) not allowed`},
		{`{"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}], "items": false}`, `["a", 1]`, `/1 is not allowed`},
		{`{"properties": {"a": true}, "patternProperties": {"^b": true}, "unevaluatedProperties": false}`, `{"a": 1, "b2": 2, "c": 3}`, `/c is not allowed`},
		{`{"allOf": [{"additionalProperties": {"type": "integer"}}], "unevaluatedProperties": false}`, `{"a": 1}`, ``},
		{`{"prefixItems": [true], "contains": {"type": "string"}, "unevaluatedItems": false}`, `[1, "a", 2, "b"]`, `/2 is not allowed`},
		{`{"contains": {"type": "string"}, "minContains": 2, "maxContains": 3}`, `[1, "a"]`, ` has 1 items that fit the schema in contains, must have at least 2`},
		{`{"contains": {"type": "string"}, "maxContains": 1}`, `[1, "a", "b"]`, ` has 2 items that fit the schema in contains, must have at most 1`},
		{`{"propertyNames": {"maxLength": 1}}`, `{"b": 1, "bb": 2, "ab": 3}`, ` the name "ab" maxLength: got 2, want 1| the name "bb" maxLength: got 2, want 1`},
		{`{"enum": [1.0, 2, 3, 4, 5, 6, 7, 8, 9, "a", "b", "true", true, {"x": 1}, [1], "c", "d", 1e2]}`, `[{"x": 2}]`, ` must be one of 1.0,2,3,4,5,6,7,8,9,"a","b","true",true,{"x":1},[1],"c","d",1e2`},
		{`{"items": {"enum": [1.0, 2, 3, 4, 5, 6, 7, 8, 9, "true", true, {"x": 1}, [1], "c", "d", "e", 1e2]}}`, `[1, 100, "true", {"x": 1.0}, [1.0], 11]`, `/5 must be one of 1.0,2,3,4,5,6,7,8,9,"true",true,{"x":1},[1],"c","d","e",1e2`},
		{`{"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "a", "b", "c", "d", "e", "false", "null"]}`, `false`, ` must be one of 0,1,2,3,4,5,6,7,8,9,"a","b","c","d","e","false","null"`},
		{`{"prefixItems": [{"type": "string"}]}`, `[1]`, `/0 is number, must be string`},
		{`{"maximum": 1}`, `1e999999999`, ` the number is too long to be compared: at most 1000 digits and exponents up to 1000`},
		{`{}`, `{"a": [`, ` this is not JSON: unexpected EOF within "/a" after offset 7`},
		{`{}`, `1 2`, ` this is not JSON: there is more than one value`},
		{`{}`, ``, ` this is not JSON: EOF`},
		{`{}`, strings.Repeat("[", 65) + strings.Repeat("]", 65), " values are nested deeper than the limit `depth` of 64"},
		{`{}`, `"\ud800\u0000"`, ``},
	} {
		var got []string
		if err := testSchema(t, c.schema).Check(json.RawMessage(c.value)); err != nil {
			fault, ok := errors.AsType[*SchemaError](err)
			if !ok {
				t.Fatalf("%T", err)
			}
			for _, f := range fault.Findings {
				got = append(got, f.Pointer+" "+f.Text)
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("%s against %.100s (-want +got):\n%s", c.value, c.schema, diff)
		}
	}
	many := testSchema(t, `{"items": {"type": "string"}}`).Check(json.RawMessage("[" + strings.Repeat("1,", 99) + "1]"))
	if fault, _ := errors.AsType[*SchemaError](many); len(fault.Findings) != 20 || !strings.HasSuffix(many.Error(), "(and 19 more)") {
		t.Errorf("%d findings: %v", len(fault.Findings), many)
	}
}

// TestSchema_Refused checks that a schema reaches nothing outside and that its
// faults have pointers.
func TestSchema_Refused(t *testing.T) {
	for raw, want := range map[string]string{
		`{"$ref": "file:///etc/passwd"}`:                         `"file:///etc/passwd" leads outside`,
		`{"$ref": "http://127.0.0.1:1/x"}`:                       `"http://127.0.0.1:1/x" leads outside`,
		`{"$ref": "x.json#/a"}`:                                  `"x.json" leads outside`,
		`{"$id": "http://h/a.json", "$ref": "b.json"}`:           `"http://h/b.json" leads outside`,
		`{"properties": {"a": {"$dynamicRef": "https://h/x"}}}`:  `"https://h/x" leads outside`,
		`{"$schema": "http://h/meta"}`:                           `only draft-07`,
		`{"$schema": "http://json-schema.org/draft-06/schema#"}`: `only draft-07`,
		`{"$schema": 5}`:                                         `only draft-07`,
		`{"$ref": "#/nowhere"}`:                                  `leads nowhere`,
		`{"type": "strin"}`:                                      `/type: a type is`,
		`{"properties": []}`:                                     `/properties: is array, must be object`,
		`{"patternProperties": {"(": {}}}`:                       `not a regular expression`,
		`{"pattern": "(?!x)"}`:                                   `not a regular expression`,
		`{"pattern": "` + strings.Repeat("a", 1001) + `"}`:       `not a regular expression`,
		`"x"`:                  `a schema is an object`,
		`null`:                 `a schema is an object`,
		`{"minimum": 1e99999}`: `/minimum: the number is too long`,
		`{"anyOf": [` + strings.Repeat(`{"a":1},`, 5000) + `true]}`: `5001 objects`,
		`{`:                 `not JSON`,
		"{\"a\": \"\xff\"}": `not UTF-8`,
		strings.Repeat(`{"not":`, 65) + "true" + strings.Repeat("}", 65):  `nested deeper`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":5}`: `/items`,
		`{"$defs": {"a": {"$id": "parley:///schema", "type": "string"}}}`: ``,
	} {
		_, err := ParseSchema(json.RawMessage(raw))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v, want %q", raw, err, want)
		}
	}
}

// TestSchema_Bounded checks schemas whose work doubles at every level.
func TestSchema_Bounded(t *testing.T) {
	var flat strings.Builder
	flat.WriteString(`{"$defs": {"a0": {"type": "number"}`)
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&flat, `, "a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}`, i, i-1, i-1)
	}
	flat.WriteString(`}, "$ref": "#/$defs/a39"}`)
	deep := `{"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}`
	value := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	old := strings.Replace(deep, "{", `{"$schema": "http://json-schema.org/draft-07/schema#",`, 1)
	for schema, value := range map[string]string{flat.String(): "1", deep: value, old: value} {
		s := testSchema(t, schema)
		start := time.Now()
		err := s.Check(json.RawMessage(value))
		if err == nil || !strings.Contains(err.Error(), "takes more than") || time.Since(start) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := s.Check(json.RawMessage(`{"a": {"a": 1}}`)); schema != flat.String() && err != nil {
			t.Errorf("the next check fails: %v", err)
		}
	}
	// A long value does not allow more of them at one place.
	long := strings.Repeat("a", 1_000_000)
	if err := testSchema(t, flat.String()).Check(json.RawMessage(`"` + long[:50_000] + `"`)); err == nil || !strings.Contains(err.Error(), "more than 30000 steps") {
		t.Errorf("a long text against a schema that doubles: %v", err)
	}
	patterns := testSchema(t, `{"pattern": "(a{0,30}b?){30}z", "patternProperties": {"(a{0,30}b?){30}z": {"default": 1}}, "properties": {"x": {"default": 1}}}`)
	if err := patterns.Check(json.RawMessage(`"` + long + `"`)); err == nil || !strings.Contains(err.Error(), "patterns of the schema takes more than") {
		t.Errorf("a pattern that takes minutes: %v", err)
	}
	if _, err := (&Definition{Input: patterns}).CheckInput(json.RawMessage(`{"`+long+`": 1}`), schemaBytes); parley.CodeOf(err) != parley.CodeLimit || !strings.Contains(err.Error(), "patterns") {
		t.Errorf("CheckInput with a name that takes minutes: %v", err)
	}
	if err := patterns.Check(json.RawMessage(`"` + long[:300] + `z"`)); err != nil {
		t.Errorf("the next check fails: %v", err)
	}
	var fills strings.Builder
	fills.WriteString(`{"$defs": {"a0": {}`)
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&fills, `, "a%d": {"properties": {"x": {"$ref": "#/$defs/a%d", "default": {}}, "y": {"$ref": "#/$defs/a%d", "default": {}}}}`, i, i-1, i-1)
	}
	fills.WriteString(`}, "$ref": "#/$defs/a39"}`)
	endless := `{"properties": {"a": {"$ref": "#", "default": {}}}}`
	for _, schema := range []string{fills.String(), endless} {
		s := testSchema(t, schema)
		if got := s.FillDefaults(json.RawMessage("{}")); string(got) != "{}" {
			t.Errorf("filled %d bytes", len(got))
		}
		_, err := (&Definition{Input: s}).CheckInput(nil, schemaBytes)
		if parley.CodeOf(err) != parley.CodeLimit {
			t.Errorf("CheckInput: %v", err)
		}
	}
}

// TestInput_Defaults checks rule D-top `input`: defaults at every depth, the
// other bytes as they are.
func TestInput_Defaults(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"properties": {"b": {"default": 2.50}, "a": {"default": "<x>"}}}`, `{}`, `{"a":"<x>","b":2.50}`},
		{`{"properties": {"a": {"default": 1}}}`, "{ \"z\" : 12345678901234567890 ,\"z\":1.0\n}", "{ \"z\" : 12345678901234567890 ,\"z\":1.0\n,\"a\":1}"},
		{`{"properties": {"a": {"default": 1}}}`, ` { "a" : null } `, ` { "a" : null } `},
		{`{"properties": {"a": {"properties": {"b": {"default": 1}}}}}`, `{}`, `{}`},
		{`{"properties": {"a": {"properties": {"b": {"default": 1}}}}}`, `{"a":{}}`, `{"a":{"b":1}}`},
		{`{"properties": {"a": {"default": {}, "properties": {"b": {"default": 1}}}}}`, `{}`, `{"a":{"b":1}}`},
		{`{"properties": {"a": {"items": {"properties": {"b": {"default": 1}}}}}}`, `{"a":[{}, {"b":2}, 3, []]}`, `{"a":[{"b":1}, {"b":2}, 3, []]}`},
		{`{"prefixItems": [{}, {"properties": {"b": {"default": 1}}}], "items": {"properties": {"c": {"default": 2}}}}`, `[{},{},{}]`, `[{},{"b":1},{"c":2}]`},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, {"properties": {"b": {"default": 1}}}], "additionalItems": {"properties": {"c": {"default": 2}}}}`, `[{},{},{}]`, `[{},{"b":1},{"c":2}]`},
		{`{"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"default": {"x": 1}, "properties": {"y": {"default": 2}}}}}`, `{}`, `{"a":{"x":1,"y":2}}`},
		{`{"allOf": [{"properties": {"a": {"default": 1}}}, {"properties": {"b": {"default": 2}}}], "properties": {"a": {"default": 0}}}`, `{}`, `{"a":0,"b":2}`},
		{`{"additionalProperties": {"properties": {"b": {"default": 1}}}, "properties": {"q": {}}, "patternProperties": {"^p": {"properties": {"c": {"default": 2}}}}}`, `{"n":{},"p":{},"q":{}}`, `{"n":{"b":1},"p":{"c":2},"q":{}}`},
		{`{"anyOf": [{"properties": {"a": {"default": 1}}}]}`, `{}`, `{}`},
		{`{"properties": {"default": {"default": null}}}`, `{}`, `{"default":null}`},
		{`{"properties": {"a": {"default": 1}}}`, `[{}]`, `[{}]`},
		{`{"properties": {"é\"": {"default": "é"}}}`, `{"\u0000":"\ud83d\ude00"}`, `{"\u0000":"\ud83d\ude00","é\"":"é"}`},
	} {
		if got := string(testSchema(t, c.schema).FillDefaults(json.RawMessage(c.value))); got != c.want {
			t.Errorf("%s with %s:\ngot  %s\nwant %s", c.value, c.schema, got, c.want)
		}
	}
}

// TestInput_Check checks CheckInput's errors.
func TestInput_Check(t *testing.T) {
	def := testParse(t, `{"name": "x", "steps": [{"agent": "a"}], "input": {"type": "object", "required": ["topic", "n"], "properties": {"topic": {"type": "string"}, "n": {"type": "integer", "default": 3}}}}`)
	got, err := def.CheckInput(json.RawMessage(`{"topic": "x"}`), schemaBytes)
	if err != nil || string(got) != `{"topic": "x","n":3}` {
		t.Errorf("%s, %v", got, err)
	}
	_, err = def.CheckInput(nil, schemaBytes)
	fault, ok := errors.AsType[*parley.Error](err)
	if !ok || fault.Code != parley.CodeInvalidInput || string(fault.Details) != `[{"pointer":"","text":"misses \"topic\""}]` {
		t.Errorf("%v %s", err, fault.Details)
	}
	_, err = def.CheckInput(json.RawMessage(`{"topic": 5, "n": 2.5}`), schemaBytes)
	fault, _ = errors.AsType[*parley.Error](err)
	var details []SchemaFinding
	if json.Unmarshal(fault.Details, &details) != nil || len(details) != 2 {
		t.Errorf("details %s", fault.Details)
	}
	free := testParse(t, "name: x\nsteps: [{agent: a}]")
	for value, want := range map[string]parley.Code{
		``: "", ` [1] `: "", `{"a"`: parley.CodeInvalidInput, `{} {}`: parley.CodeInvalidInput, "\"\xff\"": parley.CodeInvalidInput,
		strings.Repeat("[", 65) + strings.Repeat("]", 65): parley.CodeLimit,
		`"` + strings.Repeat("x", 8<<20-2) + `"`:          "",
		`"` + strings.Repeat("x", 8<<20-1) + `"`:          parley.CodeLimit,
		`{"duplicate": 1, "duplicate": 2, "big": 1e1000}`: "",
	} {
		got, err := free.CheckInput(json.RawMessage(value), schemaBytes)
		if parley.CodeOf(err) != want {
			t.Errorf("%.40q: %v, want %q", value, err, want)
		}
		if err == nil && value != "" && string(got) != value {
			t.Errorf("%.40q is changed to %.40q", value, got)
		}
	}
}

func TestSchema_Concurrent(t *testing.T) {
	s := testSchema(t, `{"properties": {"a": {"type": "string", "default": "x"}}, "additionalProperties": false}`)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				good := s.Check(s.FillDefaults(json.RawMessage(`{}`)))
				bad := s.Check(json.RawMessage(fmt.Sprintf(`{"x%d": 1}`, i)))
				if good != nil || bad == nil || !strings.Contains(bad.Error(), fmt.Sprintf("x%d", i)) {
					t.Errorf("%v, %v", good, bad)
				}
			}
		})
	}
	wg.Wait()
}

// TestSchema_LargeValuesPass checks values that need many looks at every byte:
// the bound on the work grows with the value.
func TestSchema_LargeValuesPass(t *testing.T) {
	schema, err := ParseSchema(json.RawMessage(`{"items":{"anyOf":[{"type":"string"},{"type":"boolean"},{"type":"null"},{"type":"array"},{"type":"integer"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(json.RawMessage("[" + strings.Repeat("1,", 50_000) + "1]")); err != nil {
		t.Error(err)
	}
}

// TestInput_DefaultsTakeTheirTimeOnce: what an input costs grows with its length, not
// with the properties that its objects could have.
func TestInput_DefaultsTakeTheirTimeOnce(t *testing.T) {
	var properties strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&properties, `"p%d":{"type":"string"},`, i)
	}
	s := testSchema(t, `{"properties":{"a":{"default":1},"list":{"items":{"properties":{`+properties.String()+`"x":true}}}}}`)
	start := time.Now()
	got := s.FillDefaults(json.RawMessage(`{"list":[` + strings.Repeat("{},", 300_000) + `{}]}`))
	if took := time.Since(start); !strings.HasSuffix(string(got), `{}],"a":1}`) || took > time.Minute {
		t.Errorf("%d bytes after %s", len(got), took)
	}
}

// TestC10_SchemasSayTheSameEachTime: what a value lacks, and the defaults that it gets,
// are the same each time, since they are recorded and shown. The library goes through
// its schemas in another order each time.
func TestC10_SchemasSayTheSameEachTime(t *testing.T) {
	const schema = `{"properties": {"a": {"type": "string"}, "b": {"maximum": 0, "minimum": 5}, "c": {"items": {"type": "null"}}},
		"patternProperties": {"^x": {"properties": {"d": {"default": 1}}}, "x$": {"properties": {"d": {"default": 2}}}, "x": {"properties": {"d": {"default": 3}}}}}`
	want := []SchemaFinding{{"/a", "is number, must be string"}, {"/b", "must be at most 0"}, {"/b", "must be at least 5"}}
	for i := range 17 {
		want = append(want, SchemaFinding{fmt.Sprintf("/c/%d", i), "is number, must be null"})
	}
	for range 50 {
		s := testSchema(t, schema)
		fault, ok := errors.AsType[*SchemaError](s.Check(json.RawMessage(`{"c": [` + strings.Repeat("1, ", 30) + `1], "b": 1, "a": 1}`)))
		if !ok {
			t.Fatal("it fits")
		}
		if diff := cmp.Diff(want, fault.Findings); diff != "" {
			t.Fatalf("other findings:\n%s", diff)
		}
		if got := string(s.FillDefaults(json.RawMessage(`{"xx": {}}`))); got != `{"xx": {"d":1}}` {
			t.Fatalf("the defaults give %s", got)
		}
	}
	_, err := ParseSchema(json.RawMessage(`{"type": "x", "properties": {"b": {"type": 1}, "a": {"type": 1}}, "minimum": "y"}`))
	fault, ok := errors.AsType[*SchemaError](err)
	if !ok {
		t.Fatal(err)
	}
	var places []string
	for _, f := range fault.Findings {
		places = append(places, f.Pointer)
	}
	if diff := cmp.Diff([]string{"/minimum", "/properties/a/type", "/properties/b/type", "/type"}, places); diff != "" {
		t.Errorf("a schema has other findings:\n%s", diff)
	}
}

// TestLimits_LongNames: the name of a member may be as long as a document or a value. What
// is said of what stands behind it does not repeat it each time.
func TestLimits_LongNames(t *testing.T) {
	name := strings.Repeat("x", 20_000)
	wrong := `{"` + name + `":[` + strings.Repeat(`"${}",`, 50) + `{"a":1,"a":2}]}`
	for kind, document := range map[string]string{
		"expressions": `{"name":"t","steps":[{"set":` + strings.Replace(wrong, `"a":2`, `"b":2`, 1) + `}]}`,
		"reading":     `{"name":"t","steps":[{"set":` + wrong + `}]}`,
		"members":     `{"name":"t","steps":[{"emit":{"event":"e","` + name + `":1}}]}`,
	} {
		_, problems := Parse(ParseOptions{}, []byte(document))
		if len(problems) == 0 {
			t.Errorf("%s: nothing is found", kind)
		}
		for _, p := range problems {
			if len(p.Path) > maxPath+10 {
				t.Fatalf("%s: the path of %s has %d bytes", kind, p.Code, len(p.Path))
			}
		}
	}
	s := testSchema(t, `{"additionalProperties": {"additionalProperties": false}, "propertyNames": {"maxLength": 9}}`)
	fault, ok := errors.AsType[*SchemaError](s.Check(json.RawMessage(`{"` + name + `": {"` + name + `": 1}}`)))
	if !ok || len(fault.Findings) != 2 {
		t.Fatalf("%v", fault)
	}
	for _, f := range fault.Findings {
		if len(f.Pointer) > maxPath || len(f.Text) > maxPath {
			t.Errorf("what does not fit is told in %d bytes at a pointer of %d", len(f.Text), len(f.Pointer))
		}
	}
}
