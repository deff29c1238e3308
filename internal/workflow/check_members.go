package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaEnum is how many values of an `enum` the library may compare one by one.
const schemaEnum = 16

// schemaMembers is what one schema says of the members of an object and the items of a
// list, and of one out of many values. The library calls it where it has seen to
// everything else; the names in the comments are those of JSON Schema.
type schemaMembers struct {
	program *schemaProgram
	// weight is what a visit of the schema costs.
	weight int

	properties map[string]*jsonschema.Schema
	// names are those of properties, in order.
	names []string
	// patterns is patternProperties, in the order of their texts.
	patterns []schemaPatternMembers
	// additional is additionalProperties where it is a schema, and closed is set
	// where it is false.
	additional    *jsonschema.Schema
	closed        bool
	propertyNames *jsonschema.Schema

	// first are the schemas of the first items (prefixItems), rest is the one of all
	// others, and full is set if there may be no others.
	first    []*jsonschema.Schema
	rest     *jsonschema.Schema
	full     bool
	contains *schemaContains

	enum *schemaChoices
}

// schemaPatternMembers is one of patternProperties.
type schemaPatternMembers struct {
	pattern jsonschema.Regexp
	schema  *jsonschema.Schema
}

// take takes out of s what it says of members. The draft that s is written in has left
// marks in s, of which members are evaluated; they stay.
func (p *schemaProgram) take(s *jsonschema.Schema) *schemaMembers {
	m := &schemaMembers{
		program: p, weight: 1 + (len(s.AllOf)+len(s.AnyOf)+len(s.OneOf))/8,
		properties: s.Properties, names: slices.Sorted(maps.Keys(s.Properties)),
		propertyNames: s.PropertyNames,
	}
	for pattern, sub := range s.PatternProperties {
		m.patterns = append(m.patterns, schemaPatternMembers{pattern, sub})
	}
	slices.SortFunc(m.patterns, func(a, b schemaPatternMembers) int {
		return cmp.Compare(a.pattern.String(), b.pattern.String())
	})
	switch additional := s.AdditionalProperties.(type) {
	case *jsonschema.Schema:
		m.additional = additional
	case bool:
		m.closed = !additional
	}
	m.takeItems(s)
	if s.Contains != nil {
		m.contains = &schemaContains{schema: s.Contains, least: 1, most: s.MaxContains, marks: s.DraftVersion >= 2020}
		if s.MinContains != nil {
			m.contains.least = *s.MinContains
		}
	}
	if s.Enum != nil && len(s.Enum.Values) > schemaEnum {
		m.enum, s.Enum = newSchemaChoices(s.Enum.Values), nil
	}
	s.Properties, s.PatternProperties, s.AdditionalProperties, s.PropertyNames = nil, nil, nil, nil
	s.PrefixItems, s.Items2020, s.Items, s.AdditionalItems, s.Contains = nil, nil, nil, nil, nil
	s.UnevaluatedProperties = p.unevaluated(s.UnevaluatedProperties)
	s.UnevaluatedItems = p.unevaluated(s.UnevaluatedItems)
	return m
}

// takeItems takes what s says of items: `items` and `additionalItems` before 2020-12,
// `prefixItems` and `items` since.
func (m *schemaMembers) takeItems(s *jsonschema.Schema) {
	if s.DraftVersion >= 2020 {
		m.first, m.rest = s.PrefixItems, s.Items2020
		return
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		m.rest = items
		return
	case []*jsonschema.Schema:
		m.first = items
	}
	switch additional := s.AdditionalItems.(type) {
	case *jsonschema.Schema:
		m.rest = additional
	case bool:
		m.full = !additional
	}
}

// named gives the schemas of the member with a name.
func (m *schemaMembers) named(name string) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	if sub := m.properties[name]; sub != nil {
		out = append(out, sub)
	}
	for _, p := range m.patterns {
		if p.pattern.MatchString(name) {
			out = append(out, p.schema)
		}
	}
	if len(out) == 0 && m.additional != nil {
		out = append(out, m.additional)
	}
	return out
}

// item gives the schema of the item with an index, nil if there is none.
func (m *schemaMembers) item(i int) *jsonschema.Schema {
	if i < len(m.first) {
		return m.first[i]
	}
	return m.rest
}

// Validate implements jsonschema.SchemaExt.
func (m *schemaMembers) Validate(ctx *jsonschema.ValidatorContext, v any) {
	m.program.visit(m.weight)
	if m.enum != nil && !m.enum.has(m.program, ctx, v) {
		ctx.AddError(&kind.Enum{Got: v, Want: m.enum.all})
		return
	}
	switch v := v.(type) {
	case map[string]any:
		m.object(ctx, v)
	case []any:
		m.list(ctx, v)
	}
}

// object checks the members of an object, in the order of their names.
func (m *schemaMembers) object(ctx *jsonschema.ValidatorContext, object map[string]any) {
	var surplus []string
	for _, name := range m.mentioned(object) {
		schemas := m.named(name)
		if len(schemas) > 0 {
			ctx.EvaluatedProp(name)
		} else if m.closed {
			surplus = append(surplus, name)
		}
		for _, sub := range schemas {
			if !m.program.check(ctx, sub, object[name], name) {
				return
			}
		}
	}
	if len(surplus) > 0 {
		ctx.AddError(&kind.AdditionalProperties{Properties: surplus})
	}
	m.checkNames(ctx, object)
}

// mentioned gives the names of the members that m says anything of, in order.
func (m *schemaMembers) mentioned(object map[string]any) []string {
	if len(m.patterns) > 0 || m.additional != nil || m.closed || len(object) < len(m.names) {
		return slices.Sorted(maps.Keys(object))
	}
	var out []string
	for _, name := range m.names {
		if _, ok := object[name]; ok {
			out = append(out, name)
		}
	}
	return out
}

// checkNames checks the names of members as the values that they are.
func (m *schemaMembers) checkNames(ctx *jsonschema.ValidatorContext, object map[string]any) {
	if m.propertyNames == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		err := m.program.apart(func() error { return m.propertyNames.Validate(name) })
		found, ok := errors.AsType[*jsonschema.ValidationError](err)
		if !ok {
			continue
		}
		found.SchemaURL, found.InstanceLocation = m.propertyNames.Location, slices.Clone(ctx.ValueLocation())
		found.ErrorKind = &kind.PropertyNames{Property: name}
		m.program.tell(ctx, found)
		if m.program.told <= 0 {
			return
		}
	}
}

// list checks the items of a list.
func (m *schemaMembers) list(ctx *jsonschema.ValidatorContext, list []any) {
	if surplus := len(list) - len(m.first); m.full && surplus > 0 {
		ctx.AddError(&kind.AdditionalItems{Count: surplus})
	}
	for i, item := range list {
		sub := m.item(i)
		if sub == nil {
			break
		}
		if !m.program.check(ctx, sub, item, strconv.Itoa(i)) {
			return
		}
	}
	if m.contains != nil {
		m.contains.check(m.program, ctx, list)
	}
}

// schemaContains is `contains` with `minContains` and `maxContains`.
type schemaContains struct {
	schema *jsonschema.Schema
	least  int
	most   *int
	// marks is set if the draft takes the items that fit for evaluated.
	marks bool
}

func (c *schemaContains) check(p *schemaProgram, ctx *jsonschema.ValidatorContext, list []any) {
	found := 0
	for i, item := range list {
		if !p.fits(ctx, c.schema, item, strconv.Itoa(i)) {
			continue
		}
		found++
		if c.marks {
			ctx.EvaluatedItem(i)
		}
	}
	if found < c.least {
		ctx.AddError(&schemaContained{text: fmt.Sprintf("has %d items that fit the schema in contains, must have at least %d", found, c.least)})
	}
	if c.most != nil && found > *c.most {
		ctx.AddError(&schemaContained{text: fmt.Sprintf("has %d items that fit the schema in contains, must have at most %d", found, *c.most)})
	}
}

// schemaContained is the finding that a list has too few or too many items of one kind.
type schemaContained struct {
	kind.Contains
	text string
}

// schemaChoices is a long `enum`. A value is looked up in it, and not compared with each.
type schemaChoices struct {
	all []any
	// scalars has the keys of scalars; others are lists and objects.
	scalars map[string]bool
	others  []any
}

func newSchemaChoices(all []any) *schemaChoices {
	c := &schemaChoices{all: all, scalars: map[string]bool{}}
	for _, choice := range all {
		if key := schemaScalar(choice); key != "" {
			c.scalars[key] = true
		} else {
			c.others = append(c.others, choice)
		}
	}
	return c
}

func (c *schemaChoices) has(p *schemaProgram, ctx *jsonschema.ValidatorContext, v any) bool {
	if key := schemaScalar(v); key != "" {
		return c.scalars[key]
	}
	p.visit(len(c.others))
	return slices.ContainsFunc(c.others, func(choice any) bool {
		same, err := ctx.Equals(v, choice)
		return err == nil && same
	})
}

// schemaScalar gives a text that is the same for equal scalars; "" for lists and objects.
func schemaScalar(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return "=" + v
	case json.Number:
		// What schemaShape lets pass is a number.
		if number, ok := new(big.Rat).SetString(v.String()); ok {
			return number.RatString()
		}
	}
	return ""
}
