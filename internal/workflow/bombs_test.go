package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// bomb is a document, or one with an input or an answer, that asks for far more
// than it holds. It must end in error limit.
type bomb struct {
	name, document string
	// input is that of the start; a bomb without one must not compile.
	input string
	// answer is what the first agent says, for bombs that only then go off.
	answer string
}

func bombs() []bomb {
	set := func(expression string) string {
		return "name: bomb\nsteps:\n- {id: s, set: '${" + strings.ReplaceAll(expression, "'", "''") + "}'}\n- {id: t, agent: a}\n"
	}
	return []bomb{
		{name: "aliases", document: bombAliases()},
		{name: "aliases of steps", document: bombAliasedSteps()},
		{name: "deep YAML", document: "name: " + strings.Repeat("[", 200_000)},
		{name: "deep YAML blocks", document: "name: bomb\nsteps:\n" + strings.Repeat("- ", 200_000) + "x"},
		{name: "deep JSON", document: `{"name":` + strings.Repeat("[", 200_000)},
		{name: "deep scopes", document: bombScopes(2_000)},
		{name: "deep value", document: "name: bomb\nsteps:\n- {id: s, set: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}\n"},
		{name: "large source", document: "name: bomb\nsteps:\n" + strings.Repeat("- {agent: a}\n", 100_000)},
		{name: "many values", document: "name: bomb\nsteps:\n- {id: s, set: [" + strings.Repeat("1,", 200_000) + "1]}\n"},
		{name: "many steps", document: "name: bomb\nsteps:\n" + strings.Repeat("- {agent: a}\n", 60_000)},
		{name: "long expression", document: set("'" + strings.Repeat("x", 9_000) + "'")},
		{name: "deep expression", document: set(strings.Repeat("(1+", 1_000) + "1" + strings.Repeat(")", 1_000))},
		{name: "deep lists in an expression", document: set(strings.Repeat("[", 3_000) + strings.Repeat("]", 3_000))},
		{name: "deep choices", document: set(strings.Repeat("true ? 1 : ", 700) + "1")},
		{name: "large regular expression", document: set("'x'.matches('" + strings.Repeat("(", 30) + "x" + strings.Repeat("{10})", 30) + "')")},
		{name: "doubling", document: set(bombDoubling(30)), input: `{}`},
		{name: "doubling over steps", document: bombDoublingSteps(60), input: `{"text":"x"}`},
		{name: "doubling over lists", document: bombDoublingLists(60), input: `{"text":"x"}`},
		{name: "nested macros", document: set(bombMacros(6)), input: `{}`},
		{name: "lists of lists", document: set("lists.range(99999).map(x, lists.range(99999))"), input: `{}`},
		{name: "long range", document: set("lists.range(workflow.input.n)"), input: `{"n":1000000000000}`},
		{name: "replace", document: set("cel.bind(a, workflow.input.s, a.replace('a', a).replace('a', a))"), input: `{"s":"` + strings.Repeat("a", 32_000) + `"}`},
		{name: "join", document: set("lists.range(50000).map(x, 'x').join(workflow.input.s)"), input: `{"s":"` + strings.Repeat("a", 32_000) + `"}`},
		{name: "format", document: set("cel.bind(s, workflow.input.s, '" + strings.Repeat("%s", 500) + "'.format([" + strings.Repeat("s,", 499) + "s]))"), input: `{"s":"` + strings.Repeat("a", 32_000) + `"}`},
		{name: "regular expression from the input", document: set("workflow.input.s.matches(workflow.input.p)"), input: `{"s":"` + strings.Repeat("a", 100) + `","p":"` + strings.Repeat("(", 30) + "x" + strings.Repeat("{10})", 30) + `"}`},
		{name: "regular expression over much", document: set("lists.range(9999).filter(x, workflow.input.s.matches('(a*)*(a|b)*(a*)*c'))"), input: `{"s":"` + strings.Repeat("a", 100_000) + `"}`},
		{name: "deep input", document: "name: bomb\nsteps:\n- {agent: a}\n", input: strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)},
		{name: "large input", document: "name: bomb\nsteps:\n- {agent: a}\n", input: `"` + strings.Repeat("x", 9<<20) + `"`},
		{name: "schema of itself", document: bombSchema(), input: strings.Repeat("[", 30) + strings.Repeat("]", 30)},
		{name: "defaults", document: bombDefaults(), input: `{}`},
		{name: "deep answer", document: "name: bomb\nsteps:\n- {id: s, agent: a, parse: json}\n- {agent: b}\n", input: `{}`, answer: string(appendString(nil, strings.Repeat("[", 100_000)))},
		{name: "plan of a million steps", document: bombPlan(), input: `{}`, answer: "[" + strings.Repeat(`{"agent":"a"},`, 1_000_000) + `{"agent":"a"}]`},
		{name: "plan of half a million steps", document: bombPlan(), input: `{}`, answer: "[" + strings.Repeat(`{"agent":"a"},`, 500_000) + `{"agent":"a"}]`},
		{name: "plan of 18,000 steps", document: bombPlan(), input: `{}`, answer: "[" + strings.Repeat(`{"agent":"a"},`, 18_000) + `{"agent":"a"}]`},
		{name: "plan of deep lists", document: bombPlan(), input: `{}`, answer: strings.Repeat(`[{"steps":`, 60) + `[{"agent":"a"}]` + strings.Repeat(`}]`, 60)},
		{name: "large answer", document: "name: bomb\nsteps:\n- {id: s, agent: a}\n- {agent: b}\n", input: `{}`, answer: `"` + strings.Repeat("x", 9<<20) + `"`},
	}
}

// bombAliases has nine values that hold the one before nine times.
func bombAliases() string {
	var s strings.Builder
	s.WriteString("name: bomb\nlabels: {}\nsteps:\n- id: s\n  set:\n    a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&s, "    a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	return s.String()
}

// bombAliasedSteps has lists of steps that hold the list before twice.
func bombAliasedSteps() string {
	var s strings.Builder
	s.WriteString("name: bomb\nsteps:\n- parallel: &a0\n  - {agent: a}\n  - {agent: a}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&s, "- parallel: &a%d\n  - parallel: *a%d\n  - parallel: *a%d\n", i, i-1, i-1)
	}
	return s.String()
}

// bombPlan runs what its first agent says.
func bombPlan() string {
	return "name: bomb\nsteps:\n- {id: p, agent: p}\n- {id: w, plan: '${p.output}', allow: {agents: [a]}}\n"
}

func bombScopes(depth int) string {
	return `{"name":"bomb","steps":` + strings.Repeat(`[{"steps":`, depth) + `[{"agent":"a"}]` + strings.Repeat(`}]`, depth) + `}`
}

func bombDoubling(n int) string {
	s := fmt.Sprintf("a%d", n)
	for i := n; i > 0; i-- {
		s = fmt.Sprintf("cel.bind(a%d, a%d + a%d, %s)", i, i-1, i-1, s)
	}
	return "cel.bind(a0, 'xxxxxxxxxxxxxxxx', " + s + ")"
}

func bombDoublingSteps(n int) string {
	var s strings.Builder
	s.WriteString("name: bomb\nsteps:\n- {id: s0, set: '${workflow.input.text}'}\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&s, "- {id: s%d, set: '${s%d.output}${s%d.output}'}\n", i, i-1, i-1)
	}
	return s.String() + "- {agent: a}\n"
}

func bombDoublingLists(n int) string {
	var s strings.Builder
	s.WriteString("name: bomb\nsteps:\n- {id: s0, set: '${workflow.input.text}'}\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&s, "- {id: s%d, set: ['${s%d.output}', '${s%d.output}']}\n", i, i-1, i-1)
	}
	return s.String() + "- {agent: a}\n"
}

func bombMacros(depth int) string {
	s := "1"
	for i := range depth {
		s = fmt.Sprintf("[1,2,3,4,5,6,7,8,9,0].map(x%d, %s)", i, s)
	}
	return s
}

// bombSchema visits each list twice as often as the one around it.
func bombSchema() string {
	return `{"name":"bomb","input":{"$ref":"#/definitions/a","definitions":{"a":{"allOf":[` +
		`{"items":{"$ref":"#/definitions/a"}},{"items":{"$ref":"#/definitions/a"}}]}}},"steps":[{"agent":"a"}]}`
}

// bombDefaults fills defaults into defaults.
func bombDefaults() string {
	s := `{"type":"object","properties":{"a":{"default":{},"$ref":"#/definitions/x"},"b":{"default":{},"$ref":"#/definitions/x"}}}`
	return `{"name":"bomb","input":{"$ref":"#/definitions/x","definitions":{"x":` + s + `}},"steps":[{"agent":"a"}]}`
}

// run sets the bomb off and gives the codes of what ended it, and how many calls
// were made of agents that stand behind it.
func (x bomb) run(t testing.TB) (codes []string, calls int) {
	t.Helper()
	def, problems := Parse(ParseOptions{}, []byte(x.document))
	if def == nil {
		for _, p := range problems {
			if p.Severity == parley.SeverityError {
				codes = append(codes, p.Code)
			}
		}
		return codes, 0
	}
	input, err := def.CheckInput(json.RawMessage(x.input), schemaBytes)
	if err != nil {
		return []string{string(parley.CodeOf(err))}, 0
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := NewState("run-1", def, DefaultRunLimits())
	d := s.Apply(Start{At: now, Input: input})
	if x.answer != "" {
		id := d.Schedule[0].Task.ID
		d = s.Apply(Settled{At: now, TaskID: id, Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: json.RawMessage(x.answer)}})
	}
	if s.Err() != nil {
		codes = []string{string(s.Err().Code)}
	}
	return codes, len(d.Schedule)
}

// TestBombsEndInLimitErrors: whatever a document, an input or an answer asks for,
// it ends in error limit, and no agent is called.
func TestBombsEndInLimitErrors(t *testing.T) {
	for _, x := range bombs() {
		t.Run(x.name, func(t *testing.T) {
			codes, calls := x.run(t)
			if len(codes) == 0 || slices.ContainsFunc(codes, func(c string) bool { return c != "limit" }) || calls != 0 {
				t.Errorf("ended in %.10q with %d calls", codes, calls)
			}
		})
	}
}

// TestE10_UnknownNamesTakeLittleTime: names like those that do not exist are looked for
// as long as a person reads the findings, however many of either there are.
func TestE10_UnknownNamesTakeLittleTime(t *testing.T) {
	var steps, one, many strings.Builder
	for i := range 1999 {
		fmt.Fprintf(&steps, `{"id":"step_%04d","set":1,"needs":[]},`, i)
		fmt.Fprintf(&many, `"${stop_%04d}",`, i*7%2000)
	}
	for i := 0; one.Len() < 8000; i++ {
		fmt.Fprintf(&one, ",stop_%04d", i)
	}
	for name, set := range map[string]string{"in one text": `"${[1` + one.String() + `]}"`, "in many": "[" + many.String() + "1]"} {
		start := time.Now()
		_, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[`+steps.String()+`{"id":"last","set":`+set+`}]}`))
		took := time.Since(start)
		suggested := 0
		for _, p := range problems {
			if strings.HasPrefix(p.Suggestion, `did you mean "step_`) {
				suggested++
			}
		}
		if len(problems) < 20 || took > 30*time.Second || suggested == 0 || suggested > 60 {
			t.Errorf("%s: %d of %d findings have a suggestion, which took %s", name, suggested, len(problems), took)
		}
	}
}

// TestE10_LongUnknownNamesTakeLittleTime: neither do long names, functions and names
// with many members, of which the checker looks for similar ones by itself.
func TestE10_LongUnknownNamesTakeLittleTime(t *testing.T) {
	var steps strings.Builder
	for i := range 1999 {
		fmt.Fprintf(&steps, `{"id":"step_%s_%04d","set":1,"needs":[]},`, strings.Repeat("a", 40), i)
	}
	long := func(i int) string { return fmt.Sprintf("stop_%s_%04d", strings.Repeat("a", 60), i) }
	for name, word := range map[string]func(i int) string{
		"names":     long,
		"functions": func(i int) string { return long(i) + "(1)" },
		"methods":   func(i int) string { return "now." + long(i) + "()" },
		"types":     func(i int) string { return long(i) + "{}" },
		"members":   func(i int) string { return fmt.Sprintf("x%04d", i) + strings.Repeat("."+strings.Repeat("m", 120), 50) },
	} {
		var many strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&many, `"${%s}",`, word(i))
		}
		set := many.String()
		if len(set) > 800_000 {
			set = set[:strings.LastIndex(set[:800_000], ",")+1]
		}
		start := time.Now()
		_, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[`+steps.String()+`{"id":"last","set":[`+set+`1]}]}`))
		if took := time.Since(start); len(problems) < 20 || took > 20*time.Second {
			t.Errorf("%s: %d findings took %s", name, len(problems), took)
		}
	}
}

// TestManyExpressionsTakeTheirTimeOnce: what a document costs grows with its length,
// also where all of it is wrong or stands in one line. Plans of agents are read in the
// middle of a decision.
func TestManyExpressionsTakeTheirTimeOnce(t *testing.T) {
	for name, document := range map[string]string{
		"wrong ones in a list":    `{"name":"t","steps":[{"set":[` + strings.Repeat(`"${}",`, 90_000) + `1]}]}`,
		"wrong ones in a text":    `{"name":"t","steps":[{"set":"` + strings.Repeat("${}", 340_000) + `"}]}`,
		"none that is closed":     `{"name":"t","start_step":"a","steps":{"a":{"type":"set","set":[` + strings.Repeat(`"${",`, 90_000) + `1]}}}`,
		"old paths with a quote":  `{"name":"t","start_step":"a","steps":{"b":{},"a":{"type":"set","set":"` + strings.Repeat(`${b.output.x\\'}`, 40_000) + strings.Repeat("x", 350_000) + `"}}}`,
		"an old path of outputs":  `{"name":"t","start_step":"a","steps":{"b":{},"a":{"type":"set","set":"${b` + strings.Repeat(".output", 145_000) + `'}"}}}`,
		"right ones in one place": `{"name":"t","steps":[{"set":[` + strings.Repeat(`"${now}",`, 90_000) + `1]}]}`,
	} {
		start := time.Now()
		Parse(ParseOptions{}, []byte(document))
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: %d bytes take %s", name, len(document), took)
		}
	}
}
