package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// lastLook bounds the question for a run whose wait was given up.
const lastLook = 3 * time.Second

// errTimedOut is the cause of a wait that took too long.
const errTimedOut = waitError("timed out")

type waitError string

func (w waitError) Error() string { return string(w) }

// await follows a run to its end and gives it as it is then. The error says
// that waiting ended first: the run goes on, and is given as far as it is
// known.
func (a *app) await(ctx context.Context, c *client.Client, run parley.Run, timeout time.Duration) (parley.Run, error) {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		waiting, cancel = context.WithTimeoutCause(ctx, timeout, errTimedOut)
	}
	defer cancel()
	err := a.follow(waiting, c, run)
	if err == nil {
		// The last event has come, so this is quick; but it must not be cut
		// off by a timeout that has passed in between.
		ended, err := c.Run(ctx, run.ID)
		if err != nil {
			return run, notFollowed(err, run)
		}
		return ended, nil
	}
	if waiting.Err() == nil {
		return run, notFollowed(err, run)
	}
	code, why := parley.Code("interrupted"), "waiting ended"
	if errors.Is(context.Cause(waiting), errTimedOut) {
		code, why = parley.CodeTimeout, fmt.Sprintf("waited %s", timeout)
	}
	look, stop := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer stop()
	if now, e := c.Run(look, run.ID); e == nil {
		run = now
	}
	if run.Status.Terminal() {
		return run, nil
	}
	f := &failure{exit: exitTimedOut, code: code, text: fmt.Sprintf("%s; run %s goes on (%s)", why, run.ID, run.Status)}
	for _, step := range run.Steps {
		if step.Question != nil {
			f.text = fmt.Sprintf("%s; run %s waits for %s", why, run.ID, asksFor(step.Question))
			return run, f.withHint("%s, or parley run cancel %s", answerCommand(run.ID, step.ID), run.ID)
		}
	}
	return run, f.withHint("parley run watch %s, or parley run cancel %s", run.ID, run.ID)
}

// notFollowed is err, which has ended the waiting, with the run: who takes it for the
// failure of the whole command, and does not know the run, begins another one.
func notFollowed(err error, run parley.Run) error {
	f := *classify(err)
	f.text = fmt.Sprintf("run %s cannot be followed: %s", run.ID, f.text)
	if f.exit == exitUnreachable || f.hint == "" {
		f.hint = "the run goes on without this command, do not start it again: parley run watch " + run.ID
	}
	return errors.Join(&f, err)
}

// follow shows the events of a run on stderr as they happen, up to its end.
func (a *app) follow(ctx context.Context, c *client.Client, run parley.Run) error {
	board := newBoard(run)
	if columns, tty := a.terminal(a.stderr); tty && !a.flags.quiet && a.getenv("TERM") != "dumb" {
		// The height is only a first guess: the picture asks the terminal.
		return a.followDrawn(ctx, c, newProgressModel(board, a.now(), a.paint()), tea.WithWindowSize(columns, 24))
	}
	return watchRun(ctx, c, board.run, watcher{
		event: func(e parley.Event) {
			if n, ok := board.apply(e); ok {
				a.note("%s", n.plain(a.zone))
				if n.answer != "" {
					a.note("to answer: %s", clean(n.answer))
				}
			}
		},
		say: func(text string) { a.note("%s", text) },
	})
}

// followDrawn is follow on a terminal. Two goroutines: this one draws, the
// other watches; it ends when the run does or ctx ends, and is waited for.
func (a *app) followDrawn(ctx context.Context, c *client.Client, m *progressModel, o ...tea.ProgramOption) error {
	p := tea.NewProgram(m, append(o, tea.WithInput(nil), tea.WithOutput(a.stderr), tea.WithoutSignalHandler(),
		tea.WithEnvironment(quietTerminal(a.env)))...)
	run := m.board.run
	var watched error
	var watching sync.WaitGroup
	watching.Go(func() {
		// Sends are dropped once the picture has ended.
		watched = watchRun(ctx, c, run, watcher{
			event: func(e parley.Event) { p.Send(eventMsg(e)) },
			say:   func(text string) { p.Send(sayMsg(text)) },
		})
		p.Send(overMsg{})
	})
	_, err := p.Run()
	watching.Wait()
	if watched != nil {
		return watched
	}
	if err != nil {
		// The run has ended all the same; only the picture is missing.
		a.note("the progress could not be drawn: %v", err)
	}
	return nil
}

// paint gives how to colour what goes to standard error.
func (a *app) paint() func(ink, string) string {
	if a.colour(a.stderr) {
		return ink.Render
	}
	return func(_ ink, s string) string { return s }
}

// watcher is who wants to know.
type watcher struct {
	event func(parley.Event)
	say   func(string)
}

// watchRun gives all events of a run up to the last.
func watchRun(ctx context.Context, c *client.Client, run string, w watcher) error {
	o := client.WatchOptions{OnRetry: func(err error, delay time.Duration) {
		w.say(fmt.Sprintf("connection lost, trying again in %s: %v", duration(delay), err))
	}}
	for e, err := range c.Watch(ctx, run, o) {
		if err != nil {
			return err
		}
		w.event(e)
	}
	return nil
}

// outcome gives the error that stands for how a run ended; nil if it was
// completed.
func outcome(run parley.Run) error {
	switch run.Status {
	case parley.RunCompleted:
		return nil
	case parley.RunFailed:
		f := &failure{exit: exitRunFailed, code: "failed", text: "the run failed"}
		if e := run.Error; e != nil {
			f.code, f.text = e.Code, errorMessage(e)
			if e.Step != "" {
				f.text = fmt.Sprintf("step %s: %s", e.Step, f.text)
			}
		}
		return f.withHint("parley run show %s; %s", run.ID, goOn(run))
	case parley.RunCancelled:
		f := &failure{exit: exitRunCancelled, code: parley.CodeCancelled, text: "the run was cancelled"}
		return f.withHint("%s", goOn(run))
	}
	return nil
}

// goOn says how to go on after a run that has not completed.
func goOn(run parley.Run) string {
	if run.Compensated {
		return "what it had done was undone; from the start again: parley run rerun " + run.ID
	}
	return "to go on after the completed steps: parley run retry " + run.ID
}
