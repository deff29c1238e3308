package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

const (
	// problemsMax bounds what one document reports; one more counts the rest.
	problemsMax = 100
	// problemsKept bounds what is kept to choose from.
	problemsKept = 2000
)

// problemsFail reports whether one of them is an error.
func problemsFail(problems []parley.Problem) bool {
	return slices.ContainsFunc(problems, func(p parley.Problem) bool { return p.Severity == parley.SeverityError })
}

// problemsSort gives the findings by position, at most problemsMax: errors
// before warnings if not all find room. dropped counts those that were not even
// kept.
func problemsSort(problems []parley.Problem, dropped int) parley.Problems {
	byPlace := func(a, b parley.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	}
	slices.SortStableFunc(problems, byPlace)
	if len(problems) <= problemsMax {
		return problems
	}
	slices.SortStableFunc(problems, func(a, b parley.Problem) int {
		return cmp.Compare(problemRank(a.Severity), problemRank(b.Severity))
	})
	rest := problems[problemsMax:]
	kept := slices.Clone(problems[:problemsMax])
	slices.SortStableFunc(kept, byPlace)
	return append(kept, parley.Problem{
		File: rest[0].File, Line: rest[0].Line, Col: rest[0].Col, Severity: rest[0].Severity, Code: problemLimit,
		Text: fmt.Sprintf("there are %d more findings", len(rest)+dropped),
	})
}

func problemRank(s parley.Severity) int {
	if s == parley.SeverityError {
		return 0
	}
	return 1
}

// visible says which steps an expression may refer to (rule E5): those that
// have surely ended before it, in its own and enclosing lists, and what stands
// inside of them, but for loops.
func (p *parser) visible(e parseExpr) func(id string) (bool, string) {
	of := e.of
	return func(id string) (bool, string) {
		target := p.steps[id]
		switch {
		case target == nil:
			return false, fmt.Sprintf("there is no step %q", id)
		case !checkReached(target.Step):
			return false, fmt.Sprintf("the step %q is never reached", id)
		case of != nil && !checkReached(of.Step):
			return true, "" // that this step is never reached is said once
		case cleanupOf(target.Step) != nil && (of == nil || !standsIn(of.Step, cleanupOf(target.Step))):
			return false, fmt.Sprintf("the step %q belongs to compensate or finally, which comes after this", target.ID)
		case of == nil:
			if loop := loopBetween(&Step{}, target.Step); loop != nil {
				return false, inLoop(target.Step, loop)
			}
			return true, ""
		case target == of:
			return false, "a step cannot refer to itself"
		}
		if loop := loopBetween(of.Step, target.Step); loop != nil && (!e.body || loop != of.Step) {
			return false, inLoop(target.Step, loop)
		}
		return p.ended(of.Step, target.Step, e.after)
	}
}

func inLoop(target, loop *Step) string {
	return fmt.Sprintf("the step %q stands in the loop %q: use steps.%s.output", target.ID, loop.ID, loop.ID)
}

// loopBetween gives the outermost loop that holds target and not s; nil if there is
// none.
func loopBetween(s, target *Step) (loop *Step) {
	inside := func(owner *Step) bool {
		for b := s.Block; b != nil && b.Parent != nil; b = b.Parent.Block {
			if b == owner.Body {
				return true
			}
		}
		return false
	}
	for b := target.Block; b != nil && b.Parent != nil; b = b.Parent.Block {
		if b.Parent.Loop != nil && b == b.Parent.Body && !inside(b.Parent) {
			loop = b.Parent
		}
	}
	return loop
}

// checkReached says whether a step stands in the body of the workflow, at any
// depth. In graph form it need not.
func checkReached(s *Step) bool {
	for s.Block != nil {
		if s.Block.Parent == nil {
			return true
		}
		s = s.Block.Parent
	}
	return false
}

// ended says whether target has surely ended when an expression of s is
// evaluated, and if not, why.
func (p *parser) ended(s, target *Step, after bool) (bool, string) {
	for t := target; t != nil; t = t.Block.Parent {
		for u := s; u != nil; u = u.Block.Parent {
			switch {
			case t == u && t != target && u != s && t.Block == u.Block && !undoes(s, t):
				return false, fmt.Sprintf("the step %q stands in another branch of %q", target.ID, t.ID)
			case t.Block != u.Block:
				continue
			case t == u && undoes(s, t):
				return true, ""
			case t == u && t == target:
				return false, fmt.Sprintf("the step %q contains this one and has not ended", target.ID)
			case t == u && after:
				return true, ""
			case t == u:
				return false, fmt.Sprintf("the step %q stands inside this one and has not run yet", target.ID)
			case p.before(t, u):
				return true, ""
			case t.Index > u.Index && !p.woven[t.Block] && !p.beside[t.Block]:
				return false, fmt.Sprintf("the step %q comes later", target.ID)
			default:
				return false, fmt.Sprintf("the step %q need not have ended: name it in needs", target.ID)
			}
		}
	}
	if top(s).Role == roleFinally && top(target).Role == roleBody {
		return true, ""
	}
	return false, fmt.Sprintf("the step %q cannot be seen from here", target.ID)
}

// cleanupOf is the outermost list of a compensation or of finally that a step stands
// in; nil if there is none.
func cleanupOf(s *Step) (outer *Block) {
	for b := s.Block; ; b = b.Parent.Block {
		if b.Role == roleCompensate || b.Role == roleFinally {
			outer = b
		}
		if b.Parent == nil {
			return outer
		}
	}
}

// standsIn says whether a step stands in a list, at any depth.
func standsIn(s *Step, list *Block) bool {
	for b := s.Block; b != nil; b = b.Parent.Block {
		if b == list {
			return true
		}
		if b.Parent == nil {
			break
		}
	}
	return false
}

// undoes says whether s stands in what compensates t, which has ended then.
func undoes(s, t *Step) bool {
	for b := s.Block; b != nil && b.Parent != nil; b = b.Parent.Block {
		if b.Parent == t {
			return b.Role == roleCompensate
		}
	}
	return false
}

// top is the outermost list that a step stands in.
func top(s *Step) *Block {
	b := s.Block
	for b.Parent != nil {
		b = b.Parent.Block
	}
	return b
}

// before says whether t must have ended before its sibling u starts.
func (p *parser) before(t, u *Step) bool {
	if !p.woven[t.Block] {
		return t.Index < u.Index && !p.beside[t.Block]
	}
	seen := map[int]bool{}
	open := slices.Clone(u.Needs)
	for ; len(open) > 0; open = open[1:] {
		if open[0] == t.Index {
			return true
		}
		if !seen[open[0]] {
			seen[open[0]] = true
			open = append(open, t.Block.Steps[open[0]].Needs...)
		}
	}
	return false
}

// checkNearest gives the name that is most like the given one, or "" if none
// is like it.
func checkNearest(name string, names []string) string {
	best, least := "", 1+len(name)/3
	for _, candidate := range names {
		if d := checkDistance(strings.ToLower(name), candidate); d < least || d == least && best == "" {
			best, least = candidate, d
		}
	}
	return best
}

// checkDistance counts the characters to insert, delete, replace or exchange
// with their neighbour to get from a to b. Long names are never near.
func checkDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// didYouMean is the suggestion for a wrong name; "" if nothing is like it.
func didYouMean(name string, names []string) string {
	if near := checkNearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
