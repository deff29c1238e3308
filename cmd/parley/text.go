package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"

	"github.com/parley-project/parley"
)

// The colours are the 16 of the terminal, so that they follow its theme.
const (
	styleGood = ink("2")
	styleBad  = ink("1")
	styleBusy = ink("6")
	styleWarn = ink("3")
	styleDim  = ink("8")
	styleNone = ink("")
)

// ink is a foreground colour; "" is the terminal's own.
type ink string

// Render gives s in this colour.
func (i ink) Render(s string) string {
	if i == "" || s == "" {
		return s
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(string(i))).Render(s)
}

// inkOf gives the colour of a status, which always stands beside its word.
func inkOf(status string) ink {
	switch status {
	case string(parley.RunCompleted), string(parley.AgentActive), string(parley.CircuitClosed), string(parley.HealthHealthy):
		return styleGood
	case string(parley.RunFailed), string(parley.CircuitOpen), string(parley.HealthUnhealthy):
		return styleBad
	case string(parley.RunRunning):
		return styleBusy
	case retrying, cancelling, waiting, warning, late, string(parley.CircuitHalfOpen):
		return styleWarn
	}
	return styleDim
}

// clean makes text from elsewhere harmless on a terminal and keeps it on one
// line: control characters, which could move the cursor or change what was
// written before, and those that turn the direction of writing, are shown as
// escapes.
func clean(s string) string { return escape(s, "") }

// cleanLines is clean for text of several lines.
func cleanLines(s string) string { return escape(s, "\n") }

func escape(s, keep string) string {
	bad := func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar || r == '\u2028' || r == '\u2029') &&
			!strings.ContainsRune(keep, r)
	}
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !bad(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == unicode.ReplacementChar:
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// width gives the columns that s takes on a terminal.
func width(s string) int { return lipgloss.Width(s) }

// clip cuts s to at most n columns, with an ellipsis where it was cut.
func clip(s string, n int) string {
	if n < 1 {
		return ""
	}
	if width(s) <= n {
		return s
	}
	if n == 1 {
		return "…"
	}
	return lipgloss.NewStyle().Inline(true).MaxWidth(n-1).Render(s) + "…"
}

// pad fills s with spaces to n columns.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-width(s)))
}

// duration gives d as people read it: 12ms, 1.2s, 3m04s, 2h05m.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// between gives the time from start to end, up to now while it has not ended.
func (a *app) between(start, end *time.Time) string {
	if start == nil {
		return "-"
	}
	if end == nil {
		return duration(a.now().Sub(*start))
	}
	return duration(end.Sub(*start))
}

// when gives an instant for people.
func (a *app) when(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.In(a.zone).Format(time.DateTime)
}

// orDash fills an empty cell, so that columns can be counted.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plural gives "1 run", "2 runs".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
