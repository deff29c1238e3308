package workflow

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// graphSteps reads the steps of the graph form (formats.md; language.md §9):
// every step first, then the main path from start_step, which is the block.
func (p *parser) graphSteps(steps, start *node) {
	if steps.kind != nodeObject {
		p.errorf(steps, problemType, "with start_step, steps must be an object, it is %s", steps.kind)
		return
	}
	if len(steps.members) == 0 {
		p.errorf(steps, problemValue, "steps must have at least one step")
		return
	}
	for _, m := range steps.members {
		if !p.room(m.value) {
			return
		}
		if m.value.kind != nodeObject {
			p.errorf(m.value, problemType, "a step is an object, this is %s", m.value.kind)
			continue
		}
		p.graphStep(m)
	}
	first := p.graphStart(steps, start)
	flow, whole := p.graphNexts()
	p.flow = flow
	if whole = whole && first != nil; first != nil {
		whole = p.graphPath(p.def.Body, []*parseStep{first}, flow) && whole
	}
	for _, s := range slices.Clone(p.order) {
		if !s.list {
			whole = p.graphChildren(s, flow) && whole
			p.aside(s, 1)
		}
	}
	if p.refused || !whole {
		return // what is reached is not known
	}
	for _, m := range steps.members {
		if s := p.steps[m.name]; s != nil && s.Block == nil {
			p.reportName(steps, m, parley.Problem{
				Severity: parley.SeverityWarning, Code: problemUnreachable,
				Text: fmt.Sprintf("the step %q is never reached from start_step and will not run", m.name),
			})
		}
	}
	p.pathsApart()
}

// pathsApart refuses ids that are the path of another step, such as g/x where x stands in
// g: a path is one execution (rule S9). Only ids of the graph form have slashes.
func (p *parser) pathsApart() {
	placed := slices.DeleteFunc(slices.Clone(p.order), func(s *parseStep) bool { return s.Block == nil || p.steps[s.ID] != s })
	byPath := make(map[string]*parseStep, len(placed))
	for _, s := range placed {
		path := pathOf(s.Step)
		if first := byPath[path]; first != nil {
			p.errorf(s.node, problemID, "its path %q is also that of the step %q on line %d; give one of them another id", path, first.ID, first.node.line)
			continue
		}
		byPath[path] = s
	}
	for _, s := range placed {
		path := pathOf(s.Step)
		plain := plainPath(path)
		if other := byPath[plain]; plain != path && other != nil && other != s {
			p.errorf(s.node, problemID, "its path %q is also one of the step %q on line %d; give one of them another id", path, other.ID, other.node.line)
		}
	}
}

// pathOf is the path of a step where nothing around it is a loop or is tried again.
func pathOf(s *Step) string {
	path := s.ID
	for b := s.Block; b != nil && b.Parent != nil; b = b.Parent.Block { // none is around what is never reached
		path = b.Parent.ID + "/" + path
	}
	return path
}

// plainPath leaves out of a path what looks like rounds and iterations.
func plainPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts[:len(parts)-1] {
		if at := strings.LastIndexByte(part, '['); at > 0 && strings.HasSuffix(part, "]") {
			part = part[:at]
		}
		if at := strings.LastIndexByte(part, '#'); at > 0 {
			part = part[:at]
		}
		parts[i] = part
	}
	return strings.Join(parts, "/")
}

func (p *parser) graphStep(m nodeMember) {
	s := &parseStep{Step: &Step{}, node: m.value}
	kind, sure := p.typeOf(s)
	if s.Kind = kind; kind == "" {
		s.Kind = KindAgent
	}
	p.identify(s, p.graphID(m))
	if !sure {
		p.refuseAll(s)
		return
	}
	p.readMembers(s)
}

// graphID checks that the key is an id and that `id` repeats it (rule D3).
func (p *parser) graphID(m nodeMember) string {
	if length := utf8.RuneCountInString(m.name); length < 1 || length > 255 {
		p.report(m.value, parley.Problem{Code: problemID, Text: "an id has 1 to 255 characters"})
		return ""
	}
	key := &node{kind: nodeString, text: m.name, line: m.line, col: m.col, parent: m.value.parent, key: m.name}
	if !p.plainID(key) {
		return ""
	}
	n := m.value.get("id")
	if n != nil && n.kind != nodeNull && (n.kind != nodeString || n.text != m.name) {
		p.report(n, parley.Problem{
			Code: problemID, Text: "the id differs from the key of the step", Suggestion: fmt.Sprintf("write %q", m.name),
		})
	}
	return m.name
}

// graphMember handles what only the graph form has: members that are null are
// left out, and those of composites have no effect elsewhere.
func (p *parser) graphMember(s *parseStep, m nodeMember) bool {
	value := m.name == "set" && s.Kind == KindSet || m.name == "finish" && s.Kind == KindFinish || m.name == "validate" && s.Kind == KindValidate
	switch {
	case m.value.kind == nodeNull && !value:
		return true
	case m.name == "needs":
		p.reportName(s.node, m, parley.Problem{
			Code: problemUnknown, Text: "needs is a member of the list form: here next_step says what comes after what",
		})
		return true
	case m.name == "next_step", slices.Contains(parseGraphMembers(s.Kind), m.name):
		return true
	case slices.Contains(parseGraphOnly(), m.name):
		p.reportName(s.node, m, parley.Problem{
			Severity: parley.SeverityWarning, Code: problemUnknown,
			Text: fmt.Sprintf("%q has no effect on a step of type %s", m.name, s.Kind),
		})
		return true
	}
	return false
}

func (p *parser) graphStart(steps, start *node) *parseStep {
	if start == nil || start.kind == nodeNull {
		p.report(steps.parent, parley.Problem{
			Path: "start_step", Code: problemRequired, Text: "the graph form, where steps is an object, needs start_step",
			Suggestion: "in list form steps is a list: write - id: NAME for each step",
		})
		return nil
	}
	id, ok := p.text(start, 1, 255)
	if !ok {
		return nil
	}
	return p.graphTarget(start, id)
}

// graphTarget finds the step that start_step or next_step names.
func (p *parser) graphTarget(n *node, id string) *parseStep {
	if s := p.steps[id]; s != nil {
		return s
	}
	problem := parley.Problem{Code: problemReference, Text: fmt.Sprintf("there is no step %q", id)}
	if len(p.problems) < problemsMax {
		var names []string
		for _, s := range p.order {
			names = append(names, s.ID)
		}
		problem.Suggestion = didYouMean(id, names)
	}
	p.report(n, problem)
	return nil
}

// graphPlace puts a step into a block. It stands in one place, since it has one path:
// what could run twice under it is refused.
func (p *parser) graphPlace(b *Block, s *parseStep, at *node) bool {
	if s.Block != nil {
		p.refused = true
		p.report(at, parley.Problem{
			Code: problemUnsupported, Text: fmt.Sprintf("the step %q is run from two places, of which both may be come to", s.ID),
			Suggestion: "make it two steps; only the two branches of one conditional may meet",
		})
		return false
	}
	depth := 1
	for around := b.Parent; around != nil && depth <= p.o.Limits.Scopes; depth++ {
		if around == s.Step {
			p.errorf(at, problemReference, "the step %q would run inside of itself", s.ID)
			return false
		}
		if around.Block == nil {
			break
		}
		around = around.Block.Parent
	}
	if depth > p.o.Limits.Scopes {
		p.errorf(at, problemLimit, "steps are nested deeper than the limit `nesting` of %d", p.o.Limits.Scopes)
		return false
	}
	s.Block, s.Index = b, len(b.Steps)
	b.Steps = append(b.Steps, s.Step)
	return true
}
