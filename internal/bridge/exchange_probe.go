package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/parley-project/parley"
)

// probeTimeout bounds a look at an agent when its own timeout is longer.
const probeTimeout = 10 * time.Second

const (
	// maxHealthText bounds what is said about an agent's health, in bytes.
	maxHealthText = 1 << 10
	// maxProbed is the largest body that a look takes, in bytes.
	maxProbed = 1 << 20
)

// Probe looks at an agent once: one GET of its URL with its credential. An
// agent that answers at all is healthy: many answer a GET with 404, 405 or 501. But
// it is not if it fails (any other 5xx), if it redirects, which no call follows, or if its
// answer does not end in time, or within 1 MiB. What cannot be reached is
// unhealthy, not an error. The card is the answer's body if that is an object.
func (x *Exchange) Probe(ctx context.Context, agent parley.Agent) (parley.AgentHealth, error) {
	ctx, cancel := context.WithTimeout(ctx, min(orDefault(agent.Timeout, probeTimeout), probeTimeout))
	defer cancel()
	begin := x.now()
	h := parley.AgentHealth{At: begin}
	reply, err := x.Do(ctx, parley.Task{}, agent, Request{Method: http.MethodGet, Header: http.Header{"X-Correlation-ID": nil}, limit: maxProbed})
	h.ResponseTime = x.now().Sub(begin)
	status := reply.Status
	switch {
	case status == 0 && err != nil:
		h.Message = Redact(agent, []byte("The agent could not be reached: "+messageOf(err)), maxHealthText)
	case status >= 200 && status <= 299 && err != nil:
		h.Message = Redact(agent, fmt.Appendf(nil, "The agent answered %d %s, but its answer is of no use: %s", status, http.StatusText(status), messageOf(err)), maxHealthText)
	default:
		h.Healthy, h.Message = HealthOf(status)
	}
	if body := reply.Body; len(body) > 0 && len(body) <= maxRefusal && body[0] == '{' && json.Valid(body) {
		h.Card = redactOutput(agent, body)
	}
	return h, nil
}

// HealthOf says what a status tells about the health of an agent that was asked
// for something harmless. With 501 it says that it knows no GET, as it may: servers
// that have POST alone, such as those made of Python's http.server, answer so.
func HealthOf(status int) (healthy bool, message string) {
	message = fmt.Sprintf("The agent answered %d %s", status, http.StatusText(status))
	switch {
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		return false, message
	case status >= 300 && status <= 399 && status != http.StatusNotModified:
		return false, message + ": it redirects to another place, which is not followed"
	}
	return true, message
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
