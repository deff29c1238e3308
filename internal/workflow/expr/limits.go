package expr

import (
	"fmt"

	"github.com/parley-project/parley"
)

// The limits of rule E11, and of values (language.md §10).
const (
	maxText     = 8 << 10 // bytes of one expression
	maxASTDepth = 64
	maxCost     = 100_000 // units of CEL's cost model
	maxResult   = 1 << 20 // bytes of one CEL result as JSON
	maxValue    = 8 << 20 // bytes of one value
	maxDepth    = 64      // nesting of a JSON value
	// maxElements bounds the lists that `+` and lists.range make. Reading more
	// elements than this would pass maxCost anyway.
	maxElements = 100_000
	// maxOldRead bounds what one condition of the old grammar reads to compare
	// values.
	maxOldRead = 4 << 20
)

// fault is why an expression has no value. It is turned into a *parley.Error
// once it is known where the expression stands.
type fault struct {
	code  parley.Code
	text  string
	limit string // name of the limit that was passed
	max   int
}

func (f *fault) Error() string { return f.text }

func faultf(format string, args ...any) *fault {
	return &fault{code: parley.CodeExpression, text: fmt.Sprintf(format, args...)}
}

// tooMuch is the fault of passing the limit of the given name.
func tooMuch(name string, limit int, unit string) *fault {
	return &fault{
		code: parley.CodeLimit, limit: name, max: limit,
		text: fmt.Sprintf("%s is more than %d %s", name, limit, unit),
	}
}

// at makes the error of an expression in a field; field is "" for a value that
// stands in no field.
func (f *fault) at(source, field string) *parley.Error {
	if field != "" {
		field = " in field '" + field + "'"
	}
	e := parley.Errorf(f.code, "Cannot resolve '${%s}'%s: %s", shorten(source), field, f.text)
	if f.limit != "" {
		e = e.WithDetails(map[string]any{"limit": f.limit, "value": f.max})
	}
	return e
}

// shorten keeps error texts readable when expressions are long.
func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + "…"
}
