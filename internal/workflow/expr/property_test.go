package expr

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// anyJSON draws JSON text with odd spacing, escapes, digits and member order.
func anyJSON(depth int) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?`)
	text := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{
			`""`, `"a"`, `"\u0041\n"`, `"\"}"`, `"\\"`, `"\\\""`, `"]["`, `"\ud83d\ude00"`, `"\u0000"`, `"é😀"`, `"${"`, `"}"`,
		}).Draw(t, "text")
	})
	return rapid.Custom(func(t *rapid.T) string {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return number.Draw(t, "number")
		case 1:
			return text.Draw(t, "string")
		case 2:
			return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")
		case 3:
			return rapid.SampledFrom([]string{"{}", "[]", "{ }", "[ ]"}).Draw(t, "empty")
		case 4:
			items := rapid.SliceOfN(anyJSON(depth-1), 1, 4).Draw(t, "items")
			return "[" + space.Draw(t, "s") + strings.Join(items, space.Draw(t, "s")+","+space.Draw(t, "s")) + space.Draw(t, "s") + "]"
		}
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c-d", "$e", "ö", "x1", "output", "items"}), 1, 4,
			func(s string) string { return s }).Draw(t, "names")
		var members []string
		for _, name := range names {
			quoted := strconv.Quote(name)
			if rapid.Bool().Draw(t, "escaped") {
				quoted = fmt.Sprintf(`"\u%04x%s`, []rune(name)[0], strconv.Quote(name)[1+len(string([]rune(name)[:1])):])
			}
			members = append(members, quoted+space.Draw(t, "s")+":"+space.Draw(t, "s")+anyJSON(depth-1).Draw(t, "value"))
		}
		return "{" + space.Draw(t, "s") + strings.Join(members, space.Draw(t, "s")+","+space.Draw(t, "s")) + space.Draw(t, "s") + "}"
	})
}

func TestE3_Property_PathsKeepTheBytes(t *testing.T) {
	c := document{steps: map[string]StepInfo{"x": {}}}.compiler(t)
	at := At{Each: []LoopAt{{}}, Plan: true}
	whole, _ := c.Template(json.RawMessage(one("x.output")), At{})
	scopes, _ := c.Template(json.RawMessage(`["${loop.item}","${each.item}","${plan.input}"]`), at)
	nested, _ := c.Template(json.RawMessage(`{"a":[1,"${x.output}"],"b":"${steps.x.output}"}`), At{})
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(4).Draw(t, "value")
		padded := rapid.SampledFrom([]string{"", " ", "\n"}).Draw(t, "pad") + value + " "
		s := document{steps: map[string]StepInfo{"x": done(padded)}}.scope()
		s.Each, s.PlanInput = &EachInfo{Item: json.RawMessage(padded)}, json.RawMessage(padded)
		got, err := scopes.Eval(s)
		if want := "[" + value + "," + value + "," + value + "]"; err != nil || string(got) != want {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
		got, err = whole.Eval(s)
		if err != nil || string(got) != value {
			t.Fatalf("got %s, %v; want %s", got, err, value)
		}
		got, err = nested.Eval(s)
		if want := `{"a":[1,` + value + `],"b":` + value + `}`; err != nil || string(got) != want {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
	})
}

// slowResolve is the obvious way to follow a path: decode a level, go on.
func slowResolve(value json.RawMessage, segments []segment) (json.RawMessage, bool) {
	for _, s := range segments {
		if s.isIndex {
			var list []json.RawMessage
			if json.Unmarshal(value, &list) != nil || s.index >= len(list) {
				return nil, false
			}
			value = list[s.index]
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil, false
		}
		v, ok := object[s.name]
		if !ok {
			return nil, false
		}
		value = v
	}
	return value, true
}

func TestE3_Property_PathsAgreeWithTheSlowResolver(t *testing.T) {
	c := document{steps: map[string]StepInfo{"x": {}}}.compiler(t)
	roots := rapid.SampledFrom([]string{"x.output", "steps.x.output", "loop.item", "each.item", "plan.input"})
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(4).Draw(t, "value")
		text := roots.Draw(t, "root") + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			".a", ".b", ".c-d", ".$e", ".ö", ".x1", ".output", ".items", "[0]", "[1]", "[2]",
		}), 0, 4).Draw(t, "path"), "")
		p, ok := parsePath(text, c.isStep, false)
		if !ok {
			t.Fatalf("%s is no path", text)
		}
		s := document{steps: map[string]StepInfo{"x": done(value)}}.scope()
		s.Each, s.PlanInput = &EachInfo{Item: json.RawMessage(value)}, json.RawMessage(value)
		got, f := p.resolve(s)
		want, found := slowResolve(json.RawMessage(value), p.segments)
		if found != (f == nil) || string(got) != string(want) {
			t.Fatalf("%s of %s = %s, %v; want %s", text, value, got, f, want)
		}
	})
}

// TestE6_Property_ValuesSurviveCEL compares values as CEL sees them with the
// values themselves.
func TestE6_Property_ValuesSurviveCEL(t *testing.T) {
	c := document{input: "{}", steps: map[string]StepInfo{"x": {}}}.compiler(t)
	kept, _ := c.Template(json.RawMessage(one("[x.output][0]")), At{})
	if kept == nil {
		t.Fatal("does not compile")
	}
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(3).Draw(t, "value")
		got, err := kept.Eval(document{steps: map[string]StepInfo{"x": done(value)}}.scope())
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		a, b := jsontext.Value(got), jsontext.Value(value)
		if a.Canonicalize() != nil || b.Canonicalize() != nil {
			return // lone surrogates and the like have no canonical form
		}
		if string(a) != string(b) && !sameNumber(string(a), string(b)) {
			t.Fatalf("%s became %s", value, got)
		}
	})
}

func sameNumber(a, b string) bool {
	x, errA := strconv.ParseFloat(a, 64)
	y, errB := strconv.ParseFloat(b, 64)
	return errA == nil && errB == nil && x == y
}

// TestE1_Property_TextIsEscaped puts any text around and into templates.
func TestE1_Property_TextIsEscaped(t *testing.T) {
	c := document{input: "{}"}.compiler(t)
	rapid.Check(t, func(t *rapid.T) {
		before := strings.ReplaceAll(rapid.String().Draw(t, "before"), "${", "")
		inside, after := rapid.String().Draw(t, "inside"), strings.ReplaceAll(rapid.String().Draw(t, "after"), "${", "")
		before = strings.TrimSuffix(before, "$")
		x, findings := c.Template(json.RawMessage(quote(before+"${workflow.input}"+after)), At{})
		if x == nil {
			t.Fatalf("%+v", findings)
		}
		got, err := x.Eval(document{input: quote(inside)}.scope())
		if err != nil {
			t.Fatal(err)
		}
		if text := unquote(got); text != before+inside+after {
			t.Fatalf("%q, want %q", text, before+inside+after)
		}
	})
}

// TestConcurrentUse compiles and evaluates with one compiler in many goroutines;
// the race detector watches.
func TestConcurrentUse(t *testing.T) {
	d := document{input: `{"n":1,"o":{"k":[1,2]}}`, steps: map[string]StepInfo{"a": done(`{"k":{"z":1}}`)}}
	c, s := d.compiler(t), d.scope()
	shared, _ := c.Template(json.RawMessage(`["${workflow.input.o.k.map(x, x + a.output.k.z)}","${a.output.k}"]`), At{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				own, _ := c.Template(json.RawMessage(one("workflow.input.n + a.output.k.z")), At{})
				got, err := shared.Eval(s)
				sum, err2 := own.Eval(s)
				if err != nil || err2 != nil || string(got) != `[[2,3],{"z":1}]` || string(sum) != "2" {
					t.Errorf("got %s, %v and %s, %v", got, err, sum, err2)
				}
			}
		})
	}
	group.Wait()
}
