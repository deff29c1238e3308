// Package steps drives a client of somebody else's library: it reads what to
// call from a file, and writes what came of it to another one. The tests own
// both files, so that all cases and all expectations stand in the tests.
package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/interop/internal/practice"
)

// A Step is one thing for a client to do. Op is
//
//	call       a call
//	many       Times calls at once; the text "$n" in Params becomes their number
//	notify     a notification
//	batch      Entries in one batch
//	cancel     a call that is cancelled as soon as the server runs it
//	print      Text to standard output, past the library
//	exchange   Text as a message of its own, and then Answers messages back
type Step struct {
	Op      string          `json:"op"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Times   int             `json:"times,omitempty"`
	Entries []Step          `json:"entries,omitempty"`
	Text    string          `json:"text,omitempty"`
	Answers int             `json:"answers,omitempty"`
}

// An Outcome is what came of a Step. Failure is the text of an error that is
// no answer of the server.
type Outcome struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *practice.Fault `json:"error,omitempty"`
	Failure string          `json:"failure,omitempty"`
	// Results are those of many, sorted by number.
	Results []json.RawMessage `json:"results,omitempty"`
	// Entries are those of a batch, notifications left out.
	Entries []Outcome `json:"entries,omitempty"`
	// Texts are the messages that an exchange brought back.
	Texts []string `json:"texts,omitempty"`
}

// A Client is what a peer program makes of its library's client. Its calls are
// safe for concurrent use, and tell the server when their context ends.
type Client interface {
	Call(ctx context.Context, method string, params json.RawMessage) Outcome
	Notify(ctx context.Context, method string, params json.RawMessage) error
	// Batch sends entries together. A library without batches fails.
	Batch(ctx context.Context, entries []Step) Outcome
}

// Read reads a file of steps.
func Read(file string) ([]Step, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []Step
	return all, json.Unmarshal(text, &all)
}

// Write writes a file of outcomes.
func Write(file string, all []Outcome) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// Run takes the steps one after the other.
func Run(ctx context.Context, c Client, all []Step) []Outcome {
	out := make([]Outcome, len(all))
	for i, s := range all {
		out[i] = run(ctx, c, s)
	}
	return out
}

func run(ctx context.Context, c Client, s Step) Outcome {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	switch s.Op {
	case "call":
		return c.Call(ctx, s.Method, s.Params)
	case "many":
		return many(ctx, c, s)
	case "notify":
		return failed(c.Notify(ctx, s.Method, s.Params))
	case "batch":
		return c.Batch(ctx, s.Entries)
	case "cancel":
		return cancel(ctx, c, s)
	case "print":
		_, err := os.Stdout.WriteString(s.Text)
		return failed(err)
	}
	return failed(fmt.Errorf("no step %q", s.Op))
}

func failed(err error) Outcome {
	if err == nil {
		return Outcome{}
	}
	return Outcome{Failure: err.Error()}
}

func many(ctx context.Context, c Client, s Step) Outcome {
	out := Outcome{Results: make([]json.RawMessage, s.Times)}
	bad := make([]string, s.Times)
	var all sync.WaitGroup
	for i := range s.Times {
		all.Go(func() {
			params := strings.ReplaceAll(string(s.Params), `"$n"`, strconv.Itoa(i))
			one := c.Call(ctx, s.Method, json.RawMessage(params))
			out.Results[i] = one.Result
			if one.Result == nil {
				bad[i] = fmt.Sprintf("call %d: %+v %s", i, one.Error, one.Failure)
			}
		})
	}
	all.Wait()
	for _, text := range bad {
		if text != "" {
			return Outcome{Failure: text}
		}
	}
	return out
}

// cancel ends a call that the server is known to run, and waits until the
// server says that it heard of it.
func cancel(ctx context.Context, c Client, s Step) Outcome {
	one, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan Outcome, 1)
	var call sync.WaitGroup
	call.Go(func() { done <- c.Call(one, s.Method, s.Params) })
	defer call.Wait()
	if err := until(ctx, c, func(waiting, _ int) bool { return waiting > 0 }); err != nil {
		stop()
		return failed(fmt.Errorf("the call never ran: %w", err))
	}
	stop()
	out := <-done
	if err := until(ctx, c, func(waiting, cancelled int) bool { return waiting == 0 && cancelled > 0 }); err != nil {
		return failed(fmt.Errorf("the server was not told: %w", err))
	}
	return out
}

func until(ctx context.Context, c Client, ok func(waiting, cancelled int) bool) error {
	for range 500 {
		var at struct{ Waiting, Cancelled int }
		out := c.Call(ctx, "waits", nil)
		if err := json.Unmarshal(out.Result, &at); err != nil {
			return fmt.Errorf("%w: %+v", err, out)
		}
		if ok(at.Waiting, at.Cancelled) {
			return nil
		}
		<-time.After(10 * time.Millisecond)
	}
	return errors.New("waited for 5 s")
}
