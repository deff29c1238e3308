package main

import (
	"fmt"
	"io"
	"strings"
)

// sheet is where output for people goes.
type sheet struct {
	w    io.Writer
	wide bool
	// columns of the terminal; 0 is no terminal, and nothing is cut.
	columns int
	colour  bool
}

func (a *app) newSheet() *sheet {
	s := &sheet{w: a.stdout, wide: a.flags.output == "wide", colour: a.colour(a.stdout)}
	if n, ok := a.terminal(a.stdout); ok {
		s.columns = n
	}
	return s
}

// line writes one line that is safe already.
func (s *sheet) line(text string) {
	fmt.Fprintln(s.w, strings.TrimRight(text, " "))
}

func (s *sheet) ink(i ink, text string) string {
	if !s.colour {
		return text
	}
	return i.Render(text)
}

// cell is one value of a table.
type cell struct {
	text string
	ink  ink
}

// column is one column of a table of T.
type column[T any] struct {
	head string
	// wide columns are shown with -o wide only; fixed ones are never cut.
	wide, fixed bool
	cell        func(T) cell
}

// plain makes the cells of a column that has no colours.
func plain[T any](f func(T) string) func(T) cell {
	return func(v T) cell { return cell{text: f(v)} }
}

const (
	gap = "  "
	// leastColumn is how narrow a column may get on a narrow terminal.
	leastColumn = 6
)

// drawTable writes a head and one line per item. Cells are made safe and never
// empty, so that programs can split the lines on two spaces.
func drawTable[T any](s *sheet, columns []column[T], items []T) {
	var shown []column[T]
	for _, c := range columns {
		if s.wide || !c.wide {
			shown = append(shown, c)
		}
	}
	rows := make([][]cell, 0, len(items)+1)
	head := make([]cell, len(shown))
	for i, c := range shown {
		head[i] = cell{c.head, styleDim}
	}
	rows = append(rows, head)
	for _, item := range items {
		row := make([]cell, len(shown))
		for i, c := range shown {
			row[i] = c.cell(item)
			row[i].text = orDash(clean(row[i].text))
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(shown))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], width(c.text))
		}
	}
	fixed := make([]bool, len(shown))
	for i, c := range shown {
		fixed[i] = c.fixed
	}
	fit(widths, fixed, s.columns)
	for _, row := range rows {
		s.row(row, widths)
	}
}

// row writes one line, cut where the terminal ends.
func (s *sheet) row(row []cell, widths []int) {
	var b strings.Builder
	left := s.columns
	for i, c := range row {
		n := widths[i]
		if s.columns > 0 {
			n = min(n, left)
			if left -= n + len(gap); n <= 0 {
				break
			}
		}
		if i > 0 {
			b.WriteString(gap)
		}
		text := clip(c.text, n)
		b.WriteString(s.ink(c.ink, text))
		if i < len(row)-1 {
			b.WriteString(pad("", n-width(text)))
		}
	}
	s.line(b.String())
}

// fit narrows the widest columns until a line fits into limit columns, as far
// as that goes. Limit 0 is none.
func fit(widths []int, fixed []bool, limit int) {
	if limit == 0 {
		return
	}
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for total > limit {
		widest := -1
		for i, w := range widths {
			if !fixed[i] && w > leastColumn && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
		total--
	}
}

// field is one line of a description.
type field struct {
	name string
	cell cell
}

// fields writes names and values below each other; values that are empty are
// left out.
func (s *sheet) fields(list []field) {
	n := 0
	for _, f := range list {
		if f.cell.text != "" {
			n = max(n, width(f.name))
		}
	}
	for _, f := range list {
		if f.cell.text != "" {
			s.line(s.ink(styleDim, pad(f.name, n)) + gap + s.ink(f.cell.ink, clean(f.cell.text)))
		}
	}
}

// block writes a titled JSON value.
func (s *sheet) block(title string, value []byte) {
	s.line("")
	s.line(s.ink(styleDim, title))
	s.line(cleanLines(string(indent(value))))
}
