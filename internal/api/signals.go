package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// Inbox is what the API needs of whoever takes events and knows what waits for
// people.
type Inbox interface {
	// Signal publishes an event, or tells one run of it. not_found, conflict (the
	// run has ended), invalid, limit.
	Signal(ctx context.Context, req parley.SignalRequest) (parley.SignalReceipt, error)
	// Hook takes a delivery to a webhook. not_found, unauthorized, unavailable, conflict,
	// idempotency_conflict, expression, invalid_input, limit.
	Hook(ctx context.Context, req parley.HookRequest) (parley.HookReceipt, error)
	// Approvals gives one page of the approvals that wait, oldest first, and the
	// true number of all that match.
	Approvals(ctx context.Context, q parley.ApprovalQuery) (items []parley.ApprovalItem, total int, err error)
}

func (s *server) signalRoutes() []route {
	answers := []answer{{status: http.StatusAccepted, body: parley.SignalReceipt{}}, {status: http.StatusOK, body: parley.SignalReceipt{}}}
	return []route{
		{
			method: http.MethodPost, path: "/api/v1/events", id: "publish-event", tag: "events",
			summary: "Publish an event to all runs that wait for it, or will within 24 h; one whose id there was is ignored (200)",
			params:  traceParams(),
			body:    signalBody{}, answers: answers, errors: []int{413, 415, 422}, handle: s.publishEvent,
		},
		{
			method: http.MethodPost, path: "/api/v1/runs/{id}/signal", id: "signal-run", tag: "runs",
			summary: "Deliver an event to one run; one whose id there was is ignored (200)",
			params:  []*huma.Param{pathParam("id", "The run's id.")},
			body:    signalBody{}, answers: answers, errors: []int{404, 409, 413, 415, 422}, handle: s.publishEvent,
		},
		{
			method: http.MethodGet, path: "/api/v1/approvals", id: "list-approvals", tag: "runs",
			summary: "List the approvals that wait, oldest first; POST /runs/{id}/answer answers one",
			params: append(
				pageParams(),
				queryParam("run_id", huma.TypeString, "Only those of one run."),
				queryParam("workflow", huma.TypeString, "Only those of one workflow_id."),
				&huma.Param{
					Name: "for", In: "query", Description: "Only those that one of these roles or users may answer; may be given several times.",
					Schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
				},
			),
			answers: ok(pageOf[parley.ApprovalItem]{}), errors: []int{422}, handle: s.listApprovals,
		},
	}
}

// signalBody documents the body of an event; publishEvent reads it.
type signalBody struct {
	Event string          `json:"event" minLength:"1" maxLength:"255" doc:"What has happened: the name that steps wait for."`
	Key   string          `json:"key,omitempty" maxLength:"255" doc:"To what; steps wait for the same key."`
	Data  json.RawMessage `json:"data,omitempty" doc:"Any JSON value of at most 8 MiB, default null."`
	ID    string          `json:"id,omitempty" maxLength:"255" doc:"A repeated one is ignored for 24 h; one is made if there is none."`
}

// publishEvent takes an event for all runs, or for the one of the path.
func (s *server) publishEvent(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.ExecuteBody, "event"}, false)
	if err != nil {
		return err
	}
	req := parley.SignalRequest{Run: r.PathValue("id")}
	req.Signal.Trace = traceOf(r)
	o.require("event")
	for _, m := range []struct {
		name  string
		least int
		to    *string
	}{{"event", 1, &req.Signal.Name}, {"key", 0, &req.Signal.Key}, {"id", 0, &req.Signal.ID}} {
		if v := o.text(m.name, m.least, parley.MaxSignalText); v != nil {
			*m.to = *v
		}
	}
	req.Signal.Data = o.value("data", bodyLimit{parley.MaxSignalData, "data"})
	if err := o.done(true); err != nil {
		return err
	}
	receipt, err := s.cfg.Inbox.Signal(r.Context(), req)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if receipt.Repeated {
		status = http.StatusOK
	}
	receipt.Time = receipt.Time.UTC()
	s.reply(w, r, status, receipt)
	return nil
}

func (s *server) listApprovals(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := parley.ApprovalQuery{Run: q.get("run_id"), Workflow: q.get("workflow"), For: slices.DeleteFunc(q.values["for"], func(name string) bool { return name == "" }), Page: page.page()}
	if len(req.For) > maxRoles+1 { // a person and what he is besides
		q.wrong("for", "too_long", fmt.Sprintf("must be given at most %d times", maxRoles+1))
	}
	if err := q.done(); err != nil {
		return err
	}
	items, total, err := s.cfg.Inbox.Approvals(r.Context(), req)
	if err != nil {
		return err
	}
	items = mapped(items, func(a parley.ApprovalItem) parley.ApprovalItem { a.CreatedAt = a.CreatedAt.UTC(); return a })
	s.reply(w, r, http.StatusOK, makePage(items, total, page))
	return nil
}
