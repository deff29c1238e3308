package main

import (
	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// signalFlags are those of an event.
type signalFlags struct{ event, key, data, id string }

func (f *signalFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.key, "key", "", "what the event is about: steps wait for the same key; the server's key goes before the command (parley --key env:NAME …) or in PARLEY_KEY")
	fl.StringVar(&f.data, "data", "", "a value: JSON, @FILE, or - for standard input")
	fl.StringVar(&f.id, "id", "", "a repeated id is ignored for 24 h")
	neverEmpty(cmd, "data", "id")
}

func newRunSignal(a *app) *cobra.Command {
	var f signalFlags
	cmd := &cobra.Command{
		Use:   "signal RUN --event NAME",
		Short: "Deliver an event to one run",
		Long: `Deliver an event to one run: the first step of it that waits for an event of
that name and key, now or within 24 h, and that it matches, goes on. parley
event publish is for all runs.`,
		Example: `  parley run signal RUN --event payment.settled --key 4711 --data '{"amount": 12.50}'
  parley run signal RUN --event go`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.event == "" {
				return usagef("a signal needs --event, the name that the run waits for")
			}
			err := a.signal(f, func(c *client.Client, e parley.Signal) (parley.SignalReceipt, error) {
				return c.Signal(cmd.Context(), args[0], e)
			})
			if err == nil {
				a.next("parley run show %s", args[0])
			}
			return err
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	cmd.Flags().StringVar(&f.event, "event", "", "the name of the event")
	f.add(cmd)
	return cmd
}

func newEventCommand(a *app) *cobra.Command {
	cmd := newGroup("event", "Publish events that runs wait for", `
  parley event publish payment.settled --key 4711 --data '{"amount": 12.50}'`)
	cmd.AddCommand(newEventPublish(a))
	return cmd
}

func newEventPublish(a *app) *cobra.Command {
	var f signalFlags
	cmd := &cobra.Command{
		Use:   "publish NAME",
		Short: "Publish an event to all runs that wait for it, or will within 24 h",
		Long: `Publish an event: in each run the first step that waits for an event of that
name and key, and that it matches, goes on. Runs take it that were started
before it and begin to wait within 24 h, too. With --id it may be sent again
without harm.`,
		Example: `  parley event publish payment.settled --key 4711 --data '{"amount": 12.50}'
  parley event publish deploy.done --id build-2041`,
		Args: need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.event = args[0]
			return a.signal(f, func(c *client.Client, e parley.Signal) (parley.SignalReceipt, error) {
				return c.Publish(cmd.Context(), e)
			})
		},
	}
	f.add(cmd)
	return cmd
}

// signal makes an event of the flags, and has it sent: to one run, or to all.
func (a *app) signal(f signalFlags, send func(*client.Client, parley.Signal) (parley.SignalReceipt, error)) error {
	e := parley.Signal{ID: f.id, Name: f.event, Key: f.key, Trace: a.trace()}
	var err error
	if e.Data, err = a.readValue("--data", f.data); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	receipt, err := send(c, e)
	if err != nil {
		return err
	}
	return a.show(receipt, func(s *sheet) {
		what := "accepted"
		if receipt.Repeated {
			what = "ignored: there was an event of this id"
		}
		s.fields([]field{{"Event", cell{text: receipt.ID}}, {"Time", cell{text: a.when(&receipt.Time)}}, {"Status", cell{text: what}}})
	})
}
