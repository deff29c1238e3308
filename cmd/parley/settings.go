package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
)

// settingFlags are --config and a flag for each setting.
type settingFlags struct {
	file string
	cmd  *cobra.Command
}

// maxConfigFile bounds the configuration file, in bytes.
const maxConfigFile = 1 << 20

// addSettings gives a command the flags of all settings, of the same paths.
func addSettings(cmd *cobra.Command) *settingFlags {
	f := &settingFlags{cmd: cmd}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.file, "config", "", "YAML file of settings (PARLEY_CONFIG)")
	for _, s := range config.Settings() {
		help := strings.ReplaceAll(s.Help, "`", "") // else the help names the value by what they are around
		if len(s.Choices) > 0 {
			help += " (" + strings.Join(s.Choices, ", ") + ")"
		}
		if d := s.DefaultText(); d != "" {
			help += " (default " + d + ")"
		}
		flags.String(s.Path, "", help)
	}
	return f
}

// load reads the configuration that the command line, the environment and the
// file make together. What is wrong with it is written at once.
func (f *settingFlags) load(a *app) (*config.Loaded, error) {
	l, err := f.read(a)
	return l, a.refuse(err, "the configuration was refused")
}

// path is the file of settings as it was named, "" for none.
func (f *settingFlags) path(a *app) string { return cmp.Or(f.file, a.getenv("PARLEY_CONFIG")) }

// read is load for who says what is wrong, which is [parley.Problems].
func (f *settingFlags) read(a *app) (*config.Loaded, error) {
	src := config.Sources{
		Env: a.env, Dir: a.dir, Flags: map[string]string{}, Suggest: didYouMean,
		ReadFile: func(path string) ([]byte, error) { return readSmall(path) },
	}
	// Else a server would begin with defaults, and another database than was meant.
	if err := refuseUnset(f.cmd.Flags(), "config"); err != nil {
		return nil, err
	}
	if file := f.path(a); file != "" {
		data, err := readFile(a.path(file), maxConfigFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usagef("there is no file %s", file).withHint("parley config view prints every setting, to begin with")
		}
		if err != nil {
			return nil, usagef("--config: %v", err)
		}
		src.File, src.Data, src.FileDir = file, data, filepath.Dir(a.path(file))
	}
	for _, s := range config.Settings() {
		if flag := f.cmd.Flags().Lookup(s.Path); flag != nil && flag.Changed {
			src.Flags[s.Path] = flag.Value.String()
		}
	}
	return config.Load(src)
}

// refuse writes problems one to a line, as editors read them, and gives what
// ends the program: what was refused, and how many there are.
func (a *app) refuse(err error, what string) error {
	problems, ok := errors.AsType[parley.Problems](err)
	if !ok {
		return err
	}
	for _, p := range problems {
		a.writeProblem(p)
	}
	return invalidf("%s: %s", what, plural(len(problems), "problem"))
}

// exists reports whether there is a file of that name.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
