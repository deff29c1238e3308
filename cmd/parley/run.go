package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newRunCommand(a *app) *cobra.Command {
	cmd := newGroup("run", "Start, watch and change runs of workflows", `
  parley run start hello --set name=Ada --wait
  parley run list --status RUNNING
  parley run watch RUN`)
	cmd.AddCommand(
		newRunStart(a), newRunList(a), newRunShow(a), newRunWatch(a),
		newRunEvents(a), newRunAttempts(a), newRunAnswer(a), newRunSignal(a),
		newRunCancel(a), newRunTerminate(a), newRunPause(a), newRunResume(a), newRunRetry(a), newRunRerun(a), newRunExplain(a),
	)
	return cmd
}

// startFlags are those of run start.
type startFlags struct {
	input, key   string
	sets, labels []string
	priority     int
	wait         bool
	timeout      time.Duration
}

func newRunStart(a *app) *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use:   "start WORKFLOW[@VERSION]",
		Short: "Start a run of a workflow",
		Long: `Start a run of a workflow and print it.

With --wait, every step is shown as it happens, on standard error, and the run
as it ended is printed; the exit code tells how it ended. An agent that waits
for a person is shown with its question: answer it from another terminal. To
interrupt the wait does not end the run.

VERSION may be an alias. Without one the alias stable is taken, if there is one,
else the newest version that is not deprecated.`,
		Example: `  parley run start hello --set name=Ada --wait
  parley run start hello@3 --input '{"name": "Ada"}'
  parley run start report --input @input.json --set options.depth=2 --label team=blue
  echo '{"name": "Ada"}' | parley run start hello --input - --wait --timeout 5m -o json`,
		Args: need("WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runStart(cmd.Context(), args[0], f)
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.input, "input", "", "input: JSON, @FILE, or - for standard input")
	fl.StringArrayVar(&f.sets, "set", nil, "member of the input: name=value, also a.b=value (JSON if it reads as JSON, else text)")
	fl.BoolVar(&f.wait, "wait", false, "wait for the end and show the steps")
	fl.DurationVar(&f.timeout, "timeout", 0, "longest wait, such as 30s or 5m; default: no bound (with --wait)")
	fl.StringVar(&f.key, "idempotency-key", "", "the same key and input give the same run")
	fl.StringArrayVar(&f.labels, "label", nil, "label of the run: name=value")
	fl.IntVar(&f.priority, "priority", parley.DefaultRunPriority, "among runs that wait for the same agents: 0 to 9, higher goes first")
	neverEmpty(cmd, "input", "idempotency-key")
	return cmd
}

func (a *app) runStart(ctx context.Context, ref string, f startFlags) error {
	if err := checkTimeout(f.timeout, f.wait); err != nil {
		return err
	}
	if f.priority < 0 || f.priority > parley.MaxRunPriority {
		return usagef("--priority must be 0 to %d, higher goes first; %d is the default", parley.MaxRunPriority, parley.DefaultRunPriority)
	}
	input, err := a.readInput(f.input, orMembers)
	if err != nil {
		return err
	}
	if input, err = buildInput(input, f.sets); err != nil {
		return err
	}
	labels, err := parseLabels(f.labels)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	name, version := ref, ""
	// Nothing behind it, such as a variable that is not set, is not the version that a
	// plain start takes: that could be another one than was meant.
	if i := strings.LastIndexByte(ref, '@'); i > 0 && i < len(ref)-1 {
		name, version = ref[:i], ref[i+1:]
	}
	req := parley.StartRequest{Workflow: name, Version: version, Input: input, IdempotencyKey: f.key, Labels: labels}
	if f.priority != parley.DefaultRunPriority {
		req.Priority = &f.priority
	}
	req.Trace = a.trace()
	run, err := c.StartRun(ctx, req)
	if err != nil {
		return a.nearMiss(ctx, c, err, workflowHint(strings.TrimSuffix(name, "@")))
	}
	if !f.wait {
		if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{}) }); err != nil {
			return err
		}
		a.nextOf(run)
		return nil
	}
	return a.finish(ctx, c, run, f.timeout)
}

// finish waits for the end of a run, prints it and gives the error that stands
// for how it ended.
func (a *app) finish(ctx context.Context, c *client.Client, run parley.Run, timeout time.Duration) error {
	run, waited := a.await(ctx, c, run, timeout)
	if waited != nil && classify(waited).exit != exitTimedOut {
		return waited
	}
	if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{values: true}) }); err != nil {
		return err
	}
	if waited != nil {
		return waited
	}
	if err := outcome(run); err != nil {
		return err
	}
	a.next("parley run show %s", run.ID)
	return nil
}

func checkTimeout(d time.Duration, wait bool) error {
	switch {
	case d < 0:
		return usagef("--timeout must not be negative")
	case d > 0 && !wait:
		return usagef("--timeout bounds the waiting: give --wait too")
	}
	return nil
}

func parseLabels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(list))
	for _, l := range list {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, usagef("--label %s: write it as name=value", l)
		}
		labels[name] = value
	}
	return labels, nil
}

func newRunWatch(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "watch RUN",
		Short: "Show a run's steps as they happen, up to its end",
		Long: `Show a run's steps as they happen, from its first, and print the run as it
ended. The exit code tells how it ended. To interrupt does not end the run.`,
		Example: `  parley run watch RUN
  parley run watch RUN --timeout 10m -o json`,
		Args: need("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTimeout(timeout, true); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			run, err := c.Run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.finish(cmd.Context(), c, run, timeout)
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "longest wait, such as 30s or 5m; default: no bound")
	return cmd
}

func newRunRetry(a *app) *cobra.Command {
	var wait bool
	var key string
	var timeout time.Duration
	var many bulkFlags
	cmd := &cobra.Command{
		Use:   "retry [RUN]",
		Short: "Start a new run that goes on after a run's completed steps",
		Long: `Start a new run that takes over the completed steps of a run that failed or
was cancelled, and does the rest. The old run stays as it ended.

With a filter, or --all, it is done to every run that is selected and was not
retried yet, newest first: --dry-run counts them, --yes does it. The exit code is 1
if some could not be retried.`,
		Example: `  parley run retry RUN
  parley run retry RUN --wait
  parley run retry --status FAILED --workflow hello --after 2h --dry-run`,
		Args: need("[RUN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTimeout(timeout, wait); err != nil {
				return err
			}
			if bulk, err := many.many(cmd, args); err != nil {
				return err
			} else if bulk {
				if wait || key != "" {
					return usagef("--wait and --idempotency-key are for one run")
				}
				return a.runBulk(cmd.Context(), &many, parley.BulkRetry, "")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			run, err := c.RetryRun(cmd.Context(), parley.RetryRequest{Run: args[0], IdempotencyKey: key, Trace: a.trace()})
			if err != nil {
				return err
			}
			if wait {
				return a.finish(cmd.Context(), c, run, timeout)
			}
			if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{}) }); err != nil {
				return err
			}
			a.nextOf(run)
			return nil
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	many.add(cmd)
	cmd.Flags().StringVar(&key, "idempotency-key", "", sameKey)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end and show the steps")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "longest wait, such as 30s or 5m; default: no bound (with --wait)")
	neverEmpty(cmd, "idempotency-key")
	return cmd
}
