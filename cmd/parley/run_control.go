package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// control is a command that does something to a run that has not ended.
type control struct {
	verb, short, long, example string
	// reason: why may be said.
	reason bool
	do     func(ctx context.Context, c *client.Client, id, reason string) (parley.Run, error)
}

func newRunCancel(a *app) *cobra.Command {
	return newRunControl(a, control{
		verb: "cancel", short: "End a run", reason: true,
		long: `Ask for the end of a run. No step starts any more; agents that work get a
little time to end, so the run may still be RUNNING afterwards. A run whose body has
ended is not cancelled: what undoes steps and finally go on. To end that, too:
parley run terminate`,
		example: `  parley run cancel RUN
  parley run cancel RUN --reason "wrong input"`,
		do: func(ctx context.Context, c *client.Client, id, reason string) (parley.Run, error) {
			return c.Cancel(ctx, id, reason)
		},
	})
}

func newRunTerminate(a *app) *cobra.Command {
	return newRunControl(a, control{
		verb: "terminate", short: "End a run at once", reason: true,
		long: `End a run at once. Agents that work are told, and nobody waits for them; nothing
is compensated, and finally does not run. It also ends a run that is being
cancelled. To let agents end and steps be compensated: parley run cancel`,
		example: `  parley run terminate RUN
  parley run terminate RUN --reason "it hangs"`,
		do: func(ctx context.Context, c *client.Client, id, reason string) (parley.Run, error) {
			return c.Terminate(ctx, id, reason)
		},
	})
}

func newRunPause(a *app) *cobra.Command {
	return newRunControl(a, control{
		verb: "pause", short: "Let no step of a run start", reason: true,
		long: `Let no step and no attempt of a run start until it is resumed. What runs, ends;
timeouts go on, other timers act when the run is resumed.`,
		example: `  parley run pause RUN
  parley run pause RUN --reason "the agent is being replaced"`,
		do: func(ctx context.Context, c *client.Client, id, reason string) (parley.Run, error) {
			return c.Pause(ctx, id, reason)
		},
	})
}

func newRunResume(a *app) *cobra.Command {
	return newRunControl(a, control{
		verb: "resume", short: "Let a paused run go on",
		long: `End the pause of a run: what was held back starts, and timers that have become
due act.`,
		example: `  parley run resume RUN`,
		do: func(ctx context.Context, c *client.Client, id, _ string) (parley.Run, error) {
			return c.Resume(ctx, id)
		},
	})
}

// bulkHelp ends the help of commands that can change many runs.
const bulkHelp = `

With a filter, or --all, it is done to every run that is selected, newest first:
--dry-run counts them, --yes does it. The exit code is 1 if some could not be
changed.`

func newRunControl(a *app, k control) *cobra.Command {
	var reason string
	var many bulkFlags
	cmd := &cobra.Command{
		Use: k.verb + " [RUN]", Short: k.short, Long: k.long + bulkHelp,
		Example: k.example + "\n  parley run " + k.verb + " --workflow hello --label team=blue --before 2h --dry-run",
		Args:    need("[RUN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if bulk, err := many.many(cmd, args); err != nil {
				return err
			} else if bulk {
				return a.runBulk(cmd.Context(), &many, parley.BulkAction(k.verb), reason)
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			run, err := k.do(cmd.Context(), c, args[0], reason)
			if err != nil {
				return err
			}
			if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{}) }); err != nil {
				return err
			}
			if run.Paused {
				a.next("parley run resume %s", run.ID)
			} else {
				a.nextOf(run)
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	many.add(cmd)
	if k.reason {
		cmd.Flags().StringVar(&reason, "reason", "", "recorded with the run, at most 500 characters")
	}
	return cmd
}

// rerunFlags are those of run rerun.
type rerunFlags struct {
	from, input, workflowInput, version, key string
	wait                                     bool
	timeout                                  time.Duration
}

// sameKey says what --idempotency-key does where a run is made of another.
const sameKey = "the same key and request give the same run"

func newRunRerun(a *app) *cobra.Command {
	var f rerunFlags
	cmd := &cobra.Command{
		Use:   "rerun RUN",
		Short: "Start a new run that does a step of an ended one again",
		Long: `Start a new run that does a step of an ended run again, and all that depends on
it; everything else is copied, and no agent is called again for it. The step's
input, or the workflow's, may be another one. The old run stays as it ended.

Without --from, everything is done again.`,
		Example: `  parley run rerun RUN --from review
  parley run rerun RUN --from review --input '{"text": "better"}' --wait
  parley run rerun RUN --from review --version 4
  parley run rerun RUN --workflow-input @input.json`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runRerun(cmd.Context(), args[0], f)
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "", "the step, by id or path, that is done again with all that depends on it")
	fl.StringVar(&f.input, "input", "", "input of that step: JSON, @FILE, or - for standard input")
	fl.StringVar(&f.workflowInput, "workflow-input", "", "input of the workflow: JSON, @FILE, or - for standard input")
	fl.StringVar(&f.version, "version", "", "another version of the workflow")
	fl.StringVar(&f.key, "idempotency-key", "", sameKey)
	fl.BoolVar(&f.wait, "wait", false, "wait for the end and show the steps")
	fl.DurationVar(&f.timeout, "timeout", 0, "longest wait, such as 30s or 5m; default: no bound (with --wait)")
	neverEmpty(cmd, "from", "input", "workflow-input", "version", "idempotency-key")
	return cmd
}

func (a *app) runRerun(ctx context.Context, id string, f rerunFlags) error {
	if err := checkTimeout(f.timeout, f.wait); err != nil {
		return err
	}
	if f.input != "" && f.from == "" {
		return usagef("--input is that of the step --from; --workflow-input is that of the workflow")
	}
	if f.input == "-" && f.workflowInput == "-" {
		return usagef("--input and --workflow-input cannot both be standard input")
	}
	req := parley.RerunRequest{Run: id, From: f.from, Version: f.version, IdempotencyKey: f.key}
	var err error
	if req.Input, err = a.readValue("--input", f.input); err != nil {
		return err
	}
	if req.WorkflowInput, err = a.readValue("--workflow-input", f.workflowInput); err != nil {
		return err
	}
	// The server takes a null for what was left out: the old input would be used again.
	for flag, v := range map[string]json.RawMessage{"--input": req.Input, "--workflow-input": req.WorkflowInput} {
		if string(v) == "null" {
			return invalidf("%s is null, which replaces nothing: give another value, or leave it out to keep the one of before", flag)
		}
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	req.Trace = a.trace()
	run, err := c.Rerun(ctx, req)
	if err != nil {
		if f := classify(err); f.code == parley.CodeInvalidInput && req.WorkflowInput == nil {
			return f.withHint("the input of the run does not fit that version: give another with --workflow-input")
		}
		return err
	}
	if f.wait {
		return a.finish(ctx, c, run, f.timeout)
	}
	if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{}) }); err != nil {
		return err
	}
	a.next("parley run watch %s", run.ID)
	return nil
}
