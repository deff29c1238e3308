package zone

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/parley-project/parley/jsonrpc"
)

// A Reason tells errors apart that have one code, and is what a text for people
// is chosen by. It is always in the data of an error (requirements.md).
type Reason string

// The reasons.
const (
	ReasonParseError     Reason = "parse_error"
	ReasonInvalidRequest Reason = "invalid_request"
	ReasonUnknownMethod  Reason = "method_not_found"
	ReasonInvalidParams  Reason = "invalid_params"
	// ReasonIDReused: the id of the request belongs to another task.
	ReasonIDReused Reason = "id_reused"
	// ReasonTooLarge: the request or what was to be answered is beyond a limit.
	ReasonTooLarge Reason = "too_large"
	ReasonInternal Reason = "internal"
	ReasonTimeout  Reason = "timeout"
	// ReasonOverloaded: the zone has as much in hand as it may; try again later.
	ReasonOverloaded Reason = "overloaded"
	// ReasonStopping: the zone is being stopped; try again, another one takes it.
	ReasonStopping Reason = "stopping"
	// ReasonUnknownTask: no task has this id, or it was forgotten long ago.
	ReasonUnknownTask Reason = "unknown_task"
	// ReasonTaskFailed: the workflow or the agent came to a failure.
	ReasonTaskFailed Reason = "task_failed"
	// ReasonCancelled: somebody cancelled it.
	ReasonCancelled Reason = "cancelled"
	// ReasonUnauthorized: the caller was not believed.
	ReasonUnauthorized Reason = "unauthorized"
	// ReasonAttachment: a file that came with the question could not be read.
	ReasonAttachment Reason = "attachment"
)

// Reasons lists the reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonParseError, ReasonInvalidRequest, ReasonUnknownMethod, ReasonInvalidParams, ReasonIDReused, ReasonTooLarge, ReasonInternal,
		ReasonTimeout, ReasonOverloaded, ReasonStopping, ReasonUnknownTask, ReasonTaskFailed, ReasonCancelled, ReasonUnauthorized, ReasonAttachment,
	}
}

// text is what an error of a reason says when nothing more is known.
func (r Reason) text() string {
	switch r {
	case ReasonParseError:
		return "Parse error"
	case ReasonInvalidRequest:
		return "Invalid Request"
	case ReasonUnknownMethod:
		return "Method not found"
	case ReasonInvalidParams:
		return "Invalid params"
	case ReasonIDReused:
		return "the id of the request belongs to another task"
	case ReasonTooLarge:
		return "it is larger than the limit"
	case ReasonTimeout:
		return "the task took longer than it may"
	case ReasonOverloaded:
		return "overloaded, try again later"
	case ReasonStopping:
		return "being stopped, try again"
	case ReasonUnknownTask:
		return "no such task, or it was long ago"
	case ReasonTaskFailed:
		return "the task failed"
	case ReasonCancelled:
		return "the task was cancelled"
	case ReasonUnauthorized:
		return "not authorized"
	case ReasonAttachment:
		return "an attachment could not be read"
	case ReasonInternal:
	}
	return "Internal error"
}

// NewError returns the error of a reason, with its code and the text that tells
// nothing but the reason.
func NewError(reason Reason) *Error {
	e := &Error{Code: CodeServer, Reason: reason, Message: reason.text()}
	switch reason {
	case ReasonParseError:
		e.Code = jsonrpc.CodeParseError
	case ReasonInvalidRequest:
		e.Code = jsonrpc.CodeInvalidRequest
	case ReasonUnknownMethod:
		e.Code = jsonrpc.CodeMethodNotFound
	case ReasonInvalidParams, ReasonIDReused:
		e.Code = jsonrpc.CodeInvalidParams
	case ReasonTimeout:
		e.Code = CodeTimeout
	case ReasonInternal:
		e.Code = jsonrpc.CodeInternalError
	}
	return e
}

// An Error is the error of a response of the contract (ZN-4). Its text may be
// sent to the other zone: it holds nothing of what went wrong inside.
type Error struct {
	Code    jsonrpc.Code
	Message string
	Reason  Reason
	// CorrelationID finds the request in the logs, and with them the cause.
	CorrelationID string
	// Missing are the params that are required and not there, Field is the one that
	// does not fit; both only with ReasonInvalidParams.
	Missing []string
	Field   string
	// RetryAfterMS is when to try again with ReasonOverloaded, in milliseconds; 0
	// if it is not known.
	RetryAfterMS int64
	// Foreign is what a zone that is not ours calls the failure, for logs; "" for
	// nothing. It is not sent.
	Foreign string
}

// errorData is the member data of an error.
type errorData struct {
	Reason        Reason   `json:"reason"`
	CorrelationID string   `json:"correlation_id,omitempty"`
	Missing       []string `json:"missing,omitempty"`
	Field         string   `json:"field,omitempty"`
	RetryAfterMS  int64    `json:"retry_after_ms,omitempty"`
}

// errorWire is an error as it is sent.
type errorWire struct {
	Code    jsonrpc.Code    `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error tells code, reason and message.
func (e *Error) Error() string {
	return fmt.Sprintf("zone: %s (%d, %s)", e.Message, e.Code, e.Reason)
}

func (e *Error) wire() errorWire {
	data, err := marshal(errorData{
		Reason: e.Reason, CorrelationID: e.CorrelationID, Missing: e.Missing, Field: e.Field, RetryAfterMS: e.RetryAfterMS,
	})
	if err != nil { // a struct of strings and a number always encodes
		data = nil
	}
	return errorWire{Code: e.Code, Message: e.Message, Data: data}
}

// errorFrom reads an error that another zone sent. Data that is not ours is
// accepted and counts as none; the reason then follows from the code.
func errorFrom(w errorWire) *Error {
	var d errorData
	if err := json.Unmarshal(w.Data, &d); err != nil {
		d = errorData{} // a foreign zone may say here what it likes
	}
	e := &Error{
		Code: w.Code, Message: CleanText(w.Message), Reason: Reason(plainName(string(d.Reason))), CorrelationID: CleanText(d.CorrelationID),
		Field: CleanText(d.Field), RetryAfterMS: min(max(d.RetryAfterMS, 0), maxPollAfter),
	}
	for _, name := range d.Missing[:min(len(d.Missing), 16)] {
		e.Missing = append(e.Missing, CleanText(name))
	}
	if e.Reason == "" {
		e.Reason = reasonOf(w.Code)
	}
	return e
}

// CleanText makes a text of another zone one line that may be logged: short, and
// without what looks like a token of Slack, since libraries put the text of
// exceptions into errors.
func CleanText(s string) string {
	const most = 256
	if len(s) <= most && !strings.Contains(s, "xox") && !strings.Contains(s, "xapp") && plain(s) {
		return s // as nearly all are
	}
	s = slackToken.ReplaceAllString(s[:min(len(s), 4*most)], "[redacted]")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// plain says whether s is printable ASCII.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

var slackToken = regexp.MustCompile(`(xox[a-z]|xapp)-[0-9A-Za-z-]*`)

func reasonOf(code jsonrpc.Code) Reason {
	switch code {
	case jsonrpc.CodeParseError:
		return ReasonParseError
	case jsonrpc.CodeInvalidRequest:
		return ReasonInvalidRequest
	case jsonrpc.CodeMethodNotFound:
		return ReasonUnknownMethod
	case jsonrpc.CodeInvalidParams:
		return ReasonInvalidParams
	case CodeTimeout:
		return ReasonTimeout
	default:
		return ReasonInternal
	}
}
