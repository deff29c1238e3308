package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestOldConditionCEL holds the CEL of every condition of the old grammar to what
// the condition comes to.
func TestOldConditionCEL(t *testing.T) {
	d := oldDocument()
	c := d.compiler(t)
	old := d.compiler(t, graph)
	skipped := 0
	for _, text := range slices.Sorted(maps.Keys(oldConditions())) {
		if strings.Contains(text, "${unknown") || strings.Contains(text, "${loop") {
			continue // what is not there is an error in list form
		}
		cel, err := old.OldConditionCEL(text)
		if err != nil {
			skipped++
			t.Logf("%s: %v", text, err)
			continue
		}
		sameAsOld(t, oldCase{old, c, d, text, cel})
	}
	if skipped > 2 {
		t.Errorf("%d conditions have no CEL", skipped)
	}
}

type oldCase struct {
	old, list *Compiler
	d         document
	text, cel string
}

func sameAsOld(t interface {
	Helper()
	Fatalf(string, ...any)
}, x oldCase,
) {
	t.Helper()
	was, findings := x.old.OldCondition(x.text, At{})
	if was == nil {
		t.Fatalf("%s: %+v", x.text, findings)
	}
	is, findings := x.list.Condition(x.cel, At{})
	if is == nil {
		t.Fatalf("%s\n\tis not CEL: %s\n\t%+v", x.text, x.cel, findings)
	}
	want, _ := was.Eval(x.d.scope())
	got, err := is.Eval(x.d.scope())
	if err != nil || got != want {
		t.Fatalf("%s = %v\n\tin CEL: %s\n\t= %v, %v\n\twith %s", x.text, want, x.cel, got, err, x.d.input)
	}
}

// TestOldConditionCEL_Faults checks those that are false because a part of them
// is wrong.
func TestOldConditionCEL_Faults(t *testing.T) {
	d := oldDocument()
	c := d.compiler(t)
	old := d.compiler(t, graph)
	for _, text := range []string{
		"null > 3", "5 > '3'", "not (5 > '3')", "${workflow.input.s} > 3", "not ${workflow.input.s} > 3", "not (${workflow.input.nil} > 3) or true",
		"${workflow.input.s} > 3 or true", "true or ${workflow.input.s} > 3", "not (true and ${workflow.input.absent} < 1)", "len(${workflow.input.n}) == 1",
		"not len(3) == 1", "1 in 'abc'", "1 not in ${workflow.input.s}", "'a' in ${workflow.input.n}", "${workflow.input.n} in ${workflow.input.s}", "${workflow.input.t} > 0.5",
		"len(['x']) in ${workflow.input.list}", "len([]) in [${workflow.input.f}]", "len(['x']) not in [2, ${workflow.input.t}]", "len(['x']) in [2]",
		"${workflow.input.f} in [0]", "${workflow.input.t} in ${workflow.input.list}", "(${workflow.input.n} > 3) == true", "(${workflow.input.n} > 3) == 1", "['x', ${workflow.input.n}] contains ${workflow.input.n}",
	} {
		cel, err := old.OldConditionCEL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		sameAsOld(t, oldCase{old, c, d, text, cel})
	}
	long := strings.Repeat("(${workflow.input.p} < ${workflow.input.n} or ", 60) + "true" + strings.Repeat(")", 60)
	for _, text := range []string{"(0 or 5) == 5", "1 ==", "${", "(1", "a", long} {
		if cel, err := old.OldConditionCEL(text); err == nil {
			t.Errorf("%s: %s", text, cel)
		}
	}
}

// TestOldConditionCEL_Property compares random conditions over random values.
func TestOldConditionCEL_Property(t *testing.T) {
	scalar := rapid.SampledFrom([]string{"null", "true", "false", "0", "1", "2", "0.5", "1.0", `""`, `"a"`, `"ab"`})
	value := rapid.OneOf(scalar, rapid.SampledFrom([]string{"[]", `["a", 2]`, `[true, null]`, `[1]`, `{}`, `{"a": 1}`, `{"ab": null, "x": {"a": [0]}}`}))
	c := document{input: "{}"}.compiler(t)
	old := document{input: "{}"}.compiler(t, graph)
	rapid.Check(t, func(t *rapid.T) {
		d := document{input: fmt.Sprintf(`{"p": %s, "q": %s, "m": %s, "l": %s}`, value.Draw(t, "p"), value.Draw(t, "q"),
			rapid.SampledFrom([]string{"null", "{}", `{"a": null}`, `{"a": 1, "x": {"a": [0]}}`}).Draw(t, "m"),
			rapid.SampledFrom([]string{"null", "[]", `["a", true]`, `[0]`}).Draw(t, "l"))}
		text := randomOld(t, 3)
		cel, err := old.OldConditionCEL(text)
		if err != nil {
			return
		}
		sameAsOld(t, oldCase{old, c, d, text, cel})
	})
}

func randomOld(t *rapid.T, depth int) string {
	if depth > 0 {
		switch rapid.IntRange(0, 6).Draw(t, "form") {
		case 0:
			return "not " + randomOld(t, 0)
		case 1:
			return "not (" + randomOld(t, depth-1) + ")"
		case 2, 3:
			return "(" + randomOld(t, depth-1) + ") and " + randomOld(t, depth-1)
		case 4:
			return "(" + randomOld(t, depth-1) + ") or (" + randomOld(t, depth-1) + ")"
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "alone") == 0 {
		return randomOperand(t)
	}
	op := rapid.SampledFrom([]string{"==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains"}).Draw(t, "op")
	return randomOperand(t) + " " + op + " " + randomOperand(t)
}

func randomOperand(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		"${workflow.input.p}", "${workflow.input.q}", "${workflow.input.m}", "${workflow.input.m.a}", "${workflow.input.m.x.a[0]}", "${workflow.input.absent}", "${workflow.input.l[0]}",
		"len(${workflow.input.p})", "len(${workflow.input.q})", "0", "1", "0.5", "true", "False", "None", "'a'", "''", "['a', 1]", "[]", "[${workflow.input.p}, 0]", "(${workflow.input.q} == 1)",
	}).Draw(t, "operand")
}
