package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// bulkFlags select many runs in place of one.
type bulkFlags struct {
	runFilter
	all, dry, yes bool
}

// add adds the flags to a command that changes runs.
func (f *bulkFlags) add(cmd *cobra.Command) {
	f.runFilter.add(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "every run that it can be done to")
	fl.BoolVar(&f.dry, "dry-run", false, "only count the runs that are selected")
	fl.BoolVarP(&f.yes, "yes", "y", false, "do it to all that are selected")
}

// many reports whether a command means many runs, and refuses what leaves that
// open.
func (f *bulkFlags) many(cmd *cobra.Command, args []string) (bool, error) {
	filtered := f.all || f.given(cmd)
	switch {
	case len(args) > 0 && filtered:
		return false, usagef("a run and a filter exclude each other").withHint("%s", useLine(cmd))
	case len(args) > 0 && (f.dry || f.yes):
		return false, usagef("--dry-run and --yes are for many runs, with a filter or --all: one that is named needs neither").
			withHint("%s %s", cmd.CommandPath(), shellWord(args[0]))
	case len(args) == 0 && !filtered:
		return false, usagef("RUN, a filter or --all is missing").withHint("%s", useLine(cmd))
	}
	return len(args) == 0, nil
}

// runBulk changes batch after batch of what the flags select, and tells how far it
// has come. Without --yes it only says what it would do.
func (a *app) runBulk(ctx context.Context, f *bulkFlags, action parley.BulkAction, reason string) error {
	if err := f.read(a); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	q := f.query
	req := parley.BulkRequest{Action: action, Reason: reason, DryRun: true, Filter: parley.RunQuery{
		Status: q.Statuses, Workflow: q.Workflow, Version: q.Version, Labels: q.Labels, Text: q.Text, Parent: q.Parent, Paused: q.Paused, Hidden: q.Hidden,
		CreatedAfter: q.CreatedAfter, CreatedBefore: q.CreatedBefore, EndedAfter: q.EndedAfter, EndedBefore: q.EndedBefore,
	}}
	selected, err := c.ChangeRuns(ctx, req, "")
	if err != nil {
		return err
	}
	if f.dry {
		return a.show(selected, func(s *sheet) { drawSelected(s, selected.Selected, selected.First) })
	}
	if !f.yes && selected.Selected > 0 {
		return usagef("%s selected (%s): give --yes to %s all of them", plural(selected.Selected, "run")+" "+isAre(selected.Selected),
			strings.Join(selected.First[:min(3, len(selected.First))], ", ")+map[bool]string{true: " …"}[selected.Selected > 3], action)
	}
	req.DryRun = false
	report, err := a.changeRuns(ctx, c, req, selected.Selected)
	if err != nil {
		return err
	}
	if err := a.show(report, func(s *sheet) { drawBulk(s, report) }); err != nil {
		return err
	}
	if report.Failed > 0 {
		return incompletef("%s could not be changed", plural(report.Failed, "run"))
	}
	return nil
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// changeRuns asks for one batch after the other.
func (a *app) changeRuns(ctx context.Context, c *client.Client, req parley.BulkRequest, selected int) (parley.BulkReport, error) {
	sum, err := c.ChangeRuns(ctx, req, "")
	for next := sum.Next; err == nil && next != ""; {
		a.note("%d of %d done, %d failed", sum.Done, selected, sum.Failed)
		var report parley.BulkReport
		if report, err = c.ChangeRuns(ctx, req, next); err != nil {
			a.note("the others were not changed: type the same command to go on")
			return sum, err
		}
		sum.Done, sum.Failed, next = sum.Done+report.Done, sum.Failed+report.Failed, report.Next
		sum.Results = append(sum.Results, report.Results...)
	}
	sum.Next, sum.Selected = "", 0
	return sum, err
}

func drawBulk(s *sheet, r parley.BulkReport) {
	s.fields([]field{{"Done", cell{text: fmt.Sprint(r.Done)}}, {"Failed", cell{text: fmt.Sprint(r.Failed)}}})
	if len(r.Results) == 0 {
		return
	}
	s.line("")
	columns := []column[parley.BulkResult]{
		{head: "RUN", fixed: true, cell: plain(func(f parley.BulkResult) string { return f.Run })},
		{head: "STATUS", fixed: true, cell: func(f parley.BulkResult) cell { return cell{string(f.Status), inkOf(string(f.Status))} }},
	}
	if r.Action == parley.BulkRetry {
		columns = append(columns, column[parley.BulkResult]{head: "NEW RUN", fixed: true, cell: plain(func(f parley.BulkResult) string { return f.NewRun })})
	}
	if slices.ContainsFunc(r.Results, func(f parley.BulkResult) bool { return f.Code != "" }) {
		columns = append(columns, column[parley.BulkResult]{head: "ERROR", cell: plain(func(f parley.BulkResult) string {
			if f.Code == "" {
				return ""
			}
			return string(f.Code) + ": " + f.Detail
		})})
	}
	drawTable(s, columns, r.Results)
}
