package expr

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxField bounds the text that names a field, maxPointer a pointer, in bytes: names
	// of members may be as long as a document, and stand before thousands of strings.
	maxField   = 255
	maxPointer = 1024
)

// place is where a value stands inside of another, the outermost first.
type place struct{ levels []level }

// level is a list or an object, and what of it comes now.
type level struct {
	list  bool
	name  string
	index int
}

// name goes to a member of an object.
func (p *place) name(name string) { p.levels[len(p.levels)-1].name = name }

// pass goes over a token that is no name.
func (p *place) pass(kind jsontext.Kind) {
	last := len(p.levels) - 1
	if kind == '}' || kind == ']' {
		p.levels = p.levels[:last]
		return
	}
	if last >= 0 {
		p.levels[last].index++
	}
	if kind == '{' || kind == '[' {
		p.levels = append(p.levels, level{list: kind == '[', index: -1})
	}
}

func (l level) text() string {
	if l.list {
		return strconv.Itoa(l.index)
	}
	return l.name
}

// pointer gives the JSON pointer, as much of it as there is room for.
func (p *place) pointer() string {
	var b strings.Builder
	for _, l := range p.levels {
		text := l.text()
		if b.Len()+len(text) > maxPointer {
			break
		}
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(text, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// field spells the place as people write members: a.b.0.
func (p *place) field() string {
	names := make([]string, len(p.levels))
	for i, l := range p.levels {
		names[i] = lastOf(l.text())
	}
	return lastOf(strings.Join(names, "."))
}

// lastOf gives the end of a long text.
func lastOf(text string) string {
	if len(text) <= maxField {
		return text
	}
	cut := len(text) - maxField
	for cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut++
	}
	return "…" + text[cut:]
}
