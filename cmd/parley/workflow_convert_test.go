package main

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-project/parley/internal/workflow"
)

// TestD1_WrittenYAMLReadsAsTheSame writes documents as YAML: whatever their texts
// and names are, they are read as the same document.
func TestD1_WrittenYAMLReadsAsTheSame(t *testing.T) {
	texts := rapid.OneOf(
		rapid.SampledFrom([]string{
			"", " ", "~", "null", "Null", "true", "yes", "on", "No", "0o17", "0x1F", "017", "1_000", "1e3", ".5", "1.", "+1", "-0", ".inf", ".NaN", "12:30:45", "2026-01-02", "<<", "=", "*a", "&a", "!x",
			"\t\n", "a\n\tb\n", " \na", "\n \n\t", "a: b", "a #b", "- a", "? a", "[a", "{a", "%a", "@a", "`a", "'a", "\"a", "a\nb\n", "\na", "a\n\n", " a\n b", "\ta", "a\t", "${a.b}", "a\u0085b", "a\u2028b", "\u0000", "\u007f", "\ufeff", "é漢😀", "---", "...", "--- a", "a\r\nb", "a\rb",
		}),
		rapid.StringN(0, 8, -1),
	)
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) *workflow.Value {
			return &workflow.Value{Kind: workflow.StringValue, Text: texts.Draw(t, name)}
		}
		doc := &workflow.Value{Kind: workflow.ObjectValue}
		list := &workflow.Value{Kind: workflow.ListValue, Items: []*workflow.Value{
			text("item"), {Kind: workflow.NumberValue, Text: "1.50e400"}, {Kind: workflow.NullValue}, {Kind: workflow.BoolValue, Text: "true"}, {Kind: workflow.ListValue}, {Kind: workflow.ObjectValue},
		}}
		doc.Members = []workflow.ValueMember{{Name: "list", Value: list}, {Name: "member" + texts.Draw(t, "name"), Value: text("value")}, {Name: texts.Draw(t, "name alone") + " ", Value: text("other")}}
		for _, format := range []string{"yaml", "json"} {
			a := &app{}
			a.flags.output = format
			out, _, err := a.written(doc, workflow.FormList)
			if err != nil {
				t.Fatal(err)
			}
			read, problems := workflow.ReadTree(workflow.ParseOptions{}, out)
			if read == nil {
				t.Fatalf("%s: %v\n%s", format, problems, out)
			}
			if got, want := string(read.JSON()), string(doc.JSON()); got != want {
				t.Fatalf("%s: %s\nbecame %s\nby\n%s", format, want, got, out)
			}
		}
	})
}
