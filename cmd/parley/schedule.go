package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newScheduleCommand(a *app) *cobra.Command {
	cmd := newGroup("schedule", "Start runs at times: add, look at, pause and remove schedules", `
  parley schedule add report --cron "0 2 * * *" --zone Europe/Berlin
  parley schedule list
  parley schedule show SCHEDULE`)
	cmd.AddCommand(
		newScheduleAdd(a), newScheduleList(a), newScheduleShow(a), newSchedulePause(a), newScheduleResume(a), newScheduleRemove(a),
		newScheduleBackfill(a),
	)
	return cmd
}

// scheduleNames are the ids of schedules, and the names of those that have one.
func scheduleNames(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.Schedules(ctx, client.ScheduleQuery{Page: client.PageQuery{Size: mostNames}})
	var names []string
	for _, s := range page.Items {
		if s.Name != "" {
			names = append(names, s.Name)
		}
		names = append(names, s.ID)
	}
	return names, err
}

func overlaps() []string { return []string{"skip", "queue", "cancel_previous", "allow"} }

func newScheduleAdd(a *app) *cobra.Command {
	var req parley.ScheduleRequest
	var input string
	cmd := &cobra.Command{
		Use:   "add WORKFLOW",
		Short: "Start runs of a workflow at times",
		Long: `Start runs of a workflow at times: at those of --cron in a time zone, or once in
each period of --every. A firing starts what parley run start WORKFLOW does at
that time. --input is the input of the runs, in which ${event.scheduled_at} is the
time of the firing; without it the input is {"scheduled_at": …}.

A local time that does not exist fires at the first instant after the gap, one
that exists twice fires once. While the run before it has not ended, a firing is
skipped, unless --overlap says otherwise. Firings that nobody was there for are
made up for if they are not older than --catch-up.

A schedule can also stand in the workflow itself, as one of its triggers.`,
		Example: `  parley schedule add report --cron "0 2 * * *" --zone Europe/Berlin --name nightly
  parley schedule add report --cron "*/15 9-17 * * mon-fri" --overlap queue
  parley schedule add poll --every 90s --jitter 10s --input '{"since": "${event.scheduled_at}"}'`,
		Args: need("WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Workflow = args[0]
			if (req.Cron == "") == (req.Every == "") {
				return usagef("give one of --cron and --every").withHint(`parley schedule add %s --cron "0 2 * * *"`, args[0])
			}
			if req.Input, err = a.readValue("--input", input); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			s, err := c.AddSchedule(cmd.Context(), req)
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, workflowHint(args[0]))
			}
			return a.scheduleSaid(s)
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
	fl := cmd.Flags()
	fl.StringVar(&req.Cron, "cron", "", "five fields: minute, hour, day of the month, month and weekday")
	fl.StringVar(&req.Every, "every", "", "a period of at least 1s, such as 15m")
	fl.StringVar(&req.Zone, "zone", "", "time zone of --cron (default UTC)")
	fl.StringVar(&req.Overlap, "overlap", "", strings.Join(overlaps(), ", ")+" (default skip)")
	fl.StringVar(&req.CatchUp, "catch-up", "", "how late a missed firing may begin (default 10m)")
	fl.StringVar(&req.Jitter, "jitter", "", "delay each firing by a random time up to this")
	fl.StringVar(&input, "input", "", "input of the runs: JSON, @FILE, or - for standard input")
	fl.StringVar(&req.Name, "name", "", "a name, which can stand for the id")
	complete(cmd, "overlap", overlaps()...)
	neverEmpty(cmd, "zone", "overlap", "catch-up", "jitter", "input", "name")
	return cmd
}

// scheduleSaid shows a schedule that was changed.
func (a *app) scheduleSaid(s parley.Schedule) error {
	if err := a.show(s, func(sh *sheet) { drawTable(sh, a.scheduleColumns(), []parley.Schedule{s}) }); err != nil {
		return err
	}
	if s.Status == parley.SchedulePaused {
		a.next("parley schedule resume %s", s.ID)
		return nil
	}
	a.next("parley schedule show %s", s.ID)
	return nil
}

func newScheduleList(a *app) *cobra.Command {
	var q client.ScheduleQuery
	var status string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List schedules with their next and last firing",
		Long: `List schedules with their next and last firing: those that were added, and those
that stand in the version of a workflow which a plain start runs.`,
		Example: `  parley schedule list
  parley schedule list --workflow report
  parley schedule list --status paused -o json`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Status = parley.ScheduleStatus(status)
			if status != "" && q.Status != parley.ScheduleActive && q.Status != parley.SchedulePaused {
				return usagef("--status %s: a schedule is active or paused", status)
			}
			return a.scheduleList(cmd.Context(), q)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&q.Workflow, "workflow", "", "only of this workflow_id")
	fl.StringVar(&status, "status", "", "only active or paused ones")
	complete(cmd, "status", string(parley.ScheduleActive), string(parley.SchedulePaused))
	pageFlags(fl, &q.Page)
	neverEmpty(cmd, "workflow", "status")
	return cmd
}

func (a *app) scheduleList(ctx context.Context, q client.ScheduleQuery) error {
	if err := checkPage(q.Page); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	page, err := c.Schedules(ctx, q)
	if err != nil {
		return err
	}
	if err := showList(a, listing[parley.Schedule]{
		whole: page, items: page.Items, columns: a.scheduleColumns(), none: `no schedules; add one: parley schedule add WORKFLOW --cron "0 2 * * *"`,
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "schedule"})
	if len(page.Items) > 0 {
		a.next("parley schedule show %s", page.Items[0].ID)
	}
	return nil
}

func (a *app) scheduleColumns() []column[parley.Schedule] {
	return []column[parley.Schedule]{
		{head: "SCHEDULE", fixed: true, cell: plain(func(s parley.Schedule) string { return s.ID })},
		{head: "NAME", cell: plain(func(s parley.Schedule) string { return orDash(s.Name) })},
		{head: "WORKFLOW", cell: plain(func(s parley.Schedule) string { return s.Workflow })},
		{head: "WHEN", cell: plain(scheduleWhen)},
		{head: "STATUS", fixed: true, cell: func(s parley.Schedule) cell { return cell{string(s.Status), inkOfSchedule(s.Status)} }},
		{head: "NEXT", fixed: true, cell: plain(func(s parley.Schedule) string { return a.when(s.NextAt) })},
		{head: "LAST", fixed: true, cell: plain(a.lastFiring)},
		{head: "OVERLAP", wide: true, fixed: true, cell: plain(func(s parley.Schedule) string { return orDash(s.Overlap) })},
		{head: "FROM", wide: true, fixed: true, cell: plain(scheduleOrigin)},
		{head: "RUN", wide: true, fixed: true, cell: plain(func(s parley.Schedule) string {
			if s.Last == nil {
				return "-"
			}
			return orDash(s.Last.Run)
		})},
	}
}

func inkOfSchedule(s parley.ScheduleStatus) ink {
	if s == parley.SchedulePaused {
		return styleDim
	}
	return styleGood
}

// scheduleWhen says at which times a schedule fires.
func scheduleWhen(s parley.Schedule) string {
	if s.Unreadable {
		return "(cannot be read)"
	}
	if s.Every != "" {
		return "every " + s.Every
	}
	return s.Cron + " " + s.Zone
}

// scheduleOrigin says where a schedule stands.
func scheduleOrigin(s parley.Schedule) string {
	if s.Version == "" {
		return "added"
	}
	return s.Workflow + "@" + s.Version
}

func (a *app) lastFiring(s parley.Schedule) string {
	if s.Last == nil {
		return "-"
	}
	return a.when(&s.Last.ScheduledAt) + " " + string(s.Last.State)
}

func newScheduleShow(a *app) *cobra.Command {
	var p client.PageQuery
	cmd := &cobra.Command{
		Use:   "show SCHEDULE",
		Short: "Show a schedule and what became of its newest firings",
		Long: `Show a schedule, by id or name, and what became of its newest firings: fired
(with the run that it started), skipped (the run before had not ended), missed
(nobody was there in time), failed (the run was refused), waiting and starting.`,
		Example: `  parley schedule show nightly
  parley schedule show nightly -o json`,
		Args: need("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPage(p); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := a.scheduleShow(cmd.Context(), c, args[0], p); err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: scheduleNames, command: "parley schedule list"})
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(scheduleNames),
	}
	pageFlags(cmd.Flags(), &p)
	return cmd
}

// shownSchedule is a schedule and one page of its firings.
type shownSchedule struct {
	parley.Schedule
	Firings []parley.ScheduleFiring `json:"firings"`
}

func (a *app) scheduleShow(ctx context.Context, c *client.Client, ref string, p client.PageQuery) error {
	s, err := c.Schedule(ctx, ref)
	if err != nil {
		return err
	}
	page, err := c.ScheduleFirings(ctx, ref, p)
	if err != nil {
		return err
	}
	if err := a.show(shownSchedule{s, page.Items}, func(sh *sheet) { a.drawSchedule(sh, s, page.Items) }); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "firing"})
	for _, f := range page.Items {
		if f.Run != "" {
			a.next("parley run show %s", f.Run)
			return nil
		}
	}
	a.next("parley schedule pause %s", s.ID)
	return nil
}

func (a *app) drawSchedule(sh *sheet, s parley.Schedule, firings []parley.ScheduleFiring) {
	paused, waiting := "", ""
	if s.PausedAt != nil {
		paused = a.when(s.PausedAt) + " by " + s.PausedBy
	}
	if s.Waiting > 0 {
		waiting = fmt.Sprint(s.Waiting)
	}
	sh.fields([]field{
		{"Schedule", cell{text: s.ID}},
		{"Name", cell{text: s.Name}},
		{"Workflow", cell{text: s.Workflow}},
		{"From", cell{text: scheduleOrigin(s)}},
		{"Status", cell{string(s.Status), inkOfSchedule(s.Status)}},
		{"When", cell{text: scheduleWhen(s)}},
		{"Next", cell{text: a.when(s.NextAt)}},
		{"Overlap", cell{text: s.Overlap}},
		{"Catch up", cell{text: s.CatchUp}},
		{"Jitter", cell{text: s.Jitter}},
		{"Waiting", cell{text: waiting}},
		{"Paused", cell{text: paused}},
		{"Created", cell{text: a.when(&s.CreatedAt) + " by " + s.CreatedBy}},
	})
	if len(s.Input) > 0 {
		sh.block("Input", s.Input)
	}
	if len(firings) > 0 {
		sh.line("")
		drawTable(sh, a.firingColumns(), firings)
	}
}

func (a *app) firingColumns() []column[parley.ScheduleFiring] {
	return []column[parley.ScheduleFiring]{
		{head: "FIRING", fixed: true, cell: plain(func(f parley.ScheduleFiring) string { return a.when(&f.ScheduledAt) })},
		{head: "STATE", fixed: true, cell: func(f parley.ScheduleFiring) cell { return cell{string(f.State), inkOfFiring(f.State)} }},
		{head: "RUN", fixed: true, cell: plain(func(f parley.ScheduleFiring) string { return orDash(f.Run) })},
		{head: "DUE", wide: true, fixed: true, cell: plain(func(f parley.ScheduleFiring) string { return a.when(&f.DueAt) })},
		{head: "RECORDED", wide: true, fixed: true, cell: plain(func(f parley.ScheduleFiring) string { return a.when(&f.RecordedAt) })},
		{head: "WHY", cell: plain(func(f parley.ScheduleFiring) string {
			if f.Backfill && f.Reason == "" {
				return "backfill"
			}
			return orDash(oneLine(f.Reason))
		})},
	}
}

func inkOfFiring(s parley.FiringState) ink {
	switch s {
	case parley.FiringFired:
		return styleGood
	case parley.FiringMissed, parley.FiringFailed:
		return styleBad
	case parley.FiringSkipped, parley.FiringWaiting, parley.FiringStarting:
	}
	return styleDim
}
