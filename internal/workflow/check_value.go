package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/parley-project/parley"
)

// errSchemaWork stops a check that takes more than so many steps.
type errSchemaWork struct {
	most int
	// patterns is set if it is the patterns that take them.
	patterns bool
}

// fault says what was too much.
func (e errSchemaWork) fault() *SchemaError {
	fault := schemaFault("", "checking the value takes more than %d steps: the schema refers to itself, or has alternatives, too often", e.most)
	if e.patterns {
		fault = schemaFault("", "matching the value with the patterns of the schema takes more than %d steps", e.most)
	}
	fault.limit = true
	return fault
}

// take gives a program that nobody else uses until give.
func (s *Schema) take() (*schemaProgram, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	doc, err := schemaDecode(s.raw)
	if err != nil {
		return nil, err
	}
	return schemaCompile(doc)
}

func (s *Schema) give(p *schemaProgram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, p)
}

// Raw gives the schema as it was written, as JSON. Callers must not change it.
func (s *Schema) Raw() json.RawMessage { return s.raw }

// Check reports what keeps value from fitting the schema, with JSON pointers,
// at most 20 findings; nil if it fits. Numbers are compared exactly. The error
// is a *SchemaError and repeats nothing of the value but names of members.
func (s *Schema) Check(value json.RawMessage) (err error) {
	doc, err := schemaDecode(value)
	if err != nil {
		return err
	}
	p, err := s.take()
	if err != nil {
		return schemaFault("", "%v", err)
	}
	p.begin(len(value))
	defer s.give(p)
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case errSchemaWork:
			err = cause.fault()
		default:
			err = schemaFault("", "the value cannot be checked: %v", cause)
		}
	}()
	fault, ok := errors.AsType[*jsonschema.ValidationError](p.root.Validate(doc))
	if !ok {
		return nil
	}
	return schemaCollect(fault)
}

// schemaCollect gives the leaves of a fault, at most 20, by their places in the value:
// the library goes through its schemas in another order each time.
func schemaCollect(fault *jsonschema.ValidationError) *SchemaError {
	var leaves []*jsonschema.ValidationError
	var walk func(*jsonschema.ValidationError)
	walk = func(f *jsonschema.ValidationError) {
		if !schemaGroups(f) {
			leaves = append(leaves, f)
			return
		}
		for _, cause := range f.Causes {
			walk(cause)
		}
	}
	walk(fault)
	if len(leaves) == 0 {
		return schemaFault(schemaPointer(fault.InstanceLocation), "the value does not fit the schema")
	}
	slices.SortFunc(leaves, schemaOrder)
	out := &SchemaError{}
	for _, f := range leaves[:min(len(leaves), schemaFindings)] {
		out.Findings = append(out.Findings, SchemaFinding{Pointer: schemaPointer(f.InstanceLocation), Text: schemaText(f)})
	}
	return out
}

// schemaGroups reports whether a fault does nothing but hold others.
func schemaGroups(f *jsonschema.ValidationError) bool {
	switch f.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf, nil:
		return true
	}
	return false
}

// schemaOrder compares two faults by where they are in the value, the items of a list by
// their numbers, and those of one place by what refuses it.
func schemaOrder(a, b *jsonschema.ValidationError) int {
	return cmp.Or(
		slices.CompareFunc(a.InstanceLocation, b.InstanceLocation, func(x, y string) int {
			if strings.Trim(x+y, "0123456789") == "" {
				return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
			}
			return cmp.Compare(x, y)
		}),
		cmp.Compare(a.SchemaURL, b.SchemaURL),
		slices.Compare(a.ErrorKind.KeywordPath(), b.ErrorKind.KeywordPath()),
	)
}

// schemaPointer gives a JSON pointer, as much of it as there is room for: the names of
// members may be as long as a value.
func schemaPointer(tokens []string) string {
	var out strings.Builder
	for _, token := range tokens {
		if out.Len()+len(token) > maxPath {
			break
		}
		out.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return out.String()
}

// schemaText says what a leaf found.
func schemaText(f *jsonschema.ValidationError) string {
	switch k := f.ErrorKind.(type) {
	case *kind.AnyOf:
		return schemaChoice("fits none of the schemas in anyOf", f)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return "fits more than one of the schemas in oneOf"
		}
		return schemaChoice("fits none of the schemas in oneOf", f)
	case *kind.Type:
		return fmt.Sprintf("is %s, must be %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return "misses " + schemaNames(k.Missing)
	case *kind.AdditionalProperties:
		return "has " + schemaNames(k.Properties) + ", which the schema does not allow"
	case *kind.Enum:
		return "must be one of " + schemaShort(k.Want)
	case *kind.Const:
		return "must be " + schemaShort(k.Want)
	case *kind.Pattern:
		return fmt.Sprintf("does not match the pattern %q", k.Want)
	case *kind.Format:
		return "is not of the format " + k.Want
	case *kind.Minimum:
		return "must be at least " + schemaRat(k.Want)
	case *kind.Maximum:
		return "must be at most " + schemaRat(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + schemaRat(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + schemaRat(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + schemaRat(k.Want)
	case *kind.PropertyNames:
		return fmt.Sprintf("the name %q %s", nodeShort(k.Property), schemaCollect(&jsonschema.ValidationError{Causes: f.Causes}).Findings[0].Text)
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Not:
		return "fits the schema in not"
	case *schemaContained:
		return k.text
	case *schemaUntold:
		return "does not fit the schema"
	}
	_, text, _ := strings.Cut((&jsonschema.ValidationError{ErrorKind: f.ErrorKind}).Error(), ": ")
	return text
}

// schemaChoice adds what the best branch of a choice lacked: the one whose
// fault lies deepest in the value.
func schemaChoice(text string, f *jsonschema.ValidationError) string {
	best, depth := "", len(f.InstanceLocation)
	for _, cause := range f.Causes {
		found := schemaCollect(cause).Findings[0]
		if n := strings.Count(found.Pointer, "/"); n > depth {
			best, depth = found.Pointer+" "+found.Text, n
		}
	}
	if best == "" {
		return text
	}
	return text + "; nearest: " + best
}

func schemaNames(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) > 5 {
		return fmt.Sprintf("%s and %d more", schemaNames(names[:5]), len(names)-5)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(nodeShort(name))
	}
	return strings.Join(quoted, ", ")
}

func schemaShort(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > 200 {
		return "what the schema names"
	}
	return strings.Trim(string(b), "[]")
}

func schemaRat(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	text, exact := r.FloatString(20), false
	if digits, ok := r.FloatPrec(); ok && digits <= 20 {
		text, exact = r.FloatString(digits), true
	}
	if !exact {
		return strings.TrimRight(text, "0")
	}
	return text
}

// CheckInput fills in the defaults of the `input` schema, at every depth, and
// checks the value, of at most the given bytes ([RunLimits]); an empty input is {}.
// The bytes are unchanged if nothing is filled in. The error is a *parley.Error:
// invalid_input, whose details are a list of {pointer, text}, or limit.
func (d *Definition) CheckInput(input json.RawMessage, most int64) (json.RawMessage, error) {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	if n := int64(len(input)); n > most {
		return nil, parley.Errorf(parley.CodeLimit, "the input has %d bytes; the limit `value` is %d", n, most)
	}
	if err := schemaShape(input); err != nil {
		return nil, schemaInvalid(err)
	}
	if d.Input == nil {
		return input, nil
	}
	filled, err := d.Input.fill(input, most)
	if err != nil {
		return nil, parley.Errorf(parley.CodeLimit, "the input cannot get its defaults: %w", err)
	}
	if err := d.Input.Check(filled); err != nil {
		return nil, schemaInvalid(err)
	}
	return filled, nil
}

func schemaInvalid(err error) *parley.Error {
	fault, ok := errors.AsType[*SchemaError](err)
	if ok && fault.limit {
		return parley.Errorf(parley.CodeLimit, "the input cannot be checked: %w", err)
	}
	out := parley.Errorf(parley.CodeInvalidInput, "the input does not fit the workflow: %w", err)
	if ok {
		return out.WithDetails(fault.Findings)
	}
	return out
}
