package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRPCPage types the command lines of docs/jsonrpc.md and holds the page to
// what they print. A line that ends with "&" goes on in the background, at a
// port of its own; times are not compared.
func TestRPCPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "jsonrpc.md"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &pageSession{t: t, dir: t.TempDir(), program: "env " + programVariable + "=1 " + self, urls: map[string]string{}}
	defer p.end()
	commands := 0
	for _, block := range regexp.MustCompile("(?ms)^```console\n(\\$ parley .*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for step := range strings.SplitSeq(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
			line, want, _ := strings.Cut(step, "\n")
			commands++
			if diff := cmp.Diff(timeless(strings.TrimRight(want, "\n")), timeless(strings.TrimRight(p.typed(line), "\n"))); diff != "" {
				t.Errorf("%s: %s", line, diff)
			}
		}
	}
	if commands < 5 {
		t.Errorf("only %d command lines on the page", commands)
	}
}

var timesOnPage = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}|\b\d[\d.]*(µs|ms)`)

func timeless(s string) string { return timesOnPage.ReplaceAllString(s, "TIME") }

// pageSession is what the command lines of a page have in common.
type pageSession struct {
	t       *testing.T
	dir     string
	program string            // what "parley" within a stdio: URL stands for
	urls    map[string]string // by those of the page
	stops   []func()
}

func (p *pageSession) end() {
	for _, stop := range p.stops {
		stop()
	}
}

// typed runs one command line and gives what it prints.
func (p *pageSession) typed(line string) string {
	p.t.Helper()
	if file, ok := strings.CutPrefix(line, "cat "); ok {
		b, err := os.ReadFile(filepath.Join(p.dir, file))
		if err != nil {
			p.t.Fatal(err)
		}
		return string(b)
	}
	line, background := strings.CutSuffix(line, " &")
	for shown, real := range p.urls {
		line = strings.ReplaceAll(line, shown, real)
	}
	line = strings.ReplaceAll(line, "stdio:parley ", "stdio:"+p.program+" ")
	args := words(strings.TrimPrefix(line, "parley "))
	if background {
		return p.background(args)
	}
	var out lockedBuffer // both outputs, as on a terminal
	p.app(&out).execute(p.t.Context(), args)
	return p.asShown(out.String())
}

func (p *pageSession) app(out io.Writer) *app {
	return &app{
		stdin: strings.NewReader(""), stdout: out, stderr: out, dir: p.dir, now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
}

// background starts the command line at a free port, and gives what it prints
// until it listens.
func (p *pageSession) background(args []string) string {
	p.t.Helper()
	shown := args[2]
	args[2] = regexp.MustCompile(`:\d+$`).ReplaceAllString(shown, ":0")
	out := &lockedBuffer{search: regexp.MustCompile(`(?s)(tcp://\S+).*\n`), found: make(chan string, 1)}
	ctx, cancel := context.WithCancel(p.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.app(out).execute(ctx, args) })
	p.stops = append(p.stops, func() { cancel(); wg.Wait() })
	select {
	case p.urls[shown] = <-out.found:
	case <-time.After(2 * time.Minute):
		p.t.Fatalf("%v does not listen: %s", args, out.String())
	}
	for !strings.Contains(out.String(), "next:") && args[1] == "serve" {
		time.Sleep(time.Millisecond)
	}
	return p.asShown(out.String())
}

// asShown puts the addresses of the page in place of the real ones.
func (p *pageSession) asShown(text string) string {
	for shown, real := range p.urls {
		text = strings.ReplaceAll(text, real, shown)
	}
	return text
}

// words splits a command line as a shell does that knows quotes and nothing else.
func words(line string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		all = append(all, regexp.MustCompile(`'([^']*)'|"([^"]*)"`).ReplaceAllString(m, "$1$2"))
	}
	return all
}
