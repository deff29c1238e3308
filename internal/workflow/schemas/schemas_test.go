package schemas_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/schemas"
	"github.com/parley-project/parley/internal/workflow/workflowtest"
)

// compiled is the schema of workflows as a validator of other people reads it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, ok := schemas.Named("workflow")
	if !ok {
		t.Fatal("there is no schema of workflows")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertVocabs()
	if err := c.AddResource("mem:///workflow.json", doc); err != nil {
		t.Fatal(err)
	}
	// Compiling checks the schema against that of schemas first.
	s, err := c.Compile("mem:///workflow.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fits(t *testing.T, s *jsonschema.Schema, source []byte) error {
	t.Helper()
	tree, problems := workflow.ReadTree(workflow.ParseOptions{}, source)
	if tree == nil {
		t.Fatalf("%s\n%s", problems, source)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(tree.JSON()))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

// TestD2_ValidDocumentsFitTheSchema holds the schema to every document that
// compiles, and to the examples of the language.
func TestD2_ValidDocumentsFitTheSchema(t *testing.T) {
	s := compiled(t)
	for _, pattern := range []string{"testdata/examples.txtar", "testdata/valid.txtar"} {
		for _, f := range workflowtest.Documents(t, pattern) {
			if err := fits(t, s, f.Data); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
	tried := 0
	for _, pattern := range []string{"../testdata/*/*.txtar", "../testdata/plans/*.yaml", "../testdata/plans/*.json", "../../sample/*.yaml", "../../../examples/*/flows/*.yaml"} {
		for _, f := range workflowtest.Documents(t, pattern) {
			if def, _ := workflow.Parse(workflow.ParseOptions{}, f.Data); def == nil {
				continue
			}
			tried++
			if err := fits(t, s, f.Data); err != nil {
				t.Errorf("%s: %v\n%s", f.Name, err, f.Data)
			}
		}
	}
	if tried < 40 {
		t.Errorf("%d valid documents were found", tried)
	}
}

// TestD2_WrongDocumentsDoNotFitTheSchema has one mistake in each document.
func TestD2_WrongDocumentsDoNotFitTheSchema(t *testing.T) {
	s := compiled(t)
	wrong := workflowtest.Documents(t, "testdata/wrong.txtar")
	for _, f := range wrong {
		for doc := range strings.SplitSeq(string(f.Data), "---\n") {
			if fits(t, s, []byte(doc)) == nil {
				t.Errorf("%s fits:\n%s", f.Name, doc)
			}
		}
	}
}

// TestSchemaSaysWhatItMeans holds every member of the schema to a description,
// and every example and default in it to the schema that it is an example of.
func TestSchemaSaysWhatItMeans(t *testing.T) {
	raw, _ := schemas.Named("workflow")
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	defs := doc["$defs"].(map[string]any)
	for _, name := range []string{"list_form", "graph_form", "step", "graph_step", "retry_policy", "handler", "trigger"} {
		members := defs[name].(map[string]any)["properties"].(map[string]any)
		for member, schema := range members {
			if !described(schema, defs) {
				t.Errorf("%s.%s has no description", name, member)
			}
		}
	}
	c := jsonschema.NewCompiler()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("mem:///workflow.json", value); err != nil {
		t.Fatal(err)
	}
	tried := examples(t, c, place{"#", value})
	if tried < 50 {
		t.Errorf("%d examples were found", tried)
	}
}

func described(schema any, defs map[string]any) bool {
	o := schema.(map[string]any)
	if o["description"] != nil {
		return true
	}
	if ref, ok := o["$ref"].(string); ok {
		return described(defs[strings.TrimPrefix(ref, "#/$defs/")], defs)
	}
	alternatives, _ := o["anyOf"].([]any)
	return slices.ContainsFunc(alternatives, func(a any) bool { return described(a, defs) })
}

type place struct {
	pointer string
	value   any
}

// examples validates the examples and defaults below a place of the schema.
func examples(t *testing.T, c *jsonschema.Compiler, at place) (tried int) {
	t.Helper()
	switch v := at.value.(type) {
	case []any:
		for i, item := range v {
			tried += examples(t, c, place{at.pointer + "/" + strconv.Itoa(i), item})
		}
	case map[string]any:
		samples, _ := v["examples"].([]any)
		if d, ok := v["default"]; ok {
			samples = append(slices.Clone(samples), d)
		}
		if !strings.HasSuffix(at.pointer, "/properties") && len(samples) > 0 && !strings.Contains(at.pointer, "/examples") {
			s, err := c.Compile("mem:///workflow.json" + at.pointer)
			if err != nil {
				t.Fatalf("%s: %v", at.pointer, err)
			}
			for _, sample := range samples {
				tried++
				if err := s.Validate(sample); err != nil {
					t.Errorf("%s: an example or default does not fit: %v", at.pointer, err)
				}
			}
		}
		for name, member := range v {
			if name != "examples" && name != "default" {
				tried += examples(t, c, place{at.pointer + "/" + name, member})
			}
		}
	}
	return tried
}

// TestNames checks that what is named is there, and nothing else.
func TestNames(t *testing.T) {
	for _, name := range schemas.Names() {
		if raw, ok := schemas.Named(name); !ok || !json.Valid(raw) {
			t.Errorf("%s: no JSON", name)
		}
	}
	if _, ok := schemas.Named("nothing"); ok {
		t.Error("there is a schema of nothing")
	}
}
