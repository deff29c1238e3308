package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/expr"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// list writes a document in list form: the steps in the order in which the path
// comes to them, those that a step names inside of it.
func (c *converter) list(doc *workflow.Value) *workflow.Value {
	o := expr.Options{Graph: true}
	c.outline.Each(func(s *outline.Step) { o.StepIDs = append(o.StepIDs, s.ID) })
	slices.Sort(o.StepIDs)
	o.StepIDs = slices.Compact(o.StepIDs)
	var err error
	if c.old, err = expr.NewCompiler(o); err != nil {
		c.refuse(doc, "%v", err)
		return nil
	}
	out := c.object(doc)
	for _, m := range doc.Members {
		switch {
		case m.Value.Kind == workflow.NullValue && m.Name != "output", m.Name == "start_step":
		case m.Name == "steps":
			out.set("steps", c.listSteps(c.outline.Body))
		case !workflow.HasMember("", m.Name):
			c.leave(m, "it has no meaning in a workflow")
		case m.Name == "output" || m.Name == "idempotency_key":
			if m.Value.Kind != workflow.NullValue {
				out.set(m.Name, c.template(m.Value))
			}
		case m.Name == "concurrency" && m.Value.Kind == workflow.ObjectValue:
			out.set(m.Name, c.concurrency(m.Value))
		default:
			out.set(m.Name, m.Value)
		}
	}
	for _, m := range doc.Get("steps").Members {
		if slices.ContainsFunc(c.outline.Unreached, func(s *outline.Step) bool { return s.ID == m.Name }) {
			c.leave(m, "no path comes to the step, it never ran")
		}
	}
	return out.value
}

// concurrency writes the member of that name: its key is a template.
func (c *converter) concurrency(v *workflow.Value) *workflow.Value {
	out := c.object(v)
	for _, m := range v.Members {
		if m.Name == "key" {
			m.Value = c.template(m.Value)
		}
		out.set(m.Name, m.Value)
	}
	return out.value
}

func (c *converter) listSteps(b *outline.Block) *workflow.Value {
	out := list()
	if b == nil {
		return out
	}
	for _, s := range b.Steps {
		if s.Again {
			c.refuse(s.Source, "the step %q is run from two places: in list form a step stands in one", s.ID)
			continue
		}
		if s.Jumped {
			c.refuse(s.Source, "only a goto leads to the step %q: in list form a goto leads to a later step of the list, which runs anyway", s.ID)
			continue
		}
		out.Items = append(out.Items, c.listStep(s))
	}
	return out
}

// listStep writes one step of the graph form.
func (c *converter) listStep(s *outline.Step) *workflow.Value {
	out := c.object(s.Source)
	out.set("id", c.text(s.ID, s.Source))
	if s.Source.Given("condition") != nil || s.Source.Given("loop_config").Given("max_iterations") != nil {
		if own := s.Source.Given("output"); own != nil {
			c.refuse(own, "the list form cannot shape the output of this step once more: give it to a step of its own")
		}
	}
	for _, m := range s.Source.Members {
		c.member(out, s, m)
	}
	if (s.Kind == workflow.KindParallel || s.Kind == "fork_join") && s.Source.Given("losers") == nil {
		out.set("losers", c.text("wait", s.Source)) // the default of the list form is cancel
	}
	return out.value
}

// member writes one member of a step.
func (c *converter) member(out object, s *outline.Step, m workflow.ValueMember) {
	// Only these may be null; any other member that is null is left out.
	valued := m.Name == string(s.Kind) && slices.Contains([]workflow.Kind{workflow.KindSet, workflow.KindFinish, workflow.KindValidate}, s.Kind)
	switch {
	case m.Value.Kind == workflow.NullValue && !valued, slices.Contains([]string{"id", "type", "next_step"}, m.Name):
	case c.composite(out, s, m):
	case !workflow.HasMember(s.Kind, m.Name):
		c.leave(m, fmt.Sprintf("it has no meaning in a step of kind %s", s.Kind))
	case m.Name == "agent_name":
		out.set("agent", m.Value)
	case m.Name == "input_mapping":
		if len(m.Value.Members) > 0 {
			out.set("input", c.template(m.Value))
		}
	case isList(m.Name):
		out.set(m.Name, m.Value) // it follows the rules of the list form already
	case m.Name == "switch":
		out.set(m.Name, c.each(m.Value, rewrite{cel: []string{"when"}}))
	case m.Name == "on_error":
		out.set(m.Name, c.each(m.Value, rewrite{cel: []string{"if"}, templates: []string{"output"}}))
	case m.Name == "repeat":
		out.set(m.Name, c.each(m.Value, rewrite{cel: []string{"until"}}))
	case m.Name == "approval":
		out.set(m.Name, c.each(m.Value, rewrite{templates: []string{"title", "to", "escalate"}}))
	case m.Name == "if" || m.Name == "match":
		out.set(m.Name, c.cel(m.Value))
	default:
		out.set(m.Name, c.template(m.Value))
	}
}

// rewrite names the members of an object that are expressions; the others are
// copied, lists of steps among them.
type rewrite struct{ cel, templates []string }

// each copies an object, or a list of objects, with its expressions as the list
// form reads them.
func (c *converter) each(v *workflow.Value, r rewrite) *workflow.Value {
	out := &workflow.Value{Kind: v.Kind, Text: v.Text}
	c.from[out] = v
	for _, item := range v.Items {
		out.Items = append(out.Items, c.each(item, r))
	}
	for _, m := range v.Members {
		switch {
		case slices.Contains(r.cel, m.Name):
			m.Value = c.cel(m.Value)
		case slices.Contains(r.templates, m.Name):
			m.Value = c.template(m.Value)
		}
		out.Members = append(out.Members, m)
	}
	return out
}

// isList says whether a member holds steps, or what no expression is read of.
func isList(name string) bool {
	return slices.Contains([]string{
		"steps", "parallel", "then", "else", "fork", "compensate", "schema", "labels", "name", "description", "retry", "allow",
	}, name)
}

// composite writes a member that names steps by their ids.
func (c *converter) composite(out object, s *outline.Step, m workflow.ValueMember) bool {
	switch {
	case m.Name == "parallel_steps" && s.Kind == workflow.KindParallel:
		out.set("parallel", c.listSteps(block(s, "")))
	case m.Name == "max_parallelism" && s.Kind == workflow.KindParallel:
		out.set("max_parallel", m.Value)
	case m.Name == "condition" && s.Kind == workflow.KindConditional:
		c.condition(out, s, m.Value)
	case (m.Name == "if_true_step" || m.Name == "if_false_step") && s.Kind == workflow.KindConditional:
		name := map[bool]string{true: "then", false: "else"}[m.Name == "if_true_step"]
		if b := block(s, name); b != nil {
			out.set(name, c.listSteps(b))
		}
	case m.Name == "loop_config" && s.Kind == "loop":
		c.loop(out, s, m.Value)
	case m.Name == "fork_join_config" && s.Kind == "fork_join":
		c.fork(out, s, m.Value)
	default:
		return false
	}
	return true
}

// condition writes what a conditional decides by, and shapes its output as the
// graph form has it.
func (c *converter) condition(out object, s *outline.Step, v *workflow.Value) {
	if own := s.Source.Given("if"); own != nil {
		c.refuse(own, "if beside condition has no effect: leave it out")
	}
	then, otherwise := block(s, "then"), block(s, "else")
	if then == nil && otherwise == nil {
		c.refuse(v, "both branches are empty: the list form needs a step in one of them")
		return
	}
	cond := c.cel(v)
	if text := v.Given("expression"); text != nil {
		cel, err := c.old.OldConditionCEL(text.Text)
		if err != nil {
			c.refuse(text, "the condition has no CEL: %v", err)
		}
		cond = c.text(cel, text)
	}
	out.set("if", cond)
	// A step that was not chosen is PENDING.
	holds, id := "", func(b *outline.Block) string {
		if b == nil || len(b.Steps) == 0 {
			return "dyn(null)"
		}
		return "dyn(" + strconv.Quote(b.Steps[0].ID) + ")"
	}
	if then != nil && len(then.Steps) > 0 {
		holds = "steps[" + strconv.Quote(then.Steps[0].ID) + `].status != "PENDING"`
	} else if len(otherwise.Steps) > 0 {
		holds = "steps[" + strconv.Quote(otherwise.Steps[0].ID) + `].status == "PENDING"`
	}
	shape := c.object(v)
	shape.set("condition_result", c.text("${"+holds+"}", v))
	shape.set("branch_taken", c.text("${"+holds+` ? "then" : "else"}`, v))
	shape.set("branch_step_id", c.text("${"+holds+" ? "+id(then)+" : "+id(otherwise)+"}", v))
	shape.set("branch_output", c.text("${result}", v))
	out.set("output", shape.value)
}

func (c *converter) loop(out object, s *outline.Step, v *workflow.Value) {
	if collection := v.Given("collection"); collection != nil {
		out.set("for_each", c.template(collection))
	}
	if v.Given("execution_mode").String() == "parallel" {
		most := v.Given("max_parallelism")
		if most == nil {
			most = number("1000") // no bound but that of a list
		}
		out.set("max_parallel", most)
	}
	if most := v.Given("max_iterations"); most != nil {
		out.set("max_iterations", most)
		// The graph form does not say how many it left out.
		out.set("output", c.text(`${{"iterations": result.iterations, "total_count": result.total_count, ?"failed_count": result.?failed_count}}`, v))
	}
	if word := v.Given("on_error"); word != nil && word.String() != "stop" {
		out.set("item_errors", word)
	}
	out.set("steps", c.listSteps(block(s, "")))
}

func (c *converter) fork(out object, s *outline.Step, v *workflow.Value) {
	branches := c.object(v)
	for _, m := range v.Given("branches").Members {
		steps := c.listSteps(block(s, m.Name))
		if t := m.Value.Given("timeout_seconds"); t != nil {
			branch := c.object(m.Value)
			branch.set("steps", steps)
			branch.set("timeout", c.seconds(t))
			steps = branch.value
		}
		branches.set(m.Name, steps)
	}
	out.set("fork", branches.value)
	switch policy := v.Given("join_policy"); policy.String() {
	case "", "all":
	case "n_of_m":
		if n := v.Given("n_required"); n != nil {
			out.set("join", n)
		} else {
			c.refuse(policy, "n_of_m needs n_required")
		}
	default:
		out.set("join", policy)
	}
	if t := v.Given("branch_timeout_seconds"); t != nil {
		out.set("branch_timeout", c.seconds(t))
	}
}

// seconds writes a number of seconds as a duration, which has whole milliseconds.
func (c *converter) seconds(v *workflow.Value) *workflow.Value {
	if _, err := workflow.ParseDuration(v.Text + "s"); err == nil {
		return c.text(v.Text+"s", v)
	}
	f, err := strconv.ParseFloat(v.Text, 64)
	if err != nil {
		return v
	}
	d := time.Duration(f * float64(time.Second)).Round(time.Millisecond)
	return c.text(strconv.FormatInt(d.Milliseconds(), 10)+"ms", v)
}

// cel copies a condition: CEL as it is, what stands in ${…} as the list form
// reads it.
func (c *converter) cel(v *workflow.Value) *workflow.Value {
	if !strings.HasPrefix(strings.TrimSpace(v.String()), "${") {
		return v
	}
	return c.template(v)
}

// template copies a value with its texts as the list form reads them.
func (c *converter) template(v *workflow.Value) *workflow.Value {
	out := &workflow.Value{Kind: v.Kind, Text: v.Text}
	c.from[out] = v
	if v.Kind == workflow.StringValue {
		out.Text = c.old.ListForm(v.Text)
	}
	for _, m := range v.Members {
		out.Members = append(out.Members, workflow.ValueMember{Name: m.Name, Value: c.template(m.Value)})
	}
	for _, item := range v.Items {
		out.Items = append(out.Items, c.template(item))
	}
	return out
}
