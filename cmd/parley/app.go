package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// app is one call of the program: everything that commands take from outside,
// and the flags that all of them have. It is used by one goroutine.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	// dir is the working directory: relative paths begin there.
	dir string
	now func() time.Time
	// zone is where times are shown for people.
	zone *time.Location
	// terminal gives the width of the terminal behind a writer, if it is one.
	terminal func(io.Writer) (width int, ok bool)

	flags flags
}

// flags are those of every command.
type flags struct {
	output, url, key, context string
	quiet, noColor            bool
}

// execute runs the command that args name and gives the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	out := &sticky{w: a.stdout}
	root := newRootCommand(a)
	a.stdout = out
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(out)
	root.SetErr(a.stderr)
	addCompletion(root)
	// The terminal is asked about the writer that was given.
	ask := a.terminal
	a.terminal = func(w io.Writer) (int, bool) {
		if w == out {
			w = out.w
		}
		return ask(w)
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.unwritten()
	}
	return a.report(err)
}

// getenv gives the last value of name, as package os does.
func (a *app) getenv(name string) string {
	for _, e := range slices.Backward(a.env) {
		if n, v, ok := strings.Cut(e, "="); ok && n == name {
			return v
		}
	}
	return ""
}

// trace gives the trace that the command is a part of: by the convention of
// OpenTelemetry its parent says so in the environment.
func (a *app) trace() parley.Trace {
	return parley.TraceOf([]string{a.getenv("TRACEPARENT")}, []string{a.getenv("TRACESTATE")})
}

// path makes a path of the command line absolute.
func (a *app) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(a.dir, name)
}

// note writes one line for people, unless they want quiet.
func (a *app) note(format string, args ...any) {
	if !a.flags.quiet {
		fmt.Fprintln(a.stderr, cleanLines(fmt.Sprintf(format, args...)))
	}
}

// next names the command that most people want after this one.
func (a *app) next(format string, args ...any) {
	a.note("next: "+format, args...)
}

// colour reports whether w gets colours.
func (a *app) colour(w io.Writer) bool {
	_, tty := a.terminal(w)
	return tty && !a.flags.noColor && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// sticky remembers that writing failed, so that a full disk is not taken for
// success.
type sticky struct {
	w   io.Writer
	err error
}

// unwritten says why the output could not be written; nil if it was.
func (a *app) unwritten() error {
	if out, ok := a.stdout.(*sticky); ok && out.err != nil {
		return fmt.Errorf("cannot write the output: %w", out.err)
	}
	return nil
}

func (s *sticky) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}
