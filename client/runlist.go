package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// RunQuery selects runs. Zero members don't restrict.
type RunQuery struct {
	Status parley.RunStatus
	// Statuses are more of them; a run has one of all.
	Statuses []parley.RunStatus
	// Workflow is a workflow_id, a name, or the id of a deployed version; Version a
	// version of the workflow.
	Workflow, Version string
	// Labels are all of the run's.
	Labels map[string]string
	// Text is found in the id, the workflow's, its name, or the error, in upper or
	// lower case.
	Text string
	// Parent is the run whose steps have started them.
	Parent string
	// Paused restricts to runs that are paused.
	Paused                      bool
	CreatedAfter, CreatedBefore time.Time
	EndedAfter, EndedBefore     time.Time
	// SortBy is created_at (default), updated_at or status; Ascending turns
	// the order, which is newest first.
	SortBy    string
	Ascending bool
	// Hidden includes the runs of agent calls.
	Hidden bool
	Page   PageQuery
}

// values writes everything but the page.
func (query RunQuery) values(q url.Values) url.Values {
	if query.Status != "" {
		q.Add("status", string(query.Status))
	}
	for _, s := range query.Statuses {
		q.Add("status", string(s))
	}
	setIf(q, "workflow_id", query.Workflow)
	setIf(q, "version", query.Version)
	for name, value := range query.Labels {
		q.Add("label", name+"="+value)
	}
	setIf(q, "text", query.Text)
	setIf(q, "parent", query.Parent)
	setTime(q, "created_after", query.CreatedAfter)
	setTime(q, "created_before", query.CreatedBefore)
	setTime(q, "ended_after", query.EndedAfter)
	setTime(q, "ended_before", query.EndedBefore)
	setIf(q, "sort_by", query.SortBy)
	setAscending(q, query.Ascending)
	if query.Hidden {
		q.Set("hidden", "true")
	}
	if query.Paused {
		q.Set("paused", "true")
	}
	return q
}

// Runs gives one page of the runs, without their steps.
func (c *Client) Runs(ctx context.Context, query RunQuery) (Page[parley.Run], error) {
	var page Page[parley.Run]
	err := c.get(ctx, path("runs"), query.values(query.Page.values()), &page)
	return page, err
}

// RunPage is one page of a search.
type RunPage struct {
	Items []parley.Run `json:"items"`
	// Next is the cursor of the next page; "" after the last.
	Next string `json:"next,omitempty"`
}

// SearchRuns gives at most limit (1 to 500; 0 is 20) of the runs that query
// selects, by the time of creation, without their steps. cursor is the Next of the
// page before, "" for the first: new runs don't change the pages behind it. A page
// may be short, or empty, and not the last. query.Page and query.SortBy are not
// used.
func (c *Client) SearchRuns(ctx context.Context, query RunQuery, cursor string, limit int) (RunPage, error) {
	query.SortBy = ""
	if limit == 0 {
		limit = 20
	}
	q := query.values(url.Values{"limit": {strconv.Itoa(limit)}})
	setIf(q, "cursor", cursor)
	var page RunPage
	err := c.get(ctx, path("runs"), q, &page)
	return page, err
}
