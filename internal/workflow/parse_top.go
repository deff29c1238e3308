package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// parseDefaults are the members of a workflow that its agent steps inherit.
type parseDefaults struct {
	retry                   []RetryPolicy
	attemptTimeout, silence time.Duration
}

// topMembers is the table of language.md §1.
func (p *parser) topMembers() []parseField {
	d := p.def
	return []parseField{
		{"name", func(n *node) { parseInto(&d.Name)(p.text(n, 1, 255)) }},
		{"workflow_id", func(n *node) { parseInto(&d.ID)(p.workflowID(n)) }},
		{"version", func(n *node) { parseInto(&d.Version)(p.text(n, 1, 64)) }},
		{"language", func(n *node) { p.language(n) }},
		{"description", func(n *node) { parseInto(&d.Description)(p.text(n, 0, 4096)) }},
		{"labels", func(n *node) { d.Labels = p.labels(n) }},
		{"input", func(n *node) {
			if d.Input = p.schemaOf(n); d.Input != nil {
				p.inputSchema = n.json()
			}
		}},
		{"steps", func(*node) {}},
		{"start_step", func(*node) {}},
		{"finally", func(*node) {}},
		{"output", func(n *node) { p.template(n, parseExpr{set: func(t *expr.Template) { d.Output = t }}) }},
		{"timeout", func(n *node) { parseInto(&d.Timeout)(p.duration(n, time.Millisecond)) }},
		{"cleanup_timeout", func(n *node) { parseInto(&d.CleanupTimeout)(p.duration(n, time.Millisecond)) }},
		{"retry", func(n *node) { p.defaults.retry = p.retry(n, !p.graph()) }},
		{"attempt_timeout", func(n *node) { parseInto(&p.defaults.attemptTimeout)(p.duration(n, time.Millisecond)) }},
		{"silence", func(n *node) { parseInto(&p.defaults.silence)(p.duration(n, time.Millisecond)) }},
		{"concurrency", func(n *node) { d.Concurrency = p.concurrency(n) }},
		{"idempotency_key", func(n *node) {
			p.template(n, parseExpr{at: expr.At{InputOnly: true}, set: func(t *expr.Template) { d.IdempotencyKey = t }})
		}},
		{"triggers", func(n *node) { p.triggers(n) }},
	}
}

// parseReserved are reserved for later languages (language.md §2).
func parseReserved() []string { return []string{"budget", "lock", "vote", "cache"} }

// top reads the members beside the steps.
func (p *parser) top(root *node) {
	kept := *root
	kept.members = nil
	for _, m := range root.members {
		switch {
		case p.graph() && m.value.kind == nodeNull:
			// Old writers spell every member that they leave out.
		case p.refuse(root, m):
		case m.name == "start_step" && !p.graph():
			p.reportName(root, m, parley.Problem{
				Code: problemUnknown, Text: "start_step belongs to the graph form, where steps is an object",
				Suggestion: "leave it out: a list begins with its first step",
			})
		default:
			kept.members = append(kept.members, m)
		}
	}
	p.object(&kept, !p.graph(), p.topMembers())
	for _, m := range []struct{ name, text string }{{"name", "a workflow needs a name"}, {"steps", "a workflow needs steps"}} {
		if root.get(m.name) == nil && !p.topMisspelt(root, m.name) {
			p.missing(root, m.name, m.text)
		}
	}
	p.names()
}

// topMisspelt says whether an unknown member is like the given one, which was said.
func (p *parser) topMisspelt(root *node, name string) bool {
	var names []string
	for _, f := range p.topMembers() {
		names = append(names, f.name)
	}
	return slices.ContainsFunc(root.members, func(m nodeMember) bool {
		return !p.graph() && !slices.Contains(names, m.name) && checkNearest(checkSnake(m.name), names) == name
	})
}

// refuse records a member that is reserved for later languages.
func (p *parser) refuse(of *node, m nodeMember) bool {
	if !slices.Contains(parseReserved(), m.name) {
		return false
	}
	p.refused = true
	p.reportName(of, m, parley.Problem{Code: problemUnsupported, Text: fmt.Sprintf("%q is not in language 1", m.name)})
	return true
}

// parseWorkflowID says whether a new workflow may have an id: ^[a-z0-9][a-z0-9._-]{0,127}$.
func parseWorkflowID(id string) bool {
	return len(id) <= 128 && parseChars(id, "._-") && id == strings.ToLower(id) && strings.IndexByte("._-", id[0]) < 0
}

func (p *parser) workflowID(n *node) (string, bool) {
	id, ok := p.text(n, 1, 255)
	switch {
	case !ok:
	case p.graph():
		return id, p.plainID(n)
	case !parseWorkflowID(id):
		p.report(n, parley.Problem{
			Code: problemID, Text: "a workflow_id has 1 to 128 characters a-z 0-9 . _ -, a letter or digit first",
			Suggestion: fmt.Sprintf("write %s", parseSlug(id)),
		})
		return "", false
	}
	return id, ok
}

func (p *parser) language(n *node) {
	if n.kind != nodeNumber || n.text != "1" {
		p.report(n, parley.Problem{Code: problemValue, Text: "only language 1 is known", Suggestion: "write language: 1, or leave it out"})
	}
}
