package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// Error is a request that the server answered and refused.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code says what kind of refusal it is; never empty. Where the server
	// named none, it follows from the status.
	Code parley.Code
	// Title and Detail are texts for people; Detail is the one that says what
	// happened, and may be empty.
	Title, Detail string
	// Errors are the single findings, if there are any.
	Errors []FieldError
	// Explanation says how far finding out about an agent came, one decision a
	// line.
	Explanation []string
	// RequestID finds the request in the server's logs, if the server sent it.
	RequestID string
}

// FieldError is one finding about a request: about a member of its body, or
// about a place in a document. Members that are not known are empty or 0.
type FieldError struct {
	Path, Code, Detail string
	File               string
	Line, Col          int
	Severity           parley.Severity
	Suggestion         string
}

// Problem gives the finding in the form in which findings in documents are
// printed.
func (f FieldError) Problem() parley.Problem {
	return parley.Problem{
		File: f.File, Line: f.Line, Col: f.Col, Path: f.Path, Severity: cmp.Or(f.Severity, parley.SeverityError),
		Code: cmp.Or(f.Code, "invalid"), Text: f.Detail, Suggestion: f.Suggestion,
	}
}

// Error gives "code: text".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Text() }

// Text says in one line what was refused, without the code: the detail, else
// the title, else the status.
func (e *Error) Text() string {
	text := cmp.Or(e.Detail, e.Title, http.StatusText(e.Status))
	if text == "" {
		text = fmt.Sprintf("HTTP status %d", e.Status)
	}
	return text
}

// ErrUnreachable is what errors.Is finds in every [*UnreachableError].
const ErrUnreachable = unreachable("the server cannot be reached")

type unreachable string

func (u unreachable) Error() string { return string(u) }

// UnreachableError is a request without an answer: nobody listens there, the
// name is unknown, or the connection broke.
type UnreachableError struct {
	// URL is the server's base URL.
	URL string
	// Method is that of the request; "" if it is events that are watched.
	Method string
	// Sent: the request was on its way, so a change may have been made, unless Method
	// is GET.
	Sent bool

	err error
}

// Error says which server, and why.
func (e *UnreachableError) Error() string {
	text := fmt.Sprintf("%s: %s: %v", ErrUnreachable, e.URL, e.err)
	if e.Sent {
		text = fmt.Sprintf("%s broke the connection before it had answered: %v", e.URL, e.err)
	}
	return text
}

// Unwrap gives [ErrUnreachable] and the cause.
func (e *UnreachableError) Unwrap() []error { return []error{ErrUnreachable, e.err} }

// wireError takes both sets of members: those of RFC 9457 and those of the
// existing platform.
type wireError struct {
	Status    int         `json:"status"`
	Title     text        `json:"title"`
	Detail    text        `json:"detail"`
	Code      parley.Code `json:"code"`
	Error     text        `json:"error"`
	RequestID text        `json:"request_id"`
	Details   explanation `json:"details"`
	Errors    []struct {
		Path       text            `json:"path"`
		Field      text            `json:"field"`
		Code       text            `json:"code"`
		Type       text            `json:"type"`
		Detail     text            `json:"detail"`
		Message    text            `json:"message"`
		File       text            `json:"file"`
		Line       int             `json:"line"`
		Col        int             `json:"col"`
		Severity   parley.Severity `json:"severity"`
		Suggestion text            `json:"suggestion"`
	} `json:"errors"`
}

// explanation is what is read of details, which have another form with every
// error.
type explanation []string

// UnmarshalJSON takes the lines of an explanation, and nothing else.
func (e *explanation) UnmarshalJSON(b []byte) error {
	var o struct {
		Explanation []string `json:"explanation"`
	}
	if json.Unmarshal(b, &o) == nil {
		*e = o.Explanation
	}
	return nil
}

// text is a string that may come as any JSON value: some refusals carry an
// object where others carry a sentence.
type text string

// UnmarshalJSON takes a string as it is, null as "", an object's message, and
// everything else as its JSON text.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = text(s)
		return nil
	}
	var o struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &o) == nil && o.Message != "" {
		*t = text(o.Message)
		return nil
	}
	*t = text(b)
	return nil
}

// error gives what was refused; the status is that of the answer.
func (w wireError) error(status int) *Error {
	e := &Error{
		Status: status, Code: w.Code, Title: string(w.Title), Detail: string(cmp.Or(w.Detail, w.Error)),
		RequestID: string(w.RequestID), Explanation: w.Details,
	}
	for _, x := range w.Errors {
		e.Errors = append(e.Errors, FieldError{
			Path:   string(cmp.Or(x.Path, x.Field)),
			Code:   string(cmp.Or(x.Code, x.Type)),
			Detail: string(cmp.Or(x.Detail, x.Message)),
			File:   string(x.File), Line: x.Line, Col: x.Col,
			Severity: x.Severity, Suggestion: string(x.Suggestion),
		})
	}
	if e.Code == "" {
		e.Code = codeOfStatus(status)
	}
	return e
}

// decodeError reads the refusal in resp. It never fails: what cannot be read
// as a refusal of this API becomes an Error that says so by its status.
func decodeError(resp *http.Response) *Error {
	body, err := readBody(resp.Body, maxErrorBody)
	if err != nil {
		body = nil
	}
	var w wireError
	if json.Unmarshal(body, &w) != nil {
		w = wireError{}
		if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == "text/plain" {
			w.Detail = text(firstLine(body))
		}
	}
	e := w.error(resp.StatusCode)
	e.RequestID = cmp.Or(e.RequestID, resp.Header.Get("X-Correlation-Id"))
	return e
}

// firstLine gives what a proxy or another server has to say, if it is short
// enough to be a sentence.
func firstLine(body []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
	if len(line) > 200 || !utf8.Valid(line) {
		return ""
	}
	return strings.TrimSpace(string(line))
}

func codeOfStatus(status int) parley.Code {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return parley.CodeNotFound
	case http.StatusConflict:
		return parley.CodeConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return parley.CodeUnauthorized
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return parley.CodeLimit
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return parley.CodeUnavailable
	}
	if status >= 400 && status < 500 {
		return parley.CodeInvalid
	}
	return parley.CodeInternal
}
