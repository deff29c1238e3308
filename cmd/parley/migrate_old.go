package main

import (
	"github.com/spf13/cobra"

	"github.com/parley-project/parley/internal/oldplatform"
)

// newMigrateOldCommand makes `parley migrate old`: the protocol columns of the
// existing platform's database (AD-6).
func newMigrateOldCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "old POSTGRES-URL up|down", Short: "Add or remove the protocol columns in the existing platform's database",
		Long: `Adds the columns protocol (simple-a2a for every agent there) and protocol_config to the table agents of the existing
platform, and an index, or removes them. Its API and its bridge go on working meanwhile and afterwards; no row is lost; it
may be repeated. POSTGRES-URL is its DATABASE_URL, or env:NAME or file:PATH of it.

down drops what the columns hold, and says how much that is. It does not ask.`,
		Example: `  parley migrate old postgresql://user@host/workflows up
  parley migrate old env:DATABASE_URL down`,
		Args: need("POSTGRES-URL", "up|down"),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := a.address(args[0])
			if err != nil {
				return err
			}
			o := oldplatform.MigrateOptions{Address: address, Tell: func(text string) { a.note("%s", text) }}
			switch args[1] {
			case "up":
				return oldplatform.MigrateUp(cmd.Context(), o)
			case "down":
				return oldplatform.MigrateDown(cmd.Context(), o)
			}
			return usagef("%q is neither up nor down", args[1]).withHint("%s", useLine(cmd))
		},
	}
}
