package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
)

func newRunExplain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain RUN",
		Short: "Say what each open step of a run waits for",
		Long: `Say what each open step of a run waits for: a place in the queue of its agent, its
next try, a circuit that is open, a time, a person, other steps, or the end of a
pause.`,
		Example: `  parley run explain RUN
  parley run explain RUN -o wide
  parley run explain RUN -o json`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			e, err := c.Explain(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.show(e, func(s *sheet) { a.drawExplanation(s, e) }); err != nil {
				return err
			}
			switch {
			case e.Status.Terminal():
				a.next("parley run show %s", e.Run)
			case e.Paused:
				a.next("parley run resume %s", e.Run)
			default:
				a.next("parley run watch %s", e.Run)
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
}

func (a *app) drawExplanation(s *sheet, e parley.Explanation) {
	list := []field{{"Run", cell{text: e.Run}}, {"Status", cell{string(e.Status), inkOf(string(e.Status))}}, {"State", cell{text: e.Text}}}
	if e.Deadline != nil {
		list = append(list, field{"Ends by", cell{text: a.when(e.Deadline)}})
	}
	s.fields(list)
	if len(e.Steps) == 0 {
		return
	}
	s.line("")
	drawTable(s, []column[parley.StepWait]{
		{head: "STEP", cell: plain(func(w parley.StepWait) string { return w.Step })},
		{head: "STATUS", fixed: true, cell: func(w parley.StepWait) cell { return cell{string(w.Status), inkOf(string(w.Status))} }},
		{head: "WAITS", fixed: true, cell: plain(func(w parley.StepWait) string { return string(w.Reason) })},
		{head: "FOR", fixed: true, cell: plain(func(w parley.StepWait) string { return a.left(e.At, w) })},
		{head: "DETAIL", cell: plain(waitDetail)},
		{head: "AGENT", wide: true, cell: plain(func(w parley.StepWait) string { return w.Agent })},
		{head: "TASK", wide: true, cell: plain(func(w parley.StepWait) string { return w.TaskID })},
		{head: "TIMEOUT", wide: true, cell: plain(func(w parley.StepWait) string { return a.when(w.Deadline) })},
		{head: "LAST ERROR", wide: true, cell: plain(func(w parley.StepWait) string { return errorText(w.LastError) })},
	}, e.Steps)
}

// left is how long that goes on at most, as far as is known: what comes first ends it.
func (a *app) left(at time.Time, w parley.StepWait) string {
	var first *time.Time
	for _, t := range []*time.Time{w.Until, w.SilentUntil, w.AttemptUntil, w.Deadline} {
		if t != nil && (first == nil || t.Before(*first)) {
			first = t
		}
	}
	if first == nil {
		return ""
	}
	return duration(max(first.Sub(at), 0))
}

func waitDetail(w parley.StepWait) string {
	parts := []string{w.Text}
	if w.Unhealthy != "" {
		parts = append(parts, w.Agent+" is unhealthy: "+w.Unhealthy)
	}
	if w.Question != nil {
		parts = append(parts, w.Question.Text)
	}
	return oneLine(strings.Join(parts, "; "))
}
