package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/parley-project/parley"
)

type startBody struct {
	Input          json.RawMessage   `json:"input_data"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Version        string            `json:"version,omitempty"`
	Priority       *int              `json:"priority,omitempty"`
}

func newStartBody(r parley.StartRequest) startBody {
	input := r.Input
	if input == nil {
		input = json.RawMessage("{}")
	}
	return startBody{Input: input, IdempotencyKey: r.IdempotencyKey, Labels: r.Labels, Version: r.Version, Priority: r.Priority}
}

// StartRun starts a run of r.Workflow and gives it as it is at the start. With
// an idempotency key that was used before, it gives the run that was started
// then, whatever its state. TriggeredBy is not sent: the server knows who
// calls.
//
// An unknown workflow is refused with [parley.CodeNotFound], an input that
// does not fit with [parley.CodeInvalidInput], a key that was used with other
// input with [parley.CodeIdempotencyConflict].
func (c *Client) StartRun(ctx context.Context, r parley.StartRequest) (parley.Run, error) {
	if r.CallAgent != "" {
		return c.CallAgent(ctx, r)
	}
	if err := needName("workflow", r.Workflow); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	err := c.post(ctx, call{path: path("workflows", r.Workflow, "execute"), trace: r.Trace}, newStartBody(r), &run)
	return run, err
}

// Run gives one run with its steps.
func (c *Client) Run(ctx context.Context, id string) (parley.Run, error) {
	if err := needName("run", id); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	err := c.get(ctx, path("runs", id), nil, &run)
	return run, err
}

func setTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

func setAscending(q url.Values, ascending bool) {
	if ascending {
		q.Set("sort_order", "asc")
	}
}

// Attempts gives one page of the calls of agents that were made for a run, in
// the order in which they were scheduled; step "" is all of them.
func (c *Client) Attempts(ctx context.Context, run, step string, page PageQuery) (Page[parley.Attempt], error) {
	var list Page[parley.Attempt]
	if err := needName("run", run); err != nil {
		return list, err
	}
	q := page.values()
	setIf(q, "step", step)
	err := c.get(ctx, path("runs", run, "attempts"), q, &list)
	return list, err
}

// EventQuery selects events of a run.
type EventQuery struct {
	// After is the number of the event before the first wanted one.
	After int64
	// Limit bounds the number of events: at most 500, and 0 is 100.
	Limit int
}

// EventPage is a part of a run's history.
type EventPage struct {
	Items []parley.Event `json:"items"`
	// NextAfter is the After of the next page.
	NextAfter int64 `json:"next_after"`
	// More: the next page has events already.
	More bool `json:"more"`
}

// Events gives events of a run in order, as far as they are recorded.
// [Client.Watch] gives them all, also those to come.
func (c *Client) Events(ctx context.Context, run string, query EventQuery) (EventPage, error) {
	var page EventPage
	if err := needName("run", run); err != nil {
		return page, err
	}
	err := c.get(ctx, path("runs", run, "events"), query.values(), &page)
	return page, err
}

// Cancel asks for the end of a run and gives it as it is then: it may take its
// time to end. Reason, at most 500 characters, is recorded. A run that has
// ended is refused with [parley.CodeConflict].
func (c *Client) Cancel(ctx context.Context, id, reason string) (parley.Run, error) {
	if err := needName("run", id); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	in := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	err := c.post(ctx, call{path: path("runs", id, "cancel")}, in, &run)
	return run, err
}

// Answer answers what the agent of a step waits for, and gives the run as it is
// then; the step whose Phase is [parley.PhaseInputRequired] shows its Question.
// With a Choice, or a reply that says one, it answers an approval; the step that
// waits for one shows it.
// Whoever holds the key says who answers: the By of the reply, and the Roles.
//
// If nothing waits, or several steps do and none is named, it is refused with
// [parley.CodeConflict], an unknown run or step with [parley.CodeNotFound], a
// reply without text, data and choice, a choice that there is not, and data that
// does not fit with [parley.CodeInvalid], and somebody who may not answer with
// [parley.CodeForbidden].
func (c *Client) Answer(ctx context.Context, r parley.AnswerRequest) (parley.Run, error) {
	if err := needName("run", r.Run); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	in := struct {
		Step   string          `json:"step,omitempty"`
		Text   string          `json:"text,omitempty"`
		Data   json.RawMessage `json:"data,omitempty"`
		Choice string          `json:"choice,omitempty"`
		By     string          `json:"by,omitempty"`
		Roles  []string        `json:"roles,omitempty"`
	}{r.Step, r.Reply.Text, r.Reply.Data, r.Choice, r.Reply.By, r.Roles}
	err := c.post(ctx, call{path: path("runs", r.Run, "answer")}, in, &run)
	return run, err
}

// Retry starts a new run that takes over the completed steps of a run that
// failed or was cancelled, and gives the new one; its RetriedFrom names the
// old. Any other run is refused with [parley.CodeConflict].
func (c *Client) Retry(ctx context.Context, id string) (parley.Run, error) {
	return c.RetryRun(ctx, parley.RetryRequest{Run: id})
}

// RetryRun is [Client.Retry] with a trace and an idempotency key: one that was used before gives
// the run that was begun then, and is refused with [parley.CodeIdempotencyConflict] if
// that was for another request. By is not sent: the server knows who calls.
func (c *Client) RetryRun(ctx context.Context, r parley.RetryRequest) (parley.Run, error) {
	if err := needName("run", r.Run); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	if r.IdempotencyKey == "" {
		_, err := c.do(ctx, call{method: http.MethodPost, path: path("runs", r.Run, "retry"), trace: r.Trace}, &run)
		return run, err
	}
	in := struct {
		IdempotencyKey string `json:"idempotency_key"`
	}{r.IdempotencyKey}
	err := c.post(ctx, call{path: path("runs", r.Run, "retry"), trace: r.Trace}, in, &run)
	return run, err
}
