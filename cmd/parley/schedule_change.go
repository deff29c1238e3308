package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newSchedulePause(a *app) *cobra.Command {
	return a.scheduleChange(&cobra.Command{
		Use:   "pause SCHEDULE",
		Short: "Let a schedule fire no more, until it is resumed",
		Long: `Let a schedule fire no more, until it is resumed. Runs that it has started go on.
What would have fired meanwhile is not made up for; parley schedule backfill does
that. A schedule of a workflow stays paused in new versions in which it is the same.`,
		Example: `  parley schedule pause nightly`,
	}, (*client.Client).PauseSchedule)
}

func newScheduleResume(a *app) *cobra.Command {
	return a.scheduleChange(&cobra.Command{
		Use:     "resume SCHEDULE",
		Short:   "Let a schedule fire again, from its next firing on",
		Example: `  parley schedule resume nightly`,
	}, (*client.Client).ResumeSchedule)
}

// scheduleChange completes a command that changes one schedule.
func (a *app) scheduleChange(cmd *cobra.Command, change func(*client.Client, context.Context, string) (parley.Schedule, error)) *cobra.Command {
	cmd.Args = need("SCHEDULE")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		s, err := change(c, cmd.Context(), args[0])
		if err != nil {
			return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: scheduleNames, command: "parley schedule list"})
		}
		return a.scheduleSaid(s)
	}
	cmd.ValidArgsFunction = a.completeNames(scheduleNames)
	return cmd
}

func newScheduleRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove SCHEDULE",
		Short: "Remove a schedule that was added",
		Long: `Remove a schedule that was added; the runs that it has started stay. A schedule that
stands in a workflow is taken out of its triggers instead, or paused.`,
		Example: `  parley schedule remove nightly`,
		Args:    need("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RemoveSchedule(cmd.Context(), args[0]); err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: scheduleNames, command: "parley schedule list"})
			}
			return a.said(message{args[0], "removed"})
		},
		ValidArgsFunction: a.completeNames(scheduleNames),
	}
}

func newScheduleBackfill(a *app) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "backfill SCHEDULE --from TIME --to TIME",
		Short: "Fire for a time that has passed",
		Long: `Fire for a time that has passed, both ends included. Firings that have started a
run are left alone. The others start in order, one after another unless the
schedule's overlap is allow; also while the schedule is paused.`,
		Example: `  parley schedule backfill nightly --from 2026-11-01 --to 2026-11-07T02:00:00Z
  parley schedule backfill poll --from 6h --to 1h`,
		Args: need("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req := parley.BackfillRequest{Ref: args[0]}
			if from == "" || to == "" {
				return usagef("--from and --to say which time is meant").withHint("%s", useLine(cmd))
			}
			if req.From, err = a.readTime("from", from); err != nil {
				return err
			}
			if req.To, err = a.readTime("to", to); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			report, err := c.BackfillSchedule(cmd.Context(), req)
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: scheduleNames, command: "parley schedule list"})
			}
			if err := a.show(report, func(s *sheet) {
				s.line(fmt.Sprintf("%d firings, %d of them had their turn before", report.Firings, report.Before))
			}); err != nil {
				return err
			}
			a.next("parley schedule show %s", args[0])
			return nil
		},
		ValidArgsFunction: a.completeNames(scheduleNames),
	}
	cmd.Flags().StringVar(&from, "from", "", "the first time, or how long ago (6h)")
	cmd.Flags().StringVar(&to, "to", "", "the last time, or how long ago (1h)")
	return cmd
}
