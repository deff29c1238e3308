package drawing

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// mermaid writes a flowchart of Mermaid.
func mermaid(s *scene) string {
	b := &strings.Builder{}
	b.WriteString("flowchart TD\n")
	for _, t := range s.top.inner {
		mermaidThing(b, t, "  ")
	}
	for _, e := range s.edges {
		line := "-->"
		if e.dotted {
			line = "-.->"
		}
		if e.label != "" {
			line += `|"` + mermaidText(e.label) + `"|`
		}
		fmt.Fprintf(b, "  %s %s %s\n", e.from.id, line, e.to.id)
	}
	mermaidStyles(b, &s.top)
	return b.String()
}

func mermaidThing(b *strings.Builder, t *thing, indent string) {
	label := make([]string, len(t.lines))
	for i, line := range t.lines {
		label[i] = mermaidText(line)
	}
	text := `"` + strings.Join(label, "<br/>") + `"`
	if !t.frame {
		left, right := mermaidShape(t.shape)
		b.WriteString(indent + t.id + left + text + right + "\n")
		return
	}
	b.WriteString(indent + "subgraph " + t.id + "[" + text + "]\n")
	for _, inner := range t.inner {
		mermaidThing(b, inner, indent+"  ")
	}
	b.WriteString(indent + "end\n")
}

func mermaidShape(s shape) (left, right string) {
	switch s {
	case rounded:
		return "(", ")"
	case stadium:
		return "([", "])"
	case diamond:
		return "{", "}"
	case hexagon:
		return "{{", "}}"
	case subroutine:
		return "[[", "]]"
	case terminal:
		return "(((", ")))"
	}
	return "[", "]"
}

// mermaidText writes every character that Mermaid, Markdown or HTML could take
// for more than text by its number.
func mermaidText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune(" _-,:/()=.…$", r):
			b.WriteRune(r)
		case unicode.IsSpace(r), unicode.IsControl(r):
			b.WriteByte(' ')
		default:
			b.WriteString("#" + strconv.Itoa(int(r)) + ";")
		}
	}
	return b.String()
}

// mermaidStyles gives what is dashed its line.
func mermaidStyles(b *strings.Builder, t *thing) {
	for _, inner := range t.inner {
		if inner.dashed {
			b.WriteString("  style " + inner.id + " stroke-dasharray: 4 4\n")
		}
		mermaidStyles(b, inner)
	}
}
