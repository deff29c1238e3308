package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// The defaults of language.md §1 and §5.
const (
	defaultTimeout    = 30 * 24 * time.Hour
	defaultCleanup    = 10 * time.Minute
	defaultSilence    = 5 * time.Minute
	defaultAttempts   = 3
	defaultDelay      = time.Second
	defaultMultiplier = 2
	defaultMaxDelay   = 30 * time.Second
)

// text reads a string of least to most characters.
func (p *parser) text(n *node, least, most int) (string, bool) {
	if n.kind != nodeString {
		problem := parley.Problem{Code: problemType, Text: fmt.Sprintf("this must be a text, it is %s", n.kind)}
		if n.kind == nodeNumber || n.kind == nodeBool {
			problem.Suggestion = fmt.Sprintf("write %q in quotes", n.text)
		}
		p.report(n, problem)
		return "", false
	}
	switch length := utf8.RuneCountInString(n.text); {
	case length < least:
		p.errorf(n, problemValue, "this must not be empty")
		return "", false
	case length > most:
		p.errorf(n, problemValue, "this has %d characters, at most %d are allowed", length, most)
		return "", false
	}
	return n.text, true
}

// word reads one of a few words.
func (p *parser) word(n *node, words ...string) (string, bool) {
	if n.kind == nodeString {
		for _, w := range words {
			if n.text == w {
				return w, true
			}
		}
	}
	problem := parley.Problem{Code: problemValue, Text: "this must be one of " + strings.Join(words, ", ")}
	if n.kind == nodeString {
		problem.Suggestion = p.suggest(n.text, words)
	} else {
		problem.Code = problemType
	}
	p.report(n, problem)
	return "", false
}

// whole reads a whole number from least to most.
func (p *parser) whole(n *node, least, most int) (int, bool) {
	if n.kind != nodeNumber {
		p.errorf(n, problemType, "this must be a whole number, it is %s", n.kind)
		return 0, false
	}
	i, err := strconv.Atoi(n.text)
	if err != nil || i < least || i > most {
		p.errorf(n, problemValue, "this must be a whole number from %d to %d", least, most)
		return 0, false
	}
	return i, true
}

// factor reads a number of at least 1.
func (p *parser) factor(n *node) (float64, bool) {
	if n.kind != nodeNumber {
		p.errorf(n, problemType, "this must be a number, it is %s", n.kind)
		return 0, false
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || f < 1 {
		p.errorf(n, problemValue, "this must be a number of at least 1")
		return 0, false
	}
	return f, true
}

// duration reads rule D4. A limit of 0 would end at once what it limits, so
// least is 1 ms for limits and 0 for delays.
func (p *parser) duration(n *node, least time.Duration) (time.Duration, bool) {
	if n.kind != nodeString {
		problem := parley.Problem{Code: problemType, Text: fmt.Sprintf("this must be a duration such as 30s, 5m or 1h30m, it is %s", n.kind)}
		if n.kind == nodeNumber {
			problem.Text = "a duration has a unit: ms, s, m, h or d"
			problem.Suggestion = fmt.Sprintf("write %ss for seconds", n.text)
		}
		p.report(n, problem)
		return 0, false
	}
	d, err := ParseDuration(n.text)
	if err != nil {
		p.report(n, parley.Problem{Code: problemValue, Text: err.Error(), Suggestion: "write it as 500ms, 30s, 5m, 1h30m, 2d or PT5M"})
		return 0, false
	}
	if d < least {
		p.report(n, parley.Problem{Code: problemValue, Text: "a time limit cannot be 0", Suggestion: "leave the member out for the default"})
		return 0, false
	}
	return d, true
}

// labels reads at most 32 texts of at most 256 characters.
func (p *parser) labels(n *node) map[string]string {
	if n.kind != nodeObject {
		p.errorf(n, problemType, "labels are an object of texts, this is %s", n.kind)
		return nil
	}
	if len(n.members) > 32 {
		p.errorf(n, problemLimit, "there are %d labels, the limit `labels` is 32", len(n.members))
		return nil
	}
	out := make(map[string]string, len(n.members))
	for _, m := range n.members {
		if length := utf8.RuneCountInString(m.name); length < 1 || length > 255 {
			p.reportName(n, m, parley.Problem{Code: problemValue, Text: "the name of a label has 1 to 255 characters"})
		}
		if v, ok := p.text(m.value, 0, 256); ok {
			out[m.name] = v
		}
	}
	return out
}

// schemaOf compiles a JSON Schema and maps its faults to their places.
func (p *parser) schemaOf(n *node) *Schema {
	if !p.shallow(n) {
		return nil
	}
	s, err := ParseSchema(n.json())
	if err == nil {
		return s
	}
	if fault, ok := err.(*SchemaError); ok { //nolint:errorlint // ParseSchema gives nothing else
		for _, f := range fault.Findings {
			p.errorf(n.at(f.Pointer), problemSchema, "this is not a JSON Schema: %s", f.Text)
		}
		return nil
	}
	p.errorf(n, problemSchema, "this is not a JSON Schema: %v", err)
	return nil
}

// shallow refuses a value that is nested deeper than the limit.
func (p *parser) shallow(n *node) bool {
	if n.depth() <= p.o.Limits.Depth {
		return true
	}
	p.errorf(n, problemLimit, "this value is nested deeper than the limit `depth` of %d", p.o.Limits.Depth)
	return false
}

// retry reads a policy or a list of policies (rules R1, R3).
func (p *parser) retry(n *node, strict bool) []RetryPolicy {
	if n.kind != nodeList {
		return p.policies([]*node{n}, strict)
	}
	if len(n.items) == 0 || len(n.items) > 100 {
		p.errorf(n, problemValue, "a list of retry policies has 1 to 100 of them")
		return nil
	}
	return p.policies(n.items, strict)
}

func (p *parser) policies(nodes []*node, strict bool) []RetryPolicy {
	var out []RetryPolicy
	for _, n := range nodes {
		if n.kind != nodeObject {
			problem := parley.Problem{Code: problemType, Text: fmt.Sprintf("a retry policy is an object such as {attempts: 3, delay: 1s}, this is %s", n.kind)}
			if n.kind == nodeNumber {
				problem.Suggestion = fmt.Sprintf("write {attempts: %s}", n.text)
			}
			p.report(n, problem)
			continue
		}
		r := RetryPolicy{
			Attempts: defaultAttempts, Delay: defaultDelay, Multiplier: defaultMultiplier,
			MaxDelay: defaultMaxDelay, FullJitter: true,
		}
		p.object(n, strict, p.policyMembers(&r))
		if d := n.get("delay"); d != nil && r.Delay > r.MaxDelay {
			p.report(d, parley.Problem{
				Severity: parley.SeverityWarning, Code: problemValue,
				Text: fmt.Sprintf("every delay is cut to max_delay, %s", r.MaxDelay), Suggestion: "set max_delay too",
			})
		}
		out = append(out, r)
	}
	return out
}

// policyMembers is the table of a retry policy.
func (p *parser) policyMembers(r *RetryPolicy) []parseField {
	return []parseField{
		{"attempts", func(n *node) { parseInto(&r.Attempts)(p.whole(n, 1, 100)) }},
		{"delay", func(n *node) { parseInto(&r.Delay)(p.duration(n, 0)) }},
		{"multiplier", func(n *node) { parseInto(&r.Multiplier)(p.factor(n)) }},
		{"max_delay", func(n *node) { parseInto(&r.MaxDelay)(p.duration(n, 0)) }},
		{"jitter", func(n *node) {
			if w, ok := p.word(n, "full", "none"); ok {
				r.FullJitter = w == "full"
			}
		}},
		{"on", func(n *node) { r.On = p.codes(n) }},
		{"not_on", func(n *node) { r.NotOn = p.codes(n) }},
	}
}

// parseCodes are the codes that a policy may name (language.md §5).
func parseCodes() []string {
	return []string{
		"*", "agent_unavailable", "agent_error", "agent_rejected", "timeout", "stalled", "invalid_output",
		"invalid_input", "validation_failed", "expression", "limit", "unknown_agent", "plan_invalid",
		"outcome_unknown", "join_failed", "tolerance_exceeded", "max_iterations", "sub_workflow_failed",
		"sub_workflow_cancelled", "approval_rejected", "cancelled", "finally_failed",
	}
}

// codes reads a list of error codes.
func (p *parser) codes(n *node) []parley.Code {
	if n.kind != nodeList {
		p.errorf(n, problemType, "this must be a list of error codes, it is %s", n.kind)
		return nil
	}
	if len(n.items) > 100 {
		p.errorf(n, problemValue, "this must name at most 100 codes")
		return nil
	}
	if len(n.items) == 0 {
		p.report(n, parley.Problem{Code: problemValue, Text: "this must name at least one code", Suggestion: "leave it out for the default; attempts: 1 retries nothing"})
	}
	var out []parley.Code
	for _, item := range n.items {
		code, ok := p.text(item, 1, 64)
		if !ok {
			continue
		}
		known := parseCodes()
		if !parseAuthorCode(code) && !slices.Contains(known, code) {
			p.report(item, parley.Problem{
				Code: problemValue, Text: fmt.Sprintf("%q is not an error code", code), Suggestion: p.suggest(code, known),
			})
			continue
		}
		out = append(out, parley.Code(code))
	}
	return out
}

// parseAuthorCode says whether code may be the code of a fail step:
// ^[A-Z][A-Za-z0-9_.-]{0,63}$.
func parseAuthorCode(code string) bool {
	return code != "" && len(code) <= 64 && code[0] >= 'A' && code[0] <= 'Z' && parseChars(code, "_.-")
}

// parseChars says whether s has only ASCII letters, digits and the others.
func parseChars(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// parseField is one member of a small object and what reads it.
type parseField struct {
	name string
	read func(*node)
}

// object reads the members of a small object by their table; unknown ones are
// an error if strict, else a warning (rule D2).
func (p *parser) object(n *node, strict bool, fields []parseField) {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	for _, m := range n.members {
		i := -1
		for j := range fields {
			if fields[j].name == m.name {
				i = j
			}
		}
		if i < 0 {
			p.unknown(n, m, strict, names)
			continue
		}
		fields[i].read(m.value)
	}
}

// unknown records a member that has no meaning (rule D2).
func (p *parser) unknown(of *node, m nodeMember, strict bool, names []string) {
	problem := parley.Problem{
		Code: problemUnknown, Severity: parley.SeverityWarning,
		Text: fmt.Sprintf("unknown member %q", m.name), Suggestion: p.checkMeant(m.name, names),
	}
	if strict {
		problem.Severity = parley.SeverityError
	} else {
		problem.Text += " is ignored"
	}
	p.reportName(of, m, problem)
}

// parseInto stores a value that could be read.
func parseInto[T any](to *T) func(T, bool) {
	return func(v T, ok bool) {
		if ok {
			*to = v
		}
	}
}
