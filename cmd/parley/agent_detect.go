package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

const maxSlug = 64

func newAgentDetect(a *app) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "detect NAME|URL",
		Short: "Find out how an agent is called, and change nothing",
		Long: `Find out what an agent speaks and where, without giving it work: by its card, and
where that is silent by a question about a task that does not exist. What was
found and why is printed; nothing is stored.

An agent that is registered is asked as its record says; flags change that for
this one time.`,
		Example: `  parley agent detect https://agents.example.com/a2a
  parley agent detect https://agents.example.com/a2a --auth bearer --auth-secret env:PARLEY_SECRET_A
  parley agent detect greeter -o json`,
		Args: need("NAME or URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := a.agentSpec(&f, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			byName := !isAgentURL(args[0])
			if spec.Name, spec.URL = &args[0], nil; !byName {
				spec.Name, spec.URL = nil, &args[0]
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			found, err := c.DetectAgent(cmd.Context(), spec)
			if err != nil && byName {
				err = a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: agentNames, command: "parley agent list"})
			}
			if err != nil {
				a.explain(explanationOf(err))
				return err
			}
			a.explain(found.Explanation)
			if err := a.show(found, func(s *sheet) { s.fields(a.detectionFields(found)) }); err != nil {
				return err
			}
			if byName {
				a.next("parley agent set %s --protocol auto", shellWord(args[0]))
			} else {
				a.next("parley agent add %s", shellWord(args[0]))
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
	f.registerAccess(cmd)
	return cmd
}

func newAgentCheck(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME",
		Short: "Look at an agent and its card anew, and say what changed",
		Long: `Look at an agent: whether it answers, and what its card says now. What is not as
the record says is printed. An agent that was found out about before is called
by what was found now; the protocol stays what it is.

The exit code is 1 if the agent does not answer, or cannot be found out about.`,
		Example: `  parley agent check greeter
  parley agent check greeter -o json`,
		Args: need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			check, err := c.CheckAgent(cmd.Context(), args[0])
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: agentNames, command: "parley agent list"})
			}
			if check.Detected != nil {
				a.explain(check.Detected.Explanation)
			}
			if err := a.show(check, func(s *sheet) { a.drawCheck(s, args[0], check) }); err != nil {
				return err
			}
			switch {
			case check.Health.Status != "healthy":
				return &failure{exit: exitFailed, code: parley.CodeAgentUnavailable, text: check.Health.Message}
			case check.Error != nil:
				return &failure{exit: exitFailed, code: check.Error.Code, text: check.Error.Message}
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(agentNames),
	}
}

func (a *app) drawCheck(s *sheet, name string, check client.AgentCheck) {
	list := []field{
		{"Agent", cell{text: name}},
		{"Health", cell{check.Health.Status, inkOf(check.Health.Status)}},
		{"Said", cell{text: check.Health.Message}},
	}
	if check.Detected != nil {
		list = append(list, a.detectionFields(*check.Detected)...)
	}
	for i, change := range check.Changes {
		title := "Changed"
		if i > 0 {
			title = ""
		}
		list = append(list, field{title, cell{text: change}})
	}
	if len(check.Changes) == 0 && check.Detected != nil {
		list = append(list, field{"Changed", cell{text: "nothing"}})
	}
	s.fields(list)
	switch {
	case check.Stored:
		a.note("the agent is called by what was found now")
	case len(check.Changes) > 0:
		a.next("parley agent set %s --protocol auto", shellWord(name))
	}
}

// detectionFields show how an agent is called.
func (a *app) detectionFields(d parley.Detection) []field {
	speaks := d.Protocol
	if d.Version != "" {
		speaks += ": A2A " + d.Version + " over " + d.Binding
	}
	var can []string
	if d.Streaming {
		can = append(can, "streams")
	}
	if d.Push {
		can = append(can, "push")
	}
	signature := d.Signature
	if d.SignatureKey != "" {
		signature += " with key " + d.SignatureKey
	}
	list := []field{
		{"Speaks", cell{text: speaks}},
		{"Called at", cell{text: d.URL}},
		{"Tenant", cell{text: d.Tenant}},
		{"Can", cell{text: strings.Join(can, ", ")}},
		{"Takes", cell{text: strings.Join(d.InputModes, ", ")}},
		{"Gives", cell{text: strings.Join(d.OutputModes, ", ")}},
		{"Card", cell{text: d.CardURL}},
	}
	if d.CardURL != "" {
		list = append(list, field{"Signature", cell{text: signature}})
	}
	if d.Auth != nil {
		list = append(list, field{"Wants", cell{text: strings.TrimSpace(cmp.Or(d.Auth.Flags(), string(d.Auth.Type)) + " " + d.Auth.Note)}})
	}
	return append(list, field{"Found out", cell{text: a.when(&d.At)}})
}

// explain prints why something was decided.
func (a *app) explain(lines []string) {
	for _, line := range lines {
		a.note("%s", line)
	}
}

// explanationOf gives what the server says about how far it came.
func explanationOf(err error) []string {
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return refused.Explanation
	}
	return nil
}

// found asks the server what the agent of spec speaks, and prints why.
func (a *app) found(ctx context.Context, c *client.Client, spec parley.AgentSpec) (parley.Detection, error) {
	d, err := c.DetectAgent(ctx, spec)
	if err == nil {
		a.explain(d.Explanation)
		a.note("protocol: %s", d.Protocol)
		return d, nil
	}
	a.explain(explanationOf(err))
	f := classify(err)
	switch f.code {
	case parley.CodeAgentUnavailable, parley.CodeAgentRejected, parley.CodeAgentError, parley.CodeTimeout:
		return d, f.withHint("nothing was guessed; to register it all the same, name its protocol: --protocol %s or %s", parley.ProtocolJSONRPC, parley.ProtocolSimpleA2A)
	}
	return d, err
}

// slug makes a name of an agent: letters, digits, dots and dashes, in lower
// case; "" if nothing of that is in it.
func slug(text string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(text) {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' && b.Len() > 0 {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
			if b.Len() >= maxSlug {
				break
			}
			continue
		}
		dash = true
	}
	return strings.TrimRight(b.String(), ".-")
}
