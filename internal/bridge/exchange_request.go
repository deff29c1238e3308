package bridge

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/parley-project/parley"
)

// maxURLs bounds the parsed URLs that are remembered, and maxURL their length
// in bytes: agents name what is in them.
const (
	maxURLs = 10_000
	maxURL  = 2 << 10
)

// parseURL is url.Parse with a memory: agents are few, calls are many. The
// result is shared and must not be changed.
func (x *Exchange) parseURL(raw string) (*url.URL, error) {
	if u, ok := x.urls.Load(raw); ok {
		return u.(*url.URL), nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxURL {
		return u, nil
	}
	if x.urlCount.Add(1) > maxURLs {
		x.urls.Clear()
		x.urlCount.Store(1)
	}
	x.urls.Store(raw, u)
	return u, nil
}

// target checks what can be checked without a connection.
func (x *Exchange) target(e *errand, body []byte) (*url.URL, error) {
	u, err := x.parseURL(e.agent.URL)
	switch {
	case err != nil:
		// The text of url.Parse repeats the URL, which may hold a secret.
		return nil, e.errorf(parley.CodeInvalid, "the URL of the agent cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, e.errorf(parley.CodeInvalid, "the URL of the agent has the scheme %q; it must be http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, e.errorf(parley.CodeInvalid, "the URL of the agent names no host")
	case u.User != nil:
		return nil, e.errorf(parley.CodeInvalid, "the URL of the agent holds a user name; put credentials into its auth")
	case len(body) > x.limits.MaxRequest:
		tooLarge := e.errorf(parley.CodeLimit, "the request to %s has %d bytes; max_request allows %d", place(u), len(body), x.limits.MaxRequest)
		return nil, tooLarge.WithDetails(map[string]any{"limit": "max_request", "value": x.limits.MaxRequest})
	}
	return u, nil
}

// header makes the headers of BR-5 and AD-8, spelled as the seeds spell them.
func (x *Exchange) header(e *errand, auth Authorization) (http.Header, error) {
	correlation := e.task.CorrelationID
	if correlation == "" {
		correlation = e.task.ID
	}
	if !validValue(correlation) {
		return nil, e.errorf(parley.CodeInvalidInput, "the correlation id holds characters that a header cannot")
	}
	values := [2]string{correlation, auth.value}
	h := make(http.Header, 5)
	h["Content-Type"] = x.jsonType
	h["Accept"] = x.jsonType
	h["User-Agent"] = x.userAgent
	h["X-Correlation-ID"] = values[0:1:1]
	if auth.name != "" {
		h[auth.name] = values[1:2:2]
	}
	for _, m := range auth.more {
		h[m.name] = []string{m.value}
	}
	addTrace(h, e.task.Trace)
	return h, nil
}

// addTrace adds the trace context of a task. One that the credential of an agent
// brings along counts: records from before that was refused may have it. Whoever hands
// the task over has checked the trace; here it comes to the wire, where a line break
// would begin another header.
func addTrace(h http.Header, t parley.Trace) {
	if t.IsZero() || !validValue(t.Parent) || !validValue(t.State) {
		return
	}
	for name := range h {
		if strings.EqualFold(name, parley.HeaderTraceparent) || strings.EqualFold(name, parley.HeaderTracestate) {
			return
		}
	}
	h[parley.HeaderTraceparent] = []string{t.Parent}
	if t.State != "" {
		h[parley.HeaderTracestate] = []string{t.State}
	}
}

// reserved reports whether the header belongs to the exchange itself.
func reserved(name string) bool {
	switch strings.ToLower(name) {
	case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "accept",
		"accept-encoding", "expect", "te", "trailer", "upgrade", "user-agent", "x-correlation-id", "idempotency-key", "x-idempotency-key":
		// Idempotency-Key would let net/http repeat a request.
		return true
	}
	return false
}

func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// errand is what an error is about.
type errand struct {
	task  parley.Task
	agent parley.Agent
}

// errorf makes an error about the errand; it cannot be retried.
func (e *errand) errorf(code parley.Code, format string, args ...any) *parley.Error {
	err := parley.Errorf(code, format, args...)
	err.Agent, err.Step, err.Attempt = e.agent.Name, e.task.Step, e.task.Attempt
	return err
}

// place is a URL without what may be secret in it: no user, no query.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }
