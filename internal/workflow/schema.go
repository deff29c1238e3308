package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// schemaURL is the name that a schema has for itself. Its scheme has no
	// loader, like every other.
	schemaBase = "parley:///"
	schemaURL  = schemaBase + "schema"
	// schemaFindings bounds what one check reports.
	schemaFindings = 20
	// schemaDigits bounds a number that is compared: exact comparison of
	// 1e1000000 would build a number of a million digits.
	schemaDigits = 1000
	// schemaDepth and schemaBytes are the limits of one value (language.md §10) where
	// no setting says otherwise.
	schemaDepth = 64
	schemaBytes = 8 << 20
	// schemaVisits bounds the subschemas that one check visits, with
	// schemaVisitsByte more for every byte of the value: references may double
	// the work at every level. Those of one place of the value are no more than
	// schemaVisits, however long it is.
	schemaVisits     = 30_000
	schemaVisitsByte = 4
	// schemaTold bounds the findings that one check keeps until it is known which of
	// them count: some megabytes. What comes after them is only judged.
	schemaTold = 20_000
	// schemaSteps bounds what the patterns of a schema cost one value, which is no more
	// than the bytes of a text times the instructions of its pattern: some seconds.
	schemaSteps = 1_000_000_000
	// schemaObjects bounds the objects in a schema, schemaFills the defaults that
	// one value gets.
	schemaObjects   = 5_000
	schemaFills     = 10_000
	schemaDraft07   = "http://json-schema.org/draft-07/schema"
	schemaDraft2020 = "https://json-schema.org/draft/2020-12/schema"
)

// Schema is a compiled JSON Schema (draft-07 or 2020-12) of a value. It is
// immutable and free for concurrent use.
type Schema struct {
	raw json.RawMessage
	// defaults is set when raw has the word at all.
	defaults bool

	// free holds the programs that no check is using; see schemaProgram.
	mu   sync.Mutex
	free []*schemaProgram
}

// schemaPattern is a regular expression whose work its program counts.
type schemaPattern struct {
	*regexp.Regexp
	size    int
	program *schemaProgram
}

// MatchString implements jsonschema.Regexp.
func (p *schemaPattern) MatchString(text string) bool {
	if p.program.steps -= len(text) * p.size; p.program.steps < 0 {
		panic(errSchemaWork{most: schemaSteps, patterns: true})
	}
	return p.Regexp.MatchString(text)
}

// SchemaFinding is one place of a value that does not fit.
type SchemaFinding struct {
	// Pointer is the JSON pointer of the place; "" is the whole value.
	Pointer string `json:"pointer"`
	Text    string `json:"text"`
}

// SchemaError is why a value does not fit, or why a schema cannot be used: at
// least one finding, at most 20. The pointers of a schema's own faults lead
// into the schema.
type SchemaError struct {
	Findings []SchemaFinding
	// limit is set if not the schema but a limit refuses the value.
	limit bool
}

// Error gives the first finding and the count of the others.
func (e *SchemaError) Error() string {
	first := e.Findings[0].Text
	if e.Findings[0].Pointer != "" {
		first = e.Findings[0].Pointer + ": " + first
	}
	if n := len(e.Findings) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", first, n)
	}
	return first
}

func schemaFault(pointer, format string, args ...any) *SchemaError {
	return &SchemaError{Findings: []SchemaFinding{{Pointer: pointer, Text: fmt.Sprintf(format, args...)}}}
}

// schemaClosed is a loader that loads nothing: a schema has no I/O.
type schemaClosed struct{}

// Load refuses every reference to outside.
func (schemaClosed) Load(string) (any, error) {
	return nil, errors.New("references may only lead into the schema itself")
}

// ParseSchema compiles a schema: an object, true or false. `$schema` chooses
// draft-07 or 2020-12 (the default); references may only lead into the schema
// itself; patterns are Go's regular expressions (RE2). The error is a
// *SchemaError whose pointers lead into raw.
func ParseSchema(raw json.RawMessage) (*Schema, error) {
	doc, err := schemaDecode(raw)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(raw, []byte("{")); n > schemaObjects {
		return nil, schemaFault("", "the schema has %d objects; the limit is %d", n, schemaObjects)
	}
	object, isObject := doc.(map[string]any)
	if _, isBool := doc.(bool); !isObject && !isBool {
		return nil, schemaFault("", "a schema is an object")
	}
	if id, ok := object["$schema"]; ok {
		name, _ := id.(string)
		if name = strings.TrimSuffix(name, "#"); name != schemaDraft07 && name != schemaDraft2020 {
			return nil, schemaFault("/$schema", "only draft-07 (%s#) and 2020-12 (%s) are known", schemaDraft07, schemaDraft2020)
		}
	}
	program, err := schemaCompile(doc)
	if err != nil {
		return nil, schemaRefusal(err)
	}
	return &Schema{
		raw: slices.Clone(raw), defaults: bytes.Contains(raw, []byte("default")),
		free: []*schemaProgram{program},
	}, nil
}

// schemaCompile makes a program. A fault of the library does not end the
// process.
func schemaCompile(doc any) (program *schemaProgram, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the schema cannot be read: %v", p)
		}
	}()
	program = newSchemaProgram()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(schemaClosed{})
	c.UseRegexpEngine(program.pattern)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	root, err := c.Compile(schemaURL)
	if err != nil {
		return nil, err
	}
	program.root = root
	program.prepare(root)
	return program, nil
}

func (p *schemaProgram) pattern(s string) (jsonschema.Regexp, error) {
	if len(s) > schemaDigits {
		return nil, fmt.Errorf("a pattern has at most %d characters", schemaDigits)
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	code, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	return &schemaPattern{Regexp: re, size: len(code.Inst), program: p}, nil
}

// schemaRefusal says why a schema does not compile.
func schemaRefusal(err error) *SchemaError {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if fault, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return schemaExplain(schemaCollect(fault))
		}
	}
	if load, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return schemaFault("", "the reference to %q leads outside; references may only lead into the schema itself", strings.TrimPrefix(load.URL, schemaBase))
	}
	if pattern, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		return schemaFault(schemaFragment(pattern.URL), "%q is not a regular expression that can be used (RE2): %v", pattern.Regex, pattern.Err)
	}
	if missing, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return schemaFault("", "the reference to %q leads nowhere", strings.TrimPrefix(missing.URL, schemaURL))
	}
	return schemaFault("", "%s", strings.ReplaceAll(err.Error(), schemaURL, ""))
}

// schemaExplain says in the words of a schema what its own schema found.
func schemaExplain(e *SchemaError) *SchemaError {
	for i, f := range e.Findings {
		switch {
		case strings.HasSuffix(f.Pointer, "/type") && strings.HasPrefix(f.Text, "fits none"):
			e.Findings[i].Text = "a type is array, boolean, integer, null, number, object, string, or a list of these"
		case strings.HasSuffix(f.Text, "format regex"):
			e.Findings[i].Text = "this is not a regular expression that can be used (RE2: no look-around, no back-references)"
		}
	}
	return e
}

// schemaFragment gives the JSON pointer behind the # of a URL.
func schemaFragment(url string) string {
	_, fragment, _ := strings.Cut(url, "#")
	return fragment
}

// schemaDecode reads JSON with exact numbers. The error is a *SchemaError.
func schemaDecode(raw json.RawMessage) (any, error) {
	if err := schemaShape(raw); err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, schemaFault("", "%v", err)
	}
	return value, nil
}

// schemaShape refuses what is no JSON, too deep, or holds a number that cannot
// be compared in bounded time.
func schemaShape(raw json.RawMessage) error {
	if !utf8.Valid(raw) {
		return schemaFault("", "this is not JSON: it is not UTF-8")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for values := 0; ; {
		token, err := dec.ReadToken()
		if errors.Is(err, io.EOF) && values == 1 {
			return nil
		}
		if err != nil {
			return schemaFault("", "this is not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
		}
		depth := dec.StackDepth()
		if depth == 0 {
			values++
		}
		switch {
		case values > 1:
			return schemaFault("", "this is not JSON: there is more than one value")
		case depth > schemaDepth:
			fault := schemaFault("", "values are nested deeper than the limit `depth` of %d", schemaDepth)
			fault.limit = true
			return fault
		case token.Kind() == jsontext.KindNumber && !schemaNumber(token.String()):
			return schemaFault(string(dec.StackPointer()), "the number is too long to be compared: at most %d digits and exponents up to %d", schemaDigits, schemaDigits)
		}
	}
}

func schemaNumber(literal string) bool {
	mantissa, exponent := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], literal[i+1:]
	}
	if len(mantissa) > schemaDigits {
		return false
	}
	if exponent == "" {
		return true
	}
	n, err := strconv.Atoi(strings.TrimPrefix(exponent, "+"))
	return err == nil && n <= schemaDigits && n >= -schemaDigits
}
