package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRootCommand builds the tree of commands.
func newRootCommand(a *app) *cobra.Command {
	root := newGroup("parley", "Durable workflows across AI agents that other people operate", `
  parley workflow apply hello.yaml
  parley run start hello --set name=Ada --wait
  parley run list --status FAILED`)
	root.Long = "Parley runs durable workflows across AI agents that other people operate."
	root.AddCommand(
		newDevCommand(a), newServeCommand(a), newZoneCommand(a), newRunCommand(a), newWorkflowCommand(a), newAgentCommand(a), newDLQCommand(a), newApprovalCommand(a), newEventCommand(a), newScheduleCommand(a),
		newImportCommand(a), newMigrateCommand(a), newBackupCommand(a), newArchiveCommand(a), newTopicsCommand(a), newDoctorCommand(a), newConfigCommand(a),
		newRPCCommand(a), newMockAgentCommand(a), newAPICommand(a), newErrorsCommand(a), newKeyCommand(a), newSchemaCommand(a), newVersionCommand(a), newOpenCommand(), newExitCodesTopic(),
	)
	root.SetHelpCommand(newHelpCommand(root))

	f := root.PersistentFlags()
	f.StringVarP(&a.flags.output, "output", "o", "table", "table, wide, json, jsonl or yaml")
	f.StringVar(&a.flags.url, "url", "", "base URL of the server (PARLEY_URL)")
	f.StringVar(&a.flags.key, "key", "", "key: env:NAME, file:PATH or the key itself (PARLEY_KEY)")
	f.StringVar(&a.flags.context, "context", "", "entry of ~/.config/parley/contexts.yaml with url and key")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "only data and errors")
	f.BoolVar(&a.flags.noColor, "no-color", false, "no colours (NO_COLOR)")
	complete(root, "output", formats()...)

	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.checkFlags(cmd) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s", flagText(err)).withHint("%s --help", cmd.CommandPath())
	})
	root.SilenceErrors, root.SilenceUsage = true, true
	// Before the command a flag is that of every command, even if the command has one
	// of the same name (--key of an event).
	root.TraverseChildren = true
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate(helpTemplate)
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

// flagText says what is wrong with a flag, without the names of Go's parsers.
func flagText(err error) string {
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	wrong := map[string]string{
		"bool": "it must be true or false", "duration": "it must be a duration such as 500ms, 30s or 1m30s", "float64": "it must be a number",
		"int": "it must be a whole number", "int64": "it must be a whole number", "uint64": "it must be a whole number, not below 0",
	}[e.GetFlag().Value.Type()]
	own, isOwn := errors.AsType[*failure](err)
	switch {
	case isOwn && e.GetFlag().Hidden: // an argument that only looks like a flag
		return own.text
	case isOwn:
		wrong = own.text
	case wrong == "":
		return err.Error()
	case errors.Is(err, strconv.ErrRange):
		wrong = "it is too large"
	}
	return fmt.Sprintf("--%s %s: %s", e.GetFlag().Name, e.GetValue(), wrong)
}

// addCompletion adds the command that completes for shells, which keeps the output
// that root has now, and lets it complain about a shell that it does not know.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args, c.RunE = cobra.ArbitraryArgs, runGroup
		for _, shell := range c.Commands() {
			shell.Args = need()
		}
	}
}

// checkFlags refuses what no command can do anything with.
func (a *app) checkFlags(cmd *cobra.Command) error {
	if !isFormat(a.flags.output) {
		u := usagef("-o %s: the formats are %s", a.flags.output, strings.Join(formats(), ", "))
		return u.withHint("%s", didYouMean(a.flags.output, formats()))
	}
	// Else a command for another server would be one for that of this folder.
	if err := refuseUnset(cmd.Root().PersistentFlags(), "url", "key", "context"); err != nil {
		return err
	}
	if a.flags.context != "" && (a.flags.url != "" || cmd.Flags().Changed("url")) {
		return usagef("--context and --url exclude each other: a context names the URL")
	}
	return nil
}

// newGroup makes a command that only holds others.
func newGroup(use, short, examples string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: strings.TrimPrefix(examples, "\n"),
		// An unknown command is what to complain about, not its flags.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		Args:               cobra.ArbitraryArgs,
		RunE:               runGroup,
	}
}

func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if !c.Hidden {
			names = append(append(names, c.Name()), c.SuggestFor...)
		}
	}
	u := usagef("unknown command %q of %s", name, parent.CommandPath())
	if s := didYouMean(name, names); s != "" {
		return u.withHint("%s", s)
	}
	return u.withHint("%s --help", parent.CommandPath())
}

// newHelpCommand replaces cobra's, which says "unknown" and succeeds.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND | exit-codes]", Short: "Help about a command or a topic",
		Example: "  parley help run start\n  parley help exit-codes",
		RunE: func(_ *cobra.Command, args []string) error {
			at := root
			for _, name := range args {
				next := child(at, name)
				if next == nil {
					return unknownCommand(at, name)
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range root.Commands() {
				if !c.Hidden {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func child(parent *cobra.Command, name string) *cobra.Command {
	for _, c := range parent.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp}
}

// need checks the number of arguments and names those that are missing. A
// name in brackets may be left out; one that ends with "..." may be repeated.
func need(names ...string) cobra.PositionalArgs {
	least, most := 0, len(names)
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			least++
		}
		if strings.HasSuffix(n, "...") {
			most = -1
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing", strings.TrimSuffix(names[len(args)], "...")).withHint("%s", useLine(cmd))
		case most >= 0 && len(args) > most:
			return usagef("%q is one argument too many", args[most]).withHint("%s", useLine(cmd))
		}
		return nil
	}
}

func useLine(cmd *cobra.Command) string {
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

// complete offers fixed values for a flag. A flag that is not there is an
// error of ours, which every test of the help text meets.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(fmt.Sprintf("flag %s: %v", flag, err))
	}
}

// neverEmpty lets a command refuse flags that were given without a value, such as that
// of a variable that is not set: it would do another thing than was meant, as if they
// had been left out.
func neverEmpty(cmd *cobra.Command, flags ...string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return refuseUnset(cmd.Flags(), flags...) }
}

func refuseUnset(set *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if unset(set.Lookup(name)) {
			return usagef("--%s is empty: give it a value, or leave it out", name)
		}
	}
	return nil
}

// unset reports whether a flag was given without a value, be it a list.
func unset(f *pflag.Flag) bool {
	return f.Changed && (f.Value.String() == "" || f.Value.String() == "[]")
}

// The help of a command begins with examples: they are what people look for.
const helpTemplate = `{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

const usageTemplate = `{{if .HasExample}}Examples:
{{.Example | trimTrailingWhitespaces}}

{{end}}Usage:{{if and .Runnable (not .HasAvailableSubCommands)}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
`
