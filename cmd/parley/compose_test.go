package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley/internal/config"
)

// composeService is what the test reads of deploy/compose.yaml.
type composeService struct {
	Environment map[string]string `yaml:"environment"`
	Command     []string          `yaml:"command"`
	Entrypoint  []string          `yaml:"entrypoint"`
	DependsOn   map[string]any    `yaml:"depends_on"`
	Volumes     []string          `yaml:"volumes"`
	Image       string            `yaml:"image"`
	Build       any               `yaml:"build"`
	PullPolicy  string            `yaml:"pull_policy"`
	StopGrace   string            `yaml:"stop_grace_period"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
}

// TestComposeFile holds deploy/compose.yaml to what the program takes: every
// service is a command line whose settings are read without a complaint, every
// role runs, and what a service waits for is there.
func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]composeService `yaml:"services"`
		Volumes  map[string]any            `yaml:"volumes"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var roles, builders []string
	for name, s := range file.Services {
		for other := range s.DependsOn {
			if _, ok := file.Services[other]; !ok {
				t.Errorf("%s waits for %s, which is no service", name, other)
			}
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[volume]; !ok {
				t.Errorf("%s uses the volume %s, which is not declared", name, volume)
			}
		}
		if s.Image != "parley" {
			continue
		}
		if s.Build != nil {
			builders = append(builders, name)
		} else if s.PullPolicy != "never" {
			t.Errorf("%s would look for the image in a registry", name)
		}
		lines := [][]string{s.Command}
		if len(s.Entrypoint) > 0 {
			lines = nil
			for line := range strings.SplitSeq(s.Entrypoint[len(s.Entrypoint)-1], "&&") {
				lines = append(lines, strings.Fields(line)[1:])
			}
		}
		for _, args := range lines {
			l := composeSettings(t, s.Environment, args)
			if l == nil {
				t.Errorf("%s: %v is no command line", name, args)
				continue
			}
			if l.Bus.Kind != config.BusKafka || l.Database.URL.IsZero() || l.Auth.Key.IsZero() || len(l.Notes) > 0 {
				t.Errorf("%s: bus %s, notes %v", name, l.Bus.Kind, l.Notes)
			}
			if args[0] == "serve" {
				roles = append(roles, l.Roles...)
				// docs/operations.md, "Stopping, crashes, restarts"; without it, it is 10 s.
				if grace, err := time.ParseDuration(s.StopGrace); err != nil || grace <= 2*l.Limits.DrainGrace+5*time.Second {
					t.Errorf("%s is killed after %q: stopping may take longer", name, s.StopGrace)
				}
			}
		}
	}
	// Builds of one name at the same time end each other: "already exists".
	if len(builders) != 1 {
		t.Errorf("%v build the image, one has to", builders)
	}
	// While the image makes its database, a server answers that nobody else reaches:
	// by its socket, and not by TCP.
	if ready := file.Services["postgres"].Healthcheck.Test; !slices.Contains(ready, "-h") {
		t.Errorf("%q tells of the server that makes the database, too", ready)
	}
	slices.Sort(roles)
	if want := []string{config.RoleAPI, config.RoleBridge, config.RoleExecutor}; !slices.Equal(roles, want) {
		t.Errorf("the services run the roles %v, want %v", roles, want)
	}
}

// composeSettings reads the settings as the command would.
func composeSettings(t *testing.T, env map[string]string, args []string) *config.Loaded {
	t.Helper()
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, dir: t.TempDir(), now: time.Now, zone: time.UTC, terminal: func(io.Writer) (int, bool) { return 0, false }}
	for name, value := range env {
		if value, ok := strings.CutPrefix(value, "${PARLEY_ADMIN_KEY:-"); ok {
			a.env = append(a.env, name+"="+strings.TrimSuffix(value, "}"))
			continue
		}
		a.env = append(a.env, name+"="+value)
	}
	root := newRootCommand(a)
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasFlags() {
		return nil
	}
	var loaded *config.Loaded
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err = (&settingFlags{cmd: cmd}).load(a)
		return err
	}
	root.SetArgs(args)
	if err := errors.Join(root.ExecuteContext(context.Background()), err); err != nil {
		t.Errorf("%v %v: %v", args, rest, err)
	}
	return loaded
}

// TestBuildContext: the build of the image is not given the history, and everything that
// the program is made of.
func TestBuildContext(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Fields(string(text))
	if !slices.Contains(left, ".git") {
		t.Error(".git is given to the build")
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.Lines(string(out)) {
		in, err := filepath.Rel(base, strings.TrimSpace(dir))
		first, _, _ := strings.Cut(filepath.ToSlash(in), "/")
		if err == nil && first != ".." && slices.Contains(left, first) {
			t.Errorf("%s is left out, but the program is made of %s", first, in)
		}
	}
}
