package client

import (
	"context"
	"net/url"
	"time"

	"github.com/parley-project/parley"
)

// AgentCondition says how an agent does.
type AgentCondition struct {
	Agent string `json:"agent"`
	// Status is that of a look now if one was asked for, else that of the looks in
	// the background; Message, ResponseTimeMS and Timestamp belong to it.
	Status  parley.HealthStatus `json:"status"`
	Message string              `json:"message"`
	// ResponseTimeMS and Timestamp are nil if nobody has looked.
	ResponseTimeMS *float64   `json:"response_time_ms"`
	Timestamp      *time.Time `json:"timestamp"`
	// CheckedAt is the newest look in the background, LastChangeAt when those have
	// changed the status; nil for never.
	CheckedAt    *time.Time `json:"checked_at"`
	LastChangeAt *time.Time `json:"last_change_at"`
	// Failures counts the newest looks in the background that have failed in a row.
	Failures int         `json:"consecutive_failures"`
	Calls    CallFigures `json:"calls"`
	// InFlight counts the calls that all bridges have under way at it.
	InFlight int            `json:"in_flight"`
	Circuit  parley.Circuit `json:"circuit"`
}

// CallFigures are those of the newest calls of an agent that have ended, without
// cancelled ones.
type CallFigures struct {
	Count  int `json:"count"`
	Errors int `json:"errors"`
	// ErrorRate is from 0 to 1.
	ErrorRate float64 `json:"error_rate"`
	// P50MS, P95MS and P99MS are percentiles of the time from the claim of a call
	// to its end, in milliseconds; nil without calls.
	P50MS *float64 `json:"p50_ms"`
	P95MS *float64 `json:"p95_ms"`
	P99MS *float64 `json:"p99_ms"`
	// WindowS is the time that the calls are of, in seconds.
	WindowS float64 `json:"window_s"`
}

// HealthCheck says how an agent is looked at in the background; 0 is as the server
// says.
type HealthCheck struct {
	Enabled    bool  `json:"enabled"`
	IntervalMS int64 `json:"interval_ms,omitempty"`
	TimeoutMS  int64 `json:"timeout_ms,omitempty"`
}

// AgentCondition says how one agent does; with fresh it is looked at now.
func (c *Client) AgentCondition(ctx context.Context, ref string, fresh bool) (AgentCondition, error) {
	var out AgentCondition
	if err := needName("agent", ref); err != nil {
		return out, err
	}
	q := url.Values{}
	if !fresh {
		q.Set("fresh", "false")
	}
	err := c.get(ctx, path("agents", ref, "health"), q, &out)
	return out, err
}

// AgentConditions says how one page of the agents do, also of removed ones unless
// the query names a status. Nobody looks at them now.
func (c *Client) AgentConditions(ctx context.Context, query AgentQuery) (Page[AgentCondition], error) {
	var page Page[AgentCondition]
	err := c.get(ctx, path("agents")+":health", query.values(), &page)
	return page, err
}

func (query AgentQuery) values() url.Values {
	q := query.Page.values()
	setIf(q, "name", query.Name)
	setIf(q, "protocol", query.Protocol)
	setIf(q, "status", string(query.Status))
	return q
}
