package expr

import "testing"

// TestE10_NamesOfCELAreKnown: what an expression may name is never taken for unknown, not
// even once the search for similar names is over.
func TestE10_NamesOfCELAreKnown(t *testing.T) {
	c := document{}.compiler(t)
	c.looked.Store(maxLooked + 1)
	env, err := c.env()
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{
		`type(now) == google.protobuf.Timestamp`, `type(1) == int`, `.workflow.id`, `[1].map(x, x + 1)`, `[1].exists(i, i > 1 && [2].all(j, j > i))`,
		`math.greatest(1, 2)`, `math.least([1])`, `optional.of(1).optMap(v, v + 1)`, `optional.none()`, `base64.encode(b"x")`, `cel.bind(a, 1, a + a)`,
		`{"a": 1}.?a.orValue(2)`, `has(workflow.id)`, `"a".charAt(0)`, `-1 + (true ? 1 : 2) in [1]`, `google.protobuf.Int64Value{value: 1} == 1`,
		`[1, 2][?0].hasValue()`, `!("a" in {"a": 1})`, `strings.quote("a")`, `sum([1])`, `to_json(1)`, `duration("1s") + now`,
	} {
		ast, issues := env.read(src)
		if issues.Err() != nil {
			t.Logf("%s: %v", src, issues.Err())
			continue
		}
		names := c.unknownNames(env, ast.NativeRep().Expr())
		if _, issues := env.check(ast); issues.Err() == nil && names != nil {
			t.Errorf("%s: %q would be unknown", src, names)
		} else if issues.Err() != nil {
			t.Logf("%s: the checker says %v", src, issues.Err())
		}
	}
	for src, want := range map[string]string{"nothing(1)": "nothing", "now.nothing()": "nothing", "nothing.a.b": "nothing", "nothing{}": "nothing", "[1].map(x, y)": "y"} {
		ast, _ := env.read(src)
		if names := c.unknownNames(env, ast.NativeRep().Expr()); len(names) != 1 || names[0] != want {
			t.Errorf("%s: %q are unknown, want %q", src, names, want)
		}
	}
}
