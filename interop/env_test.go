package interop

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/interop/internal/install"
)

// oursEnv makes the test binary our own server on its standard input and
// output, for clients that start their servers themselves.
const oursEnv = "PARLEY_INTEROP_SERVE"

func TestMain(m *testing.M) {
	if what := os.Getenv(oursEnv); what != "" {
		os.Exit(serveStdio(what))
	}
	programs.slots = make(chan struct{}, 4)
	code := m.Run()
	if dir := programs.dir; dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// programs is where the peers' programs are, made by the first test that needs
// one; the process has them once, like the folders they stand for.
var programs struct {
	goOnce, nodeOnce sync.Once
	slots            chan struct{} // one taken by each test that runs programs
	goErr, nodeErr   error
	goDir            string // with the programs of cmd
	dir              string // with copies of node/*.mjs and their packages
}

// command returns a command that runs a peer's program, one of cmd or one of
// node, and ends it with the test.
func command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	if strings.HasSuffix(program, ".mjs") {
		programs.nodeOnce.Do(func() { programs.nodeErr = prepareNode() })
		if programs.nodeErr != nil {
			t.Fatal(programs.nodeErr)
		}
		args = append([]string{filepath.Join(programs.dir, program)}, args...)
		program = "node"
	} else {
		programs.goOnce.Do(func() { programs.goDir, programs.goErr = install.Go(context.Background(), "./cmd/...") })
		if programs.goErr != nil {
			t.Fatal(programs.goErr)
		}
		program = filepath.Join(programs.goDir, program)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// parallel lets a test run beside a few others: more would only wait for the
// processors until their timeouts.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	programs.slots <- struct{}{}
	t.Cleanup(func() { <-programs.slots })
}

// prepareNode puts our programs beside their packages: Node looks for packages
// from where a program is.
func prepareNode() error {
	packages, err := install.Node(context.Background(), "node")
	if err != nil {
		return err
	}
	if programs.dir, err = os.MkdirTemp("", "interop-node-"); err != nil {
		return err
	}
	files, err := filepath.Glob("node/*.mjs")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(programs.dir, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return os.Symlink(packages, filepath.Join(programs.dir, "node_modules"))
}

// A record is what a program wrote on its standard error. A data race in our
// own server is found there too.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// recorded records the standard error of cmd, and shows it when the test
// failed.
func recorded(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	r := new(record)
	cmd.Stderr = r
	t.Cleanup(func() {
		text := r.String()
		if strings.Contains(text, "DATA RACE") {
			t.Error("a data race in our server")
		}
		if t.Failed() && text != "" {
			t.Logf("%s wrote on standard error:\n%s", filepath.Base(cmd.Path), text)
		}
	})
}
