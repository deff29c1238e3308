package workflow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Plan says what a plan step runs: a list of steps that an agent has made (rule S10).
type Plan struct {
	// Steps gives the list, unless Literal has it: what stands in that is evaluated
	// when its steps are.
	Steps   *expr.Template
	Literal json.RawMessage
	// Agents and Kinds are what it may hold, MaxSteps how much.
	Agents   []string
	Kinds    []Kind
	MaxSteps int
	// Expressions lets ${…} be more than a reference to a step of the plan, or to
	// plan.input.
	Expressions bool

	compiled planCache
}

// planCache keeps what was compiled last, for whoever decides next about the run.
type planCache struct {
	mu     sync.Mutex
	byText map[string]*Definition
	order  []string
}

// maxPlansKept bounds the plans of one step that are kept compiled.
const maxPlansKept = 16

func (c *planCache) get(text string) *Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byText[text]
}

func (c *planCache) put(text string, def *Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil {
		c.byText = make(map[string]*Definition, 1)
	}
	if len(c.order) == maxPlansKept {
		delete(c.byText, c.order[0])
		c.order = slices.Delete(c.order, 0, 1)
	}
	c.byText[text] = def
	c.order = append(c.order, text)
}

// defaultPlanSteps is how many steps a plan may have that says nothing else, and
// planSource bounds the text of any plan, in bytes (language.md §10).
const (
	defaultPlanSteps = 50
	planSource       = 64 << 20
)

// planKinds are those that a plan may be allowed to hold.
func planKinds() []Kind {
	return []Kind{
		KindAgent, KindGroup, KindParallel, KindForkJoin, KindConditional, KindSwitch, KindLoop, KindWait, KindSet, KindValidate, KindFail,
	}
}

// planSteps reads the list, or the expression that gives it.
func (p *parser) planSteps(s *parseStep, n *node) {
	if n.kind != nodeList && !n.isLone() {
		p.report(n, parley.Problem{Code: problemType, Text: "plan is one ${…} that gives a list of steps, or a list of steps", Suggestion: "such as ${planner.output.steps}"})
		return
	}
	plan := s.planned()
	if n.kind == nodeList {
		if p.shallow(n) {
			plan.Literal = n.json()
		}
		return
	}
	p.template(n, parseExpr{of: s, at: expr.At{Wanted: expr.List}, set: func(t *expr.Template) { plan.Steps = t }})
}

// planned is what a plan step is told, made by the first member that is read.
func (s *parseStep) planned() *Plan {
	if s.Plan == nil {
		s.Plan = &Plan{Kinds: []Kind{KindAgent, KindGroup, KindParallel, KindForkJoin}, MaxSteps: defaultPlanSteps}
	}
	return s.Plan
}

// allow reads {agents, kinds, max_steps, expressions}.
func (p *parser) allow(s *parseStep, n *node) {
	if n.kind != nodeObject {
		p.errorf(n, problemType, "allow is an object {agents, kinds, max_steps, expressions}, this is %s", n.kind)
		return
	}
	plan := s.planned()
	p.object(n, s.list, []parseField{
		{"agents", func(list *node) {
			if list.kind != nodeList || len(list.items) == 0 || len(list.items) > 1000 {
				p.errorf(list, problemType, "agents is a list of 1 to 1000 names of agents")
				return
			}
			plan.Agents = p.agentNames(list, "agents")
		}},
		{"kinds", func(list *node) { plan.Kinds = p.allowedKinds(list) }},
		{"max_steps", func(m *node) { parseInto(&plan.MaxSteps)(p.whole(m, 1, p.o.Limits.Steps)) }},
		{"expressions", func(e *node) {
			if e.kind != nodeBool {
				p.errorf(e, problemType, "this must be true or false, it is %s", e.kind)
				return
			}
			plan.Expressions = e.text == "true"
		}},
	})
	if n.get("agents") == nil {
		p.missing(n, "agents", "allow needs agents, those that the plan may call")
	}
}

func (p *parser) allowedKinds(list *node) (kinds []Kind) {
	if list.kind != nodeList || len(list.items) == 0 {
		p.errorf(list, problemType, "kinds is a list of kinds of steps")
		return nil
	}
	var names []string
	for _, k := range planKinds() {
		names = append(names, string(k))
	}
	for _, item := range list.items {
		if w, ok := p.word(item, names...); ok {
			kinds = append(kinds, Kind(w))
		}
	}
	return kinds
}

// completePlan checks what a plan cannot be without.
func (p *parser) completePlan(s *parseStep) {
	for _, name := range []string{"plan", "allow"} {
		if s.seen[name] == nil {
			p.missing(s.node, name, fmt.Sprintf("a step of kind plan needs the member %s", name))
		}
	}
	if s.seen["input"] == nil {
		p.later = append(p.later, parseExpr{of: s, raw: []byte("{}"), set: func(t *expr.Template) { s.Input = t }})
	}
}

// permitted checks a step of a plan against what it may hold.
func (p *parser) permitted(s *parseStep) {
	if p.plan == nil || slices.Contains(p.plan.Kinds, s.Kind) {
		return
	}
	var kinds []string
	for _, k := range p.plan.Kinds {
		kinds = append(kinds, string(k))
	}
	p.errorf(s.node, problemValue, "a step of kind %s is not allowed here, only %s", s.Kind, strings.Join(kinds, ", "))
}

// options are those with which a plan is read.
func (spec *Plan) options() ParseOptions {
	return ParseOptions{
		File: "plan", KnownAgents: func(name string) bool { return slices.Contains(spec.Agents, name) },
		// Nobody has declared what a plan would call side by side.
		Idempotent: func(string) bool { return false }, Limits: ParseLimits{Steps: spec.MaxSteps, SourceBytes: planSource},
	}
}

// literalPlan checks a list of steps that stands in the document as it is checked when the
// step starts: what is wrong with it is so in every run. Versions that were deployed have
// runs that end by that.
func (p *parser) literalPlan(s *parseStep) {
	list := s.seen["plan"]
	if s.Plan == nil || s.Plan.Literal == nil || s.Plan.Agents == nil || p.o.accepted {
		return
	}
	o := s.Plan.options()
	o.Limits = o.Limits.filled()
	in := newParser(o, p.reader)
	in.plan = s.Plan
	in.document(&node{kind: nodeObject, line: list.line, col: list.col, members: []nodeMember{
		{name: "name", value: &node{kind: nodeString, text: o.File}}, {name: "steps", value: list},
	}})
	if !problemsFail(in.problems) {
		for _, i := range clashes(s.Step, in.def) {
			in.report(cmp.Or(list.items[i].get("id"), list.items[i]), clash(s.Step, in.def.Body.Steps[i]))
		}
	}
	for _, f := range in.problems {
		p.report(&node{line: f.Line, col: f.Col}, f)
	}
	p.dropped += in.dropped
}

// compilePlan compiles the value of a plan step as a list of steps. The error is
// limit or plan_invalid, with all findings in its details if it was read.
func compilePlan(step *Step, value json.RawMessage) (*Definition, error) {
	if len(value) == 0 || value[0] != '[' {
		return nil, parley.Errorf(parley.CodePlanInvalid, "plan: %s is no list of steps", capText(value))
	}
	spec := step.Plan
	if def := spec.compiled.get(string(value)); def != nil {
		return def, nil
	}
	source := append(append([]byte(`{"name":"plan","steps":`), value...), '}')
	o := spec.options()
	o.accepted = true // perhaps: what a run has recorded is compiled anew after a restart
	def, problems := parse(o, source, spec)
	if def == nil {
		return nil, planRefused(problems)
	}
	def.Body.Parent = step
	spec.compiled.put(string(value), def)
	return def, nil
}

// planRefused makes one error of all findings: limit if nothing is wrong but that
// the plan is too large, else plan_invalid.
func planRefused(problems parley.Problems) error {
	type finding struct {
		Path string `json:"path"`
		Code string `json:"code"`
		Text string `json:"text"`
	}
	var list []finding
	code := parley.CodeLimit
	for _, f := range problems {
		if f.Severity != parley.SeverityError {
			continue
		}
		list = append(list, finding{f.Path, f.Code, f.Text})
		if f.Code != problemLimit {
			code = parley.CodePlanInvalid
		}
	}
	first := list[0].Path + ": " + list[0].Text
	if n := len(list) - 1; n > 0 {
		first += fmt.Sprintf(" (and %d more)", n)
	}
	return parley.Errorf(code, "The plan cannot be run: %s", first).WithDetails(list)
}

// apartFrom refuses a plan that names a step as one is named that handles or undoes the
// plan step itself: both would stand at the same path, which is one execution (rule S9).
func apartFrom(step *Step, def *Definition) error {
	var problems parley.Problems
	for _, i := range clashes(step, def) {
		problem := clash(step, def.Body.Steps[i])
		problem.Path, problem.Severity = fmt.Sprintf("steps[%d].id", i), parley.SeverityError
		problems = append(problems, problem)
	}
	if len(problems) > 0 {
		return planRefused(problems)
	}
	return nil
}

// clashes gives the indexes of the steps of a plan that are named so.
func clashes(step *Step, def *Definition) (list []int) {
	taken := make(map[string]bool)
	for _, b := range step.AllBlocks() {
		for _, s := range b.Steps {
			taken[s.ID] = true
		}
	}
	for i, s := range def.Body.Steps {
		if taken[s.ID] {
			list = append(list, i)
		}
	}
	return list
}

func clash(step, planned *Step) parley.Problem {
	return parley.Problem{
		Code: problemID, Text: fmt.Sprintf("a step in on_error or compensate of %s has the id %q; give another one", step.ID, planned.ID),
	}
}

// evalPlan evaluates the plan and its input, once, and compiles it.
func (a *decider) evalPlan(x *execution, p *stepScheduled) error {
	scope := a.scope(x)
	p.Plan = x.step.Plan.Literal
	if c, ok := a.entered(x); ok {
		p.Plan = c.Output
	} else if x.step.Plan.Steps != nil {
		var err error
		if p.Plan, err = x.step.Plan.Steps.Eval(scope); err != nil {
			return err
		}
	}
	if n := int64(len(p.Plan)); n > a.limits.PlanBytes {
		return limitError("plan", a.limits.PlanBytes, n)
	}
	def, err := compilePlan(x.step, p.Plan)
	if err == nil {
		err = apartFrom(x.step, def)
	}
	if err != nil {
		return err
	}
	input, ok := a.editedInput(x)
	if !ok {
		var err error
		if input, err = x.step.Input.Eval(scope); err != nil {
			return err
		}
	}
	p.Input = input
	return a.fits("plan", append(slices.Clip(p.Plan), input...))
}

// takePlan compiles a plan that was recorded.
func (s *State) takePlan(x *execution, p stepScheduled) error {
	if p.Plan == nil {
		return nil
	}
	def, err := compilePlan(x.step, p.Plan)
	if err != nil {
		return err
	}
	x.plan, x.planned = def, p.Plan
	s.bytes += int64(len(p.Plan))
	return nil
}

// planAround is the plan step that a list stands in; nil for those of the workflow.
func (r *region) planAround() *execution {
	for ; r != nil && r.owner != nil; r = r.around() {
		if r.owner.plan != nil && r.block.Role == roleBody {
			return r.owner
		}
	}
	return nil
}

// stepNamed gives the step of that id that can be meant in a list: of the plan that
// it stands in, else of the workflow.
func (s *State) stepNamed(from *region, id string) *Step {
	if x := from.planAround(); x != nil {
		return x.plan.Steps[id]
	}
	return s.def.Steps[id]
}

// inPlan finds the step of a plan that a path names, by the execution around it.
func (s *State) inPlan(head, tail string) *Step {
	x := s.holder(head)
	if x == nil {
		return nil
	}
	of := x
	if of.plan == nil {
		if of = x.region.planAround(); of == nil {
			return nil
		}
	}
	if step := of.plan.Steps[tail]; step != nil && step.Block.Parent == x.step {
		return step
	}
	return nil
}
