package expr

import (
	"strings"
	"testing"

	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"google.golang.org/protobuf/encoding/prototext"
	"pgregory.net/rapid"
)

// fatal is a test of any kind.
type fatal interface{ Fatalf(string, ...any) }

// parsersAgree reads a text with both parsers: what the first takes, the second
// takes as the same tree. It reports whether the first took it.
func parsersAgree(t fatal, e *environment, text string) bool {
	if !hasPlainTokens(text) {
		return false
	}
	first, errs := e.parser.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return false
	}
	second, issues := e.cel.Parse(text)
	if issues.Err() != nil {
		t.Fatalf("%q is taken by one parser; the other: %v", text, issues.Err())
	}
	if got, want := shape(t, first), shape(t, second.NativeRep()); got != want {
		t.Fatalf("%q is\n%s\nand for the other parser\n%s", text, got, want)
	}
	return true
}

// shape is a tree without places and numbers.
func shape(t fatal, tree *ast.AST) string {
	next := int64(0)
	root := ast.NewExprFactory().CopyExpr(tree.Expr())
	root.RenumberIDs(func(int64) int64 { next++; return next })
	p, err := ast.ExprToProto(root)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return prototext.Format(p)
}

func bothParsers(t testing.TB) *environment {
	t.Helper()
	e, err := newEnvironment([]string{"a", "b", "int"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestE4_ParsersAgree draws texts from the grammar of CEL and spoils some: the
// fast parser takes nothing that is not CEL, and reads the rest as the other does.
func TestE4_ParsersAgree(t *testing.T) {
	e, taken, drawn := bothParsers(t), 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tokens := celTokens(t, rapid.IntRange(0, 5).Draw(t, "depth"))
		if rapid.IntRange(0, 3).Draw(t, "spoiled") == 0 {
			at := rapid.IntRange(0, len(tokens)-1).Draw(t, "at")
			tokens[at] = rapid.SampledFrom([]string{"", ".", "?", "-", "!", "(", ")", "[", "]", "{", "}", ",", ":", "in", "1", "a", "'", "//", "=", "&&", "null"}).Draw(t, "with")
		}
		drawn++
		if parsersAgree(t, e, strings.Join(tokens, rapid.SampledFrom([]string{"", " "}).Draw(t, "between"))) {
			taken++
		}
	})
	if taken < drawn/3 {
		t.Errorf("%d of %d texts were taken by the first parser", taken, drawn)
	}
}

// celTokens draws an expression.
func celTokens(t *rapid.T, depth int) []string {
	if depth == 0 {
		return []string{rapid.SampledFrom([]string{
			"a", "b", ".a", "1", "-1", "2u", "0x1f", "0X1F", "r'x'", "rB'x'", `"""x"""`, "1.5", "1e3", ".5", "'x'", `"${y}"`, "''", "true", "null", "9223372036854775807", "9223372036854775808", "int", "[]", "{}",
		}).Draw(t, "leaf")}
	}
	x := func() []string { return celTokens(t, rapid.IntRange(0, depth-1).Draw(t, "below")) }
	join := func(parts ...any) (all []string) {
		for _, p := range parts {
			if list, ok := p.([]string); ok {
				all = append(all, list...)
			} else {
				all = append(all, p.(string))
			}
		}
		return all
	}
	switch rapid.IntRange(0, 12).Draw(t, "kind") {
	case 0:
		return join("(", x(), ")")
	case 1:
		return join(rapid.SampledFrom([]string{"-", "!", "--", "!!"}).Draw(t, "unary"), x())
	case 2:
		return join(x(), "?", x(), ":", x())
	case 3:
		return join(x(), rapid.SampledFrom([]string{".c", ".?c", ".in", ".loop"}).Draw(t, "member"))
	case 4:
		return join(x(), rapid.SampledFrom([]string{"[", "[?"}).Draw(t, "index"), x(), "]")
	case 5:
		return join("[", x(), ",", "?", x(), rapid.SampledFrom([]string{"", ","}).Draw(t, "comma"), "]")
	case 6:
		return join("{", x(), ":", x(), ",", "?", x(), ":", x(), "}")
	case 7:
		return join(x(), rapid.SampledFrom([]string{".map", ".filter", ".exists", ".all", ".exists_one", ".optMap"}).Draw(t, "macro"), "(", "v", ",", x(), ")")
	case 8:
		return join("has", "(", x(), ".d", ")")
	case 9:
		return join("cel.bind", "(", "w", ",", x(), ",", x(), ")")
	case 10:
		return join(x(), ".size", "(", x(), ")")
	}
	operator := rapid.SampledFrom([]string{"+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", " in ", "&&", "||"}).Draw(t, "operator")
	return join(x(), operator, x())
}

// FuzzParsers: a text that the parser for trees takes is one that the parser for
// messages takes too, as the same tree. What only the other takes is read by it.
func FuzzParsers(f *testing.F) {
	for _, seed := range []string{
		"workflow.input.n", "a.b[0].?c.orValue([])[?1]", "-1 - -a.b - 2u / 1.5e3", "!(a in b) ? c == d : e != f || g && h", "[1, ?a, 2,]", "{'a': 1, ?b: c,}", "A.B{c: 1, ?d: e}",
		"[1].map(x, x > 0, x)", "a.exists_one(i, v, v)", "cel.bind(x, a, x)", "has(a.b) && has(a.?b)", "r'a\\' + b\"\\x41\\u0041\" + '\\''", "\"\"\"a\n\"\"\"", "a.`b-c`", ".a.b(c)", "0x1F + 0x1fu + 1.", "a // b\n+ c",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e400", "loop", "a.in", "a.loop", "- -1", "--1", "!!a", "!-a", "a ? b ? c : d : e ? f : g", "\u00e9", "a\u00a0+ b", "true.a", "null[1]", "''.a()", "{}.a", "[][0]", "1.a", "1.2.3", ".5", "1..2", "a.1", "{1: 2}[1]",
	} {
		f.Add(seed)
	}
	e := bothParsers(f)
	f.Fuzz(func(t *testing.T, text string) { parsersAgree(t, e, text) })
}
