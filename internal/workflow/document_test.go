package workflow

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// TestReadDocument: a file beside workflows is read by rule D1, and every fault
// is named where it stands.
func TestReadDocument(t *testing.T) {
	schema, err := ParseSchema(json.RawMessage(`{"type":"object","additionalProperties":false,
		"properties":{"n":{"type":"integer"},"on":{"type":"string"},"o":{"type":"object","additionalProperties":false}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d, problems := ReadDocument("x.yaml", []byte("n: 12345678901234567890\non: yes\n"), schema)
	if d == nil || string(d.JSON()) != `{"n":12345678901234567890,"on":"yes"}` {
		t.Fatalf("gives %v, %v", d, problems)
	}
	p := d.Problem("/on", 1, parley.Problem{Code: "value", Text: "no"})
	if got, want := p.String(), "x.yaml:2:6: value: no"; got != want || p.Path != "on" {
		t.Errorf("problem %q at %q, want %q", got, p.Path, want)
	}
	for source, want := range map[string][]string{
		"n: 1\nn: 2\n":               {"x.yaml:2:1: duplicate_key: "},
		"n: x\no:\n  a: 1\n  b: 2\n": {"x.yaml:1:4: schema: this is string, must be integer", `x.yaml:3:3: unknown_member: unknown member "a"`, `x.yaml:4:3: unknown_member: unknown member "b"`},
		"":                           {"x.yaml:1:1: syntax: the document is empty"},
		"[":                          {"x.yaml:1:2: syntax: "},
		`{"more": 1, "n": 1.5}`:      {`x.yaml:1:2: unknown_member: unknown member "more"`, "x.yaml:1:18: schema: this is number, must be integer"},
		"- 1":                        {"x.yaml:1:1: schema: this is array, must be object"},
		"<<: {n: 1}":                 {"x.yaml:1:1: "},
		`{"a \", b": 1}`:             {`x.yaml:1:2: unknown_member: unknown member "a \", b"`},
	} {
		d, problems := ReadDocument("x.yaml", []byte(source), schema)
		var got []string
		for i, p := range problems {
			text := p.String()
			if i < len(want) && len(text) > len(want[i]) {
				text = text[:len(want[i])]
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(want, got); diff != "" || d != nil {
			t.Errorf("%q: problems (-want +got):\n%s", source, diff)
		}
	}
}
