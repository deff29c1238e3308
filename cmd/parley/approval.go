package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newApprovalCommand(a *app) *cobra.Command {
	cmd := newGroup("approval", "Look at the approvals that wait", `
  parley approval list
  parley approval list --for finance`)
	cmd.AddCommand(newApprovalList(a))
	return cmd
}

func newApprovalList(a *app) *cobra.Command {
	var q client.ApprovalQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the approvals that wait, oldest first",
		Long: `List the approvals that wait, oldest first. parley run show RUN shows one with
its form and the answers so far, parley run answer answers it.`,
		Example: `  parley approval list
  parley approval list --for finance --for ann
  parley approval list --run RUN -o json`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.approvalList(cmd.Context(), q) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&q.For, "for", nil, "only those that this role or user may answer (may be given several times)")
	fl.StringVar(&q.Run, "run", "", "only of this run")
	fl.StringVar(&q.Workflow, "workflow", "", "only of this workflow_id")
	pageFlags(fl, &q.Page)
	neverEmpty(cmd, "for", "run", "workflow")
	return cmd
}

func (a *app) approvalList(ctx context.Context, q client.ApprovalQuery) error {
	if err := checkPage(q.Page); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	page, err := c.Approvals(ctx, q)
	if err != nil {
		return err
	}
	if err := showList(a, listing[parley.ApprovalItem]{
		whole: page, items: page.Items, columns: a.approvalColumns(), none: "no approvals wait",
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "approval"})
	if len(page.Items) > 0 {
		first := page.Items[0]
		a.next("%s", approveCommand(first.Run, first.Step, &first.Approval))
	}
	return nil
}

func (a *app) approvalColumns() []column[parley.ApprovalItem] {
	return []column[parley.ApprovalItem]{
		{head: "RUN", fixed: true, cell: plain(func(i parley.ApprovalItem) string { return i.Run })},
		{head: "STEP", cell: plain(func(i parley.ApprovalItem) string { return i.Step })},
		{head: "TITLE", cell: plain(approvalTitle)},
		{head: "FOR", cell: plain(func(i parley.ApprovalItem) string { return approvers(&i.Approval) })},
		{head: "CHOICES", cell: plain(func(i parley.ApprovalItem) string { return strings.Join(i.Choices, ", ") })},
		{head: "SINCE", cell: plain(func(i parley.ApprovalItem) string { return a.when(&i.CreatedAt) })},
		{head: "WORKFLOW", wide: true, cell: plain(func(i parley.ApprovalItem) string { return i.Workflow })},
		{head: "UNTIL", wide: true, cell: plain(func(i parley.ApprovalItem) string { return a.when(i.Deadline) })},
	}
}

func approvalTitle(i parley.ApprovalItem) string {
	if i.Unreadable {
		return "(cannot be read)"
	}
	return oneLine(i.Title)
}
