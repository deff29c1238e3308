package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
	"github.com/parley-project/parley"
)

// celExpr is a checked CEL expression.
type celExpr struct {
	src    string
	env    *environment
	result *cel.Type
	refs   []string
	// plan gives the program; it is made when it is first needed.
	plan func() (cel.Program, error)
}

func (x *celExpr) source() string { return x.src }

func (x *celExpr) steps(ids []string) []string { return append(ids, x.refs...) }

// eval runs the program.
func (x *celExpr) eval(s *Scope) (ref.Val, *fault) {
	program, err := x.plan()
	if err != nil {
		return nil, evalFault(err)
	}
	v, _, err := program.Eval(&activation{env: x.env, scope: s, refs: x.refs})
	if err != nil {
		return nil, evalFault(err)
	}
	return v, nil
}

func (x *celExpr) json(s *Scope) (json.RawMessage, *fault) {
	v, f := x.eval(s)
	if f != nil {
		return nil, f
	}
	return toJSON(v)
}

func (x *celExpr) text(s *Scope) (string, *fault) {
	v, f := x.eval(s)
	if f != nil {
		return "", f
	}
	text, f := toText(v)
	if f == nil && len(text) > maxResult {
		f = tooMuch("expression_result", maxResult, "bytes")
	}
	return text, f
}

// evalFault makes a fault of what CEL reports.
func evalFault(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err); ok &&
		cancelled.Cause == interpreter.CostLimitExceeded {
		return tooMuch("expression_cost", maxCost, "units")
	}
	if f := regexFault(err); f != nil {
		return f
	}
	if f := rangeFault(err); f != nil {
		return f
	}
	return &fault{code: parley.CodeExpression, text: err.Error()}
}

// explain words CEL's issues for people who write workflows.
func (c *Compiler) explain(env *environment, issues *cel.Issues) []Finding {
	var findings []Finding
	for _, issue := range issues.Errors() {
		f := c.explainOne(env, issue.Message)
		if !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
	}
	return findings
}

func (c *Compiler) explainOne(env *environment, message string) Finding {
	message = strings.TrimSpace(message)
	if name, ok := quotedAfter(message, "undeclared reference to '"); ok {
		return c.unknownName(env, name)
	}
	if name, ok := quotedAfter(message, "undefined field '"); ok {
		return c.noMember(name, env.records.fieldNames())
	}
	if name, ok := quotedAfter(message, "found no matching overload for '"); ok {
		_, rest, _ := strings.Cut(message, "applied to '")
		operands, _, _ := strings.Cut(rest, "'")
		return Finding{Code: CodeExpression, Text: fmt.Sprintf("%s cannot be applied to %s",
			strings.Trim(name, "_"), strings.ReplaceAll(operands, "parley.", ""))}
	}
	if text, ok := strings.CutPrefix(message, "Syntax error: "); ok {
		return c.explainSyntax(text)
	}
	if strings.HasPrefix(message, reservedWord) {
		return c.explainSyntax(message)
	}
	if strings.Contains(message, "limit") && (strings.Contains(message, "recursion") || strings.Contains(message, "exceeds")) {
		return Finding{Code: CodeLimit, Text: message}
	}
	return Finding{Code: CodeExpression, Text: message}
}

func (c *Compiler) noMember(name string, names []string) Finding {
	return Finding{
		Code: CodeExpression, Text: fmt.Sprintf("there is no member %q", name),
		Suggestion: c.didYouMean(name, names),
	}
}

const reservedWord = "reserved identifier: "

func (c *Compiler) explainSyntax(text string) Finding {
	// The parser lists every token that it knows.
	text, _, _ = strings.Cut(text, " expecting {")
	f := Finding{Code: CodeSyntax, Text: "not CEL: " + strings.ReplaceAll(text, "'<EOF>'", "end")}
	if word, ok := strings.CutPrefix(text, reservedWord); ok {
		f.Text = fmt.Sprintf("%q is a reserved word of CEL", word)
		f.Suggestion = fmt.Sprintf("write steps[%q] for the step", word)
		if word == "loop" {
			f.Suggestion = "write `each` in CEL"
		}
	}
	return f
}

// quotedAfter gives what stands between prefix, which ends in a quote, and the
// next quote.
func quotedAfter(message, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(message, prefix)
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, "'")
	return name, ok
}

// unknownName is the finding of a variable or function that does not exist.
func (c *Compiler) unknownName(env *environment, name string) Finding {
	f := Finding{Code: CodeReference, Text: fmt.Sprintf("there is no name %q", name)}
	if c.known[name] {
		f.Text = fmt.Sprintf("step %q is no variable", name)
		f.Suggestion = fmt.Sprintf("write steps[%q]", name)
		return f
	}
	if near := c.nearest(name, env.functions); near != "" && c.nearest(name, env.names) == "" {
		f.Code = CodeExpression
		f.Suggestion = c.didYouMean(name, env.functions)
		return f
	}
	f.Suggestion = c.didYouMean(name, env.names)
	return f
}
