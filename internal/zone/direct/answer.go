package direct

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/jsonrpc"
)

// An Answer is an HTTP response that was read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// ReadAnswer reads a response whose body has at most limit bytes, unpacked, and
// closes it. The error is a *[zone.TransportError]: too-large, or unknown-outcome
// for a body that was cut.
func ReadAnswer(resp *http.Response, limit int64) (Answer, error) {
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	if resp.ContentLength > limit {
		return a, tooLarge(limit)
	}
	var err error
	a.Body, err = ReadBody(resp.Body, limit)
	return a, err
}

// ReadBody reads what has at most limit bytes, with the errors of ReadAnswer.
func ReadBody(r io.Reader, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case n > limit:
		return nil, tooLarge(limit)
	case err != nil:
		return buf.Bytes(), &zone.TransportError{Class: zone.ClassUnknownOutcome, Err: fmt.Errorf("the response ended after %d bytes: %w", n, err)}
	}
	return buf.Bytes(), nil
}

func tooLarge(limit int64) *zone.TransportError {
	return &zone.TransportError{Class: zone.ClassTooLarge, Err: fmt.Errorf("the response is larger than %d bytes", limit)}
}

// RPC is what a transport looks at in a JSON-RPC response.
type RPC struct {
	// Code is that of the error, 0 for a result.
	Code jsonrpc.Code
}

// Response reports whether the body is a JSON-RPC response, whatever is in it.
func (a Answer) Response() (RPC, bool) {
	var w struct {
		JSONRPC *string         `json:"jsonrpc"`
		Result  json.RawMessage `json:"result"`
		Error   *struct {
			Code jsonrpc.Code `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(a.Body, &w) != nil || w.JSONRPC == nil || w.Result == nil && w.Error == nil {
		return RPC{}, false
	}
	if w.Error != nil {
		return RPC{Code: w.Error.Code}, true
	}
	return RPC{}, true
}

// Judge says what an answer means that is not from the other zone itself: nil if
// it is, so that its body is to be returned. Statuses of gateways that nobody can
// tell from those of the other zone count as unknown-outcome. The errors hold
// nothing of the body, which may hold anything.
func Judge(a Answer, now time.Time) *zone.TransportError {
	if a.Status >= 200 && a.Status < 300 {
		return judgeBody(a)
	}
	if _, ok := a.Response(); ok {
		return nil
	}
	fault := &zone.TransportError{RetryAfter: RetryAfter(a.Header, now), Err: a.describe()}
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		fault.Class = zone.ClassAuth
	case http.StatusRequestEntityTooLarge:
		fault.Class = zone.ClassTooLarge
	case http.StatusTooManyRequests:
		fault.Class = zone.ClassThrottled
	case http.StatusServiceUnavailable:
		fault.Class = zone.ClassUnknownOutcome
		if a.Header.Get("Retry-After") != "" {
			fault.Class = zone.ClassUnavailable
		}
	case http.StatusRequestTimeout:
		fault.Class = zone.ClassUnknownOutcome
	default:
		fault.Class = zone.ClassBadResponse
		if a.Status >= 500 {
			fault.Class = zone.ClassUnknownOutcome
		}
	}
	return fault
}

// judgeBody checks that the body of a success is one whole JSON value: a response
// without Content-Length that was cut looks like a complete one to HTTP.
func judgeBody(a Answer) *zone.TransportError {
	err := wholeJSON(a.Body)
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && a.Header.Get("Content-Length") == "" && a.Status != http.StatusNoContent {
		return &zone.TransportError{Class: zone.ClassUnknownOutcome, Err: fmt.Errorf("the response ended after %d bytes, within a JSON value", len(a.Body))}
	}
	return &zone.TransportError{Class: zone.ClassBadResponse, Err: fmt.Errorf("no JSON: %w", a.describe())}
}

// wholeJSON gives nil for one JSON value, io.ErrUnexpectedEOF for the beginning of
// one, and another error for what is none.
func wholeJSON(body []byte) error {
	if json.Valid(body) {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	if s, ok := errors.AsType[*json.SyntaxError](err); ok && s.Offset >= int64(len(body)) && strings.HasPrefix(s.Error(), "unexpected end") {
		return io.ErrUnexpectedEOF
	}
	return err
}

// describe names status, type and length.
func (a Answer) describe() error {
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		kind = "no content type"
	}
	return fmt.Errorf("HTTP %d (%s, %d bytes)", a.Status, kind, len(a.Body))
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 24 * time.Hour

// RetryAfter reads how long a server wants to be left alone, from
// X-Amz-Retry-After in milliseconds or Retry-After in seconds or as a date; 0 for
// neither. A date is by the clock of the server, of which its Date tells; now is for
// those that have none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseInt(h.Get("X-Amz-Retry-After"), 10, 64); err == nil && ms >= 0 {
		return clamp(ms, time.Millisecond)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseInt(v, 10, 64); err == nil && s >= 0 {
		return clamp(s, time.Second)
	}
	if at, err := http.ParseTime(v); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return max(0, min(at.Sub(now), maxRetryAfter))
	}
	return 0
}

func clamp(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(n, int64(maxRetryAfter/unit))) * unit
}
