package expr

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// builder collects the parts of a template and the findings on the way.
type builder struct {
	c        *Compiler
	at       At
	value    []byte
	copied   int // value[:copied] stands in parts
	parts    []part
	findings []Finding
}

// Template compiles a JSON value whose strings may hold ${…}. The template is
// nil if a finding is not a warning; all findings are given at once.
func (c *Compiler) Template(value json.RawMessage, at At) (*Template, []Finding) {
	if len(value) > maxValue {
		return nil, []Finding{tooMuch("value_size", maxValue, "bytes").finding()}
	}
	if f := checkJSON(value); f != nil {
		x := f.finding()
		if x.Code == CodeExpression {
			x.Code = CodeSyntax
		}
		return nil, []Finding{x}
	}
	value = slices.Clone(trim(value))
	b := &builder{c: c, at: at, value: value}
	if bytes.Contains(value, []byte("$")) || bytes.Contains(value, []byte(`\u`)) {
		b.strings()
	}
	b.literal(value[b.copied:])
	if failed(b.findings) {
		return nil, b.findings
	}
	t := &Template{parts: b.parts}
	for i := range t.parts {
		t.literals += len(t.parts[i].literal)
		if x := t.parts[i].x; x != nil {
			t.refs = x.steps(t.refs)
		}
	}
	slices.Sort(t.refs)
	t.refs = slices.Compact(t.refs)
	return t, b.findings
}

// finding makes a finding of a fault at compile time.
func (f *fault) finding() Finding {
	code := CodeExpression
	if f.limit != "" {
		code = CodeLimit
	}
	return Finding{Code: code, Text: f.text}
}

// failed reports whether a finding is more than a warning.
func failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return !f.Warning })
}

func (b *builder) literal(bytes []byte) {
	if len(bytes) == 0 {
		return
	}
	if n := len(b.parts); n > 0 && b.parts[n-1].x == nil {
		b.parts[n-1].literal = append(slices.Clip(b.parts[n-1].literal), bytes...)
		return
	}
	b.parts = append(b.parts, part{literal: bytes})
}

// strings goes through the strings of the value that are not member names.
func (b *builder) strings() {
	dec := jsontext.NewDecoder(bytes.NewReader(b.value), jsontext.AllowInvalidUTF8(true))
	var at place
	for {
		before := int(dec.InputOffset())
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		if token.Kind() != '"' {
			at.pass(token.Kind())
			continue
		}
		text := token.String()
		kind, n := dec.StackIndex(dec.StackDepth())
		if kind == '{' && n%2 == 1 {
			at.name(text)
			continue
		}
		at.pass('"')
		if strings.Contains(text, opening) {
			b.oneString(dec, &at, text, before)
		}
	}
}

// oneString compiles the string that dec has just read; before is where the token in
// front of it ended.
func (b *builder) oneString(dec *jsontext.Decoder, at *place, text string, before int) {
	end := int(dec.InputOffset())
	start := before + bytes.IndexByte(b.value[before:end], '"')
	pieces, findings := b.c.split(text, b.at)
	for i := range findings {
		findings[i].Pointer = at.pointer()
	}
	b.findings = append(b.findings, findings...)
	if len(pieces) == 0 {
		return
	}
	whole := len(pieces) == 1 && pieces[0].x != nil
	b.misfits(at, pieces, whole)
	b.literal(b.value[b.copied:start])
	b.copied = end
	p := part{depth: dec.StackDepth(), field: cmp.Or(at.field(), b.at.Member)}
	if whole {
		p.x = pieces[0].x
		b.parts = append(b.parts, p)
		return
	}
	b.literal([]byte{'"'})
	p.inText = true
	for _, piece := range pieces {
		if piece.x != nil {
			p.x = piece.x
			b.parts = append(b.parts, p)
			continue
		}
		quoted := appendQuote(nil, piece.text)
		b.literal(quoted[1 : len(quoted)-1])
	}
	b.literal([]byte{'"'})
}

// misfits finds what can never stand where it does: in the place of the value, if it is
// all of the string, else inside of text (rule E1).
func (b *builder) misfits(at *place, pieces []piece, whole bool) {
	wanted := Text
	if whole {
		if wanted = b.at.Wanted; len(at.levels) > 0 {
			return
		}
	}
	for _, piece := range pieces {
		if piece.x == nil {
			continue
		}
		if f := b.c.misfit(piece.x, wanted, !whole); f != nil {
			f.Pointer, f.Offset = at.pointer(), piece.at
			b.findings = append(b.findings, *f)
		}
	}
}

// piece is plain text, or an expression and where in its string it stands.
type piece struct {
	text string
	x    expression
	at   int
}

// split cuts a string into pieces; no pieces mean that all of it is text.
func (c *Compiler) split(text string, at At) (pieces []piece, findings []Finding) {
	done := 0
	for from := 0; ; {
		n := strings.Index(text[from:], opening)
		if n < 0 {
			break
		}
		start := from + n
		x, end, found := c.one(text, start+len(opening), at)
		for i := range found {
			found[i].Offset = start
		}
		findings = append(findings, found...)
		if end < 0 {
			break
		}
		from = end + 1
		if x == nil {
			continue
		}
		if start > done {
			pieces = append(pieces, piece{text: text[done:start]})
		}
		pieces = append(pieces, piece{x: x, at: start})
		done = from
	}
	if len(pieces) > 0 && done < len(text) {
		pieces = append(pieces, piece{text: text[done:]})
	}
	return pieces, findings
}

// one compiles the expression whose text starts at text[from:]; end is the
// index of its closing brace, -1 if it has none.
func (c *Compiler) one(text string, from int, at At) (x expression, end int, findings []Finding) {
	end = c.end(text, from, at)
	if end < 0 && c.graph {
		return nil, -1, nil
	}
	if end < 0 {
		return nil, -1, []Finding{{
			Code: CodeSyntax, Text: "`${` is never closed",
			Suggestion: "write `${\"${\"}` for the two characters themselves",
		}}
	}
	x, findings = c.expression(text[from:end], at)
	return x, end, findings
}

// end gives the index of the brace that closes the expression which begins at
// text[from:], -1 if there is none.
func (c *Compiler) end(text string, from int, at At) int {
	if !c.graph {
		return closing(text, from)
	}
	// The segments of old paths may hold quotes, which CEL strings begin
	// with: the nearest brace counts if only that makes a path. What is longer
	// than an expression may be does not compile, so that nobody looks for its end:
	// in a text of many such paths each might be all the rest.
	near, end := strings.IndexByte(text[from:], '}'), closing(text[:min(len(text), from+maxText+1)], from)
	if near >= 0 && near <= maxText && from+near != end && (end < 0 || !c.compiles(text[from:end], at)) && c.isOldPath(text[from:from+near]) {
		return from + near
	}
	if end < 0 {
		end = closing(text, from)
	}
	return end
}
