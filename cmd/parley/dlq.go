package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newDLQCommand(a *app) *cobra.Command {
	cmd := newGroup("dlq", "Look at dead letters (what was given up), replay or discard them", `
  parley dlq list
  parley dlq show DEAD-LETTER
  parley dlq replay --agent writer --dry-run`)
	cmd.AddCommand(newDLQList(a), newDLQShow(a), newDLQReplay(a), newDLQDiscard(a))
	return cmd
}

// filterFlags are those that select dead letters.
type filterFlags struct {
	filter        parley.DeadLetterFilter
	kind, code    string
	after, before string
	all           bool
	state         string
	// cmd is the command that has the flags, selects those that select, selectsMany
	// what only goes with them.
	cmd                  *cobra.Command
	selects, selectsMany []string
}

// add adds the flags to a command.
func (f *filterFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	fl := cmd.Flags()
	fl.StringVar(&f.kind, "kind", "", "only task, record or foreign_task")
	fl.StringVar(&f.code, "code", "", "only with this error code")
	fl.StringVar(&f.filter.Reason, "reason", "", "only with these words in the reason")
	fl.StringVar(&f.filter.Agent, "agent", "", "only of this agent")
	fl.StringVar(&f.filter.Workflow, "workflow", "", "only of this workflow_id")
	fl.StringVar(&f.filter.Run, "run", "", "only of this run")
	fl.StringVar(&f.filter.Topic, "topic", "", "only from this topic")
	fl.StringVar(&f.after, "after", "", "only given up after this time, or within this time (1h)")
	fl.StringVar(&f.before, "before", "", "only given up before this time, or longer ago (1h)")
	complete(cmd, "kind", deadLetterKinds()...)
	f.selects = []string{"kind", "code", "reason", "agent", "workflow", "run", "topic", "after", "before"}
}

func deadLetterKinds() []string {
	return []string{string(parley.DeadLetterTask), string(parley.DeadLetterRecord), string(parley.DeadLetterForeign)}
}

func deadLetterStates() []string {
	return []string{string(parley.DeadLetterWaiting), string(parley.DeadLetterReplayed), string(parley.DeadLetterDiscarded)}
}

// read completes the filter from the flags.
func (f *filterFlags) read(a *app) (err error) {
	if err := refuseEmpty(f.cmd, f.selects); err != nil {
		return err
	}
	if f.kind != "" && !slices.Contains(deadLetterKinds(), f.kind) {
		return usagef("--kind %s: the kinds are %s", f.kind, strings.Join(deadLetterKinds(), ", ")).withHint("%s", didYouMean(f.kind, deadLetterKinds()))
	}
	if f.state != "" && !slices.Contains(deadLetterStates(), f.state) {
		return usagef("--state %s: the states are %s", f.state, strings.Join(deadLetterStates(), ", ")).withHint("%s", didYouMean(f.state, deadLetterStates()))
	}
	f.filter.Kind, f.filter.Code, f.filter.State = parley.DeadLetterKind(f.kind), parley.Code(f.code), parley.DeadLetterState(f.state)
	if f.filter.CreatedAfter, err = a.readTime("after", f.after); err != nil {
		return err
	}
	f.filter.CreatedBefore, err = a.readTime("before", f.before)
	return err
}

// readTime reads a time, or a duration before now.
func (a *app) readTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return a.now().Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, a.zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--%s %s: write a time such as 2026-11-21T10:04:05Z, or how long ago, such as 90m", flag, text)
}

// many reports whether a command means many dead letters, and refuses what
// leaves that open.
func (f *filterFlags) many(cmd *cobra.Command, args []string) (bool, error) {
	filtered := f.all || slices.ContainsFunc(f.selects, cmd.Flags().Changed)
	switch {
	case len(args) > 0 && filtered:
		return false, usagef("a dead letter and a filter exclude each other").withHint("%s", useLine(cmd))
	case len(args) == 0 && !filtered:
		return false, usagef("DEAD-LETTER, a filter or --all is missing").withHint("%s", useLine(cmd))
	}
	for _, flag := range f.selectsMany {
		if len(args) > 0 && cmd.Flags().Changed(flag) {
			return false, usagef("--%s is for many dead letters: give a filter or --all", flag)
		}
	}
	return len(args) == 0, nil
}

// refuseEmpty refuses flags of a filter that were given without a value, such as
// that of a variable that is not set: the filter would select more than was meant.
func refuseEmpty(cmd *cobra.Command, flags []string) error {
	for _, name := range flags {
		if unset(cmd.Flags().Lookup(name)) {
			return usagef("--%s is empty, which selects everything: give it a value, or leave it out", name)
		}
	}
	return nil
}

func newDLQList(a *app) *cobra.Command {
	var f filterFlags
	var page client.PageQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Example: `  parley dlq list --state waiting
  parley dlq list --agent writer --code agent_unavailable --after 1h
  parley dlq list --kind record --topic orchestrator.tasks.http -o jsonl`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(a); err != nil {
				return err
			}
			return a.dlqList(cmd.Context(), client.DeadLetterQuery{Filter: f.filter, Page: page})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.state, "state", "", "only waiting, replayed or discarded")
	f.selects = append(f.selects, "state")
	complete(cmd, "state", deadLetterStates()...)
	pageFlags(cmd.Flags(), &page)
	return cmd
}

func (a *app) dlqList(ctx context.Context, q client.DeadLetterQuery) error {
	if err := checkPage(q.Page); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	page, err := c.DeadLetters(ctx, q)
	if err != nil {
		return err
	}
	if err := showList(a, listing[parley.DeadLetter]{
		whole: page, items: page.Items, columns: a.deadLetterColumns(), none: "no dead letters",
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "dead letter"})
	if len(page.Items) > 0 {
		a.next("parley dlq show %s", page.Items[0].ID)
	}
	return nil
}

func (a *app) deadLetterColumns() []column[parley.DeadLetter] {
	return []column[parley.DeadLetter]{
		{head: "DEAD LETTER", fixed: true, cell: plain(func(l parley.DeadLetter) string { return l.ID })},
		{head: "KIND", fixed: true, cell: plain(func(l parley.DeadLetter) string { return string(l.Kind) })},
		{head: "STATE", fixed: true, cell: func(l parley.DeadLetter) cell { return cell{string(l.State), inkOfLetter(l.State)} }},
		{head: "GIVEN UP", fixed: true, cell: plain(func(l parley.DeadLetter) string { return a.when(&l.CreatedAt) })},
		{head: "AGENT", cell: plain(func(l parley.DeadLetter) string { return l.Agent })},
		{head: "FROM", cell: plain(letterOrigin)},
		{head: "ATTEMPTS", wide: true, fixed: true, cell: plain(func(l parley.DeadLetter) string { return fmt.Sprint(l.Attempts) })},
		{head: "LED TO", wide: true, cell: plain(func(l parley.DeadLetter) string { return l.ReplayRun })},
		{head: "REASON", cell: plain(func(l parley.DeadLetter) string { return string(l.Code) + ": " + l.Reason })},
	}
}

func inkOfLetter(s parley.DeadLetterState) ink {
	if s == parley.DeadLetterWaiting {
		return styleBad
	}
	return styleDim
}

// letterOrigin is the step of a run, or the place of a record.
func letterOrigin(l parley.DeadLetter) string {
	if l.Kind == parley.DeadLetterTask {
		return l.Run + " " + l.Step
	}
	return letterPlace(l)
}

// letterPlace is where the record stood, "" if that is not known.
func letterPlace(l parley.DeadLetter) string {
	if s := l.Source; s != nil && s.Topic != "" {
		return fmt.Sprintf("%s/%d/%d", s.Topic, s.Partition, s.Offset)
	}
	return ""
}

func newDLQShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show DEAD-LETTER",
		Short: "Show a dead letter with its key, headers and value",
		Example: `  parley dlq show DEAD-LETTER
  parley dlq show DEAD-LETTER -o json`,
		Args: need("DEAD-LETTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			l, err := c.DeadLetter(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.show(l, func(s *sheet) { a.drawDeadLetter(s, l) }); err != nil {
				return err
			}
			a.nextOfLetter(l)
			return nil
		},
		ValidArgsFunction: a.completeNames(deadLetterIDs),
	}
}

func (a *app) nextOfLetter(l parley.DeadLetter) {
	switch {
	case l.State == parley.DeadLetterWaiting:
		a.next("parley dlq replay %s", l.ID)
	case l.ReplayRun != "":
		a.next("parley run show %s", l.ReplayRun)
	}
}

// drawDeadLetter shows a dead letter for people.
func (a *app) drawDeadLetter(s *sheet, l parley.DeadLetter) {
	status := ""
	if l.HTTPStatus != 0 {
		status = fmt.Sprint(l.HTTPStatus)
	}
	group, size := "", fmt.Sprintf("%d bytes", l.Size)
	if l.Source != nil {
		group = l.Source.Group
	}
	run, record := l.Run, ""
	if l.Kind == parley.DeadLetterTask {
		run, record = "", letterPlace(l)
	}
	switch {
	case l.Tombstone:
		size = "none (a tombstone)"
	case int64(len(l.Value)) < l.Size:
		size += fmt.Sprintf(", of which the first %d were kept", len(l.Value))
	}
	list := []field{
		{"Dead letter", cell{text: l.ID}},
		{"Kind", cell{text: string(l.Kind)}},
		{"State", cell{string(l.State), inkOfLetter(l.State)}},
		{"Error", cell{string(l.Code) + ": " + l.Reason, styleBad}},
		{"Attempts", cell{text: fmt.Sprint(l.Attempts)}},
		{"HTTP status", cell{text: status}},
		{"Agent", cell{text: l.Agent}},
		{"Workflow", cell{text: l.Workflow}},
		{"From", cell{text: letterOrigin(l)}},
		{"Run", cell{text: run}},
		{"Task", cell{text: l.Task}},
		{"Record", cell{text: record}},
		{"Group", cell{text: group}},
		{"First failed", cell{text: a.when(&l.FirstFailedAt)}},
		{"Given up", cell{text: a.when(&l.CreatedAt)}},
		{"Value", cell{text: size}},
	}
	if l.ResolvedAt != nil {
		list = append(list, field{"Resolved", cell{text: a.when(l.ResolvedAt) + " by " + l.ResolvedBy}},
			field{"Why", cell{text: l.Note}}, field{"Led to", cell{text: l.ReplayRun}})
	}
	s.fields(list)
	if len(l.Key) > 0 {
		s.block("Key", shown(l.Key))
	}
	for _, h := range l.Headers {
		s.block("Header "+clean(h.Name), shown(h.Value))
	}
	if len(l.Value) > 0 {
		s.block("Value", shown(l.Value))
	}
}

// shown gives text as it is and anything else in base64.
func shown(b parley.Bytes) []byte {
	form, err := b.MarshalJSON()
	if err != nil || form[0] == '{' {
		return form
	}
	return b
}
