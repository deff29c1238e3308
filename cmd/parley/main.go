// Command parley runs durable workflows across AI agents that other people
// operate. See "parley help".
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/parley-project/parley/internal/server"
)

// version is set by the linker for release builds.
var version string

func main() {
	// The live heap is small as a rule, so that Go's default would collect many
	// times a second under load.
	if os.Getenv("GOGC") == "" {
		server.TuneGC() // to the end of the process
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second interrupt ends the program at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], standard{os.Stdin, os.Stdout, os.Stderr, os.Environ()})
	stop()
	os.Exit(code)
}

// standard is what a process gets from the one that starts it.
type standard struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// env holds NAME=value entries.
	env []string
}

// run executes one command line and gives the exit code.
func run(ctx context.Context, args []string, s standard) int {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	a := &app{
		stdin: s.stdin, stdout: s.stdout, stderr: s.stderr, env: s.env, dir: dir,
		now: time.Now, zone: time.Local, terminal: terminal,
	}
	return a.execute(ctx, args)
}

// terminal gives the width of the terminal behind w, and false if there is
// none.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 1 {
		width = 80
	}
	return width, true
}
