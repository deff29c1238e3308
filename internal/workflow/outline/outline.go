// Package outline says how a workflow is built: its steps, the lists that they
// stand in, and what comes after what. It reads the tree of a document, in both
// forms alike, so that a document that does not compile yet has an outline too.
package outline

import (
	"strconv"

	"github.com/parley-project/parley/internal/workflow"
)

// Role is what a list of steps is there for.
type Role string

// The roles.
const (
	Body         Role = "body"
	Branch       Role = "branch"
	Handler      Role = "handler"
	Compensation Role = "compensation"
	Finally      Role = "finally"
)

// Workflow is the outline of a document.
type Workflow struct {
	ID       string        `json:"workflow,omitempty"`
	Name     string        `json:"name"`
	Version  string        `json:"version,omitempty"`
	Form     workflow.Form `json:"form"`
	Triggers []string      `json:"triggers,omitempty"`
	Body     *Block        `json:"body"`
	// Finally is nil if the workflow has none.
	Finally *Block `json:"finally,omitempty"`
	// Unreached are the steps of the graph form that no path comes to.
	Unreached []*Step `json:"unreached,omitempty"`
	// Source is the whole document.
	Source *workflow.Value `json:"-"`
}

// Block is one list of steps.
type Block struct {
	Role Role `json:"role"`
	// Name tells the lists of one step apart: then, else, 1, a branch; "" is the
	// only one. Title says to people when it runs.
	Name  string  `json:"name,omitempty"`
	Title string  `json:"title,omitempty"`
	Steps []*Step `json:"steps"`
	// Beside is set when its steps start together unless they say what they need.
	Beside bool `json:"beside,omitempty"`
	// Parent is the step that the list stands in, nil at the top.
	Parent *Step `json:"-"`
}

// Step is one step.
type Step struct {
	ID   string        `json:"id"`
	Kind workflow.Kind `json:"kind"`
	Name string        `json:"name,omitempty"`
	// Does says in a few words what the step does, Notes what else there is to
	// know: conditions, limits, attempts.
	Does  string   `json:"does,omitempty"`
	Notes []string `json:"notes,omitempty"`
	// Needs are the places of the steps of the same list that must have ended.
	Needs  []int    `json:"needs,omitempty"`
	Jumps  []Jump   `json:"jumps,omitempty"`
	Blocks []*Block `json:"blocks,omitempty"`
	// Again is set for a step of the graph form that stands in another place too;
	// what is inside is said there.
	Again bool `json:"again,omitempty"`
	// Jumped is set for a step of the graph form that only a goto leads to, and for
	// what follows it.
	Jumped bool `json:"jumped,omitempty"`
	// Block is where the step stands, at Index; Source is its place in the
	// document.
	Block  *Block          `json:"-"`
	Index  int             `json:"-"`
	Source *workflow.Value `json:"-"`
}

// Jump is a goto of a handler.
type Jump struct {
	When string `json:"when"`
	To   string `json:"to"`
}

// Of gives the outline of a document.
func Of(doc *workflow.Value) *Workflow {
	w := &Workflow{
		Name: doc.Get("name").String(), ID: doc.Given("workflow_id").String(), Version: doc.Given("version").String(),
		Form: doc.Form(), Source: doc, Body: &Block{Role: Body},
	}
	for _, t := range items(doc.Given("triggers")) {
		w.Triggers = append(w.Triggers, trigger(t))
	}
	steps := doc.Get("steps")
	if w.Form == workflow.FormGraph {
		g := newGraph(steps)
		g.path(w.Body, doc.Given("start_step").String(), "")
		g.jumps(w.Body)
		w.Unreached = g.rest()
	} else {
		list(steps, w.Body)
	}
	if f := doc.Given("finally"); f != nil {
		w.Finally = &Block{Role: Finally, Name: "finally", Title: "finally"}
		list(f, w.Finally)
	}
	return w
}

// Each calls f for every step, in the order of the outline, those inside a step
// after it.
func (w *Workflow) Each(f func(*Step)) {
	w.Body.each(f)
	if w.Finally != nil {
		w.Finally.each(f)
	}
	for _, s := range w.Unreached {
		f(s)
	}
}

func (b *Block) each(f func(*Step)) {
	for _, s := range b.Steps {
		f(s)
		for _, inner := range s.Blocks {
			inner.each(f)
		}
	}
}

// Ends gives the steps of a list that no other one needs, Starts those that need
// none.
func (b *Block) Ends() (ends []*Step) {
	needed := map[int]bool{}
	for _, s := range b.Steps {
		for _, n := range s.Needs {
			needed[n] = true
		}
	}
	for i, s := range b.Steps {
		if !needed[i] {
			ends = append(ends, s)
		}
	}
	return ends
}

// Starts gives the steps of a list that need no other one.
func (b *Block) Starts() (starts []*Step) {
	for _, s := range b.Steps {
		if len(s.Needs) == 0 && !s.Jumped {
			starts = append(starts, s)
		}
	}
	return starts
}

// list reads steps in list form.
func list(v *workflow.Value, b *Block) {
	index := map[string]int{}
	for _, item := range items(v) {
		if item.Kind != workflow.ObjectValue {
			continue
		}
		s := newStep(item, false)
		s.ID, s.Block, s.Index = item.Get("id").String(), b, len(b.Steps)
		if s.ID == "" {
			s.ID = autoID(s)
		}
		b.Steps = append(b.Steps, s)
		index[s.ID] = s.Index
		s.lists(false)
	}
	for i, s := range b.Steps {
		if needs := s.Source.Get("needs"); needs != nil {
			for _, n := range items(needs) {
				if at, ok := index[n.String()]; ok && at != i {
					s.Needs = append(s.Needs, at)
				}
			}
		} else if i > 0 && !b.Beside {
			s.Needs = []int{i - 1}
		}
	}
}

// autoID is the id of a step that has none (rule D3, decision 033).
func autoID(s *Step) string {
	kind := string(s.Kind)
	if kind == "" {
		kind = "step"
	}
	id := kind + "_" + strconv.Itoa(s.Index+1)
	if s.Block.Name != "" {
		id = s.Block.Name + "_" + id
	}
	if s.Block.Parent != nil {
		id = s.Block.Parent.ID + "_" + id
	}
	return id
}

// add gives the step one more list.
func (s *Step) add(b Block, v *workflow.Value) {
	if v == nil {
		return
	}
	b.Parent = s
	if b.Role == "" {
		b.Role = Branch
	}
	s.Blocks = append(s.Blocks, &b)
	list(v, &b)
}

// lists reads the lists inside a step: those of its kind, then the handlers and
// what compensates it. A list inside a step follows the rules of the list form.
func (s *Step) lists(graph bool) {
	v := s.Source
	get := v.Get
	if graph {
		get = v.Given
	}
	s.add(Block{Role: Body}, get("steps"))
	s.add(Block{Role: Body, Beside: true}, get("parallel"))
	s.add(Block{Name: "then", Title: "then"}, get("then"))
	s.add(Block{Name: "else", Title: "else"}, get("else"))
	for i, c := range items(get("switch")) {
		title := "otherwise"
		if when := c.Get("when"); when != nil {
			title = "when " + short(when)
		}
		s.add(Block{Name: strconv.Itoa(i + 1), Title: title}, c.Get("steps"))
	}
	for _, m := range members(get("fork")) {
		steps, title := m.Value, m.Name
		if m.Value.Kind == workflow.ObjectValue {
			steps = m.Value.Get("steps")
			if t := m.Value.Get("timeout"); t != nil {
				title += ", timeout " + short(t)
			}
		}
		s.add(Block{Name: m.Name, Title: title}, steps)
	}
	s.handlers(get("on_error"))
	if c := get("compensate"); c != nil {
		s.add(Block{Role: Compensation, Name: "compensate", Title: "compensate"}, listOf(c))
	}
}

// handlers reads `on_error`.
func (s *Step) handlers(v *workflow.Value) {
	all := items(listOf(v))
	for i, h := range all {
		if h.Kind != workflow.ObjectValue {
			if word := h.String(); word != "" && word != "fail" {
				s.Notes = append(s.Notes, "on error "+word)
			}
			continue
		}
		name := "on_error"
		if len(all) > 1 {
			name += "_" + strconv.Itoa(i+1)
		}
		title := "on error"
		if match := texts(h.Get("match")); match != "" && match != "*" {
			title = "on " + match
		}
		if cond := h.Get("if"); cond != nil {
			title += " if " + short(cond)
		}
		to, then := h.Get("goto").String(), h.Get("then").String()
		if to != "" {
			s.Jumps = append(s.Jumps, Jump{When: title, To: to})
		}
		switch {
		case h.Get("steps") != nil && then == "fail":
			title += ", then fail"
		case h.Get("steps") == nil && to == "":
			s.Notes = append(s.Notes, title+" "+or(then, "continue"))
		}
		s.add(Block{Role: Handler, Name: name, Title: title}, h.Get("steps"))
	}
}

// listOf makes a list of a value that may be one of its items.
func listOf(v *workflow.Value) *workflow.Value {
	if v == nil || v.Kind == workflow.ListValue {
		return v
	}
	return &workflow.Value{Kind: workflow.ListValue, Items: []*workflow.Value{v}}
}

func items(v *workflow.Value) []*workflow.Value {
	if v == nil {
		return nil
	}
	return v.Items
}

func members(v *workflow.Value) []workflow.ValueMember {
	if v == nil {
		return nil
	}
	return v.Members
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
