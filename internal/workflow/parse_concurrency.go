package workflow

import (
	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// maxConcurrency bounds concurrency.limit.
const maxConcurrency = 1_000_000

// concurrency reads the top member of that name.
func (p *parser) concurrency(n *node) *Concurrency {
	if n.kind != nodeObject {
		p.report(n, parley.Problem{
			Code: problemType, Text: "concurrency is an object such as {key: \"${workflow.input.customer}\", limit: 1}",
			Suggestion: "write {limit: 1} for one run at a time",
		})
		return nil
	}
	c := &Concurrency{Limit: 1, WhenFull: parley.WhenFullQueue}
	p.object(n, !p.graph(), []parseField{
		{"key", func(n *node) {
			p.template(n, parseExpr{at: expr.At{InputOnly: true}, set: func(t *expr.Template) { c.Key = t }})
		}},
		{"limit", func(n *node) { parseInto(&c.Limit)(p.whole(n, 1, maxConcurrency)) }},
		{"when_full", func(n *node) {
			w, ok := p.word(n, string(parley.WhenFullQueue), string(parley.WhenFullReject), string(parley.WhenFullCancelOldest))
			if ok {
				c.WhenFull = parley.WhenFull(w)
			}
		}},
	})
	return c
}
