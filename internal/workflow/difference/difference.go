// Package difference compares two versions of a workflow, step by step and member
// by member.
package difference

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/outline"
)

// Sort is what happened to a step or a member.
type Sort string

// The sorts of changes.
const (
	Added   Sort = "added"
	Removed Sort = "removed"
	Moved   Sort = "moved"
	Changed Sort = "changed"
)

// Change is one difference.
type Change struct {
	Change Sort `json:"change"`
	// Step is its id, "" for the workflow itself. Member is the way to what has
	// changed in it, input.text; "" for the whole step.
	Step   string `json:"step,omitempty"`
	Member string `json:"member,omitempty"`
	// Old and New are the values. Of a step that was added or removed they say what
	// it does, of one that was moved where it stands.
	Old json.RawMessage `json:"old,omitempty"`
	New json.RawMessage `json:"new,omitempty"`
}

// Lost is a step that a rerun with the new version could not copy.
type Lost struct {
	Step   string `json:"step"`
	Reason string `json:"reason"`
}

// Difference is what two versions differ in.
type Difference struct {
	Same    bool     `json:"same"`
	Changes []Change `json:"changes"`
	// Rerun says whether a run of the old version can be rerun with the new one,
	// whatever it has completed: every step is there, with its kind (rule C6).
	Rerun bool   `json:"rerun"`
	Lost  []Lost `json:"lost"`
}

// Of compares two documents.
func Of(before, after *workflow.Value) Difference {
	c := &comparison{
		old: steps(outline.Of(before)), new: steps(outline.Of(after)),
		d: Difference{Changes: []Change{}, Lost: []Lost{}},
	}
	c.members("", top(before), top(after))
	c.steps()
	for _, s := range c.old.order {
		switch now := c.new.byID[s.ID]; {
		case now == nil:
			c.d.Lost = append(c.d.Lost, Lost{s.ID, "it is not there any more"})
		case now.Kind != s.Kind:
			c.d.Lost = append(c.d.Lost, Lost{s.ID, fmt.Sprintf("it was %s and is %s", s.Kind, now.Kind)})
		}
	}
	c.d.Same, c.d.Rerun = len(c.d.Changes) == 0, len(c.d.Lost) == 0
	return c.d
}

// version is the steps of a document.
type version struct {
	order []*outline.Step
	byID  map[string]*outline.Step
}

func steps(w *outline.Workflow) version {
	v := version{byID: map[string]*outline.Step{}}
	w.Each(func(s *outline.Step) {
		if v.byID[s.ID] == nil && !s.Again {
			v.byID[s.ID] = s
			v.order = append(v.order, s)
		}
	})
	return v
}

type comparison struct {
	old, new version
	d        Difference
}

func (c *comparison) add(x Change) { c.d.Changes = append(c.d.Changes, x) }

// steps compares the steps: those that are there now in their order, then those
// that are not there any more.
func (c *comparison) steps() {
	moved := c.moved()
	for _, s := range c.new.order {
		was := c.old.byID[s.ID]
		if was == nil {
			c.add(Change{Change: Added, Step: s.ID, New: said(s)})
			continue
		}
		if was.Kind != s.Kind {
			c.add(Change{Change: Changed, Step: s.ID, Member: "type", Old: text(string(was.Kind)), New: text(string(s.Kind))})
		}
		if from, to := where(was), where(s); from != to || moved[s.ID] {
			if from == to {
				from, to = behind(was), behind(s)
			}
			c.add(Change{Change: Moved, Step: s.ID, Old: text(from), New: text(to)})
		}
		c.members(s.ID, own(was), own(s))
	}
	for _, s := range c.old.order {
		if c.new.byID[s.ID] == nil {
			c.add(Change{Change: Removed, Step: s.ID, Old: said(s)})
		}
	}
}

// where names the list that a step stands in.
func where(s *outline.Step) string {
	if s.Block.Parent == nil {
		if s.Block.Name == "" {
			return "the steps of the workflow"
		}
		return s.Block.Name
	}
	if s.Block.Name == "" {
		return "in " + s.Block.Parent.ID
	}
	name := s.Block.Name
	if s.Block.Parent.Kind == workflow.KindSwitch {
		name = "case " + name
	}
	return "in " + s.Block.Parent.ID + ", " + name
}

// behind names the step before one in its list.
func behind(s *outline.Step) string {
	if s.Index == 0 || s.Index > len(s.Block.Steps) {
		return "first"
	}
	return "after " + s.Block.Steps[s.Index-1].ID
}

// moved finds the steps that stand in another order than the others of their
// list.
func (c *comparison) moved() map[string]bool {
	all := map[string]bool{}
	done := map[*outline.Block]bool{}
	for _, s := range c.new.order {
		if done[s.Block] {
			continue
		}
		done[s.Block] = true
		lists := map[*outline.Block][]*outline.Step{}
		var order []*outline.Block
		for _, x := range s.Block.Steps {
			if was := c.old.byID[x.ID]; was != nil && where(was) == where(x) {
				if lists[was.Block] == nil {
					order = append(order, was.Block)
				}
				lists[was.Block] = append(lists[was.Block], was)
			}
		}
		for _, b := range order {
			for _, x := range unordered(lists[b]) {
				all[x.ID] = true
			}
		}
	}
	return all
}

// unordered gives the fewest steps without which the others stand in the order of
// their Index.
func unordered(steps []*outline.Step) (out []*outline.Step) {
	longest, before := make([]int, len(steps)), make([]int, len(steps))
	best := -1
	for i := range steps {
		longest[i], before[i] = 1, -1
		for j := range i {
			if steps[j].Index < steps[i].Index && longest[j]+1 > longest[i] {
				longest[i], before[i] = longest[j]+1, j
			}
		}
		if best < 0 || longest[i] > longest[best] {
			best = i
		}
	}
	kept := map[int]bool{}
	for i := best; i >= 0; i = before[i] {
		kept[i] = true
	}
	for i, s := range steps {
		if !kept[i] {
			out = append(out, s)
		}
	}
	return out
}

// said is what a step does, in a few words.
func said(s *outline.Step) json.RawMessage {
	words := string(s.Kind)
	if s.Does != "" {
		words += " " + s.Does
	}
	return text(words)
}

func text(s string) json.RawMessage {
	return (&workflow.Value{Kind: workflow.StringValue, Text: s}).JSON()
}

// members compares the members of two objects.
func (c *comparison) members(step string, before, after *workflow.Value) {
	c.values(Change{Step: step}, before, after)
}

// values compares two values; at says where. Objects are compared member by
// member, lists as a whole.
func (c *comparison) values(at Change, before, after *workflow.Value) {
	switch {
	case before == nil:
		at.Change, at.New = Added, after.JSON()
	case after == nil:
		at.Change, at.Old = Removed, before.JSON()
	case before.Kind == workflow.ObjectValue && after.Kind == workflow.ObjectValue:
		was, is, done := named(before), named(after), map[string]bool{}
		for _, m := range slices.Concat(before.Members, after.Members) {
			if done[m.Name] {
				continue
			}
			done[m.Name] = true
			deeper := at
			if deeper.Member != "" {
				deeper.Member += "."
			}
			deeper.Member += m.Name
			c.values(deeper, was[m.Name], is[m.Name])
		}
		return
	case equal(before, after):
		return
	default:
		at.Change, at.Old, at.New = Changed, before.JSON(), after.JSON()
	}
	c.add(at)
}

// named gives the members of an object by their names; of two with the same name the
// first counts, as for Get.
func named(v *workflow.Value) map[string]*workflow.Value {
	byName := make(map[string]*workflow.Value, len(v.Members))
	for _, m := range v.Members {
		if byName[m.Name] == nil {
			byName[m.Name] = m.Value
		}
	}
	return byName
}

// equal compares values: numbers by value, objects without regard to order.
func equal(a, b *workflow.Value) bool {
	if a.Kind != b.Kind || len(a.Items) != len(b.Items) || len(a.Members) != len(b.Members) {
		return false
	}
	for i := range a.Items {
		if !equal(a.Items[i], b.Items[i]) {
			return false
		}
	}
	others := named(b)
	for _, m := range a.Members {
		if other := others[m.Name]; other == nil || !equal(m.Value, other) {
			return false
		}
	}
	if a.Kind == workflow.NumberValue && a.Text != b.Text {
		x, errX := strconv.ParseFloat(a.Text, 64)
		y, errY := strconv.ParseFloat(b.Text, 64)
		_, notWhole := strconv.ParseInt(a.Text, 10, 64)
		_, notWholeToo := strconv.ParseInt(b.Text, 10, 64)
		return errX == nil && errY == nil && x == y && (notWhole != nil || notWholeToo != nil)
	}
	return a.Text == b.Text
}
