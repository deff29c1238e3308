package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// replaySeconds is about how long one batch of replays takes, so that progress is
// seen.
const replaySeconds = 5

func newDLQReplay(a *app) *cobra.Command {
	f := filterFlags{selectsMany: []string{"dry-run", "rate"}}
	var force, dry bool
	var rate int
	cmd := &cobra.Command{
		Use:   "replay [DEAD-LETTER]",
		Short: "Go on with a failed run in a new one, or publish a record again",
		Long: `Replay a dead letter: a task's run goes on in a new run, which calls no agent
again that has answered; a record is published again where it came from.

With a filter, or --all, every dead letter that waits and is selected is
replayed, the oldest first, so many a second; what comes in meanwhile is not. To
interrupt it leaves the others waiting. The exit code is 1 if some could not be
replayed: they still wait. What somebody else has replayed or discarded meanwhile, or
is replaying, is counted apart and no failure.`,
		Example: `  parley dlq replay DEAD-LETTER
  parley dlq replay DEAD-LETTER --force
  parley dlq replay --agent writer --after 2h --dry-run
  parley dlq replay --agent writer --after 2h --rate 5`,
		Args: need("[DEAD-LETTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			many, err := f.many(cmd, args)
			if err != nil {
				return err
			}
			if !many {
				return a.dlqReplay(cmd.Context(), args[0], force)
			}
			if force {
				return usagef("--force is for one dead letter: a filter selects those that wait")
			}
			if rate < 1 || rate > parley.ReplayMaxRate {
				return usagef("--rate must be 1 to %d", parley.ReplayMaxRate)
			}
			if err := f.read(a); err != nil {
				return err
			}
			return a.dlqReplayMany(cmd.Context(), parley.ReplayBatch{Filter: f.filter, Rate: rate, DryRun: dry})
		},
		ValidArgsFunction: a.completeNames(deadLetterIDs),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all that wait")
	fl.BoolVar(&dry, "dry-run", false, "only count what would be replayed")
	fl.IntVar(&rate, "rate", parley.ReplayRate, "replays a second")
	fl.BoolVar(&force, "force", false, "also one that was replayed or discarded")
	return cmd
}

func (a *app) dlqReplay(ctx context.Context, id string, force bool) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	l, err := c.Replay(ctx, parley.ReplayRequest{ID: id, Force: force, Trace: a.trace()})
	if err != nil {
		return err
	}
	if err := a.show(l, func(s *sheet) { a.drawDeadLetter(s, l) }); err != nil {
		return err
	}
	if l.ReplayRun != "" {
		a.next("parley run watch %s", l.ReplayRun)
	}
	return nil
}

// replayAgain says how to go on after a batch of which nobody knows how far it came.
const replayAgain = "what was not replayed still waits: type the same command to go on"

// dlqReplayMany replays batch after batch and tells how far it has come.
func (a *app) dlqReplayMany(ctx context.Context, b parley.ReplayBatch) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	b.Limit = min(b.Rate*replaySeconds, parley.ReplayMaxLimit)
	sum, err := c.ReplayDeadLetters(ctx, b)
	if err != nil {
		if ctx.Err() != nil && !b.DryRun {
			a.note(replayAgain)
		}
		return err
	}
	for report := sum; report.Next != ""; {
		a.note("%s", replaySoFar(&sum))
		b.After = report.Next
		if report, err = c.ReplayDeadLetters(ctx, b); err != nil {
			a.note(replayAgain)
			return err
		}
		sum.Replayed, sum.Failed, sum.Next = sum.Replayed+report.Replayed, sum.Failed+report.Failed, report.Next
		sum.Failures = append(sum.Failures, report.Failures...)
		sum.Elsewhere, sum.Others = sum.Elsewhere+report.Elsewhere, append(sum.Others, report.Others...)
	}
	if err := a.show(sum, func(s *sheet) { drawReplay(s, sum) }); err != nil {
		return err
	}
	if sum.Failed > 0 {
		return incompletef("%s could not be replayed", plural(sum.Failed, "dead letter"))
	}
	if sum.DryRun && sum.Matched > 0 {
		a.next("parley dlq show %s", sum.First[0])
	}
	return nil
}

func replaySoFar(r *parley.ReplayReport) string {
	text := fmt.Sprintf("%d of %d replayed, %d failed", r.Replayed, r.Matched, r.Failed)
	if r.Elsewhere > 0 {
		text += fmt.Sprintf(", %d by others", r.Elsewhere)
	}
	return text
}

func drawReplay(s *sheet, r parley.ReplayReport) {
	if r.DryRun {
		drawSelected(s, r.Matched, r.First)
		return
	}
	list := []field{
		{"Selected", cell{text: fmt.Sprint(r.Matched)}},
		{"Replayed", cell{text: fmt.Sprint(r.Replayed)}},
		{"Failed", cell{text: fmt.Sprint(r.Failed)}},
	}
	if r.Elsewhere > 0 {
		list = append(list, field{"By others", cell{text: fmt.Sprint(r.Elsewhere)}})
	}
	s.fields(list)
	drawNotReplayed(s, "ERROR", r.Failures, func(f parley.ReplayFailure) string { return string(f.Code) + ": " + f.Detail })
	drawNotReplayed(s, "BY OTHERS", r.Others, func(f parley.ReplayFailure) string { return f.Detail })
}

// drawNotReplayed shows the dead letters that were not replayed, and why.
func drawNotReplayed(s *sheet, head string, list []parley.ReplayFailure, why func(parley.ReplayFailure) string) {
	if len(list) == 0 {
		return
	}
	s.line("")
	drawTable(s, []column[parley.ReplayFailure]{
		{head: "DEAD LETTER", fixed: true, cell: plain(func(f parley.ReplayFailure) string { return f.ID })},
		{head: head, cell: plain(why)},
	}, list)
}

// drawSelected shows what a dry run has found.
func drawSelected(s *sheet, n int, first []string) {
	list := []field{{"Selected", cell{text: fmt.Sprint(n)}}}
	if n > 0 {
		list = append(list, field{"First", cell{text: strings.Join(first, " ")}})
	}
	s.fields(list)
}

func newDLQDiscard(a *app) *cobra.Command {
	f := filterFlags{selectsMany: []string{"dry-run"}}
	var dry bool
	var note string
	cmd := &cobra.Command{
		Use:   "discard [DEAD-LETTER]",
		Short: "Note that nothing is to be done about dead letters",
		Long: `Discard a dead letter, or with a filter or --all every one that waits and is
selected. It stays in the list as discarded until it is too old, and may still be
replayed with --force.`,
		Example: `  parley dlq discard DEAD-LETTER --note "its sender is gone"
  parley dlq discard --kind record --topic orchestrator.tasks.http --dry-run`,
		Args: need("[DEAD-LETTER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			many, err := f.many(cmd, args)
			if err == nil && many {
				err = f.read(a)
			}
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if many {
				return a.dlqDiscardMany(cmd.Context(), c, parley.DiscardRequest{Filter: f.filter, Note: note, DryRun: dry})
			}
			l, err := c.DiscardDeadLetter(cmd.Context(), args[0], note)
			if err != nil {
				return err
			}
			return a.show(l, func(s *sheet) { a.drawDeadLetter(s, l) })
		},
		ValidArgsFunction: a.completeNames(deadLetterIDs),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all that wait")
	fl.BoolVar(&dry, "dry-run", false, "only count what would be discarded")
	fl.StringVar(&note, "note", "", "why, at most 500 characters")
	return cmd
}

func (a *app) dlqDiscardMany(ctx context.Context, c *client.Client, req parley.DiscardRequest) error {
	report, err := c.DiscardDeadLetters(ctx, req)
	if err != nil {
		return err
	}
	return a.show(report, func(s *sheet) {
		if report.DryRun {
			drawSelected(s, report.Matched, report.First)
			return
		}
		s.fields([]field{{"Selected", cell{text: fmt.Sprint(report.Matched)}}, {"Discarded", cell{text: fmt.Sprint(report.Discarded)}}})
	})
}
