package zonetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/internal/zone/execution"
)

// Work is an execution.Work that does what the text of a task says, and keeps all
// in memory:
//
//	say TEXT        ends with the string TEXT
//	give JSON       ends with JSON
//	later TEXT      ends with the string TEXT when Finish is called
//	fail, cancel, time out, expire    end that way
//	panic, break    Start panics, or fails inside
//	panic late, break late    Await does
//	overload, stop, refuse    Start refuses
//	echo            ends with the task as it was given
//
// Everything else is said back.
type Work struct {
	mu     sync.Mutex
	tasks  map[string]*begun
	starts int
}

type begun struct {
	in   execution.Input
	out  execution.Outcome
	done chan struct{}
}

// Start implements execution.Work.
func (w *Work) Start(_ context.Context, key string, in execution.Input) error {
	what, _, _ := strings.Cut(in.Text, " ")
	switch what {
	case "panic":
		if in.Text != "panic late" {
			panic("the work panics, with secret-of-the-inside")
		}
	case "break":
		if in.Text != "break late" {
			return errors.New("it broke: secret-of-the-inside")
		}
	case "overload":
		return &execution.OverloadedError{RetryAfter: 7 * time.Second}
	case "stop":
		return execution.ErrStopping
	case "refuse":
		return execution.ErrInvalid
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.tasks[key]; old != nil {
		if old.in.Fingerprint() != in.Fingerprint() {
			return execution.ErrConflict
		}
		return nil
	}
	if w.tasks == nil {
		w.tasks = make(map[string]*begun)
	}
	w.starts++
	t := &begun{in: in, out: outcome(in), done: make(chan struct{})}
	w.tasks[key] = t
	if what != "later" {
		close(t.done)
	}
	return nil
}

// outcome is how a task ends.
func outcome(in execution.Input) execution.Outcome {
	out := execution.Outcome{State: execution.Completed, Input: in}
	what, rest, _ := strings.Cut(in.Text, " ")
	const cause = "cause: secret-of-the-inside"
	switch what {
	case "say", "later":
		out.Output = mustJSON(rest)
	case "give":
		out.Output = json.RawMessage(rest)
	case "echo":
		out.Output = mustJSON(in)
	case "fail":
		out.State, out.Cause = execution.Failed, cause
	case "cancel":
		out.State, out.Cause = execution.Cancelled, cause
	case "time":
		out.State, out.Cause = execution.TimedOut, cause
	case "expire":
		out.State = execution.Expired
	default:
		out.Output = mustJSON(in.Text)
	}
	return out
}

func mustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// Await implements execution.Work.
func (w *Work) Await(ctx context.Context, key string) (execution.Outcome, error) {
	w.mu.Lock()
	t := w.tasks[key]
	w.mu.Unlock()
	switch {
	case t == nil:
		return execution.Outcome{}, execution.ErrUnknown
	case t.in.Text == "panic late":
		panic("the work panics, with secret-of-the-inside")
	case t.in.Text == "break late":
		return execution.Outcome{}, errors.New("it broke: secret-of-the-inside")
	}
	select {
	case <-t.done:
	case <-ctx.Done():
	}
	return w.Look(ctx, key) // which of two things that have happened is not left to chance
}

// Look implements execution.Work.
func (w *Work) Look(_ context.Context, key string) (execution.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tasks[key]
	if t == nil {
		return execution.Outcome{}, execution.ErrUnknown
	}
	select {
	case <-t.done:
		return t.out, nil
	default:
		return execution.Outcome{State: execution.Running, Input: t.in}, nil
	}
}

// Running implements execution.Work.
func (w *Work) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, t := range w.tasks {
		select {
		case <-t.done:
		default:
			n++
		}
	}
	return n
}

// Finish ends every task that runs.
func (w *Work) Finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tasks {
		select {
		case <-t.done:
		default:
			close(t.done)
		}
	}
}

// Starts counts the tasks that were begun, without those that had been before.
func (w *Work) Starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}
