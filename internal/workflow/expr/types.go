package expr

import "encoding/json"

// Template is a compiled JSON value whose strings may hold ${…} (rule D5,
// tmpl). It is immutable and free for concurrent use.
type Template struct{ root node }

// Condition is one compiled CEL expression that gives a bool (rule D5, cel).
type Condition struct{ node }

type node interface{}

// Eval gives the template's value as JSON. The error is a *parley.Error of
// code expression or limit.
func (t *Template) Eval(s *Scope) (json.RawMessage, error) { panic("replaced by the implementation") }

// Eval gives the condition's value. The error is a *parley.Error of code
// expression or limit.
func (c *Condition) Eval(s *Scope) (bool, error) { panic("replaced by the implementation") }
