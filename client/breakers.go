package client

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"time"

	"github.com/parley-project/parley"
)

// Breaker is the circuit breaker of an agent's record.
type Breaker struct {
	Enabled          bool          `json:"enabled"`
	FailureThreshold int           `json:"failure_threshold"`
	FailureRate      float64       `json:"failure_rate_threshold"`
	MinimumCalls     int           `json:"minimum_calls,omitempty"`
	TimeoutSeconds   float64       `json:"timeout_seconds"`
	HalfOpenCalls    int           `json:"half_open_max_calls"`
	WindowSeconds    float64       `json:"window_size_seconds"`
	OnOpen           parley.OnOpen `json:"on_open,omitempty"`
}

// NewBreaker is b as records have it.
func NewBreaker(b parley.Breaker) Breaker {
	return Breaker{
		Enabled: b.Enabled, FailureThreshold: b.FailureThreshold, FailureRate: b.FailureRate, MinimumCalls: b.MinimumCalls,
		TimeoutSeconds: b.OpenFor.Seconds(), HalfOpenCalls: b.HalfOpenCalls, WindowSeconds: b.Window.Seconds(), OnOpen: b.OnOpen,
	}
}

// Settings is b as an [parley.AgentSpec] has it.
func (b Breaker) Settings() parley.Breaker {
	seconds := func(f float64) time.Duration {
		return time.Duration(math.Round(min(max(f, -1e6), 1e6)*1000)) * time.Millisecond
	}
	return parley.Breaker{
		Enabled: b.Enabled, FailureThreshold: b.FailureThreshold, FailureRate: b.FailureRate, MinimumCalls: b.MinimumCalls,
		OpenFor: seconds(b.TimeoutSeconds), HalfOpenCalls: b.HalfOpenCalls, Window: seconds(b.WindowSeconds), OnOpen: b.OnOpen,
	}
}

// breakerBody is a breaker on the wire: nil is not given, null removes it.
func breakerBody(b *parley.Breaker) (json.RawMessage, error) {
	switch {
	case b == nil:
		return nil, nil
	case *b == (parley.Breaker{}):
		return json.RawMessage("null"), nil
	}
	return json.Marshal(NewBreaker(*b))
}

// Circuit is where the circuit of an agent stands.
type Circuit struct {
	Agent string         `json:"agent"`
	State parley.Circuit `json:"state"`
	// Manual: it was opened by hand, and has to be closed by hand.
	Manual bool `json:"manual"`
	// Breaker: the agent's record names a breaker that is enabled.
	Breaker bool `json:"breaker"`
	// Since is nil if it was never open, Until if it is closed or Manual.
	Since    *time.Time `json:"since"`
	Until    *time.Time `json:"until"`
	Reason   string     `json:"reason"`
	By       string     `json:"by"`
	Openings int64      `json:"openings"`
}

// Circuit gives the state of an agent's circuit.
func (c *Client) Circuit(ctx context.Context, ref string) (Circuit, error) {
	var out Circuit
	if err := needName("agent", ref); err != nil {
		return out, err
	}
	err := c.get(ctx, path("agents", ref, "breaker"), nil, &out)
	return out, err
}

// SwitchCircuit opens the circuit of an agent, until it is closed the same way,
// or closes it. Again changes nothing. By is not sent.
func (c *Client) SwitchCircuit(ctx context.Context, ref string, o parley.BreakerOrder) (Circuit, error) {
	var out Circuit
	if err := needName("agent", ref); err != nil {
		return out, err
	}
	in := struct {
		Action string `json:"action"`
		Reason string `json:"reason,omitempty"`
	}{"close", o.Reason}
	if o.Open {
		in.Action = "open"
	}
	err := c.post(ctx, call{path: path("agents", ref, "breaker")}, in, &out)
	return out, err
}

// AgentEventPage is a part of the log of an agent.
type AgentEventPage struct {
	Items []parley.AgentEvent `json:"items"`
	// NextAfter is the After of the next page.
	NextAfter int64 `json:"next_after"`
	// More: the next page has events already.
	More bool `json:"more"`
}

// AgentEvents gives entries of an agent's log in order. The log has its newest
// 1,000 entries.
func (c *Client) AgentEvents(ctx context.Context, ref string, query EventQuery) (AgentEventPage, error) {
	var page AgentEventPage
	if err := needName("agent", ref); err != nil {
		return page, err
	}
	err := c.get(ctx, path("agents", ref, "events"), query.values(), &page)
	return page, err
}

func (query EventQuery) values() url.Values {
	q := url.Values{}
	if query.After > 0 {
		q.Set("after", fmt.Sprint(query.After))
	}
	if query.Limit > 0 {
		q.Set("limit", fmt.Sprint(query.Limit))
	}
	return q
}
