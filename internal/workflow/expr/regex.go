package expr

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"github.com/parley-project/parley"
)

const (
	// maxRegex bounds the program of a regular expression.
	maxRegex = 1000
	// sizeOfRegex begins what CEL says about one that is larger.
	sizeOfRegex = "regex program size "
)

// regex checks a pattern that stands in the expression itself.
func (k *checker) regex(call ast.CallExpr) {
	args := call.Args()
	if call.FunctionName() != "matches" || len(args) == 0 {
		return
	}
	pattern := args[len(args)-1]
	if pattern.Kind() != ast.LiteralKind {
		return
	}
	text, ok := pattern.AsLiteral().(types.String)
	if !ok {
		return
	}
	size, err := types.RegexProgramSize(string(text))
	switch {
	case err != nil:
		k.add(regexFault(err).finding())
	case size > maxRegex:
		k.add(tooLargeRegex().finding())
	}
}

func tooLargeRegex() *fault { return tooMuch("regex_size", maxRegex, "instructions") }

// regexFault is the fault that a pattern cannot be used; nil if err says
// something else.
func regexFault(err error) *fault {
	if strings.HasPrefix(err.Error(), sizeOfRegex) {
		return tooLargeRegex()
	}
	s, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return nil
	}
	switch s.Code {
	case syntax.ErrLarge, syntax.ErrNestingDepth:
		return tooLargeRegex()
	case syntax.ErrInvalidRepeatSize:
		if !backwards(s.Expr) {
			return tooLargeRegex()
		}
	}
	return &fault{code: parley.CodeExpression, text: fmt.Sprintf("not a regular expression: %s: `%s`", s.Code, shorten(s.Expr))}
}

// backwards reports whether a repetition such as {2,1} ends before it begins.
func backwards(repeat string) bool {
	var least, most int
	n, err := fmt.Sscanf(repeat, "{%d,%d}", &least, &most)
	return err == nil && n == 2 && least > most
}

// rangeFault is the fault of a list that lists.range will not make; nil if err
// says something else.
func rangeFault(err error) *fault {
	if text := err.Error(); strings.HasPrefix(text, "lists.range: size ") && strings.Contains(text, "exceeds maximum") {
		return tooMuch("expression_result", maxElements, "elements")
	}
	return nil
}
