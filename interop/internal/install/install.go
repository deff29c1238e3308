// Package install gets what the peers' programs are made with, once, and keeps
// it in the folder of package testcache.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/parley-project/parley/internal/testcache"
)

// Go builds the programs that pattern names, from the working folder. The folder
// that it gives belongs to this checkout, so that nothing is linked anew when
// nothing changed.
func Go(ctx context.Context, pattern string) (string, error) {
	cache, err := testcache.Folder()
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "interop-go-"+testcache.Digest([]byte(here)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, run(ctx, command{name: "go", args: []string{"build", "-o", dir + string(filepath.Separator), pattern}})
}

// GoProgram gives the folder with a program of somebody else's module, built from
// that version of its source.
func GoProgram(ctx context.Context, pkg, version string) (string, error) {
	at := pkg + "@" + version
	return testcache.Once("interop-program-"+testcache.Digest([]byte(at)), func(fresh string) error {
		return run(ctx, command{
			name: "go", args: []string{"install", at}, env: []string{"GOBIN=" + fresh, "GOFLAGS=-mod=mod", "CGO_ENABLED=0"}, dir: fresh, needs: "a Go module proxy",
		})
	})
}

const installNode = `the interop tests need Node.js 20 or newer, with npm. Install them with
	sudo apt-get install -y nodejs npm
or, where that is older, with nvm (https://github.com/nvm-sh/nvm)
	nvm install 20`

// Node gives the node_modules folder of the lock file in dir.
func Node(ctx context.Context, dir string) (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is missing: %s", tool, installNode)
		}
	}
	out, err := exec.CommandContext(ctx, "node", "-p", "process.versions.node.split('.')[0] >= 20").Output()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		return "", fmt.Errorf("node is too old (%w): %s", err, installNode)
	}
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	made, err := testcache.Once("interop-node-"+testcache.Digest(lock), func(fresh string) error {
		for _, file := range []string{"package.json", "package-lock.json"} {
			if err := copyFile(filepath.Join(fresh, file), filepath.Join(dir, file)); err != nil {
				return err
			}
		}
		return run(ctx, command{
			name: "npm", args: []string{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, dir: fresh,
			needs: "the npm registry",
		})
	})
	return filepath.Join(made, "node_modules"), err
}

const installPython = `the interop tests need Python 3.10 or newer, with pip. Install them with
	sudo apt-get install -y python3 python3-pip`

// Python gives a folder with the packages of a requirements file, for
// PYTHONPATH.
func Python(ctx context.Context, requirements string) (string, error) {
	const version = "import sys; print(sys.implementation.cache_tag); sys.exit(sys.version_info < (3, 10))"
	tag, err := exec.CommandContext(ctx, "python3", "-c", version).Output()
	if err != nil {
		return "", fmt.Errorf("python3 is missing or too old (%w): %s", err, installPython)
	}
	if err := exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Run(); err != nil {
		return "", fmt.Errorf("pip is missing (%w): %s", err, installPython)
	}
	text, err := os.ReadFile(requirements)
	if err != nil {
		return "", err
	}
	return testcache.Once("interop-python-"+testcache.Digest(append(tag, text...)), func(fresh string) error {
		return run(ctx, command{
			name: "python3", needs: "the Python package index", args: []string{
				"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
				"--target", fresh, "--requirement", requirements,
			},
		})
	})
}

const installJava = `the interop tests need a JDK, 17 or newer, and Maven. Install them with
	sudo apt-get install -y openjdk-17-jdk-headless maven`

// Maven gives target/quarkus-app of the project in dir.
func Maven(ctx context.Context, dir string) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is missing: %s", tool, installJava)
		}
	}
	cache, err := testcache.Folder()
	if err != nil {
		return "", err
	}
	sources, err := texts(dir)
	if err != nil {
		return "", err
	}
	return testcache.Once("interop-java-"+testcache.Digest(sources), func(fresh string) error {
		project := filepath.Join(fresh, "project")
		if err := os.CopyFS(project, os.DirFS(dir)); err != nil {
			return err
		}
		err := run(ctx, command{
			name: "mvn", dir: project, needs: "a Maven repository",
			args: []string{"-q", "-B", "-ntp", "-Dmaven.repo.local=" + filepath.Join(cache, "maven"), "package"},
		})
		if err != nil {
			return err
		}
		app := filepath.Join(project, "target", "quarkus-app")
		entries, err := os.ReadDir(app)
		for _, e := range entries {
			err = errors.Join(err, os.Rename(filepath.Join(app, e.Name()), filepath.Join(fresh, e.Name())))
		}
		return errors.Join(err, os.RemoveAll(project))
	})
}

// texts is all the files below dir with their names.
func texts(dir string) ([]byte, error) {
	var all []byte
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(append(append(all, path...), 0), text...)
		return err
	})
	return all, err
}

type command struct {
	name  string
	args  []string
	dir   string
	env   []string
	needs string
}

func run(ctx context.Context, c command) error {
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Dir = c.dir
	if len(c.env) > 0 {
		cmd.Env = append(os.Environ(), c.env...)
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	line := c.name + " " + strings.Join(c.args, " ")
	if c.needs != "" {
		return fmt.Errorf("%s: %w; it needs %s once, and what it gets is kept\n%s", line, err, c.needs, out)
	}
	return fmt.Errorf("%s: %w\n%s", line, err, out)
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
