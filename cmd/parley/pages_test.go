package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestPagesCommandLines reads the command lines of the pages: each is a command that
// there is, with flags that it has, and outside of sentences with its arguments.
func TestPagesCommandLines(t *testing.T) {
	t.Parallel()
	program := newReader(t)
	lines := regexp.MustCompile("(?m)^(?:\\$ )?(?:[A-Z_]+=\\S+ )*(?:\\./bin/)?(parley .*)$|`(?:\\./bin/)?(parley [^`]+)`")
	for page, least := range map[string]int{
		"README.md": 15, "docs/protocols.md": 20, "docs/zones.md": 5, "docs/operations.md": 60, "docs/workflows.md": 15, "docs/triggers.md": 8,
		"docs/events-and-approvals.md": 10, "docs/migration.md": 6, "docs/errors.md": 7, "docs/testing-workflows.md": 3, "examples/agents/README.md": 2,
	} {
		all := lines.FindAllStringSubmatch(readPage(t, page), -1)
		if len(all) < least {
			t.Errorf("%s: only %d command lines", page, len(all))
		}
		for _, m := range all {
			if err := program.reads(m[1]+m[2], m[1] != ""); err != nil {
				t.Errorf("%s: %s: %v", page, m[0], err)
			}
		}
	}
}

// TestHelpExamples does so with the examples in the help of each command.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	program, examples := newReader(t), 0
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		for l := range strings.Lines(c.Example) {
			if _, line, ok := strings.Cut(" "+strings.TrimSpace(l), " parley "); ok {
				examples++
				if err := program.reads("parley "+line, true); err != nil {
					t.Errorf("the help of %s: %s: %v", c.CommandPath(), line, err)
				}
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(program.root)
	if examples < 150 {
		t.Errorf("only %d examples", examples)
	}
}

// reader reads command lines as the program does, and does nothing of what they say.
type reader struct{ root *cobra.Command }

func newReader(t *testing.T) reader {
	root := newRootCommand((&pageSession{t: t}).app(io.Discard))
	root.InitDefaultHelpCmd()
	addCompletion(root)
	return reader{root}
}

// reads gives what is wrong with a command line. What a page leaves to its readers is
// one of their choices; one that is not whole is a mention, without its arguments.
func (r reader) reads(line string, whole bool) error {
	for _, end := range []string{" #", " > ", " | ", " &"} {
		line, _, _ = strings.Cut(line, end)
	}
	line = regexp.MustCompile(`\\?\|\S+|\[[^][ ]+( N)?\]|FILTER`).ReplaceAllString(line, "")
	line = regexp.MustCompile(` N\b`).ReplaceAllString(line, " 1")
	c, rest, err := r.root.Traverse(words(line)[1:])
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err != nil {
		return err
	}
	if rest = c.Flags().Args(); c.HasSubCommands() && len(rest) > 0 {
		return runGroup(c, rest)
	}
	if whole {
		return c.ValidateArgs(rest)
	}
	return nil
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
