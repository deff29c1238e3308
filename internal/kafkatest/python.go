package kafkatest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/parley-project/parley/internal/testcache"
)

// requirements name the client of the existing platform (formats.md); newer
// Pythons need a newer one.
const requirements = `kafka-python==2.0.2; python_version < "3.12"
kafka-python==2.2.15; python_version >= "3.12"
`

const installPython = `tests with the existing platform's Kafka client need Python 3.10 or newer, with pip. Install them with
	sudo apt-get install -y python3 python3-pip`

// Python gives a command that runs a Python program with kafka-python, the
// client of the existing platform, which knows nothing of ours. The library is
// fetched once and kept where the brokers are. With -short the test is skipped.
func Python(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	NeedServer(tb)
	dir, err := pythonLibrary(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func pythonLibrary(ctx context.Context) (string, error) {
	version, err := exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.implementation.cache_tag)").Output()
	if err != nil {
		return "", fmt.Errorf("python3: %w: %s", err, installPython)
	}
	if err := exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Run(); err != nil {
		return "", fmt.Errorf("pip: %w: %s", err, installPython)
	}
	return testcache.Once("kafka-python-"+testcache.Digest(append(version, requirements...)), func(fresh string) error {
		list := filepath.Join(fresh, "requirements.txt")
		if err := os.WriteFile(list, []byte(requirements), 0o600); err != nil {
			return err
		}
		pip := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
			"--root-user-action=ignore", "--target", fresh, "--requirement", list)
		if out, err := pip.CombinedOutput(); err != nil {
			return fmt.Errorf("pip: %w; it needs the Python package index once, and what it gets is kept\n%s", err, out)
		}
		return nil
	})
}
