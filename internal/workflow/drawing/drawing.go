// Package drawing draws the outline of a workflow: as text for a terminal, for
// Mermaid and for Graphviz. The same outline always gives the same drawing.
package drawing

import (
	"slices"
	"strconv"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// Formats are the names of what can be drawn.
func Formats() []string { return []string{"mermaid", "dot", "text"} }

// Draw gives the drawing in one of the formats; ok is false if there is no such
// format.
func Draw(w *outline.Workflow, format string) (drawing string, ok bool) {
	switch format {
	case "mermaid":
		return mermaid(newScene(w)), true
	case "dot":
		return dot(newScene(w)), true
	case "text":
		return text(w), true
	}
	return "", false
}

// shape is how a node looks.
type shape int

const (
	box shape = iota
	rounded
	stadium
	diamond
	hexagon
	subroutine
	terminal
)

// thing is a node, or a frame around others.
type thing struct {
	id     string
	lines  []string
	shape  shape
	frame  bool
	dashed bool
	inner  []*thing
	// first and last are the nodes of a frame at which edges begin and end where
	// only nodes have any.
	first, last *thing
}

type edge struct {
	from, to *thing
	label    string
	dotted   bool
}

// scene is a workflow as things and edges between them.
type scene struct {
	title string
	top   thing
	edges []edge
	n     int
	// steps are the things of the steps that stand in one place.
	steps map[*outline.Step]*thing
	byID  map[string]*outline.Step
}

func newScene(w *outline.Workflow) *scene {
	s := &scene{title: w.Name, steps: map[*outline.Step]*thing{}, byID: map[string]*outline.Step{}}
	start := s.node(&s.top, rounded, append([]string{"start"}, w.Triggers...)...)
	s.block(&s.top, w.Body)
	end := &thing{lines: []string{"end"}, shape: rounded}
	for _, x := range w.Body.Starts() {
		s.edge(edge{from: start, to: s.steps[x]})
	}
	last := []*thing{start}
	if ends := s.all(w.Body.Ends()); len(ends) > 0 {
		last = ends
	}
	if w.Finally != nil && len(w.Finally.Steps) > 0 {
		f := s.frame(&s.top, "finally")
		s.block(f, w.Finally)
		for _, x := range last {
			s.edge(edge{from: x, to: f})
		}
		last = []*thing{f}
	}
	s.add(&s.top, end)
	for _, x := range last {
		s.edge(edge{from: x, to: end})
	}
	if len(w.Unreached) > 0 {
		f := s.frame(&s.top, "never reached")
		f.dashed = true
		for _, x := range w.Unreached {
			s.step(f, x)
		}
	}
	s.jumps(w)
	return s
}

func (s *scene) add(parent, t *thing) {
	s.n++
	t.id = "n" + strconv.Itoa(s.n)
	parent.inner = append(parent.inner, t)
	if !t.frame {
		t.first, t.last = t, t
	}
}

func (s *scene) node(parent *thing, look shape, lines ...string) *thing {
	t := &thing{lines: lines, shape: look}
	s.add(parent, t)
	return t
}

func (s *scene) frame(parent *thing, lines ...string) *thing {
	t := &thing{lines: lines, frame: true}
	s.add(parent, t)
	return t
}

func (s *scene) edge(e edge) {
	if e.from != nil && e.to != nil {
		s.edges = append(s.edges, e)
	}
}

func (s *scene) all(steps []*outline.Step) (things []*thing) {
	for _, x := range steps {
		things = append(things, s.steps[x])
	}
	return things
}

// block draws the steps of a list into a frame.
func (s *scene) block(parent *thing, b *outline.Block) {
	for _, x := range b.Steps {
		s.step(parent, x)
		for _, n := range x.Needs {
			s.edge(edge{from: s.need(b, n), to: s.steps[x]})
		}
	}
	if !parent.frame {
		return
	}
	if starts := s.all(b.Starts()); parent.first == nil && len(starts) > 0 {
		parent.first = starts[0].first
	}
	if ends := s.all(b.Ends()); len(ends) > 0 {
		parent.last = ends[len(ends)-1].last
	}
	// A list in which every step needs another one has neither end.
	if parent.first == nil {
		parent.first = firstNode(parent)
	}
	if parent.last == nil {
		parent.last = parent.first
	}
}

// need gives the thing of a sibling. One that stands later in the list is not
// drawn yet: its thing is made when it is.
func (s *scene) need(b *outline.Block, n int) *thing {
	x := b.Steps[n]
	if s.steps[x] == nil {
		s.steps[x] = &thing{}
	}
	return s.steps[x]
}

// step draws one step with what is inside, and what handles or undoes it.
func (s *scene) step(parent *thing, x *outline.Step) {
	t := s.steps[x]
	if t == nil {
		t = &thing{}
		s.steps[x] = t
	}
	if x.Again {
		t.lines, t.dashed = []string{x.ID + " again"}, true
		s.add(parent, t)
		return
	}
	s.byID[x.ID] = x
	inside := inner(x)
	t.lines, t.shape, t.frame = words(x), shapeOf(x.Kind), len(inside) > 0
	s.add(parent, t)
	if t.frame {
		s.inside(t, x, inside)
	}
	for _, b := range x.Blocks {
		if (b.Role == outline.Handler || b.Role == outline.Compensation) && len(b.Steps) > 0 {
			f := s.frame(parent, b.Title)
			f.dashed = true
			s.block(f, b)
			s.edge(edge{from: t, to: f, dotted: true, label: b.Title})
		}
	}
}

// inner gives the lists that run as part of a step.
func inner(x *outline.Step) (blocks []*outline.Block) {
	for _, b := range x.Blocks {
		if (b.Role == outline.Body || b.Role == outline.Branch) && len(b.Steps) > 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func (s *scene) inside(t *thing, x *outline.Step, blocks []*outline.Block) {
	switch x.Kind {
	case workflow.KindConditional, workflow.KindSwitch:
		decide := s.node(t, diamond, or(x.Does, x.ID))
		t.first, t.last = decide, decide
		for _, b := range blocks {
			s.block(t, b)
			for _, first := range b.Starts() {
				s.edge(edge{from: decide, to: s.steps[first], label: b.Title})
			}
		}
	case "fork_join":
		for _, b := range blocks {
			f := s.frame(t, b.Title)
			s.block(f, b)
			if t.first == nil {
				t.first = f.first
			}
			t.last = f.last
		}
	default:
		for _, b := range blocks {
			s.block(t, b)
		}
	}
}

// firstNode is the first node inside a frame.
func firstNode(t *thing) *thing {
	for t.frame && len(t.inner) > 0 {
		t = t.inner[0]
	}
	return t
}

// jumps draws what goto names. An edge between a frame and what is inside it
// could not be drawn.
func (s *scene) jumps(w *outline.Workflow) {
	w.Each(func(x *outline.Step) {
		for _, j := range x.Jumps {
			if to := s.byID[j.To]; to != nil && !within(to, x) && !within(x, to) {
				s.edge(edge{from: s.steps[x], to: s.steps[to], label: j.When, dotted: true})
			}
		}
	})
}

func within(x, around *outline.Step) bool {
	for ; x != nil && x.Block != nil; x = x.Block.Parent {
		if x == around {
			return true
		}
	}
	return false
}

// words are the lines of a step.
func words(x *outline.Step) []string {
	lines := []string{x.ID}
	if x.Name != "" && x.Name != x.ID {
		lines = append(lines, x.Name)
	}
	switch {
	case x.Kind == workflow.KindConditional && len(inner(x)) > 0:
	case x.Does != "":
		lines = append(lines, kindName(x)+x.Does)
	case x.Kind != "":
		lines = append(lines, string(x.Kind))
	}
	return append(lines, x.Notes...)
}

// kindName is the kind before what a step does, unless that says it.
func kindName(x *outline.Step) string {
	switch x.Kind {
	case workflow.KindConditional, "loop":
		return ""
	case "sub_workflow":
		return "workflow "
	case "wait_for_event":
		return "event "
	case "fork_join":
		return "fork "
	}
	return string(x.Kind) + " "
}

func shapeOf(k workflow.Kind) shape {
	switch k {
	case workflow.KindConditional, workflow.KindSwitch:
		return diamond
	case workflow.KindWait, "wait_for_event":
		return stadium
	case "approval":
		return hexagon
	case "sub_workflow", "plan":
		return subroutine
	case workflow.KindFail, workflow.KindFinish:
		return terminal
	}
	if slices.Contains([]workflow.Kind{workflow.KindSet, "validate", "emit"}, k) {
		return rounded
	}
	return box
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
