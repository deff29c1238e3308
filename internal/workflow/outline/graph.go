package outline

import (
	"slices"
	"strconv"

	"github.com/parley-project/parley/internal/workflow"
)

// graph reads the steps of the graph form (formats.md; language.md §9).
type graph struct {
	steps *workflow.Value
	// seen are the steps that stand somewhere already, depth counts the steps around
	// what is being read.
	seen  map[string]bool
	depth int
}

// deepest bounds the nesting that is read, well above what a valid document has.
const deepest = 100

func newGraph(steps *workflow.Value) *graph {
	return &graph{steps: steps, seen: map[string]bool{}}
}

// path follows next_step from an id, up to its end or to one of those that end
// it.
func (g *graph) path(b *Block, id string, ends ...string) {
	for id != "" {
		if slices.Contains(ends, id) {
			return
		}
		if !g.place(b, id) {
			return
		}
		s := b.Steps[len(b.Steps)-1]
		if s.Index > 0 {
			s.Needs = []int{s.Index - 1}
		}
		if s.Again {
			return
		}
		id = s.Source.Given("next_step").String()
	}
}

// jumps adds the chains that only the handlers of a list lead to.
func (g *graph) jumps(b *Block, ends ...string) {
	for i := 0; i < len(b.Steps); i++ {
		for _, j := range b.Steps[i].Jumps {
			at := len(b.Steps)
			if g.seen[j.To] || slices.Contains(ends, j.To) {
				continue
			}
			g.path(b, j.To, ends...)
			for k := at; k < len(b.Steps); k++ {
				b.Steps[k].Jumped = true
			}
			if at < len(b.Steps) {
				b.Steps[at].Needs = nil
			}
		}
	}
}

// place puts a step into a list. A step that is elsewhere already is said to be
// there again.
func (g *graph) place(b *Block, id string) bool {
	v := g.steps.Get(id)
	if v == nil || v.Kind != workflow.ObjectValue {
		return false
	}
	s := newStep(v, true)
	s.ID, s.Block, s.Index, s.Again = id, b, len(b.Steps), g.seen[id]
	b.Steps = append(b.Steps, s)
	if !s.Again {
		g.seen[id] = true
		if g.depth++; g.depth < deepest {
			g.inside(s)
		}
		g.depth--
		s.lists(true)
	}
	return true
}

// inside reads the lists that a step names by ids.
func (g *graph) inside(s *Step) {
	v := s.Source
	g.ids(s, Block{Role: Body, Beside: true}, v.Given("parallel_steps"))
	next := v.Given("next_step").String()
	for i, member := range []string{"if_true_step", "if_false_step"} {
		if id := v.Given(member).String(); id != "" && id != next {
			name := []string{"then", "else"}[i]
			b := &Block{Role: Branch, Name: name, Title: name, Parent: s}
			s.Blocks = append(s.Blocks, b)
			g.path(b, id, s.ID, next)
			g.jumps(b, s.ID, next)
		}
	}
	if c := v.Given("loop_config"); c != nil {
		g.ids(s, Block{Role: Body}, c.Given("loop_body"))
	}
	for _, m := range members(v.Given("fork_join_config").Given("branches")) {
		title := m.Name
		if t := m.Value.Given("timeout_seconds"); t != nil {
			title += ", timeout " + seconds(t)
		}
		g.ids(s, Block{Role: Branch, Name: m.Name, Title: title}, m.Value.Given("steps"))
	}
}

// ids reads a list of ids of steps.
func (g *graph) ids(s *Step, b Block, v *workflow.Value) {
	if v == nil {
		return
	}
	b.Parent = s
	s.Blocks = append(s.Blocks, &b)
	for _, item := range items(v) {
		if g.place(&b, item.String()) && !b.Beside && len(b.Steps) > 1 {
			b.Steps[len(b.Steps)-1].Needs = []int{len(b.Steps) - 2}
		}
	}
}

// rest gives the steps that no path comes to.
func (g *graph) rest() (all []*Step) {
	b := &Block{Name: "never reached"}
	for _, m := range members(g.steps) {
		if !g.seen[m.Name] && m.Value.Kind == workflow.ObjectValue {
			s := newStep(m.Value, true)
			s.ID, s.Block, s.Index = m.Name, b, len(all)
			all = append(all, s)
		}
	}
	b.Steps = all
	return all
}

// seconds writes a number of seconds as a duration.
func seconds(v *workflow.Value) string { return short(v) + "s" }

func branches(n int) string { return strconv.Itoa(n) + " branches" }
