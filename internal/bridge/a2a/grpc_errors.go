package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

const (
	// maxGRPCError bounds the text of an error, in bytes.
	maxGRPCError = 4 << 10
	// maxGRPCWait bounds what an agent may wish for.
	maxGRPCWait = 24 * time.Hour
	// a2aDomain is that of A2A's own errors (A2A 1.0 §5.4).
	a2aDomain = "a2a-protocol.org"
)

// grpcRefusal is the JSON in which a status of gRPC travels to the reader: the
// form that HTTP+JSON has for errors, with the code of gRPC.
type grpcRefusal struct {
	Error struct {
		Code    int             `json:"code"`
		Status  string          `json:"status"`
		Message string          `json:"message,omitempty"`
		Details json.RawMessage `json:"details,omitempty"`
	} `json:"error"`
}

// open implements [binding] for what carry and the events of a stream give.
func (b *grpcBinding) open(op operation, body []byte) (result []byte, f *failure, err error) {
	body, err = bridge.CheckJSON("Response", body)
	if err != nil {
		return nil, nil, err
	}
	// No message of A2A's results has a member of that name.
	if !strings.HasPrefix(string(body[:min(len(body), 9)]), `{"error":`) {
		return body, nil, nil
	}
	var r grpcRefusal
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, bridge.Defectf("not_object", "the error of the response cannot be read")
	}
	f = &failure{message: r.Error.Message, data: r.Error.Details}
	f.code, f.hasCode = codeOfStatus(codes.Code(r.Error.Code), op.verb, r.Error.Message)
	f.status, _ = foreignHTTP(r.Error.Message)
	var details []struct {
		Type       string `json:"@type"`
		Reason     string `json:"reason"`
		Domain     string `json:"domain"`
		RetryDelay string `json:"retryDelay"`
	}
	_ = json.Unmarshal(r.Error.Details, &details) // made here, or none
	for _, d := range details {
		if code, ok := codeOfReason(d.Reason); ok && d.Domain == a2aDomain {
			f.code, f.hasCode = code, true
		}
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil {
			f.retryAfter = min(max(wait, 0), maxGRPCWait)
		}
	}
	return nil, f, nil
}

// codeOfStatus gives the code that a status stands for where no ErrorInfo says
// it. A2A 1.0.0 and 1.0.1 use different ones for the same error (§5.4), and one
// for several: the operation tells which is meant.
func codeOfStatus(c codes.Code, vb verb, message string) (int64, bool) {
	switch c {
	case codes.NotFound:
		return codeTaskNotFound, true
	case codes.InvalidArgument, codes.OutOfRange:
		return codeInvalidParams, true
	case codes.FailedPrecondition:
		if vb == verbCancel {
			return codeNotCancelable, true
		}
		return codeUnsupported, true
	case codes.Unimplemented:
		// In 1.0.0 also what 1.0.1 calls FAILED_PRECONDITION.
		if vb.streams() && !strings.Contains(message, "unknown service") {
			return codeUnsupported, true
		}
		return codeMethodNotFound, true
	case codes.Internal, codes.DataLoss, codes.Aborted, codes.Unknown:
		return codeInternal, true
	case codes.Unauthenticated:
		return codeUnauthenticated, true
	case codes.PermissionDenied:
		return codeUnauthorized, true
	}
	return 0, false
}

// judge says what became of a call that ended in err without a message: the
// agent's own error is a reply, which open reads.
func (c *grpcCall) judge(err error) (bridge.Reply, error) {
	if own, ok := errors.AsType[*bridge.ExchangeError](err); ok {
		return bridge.Reply{}, own
	}
	if own, ok := errors.AsType[*parley.Error](err); ok {
		return bridge.Reply{}, own
	}
	st := statusOf(err)
	// After the end of a context its own status cannot be told from the agent's.
	ended := (endOf(c.outer) != nil || endOf(c.inner) != nil) && (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded)
	if !ended && !c.local(st) {
		return c.answered(st)
	}
	if code, ok := foreignHTTP(st.Message()); ok && !c.trace.end.Load() {
		return c.foreign(st, code)
	}
	return bridge.Reply{}, c.broken(st)
}

// endOf is why ctx has ended, or nil. Its deadline ends it by the clock alone:
// the agent is given the same one (grpc-timeout), and its answer to that may be
// here before the timer of ctx has fired.
func endOf(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// statusOf is status.FromError for the errors of contexts, too.
func statusOf(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}

// local reports whether the status was made on this side.
func (c *grpcCall) local(st *status.Status) bool {
	if !c.trace.end.Load() {
		return true
	}
	// The status came, but the messages before it could not be taken. Without a
	// head there were none: then the text is the agent's.
	return c.trace.head.Load() && (strings.HasPrefix(st.Message(), "grpc: ") || st.Message() == "unexpected EOF")
}

// answered judges a status that the agent, or a proxy before it, has sent.
func (c *grpcCall) answered(st *status.Status) (bridge.Reply, error) {
	body := refusalOf(st)
	code, wait, quota := st.Code(), time.Duration(0), false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if _, ok := codeOfReason(d.GetReason()); ok && d.GetDomain() == a2aDomain {
				return bridge.Reply{Status: http.StatusOK, Body: body}, nil
			}
		case *errdetails.RetryInfo:
			quota, wait = true, min(max(d.GetRetryDelay().AsDuration(), 0), maxGRPCWait)
		case *errdetails.QuotaFailure:
			quota = true
		}
	}
	words := c.words(st)
	switch {
	case code == codes.Unauthenticated:
		return c.refused(http.StatusUnauthorized, body, words+"; check the agent's auth")
	case code == codes.PermissionDenied:
		return c.refused(http.StatusForbidden, body, words+"; its credential is known there, and not allowed to do this")
	case code == codes.ResourceExhausted && !c.trace.head.Load() && strings.Contains(st.Message(), "received message larger than max"):
		return bridge.Reply{}, c.fail(bridge.Answered, parley.CodeLimit, "%s: the request has %d bytes, which is more than the agent takes; pass large files by URL", words, len(c.message))
	case code == codes.ResourceExhausted && quota && !c.trace.head.Load():
		// A quota was checked, and the call not begun (google.rpc.QuotaFailure,
		// RetryInfo).
		return bridge.Reply{}, c.waiting(bridge.NotSent, wait, words)
	case code == codes.ResourceExhausted:
		return bridge.Reply{}, c.waiting(bridge.Answered, wait, words)
	case code == codes.Unavailable, code == codes.Canceled, code == codes.Unknown && len(st.Details()) == 0:
		return bridge.Reply{}, c.waiting(bridge.Lost, wait, words+"; what became of the request is not known")
	case code == codes.DeadlineExceeded:
		return bridge.Reply{}, c.retryable(c.fail(bridge.Lost, parley.CodeTimeout, "%s; what became of the request is not known", words))
	}
	return bridge.Reply{Status: http.StatusOK, Body: body}, nil
}

// refused is an answer with the HTTP status that means the same.
func (c *grpcCall) refused(httpStatus int, body []byte, text string) (bridge.Reply, error) {
	x := c.fail(bridge.Answered, parley.CodeAgentRejected, "%s", text)
	x.Status = httpStatus
	x.Err = x.Err.WithDetails(map[string]any{"status": httpStatus})
	return bridge.Reply{Status: httpStatus, Body: body}, x
}

func (c *grpcCall) waiting(d bridge.Disposition, wait time.Duration, text string) *bridge.ExchangeError {
	x := c.retryable(c.fail(d, parley.CodeAgentUnavailable, "%s", text))
	if x.RetryAfter = wait; wait > 0 {
		x.Err = x.Err.WithDetails(map[string]any{"retry_after_ms": wait.Milliseconds()})
	}
	return x
}

// foreign judges an answer that is not gRPC's: a proxy's, or that of a server
// of something else. The rules are those of HTTP.
func (c *grpcCall) foreign(st *status.Status, code int) (bridge.Reply, error) {
	text := "what answered does not speak gRPC: " + plainMessage(st.Message())
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return c.refused(code, refusalOf(st), text)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return bridge.Reply{}, c.foreignStatus(bridge.NotSent, code, parley.CodeAgentUnavailable, text)
	case code == http.StatusBadGateway, code == http.StatusGatewayTimeout:
		return bridge.Reply{}, c.foreignStatus(bridge.Lost, code, parley.CodeAgentUnavailable, text+"; whether the agent got the request is not known")
	case code >= 300 && code <= 499:
		x := c.foreignStatus(bridge.Answered, code, parley.CodeAgentRejected, text+"; check the address that gRPC is spoken at")
		x.Err.Retryable = false
		return bridge.Reply{}, x
	case code >= 500:
		return bridge.Reply{}, c.foreignStatus(bridge.Answered, code, parley.CodeAgentUnavailable, text)
	}
	return bridge.Reply{}, c.foreignStatus(bridge.Answered, code, parley.CodeAgentError, text)
}

func (c *grpcCall) foreignStatus(d bridge.Disposition, httpStatus int, code parley.Code, text string) *bridge.ExchangeError {
	x := c.retryable(c.fail(d, code, "%s", text))
	x.Err = x.Err.WithDetails(map[string]any{"status": httpStatus})
	return x
}

// foreignHTTP gives the HTTP status out of the text that grpc-go makes of an
// answer without gRPC's Content-Type.
func foreignHTTP(message string) (int, bool) {
	rest, ok := strings.CutPrefix(message, "unexpected HTTP status code received from server: ")
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(digits)
	return code, err == nil
}

// broken judges a call for which there is no status of the agent's.
func (c *grpcCall) broken(st *status.Status) *bridge.ExchangeError {
	d, tail := bridge.NotSent, "nothing was sent"
	if c.trace.sent.Load() && !unprocessed(st.Message()) {
		d, tail = bridge.Lost, "the request had been sent; what became of it is not known"
	}
	timeUp := c.late || errors.Is(endOf(c.inner), context.DeadlineExceeded)
	switch outer := endOf(c.outer); {
	case errors.Is(outer, context.DeadlineExceeded):
		return c.limited(c.retryable(c.fail(d, parley.CodeTimeout, "the time for the attempt was up; %s", tail)), "attempt_timeout", 0)
	case outer != nil:
		return c.fail(d, parley.CodeCancelled, "the call was given up; %s", tail)
	case timeUp && d == bridge.NotSent:
		return c.limited(c.retryable(c.fail(d, parley.CodeAgentUnavailable, "no connection within %v; %s", c.timeout, tail)), "exchange", c.timeout.Milliseconds())
	case timeUp:
		return c.limited(c.retryable(c.fail(d, parley.CodeTimeout, "no complete answer within %v (the agent's timeout); %s", c.timeout, tail)), "exchange", c.timeout.Milliseconds())
	case d == bridge.NotSent:
		return c.unconnected(st, tail)
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max"):
		return c.tooLarge("max_response", int64(c.limits.MaxResponse), "answer")
	case strings.Contains(st.Message(), "peer header list size exceeded limit"):
		return c.tooLarge("max_header", int64(c.limits.MaxHeader), "head of the answer")
	}
	return c.retryable(c.fail(d, parley.CodeAgentUnavailable, "the connection broke: %s; %s", plainMessage(st.Message()), tail))
}

// unprocessed reports whether grpc-go says that the server has not looked at
// the request: REFUSED_STREAM, or a GOAWAY that leaves it out (RFC 9113 §8.7).
func unprocessed(message string) bool {
	switch message {
	case "stream terminated by RST_STREAM with error code: REFUSED_STREAM", "the connection is draining",
		"the stream is rejected because server is draining the connection":
		return true
	}
	return false
}

// unconnected says why there is no connection.
func (c *grpcCall) unconnected(st *status.Status, tail string) *bridge.ExchangeError {
	why := plainMessage(st.Message())
	if c.conn != nil {
		if last := c.conn.broken.Load(); last != nil {
			x := c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "no connection: %s; %s", bridge.Cause(*last), tail)
			x.Err.Retryable = !bridge.RefusedByEgress(*last) // else somebody has to change a setting
			return x
		}
	}
	return c.retryable(c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "no connection: %s; %s", why, tail))
}

func (c *grpcCall) tooLarge(limit string, value int64, part string) *bridge.ExchangeError {
	return c.limited(c.fail(bridge.Lost, parley.CodeLimit, "the %s is larger than %d bytes (%s) and was not read to its end", part, value, limit), limit, value)
}

// unusable judges an answer that is no message of A2A.
func (c *grpcCall) unusable(err error) *bridge.ExchangeError {
	return c.retryable(c.fail(bridge.Answered, parley.CodeAgentError, "the answer is no %s: %s",
		c.method.response().ProtoReflect().Descriptor().FullName(), plainText(err)))
}

// fail makes the error of an exchange, which cannot be retried.
func (c *grpcCall) fail(d bridge.Disposition, code parley.Code, format string, args ...any) *bridge.ExchangeError {
	text := fmt.Sprintf(format, args...)
	return &bridge.ExchangeError{Disposition: d, Err: c.errorf(code, "gRPC %s to %s: %s", path.Base(c.method.name), c.target.address, text)}
}

func (c *grpcCall) retryable(x *bridge.ExchangeError) *bridge.ExchangeError {
	x.Err.Retryable = true
	return x
}

func (c *grpcCall) limited(x *bridge.ExchangeError, limit string, value int64) *bridge.ExchangeError {
	details := map[string]any{"limit": limit}
	if value != 0 {
		details["value"] = value
	}
	x.Err = x.Err.WithDetails(details)
	return x
}

func (c *grpcCall) errorf(code parley.Code, format string, args ...any) *parley.Error {
	e := parley.Errorf(code, format, args...)
	e.Message = bridge.Redact(c.op.agent, []byte(e.Message), maxGRPCError)
	e.Agent, e.Step, e.Attempt = c.op.agent.Name, c.op.task.Step, c.op.task.Attempt
	return e
}

// words is what the agent said, for people.
func (c *grpcCall) words(st *status.Status) string {
	text := "the agent answered " + statusName(st.Code())
	if st.Message() != "" {
		text += ": " + plainMessage(st.Message())
	}
	return text
}

// unauthenticated reports whether err is the agent's word that it does not know
// who is calling.
func (c *grpcCall) unauthenticated(err error) bool {
	if err == nil || c.trace.head.Load() {
		return false
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.Unauthenticated {
		return false
	}
	code, foreign := foreignHTTP(st.Message())
	return c.trace.end.Load() || foreign && code == http.StatusUnauthorized
}

// refusalOf writes a status in the form that open reads.
func refusalOf(st *status.Status) []byte {
	var r grpcRefusal
	r.Error.Code, r.Error.Status, r.Error.Message = int(st.Code()), statusName(st.Code()), strings.ToValidUTF8(st.Message(), "\uFFFD")
	var details []json.RawMessage
	for _, d := range st.Proto().GetDetails() {
		if text, err := asJSON(d); err == nil {
			details = append(details, text)
			continue
		}
		// Of a kind that is not known here: its name, then.
		if text, err := json.Marshal(map[string]string{"@type": strings.ToValidUTF8(d.GetTypeUrl(), "\uFFFD")}); err == nil {
			details = append(details, text)
		}
	}
	if len(details) > 0 {
		r.Error.Details, _ = json.Marshal(details) // of valid JSON each
	}
	body, _ := json.Marshal(r) // of valid JSON each
	return body
}

// statusName is the name of a status as gRPC spells it.
func statusName(c codes.Code) string {
	names := [...]string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	if int(c) < len(names) {
		return names[c]
	}
	return strconv.Itoa(int(c))
}

// plainText is the text of an error of package protobuf without the odd spaces
// that keep people from comparing it.
func plainText(err error) string { return plainMessage(err.Error()) }

// plainMessage takes out of a text of grpc-go what says nothing to people.
func plainMessage(s string) string {
	s = strings.ReplaceAll(s, "\u00a0", " ")
	if _, inner, ok := strings.Cut(s, `connection error: desc = "`); ok {
		s = strings.TrimSuffix(inner, `"`)
	}
	return strings.TrimPrefix(s, "transport: ")
}
