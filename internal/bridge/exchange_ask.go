package bridge

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/parley-project/parley"
)

// Inquiry is a request about an agent that gives it no work: for its card, for
// the keys of a card, for what the agent speaks.
type Inquiry struct {
	// Method is GET if it is empty.
	Method string
	// URL is http or https.
	URL string
	// Header is sent besides what every request has.
	Header http.Header
	// Body is sent as JSON; nil is no body.
	Body []byte
	// Limit is the largest body of an answer that is of use, in bytes; default
	// 64 KiB.
	Limit int
}

// Ask makes one inquiry and gives the answer, whatever its status. agent's
// credential goes along only to the host of agent.URL itself, and never from
// https to http. Redirects are not followed. agent.Timeout bounds it, 10 s at
// most, ctx besides.
//
// The error is a [*parley.Error]: agent_unavailable if there was no answer, limit
// if the answer is too large, invalid if nothing could be asked.
func (x *Exchange) Ask(ctx context.Context, agent parley.Agent, q Inquiry) (Reply, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		// The text of url.Parse repeats the URL, which may hold a secret.
		return Reply{}, (&errand{agent: agent}).errorf(parley.CodeInvalid, "an address of the agent cannot be read as a URL")
	}
	known := agent
	agent.Timeout = min(orDefault(agent.Timeout, probeTimeout), probeTimeout)
	if !sameParty(agent.URL, u) {
		agent.Auth, agent.Credential = parley.Auth{}, parley.Secret{}
		agent.TLS, agent.Resolved = parley.AgentTLS{}, nil
	}
	// Nobody works on anything: there is nothing to correlate with.
	header := http.Header{"X-Correlation-ID": nil}
	maps.Copy(header, q.Header)
	limit := orDefault(q.Limit, maxRefusal)
	r := Request{Method: q.Method, URL: q.URL, Header: header, Body: q.Body, limit: limit}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	reply, err := x.Do(ctx, parley.Task{}, agent, r)
	if e, ok := errors.AsType[*ExchangeError](err); ok {
		if e.Status == 0 {
			return Reply{}, redactError(known, e.Err)
		}
		err = nil
	}
	if err == nil && len(reply.Body) > limit { // of a refusal more is read
		return Reply{}, (&errand{agent: agent}).errorf(parley.CodeLimit, "%s is larger than %d bytes and was not read", place(u), limit)
	}
	reply.Body = redactOutput(known, reply.Body)
	redactHeader(known, reply.Header)
	return reply, err
}

// redactHeader takes agent's credentials out of the header of an answer, of
// which parts are stored and shown.
func redactHeader(agent parley.Agent, h http.Header) {
	secrets := secretsOf(agent)
	for _, values := range h {
		for i, v := range values {
			values[i] = redact(secrets, []byte(v), len(v))
		}
	}
}

// sameParty reports whether what may be sent to the agent may be sent to u.
func sameParty(agentURL string, u *url.URL) bool {
	own, err := url.Parse(agentURL)
	if err != nil || !strings.EqualFold(own.Host, u.Host) {
		return false
	}
	secure := own.Scheme == "https" || own.Scheme == "wss"
	return !secure || u.Scheme == "https"
}
