package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// eventBatch is how many events are asked for at once.
const eventBatch = 500

func newRunEvents(a *app) *cobra.Command {
	var follow bool
	var after int64
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "List what happened in a run",
		Long: `List the events of a run, oldest first. With --follow the list goes on up to
the end of the run, whatever that end is, and -o json writes one event per line
as jsonl does.`,
		Example: `  parley run events RUN
  parley run events RUN --follow -o jsonl
  parley run events RUN --after 20`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if after < 0 {
				return usagef("--after must not be negative")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if follow {
				return a.followEvents(cmd.Context(), c, args[0], after)
			}
			return a.listEvents(cmd.Context(), c, args[0], after)
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with the events to come")
	cmd.Flags().Int64Var(&after, "after", 0, "begin after the event of this number")
	return cmd
}

// listEvents reads the history page by page.
func (a *app) listEvents(ctx context.Context, c *client.Client, run string, after int64) error {
	all := client.EventPage{Items: []parley.Event{}, NextAfter: after}
	for {
		page, err := c.Events(ctx, run, client.EventQuery{After: all.NextAfter, Limit: eventBatch})
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			if a.flags.output == "jsonl" {
				if err := a.data(e); err != nil {
					return err
				}
				continue
			}
			all.Items = append(all.Items, e)
		}
		if !page.More || page.NextAfter <= all.NextAfter {
			break
		}
		all.NextAfter = page.NextAfter
	}
	if n := len(all.Items); n > 0 {
		all.NextAfter = all.Items[n-1].Seq
	}
	if a.flags.output != "jsonl" {
		if err := showList(a, listing[parley.Event]{whole: all, items: all.Items, columns: a.eventColumns(), none: "no events"}); err != nil {
			return err
		}
	}
	a.next("parley run show %s", run)
	return nil
}

// followEvents writes events as they come, each on its own.
func (a *app) followEvents(ctx context.Context, c *client.Client, run string, after int64) error {
	o := client.WatchOptions{After: after, OnRetry: func(err error, _ time.Duration) {
		a.note("connection lost, trying again: %v", err)
	}}
	sheet := a.newSheet()
	for e, err := range c.Watch(ctx, run, o) {
		if err != nil {
			return err
		}
		if a.human() {
			sheet.line(a.eventLine(sheet, e))
			continue
		}
		if err := a.followed(e); err != nil {
			return err
		}
	}
	a.next("parley run show %s", run)
	return nil
}

// followed writes one event for programs: a line of JSON, or a YAML document.
func (a *app) followed(e parley.Event) error {
	b, err := toJSON(e)
	if err != nil {
		return err
	}
	if a.flags.output == "yaml" {
		if b, err = toYAML(b); err != nil {
			return err
		}
		b = append([]byte("---\n"), bytes.TrimRight(b, "\n")...)
	}
	_, err = a.stdout.Write(append(b, '\n'))
	return err
}

func (a *app) eventLine(s *sheet, e parley.Event) string {
	text := fmt.Sprintf("%5d  %s  %-16s  %s", e.Seq, e.At.In(a.zone).Format("15:04:05.000"), clean(string(e.Type)), pad(clean(orDash(e.Step)), 16))
	if d := eventData(e); d != "" {
		text += "  " + clean(d)
	}
	if s.columns > 0 {
		text = clip(text, s.columns)
	}
	return text
}

func eventData(e parley.Event) string {
	if s := string(e.Data); s != "{}" && s != "null" {
		return s
	}
	return ""
}

func (a *app) eventColumns() []column[parley.Event] {
	return []column[parley.Event]{
		{head: "SEQ", fixed: true, cell: plain(func(e parley.Event) string { return fmt.Sprint(e.Seq) })},
		{head: "AT", fixed: true, cell: plain(func(e parley.Event) string { return e.At.In(a.zone).Format("15:04:05.000") })},
		{head: "TYPE", fixed: true, cell: plain(func(e parley.Event) string { return string(e.Type) })},
		{head: "STEP", cell: plain(func(e parley.Event) string { return e.Step })},
		{head: "ATTEMPT", fixed: true, wide: true, cell: plain(func(e parley.Event) string { return fmt.Sprint(e.Attempt) })},
		{head: "DATA", cell: plain(eventData)},
	}
}
