package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// healthFlags are those of agent health.
type healthFlags struct {
	query  client.AgentQuery
	status string
	fresh  bool
}

func newAgentHealth(a *app) *cobra.Command {
	var f healthFlags
	cmd := &cobra.Command{
		Use:   "health [NAME]",
		Short: "Say whether agents are well, and how their calls went",
		Long: `Say how agents do: whether they are well by the looks that the server takes at
them in the background, how long their calls of the last minutes took, how many
have failed, how many are under way, and where their circuit stands. With NAME
it is one agent, and --fresh looks at it now.

The exit code is 0 also if an agent is not well.`,
		Example: `  parley agent health
  parley agent health greeter
  parley agent health greeter --fresh -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("it takes one NAME, or none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.agentHealth(cmd.Context(), args[0], f.fresh)
			}
			if f.fresh {
				return usagef("--fresh goes with NAME")
			}
			return a.agentsHealth(cmd.Context(), f)
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
	cmd.Flags().BoolVar(&f.fresh, "fresh", false, "look at the agent now")
	cmd.Flags().StringVar(&f.query.Protocol, "protocol", "", "only agents of this protocol")
	statusFlag(cmd, &f.status)
	pageFlags(cmd.Flags(), &f.query.Page)
	neverEmpty(cmd, "protocol")
	return cmd
}

func (a *app) agentHealth(ctx context.Context, name string, fresh bool) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	h, err := c.AgentCondition(ctx, name, fresh)
	if err != nil {
		return a.nearMiss(ctx, c, err, nameHint{name: name, list: agentNames, command: "parley agent list"})
	}
	if err := a.show(h, func(s *sheet) { a.drawHealth(s, h) }); err != nil {
		return err
	}
	switch {
	case h.Circuit == parley.CircuitOpen:
		a.next("parley agent breaker %s", shellWord(h.Agent))
	case h.Status == parley.HealthUnhealthy:
		a.next("parley agent check %s", shellWord(h.Agent))
	default:
		a.next("parley agent show %s", shellWord(h.Agent))
	}
	return nil
}

func (a *app) agentsHealth(ctx context.Context, f healthFlags) (err error) {
	if f.query.Status, err = recordStatus(f.status); err != nil {
		return err
	}
	if err := checkPage(f.query.Page); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	page, err := c.AgentConditions(ctx, f.query)
	if err != nil {
		return err
	}
	if err := showList(a, listing[client.AgentCondition]{
		whole: page, items: page.Items, columns: a.healthColumns(), none: "no agents; register one: parley agent add URL",
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "agent"})
	if len(page.Items) > 0 {
		a.next("parley agent health %s", shellWord(page.Items[0].Agent))
	}
	return nil
}

func (a *app) healthColumns() []column[client.AgentCondition] {
	type condition = client.AgentCondition
	took := func(head string, of func(client.CallFigures) *float64) column[condition] {
		return column[condition]{head: head, fixed: true, cell: plain(func(h condition) string { return tookMS(of(h.Calls)) })}
	}
	return []column[condition]{
		{head: "AGENT", cell: plain(func(h condition) string { return h.Agent })},
		{head: "HEALTH", fixed: true, cell: func(h condition) cell { return cell{string(h.Status), inkOf(string(h.Status))} }},
		{head: "CHECKED", fixed: true, cell: plain(func(h condition) string { return a.ago(h.CheckedAt) })},
		took("P50", func(c client.CallFigures) *float64 { return c.P50MS }),
		took("P95", func(c client.CallFigures) *float64 { return c.P95MS }),
		took("P99", func(c client.CallFigures) *float64 { return c.P99MS }),
		{head: "CALLS", fixed: true, cell: plain(func(h condition) string { return fmt.Sprint(h.Calls.Count) })},
		{head: "ERRORS", fixed: true, cell: func(h condition) cell { return errorsCell(h.Calls) }},
		{head: "IN FLIGHT", fixed: true, cell: plain(func(h condition) string { return fmt.Sprint(h.InFlight) })},
		{head: "CIRCUIT", fixed: true, cell: func(h condition) cell { return cell{string(h.Circuit), inkOf(string(h.Circuit))} }},
		{head: "WRONG", cell: plain(wrong)},
	}
}

// errorsCell says how many of an agent's calls have failed.
func errorsCell(c client.CallFigures) cell {
	if c.Count == 0 {
		return cell{}
	}
	out := cell{text: fmt.Sprintf("%.1f%%", c.ErrorRate*100)}
	if c.Errors > 0 {
		out.ink = styleWarn
	}
	return out
}

// wrong says in a line why an agent is not well, or why nobody knows.
func wrong(h client.AgentCondition) string {
	if h.Status == parley.HealthHealthy && h.Failures == 0 {
		return ""
	}
	return h.Message
}

func tookMS(ms *float64) string {
	if ms == nil {
		return ""
	}
	return elapsed(time.Duration(*ms * float64(time.Millisecond)))
}

// ago says how long ago t was, "" for never.
func (a *app) ago(t *time.Time) string {
	if t == nil {
		return ""
	}
	d := max(a.now().Sub(*t), 0).Round(time.Second)
	if d < time.Minute {
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	}
	return duration(d) + " ago"
}

// lookedAt is the time of the look that the health is of, one in the background or
// one that was asked for; nil is never.
func lookedAt(h client.AgentCondition) *time.Time {
	if h.Timestamp != nil {
		return h.Timestamp
	}
	return h.CheckedAt
}

func (a *app) drawHealth(s *sheet, h client.AgentCondition) {
	c := h.Calls
	list := []field{
		{"Agent", cell{text: h.Agent}},
		{"Health", cell{string(h.Status), inkOf(string(h.Status))}},
		{"Said", cell{text: h.Message}},
		{"Checked", cell{text: orDash(a.ago(lookedAt(h)))}},
	}
	if h.LastChangeAt != nil {
		list = append(list, field{"Since", cell{text: a.when(h.LastChangeAt)}})
	}
	if h.Failures > 0 {
		failed := plural(h.Failures, "look") + " in a row"
		if at := lookedAt(h); h.CheckedAt != nil && !at.Equal(*h.CheckedAt) {
			failed += ", before this one"
		}
		list = append(list, field{"Failed", cell{text: failed}})
	}
	list = append(list, field{"Calls", cell{text: fmt.Sprintf("%d in %s", c.Count, duration(time.Duration(c.WindowS*float64(time.Second)).Round(time.Second)))}})
	if c.Count > 0 {
		list = append(
			list, field{"Errors", cell{text: fmt.Sprintf("%d (%.1f%%)", c.Errors, c.ErrorRate*100), ink: errorsCell(c).ink}},
			field{"Took", cell{text: fmt.Sprintf("p50 %s, p95 %s, p99 %s", tookMS(c.P50MS), tookMS(c.P95MS), tookMS(c.P99MS))}},
		)
	}
	s.fields(append(list, field{"In flight", cell{text: fmt.Sprint(h.InFlight)}}, field{"Circuit", cell{string(h.Circuit), inkOf(string(h.Circuit))}}))
}

// healthSpec reads --health.
func healthSpec(text string) (*parley.HealthCheck, error) {
	switch text {
	case "on", "none":
		return &parley.HealthCheck{}, nil
	case "off":
		return &parley.HealthCheck{Off: true}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > time.Hour {
		return nil, usagef("--health %s: it must be on, off, none, or a time of 1s to 1h", text)
	}
	return &parley.HealthCheck{Interval: d}, nil
}

// healthText says in one line how a record's agent is looked at, "" for as the
// server says.
func healthText(h *client.HealthCheck) string {
	switch {
	case h == nil:
		return ""
	case !h.Enabled:
		return "off"
	}
	var parts []string
	if h.IntervalMS > 0 {
		parts = append(parts, "every "+milliseconds(h.IntervalMS))
	}
	if h.TimeoutMS > 0 {
		parts = append(parts, "within "+milliseconds(h.TimeoutMS))
	}
	return strings.Join(parts, ", ")
}
