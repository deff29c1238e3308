package drawing

import (
	"slices"
	"strings"

	"github.com/parley-project/parley/internal/workflow/outline"
)

// text draws a tree of lines. Steps are in the order of their lists; what does
// not follow the step above it says what it follows.
func text(w *outline.Workflow) string {
	b := &strings.Builder{}
	head := w.Name
	if w.Version != "" {
		head += ", version " + w.Version
	}
	b.WriteString(clean(head) + "\n")
	root := branch{}
	for _, t := range w.Triggers {
		root.add("started by " + t)
	}
	root.steps(w.Body)
	if w.Finally != nil {
		f := root.add("finally")
		f.steps(w.Finally)
	}
	if len(w.Unreached) > 0 {
		f := root.add("never reached")
		for _, s := range w.Unreached {
			f.step(s)
		}
	}
	root.write(b, "")
	return b.String()
}

// branch is a line and those below it.
type branch struct {
	line  string
	below []*branch
}

func (b *branch) add(line string) *branch {
	next := &branch{line: line}
	b.below = append(b.below, next)
	return next
}

func (b *branch) steps(list *outline.Block) {
	for _, s := range list.Steps {
		b.step(s)
	}
}

func (b *branch) step(s *outline.Step) {
	if s.Again {
		b.add(s.ID + "  (again)")
		return
	}
	line := s.ID + "  " + strings.TrimSpace(kindName(s)+s.Does)
	if s.Does == "" {
		line = s.ID + "  " + string(s.Kind)
	}
	if s.Name != "" && s.Name != s.ID {
		line += "  “" + s.Name + "”"
	}
	if notes := slices.Concat(after(s), s.Notes, jumps(s)); len(notes) > 0 {
		line += "  [" + strings.Join(notes, "; ") + "]"
	}
	at := b.add(line)
	for _, list := range s.Blocks {
		if list.Role == outline.Body {
			at.steps(list)
			continue
		}
		at.add(list.Title + ":").steps(list)
	}
}

// after says what a step follows, unless it is the step before it, or none where
// all start together.
func after(s *outline.Step) []string {
	if s.Block == nil {
		return nil
	}
	if len(s.Needs) == 0 {
		if s.Index == 0 || s.Block.Beside {
			return nil
		}
		return []string{"at once"}
	}
	if !s.Block.Beside && slices.Equal(s.Needs, []int{s.Index - 1}) {
		return nil
	}
	var ids []string
	for _, n := range s.Needs {
		ids = append(ids, s.Block.Steps[n].ID)
	}
	return []string{"after " + strings.Join(ids, ", ")}
}

func jumps(s *outline.Step) (all []string) {
	for _, j := range s.Jumps {
		all = append(all, j.When+" go to "+j.To)
	}
	return all
}

func (b *branch) write(to *strings.Builder, indent string) {
	for i, next := range b.below {
		fork, deeper := "├─ ", "│  "
		if i == len(b.below)-1 {
			fork, deeper = "└─ ", "   "
		}
		to.WriteString(indent + fork + clean(next.line) + "\n")
		next.write(to, indent+deeper)
	}
}

// clean keeps what a document says from steering the terminal.
func clean(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\uFFFD'
		}
		return r
	}, line)
}
