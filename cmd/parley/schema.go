package main

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley/internal/workflow/schemas"
)

func newSchemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema NAME",
		Short: "Print the JSON Schema of a document, for editors",
		Long: `Print the JSON Schema (2020-12) of a document that people write. There is one of
workflows. An editor with a YAML language server completes and checks a document
that names it in its first line:

  # yaml-language-server: $schema=workflow.schema.json

The schema says what a document is made of. parley workflow validate checks more:
ids, references and expressions.`,
		Example: `  parley schema workflow > workflow.schema.json
  parley schema workflow -o yaml`,
		Args: need("NAME"),
		RunE: func(_ *cobra.Command, args []string) error { return a.schema(args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return schemas.Names(), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func (a *app) schema(name string) error {
	raw, ok := schemas.Named(name)
	if !ok {
		f := &failure{exit: exitNotFound, code: "not_found", text: "there is no schema of that name; there is: " + strings.Join(schemas.Names(), ", ")}
		if s := didYouMean(name, schemas.Names()); s != "" {
			return f.withHint("%s", s)
		}
		return f
	}
	if a.human() || a.flags.output == "json" {
		_, err := a.stdout.Write(raw)
		return err
	}
	return a.data(json.RawMessage(raw))
}
