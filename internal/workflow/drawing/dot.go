package drawing

import (
	"fmt"
	"strings"
	"unicode"
)

// dot writes a graph of Graphviz. Its edges run between nodes only: one to or
// from a frame is cut off at the frame.
func dot(s *scene) string {
	b := &strings.Builder{}
	b.WriteString("digraph workflow {\n  compound=true\n  node [shape=box]\n")
	fmt.Fprintf(b, "  label=%s\n  labelloc=t\n", dotText(s.title))
	for _, t := range s.top.inner {
		dotThing(b, t, "  ")
	}
	for _, e := range s.edges {
		var with []string
		if e.from.frame {
			with = append(with, "ltail=cluster_"+e.from.id)
		}
		if e.to.frame {
			with = append(with, "lhead=cluster_"+e.to.id)
		}
		if e.label != "" {
			with = append(with, "label="+dotText(e.label))
		}
		if e.dotted {
			with = append(with, "style=dashed")
		}
		fmt.Fprintf(b, "  %s -> %s", e.from.last.id, e.to.first.id)
		if len(with) > 0 {
			b.WriteString(" [" + strings.Join(with, ", ") + "]")
		}
		b.WriteByte('\n')
	}
	b.WriteString("}\n")
	return b.String()
}

func dotThing(b *strings.Builder, t *thing, indent string) {
	label := dotText(t.lines...)
	if !t.frame {
		fmt.Fprintf(b, "%s%s [label=%s%s]\n", indent, t.id, label, dotShape(t))
		return
	}
	fmt.Fprintf(b, "%ssubgraph cluster_%s {\n%s  label=%s\n", indent, t.id, indent, label)
	if t.dashed {
		b.WriteString(indent + "  style=dashed\n")
	}
	for _, inner := range t.inner {
		dotThing(b, inner, indent+"  ")
	}
	b.WriteString(indent + "}\n")
}

func dotShape(t *thing) string {
	style := ""
	if t.dashed {
		style = ", style=dashed"
	}
	switch t.shape {
	case rounded:
		return ", style=rounded"
	case stadium:
		return ", shape=oval" + style
	case diamond:
		return ", shape=diamond" + style
	case hexagon:
		return ", shape=hexagon" + style
	case subroutine:
		return ", peripheries=2" + style
	case terminal:
		return ", shape=doublecircle" + style
	}
	return style
}

// dotText writes lines as one quoted text of DOT.
func dotText(lines ...string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, line := range lines {
		if i > 0 {
			b.WriteString(`\n`)
		}
		for _, r := range line {
			switch {
			case r == '"', r == '\\':
				b.WriteRune('\\')
				b.WriteRune(r)
			case r == '&':
				b.WriteString("&amp;") // entities are read in plain texts too
			case unicode.IsSpace(r), unicode.IsControl(r):
				b.WriteByte(' ')
			default:
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}
