package workflow

import (
	"slices"
	"strings"
	"unicode"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Child is the workflow that a sub_workflow step runs (rule S11).
type Child struct {
	// Workflow is the fixed name, with or without a version or an alias; "" when
	// Expr gives it at the start of the step, as one of Among.
	Workflow string
	Expr     *expr.Template
	Among    []string
	// Detach goes on as soon as the run has begun.
	Detach bool
}

// ChildRef is a fixed name of a workflow that a step runs.
type ChildRef struct{ Step, Workflow string }

// maxChildName bounds the name of a workflow with its version, in characters.
const maxChildName = 320

// child is what a sub_workflow step runs, made by the first member that is read.
func (s *parseStep) child() *Child {
	if s.Child == nil {
		s.Child = &Child{}
	}
	return s.Child
}

// subWorkflow reads a fixed name, or an expression whose values `among` lists.
func (p *parser) subWorkflow(s *parseStep, n *node) {
	child := s.child()
	if n.isTemplate() {
		if !n.isLone() {
			p.report(n, parley.Problem{Code: problemValue, Text: "workflow is a name, or one ${…} alone", Suggestion: `join texts inside: ${"a-" + workflow.input.b}`})
			return
		}
		if s.node.get("among") == nil {
			p.missing(s.node, "among", "an expression in workflow needs among, the list of the names that it may give")
		}
		p.template(n, parseExpr{of: s, at: expr.At{Wanted: expr.Name}, set: func(t *expr.Template) { child.Expr = t }})
		return
	}
	if n.kind == nodeList {
		p.report(n, parley.Problem{
			Code: problemType, Text: "workflow is one name, this is a list", Suggestion: "parallel runs several steps, for_each one for each item of a list",
		})
		return
	}
	if name, ok := p.text(n, 1, maxChildName); ok && p.childName(n, name) {
		child.Workflow = name
	}
}

// childName refuses what can be the name of no workflow.
func (p *parser) childName(n *node, name string) bool {
	plain, version, at := strings.Cut(name, "@")
	switch {
	case strings.ContainsFunc(name, unicode.IsControl) || strings.TrimSpace(name) != name:
		p.errorf(n, problemValue, "the name of a workflow has no space around it and no control characters")
	case plain == "" || at && version == "":
		p.errorf(n, problemValue, "this must be the name of a workflow, or name@version or name@alias")
	case strings.HasPrefix(name, "_call"):
		p.errorf(n, problemValue, "calls of single agents are no workflows: write agent")
	default:
		return true
	}
	return false
}

// amongWhat says what the names are of that an expression may give.
func amongWhat(k Kind) string {
	if k == KindSubWorkflow {
		return "workflows"
	}
	return "agents"
}

// amongWorkflows reads the names that an expression may give.
func (p *parser) amongWorkflows(s *parseStep, n *node) {
	child := s.child()
	for _, item := range n.items {
		name, ok := p.text(item, 1, maxChildName)
		switch {
		case !ok || !p.childName(item, name):
		case item.isTemplate():
			p.errorf(item, problemValue, "among lists fixed names")
		case slices.Contains(child.Among, name):
			p.errorf(item, problemValue, "%q is named twice", name)
		default:
			child.Among = append(child.Among, name)
		}
	}
}

// detach reads whether the step goes on as soon as its run has begun.
func (p *parser) detach(s *parseStep, n *node) {
	if n.kind != nodeBool {
		p.errorf(n, problemType, "detach is true or false, this is %s", n.kind)
		return
	}
	s.child().Detach = n.text == "true"
}

// completeChild checks that it is said what is run.
func (p *parser) completeChild(s *parseStep) {
	if s.seen["workflow"] == nil {
		p.missing(s.node, "workflow", "a step of kind sub_workflow needs the member workflow, the name of what it runs")
	}
	if list := s.seen["among"]; list != nil && s.Child != nil && s.Child.Workflow != "" {
		p.errorf(list, problemValue, "among goes with an expression in workflow; here the workflow is fixed")
	}
	if s.seen["input"] == nil && s.seen["input_mapping"] == nil {
		p.later = append(p.later, parseExpr{of: s, raw: []byte("{}"), set: func(t *expr.Template) { s.Input = t }})
	}
}

// runs notes the fixed name of the workflow that a step runs.
func (p *parser) runs(s *Step) {
	if s.Child != nil && s.Child.Workflow != "" {
		p.def.Children = append(p.def.Children, ChildRef{Step: s.ID, Workflow: s.Child.Workflow})
	}
}
