package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/parley-project/parley"
)

// ExchangeError says why an exchange gave no usable response, and what it has
// left behind.
type ExchangeError struct {
	// Disposition is NotSent, Lost or Answered.
	Disposition Disposition
	// Err is for people and the retry policy; never nil.
	Err *parley.Error
	// RetryAfter is the agent's wish, 0 is none.
	RetryAfter time.Duration
	// Status is 0 if no response came.
	Status int
	// Body is the response's, at most 4 KiB and without the agent's credential.
	Body []byte
	// Withheld: nothing was sent because the send guard of the call said so.
	Withheld bool
}

// Error gives the text of Err.
func (e *ExchangeError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *ExchangeError) Unwrap() error { return e.Err }

// Outcome is e as the outcome of a call.
func (e *ExchangeError) Outcome(taskID string) Outcome {
	return Outcome{Disposition: e.Disposition, Result: parley.Result{
		TaskID: taskID, Outcome: parley.OutcomeError, Err: e.Err, RetryAfter: e.RetryAfter,
	}}
}

// errorDetails is what the details of an error hold.
type errorDetails struct {
	Limit  string `json:"limit,omitempty"`
	Value  int64  `json:"value,omitempty"`
	Status int    `json:"status,omitempty"`
	// TokenStatus is the status of the token endpoint, where that is what failed.
	TokenStatus  int   `json:"token_status,omitempty"`
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Circuit is "open" if nothing was sent because the agent's is.
	Circuit string `json:"circuit,omitempty"`
	// Uncalled: the last try of a foreign task was none, its agent was not called.
	Uncalled bool   `json:"uncalled,omitempty"`
	Body     string `json:"body,omitempty"`
}

// maxErrorBody is how much of an agent's words goes into an error.
const maxErrorBody = 4 << 10

// maxRetryAfter bounds what an agent may wish for.
const maxRetryAfter = 24 * time.Hour

func (p *post) fail(d Disposition, code parley.Code, retryable bool, text string) *ExchangeError {
	text = p.method + " " + place(p.url) + ": " + text
	e := p.errorf(code, "%s", Redact(p.agent, []byte(text), maxErrorBody))
	e.Retryable = retryable
	return &ExchangeError{Disposition: d, Err: e}
}

func (e *ExchangeError) with(d errorDetails) *ExchangeError {
	e.Err = e.Err.WithDetails(d)
	return e
}

// broken judges a round trip, or a body, that ended in err.
func (p *post) broken(err error, sent bool) *ExchangeError {
	d, tail := NotSent, "nothing was sent"
	if certificateRefused(err) {
		return p.fail(NotSent, parley.CodeAgentRejected, false,
			cause(err)+": the agent wants another client certificate, and took no request; check tls.cert and tls.key of its record")
	}
	if sent {
		d, tail = Lost, "the request had been sent; what became of it is not known"
	}
	why := cause(err)
	timeUp := p.inner.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case p.outer.Err() != nil && errors.Is(context.Cause(p.outer), context.DeadlineExceeded):
		return p.fail(d, parley.CodeTimeout, true, "the time for the attempt was up; "+tail).
			with(errorDetails{Limit: "attempt_timeout"})
	case p.outer.Err() != nil:
		return p.fail(d, parley.CodeCancelled, false, "the call was given up; "+tail)
	case sent && headLate(err):
		return p.fail(d, parley.CodeTimeout, true, fmt.Sprintf("no answer began within %v (limits.agent_first_byte); %s", p.x.limits.FirstByte, tail)).
			with(errorDetails{Limit: "first_byte", Value: p.x.limits.FirstByte.Milliseconds()})
	case timeUp && !sent:
		return p.fail(d, parley.CodeAgentUnavailable, true, fmt.Sprintf("no connection within %v; %s", p.timeout, tail)).
			with(errorDetails{Limit: "exchange", Value: p.timeout.Milliseconds()})
	case timeUp:
		return p.fail(d, parley.CodeTimeout, true, fmt.Sprintf("no complete answer within %v (the agent's timeout); %s", p.timeout, tail)).
			with(errorDetails{Limit: "exchange", Value: p.timeout.Milliseconds()})
	case errors.Is(err, errEgress):
		// Not a matter of time: somebody has to change a setting.
		return p.fail(d, parley.CodeAgentUnavailable, false, why+"; "+tail)
	case headTooLarge(err):
		return p.tooLarge("max_header", p.x.limits.MaxHeader, "head")
	case !sent && untrusted(err):
		return p.fail(d, parley.CodeAgentUnavailable, true, "no connection: "+why+"; "+tail+
			" (tls.ca of the agent's record can name the certificates to trust)")
	case !sent:
		return p.fail(d, parley.CodeAgentUnavailable, true, "no connection: "+why+"; "+tail)
	}
	return p.fail(d, parley.CodeAgentUnavailable, true, "the connection broke: "+why+"; "+tail)
}

func (p *post) tooLarge(limit string, value int, part string) *ExchangeError {
	text := fmt.Sprintf("the %s of the response is larger than %d bytes (%s) and was not read to its end", part, value, limit)
	return p.fail(Lost, parley.CodeLimit, false, text).with(errorDetails{Limit: limit, Value: int64(value)})
}

// headTooLarge knows the errors of net/http for HTTP/1 and HTTP/2, which have
// no other mark than their text.
func headTooLarge(err error) bool {
	s := err.Error()
	return errors.Is(err, errHead) || strings.Contains(s, "response headers exceeded") || strings.Contains(s, "response header list larger")
}

// errFirstByte marks a response whose head did not come in time.
var errFirstByte = errors.New("no response within the time for its first byte")

// headLate knows the errors of net/http for HTTP/1 and HTTP/2, too.
func headLate(err error) bool {
	return errors.Is(err, errFirstByte) || strings.Contains(err.Error(), "timeout awaiting response headers")
}

// notBegun reports whether the agent's server says that it has not begun with
// the request, so that it may be sent again (RFC 9113 §8.7): a stream that was
// refused, or whose number is above the last one that a GOAWAY names; or net/http,
// that it has not sent it. There is no other mark for that than the text. What
// net/http would repeat besides, streams that ended in PROTOCOL_ERROR, may have
// been executed.
//
// The text is matched as a whole: others hold words of the agent's, which may be
// these.
func notBegun(err error) bool { return notBegunText.MatchString(err.Error()) }

// The second one is of a request that net/http wanted to send anew, on a connection
// that is not there yet, and could not, since it had closed its body.
var notBegunText = regexp.MustCompile(`^(?:http2: Transport: cannot retry err \[)?` +
	`(?:stream error: stream ID \d+; REFUSED_STREAM; received from peer|http2: Transport received Server's graceful shutdown GOAWAY)` +
	`(?:\] after Request\.Body was written; define Request\.GetBody to avoid this error)?$` +
	`|^net/http: cannot rewind body after connection loss$`)

// cause is err without addresses of this machine.
func cause(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by the agent"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "closed by the agent within the response"
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "server closed idle connection"):
		return "closed by the agent without a response"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// refused judges a response whose status is not 2xx.
func (p *post) refused(reply Reply) *ExchangeError {
	status := reply.Status
	wait := p.x.retryAfter(reply.Header)
	text := "HTTP " + strconv.Itoa(status)
	if name := http.StatusText(status); name != "" {
		text += " " + name
	}
	var e *ExchangeError
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		e = p.fail(NotSent, parley.CodeAgentUnavailable, true, text)
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		e = p.fail(Lost, parley.CodeAgentUnavailable, true, text+" from a proxy; whether the agent got the request is not known")
	case status >= 500 && status <= 599:
		e = p.fail(Answered, parley.CodeAgentUnavailable, true, text)
	case status >= 300 && status <= 399:
		e = p.fail(Answered, parley.CodeAgentRejected, false, text+"; redirects are not followed: register the agent under its new URL")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e = p.fail(Answered, parley.CodeAgentRejected, false, text+p.unauthorized(status, reply.Header))
	case status == http.StatusRequestEntityTooLarge:
		text += fmt.Sprintf("; the request has %d bytes, which is more than is taken there: send less, or pass files by their URL", len(p.body))
		e = p.fail(Answered, parley.CodeAgentRejected, false, text)
	case status >= 400 && status <= 499:
		e = p.fail(Answered, parley.CodeAgentRejected, false, text)
	case status == http.StatusSwitchingProtocols:
		e = p.fail(Answered, parley.CodeAgentError, true, text+", which nobody asked for")
	default:
		e = p.fail(Answered, parley.CodeAgentError, true, text+" is no status that a response can end with")
	}
	if status != http.StatusRequestEntityTooLarge && bytes.HasPrefix(bytes.TrimSpace(reply.Body), []byte("<")) {
		e.Err.Message += "; with a page of HTML or XML: " + notTheAgent
	}
	e.Status, e.RetryAfter = status, wait
	e.Body = []byte(Redact(p.agent, reply.Body, maxErrorBody))
	return e.with(errorDetails{Status: status, RetryAfterMS: wait.Milliseconds(), Body: string(e.Body)})
}

// unusable judges a 2xx response that cannot be read.
func (p *post) unusable(reply Reply, format string, args ...any) *ExchangeError {
	e := p.fail(Answered, parley.CodeAgentError, true, fmt.Sprintf("HTTP %d, but "+format, append([]any{reply.Status}, args...)...))
	e.Status = reply.Status
	return e.with(errorDetails{Status: reply.Status})
}

// retryAfter reads seconds or an HTTP date; anything else is no wish. A date is by
// the clock of whoever answers, which may be hours from the one here: how long that
// is tells the Date beside it, where there is one.
func (x *Exchange) retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseUint(v, 10, 64); err == nil {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = x.now()
	}
	return min(max(at.Sub(now), 0), maxRetryAfter).Round(time.Millisecond)
}
