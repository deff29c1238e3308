package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what is known about this program.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date,omitempty"`
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func readBuild() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v := info.Main.Version; v != "(devel)" {
			b.Version = cmp.Or(b.Version, v)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			case "vcs.modified":
				b.Changed = s.Value == "true"
			}
		}
	}
	b.Version, b.Commit = cmp.Or(b.Version, "dev"), cmp.Or(b.Commit, "unknown")
	return b
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Example: `  parley version
  parley version -o json`,
		Args: need(),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			return a.show(b, func(s *sheet) {
				commit := b.Commit
				if b.Changed {
					commit += " (changed)"
				}
				s.fields([]field{
					{"parley", cell{text: b.Version}},
					{"commit", cell{text: commit}},
					{"built from", cell{text: b.Date}},
					{"go", cell{text: b.Go}},
					{"os/arch", cell{text: b.OS + "/" + b.Arch}},
				})
			})
		},
	}
}

// buildVersion is the version alone, as servers and clients tell it.
func buildVersion() string { return readBuild().Version }
