package client

import (
	"context"
	"net/http"
	"time"

	"github.com/parley-project/parley"
)

// ScheduleQuery selects schedules. Zero members don't restrict.
type ScheduleQuery struct {
	Workflow string
	Status   parley.ScheduleStatus
	Page     PageQuery
}

// Schedules gives one page of schedules by workflow, those of definitions and those
// that were added.
func (c *Client) Schedules(ctx context.Context, query ScheduleQuery) (Page[parley.Schedule], error) {
	q := query.Page.values()
	setIf(q, "workflow", query.Workflow)
	setIf(q, "status", string(query.Status))
	var page Page[parley.Schedule]
	err := c.get(ctx, path("schedules"), q, &page)
	return page, err
}

// Schedule gives the schedule of that id or name.
func (c *Client) Schedule(ctx context.Context, ref string) (parley.Schedule, error) {
	var s parley.Schedule
	if err := needName("schedule", ref); err != nil {
		return s, err
	}
	err := c.get(ctx, path("schedules", ref), nil, &s)
	return s, err
}

// ScheduleFirings gives one page of what became of a schedule's newest firings, the
// latest first.
func (c *Client) ScheduleFirings(ctx context.Context, ref string, p PageQuery) (Page[parley.ScheduleFiring], error) {
	var page Page[parley.ScheduleFiring]
	if err := needName("schedule", ref); err != nil {
		return page, err
	}
	err := c.get(ctx, path("schedules", ref, "firings"), p.values(), &page)
	return page, err
}

// AddSchedule adds a schedule to a workflow. A name that another has is refused
// with [parley.CodeConflict]. By is not sent.
func (c *Client) AddSchedule(ctx context.Context, req parley.ScheduleRequest) (parley.Schedule, error) {
	var s parley.Schedule
	if err := needName("workflow", req.Workflow); err != nil {
		return s, err
	}
	err := c.post(ctx, call{path: path("schedules")}, struct {
		Workflow string `json:"workflow"`
		Name     string `json:"name,omitempty"`
		parley.ScheduleSpec
	}{req.Workflow, req.Name, req.ScheduleSpec}, &s)
	return s, err
}

// RemoveSchedule removes a schedule that was added. One that stands in a definition
// is refused with [parley.CodeConflict].
func (c *Client) RemoveSchedule(ctx context.Context, ref string) error {
	if err := needName("schedule", ref); err != nil {
		return err
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("schedules", ref)}, nil)
	return err
}

// PauseSchedule lets a schedule fire no more; again changes nothing.
func (c *Client) PauseSchedule(ctx context.Context, ref string) (parley.Schedule, error) {
	return c.changeSchedule(ctx, ref, "pause")
}

// ResumeSchedule lets a schedule fire again, from its next firing on; again changes
// nothing.
func (c *Client) ResumeSchedule(ctx context.Context, ref string) (parley.Schedule, error) {
	return c.changeSchedule(ctx, ref, "resume")
}

func (c *Client) changeSchedule(ctx context.Context, ref, what string) (parley.Schedule, error) {
	var s parley.Schedule
	if err := needName("schedule", ref); err != nil {
		return s, err
	}
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("schedules", ref, what)}, &s)
	return s, err
}

// BackfillSchedule fires for a time that has passed, both ends included. Firings
// that have started a run are left alone. By is not sent.
func (c *Client) BackfillSchedule(ctx context.Context, req parley.BackfillRequest) (parley.BackfillReport, error) {
	var report parley.BackfillReport
	if err := needName("schedule", req.Ref); err != nil {
		return report, err
	}
	err := c.post(ctx, call{path: path("schedules", req.Ref, "backfill")}, struct {
		From time.Time `json:"from"`
		To   time.Time `json:"to"`
	}{req.From.UTC(), req.To.UTC()}, &report)
	return report, err
}
