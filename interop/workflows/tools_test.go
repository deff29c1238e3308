package workflows

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/interop/internal/install"
)

// tool runs one of node/*.mjs: in goes in and out comes out, as JSON.
func tool[T any](t *testing.T, name string, in any, args ...string) (out T) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	packages, err := install.Node(ctx, "node")
	check(t, err)
	// Node looks for packages from where a program is.
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("node", name))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	check(t, os.Symlink(packages, filepath.Join(dir, "node_modules")))
	b, err := json.Marshal(in)
	check(t, err)
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, name)}, args...)...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(b), &stderr, 5*time.Second
	result, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, stderr.Bytes())
	}
	check(t, json.Unmarshal(result, &out))
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type document struct{ name, text string }

// documents gives the documents of an archive of the project's tests.
func documents(t *testing.T, archive string) (all []document) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "internal", "workflow", filepath.FromSlash(archive)))
	check(t, err)
	var at *document
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(line, " --\n"), "-- "); ok && strings.HasSuffix(line, " --\n") {
			all = append(all, document{name: archive + "/" + name})
			at = &all[len(all)-1]
		} else if at != nil {
			at.text += line
		}
	}
	return all
}

func tree(t *testing.T, text string) *workflow.Value {
	t.Helper()
	v, problems := workflow.ReadTree(workflow.ParseOptions{}, []byte(text))
	if v == nil {
		t.Fatal(problems)
	}
	return v
}
