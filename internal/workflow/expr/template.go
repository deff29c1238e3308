package expr

import (
	"encoding/json"

	"github.com/parley-project/parley"
)

// Template is a compiled JSON value whose strings may hold ${…} (rule D5,
// tmpl). It is immutable and free for concurrent use.
type Template struct {
	parts []part
	// literals is the sum of the lengths of all literal parts.
	literals int
	refs     []string
}

// part is a piece of the JSON text that a template gives: either literal bytes
// or the place of an expression.
type part struct {
	literal []byte
	x       expression
	// inText is set for an expression inside a longer string.
	inText bool
	// depth is the nesting of the place.
	depth int
	field string
}

// expression is one compiled ${…}.
type expression interface {
	// source is the text between the braces.
	source() string
	// json gives the value as JSON. The bytes may be shared with the scope.
	json(s *Scope) (json.RawMessage, *fault)
	// text gives the value as it stands inside a longer string (rule E1).
	text(s *Scope) (string, *fault)
	// steps appends the ids of the steps that are referred to.
	steps(ids []string) []string
}

// Literal reports whether the template holds no ${…}.
func (t *Template) Literal() bool {
	for i := range t.parts {
		if t.parts[i].x != nil {
			return false
		}
	}
	return true
}

// Refs gives the step ids referred to, sorted, without duplicates.
func (t *Template) Refs() []string { return t.refs }

// Eval gives the template's value as JSON. The bytes may be shared with s and
// with other values and must not be changed. The error is a *parley.Error of
// code expression or limit.
func (t *Template) Eval(s *Scope) (json.RawMessage, error) {
	if len(t.parts) == 1 {
		p := &t.parts[0]
		if p.x == nil {
			return p.literal, nil
		}
		v, err := p.eval(s)
		if err != nil {
			return nil, err
		}
		if int64(len(v)) > s.maxValue() {
			return nil, tooLarge(s)
		}
		return v, nil
	}
	var few [8]json.RawMessage
	values, size := few[:0], t.literals
	for i := range t.parts {
		if t.parts[i].x == nil {
			continue
		}
		v, err := t.parts[i].eval(s)
		if err != nil {
			return nil, err
		}
		if size += len(v); int64(size) > s.maxValue() {
			return nil, tooLarge(s)
		}
		values = append(values, v)
	}
	out, next := make(json.RawMessage, 0, size), 0
	for i := range t.parts {
		if t.parts[i].x == nil {
			out = append(out, t.parts[i].literal...)
			continue
		}
		out = append(out, values[next]...)
		next++
	}
	return out, nil
}

// eval gives the bytes that stand in the place of p.
func (p *part) eval(s *Scope) (json.RawMessage, error) {
	if p.inText {
		if path, ok := p.x.(*pathExpr); ok {
			if v, f := path.resolve(s); f == nil && isPlain(v) {
				return v[1 : len(v)-1], nil
			}
		}
		text, f := p.x.text(s)
		if f != nil {
			return nil, f.at(p.x.source(), p.field)
		}
		quoted := appendQuote(make([]byte, 0, len(text)+2), text)
		return quoted[1 : len(quoted)-1], nil
	}
	v, f := p.x.json(s)
	if f == nil && p.depth > 0 && p.depth+depthOf(v) > maxDepth {
		f = tooMuch("json_depth", maxDepth, "levels")
	}
	if f != nil {
		return nil, f.at(p.x.source(), p.field)
	}
	return v, nil
}

func tooLarge(s *Scope) *parley.Error {
	return parley.Errorf(parley.CodeLimit, "The value is larger than %d bytes", s.maxValue()).
		WithDetails(map[string]any{"limit": "value_size", "value": s.maxValue()})
}

// pathExpr is a path reference.
type pathExpr struct{ path }

func (p *pathExpr) source() string { return p.path.text }

func (p *pathExpr) json(s *Scope) (json.RawMessage, *fault) { return p.resolve(s) }

func (p *pathExpr) text(s *Scope) (string, *fault) {
	v, f := p.resolve(s)
	if f != nil {
		return "", f
	}
	switch v[0] {
	case '{', '[', 'n':
		return "", insideText(kindOf(v))
	case '"':
		return unquote(v), nil
	}
	return string(v), nil
}

func (p *pathExpr) steps(ids []string) []string {
	if p.root == rootStep {
		return append(ids, p.name)
	}
	return ids
}

// insideText is the fault of a value that text cannot hold (rule E1).
func insideText(kind string) *fault {
	return faultf("%s cannot stand inside text", kind)
}

// unresolved is a reference of graph form that is unknown; it fails when it is
// evaluated (language.md §9).
type unresolved struct{ src, why string }

func (u *unresolved) source() string                        { return u.src }
func (u *unresolved) json(*Scope) (json.RawMessage, *fault) { return nil, faultf("%s", u.why) }
func (u *unresolved) text(*Scope) (string, *fault)          { return "", faultf("%s", u.why) }
func (u *unresolved) steps(ids []string) []string           { return ids }
