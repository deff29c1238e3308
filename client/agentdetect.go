package client

import (
	"context"
	"net/http"
	"time"

	"github.com/parley-project/parley"
)

// AgentCheck is what a new look at an agent showed.
type AgentCheck struct {
	Health AgentHealth `json:"health"`
	// Detected is what was found now, nil if nothing was: Error says why, or the
	// agent's protocol has no cards.
	Detected *parley.Detection `json:"detected"`
	Error    *parley.Error     `json:"error,omitempty"`
	// Changes names what is not as the record says, one change a line.
	Changes []string `json:"changes"`
	// Stored says that the record holds Detected now.
	Stored bool `json:"stored"`
}

// AgentHealth is what one look at an agent showed.
type AgentHealth struct {
	// Status is "healthy" or "unhealthy".
	Status         string    `json:"status"`
	Message        string    `json:"message"`
	ResponseTimeMS float64   `json:"response_time_ms"`
	Timestamp      time.Time `json:"timestamp"`
}

// DetectAgent finds out how the agent that spec describes is called, and stores
// nothing. Spec needs a URL; with a name and no URL it is about the agent of
// that name, as its record says and spec changes it. An agent that cannot be
// found out about is an [*Error] whose Explanation says how far it came.
func (c *Client) DetectAgent(ctx context.Context, spec parley.AgentSpec) (parley.Detection, error) {
	var d parley.Detection
	err := c.post(ctx, call{path: path("agents") + ":detect"}, newSpecBody(spec), &d)
	return d, err
}

// CheckAgent looks at an agent and its card anew. An agent that was found out
// about before is called by what was found now.
func (c *Client) CheckAgent(ctx context.Context, ref string) (AgentCheck, error) {
	var check AgentCheck
	if err := needName("agent", ref); err != nil {
		return check, err
	}
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("agents", ref, "check")}, &check)
	return check, err
}
