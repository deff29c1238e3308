package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newAgentBreaker(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "breaker NAME [show|open|close]",
		Short: "Show, open or close the circuit of an agent",
		Long: `Show the circuit of an agent, or open or close it by hand. While it is open the
agent is not called: its tasks wait, or fail at once (on_open). What was opened by
hand stays open until it is closed by hand; what failures have opened is tried
again by itself. To open or close again changes nothing but the reason, if another
one is given for what is open by hand.`,
		Example: `  parley agent breaker greeter
  parley agent breaker greeter open --reason maintenance
  parley agent breaker greeter close`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("it takes NAME, and perhaps show, open or close")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			action := "show"
			if len(args) == 2 {
				action = args[1]
			}
			switch action {
			case "open", "close":
			case "show":
				if reason != "" {
					return usagef("--reason goes with open or close")
				}
			default:
				return usagef("%s is none of show, open, close", action)
			}
			return a.agentBreaker(cmd.Context(), args[0], action, reason)
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at it later")
	return cmd
}

func (a *app) agentBreaker(ctx context.Context, name, action, reason string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	var s client.Circuit
	if action == "show" {
		s, err = c.Circuit(ctx, name)
	} else {
		s, err = c.SwitchCircuit(ctx, name, parley.BreakerOrder{Open: action == "open", Reason: reason})
	}
	if err != nil {
		return a.nearMiss(ctx, c, err, nameHint{name: name, list: agentNames, command: "parley agent list"})
	}
	if err := a.show(s, func(sh *sheet) { a.drawCircuit(sh, s) }); err != nil {
		return err
	}
	switch {
	case s.State != parley.CircuitClosed:
		a.next("parley agent breaker %s close", shellWord(s.Agent))
	case !s.Breaker:
		a.next("parley agent set %s --breaker on", shellWord(s.Agent))
	default:
		a.next("parley agent show %s", shellWord(s.Agent))
	}
	return nil
}

func (a *app) drawCircuit(sh *sheet, s client.Circuit) {
	state := string(s.State)
	if s.Manual {
		state += ", by hand"
	}
	settings := "none in its record"
	if s.Breaker {
		settings = "on"
	}
	list := []field{
		{"Agent", cell{text: s.Agent}}, {"Circuit", cell{state, inkOf(string(s.State))}}, {"Breaker", cell{text: settings}},
	}
	if s.Since != nil {
		list = append(list, field{"Since", cell{text: a.when(s.Since)}})
	}
	if s.Until != nil {
		list = append(list, field{"Tried from", cell{text: a.when(s.Until)}})
	}
	list = append(list, field{"Reason", cell{text: s.Reason}}, field{"By", cell{text: s.By}}, field{"Openings", cell{text: fmt.Sprint(s.Openings)}})
	sh.fields(list)
}

// breakerSpec reads --breaker: on, off, none, or the members as JSON.
func (a *app) breakerSpec(text string) (*parley.Breaker, error) {
	b := parley.DefaultBreaker()
	switch text {
	case "on":
		return &b, nil
	case "off":
		b.Enabled = false
		return &b, nil
	case "none":
		return &parley.Breaker{}, nil
	}
	value, err := a.readValue("--breaker", text)
	if err != nil {
		return nil, err
	}
	in := client.NewBreaker(b)
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if len(value) == 0 || value[0] != '{' || dec.Decode(&in) != nil {
		return nil, usagef("--breaker must be on, off, none, or a JSON object of enabled, failure_threshold, failure_rate_threshold, minimum_calls, timeout_seconds, half_open_max_calls, window_size_seconds, on_open")
	}
	return new(in.Settings()), nil
}

// breakerText says in one line what a record's breaker is.
func breakerText(b *client.Breaker) string {
	switch {
	case b == nil:
		return ""
	case !b.Enabled:
		return "off"
	}
	onOpen := b.OnOpen
	if onOpen == "" {
		onOpen = parley.OnOpenWait
	}
	return fmt.Sprintf("%d failures in a row, or %g%% of %gs; open for %gs, then %d calls; tasks %s",
		b.FailureThreshold, b.FailureRate*100, b.WindowSeconds, b.TimeoutSeconds, b.HalfOpenCalls, onOpen)
}
