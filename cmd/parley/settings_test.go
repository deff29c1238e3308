package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestSettingsInHelp: the flag of a setting is shown with its whole help, and takes a
// string: what the help quotes for the page of operations is no name of the value.
func TestSettingsInHelp(t *testing.T) {
	t.Parallel()
	cmd := newServeCommand(&app{stdout: io.Discard, stderr: io.Discard})
	seen := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(f.Name, ".") {
			return
		}
		seen++
		if name, help := pflag.UnquoteUsage(f); name != "string" || strings.Contains(help, "`") {
			t.Errorf("--%s %s  %s", f.Name, name, help)
		}
	})
	if seen < 100 {
		t.Errorf("%d settings have a flag", seen)
	}
}
