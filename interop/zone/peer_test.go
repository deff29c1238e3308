package zone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/interop/internal/install"
	"github.com/parley-project/parley/interop/internal/tail"
)

// The programs that serve.
const (
	runtimePython = "runtime.py"
	runtimeNode   = "runtime.mjs"
	library       = "library.py"
	issuer        = "issuer.mjs"
)

// program gives the command of a program, without arguments.
func program(ctx context.Context, t *testing.T, name string) *exec.Cmd {
	t.Helper()
	if strings.HasSuffix(name, ".mjs") {
		packages, err := install.Node(ctx, "node")
		check(t, err)
		// Node looks for packages from where a program is.
		dir := t.TempDir()
		text, err := os.ReadFile(filepath.Join("node", name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		check(t, os.Symlink(packages, filepath.Join(dir, "node_modules")))
		cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, name))
		cmd.Env = os.Environ()
		return cmd
	}
	packages, err := install.Python(ctx, filepath.Join("python", "requirements.txt"))
	check(t, err)
	cmd := exec.CommandContext(ctx, "python3", "-u", filepath.Join("python", name))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore")
	return cmd
}

// setup is how a program is started.
type setup struct{ args, env []string }

// serve starts a program that serves, until the end of the test, and gives where.
func serve(t *testing.T, name string, s setup) (address string) {
	t.Helper()
	for n := 1; ; n++ {
		address, err := serveOnce(t, name, s)
		if err == nil {
			return address
		}
		if n == 5 { // its port may be another's
			t.Fatal(err)
		}
	}
}

// nextPort gives each of the tests' programs another port: two that start at a time must
// not take each other's. It is below those ports that systems give to whoever asks for
// any, so that nobody gets it while the program starts.
var nextPort = func() func() int {
	var given atomic.Int64
	first := rand.Int64N(20_000)
	return func() int { return 10_000 + int((first+given.Add(1))%20_000) }
}()

func serveOnce(t *testing.T, name string, s setup) (string, error) {
	t.Helper()
	port := strconv.Itoa(nextPort())
	address := net.JoinHostPort("127.0.0.1", port)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	check(t, l.Close())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := program(ctx, t, name)
	cmd.Args = append(append(cmd.Args, port), s.args...)
	cmd.Env = append(cmd.Env, s.env...)
	complaints := &tail.Writer{}
	cmd.Stdout, cmd.Stderr = complaints, complaints
	_, err = cmd.StdinPipe() // its end is that of the program
	check(t, err)
	check(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, complaints)
		}
	})
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		if c, err := net.Dial("tcp", address); err == nil {
			return address, c.Close()
		}
		select {
		case <-ended:
			return "", fmt.Errorf("%s has ended:\n%s", name, complaints)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return "", fmt.Errorf("%s does not serve:\n%s", name, complaints)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// class gives the class of an error, "" for one that has none.
func class(err error) zone.Class {
	if f, ok := errors.AsType[*zone.TransportError](err); ok {
		return f.Class
	}
	return ""
}
