package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newAgentCommand(a *app) *cobra.Command {
	cmd := newGroup("agent", "Register, change and call agents", `
  parley agent add http://127.0.0.1:9001/
  parley agent list
  parley agent call greeter --text Ada`)
	cmd.AddCommand(
		newAgentAdd(a), newAgentList(a), newAgentShow(a),
		newAgentSet(a), newAgentRemove(a), newAgentCall(a), newAgentDetect(a), newAgentCheck(a), newAgentHealth(a), newAgentBreaker(a),
	)
	return cmd
}

func newAgentList(a *app) *cobra.Command {
	var q client.AgentQuery
	var status string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents",
		Long: `List agents. -o wide also says how they do, as parley agent health does: health,
the 95th percentile of the time of their newest calls, how many of those have
failed, and where the circuit stands.`,
		Example: `  parley agent list
  parley agent list --protocol jsonrpc-2.0 -o wide
  parley agent list --status all`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Status, err = recordStatus(status); err != nil {
				return err
			}
			if err := checkPage(q.Page); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			page, err := c.Agents(cmd.Context(), q)
			if err != nil {
				return err
			}
			columns, err := a.agentColumns(cmd.Context(), c, q)
			if err != nil {
				return err
			}
			if err := showList(a, listing[client.Agent]{
				whole: page, items: page.Items, columns: columns, none: "no agents; register one: parley agent add URL",
			}); err != nil {
				return err
			}
			a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "agent"})
			if len(page.Items) > 0 {
				a.next("parley agent call %s --text hello", shellWord(page.Items[0].Name))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Protocol, "protocol", "", "only agents of this protocol")
	statusFlag(cmd, &status)
	pageFlags(cmd.Flags(), &q.Page)
	neverEmpty(cmd, "protocol")
	return cmd
}

// agentColumns are those of the agents that q gives. With -o wide the server is
// asked once more, how they all do.
func (a *app) agentColumns(ctx context.Context, c *client.Client, q client.AgentQuery) ([]column[client.Agent], error) {
	columns := agentRecordColumns()
	if a.flags.output != "wide" {
		return columns, nil
	}
	page, err := c.AgentConditions(ctx, q)
	if err != nil {
		return nil, err
	}
	all := make(map[string]client.AgentCondition, len(page.Items))
	for _, one := range page.Items {
		all[one.Agent] = one
	}
	does := func(head string, of func(client.AgentCondition) cell) column[client.Agent] {
		return column[client.Agent]{head: head, fixed: true, cell: func(g client.Agent) cell {
			if one, ok := all[g.Name]; ok { // else it was added just now
				return of(one)
			}
			return cell{}
		}}
	}
	return append(columns[:4:4], append([]column[client.Agent]{
		does("HEALTH", func(h client.AgentCondition) cell { return cell{string(h.Status), inkOf(string(h.Status))} }),
		does("P95", func(h client.AgentCondition) cell { return cell{text: tookMS(h.Calls.P95MS)} }),
		does("ERRORS", func(h client.AgentCondition) cell { return errorsCell(h.Calls) }),
		does("CIRCUIT", func(h client.AgentCondition) cell { return cell{string(h.Circuit), inkOf(string(h.Circuit))} }),
	}, columns[4:]...)...), nil
}

// agentRecordColumns are those that an agent's record is enough for.
func agentRecordColumns() []column[client.Agent] {
	return []column[client.Agent]{
		{head: "AGENT", cell: plain(func(g client.Agent) string { return g.Name })},
		{head: "PROTOCOL", fixed: true, cell: plain(func(g client.Agent) string { return g.Protocol })},
		{head: "STATUS", fixed: true, cell: func(g client.Agent) cell {
			text := string(g.Status)
			if g.Unreadable {
				text += " (cannot be read)"
			}
			return cell{text, inkOf(string(g.Status))}
		}},
		{head: "URL", cell: plain(func(g client.Agent) string { return g.URL })},
		{head: "AUTH", wide: true, cell: plain(func(g client.Agent) string { return string(g.AuthType) })},
		{head: "TIMEOUT", wide: true, cell: plain(func(g client.Agent) string { return milliseconds(g.TimeoutMS) })},
		{head: "IF UNKNOWN", wide: true, cell: plain(func(g client.Agent) string { return string(g.OutcomeUnknown) })},
		{head: "ID", wide: true, cell: plain(func(g client.Agent) string { return g.ID })},
		{head: "DESCRIPTION", wide: true, cell: plain(func(g client.Agent) string { return g.Description })},
	}
}

func milliseconds(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).String()
}

func newAgentShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show an agent's record",
		Example: `  parley agent show greeter
  parley agent show greeter -o yaml`,
		Args: need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			g, err := c.Agent(cmd.Context(), args[0])
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: agentNames, command: "parley agent list"})
			}
			return a.showAgent(g)
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
}

func (a *app) showAgent(g client.Agent) error {
	if err := a.show(g, func(s *sheet) { a.drawAgent(s, g) }); err != nil {
		return err
	}
	a.next("parley agent call %s --text hello", shellWord(g.Name))
	return nil
}

func (a *app) drawAgent(s *sheet, g client.Agent) {
	list := []field{
		{"Agent", cell{text: g.Name}},
		{"URL", cell{text: g.URL}},
		{"Protocol", cell{text: g.Protocol}},
		{"Status", cell{string(g.Status), inkOf(string(g.Status))}},
		{"Description", cell{text: g.Description}},
		{"Settings", cell{text: jsonText(g.ProtocolConfig)}},
		{"Auth", cell{text: strings.TrimSpace(string(g.AuthType) + " " + jsonText(g.AuthConfig))}},
		{"TLS", cell{text: jsonText(g.TLS)}},
		{"Timeout", cell{text: milliseconds(g.TimeoutMS)}},
		{"If unknown", cell{text: string(g.OutcomeUnknown)}},
	}
	if text := limitsText(g); text != "" {
		list = append(list, field{"Limits", cell{text: text}})
	}
	if text := breakerText(g.Breaker); text != "" {
		list = append(list, field{"Breaker", cell{text: text}})
	}
	if text := healthText(g.Health); text != "" {
		list = append(list, field{"Looked at", cell{text: text}})
	}
	if g.Idempotent {
		list = append(list, field{"Idempotent", cell{text: "yes"}})
	}
	if d := g.Detected; d != nil && d.Version != "" { // of Simple A2A there is nothing more to say
		list = append(list, a.detectionFields(*d)...)
	}
	list = append(list, field{"Created", cell{text: a.when(&g.CreatedAt)}}, field{"ID", cell{text: g.ID}})
	s.fields(list)
}

// jsonText gives a value on one line, "" for none.
func jsonText(v json.RawMessage) string {
	if s := string(v); s != "null" && s != "{}" {
		return s
	}
	return ""
}

func newAgentRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Take an agent out of use",
		Long: `Take an agent out of use. Its name stays taken for ever, so that no history
speaks of two agents. To remove it again changes nothing.`,
		Example: "  parley agent remove greeter",
		Args:    need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RemoveAgent(cmd.Context(), args[0]); err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: agentNames, command: "parley agent list"})
			}
			if err := a.said(message{args[0], "removed"}); err != nil {
				return err
			}
			a.next("parley agent list")
			return nil
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
}

// callFlags are those of agent call.
type callFlags struct {
	text, input string
	timeout     time.Duration
	given       bool
}

func newAgentCall(a *app) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "call NAME",
		Short: "Call an agent once and print what came back",
		Long: `Call an agent as a workflow would: a run of one step is started, which lists do
not show, and what came back is printed.`,
		Example: `  parley agent call greeter --text Ada
  parley agent call greeter --input '{"name": "Ada"}' -o json
  parley agent call greeter --input @input.json --timeout 30s`,
		Args: need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = cmd.Flags().Changed("text")
			return a.agentCall(cmd.Context(), args[0], f)
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
	cmd.Flags().StringVar(&f.text, "text", "", "text for the agent")
	cmd.Flags().StringVar(&f.input, "input", "", "input: JSON, @FILE, or - for standard input")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "longest wait, such as 30s or 5m; default: no bound")
	return cmd
}

func (a *app) agentCall(ctx context.Context, name string, f callFlags) error {
	if f.given == (f.input != "") {
		return usagef("give --text or --input, one of them")
	}
	if err := checkTimeout(f.timeout, true); err != nil {
		return err
	}
	input, err := a.readInput(f.input, "a text as --text TEXT")
	if err != nil {
		return err
	}
	if f.given {
		if !utf8.ValidString(f.text) {
			return usagef("--text is not UTF-8, and would be sent as another text")
		}
		if input, err = toJSON(map[string]string{"text": f.text}); err != nil {
			return err
		}
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	run, err := c.CallAgent(ctx, parley.StartRequest{CallAgent: name, Input: input, Trace: a.trace()})
	if err != nil {
		return a.nearMiss(ctx, c, err, nameHint{name: name, list: agentNames, command: "parley agent list"})
	}
	run, waited := a.await(ctx, c, run, f.timeout)
	if waited != nil {
		return waited
	}
	if err := outcome(run); err != nil {
		return err
	}
	output := run.Output
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if err := a.show(output, func(s *sheet) { drawAnswer(s, output) }); err != nil {
		return err
	}
	a.next("parley run show %s", run.ID)
	return nil
}

// drawAnswer writes the text of an answer if it has one, else all of it.
func drawAnswer(s *sheet, output json.RawMessage) {
	var o struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(output, &o) == nil && o.Text != "" && !s.wide {
		s.line(cleanLines(o.Text))
		return
	}
	var text string
	if json.Unmarshal(output, &text) == nil {
		s.line(cleanLines(text))
		return
	}
	s.line(cleanLines(string(indent(output))))
}
