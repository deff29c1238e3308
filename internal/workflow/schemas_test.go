package workflow

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/parley-project/parley/internal/workflow/schemas"
)

// published is the part of the JSON Schema of workflows that the parser's tables
// are compared with.
type published struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Enum       []string                   `json:"enum"`
	AnyOf      []published                `json:"anyOf"`
}

func publishedDefs(t *testing.T) map[string]published {
	t.Helper()
	raw, _ := schemas.Named("workflow")
	var doc struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	defs := map[string]published{}
	for name, def := range doc.Defs {
		var p published
		if err := json.Unmarshal(def, &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defs[name] = p
	}
	return defs
}

// TestD2_SchemaHasEveryMember fails when the parser reads a member, a kind or a
// code that editors are not told of.
func TestD2_SchemaHasEveryMember(t *testing.T) {
	defs := publishedDefs(t)
	has := func(def, member string) {
		t.Helper()
		if defs[def].Properties[member] == nil {
			t.Errorf("schemas/workflow.json: $defs.%s has no member %q", def, member)
		}
	}
	for _, row := range parseMembers() {
		has("step", row.name)
		if row.name != "needs" {
			has("graph_step", row.name)
		}
	}
	for _, name := range append(parseGraphOnly(), "next_step") {
		has("graph_step", name)
	}
	p := &parser{def: &Definition{}}
	for _, f := range p.topMembers() {
		if f.name != "start_step" {
			has("list_form", f.name)
		}
		has("graph_form", f.name)
	}
	for _, f := range p.policyMembers(&RetryPolicy{}) {
		has("retry_policy", f.name)
	}
	var kind published
	if err := json.Unmarshal(defs["step"].Properties["type"], &kind); err != nil {
		t.Fatal(err)
	}
	for _, k := range parseKinds() {
		if !slices.Contains(kind.Enum, string(k.kind)) {
			t.Errorf("schemas/workflow.json: step.type has no %q", k.kind)
		}
		for _, name := range k.names {
			has("step", name)
		}
	}
	for _, code := range parseCodes() {
		if !slices.Contains(defs["error_code"].AnyOf[0].Enum, code) {
			t.Errorf("schemas/workflow.json: error_code has no %q", code)
		}
	}
}

// TestKindOf holds the kinds that trees are read by to those of the parser.
func TestKindOf(t *testing.T) {
	all := kindMembers()
	for _, k := range parseKinds() {
		i := slices.IndexFunc(all, func(row parseKind) bool { return row.kind == k.kind })
		if i < 0 {
			t.Errorf("KindOf does not know %s", k.kind)
			continue
		}
		for _, name := range k.names {
			if name != "steps" && !slices.Contains(all[i].names, name) {
				t.Errorf("KindOf does not know that %s makes a %s", name, k.kind)
			}
		}
	}
	for doc, want := range map[string]Kind{
		"{steps: [], for_each: []}": "loop", "{steps: []}": KindGroup, "{else: []}": KindConditional, "{id: a}": "",
		"{type: wait, set: 1}": KindWait, "{type: null, event: a}": "wait_for_event",
	} {
		tree, problems := ReadTree(ParseOptions{}, []byte("a: "+doc))
		if tree == nil {
			t.Fatal(problems)
		}
		if got := KindOf(tree.Get("a"), false); got != want {
			t.Errorf("%s: %q, want %q", doc, got, want)
		}
	}
}

// TestReadTree checks that a tree is the document, place by place.
func TestReadTree(t *testing.T) {
	tree, problems := ReadTree(ParseOptions{File: "a.yaml"}, []byte("name: x\nsteps:\n  - id: a\n    set: [1.50, on, null, true]\n"))
	if tree == nil {
		t.Fatal(problems)
	}
	if got, want := string(tree.JSON()), `{"name":"x","steps":[{"id":"a","set":[1.50,"on",null,true]}]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	list := tree.Get("steps").Items[0].Get("set")
	if list.Path != "steps[0].set" || list.Line != 4 || list.Col != 10 || list.Items[1].Path != "steps[0].set[1]" {
		t.Errorf("the list is at %d:%d %s", list.Line, list.Col, list.Path)
	}
	if list.Items[1].String() != "on" || list.Items[0].String() != "" || list.Kind.String() != "a list" {
		t.Error("the values are not what they are")
	}
	if tree.Form() != FormList || tree.Get("name").Get("x") != nil || tree.Given("absent") != nil {
		t.Error("members are found where there are none")
	}
	if tree, problems = ReadTree(ParseOptions{File: "a.yaml"}, []byte("{")); tree != nil || len(problems) != 1 || problems[0].File != "a.yaml" {
		t.Errorf("%v, %v", tree, problems)
	}
	for doc, want := range map[string]Form{"start_step: a": FormGraph, "steps: {}": FormGraph, "steps: []\nstart_step: a": FormList} {
		if tree, _ := ReadTree(ParseOptions{}, []byte(doc)); tree.Form() != want {
			t.Errorf("%s: %s", doc, tree.Form())
		}
	}
}
