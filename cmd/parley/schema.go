package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/dryrun"
	"github.com/parley-project/parley/internal/workflow/schemas"
)

// dryRunSchema names the schema of the scripts of dry runs.
const dryRunSchema = "dry-run"

// schemaNames are the documents that have a schema, sorted.
func schemaNames() []string {
	return slices.Sorted(slices.Values(append(schemas.Names(), dryRunSchema)))
}

// schemaNamed gives a schema; ok is false if there is none of that name.
func schemaNamed(name string) (raw []byte, ok bool) {
	if name == dryRunSchema {
		return dryrun.SchemaJSON(), true
	}
	return schemas.Named(name)
}

func newSchemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a document, for editors",
		Long: `Print the JSON Schema (2020-12) of a document that people write; without NAME the
names. An editor with a YAML language server completes and checks a document that
names it in its first line:

  # yaml-language-server: $schema=workflow.schema.json

The schema says what a document is made of. parley workflow validate checks more:
ids, references and expressions.`,
		Example: `  parley schema workflow > workflow.schema.json
  parley schema workflow -o yaml`,
		Args: need("[NAME]"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				if !a.human() {
					return showList(a, listing[string]{whole: schemaNames(), items: schemaNames()})
				}
				_, err := fmt.Fprintln(a.stdout, strings.Join(schemaNames(), "\n"))
				return err
			}
			return a.schema(args[0])
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return schemaNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func (a *app) schema(name string) error {
	raw, ok := schemaNamed(name)
	if !ok {
		f := &failure{
			exit: exitNotFound, code: parley.CodeNotFound,
			text: fmt.Sprintf("there is no schema %q; there is: %s", name, strings.Join(schemaNames(), ", ")),
		}
		if s := didYouMean(name, schemaNames()); s != "" {
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
