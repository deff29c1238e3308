package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/convert"
	"github.com/parley-project/parley/internal/workflow/difference"
)

func newWorkflowDiff(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare two versions of a workflow, step by step",
		Long: `Compare two versions of a workflow: files, or WORKFLOW@VERSION of the server. Steps
are told apart by their ids; what was added, removed, moved and changed is listed,
member by member. A list and a plan are compared in list form. The last line says
whether runs of the old version can be rerun with the new one: every step must be
there, with its kind.

The exit code is 0 if there is no difference and 1 if there is one; otherwise it is
as for every command: 2 for a file that cannot be read, 3 for a version that is not
there, 8 if the server cannot be reached.`,
		Example: `  parley workflow diff story.yaml story2.yaml
  parley workflow diff story@1 story@2
  parley workflow diff story@2 story.yaml -o json`,
		Args: need("OLD", "NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.workflowDiff(cmd.Context(), args[0], args[1])
		},
		ValidArgsFunction: a.completeDocuments(workflowNames),
	}
}

// compared is a difference and what was compared.
type compared struct {
	Old string `json:"old"`
	New string `json:"new"`
	difference.Difference
}

func (a *app) workflowDiff(ctx context.Context, before, after string) error {
	if err := checkFiles([]string{before, after}); err != nil {
		return err
	}
	older, err := a.document(ctx, before)
	if err != nil {
		return err
	}
	newer, err := a.document(ctx, after)
	if err != nil {
		return err
	}
	if older.tree.Form() != newer.tree.Form() {
		for _, d := range []*document{&older, &newer} {
			if err := a.listed(d); err != nil {
				return err
			}
		}
	}
	x := compared{older.name, newer.name, difference.Of(older.tree, newer.tree)}
	if err := a.show(x, func(s *sheet) { a.drawCompared(s, x) }); err != nil {
		return err
	}
	if x.Same {
		return nil
	}
	return &failure{exit: exitFailed, code: "different", text: "they differ", printed: true}
}

// listed puts a document into list form.
func (a *app) listed(d *document) error {
	doc, problems := convert.To(workflow.FormList, d.name, d.source)
	if doc == nil {
		a.problems(problems)
		return invalidf("%s cannot be compared in list form: %s", d.name, plural(errorCount(problems), "finding"))
	}
	d.tree = doc
	return nil
}

func (a *app) drawCompared(s *sheet, x compared) {
	if x.Same {
		a.note("%s and %s do not differ", x.Old, x.New)
		return
	}
	for _, c := range x.Changes {
		mark, style := "~", styleWarn
		switch {
		case c.Member != "":
		case c.Change == difference.Added:
			mark, style = "+", styleGood
		case c.Change == difference.Removed:
			mark, style = "-", styleBad
		case c.Change == difference.Moved:
			mark = ">"
		}
		line := mark + " " + clean(cmp.Or(c.Step, "workflow"))
		if c.Member != "" {
			line += "  " + clean(c.Member)
		}
		s.line(s.ink(style, line) + "  " + clean(changeText(c)))
	}
	if x.Rerun {
		s.line("rerun: a run of " + clean(x.Old) + " can be rerun with " + clean(x.New))
		return
	}
	s.line("rerun: not where one of these steps would be copied")
	for _, l := range x.Lost {
		s.line("  " + clean(l.Step) + ": " + clean(l.Reason))
	}
}

// changeText says what a change is: old -> new, or the one that there is.
func changeText(c difference.Change) string {
	words := func(v json.RawMessage) string {
		var text string
		if c.Member == "" && json.Unmarshal(v, &text) == nil {
			return text
		}
		return string(v)
	}
	switch {
	case c.Member != "" && c.Change == difference.Added:
		return "+ " + words(c.New)
	case c.Member != "" && c.Change == difference.Removed:
		return "- " + words(c.Old)
	}
	var parts []string
	for _, v := range []json.RawMessage{c.Old, c.New} {
		if v != nil {
			parts = append(parts, words(v))
		}
	}
	return strings.Join(parts, " -> ")
}
