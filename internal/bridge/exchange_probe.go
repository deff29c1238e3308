package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	status, body, err := x.get(ctx, agent)
	h.ResponseTime = x.now().Sub(begin)
	switch {
	case err != nil:
		h.Message = Redact(agent, []byte("The agent could not be reached: "+cause(err)), maxHealthText)
	case status >= http.StatusInternalServerError:
		h.Message = fmt.Sprintf("The agent answered %d %s", status, http.StatusText(status))
	default:
		h.Healthy, h.Message = true, fmt.Sprintf("The agent answered %d %s", status, http.StatusText(status))
	}
	if len(body) > 0 && body[0] == '{' && json.Valid(body) {
		h.Card = body
	}
	return h, nil
}

func (x *Exchange) get(ctx context.Context, agent parley.Agent) (status int, body []byte, err error) {
	u, err := url.Parse(agent.URL)
	if err != nil {
		return 0, nil, err
	}
	header, err := x.header(parley.Task{}, agent)
	if err != nil {
		return 0, nil, err
	}
	header.Del("Content-Type")
	delete(header, "X-Correlation-ID")
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	half := x.plain
	if u.Scheme == "https" {
		half = x.secure
	}
	resp, err := half.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body of a 101 is a connection that ends with nobody.
		return resp.StatusCode, nil, resp.Body.Close()
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	return resp.StatusCode, body, errors.Join(err, resp.Body.Close())
}
