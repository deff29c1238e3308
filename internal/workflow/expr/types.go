package expr

import "encoding/json"

// Options says what a workflow declares.
type Options struct {
	// Graph chooses the graph-form reading: an unclosed ${ is plain text (E1),
	// old paths are read (E2) and unknown references are warnings.
	Graph bool
	// StepIDs holds the id of every step of the workflow, at every depth.
	StepIDs []string
	// InputSchema is the declared `input` schema, nil if there is none (E10).
	InputSchema json.RawMessage
	// StepSchemas holds the declared `schema` of steps by id (E10).
	StepSchemas map[string]json.RawMessage
}

// At says where an expression stands.
type At struct {
	// Visible reports whether the step id may be referred to from here; reason
	// is the text of the error when it may not (E5). Nil allows every step.
	Visible func(id string) (ok bool, reason string)
	// Result, Error and Outcome add names to those of E4: `result`, `error`,
	// and `run.outcome` with `run.error`.
	Result, Error, Outcome bool
	// InputOnly leaves `workflow.input` in scope and nothing else
	// (idempotency_key, concurrency.key).
	InputOnly bool
}

// Finding is one fault in one string of a template.
type Finding struct {
	// Pointer is the JSON pointer of the string inside the value; "" for a
	// plain string.
	Pointer string
	// Offset is the byte offset of the expression in the decoded string.
	Offset int
	// Warning findings do not keep the template from compiling.
	Warning bool
	// Code is expression, reference, limit or syntax.
	Code string
	Text string
	// Suggestion is empty if there is none.
	Suggestion string
}

// The codes of findings.
const (
	CodeExpression = "expression"
	CodeReference  = "reference"
	CodeLimit      = "limit"
	CodeSyntax     = "syntax"
)

// Compiler compiles expressions of one workflow. It knows what is visible
// where an expression stands. It is expensive to build and meant to be shared;
// it is immutable and free for concurrent use.
type Compiler struct{}

// NewCompiler prepares a compiler. It fails if a schema cannot be read.
func NewCompiler(o Options) (*Compiler, error) { return &Compiler{}, nil }

// Template compiles a JSON value whose strings may hold ${…}. The template is
// nil if a finding is not a warning; all findings are given at once.
func (c *Compiler) Template(value json.RawMessage, at At) (*Template, []Finding) {
	return nil, []Finding{{Code: CodeExpression, Text: "not built"}}
}

// Condition compiles one CEL expression that gives a bool, written bare or as
// a single ${…}. The condition is nil if a finding is not a warning.
func (c *Compiler) Condition(text string, at At) (*Condition, []Finding) {
	return nil, []Finding{{Code: CodeExpression, Text: "not built"}}
}

// OldCondition compiles a condition of the old platform's small grammar
// (language.md §4, "Old conditions").
func (c *Compiler) OldCondition(text string, at At) (*OldCondition, []Finding) {
	return nil, []Finding{{Code: CodeExpression, Text: "not built"}}
}

// Template is a compiled JSON value whose strings may hold ${…} (rule D5,
// tmpl). It is immutable and free for concurrent use.
type Template struct{}

// Condition is one compiled CEL expression that gives a bool (rule D5, cel).
// It is immutable and free for concurrent use.
type Condition struct{}

// OldCondition is one compiled condition of the old grammar. It is immutable
// and free for concurrent use.
type OldCondition struct{}

// Eval gives the template's value as JSON. The error is a *parley.Error of
// code expression or limit.
func (t *Template) Eval(s *Scope) (json.RawMessage, error) { panic("not built") }

// Literal reports whether the template holds no ${…}.
func (t *Template) Literal() bool { return false }

// Refs gives the step ids referred to, sorted, without duplicates.
func (t *Template) Refs() []string { return nil }

// Eval gives the condition's value. The error is a *parley.Error of code
// expression or limit.
func (c *Condition) Eval(s *Scope) (bool, error) { panic("not built") }

// Refs gives the step ids referred to, sorted, without duplicates.
func (c *Condition) Refs() []string { return nil }

// Eval gives the condition's value. Any fault of evaluation makes the whole
// condition false and is given as warning.
func (o *OldCondition) Eval(s *Scope) (value bool, warning error) { panic("not built") }

// ParseJSON reads one JSON value from text, which may stand in surrounding
// space and one Markdown code fence (E9, P1).
func ParseJSON(text string) (json.RawMessage, error) { panic("not built") }
