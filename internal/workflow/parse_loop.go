package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// loop is what a loop is told, made by the first member that is read.
func (s *parseStep) loop() *Loop {
	if s.Loop == nil {
		s.Loop = &Loop{MaxParallel: 1, Errors: ItemErrorsStop, Truncated: true}
	}
	return s.Loop
}

// forEach reads the list that a loop goes over.
func (p *parser) forEach(s *parseStep, n *node) {
	loop := s.loop()
	if n.kind != nodeList && !n.isLone() {
		p.report(n, parley.Problem{Code: problemType, Text: "for_each is one ${…} that gives a list, or a list", Suggestion: "such as ${workflow.input.items}"})
		return
	}
	p.template(n, parseExpr{of: s, at: expr.At{Wanted: expr.List}, set: func(t *expr.Template) { loop.Over = t }})
}

// forEachOnly reads a member of a loop over a list.
func (p *parser) forEachOnly(s *parseStep, n *node) {
	loop := s.loop()
	if s.node.get("for_each") == nil {
		p.report(n, parley.Problem{Code: problemUnknown, Text: fmt.Sprintf("%s goes with for_each", n.key)})
		return
	}
	switch n.key {
	case "max_iterations":
		loop.MaxIterations, _ = p.whole(n, 1, maxWidth)
	case "tolerate":
		loop.Tolerate = p.tolerance(n)
	case "item_errors":
		if w, ok := p.word(n, string(ItemErrorsStop), string(ItemErrorsContinue), string(ItemErrorsCollect)); ok {
			loop.Errors = ItemErrors(w)
		}
	case "enough":
		loop.Enough, _ = p.whole(n, 1, maxWidth)
	}
}

// tolerance reads a count, or a percentage (rule D4).
func (p *parser) tolerance(n *node) *Tolerance {
	if n.kind == nodeNumber {
		count, _ := p.whole(n, 0, maxWidth)
		return &Tolerance{Count: count}
	}
	digits, percent := strings.CutSuffix(n.text, "%")
	value, err := strconv.ParseFloat(digits, 64)
	if n.kind != nodeString || !percent || err != nil || !(value >= 0 && value <= 100) || !parseChars(digits, ".") {
		p.report(n, parley.Problem{Code: problemValue, Text: "tolerate is how many iterations may fail: a whole number, or a percentage", Suggestion: `write 3 or "10%"`})
		return nil
	}
	return &Tolerance{Percent: value}
}

// repeat reads {max, until, on_max}.
func (p *parser) repeat(s *parseStep, n *node) {
	loop := s.loop()
	if n.kind != nodeObject {
		p.errorf(n, problemType, "repeat is an object {max, until, on_max}, this is %s", n.kind)
		return
	}
	p.object(n, s.list, []parseField{
		{"max", func(m *node) { loop.Max, _ = p.whole(m, 1, maxWidth) }},
		{"until", func(u *node) {
			p.condition(u, parseExpr{of: s, after: true, body: true, cond: func(c *expr.Condition) { loop.Until = c }})
		}},
		{"on_max", func(m *node) {
			if w, ok := p.word(m, "complete", "fail"); ok {
				loop.FailAtMax = w == "fail"
			}
		}},
	})
	if n.get("max") == nil {
		p.missing(n, "max", "repeat needs max, how often the steps run at most")
	}
}

// completeLoop checks that it is said what is run how often.
func (p *parser) completeLoop(s *parseStep) {
	loop := s.loop()
	each, repeat := s.node.get("for_each"), s.node.get("repeat")
	switch {
	case each == nil && repeat == nil:
		p.missing(s.node, "for_each", "a loop needs for_each or repeat")
	case each != nil && repeat != nil:
		p.errorf(repeat, problemValue, "a loop has for_each or repeat, not both")
	}
	if most := s.node.get("max_parallel"); most != nil && each == nil && repeat != nil {
		p.errorf(most, problemUnknown, "max_parallel goes with for_each: the bodies of a repeat run one after another")
	} else if most := p.maxParallel(s); most > 0 {
		loop.MaxParallel = most
	}
	if s.node.get("steps") == nil {
		p.missing(s.node, "steps", "a loop needs steps, what is run for each item")
	}
	if loop.Enough > 0 && loop.Errors == ItemErrorsCollect {
		p.errorf(s.node.get("enough"), problemValue, "enough ends the loop early, item_errors: collect runs all of it")
	}
}

// completeFork checks that there are branches and reads how they are joined.
func (p *parser) completeFork(s *parseStep) {
	if s.node.get("fork") == nil {
		p.missing(s.node, "fork", "a fork_join needs fork, its branches by name")
	}
}

// fork reads {name: [steps] or {steps, timeout}}.
func (p *parser) fork(s *parseStep, n *node, depth int) {
	s.Fork = &Fork{MaxParallel: p.maxParallel(s), Wait: !s.list}
	if !p.branches(n, "fork is an object of branches, {name: [steps], …}") {
		return
	}
	var timeout time.Duration
	if t := s.node.get("branch_timeout"); t != nil {
		timeout, _ = p.duration(t, time.Millisecond)
	}
	for _, m := range n.members {
		b := &Block{Parent: s.Step, Name: m.name, Part: len(s.Fork.Branches), Timeout: timeout}
		s.Fork.Branches = append(s.Fork.Branches, b)
		if m.value.kind != nodeObject {
			p.list(m.value, b, depth+1)
			continue
		}
		p.object(m.value, true, []parseField{
			{"steps", func(list *node) { p.list(list, b, depth+1) }},
			{"timeout", func(t *node) { parseInto(&b.Timeout)(p.duration(t, time.Millisecond)) }},
		})
		if m.value.get("steps") == nil {
			p.missing(m.value, "steps", "a branch needs steps")
		}
	}
	if w := s.node.get("losers"); w != nil {
		if word, ok := p.word(w, "cancel", "wait"); ok {
			s.Fork.Wait = word == "wait"
		}
	}
	s.Fork.Need = len(s.Fork.Branches)
	if j := s.node.get("join"); j != nil {
		p.join(s, j)
	}
}

// branches checks how many there are and how they are called.
func (p *parser) branches(n *node, text string) bool {
	switch {
	case n.kind != nodeObject:
		p.errorf(n, problemType, "%s, this is %s", text, n.kind)
		return false
	case len(n.members) < 2:
		p.errorf(n, problemValue, "a fork_join needs at least two branches")
		return false
	case len(n.members) > p.o.Limits.Branches:
		p.errorf(n, problemLimit, "there are more branches than the limit `branches` of %d", p.o.Limits.Branches)
		return false
	}
	for _, m := range n.members {
		if length := utf8.RuneCountInString(m.name); length < 1 || length > 255 {
			p.reportName(n, m, parley.Problem{Code: problemID, Text: "the name of a branch has 1 to 255 characters"})
			return false
		}
	}
	return true
}

// join reads all, any, majority or a number.
func (p *parser) join(s *parseStep, n *node) {
	all := len(s.Fork.Branches)
	if n.kind == nodeNumber {
		s.Fork.Need, _ = p.whole(n, 1, all)
		return
	}
	if w, ok := p.word(n, "all", "any", "majority"); ok {
		s.Fork.Need = map[string]int{"all": all, "any": 1, "majority": all/2 + 1}[w]
	}
}

// graphFork reads fork_join_config (formats.md). Its branches all run to their end
// (rule S4).
func (p *parser) graphFork(s *parseStep) (whole bool) {
	config := s.given("fork_join_config")
	if config.kind != nodeObject {
		p.errorf(config, problemType, "fork_join_config is an object, this is %s", config.kind)
		return false
	}
	s.Fork = &Fork{Wait: true}
	list := given(config, "branches")
	if list == nil {
		p.missing(config, "branches", "a fork_join needs branches")
		return false
	}
	if !p.branches(list, "branches is an object, {name: {steps: [ids]}, …}") {
		return false
	}
	timeout := p.seconds(config, "branch_timeout_seconds")
	whole = true
	for _, m := range list.members {
		b := &Block{Parent: s.Step, Name: m.name, Part: len(s.Fork.Branches), Timeout: timeout}
		s.Fork.Branches = append(s.Fork.Branches, b)
		if own := p.seconds(m.value, "timeout_seconds"); own > 0 {
			b.Timeout = own
		}
		whole = p.graphList(s, b, m.value, "steps") && whole
	}
	p.graphJoin(s, config)
	p.graphExtra(config, "branches", "join_policy", "n_required", "branch_timeout_seconds")
	return whole
}

// graphJoin reads join_policy and n_required.
func (p *parser) graphJoin(s *parseStep, config *node) {
	all := len(s.Fork.Branches)
	s.Fork.Need = all
	policy := given(config, "join_policy")
	if policy == nil {
		return
	}
	switch w, _ := p.word(policy, "all", "any", "majority", "n_of_m"); w {
	case "any":
		s.Fork.Need = 1
	case "majority":
		s.Fork.Need = all/2 + 1
	case "n_of_m":
		n := given(config, "n_required")
		if n == nil {
			p.missing(config, "n_required", "join_policy n_of_m needs n_required")
			return
		}
		s.Fork.Need, _ = p.whole(n, 1, all)
	}
}

// seconds reads a number of seconds of the old platform; 0 if there is none.
func (p *parser) seconds(of *node, name string) time.Duration {
	n := given(of, name)
	if n == nil {
		return 0
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if n.kind != nodeNumber || err != nil || f < 0.001 || f > 365*24*3600 { // less would be no limit at all
		p.errorf(n, problemValue, "this must be a number of seconds, at least 0.001 and at most a year")
		return 0
	}
	return time.Duration(f * float64(time.Second)).Round(time.Millisecond)
}

// given is a member that is not null.
func given(of *node, name string) *node {
	if of.kind != nodeObject {
		return nil
	}
	if n := of.get(name); n != nil && n.kind != nodeNull {
		return n
	}
	return nil
}

// graphList puts the steps that a list of ids names into a block, in their order.
func (p *parser) graphList(s *parseStep, b *Block, of *node, name string) (whole bool) {
	list := given(of, name)
	if list == nil || list.kind != nodeList || len(list.items) == 0 || len(list.items) > p.o.Limits.Branches {
		p.missing(of, name, fmt.Sprintf("%s is a list of 1 to %d ids of steps", name, p.o.Limits.Branches))
		return false
	}
	whole = true
	for _, item := range list.items {
		child := p.graphChild(s, item)
		if child == nil || !p.graphPlace(b, child, item) {
			whole = false
			continue
		}
		if child.Index > 0 {
			child.Needs = []int{child.Index - 1}
		}
	}
	return whole
}

// graphLoop reads loop_config (formats.md).
func (p *parser) graphLoop(s *parseStep) (whole bool) {
	config := s.given("loop_config")
	if config.kind != nodeObject {
		p.errorf(config, problemType, "loop_config is an object, this is %s", config.kind)
		return false
	}
	loop := &Loop{MaxParallel: 1, Errors: ItemErrorsStop}
	s.Loop = loop
	if over := given(config, "collection"); over == nil {
		p.missing(config, "collection", "a loop needs the collection that it goes over")
	} else {
		p.template(over, parseExpr{of: s, at: expr.At{Wanted: expr.List}, set: func(t *expr.Template) { loop.Over = t }})
	}
	if mode := given(config, "execution_mode"); mode != nil {
		if w, _ := p.word(mode, "sequential", "parallel"); w == "parallel" {
			loop.MaxParallel = 0
		}
	}
	if most := given(config, "max_parallelism"); most != nil {
		if n, ok := p.whole(most, 1, maxWidth); ok && loop.MaxParallel == 0 {
			loop.MaxParallel = n
		}
	}
	if most := given(config, "max_iterations"); most != nil {
		loop.MaxIterations, _ = p.whole(most, 1, maxWidth)
	}
	if errors := given(config, "on_error"); errors != nil {
		if w, ok := p.word(errors, string(ItemErrorsStop), string(ItemErrorsContinue), string(ItemErrorsCollect)); ok {
			loop.Errors = ItemErrors(w)
		}
	}
	p.graphExtra(config, "collection", "loop_body", "execution_mode", "max_parallelism", "max_iterations", "on_error")
	s.Body = &Block{Parent: s.Step}
	return p.graphList(s, s.Body, config, "loop_body")
}

// graphExtra warns of members that have no meaning (rule D2).
func (p *parser) graphExtra(n *node, known ...string) {
	for _, m := range n.members {
		if !slices.Contains(known, m.name) {
			p.unknown(n, m, false, known)
		}
	}
}
