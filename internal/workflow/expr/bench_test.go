package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func benchTemplate(b *testing.B, d document, template string) {
	b.Helper()
	x, findings := d.compiler(b).Template(json.RawMessage(template), At{})
	if x == nil {
		b.Fatal(findings)
	}
	s := d.scope()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Eval(s); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDocument() document {
	return document{
		input: `{"topic":"the history of the printing press","n":12345,"options":{"lang":"en"}}`,
		steps: map[string]StepInfo{"a": done(`{"status":{"state":"completed"},"artifacts":[{"parts":[{"kind":"text","text":"` +
			strings.Repeat("some text ", 40) + `"}]}],"text":"` + strings.Repeat("some text ", 40) + `","context_id":"c-1"}`)},
	}
}

func BenchmarkPaths(b *testing.B) {
	benchTemplate(b, benchDocument(), `{"text":"${a.output.text}","n":"${workflow.input.n}"}`)
}

func BenchmarkText(b *testing.B) {
	benchTemplate(b, benchDocument(), `{"text":"About ${workflow.input.topic} (${workflow.input.n})"}`)
}

func BenchmarkLiteral(b *testing.B) { benchTemplate(b, benchDocument(), `{"text":"About"}`) }

func BenchmarkCEL(b *testing.B) {
	benchTemplate(b, benchDocument(), one("workflow.input.n + 1"))
}

func BenchmarkCELFilter(b *testing.B) {
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"id":%d,"name":"item","score":%d.5}`, i, i))
	}
	d := benchDocument()
	d.steps["list"] = done("[" + strings.Join(items, ",") + "]")
	benchTemplate(b, d, one("list.output.filter(x, x.score > 50)"))
}

// BenchmarkLarge finds one member of a value of about 1 MiB.
func BenchmarkLarge(b *testing.B) {
	d := benchDocument()
	d.steps["big"] = done(`{"a":[` + strings.Repeat(`{"k":"some text","n":1},`, 45_000) + `1],"z":{"k":7}}`)
	b.Run("path", func(b *testing.B) { benchTemplate(b, d, one("big.output.z.k")) })
	b.Run("CEL", func(b *testing.B) { benchTemplate(b, d, one("big.output.z.k + 1")) })
}

func BenchmarkCondition(b *testing.B) {
	d := benchDocument()
	x, _ := d.compiler(b).Condition("workflow.input.n > 100 && a.status == 'COMPLETED'", At{})
	s := d.scope()
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := x.Eval(s); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = fmt.Sprintf("step_%d", i)
	}
	for _, n := range []int{5, 2000} {
		b.Run(fmt.Sprintf("environment of %d steps", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := newEnvironment(ids[:n], nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	c, _ := NewCompiler(Options{StepIDs: ids})
	b.Run("expression", func(b *testing.B) {
		for b.Loop() {
			if x, f := c.Template(json.RawMessage(one("step_7.output.n + 1")), At{}); x == nil {
				b.Fatal(f)
			}
		}
	})
	b.Run("path", func(b *testing.B) {
		for b.Loop() {
			if x, f := c.Template(json.RawMessage(one("step_7.output.n")), At{}); x == nil {
				b.Fatal(f)
			}
		}
	})
}
