package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
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
		programs.goOnce.Do(func() { programs.goErr = buildPeers() })
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

// cacheDir is where things are kept from one run to the next, outside of the
// tree.
func cacheDir() (string, error) {
	if dir := os.Getenv("PARLEY_TEST_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep downloads in: %w; set PARLEY_TEST_CACHE to one", err)
	}
	return filepath.Join(dir, "parley-test"), nil
}

// buildPeers builds the programs of cmd. The folder is this checkout's own, so
// that nothing is linked anew when nothing changed.
func buildPeers() error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	programs.goDir = filepath.Join(cache, "interop-go-"+digest([]byte(here)))
	if err := os.MkdirAll(programs.goDir, 0o755); err != nil {
		return err
	}
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", programs.goDir+string(filepath.Separator), "./cmd/...").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build ./cmd/...: %w\n%s", err, out)
	}
	return nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

const installNode = `the interop tests need Node.js 20 or newer, with npm. Install them with
	sudo apt-get install -y nodejs npm
or, where that is older, with nvm (https://github.com/nvm-sh/nvm)
	nvm install 20`

// prepareNode installs the packages once per lock file, and puts our programs
// beside them: Node looks for packages from where a program is.
func prepareNode() error {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: %s", tool, installNode)
		}
	}
	out, err := exec.CommandContext(context.Background(), "node", "-p", "process.versions.node.split('.')[0] >= 20").Output()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		return fmt.Errorf("node is too old (%w): %s", err, installNode)
	}
	packages, err := installPackages()
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

// installPackages returns the folder with the packages of the lock file. It
// installs into a folder of its own and renames it, so that two runs at once
// do no harm.
func installPackages() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	lock, err := os.ReadFile("node/package-lock.json")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "interop-node-"+digest(lock))
	if _, err := os.Stat(dir); err == nil {
		return filepath.Join(dir, "node_modules"), nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	for _, file := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("node", file))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(fresh, file), text, 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(context.Background(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s failed: %w; it needs the npm registry once, and keeps what it got in %s\n%s", fresh, err, cache, out)
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(dir); statErr != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "node_modules"), nil
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
