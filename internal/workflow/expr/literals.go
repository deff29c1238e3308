package expr

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/parley-project/parley"
)

const (
	// maxRegex bounds the program of a regular expression.
	maxRegex = 1000
	// sizeOfRegex begins what CEL says about one that is larger.
	sizeOfRegex = "regex program size "
)

// literal checks what a function is given in the expression itself. It does what
// CEL's validators do, but walks the expression no further time for each.
func (k *checker) literal(call ast.CallExpr) {
	name, args := call.FunctionName(), call.Args()
	switch name {
	case "int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration", "matches":
		k.folds = true
	}
	if len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind {
		return
	}
	text, ok := args[len(args)-1].AsLiteral().(types.String)
	if !ok {
		return
	}
	switch name {
	case "matches":
		size, err := types.RegexProgramSize(string(text))
		switch {
		case err != nil:
			k.add(regexFault(err).finding())
		case size > maxRegex:
			k.add(tooLargeRegex().finding())
		}
	case "timestamp", "duration":
		to := map[string]ref.Type{"timestamp": types.TimestampType, "duration": types.DurationType}[name]
		if types.IsError(text.ConvertToType(to)) {
			k.add(Finding{Code: CodeExpression, Text: fmt.Sprintf("%q is no %s", shorten(string(text)), name)})
		}
	}
}

// unchecked stands in the place of a validator of CEL: nothing is left for it to
// look at.
type unchecked struct{}

// Name implements cel.ASTValidator; it is that of the validator which would come
// with the limit.
func (unchecked) Name() string { return "cel.validator.regex_program_size_limit" }

// Validate implements cel.ASTValidator.
func (unchecked) Validate(*cel.Env, cel.ValidatorConfig, *ast.AST, *cel.Issues) {}

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
