package client

import (
	"context"

	"github.com/parley-project/parley"
)

// DeadLetterQuery selects dead letters. Zero members don't restrict.
type DeadLetterQuery struct {
	Filter parley.DeadLetterFilter
	// Ascending is oldest first; else newest first.
	Ascending bool
	Page      PageQuery
}

// DeadLetters gives one page of what was given up, without keys, headers and
// values.
func (c *Client) DeadLetters(ctx context.Context, query DeadLetterQuery) (Page[parley.DeadLetter], error) {
	q := query.Page.values()
	f := query.Filter
	setIf(q, "state", string(f.State))
	setIf(q, "kind", string(f.Kind))
	setIf(q, "code", string(f.Code))
	setIf(q, "reason", f.Reason)
	setIf(q, "agent", f.Agent)
	setIf(q, "workflow", f.Workflow)
	setIf(q, "run_id", f.Run)
	setIf(q, "topic", f.Topic)
	setTime(q, "created_after", f.CreatedAfter)
	setTime(q, "created_before", f.CreatedBefore)
	setAscending(q, query.Ascending)
	var page Page[parley.DeadLetter]
	err := c.get(ctx, path("dead-letters"), q, &page)
	return page, err
}

// DeadLetter gives one dead letter whole.
func (c *Client) DeadLetter(ctx context.Context, id string) (parley.DeadLetter, error) {
	var l parley.DeadLetter
	if err := needName("dead letter", id); err != nil {
		return l, err
	}
	err := c.get(ctx, path("dead-letters", id), nil, &l)
	return l, err
}

// ReplayDeadLetter replays a dead letter and gives it as it is then: a task's
// run goes on in a new run (ReplayRun), a record is published again. One that
// does not wait any more is refused with [parley.CodeConflict] unless force is
// set.
func (c *Client) ReplayDeadLetter(ctx context.Context, id string, force bool) (parley.DeadLetter, error) {
	return c.Replay(ctx, parley.ReplayRequest{ID: id, Force: force})
}

// Replay is [Client.ReplayDeadLetter] with the trace of the run that goes on. By is
// not sent: the server knows who calls.
func (c *Client) Replay(ctx context.Context, r parley.ReplayRequest) (parley.DeadLetter, error) {
	in := struct {
		Force bool `json:"force,omitempty"`
	}{r.Force}
	return c.changeDeadLetter(ctx, call{path: path("dead-letters", r.ID, "replay"), trace: r.Trace}, r.ID, in)
}

// DiscardDeadLetter notes that nothing is to be done about a dead letter, and why
// (at most 500 characters). One that was replayed is refused with
// [parley.CodeConflict].
func (c *Client) DiscardDeadLetter(ctx context.Context, id, reason string) (parley.DeadLetter, error) {
	in := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	return c.changeDeadLetter(ctx, call{path: path("dead-letters", id, "discard")}, id, in)
}

func (c *Client) changeDeadLetter(ctx context.Context, k call, id string, in any) (parley.DeadLetter, error) {
	var l parley.DeadLetter
	if err := needName("dead letter", id); err != nil {
		return l, err
	}
	err := c.post(ctx, k, in, &l)
	return l, err
}

// ReplayDeadLetters replays a batch of the waiting dead letters that a filter
// selects, oldest first. It takes as long as the batch, at most half a minute;
// as long as the report has a Next, another batch goes on from there. By is not
// sent: the server knows who calls.
func (c *Client) ReplayDeadLetters(ctx context.Context, b parley.ReplayBatch) (parley.ReplayReport, error) {
	in := struct {
		Filter parley.DeadLetterFilter `json:"filter"`
		Rate   int                     `json:"rate,omitempty"`
		Limit  int                     `json:"limit,omitempty"`
		After  string                  `json:"after,omitempty"`
		DryRun bool                    `json:"dry_run,omitempty"`
	}{b.Filter, b.Rate, b.Limit, b.After, b.DryRun}
	var report parley.ReplayReport
	err := c.post(ctx, call{path: "/api/v1/dead-letters:replay"}, in, &report)
	return report, err
}

// DiscardDeadLetters discards all waiting dead letters that r.Filter selects.
func (c *Client) DiscardDeadLetters(ctx context.Context, r parley.DiscardRequest) (parley.DiscardReport, error) {
	in := struct {
		Filter parley.DeadLetterFilter `json:"filter"`
		Reason string                  `json:"reason,omitempty"`
		DryRun bool                    `json:"dry_run,omitempty"`
	}{r.Filter, r.Note, r.DryRun}
	var report parley.DiscardReport
	err := c.post(ctx, call{path: "/api/v1/dead-letters:discard"}, in, &report)
	return report, err
}
