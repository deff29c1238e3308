package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/dryrun"
)

// TestTestingExamples: the tests of the examples pass.
func TestTestingExamples(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	scripts, err := filepath.Glob(filepath.Join(root, "examples", "testing", "*.test.yaml"))
	if err != nil || len(scripts) < 2 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, script := range scripts {
		a, out, errs := dryApp(root)
		name := filepath.Join("examples", "testing", filepath.Base(script))
		if code := a.execute(t.Context(), []string{"workflow", "run", "--dry", strings.TrimSuffix(name, ".test.yaml") + ".yaml", "--agents", name}); code != exitDone {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
}

// TestTestingPageCI: the lines for CI pass with the examples in the folders that the
// page has them in.
func TestTestingPageCI(t *testing.T) {
	t.Parallel()
	root, dir := filepath.Join("..", ".."), t.TempDir()
	files, err := filepath.Glob(filepath.Join(root, "examples", "testing", "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := "workflows"
		if strings.HasSuffix(file, ".test.yaml") {
			folder = "tests"
		}
		write(t, dir, folder+"/"+filepath.Base(file), string(text))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "testing-workflows.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^  - run: (.*)$`).FindAllSubmatch(page, -1)
	if len(lines) != 2 {
		t.Fatalf("the page has %d lines for CI", len(lines))
	}
	for _, m := range lines {
		sh := exec.CommandContext(t.Context(), "sh", "-c", `parley() { "$SELF" "$@"; }; `+string(m[1]))
		sh.Dir, sh.Env = dir, append(os.Environ(), "SELF="+self, programVariable+"=1")
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m[1], err, out)
		}
	}
}

// dryApp makes the program as it runs in a folder.
func dryApp(dir string) (a *app, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return &app{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, dir: dir, zone: time.UTC,
		now: func() time.Time { return epoch() }, terminal: func(io.Writer) (int, bool) { return 0, false },
	}, out, errs
}

// TestTestingPage holds docs/testing-workflows.md to what is true: its scripts can
// be played, its first command line passes every test of the example, and the
// members that it explains are those of the schema.
func TestTestingPage(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "testing-workflows.md"))
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(agents:.*?)```").FindAllSubmatch(page, -1) {
		scripts++
		if _, problems := dryrun.Parse("page", block[1]); problems != nil {
			t.Errorf("a script of the page cannot be played: %v", problems)
		}
	}
	if scripts < 2 {
		t.Errorf("the page has %d scripts", scripts)
	}
	lines := regexp.MustCompile("(?m)^(parley workflow run .*)$").FindAllSubmatch(page, -1)
	if len(lines) != 1 {
		t.Fatalf("the page has %d command lines", len(lines))
	}
	for _, m := range lines {
		a, out, errs := dryApp(root)
		if code := a.execute(t.Context(), strings.Fields(string(m[1]))[1:]); code != exitDone || !strings.Contains(errs.String(), "9 tests passed") {
			t.Errorf("%s: exit code %d\n%s%s", m[1], code, out, errs)
		}
	}
	for _, member := range regexp.MustCompile(`(?m)"(talks|times|after|when|ask|silence|unmatched|on_cancel|retry|unknown_agents|within|took|refused|cancel|events|approvals|emits|choice|by|roles|comment|key|id)":`).FindAllSubmatch(dryrun.SchemaJSON(), -1) {
		if !bytes.Contains(page, member[1]) {
			t.Errorf("the page does not say what %s is", member[1])
		}
	}
}
