package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/parser"
	"google.golang.org/genproto/googleapis/api/expr/v1alpha1"
)

// newParser gives cel-go's Pratt parser with the macros and the limits of env,
// which offers its slower generated parser alone.
func newParser(env *cel.Env) (*parser.Parser, error) {
	p, err := parser.NewParser(
		parser.EnablePrattParser(true),
		parser.EnableOptionalSyntax(true),
		parser.ExpressionSizeCodePointLimit(maxText),
		parser.Macros(env.Macros()...),
	)
	if err != nil {
		return nil, fmt.Errorf("build CEL parser: %w", err)
	}
	return p, nil
}

// read reads CEL text. The generated parser reads what the other one refuses:
// its messages say more, and they do not change with which parser was first.
func (e *environment) read(text string) (*cel.Ast, *cel.Issues) {
	if hasPlainTokens(text) {
		src := common.NewTextSource(text)
		if parsed, errs := e.parser.Parse(src); len(errs.GetErrors()) == 0 {
			return adopt(parsed, src), nil
		}
	}
	return e.cel.Parse(text)
}

// adopt makes of a tree what an environment takes: one whose root was replaced.
func adopt(parsed *ast.AST, src common.Source) *cel.Ast {
	root := parsed.Expr()
	adopted := cel.ParsedExprToAstWithSource(&expr.ParsedExpr{
		Expr:       &expr.Expr{Id: root.ID()},
		SourceInfo: &expr.SourceInfo{Location: src.Description(), LineOffsets: src.LineOffsets()},
	}, src)
	adopted.NativeRep().Expr().SetKindCase(root)
	info := adopted.NativeRep().SourceInfo()
	for id, place := range parsed.SourceInfo().OffsetRanges() {
		info.SetOffsetRange(id, place)
	}
	return adopted
}

// hasPlainTokens reports whether a text has only tokens that both parsers read as the
// same. The first is more generous than CEL with literals: it takes 0X1F and rb'x'.
func hasPlainTokens(text string) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\'', '"':
			prefixed := i > 0 && identByte(text[i-1])
			inside, rest, closed := strings.Cut(text[i+1:], text[i:i+1])
			thrice := inside == "" && strings.HasPrefix(rest, text[i:i+1])
			if prefixed || !closed || thrice || strings.ContainsAny(inside, "\\\r\n") {
				return false
			}
			i += len(inside) + 1
		case 'X':
			if i > 0 && text[i-1] == '0' {
				return false
			}
		default:
			if c < ' ' || c > '~' || c == '`' {
				return false
			}
		}
	}
	return true
}
