package expr

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// OldCondition is one compiled condition of the old platform's grammar
// (language.md §4, "Old conditions"). It is immutable and free for concurrent
// use.
type OldCondition struct {
	text string
	root *oldNode
}

// oldNode is a compiled part of an old condition: what it does to its operands,
// or a value.
type oldNode struct {
	// op is an operator, "len", "list", or "" for a value: raw, or what ref
	// refers to.
	op       string
	operands []*oldNode
	raw      json.RawMessage
	ref      *path
}

// OldCondition compiles a condition of the old platform's small grammar. The
// condition is nil if a finding is not a warning.
func (c *Compiler) OldCondition(text string, at At) (*OldCondition, []Finding) {
	if len(text) > maxText {
		return nil, []Finding{tooMuch("expression_text", maxText, "bytes").finding()}
	}
	if at.PathsOnly {
		return nil, []Finding{onlyPaths()}
	}
	p := &oldParser{c: c, at: at, text: text}
	root := p.condition()
	if p.skip(); p.err == nil && p.pos < len(text) {
		p.fail("unexpected %q", p.here())
	}
	if p.err != nil {
		return nil, append(p.findings, *p.err)
	}
	if failed(p.findings) {
		return nil, p.findings
	}
	return &OldCondition{text: text, root: root}, p.findings
}

// Eval gives the condition's value. Any fault of evaluation makes the whole
// condition false; it is given as warning, a *parley.Error.
func (o *OldCondition) Eval(s *Scope) (value bool, warning error) {
	v, f := o.root.eval(&oldEval{scope: s})
	if f != nil {
		return false, f.at(o.text, "condition")
	}
	return v.truth(), nil
}

// oldParser is a recursive descent over the grammar.
type oldParser struct {
	c        *Compiler
	at       At
	text     string
	pos      int
	depth    int
	err      *Finding
	findings []Finding
}

func (p *oldParser) fail(format string, args ...any) *oldNode {
	if p.err == nil {
		p.err = &Finding{Code: CodeSyntax, Offset: p.pos, Text: fmt.Sprintf(format, args...)}
	}
	return nil
}

func (p *oldParser) skip() { p.pos = skipSpace([]byte(p.text), p.pos) }

// here gives the next characters for messages.
func (p *oldParser) here() string {
	rest := p.text[p.pos:]
	if i := strings.IndexAny(rest, " \t\r\n"); i > 0 {
		rest = rest[:i]
	}
	return shorten(rest)
}

// sign takes the given characters.
func (p *oldParser) sign(text string) bool {
	if p.skip(); !strings.HasPrefix(p.text[p.pos:], text) {
		return false
	}
	p.pos += len(text)
	return true
}

// word takes the given word, if it does not go on.
func (p *oldParser) word(text string) bool {
	p.skip()
	rest, ok := strings.CutPrefix(p.text[p.pos:], text)
	if !ok || rest != "" && identByte(rest[0]) {
		return false
	}
	p.pos += len(text)
	return true
}

// deeper counts what is nested and reports whether it may be.
func (p *oldParser) deeper() bool {
	if p.depth++; p.depth <= maxASTDepth {
		return true
	}
	if p.err == nil {
		f := tooMuch("expression_depth", maxASTDepth, "levels").finding()
		f.Offset, p.err = p.pos, &f
	}
	return false
}

// condition = and { "or" and }, where, as in the old platform, the value of
// `a or b` is the operand that decided.
func (p *oldParser) condition() *oldNode {
	if !p.deeper() {
		return nil
	}
	defer func() { p.depth-- }()
	left := p.and()
	for p.err == nil && p.word("or") {
		left = &oldNode{op: "or", operands: []*oldNode{left, p.and()}}
	}
	return left
}

func (p *oldParser) and() *oldNode {
	left := p.not()
	for p.err == nil && p.word("and") {
		left = &oldNode{op: "and", operands: []*oldNode{left, p.not()}}
	}
	return left
}

func (p *oldParser) not() *oldNode {
	n := 0
	for p.word("not") {
		n++
	}
	x := p.comparison()
	if n == 0 || p.err != nil {
		return x
	}
	if n%2 == 0 {
		x = &oldNode{op: "not", operands: []*oldNode{x}}
	}
	return &oldNode{op: "not", operands: []*oldNode{x}}
}

func (p *oldParser) operator() string {
	for _, op := range [...]string{"==", "!=", ">=", "<=", ">", "<"} {
		if p.sign(op) {
			return op
		}
	}
	for _, op := range [...]string{"in", "contains"} {
		if p.word(op) {
			return op
		}
	}
	if p.word("not") {
		if p.word("in") {
			return "not in"
		}
		p.fail("`not` must be followed by `in` here")
	}
	return ""
}

func (p *oldParser) comparison() *oldNode {
	left := p.operand()
	if p.err != nil {
		return nil
	}
	op := p.operator()
	if op == "" || p.err != nil {
		return left
	}
	right := p.operand()
	if p.err != nil {
		return nil
	}
	start := p.pos
	if more := p.operator(); more != "" {
		p.pos = start
		return p.fail("comparisons cannot be chained; join them with `and`")
	}
	return &oldNode{op: op, operands: []*oldNode{left, right}}
}

func (p *oldParser) operand() *oldNode {
	p.skip()
	switch rest := p.text[p.pos:]; {
	case rest == "":
		return p.fail("a value is missing at the end")
	case strings.HasPrefix(rest, opening):
		return p.reference()
	case rest[0] == '\'' || rest[0] == '"':
		return p.quoted()
	case rest[0] == '[':
		return p.list()
	case rest[0] == '(':
		p.pos++
		x := p.condition()
		if p.err == nil && !p.sign(")") {
			return p.fail("`)` is missing")
		}
		return x
	case rest[0] == '-' || rest[0] >= '0' && rest[0] <= '9':
		return p.number()
	}
	return p.named()
}

// named reads the words that are values, and len(…).
func (p *oldParser) named() *oldNode {
	for _, w := range [...]struct{ word, value string }{
		{"true", "true"},
		{"True", "true"},
		{"false", "false"},
		{"False", "false"},
		{"null", "null"},
		{"None", "null"},
	} {
		if p.word(w.word) {
			return constant(json.RawMessage(w.value))
		}
	}
	if !p.word("len") {
		return p.fail("unexpected %q", p.here())
	}
	if !p.sign("(") {
		return p.fail("`(` is missing after len")
	}
	if !p.deeper() {
		return nil
	}
	x := p.operand()
	p.depth--
	if p.err == nil && !p.sign(")") {
		return p.fail("`)` is missing after len")
	}
	return &oldNode{op: "len", operands: []*oldNode{x}}
}

func constant(raw json.RawMessage) *oldNode { return &oldNode{raw: raw} }

// reference reads a ${path}. What is missing is null.
func (p *oldParser) reference() *oldNode {
	start := p.pos
	n := strings.IndexByte(p.text[start:], '}')
	if n < 0 {
		return p.fail("`${` is never closed")
	}
	src := strings.TrimSpace(p.text[start+len(opening) : start+n])
	ref, ok := parsePath(src, p.c.isStep, false)
	if !ok {
		ref, ok = parsePath(src, p.c.isStep, true)
	}
	if !ok {
		if ref, ok = parsePath(src, pathID, true); !ok {
			return p.fail("`${%s}` is no path", shorten(src))
		}
	}
	for _, f := range p.c.checkPath(ref, p.at) {
		f.Offset, f.Warning = start, f.Warning || f.Code == CodeReference
		p.findings = append(p.findings, f)
	}
	p.pos = start + n + 1
	return &oldNode{ref: ref}
}

func (p *oldParser) number() *oldNode {
	end := p.pos
	for end < len(p.text) && (identByte(p.text[end]) || strings.IndexByte("+-.", p.text[end]) >= 0) {
		if c := p.text[end]; (c == '+' || c == '-') && end > p.pos && p.text[end-1]|0x20 != 'e' {
			break
		}
		end++
	}
	text := p.text[p.pos:end]
	if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
		return p.fail("%q is no number", shorten(text))
	}
	p.pos = end
	return constant(json.RawMessage(text))
}

// quoted reads 'text' or "text".
func (p *oldParser) quoted() *oldNode {
	start, quote := p.pos, p.text[p.pos]
	var b strings.Builder
	for i := start + 1; i < len(p.text); {
		switch c := p.text[i]; {
		case c == quote:
			p.pos = i + 1
			if strings.Contains(b.String(), opening) {
				p.findings = append(p.findings, Finding{
					Code: CodeExpression, Offset: start, Warning: true, Text: "`${` inside quotes is plain text",
					Suggestion: "leave out the quotes around the reference",
				})
			}
			return constant(appendQuote(nil, b.String()))
		case c == '\\' && i+1 < len(p.text):
			b.WriteString(unescape(p.text[i+1]))
			i += 2
		default:
			_, size := utf8.DecodeRuneInString(p.text[i:])
			b.WriteString(p.text[i : i+size])
			i += size
		}
	}
	return p.fail("the text is never closed")
}

func unescape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case '\\', '\'', '"':
		return string(rune(c))
	}
	return "\\" + string([]byte{c})
}

func (p *oldParser) list() *oldNode {
	p.pos++
	if !p.deeper() {
		return nil
	}
	defer func() { p.depth-- }()
	n := &oldNode{op: "list"}
	for first := true; !p.sign("]"); first = false {
		if !first && !p.sign(",") {
			return p.fail("`,` or `]` is missing")
		}
		x := p.operand()
		if p.err != nil {
			return nil
		}
		n.operands = append(n.operands, x)
	}
	return n
}
