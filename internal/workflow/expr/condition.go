package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Condition is one CEL expression that gives a bool (rule D5, cel). It is
// immutable and free for concurrent use.
type Condition struct {
	x    expression
	refs []string
	// member names it in errors.
	member string
}

// Condition compiles one CEL expression that gives a bool, written bare or as
// a single ${…}. The condition is nil if a finding is not a warning.
func (c *Compiler) Condition(text string, at At) (*Condition, []Finding) {
	src, offset := strings.TrimSpace(text), 0
	if strings.HasPrefix(src, opening) {
		offset = strings.Index(text, opening)
		if end := closing(src, len(opening)); end == len(src)-1 {
			src = src[len(opening):end]
		} else {
			return nil, []Finding{{
				Code: CodeSyntax, Offset: offset, Text: "a condition is one expression, bare or as one `${…}`",
				Suggestion: "write it bare: " + shorten(bare(text)),
			}}
		}
	}
	x, findings := c.expression(src, at)
	if x != nil {
		if cx, ok := x.(*celExpr); ok && !cx.mayBeBool() {
			x, findings = nil, append(findings, Finding{
				Code: CodeExpression, Text: fmt.Sprintf("a condition gives bool, this gives %s", cx.typeName()),
			})
		}
	}
	for i := range findings {
		findings[i].Offset = offset
		if findings[i].Code == CodeSyntax && findings[i].Suggestion == "" && strings.Contains(src, opening) {
			findings[i].Suggestion = "write references bare: " + shorten(bare(text))
		}
	}
	if x == nil || failed(findings) {
		return nil, findings
	}
	refs := x.steps(nil)
	slices.Sort(refs)
	return &Condition{x: x, refs: slices.Compact(refs), member: at.Member}, findings
}

// bare takes the ${ } off every reference in text.
func bare(text string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, opening)
		b.WriteString(before)
		end := closing(rest, 0)
		if !ok || end < 0 {
			b.WriteString(rest)
			return b.String()
		}
		b.WriteString(rest[:end])
		text = rest[end+1:]
	}
}

// Refs gives the step ids referred to, sorted, without duplicates.
func (c *Condition) Refs() []string { return c.refs }

// Eval gives the condition's value. The error is a *parley.Error of code
// expression or limit.
func (c *Condition) Eval(s *Scope) (bool, error) {
	var f *fault
	switch x := c.x.(type) {
	case *celExpr:
		v, fault := x.eval(s)
		if b, ok := v.(types.Bool); ok && fault == nil {
			return bool(b), nil
		}
		if f = fault; f == nil {
			f = faultf("a condition gives bool, this gave %s", v.Type().TypeName())
		}
	default:
		raw, fault := x.json(s)
		if fault == nil && (string(raw) == "true" || string(raw) == "false") {
			return raw[0] == 't', nil
		}
		if f = fault; f == nil {
			f = faultf("a condition gives bool, this gave %s", kindOf(raw))
		}
	}
	return false, f.at(c.x.source(), c.member)
}

// mayBeBool reports whether the static type allows a bool.
func (x *celExpr) mayBeBool() bool {
	return x.result.IsExactType(cel.BoolType) || x.result.IsExactType(cel.DynType)
}

func (x *celExpr) typeName() string { return x.result.String() }
