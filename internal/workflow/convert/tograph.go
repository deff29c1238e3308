package convert

import (
	"slices"
	"strings"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// graph writes a document in graph form. Its top list becomes the main path;
// lists inside of steps stay lists, which follow the rules of the list form there
// too, but for a plain parallel.
func (c *converter) graph(doc *workflow.Value) *workflow.Value {
	out := c.object(doc)
	steps := c.object(doc.Get("steps"))
	for _, m := range doc.Members {
		if m.Name != "steps" {
			out.set(m.Name, c.present(m.Value))
			continue
		}
		top := c.outline.Body.Steps
		if len(top) > 0 {
			out.set("start_step", c.text(top[0].ID, top[0].Source))
		}
		for i, s := range top {
			next := null()
			if i+1 < len(top) {
				next = c.text(top[i+1].ID, top[i+1].Source)
			}
			c.graphStep(steps, s, next)
		}
		out.set("steps", steps.value)
	}
	return out.value
}

// graphStep adds a step, and after it those that it names.
func (c *converter) graphStep(steps object, s *outline.Step, next *workflow.Value) {
	c.needs(s)
	out := c.object(s.Source)
	out.set("id", c.text(s.ID, s.Source))
	out.set("type", c.text(string(s.Kind), s.Source))
	flat := c.flat(s)
	for _, m := range s.Source.Members {
		switch {
		case slices.Contains([]string{"id", "type", "needs"}, m.Name):
		case m.Name == "agent" && !strings.Contains(m.Value.Text, "${"):
			out.set("agent_name", m.Value)
		case m.Name == "input" && m.Value.Kind == workflow.ObjectValue && s.Kind == workflow.KindAgent:
			out.set("input_mapping", m.Value)
		case m.Name == "parallel" && flat != nil:
			ids := list()
			for _, child := range flat.Steps {
				ids.Items = append(ids.Items, c.text(child.ID, child.Source))
			}
			out.set("parallel_steps", ids)
		case m.Name == "max_parallel" && flat != nil:
			out.set("max_parallelism", m.Value)
		case m.Name == string(s.Kind):
			out.set(m.Name, m.Value)
		default:
			out.set(m.Name, c.present(m.Value))
		}
	}
	if s.Kind == workflow.KindAgent && s.Source.Get("input") == nil && s.Source.Get("input_mapping") == nil {
		// Old readers fail a step that has none.
		out.set("input_mapping", &workflow.Value{Kind: workflow.ObjectValue})
	}
	if (s.Kind == workflow.KindParallel || s.Kind == "fork_join") && s.Source.Get("losers") == nil {
		out.set("losers", c.text("cancel", s.Source)) // the default of the graph form is wait
	}
	out.set("next_step", next)
	steps.set(s.ID, out.value)
	if flat != nil {
		for _, child := range flat.Steps {
			c.graphStep(steps, child, null())
		}
	}
}

// present writes null so that it is not taken for a member that is left out.
func (c *converter) present(v *workflow.Value) *workflow.Value {
	if v.Kind != workflow.NullValue {
		return v
	}
	return c.text("${null}", v)
}

// flat gives the children of a parallel whose order the graph form can say: none
// of them needs another one.
func (c *converter) flat(s *outline.Step) *outline.Block {
	b := block(s, "")
	if s.Kind != workflow.KindParallel || b == nil || b.Parent.Source.Get("parallel") == nil {
		return nil
	}
	for _, child := range b.Steps {
		if len(child.Needs) > 0 {
			return nil
		}
	}
	return b
}

// needs refuses an order that next_step cannot say.
func (c *converter) needs(s *outline.Step) {
	needs := s.Source.Get("needs")
	if needs == nil || s.Block.Beside || s.Index == 0 || slices.Equal(s.Needs, []int{s.Index - 1}) {
		return
	}
	c.refuse(needs, "the graph form cannot say needs of a step of the main path: next_step gives one order; put what runs side by side into a parallel, or all of it into a group")
}
