package client

import (
	"context"
	"encoding/json"

	"github.com/parley-project/parley"
)

type signalBody struct {
	Event string          `json:"event"`
	Key   string          `json:"key,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	ID    string          `json:"id,omitempty"`
}

// Publish publishes an event to all runs that wait for it, or will within 24 h.
// An id that there was within 24 h is ignored, so that an event with an id may be
// sent again. The signal's Time is not sent: the server gives it.
//
// As many events of a name and key as may wait are refused with
// [parley.CodeLimit].
func (c *Client) Publish(ctx context.Context, s parley.Signal) (parley.SignalReceipt, error) {
	return c.signal(ctx, path("events"), s)
}

// Signal delivers an event to one run. A run that has ended is refused with
// [parley.CodeConflict], else as [Client.Publish].
func (c *Client) Signal(ctx context.Context, run string, s parley.Signal) (parley.SignalReceipt, error) {
	if err := needName("run", run); err != nil {
		return parley.SignalReceipt{}, err
	}
	return c.signal(ctx, path("runs", run, "signal"), s)
}

func (c *Client) signal(ctx context.Context, path string, s parley.Signal) (parley.SignalReceipt, error) {
	var receipt parley.SignalReceipt
	if err := needName("event", s.Name); err != nil {
		return receipt, err
	}
	err := c.post(ctx, call{path: path, trace: s.Trace}, signalBody{Event: s.Name, Key: s.Key, Data: s.Data, ID: s.ID}, &receipt)
	return receipt, err
}

// ApprovalQuery selects approvals that wait. Zero members don't restrict.
type ApprovalQuery struct {
	Run, Workflow string
	// For are roles and users of which one at least may answer.
	For  []string
	Page PageQuery
}

// Approvals gives one page of the approvals that wait, oldest first;
// [Client.Answer] with a Choice answers one.
func (c *Client) Approvals(ctx context.Context, query ApprovalQuery) (Page[parley.ApprovalItem], error) {
	q := query.Page.values()
	setIf(q, "run_id", query.Run)
	setIf(q, "workflow", query.Workflow)
	for _, name := range query.For {
		q.Add("for", name)
	}
	var page Page[parley.ApprovalItem]
	err := c.get(ctx, path("approvals"), q, &page)
	return page, err
}
