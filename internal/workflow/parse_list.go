package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// list reads a list of steps into a block; depth counts the lists around it
// and itself.
func (p *parser) list(n *node, b *Block, depth int) {
	switch {
	case n.kind != nodeList:
		p.report(n, parley.Problem{Code: problemType, Text: fmt.Sprintf("%s must be a list of steps, it is %s", cmp.Or(n.key, "this"), n.kind), Suggestion: asList(n)})
		return
	case len(n.items) == 0:
		p.errorf(n, problemValue, "steps must have at least one step")
		return
	case depth > p.o.Limits.Scopes:
		p.errorf(n, problemLimit, "steps are nested deeper than the limit `nesting` of %d", p.o.Limits.Scopes)
		return
	}
	var read []*parseStep
	for _, item := range n.items {
		if !p.room(item) {
			return
		}
		if item.kind != nodeObject {
			p.errorf(item, problemType, "a step is an object, this is %s", item.kind)
			continue
		}
		s := &parseStep{Step: &Step{Block: b, Index: len(b.Steps)}, node: item, list: true}
		if s.Index > 0 && !p.beside[b] {
			s.Needs = []int{s.Index - 1}
		}
		b.Steps = append(b.Steps, s.Step)
		read = append(read, s)
		p.listStep(s, depth)
	}
	p.needs(b, read)
}

// room counts a step and says whether the limit allows it.
func (p *parser) room(n *node) bool {
	if p.all++; p.all <= p.o.Limits.Steps {
		return true
	}
	if p.crowded {
		return false
	}
	p.crowded = true
	text := "the workflow has more steps than the limit `steps` of %d"
	if p.plan != nil {
		text = "the plan has more steps than `allow.max_steps` of %d"
	}
	p.errorf(n, problemLimit, text, p.o.Limits.Steps)
	return false
}

func (p *parser) listStep(s *parseStep, depth int) {
	var sure bool
	s.Kind, sure = p.listKind(s)
	p.identify(s, p.listID(s))
	if !sure {
		p.refuseAll(s)
		return
	}
	p.permitted(s)
	p.readMembers(s)
	p.children(s, depth)
	p.aside(s, depth)
}

// listKind finds the kind of a step: exactly one kind member, with which `type`
// must agree. It is not sure if the step is refused or no kind can be seen;
// then a problem is recorded or will be by refuseAll.
func (p *parser) listKind(s *parseStep) (kind Kind, sure bool) {
	var found []string
	body := s.node.get("for_each") != nil || s.node.get("repeat") != nil
	for _, k := range p.kinds {
		for _, name := range k.names {
			if s.node.get(name) != nil && (name != "steps" || !body) {
				found = append(found, name)
				if kind == "" {
					kind = k.kind
				}
				if kind != k.kind {
					sure = true
				}
			}
		}
	}
	several := sure
	named, ok := p.typeOf(s)
	switch {
	case !ok, p.hasReserved(s):
		return kind, false
	case several:
		p.report(s.node, parley.Problem{Code: problemValue, Text: fmt.Sprintf("a step has one kind, this one has %s", strings.Join(found, ", ")), Suggestion: "make them steps of their own"})
		return kind, false
	case kind == "" && named != "":
		return named, true // complete says which member is missing
	case kind == "":
		if !p.misspelt(s) {
			p.report(s.node, parley.Problem{Code: problemRequired, Text: "a step needs one of " + strings.Join(kindNames(), ", ")})
		}
		return "", false
	case named != "" && named != kind:
		p.errorf(s.node.get("type"), problemValue, "type says %s, the member %q makes it %s", named, found[0], kind)
	}
	return kind, true
}

// typeOf reads `type`; ok is false if it is not a kind of this version.
func (p *parser) typeOf(s *parseStep) (kind Kind, ok bool) {
	n := s.node.get("type")
	if n == nil || !s.list && n.kind == nodeNull {
		return "", true
	}
	if n.kind != nodeString {
		p.errorf(n, problemType, "this must be a text, it is %s", n.kind)
		return "", false
	}
	var names []string
	for _, k := range p.kinds {
		if n.text == string(k.kind) {
			return k.kind, true
		}
		names = append(names, string(k.kind))
	}
	switch {
	case slices.Contains(parseReserved(), n.text):
		p.refused = true
		p.errorf(n, problemUnsupported, "the type %q is not in language 1", n.text)
	default:
		p.report(n, parley.Problem{
			Code: problemValue, Text: fmt.Sprintf("%q is not a type of step", n.text),
			Suggestion: p.suggest(n.text, names),
		})
	}
	return "", false
}

// kindNames are the members of which one makes a step what it is.
func kindNames() (names []string) {
	for _, k := range parseKinds() {
		names = append(names, k.names...)
	}
	// This one is an old name of agent.
	return slices.DeleteFunc(names, func(name string) bool { return name == "agent_name" })
}

// hasReserved says whether the step has a member that is reserved for later
// languages, where it may be what makes the step what it is.
func (p *parser) hasReserved(s *parseStep) bool {
	return slices.ContainsFunc(s.node.members, func(m nodeMember) bool { return slices.Contains(parseReserved(), m.name) })
}

// misspelt says whether an unknown member is like a kind member.
func (p *parser) misspelt(s *parseStep) bool {
	names := kindNames()
	var all []string
	for _, row := range parseMembers() {
		all = append(all, row.name)
	}
	return slices.ContainsFunc(s.node.members, func(m nodeMember) bool {
		return !slices.Contains(all, m.name) && slices.Contains(names, checkNearest(m.name, all))
	})
}

// refuseAll records the members that are refused or unknown in a step whose
// kind is not known; nothing else of it is read.
func (p *parser) refuseAll(s *parseStep) {
	var names []string
	for _, row := range parseMembers() {
		names = append(names, row.name)
	}
	known := slices.Concat(names, parseGraphOnly(), []string{"next_step"})
	for _, m := range s.node.members {
		if !p.refuse(s.node, m) && !slices.Contains(known, m.name) {
			p.unknown(s.node, m, s.list, names)
		}
	}
}

// parseTakenIDs are the names of expressions, refused as ids (rule D3).
func parseTakenIDs() []string {
	return []string{"workflow", "steps", "each", "loop", "plan", "run", "now", "error", "event", "result"}
}

// listID gives the id of a step in list form (rule D3): its own, else
// kind_n with the parent's id as prefix. "" if it has none that can be used.
func (p *parser) listID(s *parseStep) string {
	n := s.node.get("id")
	if n == nil {
		return p.autoID(s)
	}
	id, ok := p.text(n, 1, 64)
	switch {
	case !ok:
		return ""
	case !parseChars(id, "_-") || strings.IndexByte("0123456789_-", id[0]) >= 0:
		p.report(n, parley.Problem{Code: problemID, Text: fmt.Sprintf("%q is not an id: letters, digits, _ and -, a letter first, at most 64 characters", id)})
		return ""
	case slices.Contains(parseTakenIDs(), id):
		p.report(n, parley.Problem{Code: problemID, Text: fmt.Sprintf("%q is a name of the expression language and cannot be an id", id)})
		return ""
	}
	return id
}

func (p *parser) autoID(s *parseStep) string {
	kind := string(s.Kind)
	if kind == "" {
		kind = "step"
	}
	id := fmt.Sprintf("%s_%d", kind, s.Index+1)
	if name := s.Block.Name; name != "" {
		id = name + "_" + id // several lists of one step (decision 030)
	}
	if parent := s.Block.Parent; parent != nil && parent.ID != "" {
		id = parent.ID + "_" + id
	}
	if len(id) > 255 {
		p.errorf(s.node, problemID, "the id that this step would get is too long: give it an id")
		return ""
	}
	return id
}

// identify enters the step under its id, which is unique at every depth. A
// step without a usable id is compiled under a name that no reference reaches.
func (p *parser) identify(s *parseStep, id string) {
	if id != "" {
		if first := p.steps[id]; first != nil {
			at := s.node
			if n := s.node.get("id"); n != nil {
				at = n
			}
			p.errorf(at, problemID, "the id %q is taken already, by the step on line %d", id, first.node.line)
		} else {
			s.ID = id
			p.steps[id] = s
		}
	}
	p.order = append(p.order, s)
}
