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

// maxHealthText bounds what is said about an agent's health, in bytes.
const maxHealthText = 1 << 10

// Probe looks at an agent once: one GET of its URL with its credential. An
// agent that answers at all, and not with a failure of its own (5xx), is
// healthy: many answer a GET with 404 or 405. What cannot be reached is
// unhealthy, not an error. The card is the answer's body if that is an object.
func (x *Exchange) Probe(ctx context.Context, agent parley.Agent) (parley.AgentHealth, error) {
	ctx, cancel := context.WithTimeout(ctx, min(orDefault(agent.Timeout, probeTimeout), probeTimeout))
	defer cancel()
	begin := x.now()
	h := parley.AgentHealth{At: begin}
	reply, err := x.Do(ctx, parley.Task{}, agent, Request{Method: http.MethodGet, Header: http.Header{"X-Correlation-ID": nil}})
	h.ResponseTime = x.now().Sub(begin)
	status := reply.Status
	switch {
	case status == 0 && err != nil:
		h.Message = Redact(agent, []byte("The agent could not be reached: "+messageOf(err)), maxHealthText)
	case status >= http.StatusInternalServerError:
		h.Message = fmt.Sprintf("The agent answered %d %s", status, http.StatusText(status))
	default:
		h.Healthy, h.Message = true, fmt.Sprintf("The agent answered %d %s", status, http.StatusText(status))
	}
	if body := reply.Body; len(body) > 0 && len(body) <= maxRefusal && body[0] == '{' && json.Valid(body) {
		h.Card = redactOutput(agent, body)
	}
	return h, nil
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
