// Command testsum runs go test and ends with one line that counts:
//
//	testsum [go test flags and packages] [-- nested module ...]
//
// Passed packages are one line each; the output of what failed is shown whole.
// The slowest tests stand above the last line, and what failed once more in short:
// of a long run often only the end is kept.
// A few tests that failed among all the others are run again by themselves: those that
// pass then count as passed, and are named as flaky, with what they wrote.
// The nested modules are tested with the same flags.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Getenv("CI") != ""))
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	// ImportPath is what build output is about, FailedBuild what did not build so
	// that a package has failed.
	ImportPath, FailedBuild string
	Elapsed                 float64
}

// Of the tests that take slowAfter seconds the slowest ones are shown.
const (
	slowest   = 12
	slowAfter = 20
)

// What failed is shown again at the end in so many tests, lines of each, and bytes
// of each line.
const (
	againTests = 20
	againLines = 6
	againBytes = 400
)

type tally struct {
	passed, failed, skipped int
	slow                    []event
	failures, flaky         []failure
	// dir is that of the module whose tests are read.
	dir    string
	out    io.Writer
	output map[string][]string
}

// failure is a test that failed, or a package as a whole, and what it wrote.
type failure struct {
	dir, pkg, test string
	output         []string
}

func run(args []string, out io.Writer, ci bool) int {
	t := newTally(out)
	args, modules := split(args)
	ok := t.test(".", args)
	for _, dir := range modules {
		ok = t.test(dir, args) && ok
	}
	if !ok && t.mayPass() {
		ok = t.again(args)
	}
	return t.sum(ok, ci)
}

func newTally(out io.Writer) *tally { return &tally{out: out, output: make(map[string][]string)} }

// sum writes the last line and gives the exit code: ok says whether go test has
// succeeded, ci that nothing may be skipped.
func (t *tally) sum(ok, ci bool) int {
	t.showSlow()
	t.show("FLAKY", t.flaky)
	t.show("FAIL", t.failures)
	code := 0
	if !ok || t.failed > 0 {
		code = 1
	} else if ci && t.skipped > 0 {
		_, _ = fmt.Fprintln(t.out, "testsum: nothing may be skipped in CI")
		code = 1
	}
	_, _ = fmt.Fprintf(t.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return code
}

// showSlow writes the slowest tests, with all of their parts.
func (t *tally) showSlow() {
	slices.SortStableFunc(t.slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range t.slow[:min(len(t.slow), slowest)] {
		_, _ = fmt.Fprintf(t.out, "slow  %s %s  %.1fs\n", e.Package, e.Test, e.Elapsed)
	}
}

// show names what failed, with the first lines of what it wrote.
func (t *tally) show(what string, failures []failure) {
	for _, f := range failures[:min(len(failures), againTests)] {
		_, _ = fmt.Fprintf(t.out, "%-5s %s\n", what, strings.TrimSpace(f.pkg+" "+f.test))
		for _, line := range f.start() {
			_, _ = fmt.Fprintf(t.out, "      %s\n", line)
		}
	}
	if more := len(failures) - againTests; more > 0 {
		_, _ = fmt.Fprintf(t.out, "%-5s and %d more\n", what, more)
	}
}

// start gives the first lines of what f wrote, or of its panic, without those of go
// test itself.
func (f failure) start() (lines []string) {
	written := strings.Join(f.output, "") // an entry may be part of a line
	if _, stacks, ok := strings.Cut(written, "\npanic: "); ok {
		written = "panic: " + stacks
	}
	for line := range strings.Lines(written) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- FAIL: ") {
			continue
		}
		if len(lines) == againLines {
			return lines
		}
		if len(line) > againBytes {
			line = strings.ToValidUTF8(line[:againBytes], "") + " …"
		}
		lines = append(lines, line)
	}
	return lines
}

func split(args []string) (test, modules []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// test runs go test in dir and reports whether it succeeded.
func (t *tally) test(dir string, args []string) bool {
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr, t.dir = dir, os.Stderr, dir
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "testsum:", err)
		return false
	}
	return errors.Join(t.read(pipe), cmd.Wait()) == nil
}

// read takes what go test -json writes. What is not of that kind is shown.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			_, _ = fmt.Fprintln(t.out, lines.Text())
			continue
		}
		t.take(e)
	}
	return lines.Err()
}

func (t *tally) take(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "output":
		t.output[key] = append(t.output[key], e.Output)
	case "build-output":
		t.output[e.ImportPath] = append(t.output[e.ImportPath], e.Output)
	case "pass", "skip", "fail":
		t.ended(e, key)
		if e.Action == "pass" && e.Test != "" {
			t.keepStacks(e.Package, t.output[key])
		}
		delete(t.output, key)
	}
}

// keepStacks keeps what a panic has written, such as that of a timeout, when go test
// takes it for the output of a test that had passed by then, since that was the last
// one to write something.
func (t *tally) keepStacks(pkg string, output []string) {
	if i := slices.IndexFunc(output, func(line string) bool { return strings.HasPrefix(line, "panic: ") }); i >= 0 {
		key := pkg + "\x00" + "(all of them)"
		t.output[key] = append(t.output[key], output[i:]...)
	}
}

func (t *tally) ended(e event, key string) {
	if e.Test == "" {
		t.endedPackage(e, key)
		return
	}
	if e.Elapsed >= slowAfter && !strings.Contains(e.Test, "/") {
		t.slow = append(t.slow, e)
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		_, _ = fmt.Fprintf(t.out, "SKIP  %s %s\n%s", e.Package, e.Test, strings.Join(t.output[key], ""))
	case "fail":
		t.failed++
		t.fail(e.Package, e.Test, t.output[key])
		_, _ = fmt.Fprintf(t.out, "FAIL  %s %s\n%s", e.Package, e.Test, strings.Join(t.output[key], ""))
	}
}

func (t *tally) endedPackage(e event, key string) {
	switch e.Action {
	case "pass":
		_, _ = fmt.Fprintf(t.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		output := slices.Concat(t.output[e.FailedBuild], t.output[key])
		_, _ = fmt.Fprintf(t.out, "FAIL  %s  %.1fs\n%s", e.Package, e.Elapsed, strings.Join(output, ""))
		delete(t.output, e.FailedBuild)
		output = append(output, t.unended(e.Package)...)
		// A race may be found when all tests are over.
		if !slices.ContainsFunc(t.failures, func(f failure) bool { return f.pkg == e.Package }) || (failure{output: output}).broken() {
			t.fail(e.Package, "", output)
		}
		if t.failed == 0 {
			t.failed++ // a package that does not build has no failed test
		}
	}
}

// fail keeps for the end what failed; test is empty where that is the package itself.
func (t *tally) fail(pkg, test string, output []string) {
	t.failures = append(t.failures, failure{dir: t.dir, pkg: pkg, test: test, output: output})
}

// unended shows what the tests of a package have written that were under way when
// it died, and returns it: the stacks of a test that hung are among that.
func (t *tally) unended(pkg string) (written []string) {
	var keys []string
	for key := range t.output {
		if name, ok := strings.CutPrefix(key, pkg+"\x00"); ok && name != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		_, name, _ := strings.Cut(key, "\x00")
		_, _ = fmt.Fprintf(t.out, "did not end: %s %s\n%s", pkg, name, strings.Join(t.output[key], ""))
		written = append(written, t.output[key]...)
		delete(t.output, key)
	}
	return written
}
