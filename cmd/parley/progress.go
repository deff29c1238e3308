package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/parley-project/parley"
)

const (
	frameEvery = 100 * time.Millisecond
	// nameColumn bounds the columns of ids and agents.
	nameColumn = 32
	// tallest bounds the lines that are redrawn, where the terminal is not
	// lower.
	tallest = 12
)

// The messages of the progress model.
type (
	eventMsg   parley.Event
	sayMsg     string
	tickMsg    time.Time
	flushedMsg struct{}
	// overMsg: nothing more will come.
	overMsg struct{}
)

// progressModel draws a run on a terminal, below what is there: what has ended
// stays above as text, what runs is redrawn. It is a value that only Update
// changes.
type progressModel struct {
	board         *board
	now           time.Time
	frame         int
	width, height int
	paint         func(ink, string) string

	// pending lines go above the picture, in order; flushing: some are on
	// their way, and the next ones wait for them.
	pending  []string
	flushing bool
	over     bool
}

func newProgressModel(b *board, now time.Time, paint func(ink, string) string) *progressModel {
	return &progressModel{board: b, now: now, width: 80, height: 24, paint: paint}
}

// Init starts the clock of the picture.
func (m *progressModel) Init() tea.Cmd { return tick() }

func tick() tea.Cmd {
	return tea.Tick(frameEvery, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Update takes what has happened.
func (m *progressModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		m.now = time.Time(msg)
		m.frame++
		return m, tick()
	case eventMsg:
		if n, ok := m.board.apply(parley.Event(msg)); ok {
			m.pending = append(m.pending, m.lasting(n)...)
		}
	case sayMsg:
		m.pending = append(m.pending, clip(clean(string(msg)), m.width))
	case flushedMsg:
		m.flushing = false
	case overMsg:
		m.over = true
	}
	return m, m.flush()
}

// flush sends the pending lines above the picture, and ends the program when
// all is said.
func (m *progressModel) flush() tea.Cmd {
	switch {
	case m.flushing:
		return nil
	case len(m.pending) > 0:
		text := strings.Join(m.pending, "\n")
		m.pending, m.flushing = nil, true
		return tea.Sequence(tea.Println(text), func() tea.Msg { return flushedMsg{} })
	case m.over:
		return tea.Quit
	}
	return nil
}

// View draws what runs now, at most as many lines as the terminal has.
func (m *progressModel) View() tea.View {
	if m.over {
		return picture("")
	}
	var lines []string
	for _, id := range m.board.order {
		if s := m.board.steps[id]; s.status == string(parley.StepRunning) || s.status == retrying || s.status == waiting {
			lines = append(lines, m.running(s))
		}
	}
	most := max(1, min(tallest, m.height-2))
	if hidden := len(lines) - most; hidden > 0 {
		lines = append(lines[:most:most], m.paint(styleDim, clip(fmt.Sprintf("  and %d more running", hidden), m.width)))
	}
	ended, all := m.board.counts()
	foot := fmt.Sprintf("%s  %s  %d of %s  %s", m.board.run, m.board.status, ended, plural(all, "step"), m.since(m.board.started))
	lines = append(lines, m.paint(styleDim, clip(clean(foot), m.width)))
	return picture(strings.Join(lines, "\n"))
}

// picture is a view that leaves the terminal's modes alone: nothing is typed
// into it.
func picture(text string) tea.View {
	v := tea.NewView(text)
	v.DisableBracketedPasteMode = true
	return v
}

// since counts up; a server whose clock is ahead gives 0.
func (m *progressModel) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration(m.now.Sub(t))
}

func (m *progressModel) running(s *boardStep) string {
	spinner := []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}
	n := news{id: s.id, status: s.status, agent: s.agent, took: m.since(s.began), note: s.note}
	switch {
	case s.status == retrying && !m.now.Before(s.again): // no event tells that it has begun
		n.status, n.note = string(parley.StepRunning), fmt.Sprintf("attempt %d", s.attempts+1)
	case s.status != retrying && s.attempts > 1:
		n.note = strings.TrimSpace(fmt.Sprintf("attempt %d %s", s.attempts, s.note))
	}
	return m.draw(spinner[m.frame%len(spinner)], n)
}

// lasting gives the lines that news leave above the picture: what has ended, what
// waits for a person, and what nothing else will tell of.
func (m *progressModel) lasting(n news) []string {
	switch {
	case n.answer != "":
		// Not cut: it is to be copied.
		return []string{m.line(n), m.paint(styleDim, clean("  to answer: "+n.answer))}
	case n.final, n.status == warning, n.status == late:
		return []string{m.line(n)}
	}
	return nil
}

func (m *progressModel) line(n news) string {
	mark := "–"
	switch n.status {
	case string(parley.StepCompleted):
		mark = "✓"
	case string(parley.StepFailed):
		mark = "✗"
	case waiting:
		mark = "?"
	case warning, late:
		mark = "!"
	}
	return m.draw(mark, n)
}

// draw gives one line: mark, id, status word, agent, time, note. It is cut at
// the terminal's edge before it is coloured, so that no colour is cut open.
func (m *progressModel) draw(mark string, n news) string {
	ids, agents := []string{"run"}, []string{}
	if n.id == m.board.run {
		n.id = "run"
	}
	for _, s := range m.board.steps {
		ids, agents = append(ids, s.id), append(agents, s.agent)
	}
	const status = len(retrying) + 1
	cells := []cell{
		{mark, inkOf(n.status)},
		{aligned(n.id, ids), styleNone},
		{pad(n.status, status), inkOf(n.status)},
		{aligned(n.agent, agents), styleNone},
		{pad(n.took, 6), styleNone},
		{clean(n.note), styleDim},
	}
	var b strings.Builder
	left := m.width
	for i, c := range cells {
		if c.text == "" || left <= 0 {
			continue
		}
		if i > 0 {
			b.WriteString(" ")
			left--
		}
		text := clip(c.text, left)
		left -= width(text)
		b.WriteString(m.paint(c.ink, text))
	}
	return strings.TrimRight(b.String(), " ")
}

// aligned pads text to the widest of all, within bounds.
func aligned(text string, all []string) string {
	widest := 0
	for _, s := range all {
		widest = max(widest, width(clean(s)))
	}
	n := min(widest, nameColumn)
	return pad(clip(clean(text), n), n)
}

// quietTerminal gives the environment for a program that only draws: one that
// asks the terminal nothing, since nobody would read the answer and it would
// end up on the command line.
func quietTerminal(env []string) []string {
	drop := []string{"TERM_PROGRAM", "WT_SESSION", "SSH_TTY", "TERM"}
	term := "xterm-256color"
	out := slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, value, _ := strings.Cut(e, "=")
		if name == "TERM" && (strings.HasPrefix(value, "xterm") || strings.HasPrefix(value, "screen") || strings.HasPrefix(value, "tmux") || value == "linux") {
			term = value
		}
		return slices.Contains(drop, name)
	})
	for _, asks := range []string{"ghostty", "wezterm", "alacritty", "kitty", "rio"} {
		if strings.Contains(term, asks) {
			term = "xterm-256color"
		}
	}
	return append(out, "TERM="+term, "SSH_TTY=none")
}
