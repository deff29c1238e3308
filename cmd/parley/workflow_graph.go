package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/drawing"
	"github.com/parley-project/parley/internal/workflow/outline"
)

func newWorkflowGraph(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "graph FILE | WORKFLOW[@VERSION]",
		Short: "Draw a workflow, for a terminal, Mermaid or Graphviz",
		Long: `Draw a workflow: a document, which need not be valid yet, or one that was
deployed. Without --format it is a text on a terminal, else Mermaid, which many
sites and editors show in Markdown. With -o json it is the outline: the steps,
their lists, and what each one needs.`,
		Example: `  parley workflow graph hello.yaml
  parley workflow graph hello@2 --format mermaid > hello.mmd
  parley workflow graph hello.yaml --format dot | dot -Tsvg > hello.svg`,
		Args: need("FILE or WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.workflowGraph(cmd.Context(), args[0], format)
		},
		ValidArgsFunction: a.completeDocuments(workflowNames),
	}
	cmd.Flags().StringVar(&format, "format", "", "mermaid, dot or text (default: text on a terminal, else mermaid)")
	complete(cmd, "format", drawing.Formats()...)
	return cmd
}

func (a *app) workflowGraph(ctx context.Context, ref, format string) error {
	if format != "" && !slices.Contains(drawing.Formats(), format) {
		return usagef("--format %s: the formats are %s", format, strings.Join(drawing.Formats(), ", ")).
			withHint("%s", didYouMean(format, drawing.Formats()))
	}
	doc, err := a.document(ctx, ref)
	if err != nil {
		return err
	}
	w := outline.Of(doc.tree)
	if !a.human() && format == "" {
		return a.data(w)
	}
	if format == "" {
		format = "mermaid"
		if _, terminal := a.terminal(a.stdout); terminal {
			format = "text"
		}
	}
	drawn, _ := drawing.Draw(w, format)
	if _, err := a.stdout.Write([]byte(drawn)); err != nil {
		return err
	}
	if _, problems := workflow.Parse(workflow.ParseOptions{File: doc.name}, doc.source); doc.local && errorCount(problems) > 0 {
		a.note("%s has %s: parley workflow validate %s", doc.name, plural(len(problems), "finding"), shellWord(doc.name))
	}
	return nil
}

// document is a workflow document, from a file or from the server.
type document struct {
	// name is that of the file, or WORKFLOW@VERSION.
	name string
	// local is set for a file.
	local  bool
	source []byte
	tree   *workflow.Value
}

// document reads what ref names: a file, or a workflow of the server.
func (a *app) document(ctx context.Context, ref string) (document, error) {
	d := document{name: ref, local: a.isFile(ref)}
	if d.local {
		var err error
		if d.name, d.source, err = a.readDocument(ref); err != nil {
			return d, err
		}
	} else {
		c, err := a.connect()
		if err != nil {
			return d, err
		}
		v, err := c.Workflow(ctx, ref)
		if err != nil {
			name, _, _ := strings.Cut(ref, "@")
			return d, a.nearMiss(ctx, c, err, workflowHint(name))
		}
		d.name, d.source = v.Workflow+"@"+v.Version, []byte(v.Source)
	}
	var problems []workflow.Problem
	if d.tree, problems = workflow.ReadTree(workflow.ParseOptions{File: d.name}, d.source); d.tree == nil {
		return d, a.unreadable(d.name, problems)
	}
	if d.tree.Kind != workflow.ObjectValue {
		return d, invalidf("%s is no workflow: it is %s, not an object with name and steps", d.name, d.tree.Kind)
	}
	return d, nil
}

// unreadable says why a document cannot be read.
func (a *app) unreadable(name string, problems []workflow.Problem) error {
	a.problems(problems)
	return invalidf("%s cannot be read", name)
}

// isFile says whether an argument names a file rather than a workflow: it is
// there, or it looks like one.
func (a *app) isFile(ref string) bool {
	if ref == "-" || strings.ContainsAny(ref, `/\`) || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(ref))) {
		return true
	}
	info, err := os.Stat(a.path(ref))
	return err == nil && info.Mode().IsRegular()
}

// problems writes findings for people, where the command has no data but those.
func (a *app) problems(list []workflow.Problem) {
	for _, p := range list {
		fmt.Fprintln(a.stderr, problemLine(p))
	}
}
