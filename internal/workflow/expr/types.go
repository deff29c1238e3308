package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Options says what a workflow declares.
type Options struct {
	// Graph chooses the graph-form reading: an unclosed ${ is plain text (E1),
	// old paths are read (E2) and unknown references are warnings.
	Graph bool
	// Accepted: what is compiled was accepted before, perhaps by a program that did not know
	// what an expression can never give. That is a warning.
	Accepted bool
	// StepIDs holds the id of every step of the workflow, at every depth.
	StepIDs []string
	// InputSchema is the declared `input` schema, nil if there is none (E10).
	InputSchema json.RawMessage
	// StepSchemas holds the declared `schema` of steps by id (E10).
	StepSchemas map[string]json.RawMessage
	// Values are names beyond those of E4, for expressions outside of workflows;
	// what they stand for is in [Scope.Values].
	Values []string
}

// At says where an expression stands.
type At struct {
	// Visible reports whether the step id may be referred to from here; reason
	// is the text of the error when it may not (E5). Nil allows every step.
	Visible func(id string) (ok bool, reason string)
	// Result, Error and Outcome add names to those of E4: `result`, `error`,
	// and `run.outcome` with `run.error`.
	Result, Error, Outcome bool
	// Each are the loops around, the innermost first: they add `each` and
	// `loop`.
	Each []LoopAt
	// Wanted says what the value has to be.
	Wanted Wanted
	// Member names the value in the errors of what stands in no member of it.
	Member string
	// Event adds `event`, Plan `plan.input`.
	Event, Plan bool
	// PathsOnly refuses all but path references to steps and to plan.input:
	// the steps of a plan without `allow.expressions` (S10).
	PathsOnly bool
	// InputOnly leaves `workflow.input` in scope and nothing else
	// (idempotency_key, concurrency.key).
	InputOnly bool
	// Trigger leaves `event`, which has these members, and the id, name and
	// version of `workflow` in scope and nothing else.
	Trigger []string
}

// Finding is one fault in one string of a template.
type Finding struct {
	// Pointer is the JSON pointer of the string inside the value; "" for a
	// plain string.
	Pointer string
	// Offset is the byte offset of the expression in the decoded string: of
	// its ${, or of the bare text.
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

// Compiler compiles the expressions of one workflow. CEL's environment is
// built when the first expression needs it, and shared. A Compiler is free for
// concurrent use.
type Compiler struct {
	graph, accepted bool

	known map[string]bool
	ids   []string // sorted
	input schema
	steps map[string]schema
	env   func() (*environment, error)
	texts checkedTexts
	// looked is how much was done to find similar names, see maxLooked.
	looked atomic.Int64
	// sought is how much the checker was left to do of that.
	sought atomic.Int64
}

// NewCompiler prepares a compiler. It fails if a schema is not JSON.
func NewCompiler(o Options) (*Compiler, error) {
	c := &Compiler{graph: o.Graph, accepted: o.Accepted, known: make(map[string]bool, len(o.StepIDs)), steps: map[string]schema{}}
	for _, id := range o.StepIDs {
		c.known[id] = true
	}
	c.ids = slices.Clone(o.StepIDs)
	slices.Sort(c.ids)
	var err error
	if c.input, err = newSchema(o.InputSchema); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	for id, raw := range o.StepSchemas {
		if c.steps[id], err = newSchema(raw); err != nil {
			return nil, fmt.Errorf("schema of step %s: %w", id, err)
		}
	}
	values := slices.Clone(o.Values)
	c.env = sync.OnceValues(func() (*environment, error) { return newEnvironment(c.ids, values) })
	return c, nil
}

func (c *Compiler) isStep(id string) bool { return c.known[id] }

// isOldPath reports whether graph form may read text as a path.
func (c *Compiler) isOldPath(text string) bool {
	_, ok := parsePath(strings.TrimSpace(text), c.isStep, true)
	return ok
}

// compiles reports whether text is an expression without errors.
func (c *Compiler) compiles(text string, at At) bool {
	src := strings.TrimSpace(text)
	if _, ok := parsePath(src, c.isStep, false); ok {
		return true
	}
	_, findings := c.compile(src, at)
	return !failed(findings)
}

func onlyPaths() Finding {
	return Finding{Code: CodeExpression, Text: "a plan may refer to its own steps and to `plan.input`, and to nothing else"}
}

// expression compiles what stands between the braces. The expression is nil if
// a finding is not a warning.
func (c *Compiler) expression(text string, at At) (expression, []Finding) {
	if len(text) > maxText {
		return nil, []Finding{tooMuch("expression_text", maxText, "bytes").finding()}
	}
	src := strings.TrimSpace(text)
	if src == "" {
		return nil, []Finding{{Code: CodeSyntax, Text: "the expression is empty"}}
	}
	if p, ok := parsePath(src, c.isStep, false); ok {
		return c.pathExpression(p, at)
	}
	var x expression
	findings := []Finding{onlyPaths()}
	if !at.PathsOnly {
		x, findings = c.compile(src, at)
	}
	if !failed(findings) {
		return x, findings
	}
	if c.graph {
		if p, ok := parsePath(src, c.isStep, true); ok {
			x, found := c.pathExpression(p, at)
			return x, append(found, Finding{
				Code: CodeExpression, Warning: true,
				Text: fmt.Sprintf("read as a path, because it is no CEL: %s", findings[0].Text),
			})
		}
	}
	if p, ok := parsePath(src, pathID, false); ok && p.root == rootStep {
		findings = []Finding{c.unknownStep(p.name)}
	}
	return c.failing(src, findings)
}

// pathID accepts what looks like a step id in a path, known or not.
func pathID(id string) bool {
	for _, r := range id {
		if !nameRune(r, false) {
			return false
		}
	}
	return id != "" && id != "result" && id != "error" && id != "event"
}

// failing gives the findings of an expression that has no value. In graph form
// unknown references are warnings, and an error once they are evaluated.
func (c *Compiler) failing(src string, findings []Finding) (expression, []Finding) {
	if !c.graph || slices.ContainsFunc(findings, func(f Finding) bool { return !f.Warning && f.Code != CodeReference }) {
		return nil, findings
	}
	for i := range findings {
		findings[i].Warning = true
	}
	return &unresolved{src: src, why: findings[0].Text}, findings
}

func (c *Compiler) pathExpression(p *path, at At) (expression, []Finding) {
	findings := c.checkPath(p, at)
	if failed(findings) {
		if !c.graph || slices.ContainsFunc(findings, func(f Finding) bool { return !f.Warning && f.Code != CodeReference }) {
			return nil, findings
		}
		for i := range findings {
			findings[i].Warning = true
		}
	}
	return &pathExpr{*p}, findings
}

// checkPath gives what is wrong with a path reference where it stands.
func (c *Compiler) checkPath(p *path, at At) []Finding {
	if at.InputOnly && p.root != rootInput {
		return []Finding{onlyInput()}
	}
	if at.Trigger != nil {
		return []Finding{onlyEvent()}
	}
	if at.PathsOnly && p.root != rootStep && p.root != rootPlan {
		return []Finding{onlyPaths()}
	}
	switch p.root {
	case rootLoop:
		return p.checkLoop(at)
	case rootPlan:
		if !at.Plan {
			return []Finding{{Code: CodeReference, Text: "`plan.input` is in scope inside a plan only"}}
		}
		return nil
	case rootStep:
		if f := c.visible(p.name, at); f != nil {
			return []Finding{*f}
		}
		return c.members(c.steps[p.name], "steps."+p.name+".output", fromSegments(p.segments))
	}
	return c.members(c.input, "workflow.input", fromSegments(p.segments))
}

func onlyInput() Finding {
	return Finding{Code: CodeExpression, Text: "only `workflow.input` is in scope here"}
}

// visible gives the finding that a step may not be referred to; nil if it may.
func (c *Compiler) visible(id string, at At) *Finding {
	if !c.known[id] {
		f := c.unknownStep(id)
		return &f
	}
	if at.Visible == nil {
		return nil
	}
	if ok, reason := at.Visible(id); !ok {
		return &Finding{Code: CodeReference, Text: reason}
	}
	return nil
}

func (c *Compiler) unknownStep(id string) Finding {
	return Finding{
		Code: CodeReference, Text: fmt.Sprintf("there is no step %q", id),
		Suggestion: c.didYouMean(id, c.ids),
	}
}
