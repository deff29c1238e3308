package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaFill writes defaults into one value. It keeps every byte that is there
// and inserts the members that are not.
type schemaFill struct {
	// fills and bytes are what was inserted so far, nested defaults included; most
	// bounds the bytes.
	fills       int
	bytes, most int64
	program     *schemaProgram
	// named are the properties of a schema that have a default.
	named map[*jsonschema.Schema][]string
}

// schemaEdit inserts text at an offset.
type schemaEdit struct {
	offset int
	text   []byte
}

// schemaCursor reads one value and collects what to insert into it.
type schemaCursor struct {
	*schemaFill
	dec   *jsontext.Decoder
	edits []schemaEdit
	depth int
}

// FillDefaults returns value with the defaults of absent properties, at every
// depth. The bytes are unchanged if nothing is filled in, or if the defaults
// would pass a limit (CheckInput reports that).
func (s *Schema) FillDefaults(value json.RawMessage) json.RawMessage {
	filled, err := s.fill(value, schemaBytes)
	if err != nil {
		return value
	}
	return filled
}

func (s *Schema) fill(value json.RawMessage, most int64) (filled json.RawMessage, err error) {
	if !s.defaults {
		return value, nil
	}
	p, err := s.take()
	if err != nil {
		return nil, err
	}
	defer s.give(p)
	p.steps = schemaSteps
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case errSchemaWork:
			filled, err = nil, cause.fault()
		default:
			panic(cause)
		}
	}()
	f := &schemaFill{most: most, program: p, named: map[*jsonschema.Schema][]string{}}
	return f.value(value, []*jsonschema.Schema{p.root}, 1)
}

// value fills one value that stands at the given depth.
func (f *schemaFill) value(raw json.RawMessage, schemas []*jsonschema.Schema, depth int) (json.RawMessage, error) {
	c := &schemaCursor{schemaFill: f, depth: depth}
	c.dec = jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := c.read(schemas); err != nil {
		return nil, err
	}
	if len(c.edits) == 0 {
		return raw, nil
	}
	var out []byte
	from := 0
	for _, edit := range c.edits {
		out = append(append(out, raw[from:edit.offset]...), edit.text...)
		from = edit.offset
	}
	return append(out, raw[from:]...), nil
}

func (c *schemaCursor) read(schemas []*jsonschema.Schema) error {
	if schemas = schemaClosure(schemas); len(schemas) == 0 {
		return c.dec.SkipValue()
	}
	switch c.dec.PeekKind() {
	case jsontext.KindBeginObject:
		return c.object(schemas)
	case jsontext.KindBeginArray:
		return c.list(schemas)
	default:
		return c.dec.SkipValue()
	}
}

func (c *schemaCursor) object(schemas []*jsonschema.Schema) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	present := map[string]bool{}
	for c.dec.PeekKind() != jsontext.KindEndObject {
		token, err := c.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		present[name] = true
		if err := c.read(c.program.ofMember(schemas, name)); err != nil {
			return err
		}
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	text, err := c.absent(schemas, present)
	if err != nil || len(text) == 0 {
		return err
	}
	if len(present) == 0 {
		text = text[1:]
	}
	c.edits = append(c.edits, schemaEdit{offset: int(c.dec.InputOffset()) - 1, text: text})
	return nil
}

// absent gives ,"name":default for every absent property that has a default,
// in the order of names, since a schema gives none.
func (c *schemaCursor) absent(schemas []*jsonschema.Schema, present map[string]bool) ([]byte, error) {
	var names []string
	for _, s := range schemas {
		for _, name := range c.withDefaults(s) {
			if !present[name] && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var out []byte
	for _, name := range names {
		value, ok := c.program.defaultOf(schemas, name)
		if !ok {
			continue
		}
		if c.fills++; c.fills > schemaFills {
			return nil, fmt.Errorf("there are more than %d of them", schemaFills)
		}
		if c.depth+c.dec.StackDepth() >= schemaDepth {
			return nil, fmt.Errorf("they are nested deeper than %d", schemaDepth)
		}
		value, err := c.value(value, c.program.ofMember(schemas, name), c.depth+c.dec.StackDepth()+1)
		if err != nil {
			return nil, err
		}
		out = append(nodeQuote(append(out, ','), name), ':')
		out = append(out, value...)
		if c.bytes += int64(len(value)); c.bytes > c.most {
			return nil, errors.New("they are larger than a value may be")
		}
	}
	return out, nil
}

// withDefaults gives the properties of a schema that have a default. It is found out
// once: a list may have millions of objects in which all of them are absent.
func (f *schemaFill) withDefaults(s *jsonschema.Schema) []string {
	names, known := f.named[s]
	if known {
		return names
	}
	for name := range f.program.members[s].properties {
		if _, ok := f.program.defaultOf([]*jsonschema.Schema{s}, name); ok {
			names = append(names, name)
		}
	}
	f.named[s] = names
	return names
}

func (c *schemaCursor) list(schemas []*jsonschema.Schema) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; c.dec.PeekKind() != jsontext.KindEndArray; i++ {
		if err := c.read(c.program.ofItem(schemas, i)); err != nil {
			return err
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

// schemaClosure gives the schemas that hold for the same value: what $ref and
// allOf lead to. In draft-07 a $ref stands for the whole schema.
func schemaClosure(schemas []*jsonschema.Schema) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	var add func(*jsonschema.Schema)
	add = func(s *jsonschema.Schema) {
		if s == nil || slices.Contains(out, s) {
			return
		}
		out = append(out, s)
		add(s.Ref)
		add(s.RecursiveRef)
		if s.DynamicRef != nil {
			add(s.DynamicRef.Ref)
		}
		for _, sub := range s.AllOf {
			add(sub)
		}
	}
	for _, s := range schemas {
		add(s)
	}
	return out
}

// ofMember gives the schemas of one member of an object.
func (p *schemaProgram) ofMember(schemas []*jsonschema.Schema, name string) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	for _, s := range schemas {
		out = append(out, p.members[s].named(name)...)
	}
	return out
}

// ofItem gives the schemas of one item of a list.
func (p *schemaProgram) ofItem(schemas []*jsonschema.Schema, i int) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	for _, s := range schemas {
		if sub := p.members[s].item(i); sub != nil {
			out = append(out, sub)
		}
	}
	return out
}

// defaultOf gives the default of a property: the first that is found.
func (p *schemaProgram) defaultOf(schemas []*jsonschema.Schema, name string) (json.RawMessage, bool) {
	for _, s := range schemas {
		for _, sub := range schemaClosure([]*jsonschema.Schema{p.members[s].properties[name]}) {
			if sub.Default == nil {
				continue
			}
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if enc.Encode(*sub.Default) != nil {
				continue
			}
			return bytes.TrimSpace(b.Bytes()), true
		}
	}
	return nil, false
}
