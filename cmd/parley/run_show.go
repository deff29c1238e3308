package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// runParts say what is shown of a run besides its head.
type runParts struct{ steps, values bool }

func newRunShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run with its steps, output and error",
		Example: `  parley run show RUN
  parley run show RUN -o wide
  parley run show RUN -o json`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			run, err := c.Run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{steps: true, values: true}) }); err != nil {
				return err
			}
			switch run.Status {
			case parley.RunPending, parley.RunRunning:
				a.nextOf(run)
			case parley.RunFailed, parley.RunCancelled:
				again := "retry"
				if run.Compensated {
					again = "rerun"
				}
				a.next("parley run %s %s", again, run.ID)
			case parley.RunCompleted:
				a.next("parley run events %s", run.ID)
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
}

// drawRun shows a run for people.
func (a *app) drawRun(s *sheet, run parley.Run, parts runParts) {
	status := string(run.Status)
	if run.Phase != "" {
		status += " (" + run.Phase + ")"
	}
	if run.Paused {
		status += " (paused)"
	}
	list := []field{
		{"Run", cell{text: run.ID}},
		{"Workflow", cell{text: versioned(run)}},
		{"Status", cell{status, inkOf(string(run.Status))}},
		{"Created", cell{text: a.when(&run.CreatedAt)}},
	}
	if run.EndedAt != nil {
		list = append(list, field{"Ended", cell{text: a.when(run.EndedAt)}})
	}
	if run.StartedAt != nil {
		list = append(list, field{"Duration", cell{text: a.between(run.StartedAt, run.EndedAt)}})
	}
	list = append(list, field{"Labels", cell{text: labelText(run.Labels)}}, field{"Retried from", cell{text: run.RetriedFrom}},
		field{"From step", cell{text: run.RerunFrom}}, field{"Waits for", cell{text: turnText(run.Turn)}})
	if run.Parent != nil {
		list = append(list, field{"Parent", cell{text: run.Parent.Run}}, field{"Parent step", cell{text: run.Parent.Step}})
	}
	if run.Priority != nil {
		list = append(list, field{"Priority", cell{text: strconv.Itoa(*run.Priority)}})
	}
	if run.Traceparent != "" {
		list = append(list, field{"Trace", cell{text: run.Traceparent}})
	}
	if e := run.Error; e != nil {
		list = append(list, field{"Error", cell{errorText(e), styleBad}}, field{"At step", cell{text: e.Step}})
	}
	s.fields(list)
	if parts.steps && len(run.Steps) > 0 {
		s.line("")
		drawTable(s, a.stepColumns(), run.Steps)
	}
	a.drawQuestions(s, run)
	if parts.values && s.wide && len(run.Input) > 0 {
		s.block("Input", run.Input)
	}
	if parts.values && run.Status == parley.RunCompleted && len(run.Output) > 0 {
		s.block("Output", run.Output)
	}
}

// turnText says how a run stands that waits for its turn; "" for others.
func turnText(t *parley.Turn) string {
	if t == nil {
		return ""
	}
	text := fmt.Sprintf("its turn: place %d of %d", t.Place, t.Waiting)
	if t.Key != "" {
		text += " with the key " + t.Key
	}
	if len(t.Running) > 0 {
		text += ", behind " + strings.Join(t.Running, ", ")
	}
	return oneLine(text)
}

func versioned(run parley.Run) string {
	if run.Version == "" {
		return run.Workflow
	}
	return run.Workflow + "@" + run.Version
}

func labelText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, " ")
}

// worker is who works on a step: its agent, or the run that it has started.
func worker(s parley.Step) string {
	if s.Child != nil && s.Child.Run != "" {
		return "run " + s.Child.Run
	}
	return s.Agent
}

func (a *app) stepColumns() []column[parley.Step] {
	return []column[parley.Step]{
		{head: "STEP", cell: plain(func(s parley.Step) string { return s.ID })},
		{head: "STATUS", fixed: true, cell: func(s parley.Step) cell {
			text := string(s.Status)
			if s.Phase != "" {
				text += " (" + string(s.Phase) + ")"
			}
			if s.Handled {
				text += " (handled)"
			}
			return cell{text, inkOf(string(s.Status))}
		}},
		{head: "AGENT", cell: plain(worker)},
		{head: "ATTEMPTS", fixed: true, cell: plain(func(s parley.Step) string { return fmt.Sprint(s.Attempts) })},
		{head: "DURATION", fixed: true, cell: plain(func(s parley.Step) string { return a.between(stepBegin(s), s.EndedAt) })},
		{head: "KIND", wide: true, cell: plain(func(s parley.Step) string { return s.Kind })},
		{head: "PROTOCOL", wide: true, cell: plain(func(s parley.Step) string { return s.Protocol })},
		{head: "AGENT TASK", wide: true, cell: plain(func(s parley.Step) string { return s.AgentTaskID })},
		{head: "ERROR", cell: plain(func(s parley.Step) string { return errorText(s.Error) })},
	}
}

// stepBegin is when a step has begun: StartedAt is that of its last attempt.
func stepBegin(s parley.Step) *time.Time {
	if s.Attempts > 1 && s.StartedAt != nil {
		return s.ScheduledAt
	}
	return s.StartedAt
}

func newRunList(a *app) *cobra.Command {
	var f runFilter
	var cursor string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Long: `List runs, newest first, by pages that count all; or, with --cursor or a --limit
above 100, by pages that new runs don't change: each names the cursor of the next.`,
		Example: `  parley run list
  parley run list --status FAILED,CANCELLED --workflow hello@3 --limit 50
  parley run list --label team=blue --after 24h --text timeout
  parley run list --limit 500 -o json
  parley run list -o jsonl | head`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(a); err != nil {
				return err
			}
			if size := f.query.Page.Size; size < 1 {
				return usagef("--limit %d: it must be 1 to %d", size, maxSearch)
			}
			if cursor != "" || f.query.Page.Size > 100 {
				if cmd.Flags().Changed("page") {
					return usagef("--page cannot be used with --cursor or a --limit above 100")
				}
				return a.runSearch(cmd.Context(), f.query, cursor)
			}
			none := "no runs; start one: parley run start WORKFLOW"
			if f.given(cmd) || f.query.Page.Number > 1 {
				none = "no runs here"
			}
			return a.runList(cmd.Context(), f.query, none)
		},
	}
	f.add(cmd)
	pageFlags(cmd.Flags(), &f.query.Page)
	cmd.Flags().Lookup("limit").Usage = "items on a page, at most 100, or 500 with a cursor"
	cmd.Flags().StringVar(&cursor, "cursor", "", "where the page begins: the next of the page before")
	return cmd
}

// maxSearch bounds a page with a cursor.
const maxSearch = 500

// runSearch shows one page with a cursor.
func (a *app) runSearch(ctx context.Context, q client.RunQuery, cursor string) error {
	if q.Page.Size < 1 || q.Page.Size > maxSearch {
		return usagef("--limit %d: it must be 1 to %d", q.Page.Size, maxSearch)
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	page, err := c.SearchRuns(ctx, q, cursor, q.Page.Size)
	if err != nil {
		return err
	}
	if err := showList(a, listing[parley.Run]{whole: page, items: page.Items, columns: a.runColumns(), none: "no runs here"}); err != nil {
		return err
	}
	if page.Next != "" {
		a.note("more: --cursor %s", page.Next)
	}
	return nil
}

func runStatuses() []string {
	return []string{
		string(parley.RunPending), string(parley.RunRunning), string(parley.RunCompleted),
		string(parley.RunFailed), string(parley.RunCancelled),
	}
}

// runList shows a page of runs; none is what it says when that is empty.
func (a *app) runList(ctx context.Context, q client.RunQuery, none string) error {
	if err := checkPage(q.Page); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	page, err := c.Runs(ctx, q)
	if err != nil {
		return err
	}
	if err := showList(a, listing[parley.Run]{
		whole: page, items: page.Items, columns: a.runColumns(), none: none,
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "run"})
	if len(page.Items) > 0 {
		a.next("parley run show %s", page.Items[0].ID)
	}
	return nil
}

func (a *app) runColumns() []column[parley.Run] {
	return []column[parley.Run]{
		{head: "RUN", fixed: true, cell: plain(func(r parley.Run) string { return r.ID })},
		{head: "WORKFLOW", cell: plain(versioned)},
		{head: "STATUS", fixed: true, cell: func(r parley.Run) cell {
			text := string(r.Status)
			if r.Paused {
				text += " (paused)"
			}
			if r.Turn != nil {
				text += fmt.Sprintf(" (place %d)", r.Turn.Place)
			}
			if r.Unreadable {
				text += " (cannot be read)"
			}
			return cell{text, inkOf(string(r.Status))}
		}},
		{head: "CREATED", fixed: true, cell: plain(func(r parley.Run) string { return a.when(&r.CreatedAt) })},
		{head: "DURATION", fixed: true, cell: plain(func(r parley.Run) string { return a.between(r.StartedAt, r.EndedAt) })},
		{head: "LABELS", wide: true, cell: plain(func(r parley.Run) string { return labelText(r.Labels) })},
		{head: "ERROR", wide: true, cell: plain(func(r parley.Run) string { return errorText(r.Error) })},
	}
}
