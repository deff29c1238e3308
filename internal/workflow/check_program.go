package workflow

import (
	"errors"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaProgram is one compiled form of a schema, used by one check at a time:
// it counts the work of that check, and what the check has found.
type schemaProgram struct {
	root *jsonschema.Schema
	// members has what each subschema says of members, in place of its own fields.
	members map[*jsonschema.Schema]*schemaMembers
	// blank is a schema without any rule, nil until it is needed, and opposites has
	// the opposites of schemas that were needed so far.
	blank     *jsonschema.Schema
	opposites map[*jsonschema.Schema]*jsonschema.Schema

	// visits, here and steps are left before the check is given up: of the whole
	// value, of the place that is looked at, and of the patterns. most is what
	// visits began with.
	visits, here, steps, most int
	// told is how many findings may still be kept; silence stands for each of those
	// that are not, where not even their places can be.
	told    int
	silence *jsonschema.ValidationError
}

func newSchemaProgram() *schemaProgram {
	return &schemaProgram{
		members:   map[*jsonschema.Schema]*schemaMembers{},
		opposites: map[*jsonschema.Schema]*jsonschema.Schema{},
		steps:     schemaSteps, silence: &jsonschema.ValidationError{},
	}
}

// begin makes p ready for a value of so many bytes.
func (p *schemaProgram) begin(bytes int) {
	p.most = schemaVisits + schemaVisitsByte*bytes
	p.visits, p.here, p.steps, p.told = p.most, schemaVisits, schemaSteps, schemaTold
}

// prepare takes over the members of every value that s and its subschemas judge. The
// library would go through all of them whatever it finds, and keep every finding.
func (p *schemaProgram) prepare(s *jsonschema.Schema) {
	if s == nil || p.members[s] != nil {
		return
	}
	subs := schemaChildren(s)
	p.members[s] = p.take(s)
	s.Extensions = append(s.Extensions, p.members[s])
	for _, sub := range subs {
		p.prepare(sub)
	}
}

// schemaChildren gives the direct subschemas of s; some may be nil.
func schemaChildren(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{
		s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties,
		s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		out = append(out, list...)
	}
	for _, sub := range s.Properties {
		out = append(out, sub)
	}
	for _, sub := range s.PatternProperties {
		out = append(out, sub)
	}
	for _, sub := range s.DependentSchemas {
		out = append(out, sub)
	}
	for _, dependency := range s.Dependencies {
		out = append(out, schemaSub(dependency)...)
	}
	out = append(out, schemaSub(s.AdditionalProperties)...)
	out = append(out, schemaSub(s.Items)...)
	return append(out, schemaSub(s.AdditionalItems)...)
}

// schemaSub reads a keyword that holds a subschema, several, or something else.
func schemaSub(keyword any) []*jsonschema.Schema {
	switch v := keyword.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{v}
	case []*jsonschema.Schema:
		return v
	}
	return nil
}

// visit counts the visit of a schema.
func (p *schemaProgram) visit(weight int) {
	p.visits -= weight
	p.here -= weight
	if p.visits < 0 {
		panic(errSchemaWork{most: p.most})
	}
	if p.here < 0 {
		panic(errSchemaWork{most: schemaVisits})
	}
}

// check checks one member of the value that ctx is at, and reports whether the other
// members are worth a look: not if one does not fit, and nobody wants to know why, or too
// much has been found already.
func (p *schemaProgram) check(ctx *jsonschema.ValidatorContext, s *jsonschema.Schema, v any, name string) bool {
	if p.told <= 0 {
		if p.fits(ctx, s, v, name) {
			return true
		}
		ctx.AddErr(&jsonschema.ValidationError{
			SchemaURL: s.Location, InstanceLocation: append(slices.Clone(ctx.ValueLocation()), name), ErrorKind: &schemaUntold{},
		})
		return false
	}
	err := p.apart(func() error { return ctx.Validate(s, v, []string{name}) })
	found, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return true
	}
	p.tell(ctx, found)
	return p.told > 0 && found.ErrorKind != nil
}

// fits reports whether a member fits, and keeps nothing of what keeps it from fitting:
// the opposite of a schema does not want to know.
func (p *schemaProgram) fits(ctx *jsonschema.ValidatorContext, s *jsonschema.Schema, v any, path ...string) bool {
	opposite := p.opposites[s]
	if opposite == nil {
		opposite = p.empty(s)
		opposite.Not = s
		p.opposites[s] = opposite
	}
	return p.apart(func() error { return ctx.Validate(opposite, v, path) }) != nil
}

// apart has another place of the value visited, whose visits do not count for this one.
func (p *schemaProgram) apart(validate func() error) error {
	here := p.here
	err := validate()
	p.here = here
	return err
}

// tell adds a finding to those of the place that ctx is at.
func (p *schemaProgram) tell(ctx *jsonschema.ValidatorContext, found *jsonschema.ValidationError) {
	p.told -= schemaCount(found)
	ctx.AddErr(found)
}

// schemaCount gives the number of findings in a tree of them.
func schemaCount(found *jsonschema.ValidationError) int {
	n := 1
	for _, cause := range found.Causes {
		n += schemaCount(cause)
	}
	return n
}

// unevaluated bounds what the library finds in members that no other schema has
// evaluated. It alone knows which they are.
func (p *schemaProgram) unevaluated(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	out := p.empty(s)
	out.Extensions = []jsonschema.SchemaExt{&schemaUnevaluated{program: p, schema: s}}
	return out
}

// schemaUnevaluated checks one unevaluated member.
type schemaUnevaluated struct {
	program *schemaProgram
	schema  *jsonschema.Schema
}

// Validate implements jsonschema.SchemaExt.
func (u *schemaUnevaluated) Validate(ctx *jsonschema.ValidatorContext, v any) {
	if u.program.told <= 0 {
		if !u.program.fits(ctx, u.schema, v) {
			ctx.AddErr(u.program.silence)
		}
		return
	}
	err := u.program.apart(func() error { return ctx.Validate(u.schema, v, nil) })
	if found, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		u.program.tell(ctx, found)
	}
}

// empty gives a schema without any rule in the place of s. The library must have made it:
// it leaves marks of its own in a schema.
func (p *schemaProgram) empty(s *jsonschema.Schema) *jsonschema.Schema {
	if p.blank == nil {
		c := jsonschema.NewCompiler()
		c.UseLoader(schemaClosed{})
		if err := c.AddResource(schemaURL, true); err != nil {
			panic(err)
		}
		p.blank = c.MustCompile(schemaURL)
	}
	out := *p.blank
	out.Bool, out.Location = nil, s.Location
	return &out
}

// schemaUntold is the finding that a value does not fit, without why.
type schemaUntold struct{ kind.Group }
