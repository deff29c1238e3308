package rpchttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/internal/blot"
)

// ErrTimeout is the cause of a request that ClientConfig.Timeout ended. It
// matches context.DeadlineExceeded.
var ErrTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string        { return "rpchttp: the server did not answer in time" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// errClosing is the cause of requests that Close cut short.
var errClosing = errors.New("rpchttp: the stream was closed before the answer came")

// maxSnippet bounds what an Error shows of an answer, in bytes.
const maxSnippet = 200

// snippetSource bounds what is read of an answer for that, in bytes.
const snippetSource = 4 << 10

// An Error is an HTTP exchange that brought no JSON-RPC answer: the request
// failed, or something else than JSON-RPC came back. It holds no credentials:
// the URL is without user, password and query, and those, and the values of headers
// that ClientConfig.Headers set, are blotted out of the snippet and of a *jsonrpc.Error.
type Error struct {
	Method  string // "POST", "GET" or "DELETE"
	URL     string // without user, query and fragment
	Status  int    // HTTP status; 0 when there was no answer
	Problem string // what is wrong, in words
	Advice  string // what to do next, in words
	Snippet string // the beginning of the answer: printable, ≤ 200 bytes
	// RetryAfter is what the server asks to wait before the next attempt, at most an
	// hour; 0 when it does not.
	RetryAfter time.Duration
	// NotSent says that the server certainly did nothing with the message, so
	// that it can be sent again without happening twice: it could not be
	// reached, or said so.
	NotSent bool
	// Err is the cause: the error of net/http, a *jsonrpc.Error that the server
	// sent without the id of a request, or nil.
	Err error

	verdict verdict
	over    bool // the Stream ends, or has ended
}

// Error says what happened, with the status and the snippet, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rpchttp: %s %s: ", e.Method, e.URL)
	if e.Status != 0 {
		fmt.Fprintf(&b, "status %d %s: ", e.Status, http.StatusText(e.Status))
	}
	b.WriteString(e.Problem)
	if e.Err != nil {
		b.WriteString(": " + strings.TrimPrefix(e.Err.Error(), "rpchttp: "))
	}
	if e.Snippet != "" {
		fmt.Fprintf(&b, " (the answer begins %q)", e.Snippet)
	}
	if e.Advice != "" {
		b.WriteString("; " + e.Advice)
	}
	return b.String()
}

// Unwrap returns the cause, which may be nil.
func (e *Error) Unwrap() error { return e.Err }

// Is says that the end of a session is a jsonrpc.ErrClosed: only a new Stream is
// of use then.
func (e *Error) Is(target error) bool { return e.over && target == jsonrpc.ErrClosed }

// A verdict on whether the same request may succeed later.
type verdict int8

const (
	byStatus verdict = iota
	later            // it may, with a new session at least
	never            // it cannot, before somebody changes something
)

// Recoverable says whether the same request, or a new session, may succeed
// later without anybody changing anything: after overload, restarts and
// failures of the network (RPC-22). jsonrpc.AdviceFor asks it.
func (e *Error) Recoverable() bool {
	if e.verdict != byStatus {
		return e.verdict == later
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0:
		// Most of what net/http returns is a network that failed.
		return jsonrpc.AdviceFor(e.Err) != jsonrpc.AdviceGiveUp
	}
	return false
}

// A urlError says that a URL is none that this package can use, which will not
// change.
type urlError string

func (e urlError) Error() string   { return string(e) }
func (urlError) Recoverable() bool { return false }

// A limitError says that an answer is longer than it may be.
type limitError struct{ limit int }

func tooLarge(limit int) error { return limitError{limit} }

func (e limitError) Error() string {
	return "the answer is longer than " + strconv.Itoa(e.limit) + " bytes"
}

// Unwrap says the same as a Conn does of answers that come by other transports.
func (e limitError) Unwrap() error {
	return &jsonrpc.ResourceError{What: "an incoming message", Limit: e.limit, Unit: "bytes"}
}

// bareURL returns u fit for messages: no user, no password, no query.
func bareURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// failed is the error of a request that net/http could not complete.
func failed(req *http.Request, err error) *Error {
	// A *url.Error repeats the whole URL; what is in it says enough.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if cause := context.Cause(req.Context()); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	e := &Error{Method: req.Method, URL: bareURL(req.URL), Problem: "the request failed", Err: err}
	op, ok := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	plain := noTLS(err)
	e.NotSent = untrusted || plain || ok && (op.Op == "dial" || op.Op == "proxyconnect")
	switch {
	case plain:
		e.verdict, e.Advice = never, "check the scheme of the URL: what is there does not speak TLS"
	case errors.Is(err, ErrTimeout):
		e.Problem, e.Advice = "gave up", "raise ClientConfig.Timeout if the method takes that long"
	case errors.Is(err, errClosing):
		e.Advice = "dial again"
	case req.Method == http.MethodPost && !e.NotSent:
		e.Advice = "ask the server for the outcome before sending again: it may have got the message"
	default:
		e.Advice = "check that the server runs and can be reached at this address, then try again"
	}
	return e
}

// noTLS says whether a server has answered the beginning of the handshake with
// something that is not TLS: nothing else was sent to it.
func noTLS(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && record.Conn != nil || errors.Is(err, http.ErrSchemeMismatch)
}

// refused is the error of an answer that is not one: a status, a content type
// or a body that does not fit.
func refused(res *http.Response, problem string) *Error {
	e := &Error{
		Method: res.Request.Method, URL: bareURL(res.Request.URL), Status: res.StatusCode,
		Problem: problem, Advice: adviceFor(res.StatusCode),
	}
	e.RetryAfter = retryAfter(res.Header)
	// These two are answered before anything was done, by their definition.
	e.NotSent = res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusTooEarly
	return e
}

// maxRetryAfter bounds what a server may ask to wait.
const maxRetryAfter = time.Hour

// retryAfter reads what a server asks to wait (RFC 9110 §10.2.3). A time is by the
// server's own clock, so that it counts from the Date beside it, and without one not at
// all.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if s, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(s, 0), int(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

func adviceFor(status int) string {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return "check the credentials that ClientConfig.Headers sets, and that this client may call the server"
	case status == http.StatusNotFound, status == http.StatusGone:
		return "check the path of the URL; if a session was open it is over, and a new one is needed"
	case status == http.StatusMethodNotAllowed:
		return "check the path of the URL: what is there does not take this HTTP method"
	case status == http.StatusRequestTimeout:
		return "send less at once, or try again later: the message took too long to arrive"
	case status == http.StatusRequestEntityTooLarge:
		return "send less at once, or raise the server's limit"
	case status == http.StatusUnsupportedMediaType, status == http.StatusNotAcceptable:
		return "check that the server speaks JSON-RPC over HTTP at this path"
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return "the server is busy: try again later"
	case status >= 500:
		return "look into the server's log: it may have done what was asked for; trying again later may help"
	case status >= 300 && status < 400:
		return "use the URL that the server redirects to, if you trust it"
	}
	return "check that the URL is that of a JSON-RPC server"
}

// snippet returns the beginning of an answer for an Error: one line of
// printable text, with the secrets blotted out.
func snippet(body []byte, secrets []string) string {
	body = body[:min(len(body), snippetSource)]
	text := blot.Text(string(body), secrets, len(body) == snippetSource, nil)
	var b strings.Builder
	space := true
	for _, r := range text {
		if unicode.IsSpace(r) {
			if !space {
				b.WriteByte(' ')
			}
			space = true
			continue
		}
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			r = '.'
		}
		if b.Len()+utf8.RuneLen(r) > maxSnippet {
			break
		}
		b.WriteRune(r)
		space = false
	}
	return strings.TrimSpace(b.String())
}

// secretsOf lists the query of a request and the values of the headers that this
// package does not set to the same for everybody, and the words in them, since a
// server may repeat "KEY" of "Bearer KEY", "session=KEY;" or "?key=KEY"; and the password
// of basic authentication, or a user without one, which is a token then.
func secretsOf(req *http.Request) []string {
	secrets := blot.Query(req.URL.RawQuery)
	for name, values := range req.Header {
		switch name {
		case "Content-Type", "Accept", "Cache-Control", "Last-Event-Id":
			continue
		}
		for _, v := range values {
			secrets = append(append(secrets, v), blot.Words(v)...)
		}
	}
	if user, password, ok := req.BasicAuth(); ok {
		secrets = append(secrets, cmp.Or(password, user))
	}
	secrets = append(secrets, blot.InJSON(secrets)...)
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}
