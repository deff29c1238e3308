package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newWorkflowAlias(a *app) *cobra.Command {
	var remove bool
	var p client.PageQuery
	cmd := &cobra.Command{
		Use:   "alias WORKFLOW [ALIAS] [VERSION]",
		Short: "List the aliases of a workflow, or make one stand for a version",
		Long: `Without ALIAS the aliases of a workflow are listed. With ALIAS and VERSION the
alias is made to stand for that version, or moved to it; VERSION may be another
alias, whose version it gets. With --remove the alias goes.

An alias moves new runs only: runs stay on the version that they were started
on. A start that names no version takes the alias stable, if there is one, else
the newest version that is not deprecated. Who did what and when is in the audit
record (GET /api/v1/audit).`,
		Example: `  parley workflow alias order
  parley workflow alias order stable 3
  parley workflow alias order beta --remove
  parley run start order@beta --wait`,
		Args: need("WORKFLOW", "[ALIAS]", "[VERSION]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case remove && len(args) != 2:
				return usagef("--remove goes with WORKFLOW and ALIAS").withHint("parley workflow alias WORKFLOW ALIAS --remove")
			case len(args) == 2 && !remove:
				return usagef("VERSION is missing").withHint("parley workflow alias %s %s VERSION, or --remove", args[0], args[1])
			}
			if err := checkPage(p); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := a.workflowAlias(cmd.Context(), c, args, p); err != nil {
				return a.nearMiss(cmd.Context(), c, err, workflowHint(args[0]))
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the alias")
	pageFlags(cmd.Flags(), &p)
	return cmd
}

func (a *app) workflowAlias(ctx context.Context, c *client.Client, args []string, p client.PageQuery) error {
	switch len(args) {
	case 1:
		return a.listAliases(ctx, c, args[0], p)
	case 2:
		if err := c.RemoveAlias(ctx, parley.AliasRequest{Workflow: args[0], Alias: args[1]}); err != nil {
			return err
		}
		return a.said(message{args[0] + "@" + args[1], "removed"})
	}
	set, err := c.SetAlias(ctx, parley.AliasRequest{Workflow: args[0], Alias: args[1], Version: args[2]})
	if err != nil {
		return err
	}
	if err := a.show(set, func(s *sheet) { drawTable(s, a.aliasColumns(), []parley.WorkflowAlias{set.WorkflowAlias}) }); err != nil {
		return err
	}
	a.next("parley workflow show %s@%s", set.Workflow, set.Alias)
	return nil
}

func (a *app) listAliases(ctx context.Context, c *client.Client, ref string, p client.PageQuery) error {
	page, err := c.Aliases(ctx, ref, p)
	if err != nil {
		return err
	}
	if err := showList(a, listing[parley.WorkflowAlias]{
		whole: page, items: page.Items, columns: a.aliasColumns(),
		none: fmt.Sprintf("no aliases; set one: parley workflow alias %s stable VERSION", ref),
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "alias"})
	if len(page.Items) > 0 {
		a.next("parley workflow show %s@%s", page.Items[0].Workflow, page.Items[0].Alias)
	}
	return nil
}

func (a *app) aliasColumns() []column[parley.WorkflowAlias] {
	return []column[parley.WorkflowAlias]{
		{head: "WORKFLOW", cell: plain(func(x parley.WorkflowAlias) string { return x.Workflow })},
		{head: "ALIAS", cell: plain(func(x parley.WorkflowAlias) string { return x.Alias })},
		{head: "VERSION", fixed: true, cell: plain(func(x parley.WorkflowAlias) string { return x.Version })},
		{head: "CHANGED", fixed: true, cell: plain(func(x parley.WorkflowAlias) string { return a.when(&x.UpdatedAt) })},
		{head: "BY", fixed: true, cell: plain(func(x parley.WorkflowAlias) string { return x.UpdatedBy })},
		{head: "CREATED", fixed: true, wide: true, cell: plain(func(x parley.WorkflowAlias) string { return a.when(&x.CreatedAt) })},
		{head: "ID", fixed: true, wide: true, cell: plain(func(x parley.WorkflowAlias) string { return x.DefinitionID })},
	}
}

func newWorkflowDeprecate(a *app) *cobra.Command {
	var req parley.DeprecateRequest
	cmd := &cobra.Command{
		Use:   "deprecate WORKFLOW@VERSION",
		Short: "Let a version of a workflow take no new runs any more",
		Long: `Let a version of a workflow take no new runs any more: a start of it is refused,
and one that names no version takes another. Runs that are under way go on, and
can be retried. A version that an alias stands for cannot be deprecated: move the
alias first. With --undo the version takes new runs again.`,
		Example: `  parley workflow deprecate order@2 --reason "wrong tax"
  parley workflow deprecate order@2 --undo
  parley workflow versions order`,
		Args: need("WORKFLOW@VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Undo && req.Reason != "" {
				return usagef("--reason says why a version is deprecated: it does not go with --undo")
			}
			req.Ref = args[0]
			c, err := a.connect()
			if err != nil {
				return err
			}
			v, err := c.Deprecate(cmd.Context(), req)
			if err != nil {
				name, _, _ := strings.Cut(args[0], "@")
				return a.nearMiss(cmd.Context(), c, err, workflowHint(name))
			}
			if err := a.show(v, func(s *sheet) { a.drawWorkflow(s, v) }); err != nil {
				return err
			}
			a.next("parley workflow versions %s", v.Workflow)
			return nil
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "shown to who starts it, at most 500 characters")
	cmd.Flags().BoolVar(&req.Undo, "undo", false, "let it take new runs again")
	return cmd
}

// takesRuns reports whether runs of a version can be started.
func takesRuns(v parley.WorkflowVersion) bool {
	return v.Status == parley.AgentActive && v.Deprecated == nil
}

// standing says what a version is worth to new runs.
func standing(v parley.WorkflowVersion) cell {
	if v.Deprecated != nil && v.Status == parley.AgentActive {
		return cell{"deprecated", styleWarn}
	}
	return cell{string(v.Status), inkOf(string(v.Status))}
}
