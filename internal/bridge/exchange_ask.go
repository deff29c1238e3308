package bridge

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	// Limit is the largest body of an answer, in bytes; default 64 KiB.
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
	ctx, cancel := context.WithTimeout(ctx, min(orDefault(agent.Timeout, probeTimeout), probeTimeout))
	defer cancel()
	e := errand{agent: agent}
	u, err := url.Parse(q.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return Reply{}, e.errorf(parley.CodeInvalid, "an address of the agent is no plain http or https URL")
	}
	req, err := x.inquiry(agent, q, u)
	if err != nil {
		return Reply{}, err
	}
	half := x.plain
	if u.Scheme == "https" {
		half = x.secure
	}
	resp, err := half.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return Reply{}, e.unasked(q, u, err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply := Reply{Status: resp.StatusCode, Header: resp.Header}
	if reply.Status == http.StatusSwitchingProtocols {
		return reply, nil // its body is a connection that ends with nobody
	}
	limit := orDefault(q.Limit, maxRefusal)
	reply.Body, err = readBody(resp, limit)
	switch {
	case errors.Is(err, errTooLarge):
		return Reply{}, e.errorf(parley.CodeLimit, "%s is larger than %d bytes and was not read", place(u), limit)
	case err != nil:
		return Reply{}, e.unasked(q, u, err)
	}
	return reply, nil
}

// inquiry makes the request.
func (x *Exchange) inquiry(agent parley.Agent, q Inquiry, u *url.URL) (*http.Request, error) {
	if !sameParty(agent.URL, u) {
		agent.Auth, agent.Credential = parley.Auth{}, parley.Secret{}
	}
	header, err := x.header(parley.Task{}, agent)
	if err != nil {
		return nil, err
	}
	delete(header, "X-Correlation-ID")
	for name, values := range q.Header {
		header[name] = values
	}
	req := &http.Request{
		Method: q.Method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if req.Method == "" {
		req.Method = http.MethodGet
	}
	if q.Body == nil {
		header.Del("Content-Type")
		return req, nil
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(q.Body)), int64(len(q.Body))
	return req, nil
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

func (e errand) unasked(q Inquiry, u *url.URL, err error) *parley.Error {
	verb := q.Method
	if verb == "" {
		verb = http.MethodGet
	}
	text := cause(err)
	if errors.Is(err, context.DeadlineExceeded) {
		text = "no answer in time"
	}
	out := e.errorf(parley.CodeAgentUnavailable, "%s", Redact(e.agent, []byte(verb+" "+place(u)+": "+text), maxErrorBody))
	out.Retryable = !errors.Is(err, errEgress)
	return out
}
