package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// parseMember is a row of the table of step members (language.md §2).
type parseMember struct {
	name string
	// kinds that take the member; nil is all.
	kinds []Kind
	read  func(*parser, *parseStep, *node)
}

// parseMembers is the table: what stands here is in this version.
func parseMembers() []parseMember {
	return slices.Concat(commonMembers(), agentMembers(), kindTable())
}

// commonMembers are those that every step may have.
func commonMembers() []parseMember {
	return []parseMember{
		{"id", nil, nil},
		{"type", nil, nil},
		{"name", nil, func(p *parser, s *parseStep, n *node) { parseInto(&s.Name)(p.text(n, 0, 255)) }},
		{"description", nil, func(p *parser, s *parseStep, n *node) { parseInto(&s.Description)(p.text(n, 0, 4096)) }},
		{"labels", nil, func(p *parser, _ *parseStep, n *node) { p.labels(n) }},
		{"if", nil, (*parser).when},
		{"needs", nil, func(p *parser, s *parseStep, n *node) { s.needs = n }},
		{"output", nil, func(p *parser, s *parseStep, n *node) {
			p.template(n, parseExpr{of: s, after: true, at: expr.At{Result: true}, set: func(t *expr.Template) { s.Output = t }})
		}},
		{"schema", nil, func(p *parser, s *parseStep, n *node) {
			if s.Schema = p.schemaOf(n); s.Schema != nil {
				s.schema = n.json()
			}
		}},
		{"timeout", nil, func(p *parser, s *parseStep, n *node) { parseInto(&s.Timeout)(p.duration(n, time.Millisecond)) }},
		{"retry", nil, func(p *parser, s *parseStep, n *node) { s.Retry = p.retry(n, s.list) }},
		{"on_error", nil, (*parser).onError},
		{"compensate", nil, func(*parser, *parseStep, *node) {}},
		{"compensate_if", nil, (*parser).compensateIf},
	}
}

// agentMembers are those of steps that call agents.
func agentMembers() []parseMember {
	agent, input := []Kind{KindAgent}, []Kind{KindAgent, KindPlan, KindSubWorkflow}
	return []parseMember{
		{"agent", agent, (*parser).agent},
		{"agent_name", agent, (*parser).agent},
		{"among", []Kind{KindAgent, KindSubWorkflow}, (*parser).among},
		{"agents", agent, (*parser).agents},
		{"hedge_after", agent, func(p *parser, s *parseStep, n *node) {
			parseInto(&s.HedgeAfter)(p.duration(n, 0))
			s.Hedged = true
		}},
		{"input", input, (*parser).input},
		{"input_mapping", input, (*parser).input},
		{"parse", agent, func(p *parser, s *parseStep, n *node) {
			if w, ok := p.word(n, "none", "json"); ok {
				s.ParseJSON = w == "json"
			}
		}},
		{"session", agent, func(p *parser, s *parseStep, n *node) { parseInto(&s.Session)(p.text(n, 1, 255)) }},
		{"attempt_timeout", agent, func(p *parser, s *parseStep, n *node) {
			parseInto(&s.AttemptTimeout)(p.duration(n, time.Millisecond))
		}},
		{"silence", agent, func(p *parser, s *parseStep, n *node) { parseInto(&s.Silence)(p.duration(n, time.Millisecond)) }},
	}
}

// kindTable are those of the other kinds.
func kindTable() []parseMember {
	return []parseMember{
		{"steps", []Kind{KindGroup, KindLoop}, nil},
		{"parallel", []Kind{KindParallel}, nil},
		{"max_parallel", []Kind{KindGroup, KindParallel, KindForkJoin, KindLoop}, nil},
		{"losers", []Kind{KindParallel, KindForkJoin}, nil},
		{"fork", []Kind{KindForkJoin}, nil},
		{"join", []Kind{KindForkJoin}, nil},
		{"branch_timeout", []Kind{KindForkJoin}, nil},
		{"for_each", []Kind{KindLoop}, (*parser).forEach},
		{"max_iterations", []Kind{KindLoop}, (*parser).forEachOnly},
		{"tolerate", []Kind{KindLoop}, (*parser).forEachOnly},
		{"item_errors", []Kind{KindLoop}, (*parser).forEachOnly},
		{"enough", []Kind{KindLoop}, (*parser).forEachOnly},
		{"repeat", []Kind{KindLoop}, (*parser).repeat},
		{"plan", []Kind{KindPlan}, (*parser).planSteps},
		{"allow", []Kind{KindPlan}, (*parser).allow},
		{"then", []Kind{KindConditional}, nil},
		{"else", []Kind{KindConditional}, nil},
		{"switch", []Kind{KindSwitch}, nil},
		{"wait", []Kind{KindWait}, (*parser).wait},
		{"set", []Kind{KindSet}, func(p *parser, s *parseStep, n *node) {
			p.template(n, parseExpr{of: s, set: func(t *expr.Template) { s.Set = t }})
		}},
		{"fail", []Kind{KindFail}, (*parser).fail},
		{"finish", []Kind{KindFinish}, func(p *parser, s *parseStep, n *node) {
			p.template(n, parseExpr{of: s, set: func(t *expr.Template) { s.Finish = t }})
		}},
		{"event", []Kind{KindAwait}, awaited(func(a *Await) **expr.Template { return &a.Event })},
		{"key", []Kind{KindAwait}, awaited(func(a *Await) **expr.Template { return &a.Key })},
		{"match", []Kind{KindAwait}, (*parser).match},
		{"fresh", []Kind{KindAwait}, (*parser).fresh},
		{"emit", []Kind{KindEmit}, (*parser).emit},
		{"approval", []Kind{KindApproval}, (*parser).approval},
		{"workflow", []Kind{KindSubWorkflow}, (*parser).subWorkflow},
		{"detach", []Kind{KindSubWorkflow}, (*parser).detach},
		{"validate", []Kind{KindValidate}, func(p *parser, s *parseStep, n *node) {
			p.template(n, parseExpr{of: s, set: func(t *expr.Template) { s.Validate = t }})
		}},
	}
}

// parseKind is a kind and the members of which one makes a step that kind in
// list form.
type parseKind struct {
	kind  Kind
	names []string
}

// parseKinds are the kinds of this version.
func parseKinds() []parseKind {
	return []parseKind{
		{KindAgent, []string{"agent", "agent_name", "agents"}},
		{KindGroup, []string{"steps"}},
		{KindParallel, []string{"parallel"}},
		{KindConditional, []string{"then", "else"}},
		{KindSwitch, []string{"switch"}},
		{KindForkJoin, []string{"fork"}},
		{KindLoop, []string{"for_each", "repeat"}},
		{KindSubWorkflow, []string{"workflow"}},
		{KindPlan, []string{"plan"}},
		{KindWait, []string{"wait"}},
		{KindSet, []string{"set"}},
		{KindFail, []string{"fail"}},
		{KindFinish, []string{"finish"}},
		{KindValidate, []string{"validate"}},
		{KindAwait, []string{"event"}},
		{KindEmit, []string{"emit"}},
		{KindApproval, []string{"approval"}},
	}
}

// parseGraphOnly are the members of composite steps in formats.md. They have no
// effect on other steps, and old writers may spell them there.
func parseGraphOnly() []string {
	return []string{
		"parallel_steps", "max_parallelism", "condition", "if_true_step", "if_false_step", "loop_config", "fork_join_config",
	}
}

// membersByName is parseMembers for who looks names up.
func membersByName() map[string]parseMember {
	table := parseMembers()
	byName := make(map[string]parseMember, len(table))
	for _, row := range table {
		byName[row.name] = row
	}
	return byName
}

// memberNames are the members that a kind of step may have.
func memberNames(k Kind) (names []string) {
	for _, row := range parseMembers() {
		if row.takes(k) {
			names = append(names, row.name)
		}
	}
	return names
}

// readMembers reads the members of a step whose kind is known.
func (p *parser) readMembers(s *parseStep) {
	s.seen = make(map[string]*node, len(s.node.members))
	var meant []string // what an unknown member may be, when there is one
	for _, m := range s.node.members {
		if !s.list && p.graphMember(s, m) || p.refuse(s.node, m) {
			continue
		}
		row, known := p.members[m.name]
		switch {
		case !known:
			if meant == nil { // or what would make it a step of another kind
				meant = slices.Concat(memberNames(s.Kind), kindNames())
			}
			p.unknown(s.node, m, s.list, meant)
		case !row.takes(s.Kind):
			p.foreign(s, m)
		case row.read != nil:
			s.seen[m.name] = m.value
			row.read(p, s, m.value)
		}
	}
	p.complete(s)
}

func (row parseMember) takes(k Kind) bool { return row.kinds == nil || slices.Contains(row.kinds, k) }

// foreign records a member that another kind of step has.
func (p *parser) foreign(s *parseStep, m nodeMember) {
	for _, k := range parseKinds() {
		if s.list && slices.Contains(k.names, m.name) {
			return // two kinds in one step: said already
		}
	}
	problem := parley.Problem{Code: problemUnknown, Text: fmt.Sprintf("a step of kind %s has no member %q", s.Kind, m.name)}
	if !s.list {
		problem.Severity = parley.SeverityWarning
		for _, k := range parseKinds() {
			if slices.Contains(k.names, m.name) {
				problem.Severity, problem.Suggestion = parley.SeverityError, fmt.Sprintf("give the step \"type\": %q", k.kind)
			}
		}
	}
	p.reportName(s.node, m, problem)
}

// complete checks what a step of its kind cannot be without, and defaults.
func (p *parser) complete(s *parseStep) {
	switch s.Kind {
	case KindAgent:
		p.completeAgents(s)
		if list := s.seen["among"]; list != nil && s.Agent != "" {
			p.errorf(list, problemValue, "among goes with an expression in agent; here the agent is fixed")
		}
		if s.seen["input"] == nil && s.seen["input_mapping"] == nil {
			p.later = append(p.later, parseExpr{of: s, raw: []byte("{}"), set: func(t *expr.Template) { s.Input = t }})
		}
	case KindGroup:
		if s.node.get("steps") == nil {
			p.missing(s.node, "steps", "a group needs steps")
		}
	case KindParallel, KindSwitch:
		if !s.list && s.given("parallel_steps") != nil {
			return
		}
		if s.node.get(string(s.Kind)) == nil {
			p.missing(s.node, string(s.Kind), fmt.Sprintf("a step of kind %s needs the member %s", s.Kind, s.Kind))
		}
	case KindConditional:
		p.completeConditional(s)
	case KindPlan:
		p.completePlan(s)
	case KindForkJoin:
		if s.list || s.given("fork_join_config") == nil {
			p.completeFork(s)
		}
	case KindLoop:
		if s.list || s.given("loop_config") == nil {
			p.completeLoop(s)
		}
	case KindValidate:
		p.completeValidate(s)
	case KindAwait:
		p.completeAwait(s)
	case KindSubWorkflow:
		p.completeChild(s)
	case KindWait, KindSet, KindFail, KindFinish, KindEmit, KindApproval:
		if s.seen[string(s.Kind)] == nil {
			p.missing(s.node, string(s.Kind), fmt.Sprintf("a step of kind %s needs the member %s", s.Kind, s.Kind))
		}
	}
}

// completeAgents checks that it is said who is called, in one way.
func (p *parser) completeAgents(s *parseStep) {
	list, one := s.seen["agents"], s.seen["agent"]
	if one == nil {
		one = s.seen["agent_name"]
	}
	switch {
	case one == nil && list == nil:
		p.missing(s.node, "agent", "an agent step needs the name of its agent")
	case one != nil && list != nil:
		p.errorf(list, problemValue, "agent and agents exclude each other: give one agent, or a list of them")
	case list != nil && s.seen["among"] != nil:
		p.errorf(s.seen["among"], problemValue, "among goes with an expression in agent; here the agents are fixed")
	}
	hedge := s.seen["hedge_after"]
	if hedge != nil && list == nil {
		p.report(hedge, parley.Problem{
			Code: problemValue, Text: "hedge_after needs agents, the list of those that are called", Suggestion: "write agents: [one, other]",
		})
	}
	if hedge == nil || list == nil || p.o.Idempotent == nil {
		return
	}
	for _, item := range list.items {
		if item.kind == nodeString && slices.Contains(s.Agents, item.text) && !p.o.Idempotent(item.text) {
			p.report(item, parley.Problem{
				Code: problemValue, Text: fmt.Sprintf("hedged agents must be declared idempotent, %q is not", item.text),
				Suggestion: "if it recognises a task id: parley agent set " + item.text + " --idempotent; or leave hedge_after out",
			})
		}
	}
}

// agent reads a fixed name, or an expression whose values `among` lists.
func (p *parser) agent(s *parseStep, n *node) {
	if s.seen["agent"] != nil && s.seen["agent_name"] != nil {
		p.errorf(n, problemValue, "agent and agent_name are one member: give one of them")
		return
	}
	if n.isTemplate() {
		if !n.isLone() {
			p.report(n, parley.Problem{Code: problemValue, Text: "agent is a name, or one ${…} alone", Suggestion: `join texts inside: ${"a-" + workflow.input.b}`})
			return
		}
		if among := s.node.get("among"); among == nil {
			p.missing(s.node, "among", "an expression in agent needs among, the list of the names that it may give")
		}
		p.template(n, parseExpr{of: s, at: expr.At{Wanted: expr.Name}, set: func(t *expr.Template) { s.AgentExpr = t }})
		return
	}
	if n.kind == nodeList {
		p.report(n, parley.Problem{Code: problemType, Text: "agent is one name, this is a list", Suggestion: "agents takes several, which are tried one after another"})
		return
	}
	if name, ok := p.text(n, 1, 255); ok {
		s.Agent = name
		p.agentKnown(n, name)
	}
}

func (p *parser) agentKnown(n *node, name string) {
	switch known := p.o.KnownAgents; {
	case known == nil || known(name):
	case p.plan != nil:
		p.errorf(n, problemUnknownAgent, "a plan may not call agent %q here: allow.agents does not name it", name)
	default:
		p.errorf(n, problemUnknownAgent, "there is no agent %q", name)
	}
}

// maxAgents bounds the agents of one step (language.md §10).
const maxAgents = 8

// agents reads the names that are called one after another, or hedged.
func (p *parser) agents(s *parseStep, n *node) {
	if n.kind != nodeList || len(n.items) < 2 || len(n.items) > maxAgents {
		p.errorf(n, problemType, "agents is a list of 2 to %d names of agents", maxAgents)
		return
	}
	s.Agents = p.agentNames(n, "agents")
}

// among reads the names that an expression may give.
func (p *parser) among(s *parseStep, n *node) {
	if n.kind != nodeList || len(n.items) == 0 || len(n.items) > 1000 {
		p.errorf(n, problemType, "among is a list of 1 to 1000 names of %s", amongWhat(s.Kind))
		return
	}
	if s.Kind == KindSubWorkflow {
		p.amongWorkflows(s, n)
		return
	}
	s.Among = p.agentNames(n, "among")
}

// agentNames reads a list of fixed names.
func (p *parser) agentNames(n *node, member string) (names []string) {
	for _, item := range n.items {
		name, ok := p.text(item, 1, 255)
		switch {
		case !ok:
		case item.isTemplate():
			p.errorf(item, problemValue, "%s lists fixed names", member)
		case slices.Contains(names, name):
			p.errorf(item, problemValue, "%q is named twice", name)
		default:
			names = append(names, name)
			p.agentKnown(item, name)
		}
	}
	return names
}

func (p *parser) input(s *parseStep, n *node) {
	if s.seen["input"] != nil && s.seen["input_mapping"] != nil {
		p.errorf(n, problemValue, "input and input_mapping are one member: give one of them")
		return
	}
	if !s.list && n.kind != nodeObject && s.seen["input_mapping"] != nil {
		p.errorf(n, problemType, "input_mapping is an object, this is %s", n.kind)
		return
	}
	p.template(n, parseExpr{of: s, set: func(t *expr.Template) { s.Input = t }})
}

// fail reads {code, message, details}.
func (p *parser) fail(s *parseStep, n *node) {
	if n.kind != nodeObject {
		p.report(n, parley.Problem{
			Code: problemType, Text: fmt.Sprintf("fail is an object {code, message, details}, this is %s", n.kind),
			Suggestion: "write {code: NotEnoughData, message: …}: a code of your own, a capital letter first",
		})
		return
	}
	s.Fail = &Fail{}
	p.object(n, s.list, []parseField{
		{"code", func(c *node) {
			if code, ok := p.text(c, 1, 64); ok && !parseAuthorCode(code) {
				p.report(c, parley.Problem{
					Code: problemValue, Text: "a code has letters, digits, _ . - and begins with a capital letter",
					Suggestion: "such as NotEnoughData",
				})
			} else if ok {
				s.Fail.Code = parley.Code(code)
			}
		}},
		{"message", func(m *node) {
			p.template(m, parseExpr{of: s, set: func(t *expr.Template) { s.Fail.Message = t }})
		}},
		{"details", func(d *node) {
			p.template(d, parseExpr{of: s, set: func(t *expr.Template) { s.Fail.Details = t }})
		}},
	})
	if n.get("code") == nil {
		p.missing(n, "code", "fail needs a code")
	}
}

// inherit gives agent steps the defaults of the workflow.
func (p *parser) inherit() {
	for _, s := range p.order {
		if s.Kind != KindAgent {
			continue
		}
		if s.seen["retry"] == nil {
			s.Retry = p.defaults.retry
			if s.role() == roleCompensate {
				s.Retry = compensateRetry()
			}
		}
		if s.seen["attempt_timeout"] == nil {
			s.AttemptTimeout = p.defaults.attemptTimeout
		}
		if s.seen["silence"] == nil {
			s.Silence = p.defaults.silence
		}
	}
}

// plainID refuses control characters in an id of the graph form.
func (p *parser) plainID(n *node) bool {
	if strings.ContainsFunc(n.text, unicode.IsControl) {
		p.errorf(n, problemID, "an id has no control characters")
		return false
	}
	return true
}
