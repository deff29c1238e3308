package expr

import (
	"strings"
)

// ListForm writes a text of the graph form so that the list form reads it as the
// same: old paths that are no paths of today become CEL, and an unclosed ${ is
// quoted. c reads the graph form.
func (c *Compiler) ListForm(text string) string {
	var b strings.Builder
	for {
		n := strings.Index(text, opening)
		if n < 0 {
			b.WriteString(text)
			return b.String()
		}
		from := n + len(opening)
		end := c.end(text, from, At{})
		if end < 0 {
			b.WriteString(strings.ReplaceAll(text, opening, `${"${"}`))
			return b.String()
		}
		b.WriteString(text[:from] + c.listForm(text[from:end]) + "}")
		text = text[end+1:]
	}
}

// listForm rewrites what stands in ${…}.
func (c *Compiler) listForm(src string) string {
	trimmed := strings.TrimSpace(src)
	if _, ok := parsePath(trimmed, c.isStep, false); ok || c.compiles(src, At{}) {
		return src
	}
	p, ok := parsePath(trimmed, c.isStep, true)
	if !ok {
		return src
	}
	return celReference(p, "")
}
