package main

import "github.com/spf13/cobra"

// newOpenCommand keeps the name of the command that opens the web console, which this
// version does not have: whoever types it is told where to look instead.
func newOpenCommand() *cobra.Command {
	return &cobra.Command{
		Use: "open [RUN]", Hidden: true,
		Short: "Say where to look instead of a web console",
		Args:  need("[RUN]"),
		RunE: func(_ *cobra.Command, args []string) error {
			f := usagef("this version has no web console that could be opened")
			if len(args) == 0 {
				return f.withHint("look at runs here: parley run list, then parley run show RUN")
			}
			run := shellWord(args[0])
			return f.withHint("look at the run here: parley run show %s, or while it runs parley run watch %s", run, run)
		},
	}
}
