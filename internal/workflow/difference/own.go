package difference

import (
	"slices"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// top gives the members of the workflow itself.
func top(doc *workflow.Value) *workflow.Value {
	return without(doc, "steps", "start_step", "finally")
}

// own gives the members of a step under the names of today, without the steps
// inside of it: those are compared by themselves.
func own(s *outline.Step) *workflow.Value {
	v := &workflow.Value{Kind: workflow.ObjectValue}
	for _, m := range s.Source.Members {
		if m.Value.Kind == workflow.NullValue && m.Name != string(s.Kind) {
			continue // old writers spell what they leave out
		}
		switch m.Name {
		case "id", "type", "next_step", "steps", "parallel", "then", "else", "compensate",
			"parallel_steps", "if_true_step", "if_false_step":
			continue
		case "agent_name":
			m.Name = "agent"
		case "input_mapping":
			m.Name = "input"
		case "max_parallelism":
			m.Name = "max_parallel"
		case "switch", "on_error":
			m.Value = items(m.Value)
		case "fork":
			m.Value = members(m.Value)
		case "loop_config":
			m.Value = without(m.Value, "loop_body")
		case "fork_join_config":
			m.Value = each(m.Value, func(b workflow.ValueMember) *workflow.Value {
				if b.Name == "branches" {
					return members(b.Value)
				}
				return b.Value
			})
		}
		v.Members = append(v.Members, m)
	}
	return v
}

// items leaves the steps out of each object of a list, or of one object.
func items(v *workflow.Value) *workflow.Value {
	if v.Kind != workflow.ListValue {
		return without(v, "steps")
	}
	c := *v
	c.Items = nil
	for _, item := range v.Items {
		c.Items = append(c.Items, without(item, "steps"))
	}
	return &c
}

// members leaves the steps out of each member of an object.
func members(v *workflow.Value) *workflow.Value {
	return each(v, func(m workflow.ValueMember) *workflow.Value {
		if m.Value.Kind == workflow.ListValue {
			return &workflow.Value{Kind: workflow.ObjectValue}
		}
		return without(m.Value, "steps")
	})
}

func each(v *workflow.Value, change func(workflow.ValueMember) *workflow.Value) *workflow.Value {
	c := *v
	c.Members = nil
	for _, m := range v.Members {
		m.Value = change(m)
		c.Members = append(c.Members, m)
	}
	return &c
}

func without(v *workflow.Value, names ...string) *workflow.Value {
	c := *v
	c.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m workflow.ValueMember) bool { return slices.Contains(names, m.Name) })
	return &c
}
