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

func newRunAttempts(a *app) *cobra.Command {
	var step string
	var page client.PageQuery
	cmd := &cobra.Command{
		Use:   "attempts RUN",
		Short: "List the calls of agents that were made for a run",
		Long: `List the calls of agents that were made for a run, in the order in which they
were scheduled: whom, when, for how long, and what came of each. A retry that
waits is there with its time. If an agent has answered when nobody waited for it
any more, as after a timeout, LATE says what, and how long after the end. -o json
has requests and responses, late ones too, up to 64 KiB each.`,
		Example: `  parley run attempts RUN
  parley run attempts RUN --step review -o json`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPage(page); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			list, err := c.Attempts(cmd.Context(), args[0], step, page)
			if err != nil {
				return err
			}
			if step != "" && list.Total == 0 {
				if err := hasStep(cmd.Context(), c, args[0], step); err != nil {
					return err
				}
			}
			if err := showList(a, listing[parley.Attempt]{
				whole: list, items: list.Items, columns: a.attemptColumns(list.Items), none: "no agent was called",
			}); err != nil {
				return err
			}
			a.pageNote(pageInfo{list.Number, list.TotalPages, list.Total, "attempt"})
			return nil
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	f := cmd.Flags()
	f.StringVar(&step, "step", "", "only those of this step, by its path as run show has it")
	pageFlags(f, &page)
	neverEmpty(cmd, "step")
	return cmd
}

// hasStep refuses a path at which a run has no step: of a misspelt one it would be said
// that it has called nobody.
func hasStep(ctx context.Context, c *client.Client, id, path string) error {
	run, err := c.Run(ctx, id)
	if err != nil {
		return err
	}
	var paths, within []string
	for _, step := range run.Steps {
		if step.ID == path {
			return nil
		}
		paths = append(paths, step.ID)
		if strings.HasSuffix(step.ID, "/"+path) { // its id alone
			within = append(within, step.ID)
		}
	}
	f := &failure{exit: exitNotFound, code: parley.CodeNotFound, text: fmt.Sprintf("run %s has no step %q", id, path)}
	hint := didYouMean(path, paths)
	if len(within) > 0 {
		hint = "did you mean " + strings.Join(within[:min(3, len(within))], " or ") + "?"
	}
	if hint == "" {
		hint = "parley run show " + id + " lists its steps"
	}
	return f.withHint("%s", hint)
}

// attemptColumns are those of a list of attempts: LATE only where there is such an
// answer.
func (a *app) attemptColumns(list []parley.Attempt) []column[parley.Attempt] {
	columns := []column[parley.Attempt]{
		{head: "STEP", cell: plain(func(x parley.Attempt) string { return x.Step })},
		{head: "ATTEMPT", fixed: true, cell: plain(func(x parley.Attempt) string { return fmt.Sprint(x.Number) })},
		{head: "AGENT", cell: plain(func(x parley.Attempt) string { return x.Agent })},
		{head: "STATE", fixed: true, cell: plain(func(x parley.Attempt) string {
			if x.Unreadable {
				return a.attemptState(x) + " (cannot be read)"
			}
			return a.attemptState(x)
		})},
		{head: "HTTP", fixed: true, cell: plain(func(x parley.Attempt) string {
			if x.Status == 0 {
				return ""
			}
			return fmt.Sprint(x.Status)
		})},
		{head: "STARTED", fixed: true, cell: plain(func(x parley.Attempt) string { return a.when(x.StartedAt) })},
		{head: "TOOK", fixed: true, cell: plain(func(x parley.Attempt) string { return a.between(x.StartedAt, x.EndedAt) })},
		{head: "SENT", wide: true, cell: plain(func(x parley.Attempt) string { return fmt.Sprint(x.Sendings) })},
		{head: "REQUEST", wide: true, cell: plain(func(x parley.Attempt) string { return fmt.Sprintf("%d B", x.RequestBytes) })},
		{head: "RESPONSE", wide: true, cell: plain(func(x parley.Attempt) string { return fmt.Sprintf("%d B", x.ResponseBytes) })},
		{head: "TASK", wide: true, cell: plain(func(x parley.Attempt) string { return x.TaskID })},
		{head: "ERROR", cell: plain(func(x parley.Attempt) string { return errorText(x.Error) })},
	}
	if slices.ContainsFunc(list, func(x parley.Attempt) bool { return len(x.Late) > 0 }) {
		columns = append(columns, column[parley.Attempt]{head: "LATE", cell: plain(lateText)})
	}
	return columns
}

// lateText says what came after the end of an attempt, and how long after.
func lateText(x parley.Attempt) string {
	all := make([]string, len(x.Late))
	for i, l := range x.Late {
		all[i] = string(l.Outcome)
		if l.Error != nil && l.Outcome == parley.OutcomeError {
			all[i] = string(l.Error.Code)
		}
		if x.EndedAt != nil {
			all[i] += " after " + duration(l.At.Sub(*x.EndedAt))
		}
	}
	return strings.Join(all, ", ")
}

// attemptState says how an attempt ended, or where it stands.
func (a *app) attemptState(x parley.Attempt) string {
	switch {
	case x.Outcome != "":
		return string(x.Outcome)
	case x.NotBefore != nil && x.Number > 1:
		return strings.TrimSpace("waits until " + a.when(x.NotBefore))
	}
	return x.State
}
