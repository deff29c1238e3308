package rpchttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

func refusedWith(status int, header ...string) *Error {
	res := &http.Response{StatusCode: status, Header: make(http.Header)}
	for i := 0; i < len(header); i += 2 {
		res.Header.Set(header[i], header[i+1])
	}
	res.Request = &http.Request{Method: http.MethodPost, URL: &url.URL{
		Scheme: "http", Host: "host", Path: "/rpc", RawQuery: "key=S3cret", User: url.UserPassword("ada", "S3cret"),
	}}
	return refused(res, "no")
}

// TestStatusAdvice: what an HTTP status says about the next attempt, and about this
// one.
func TestStatusAdvice(t *testing.T) {
	for status, want := range map[int]struct {
		again, notSent bool
		advice         string
	}{
		301: {false, false, "redirects"}, 308: {false, false, "redirects"},
		400: {false, false, "URL is that of"}, 401: {false, false, "credentials"}, 403: {false, false, "credentials"}, 407: {false, false, "credentials"},
		404: {false, false, "path of the URL; if a session"}, 410: {false, false, "path of the URL; if a session"},
		405: {false, false, "HTTP method"}, 406: {false, false, "speaks JSON-RPC"}, 415: {false, false, "speaks JSON-RPC"},
		408: {true, false, "send less"}, 413: {false, false, "send less"}, 425: {true, true, "URL is that of"}, 429: {true, true, "busy"},
		500: {true, false, "may have done"}, 501: {false, false, "log"}, 502: {true, false, "log"}, 503: {true, false, "busy"}, 504: {true, false, "log"},
		299: {false, false, "URL is that of"},
	} {
		e := refusedWith(status)
		if e.Recoverable() != want.again || e.NotSent != want.notSent || !strings.Contains(e.Advice, want.advice) {
			t.Errorf("%v: recoverable %t, not sent %t", e, e.Recoverable(), e.NotSent)
		}
		if text := e.Error(); strings.Contains(text, "S3cret") || !strings.HasPrefix(text, "rpchttp: POST http://host/rpc: status ") || errors.Is(e, jsonrpc.ErrClosed) {
			t.Error(text)
		}
	}
}

// TestRetryAfter: seconds, or a time by the server's clock, up to an hour.
func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"5": 5 * time.Second, "3600": time.Hour, "3601": time.Hour, "99999999": time.Hour,
		"": 0, "0": 0, "-5": 0, "5s": 0, "99999999999999999999": 0, "Thu, 26 Nov 2026 15:00:00 GMT": 0,
	} {
		if got := refusedWith(503, "Retry-After", value).RetryAfter; got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	for date, want := range map[string]time.Duration{
		"Thu, 26 Nov 2026 14:59:30 GMT": 30 * time.Second, "Thu, 26 Nov 2026 15:00:00 GMT": 0, "Thu, 26 Nov 2026 15:00:01 GMT": 0,
		"Thu, 26 Nov 2026 10:00:00 GMT": time.Hour, "today": 0,
	} {
		if got := refusedWith(503, "Retry-After", "Thu, 26 Nov 2026 15:00:00 GMT", "Date", date).RetryAfter; got != want {
			t.Errorf("at %q: %v", date, got)
		}
	}
}

// TestRequestErrors: of a request that failed the error says whether the server may
// have got it, whether another attempt may help, and what to do.
func TestRequestErrors(t *testing.T) {
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err, cause error // cause: of the request's context
		want       error
		notSent    bool
		again      bool
		advice     string
	}{
		"dial":         {dial, nil, syscall.ECONNREFUSED, true, true, "server runs"},
		"proxy":        {&net.OpError{Op: "proxyconnect", Err: dial}, nil, syscall.ECONNREFUSED, true, true, "server runs"},
		"read":         {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, nil, syscall.ECONNRESET, false, true, "server runs"},
		"write":        {&net.OpError{Op: "write", Err: syscall.EPIPE}, nil, syscall.EPIPE, false, true, "server runs"},
		"cut":          {io.ErrUnexpectedEOF, nil, io.ErrUnexpectedEOF, false, true, "server runs"},
		"certificate":  {untrusted, nil, untrusted, true, false, "server runs"},
		"timeout":      {ErrTimeout, ErrTimeout, ErrTimeout, false, true, "raise ClientConfig.Timeout"},
		"timeout, too": {context.Canceled, ErrTimeout, ErrTimeout, false, true, "raise ClientConfig.Timeout"},
		"closing":      {context.Canceled, errClosing, errClosing, false, true, "dial again"},
		"another":      {io.EOF, errClosing, io.EOF, false, true, "server runs"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if method == http.MethodPost && c.advice == "server runs" && !c.notSent {
				c.advice = "ask the server for the outcome"
			}
			r := (&http.Request{Method: method, URL: &url.URL{Scheme: "http", Host: "host", Path: "/", RawQuery: "key=S3cret"}}).WithContext(ctx)
			for _, err := range []error{c.err, &url.Error{Op: "Get", URL: r.URL.String(), Err: c.err}} {
				e := failed(r, err)
				if !errors.Is(e, c.want) || e.NotSent != c.notSent || e.Recoverable() != c.again || !strings.Contains(e.Advice, c.advice) || e.Status != 0 {
					t.Errorf("%s: %v: not sent %t, recoverable %t", name, e, e.NotSent, e.Recoverable())
				}
				if text := e.Error(); strings.Contains(text, "S3cret") || strings.Contains(text, "status") || strings.Count(text, "rpchttp") != 1 {
					t.Error(text)
				}
			}
		}
		cancel(nil)
	}
	if !errors.Is(ErrTimeout, context.DeadlineExceeded) || errors.Is(ErrTimeout, context.Canceled) {
		t.Error("ErrTimeout is no deadline that passed")
	}
}

// TestSnippet: one line of printable text, with a bound, and without secrets or parts of
// them.
func TestSnippet(t *testing.T) {
	for body, want := range map[string]string{
		"": "", "  \n\t ": "", "  a \r\n\t b  ": "a b", "a\x00b\x1b[1mc": "a.b.[1mc", "\xff\u200b\ufffd": "...",
		strings.Repeat("x", 200):                         strings.Repeat("x", 200),
		strings.Repeat("x", 201):                         strings.Repeat("x", 200),
		strings.Repeat("x", 199) + "é":                   strings.Repeat("x", 199),
		strings.Repeat("x", 198) + "é!":                  strings.Repeat("x", 198) + "é",
		strings.Repeat("x", 199) + " y":                  strings.Repeat("x", 199),
		"the key KEY, in \"Bearer KEY\", is not welcome": "the key […], in \"Bearer […]\", is not welcome",
	} {
		if got := snippet([]byte(body), []string{"KEY"}); got != want || len(got) > maxSnippet {
			t.Errorf("%q: %q, %d bytes", body, got, len(got))
		}
	}
	long := "T0ken-" + strings.Repeat("x", snippetSource)
	for _, c := range []struct {
		body    string
		secrets []string
		want    string
	}{
		{"the key s1k of 1", []string{"1", "s1k"}, "the key […] of […]"}, // whichever comes first
		{"the key s1k of 1", []string{"s1k", "1"}, "the key […] of […]"},
		{("the key " + long)[:snippetSource], []string{"T0", long, "x"}, "the key"},
		{"the key T0ken", []string{long}, "the key T0ken"},                      // that is all of the answer
		{"not s3cretKEY1other", []string{"s3cretKEY1", "KEY1other"}, "not […]"}, // they overlap
		{"not s3cretKEY1other", []string{"KEY1other", "s3cretKEY1"}, "not […]"},
		{"not abcabcabc", []string{"abcabc"}, "not […]"}, // so does one with itself
		{"not KEY1KEY2, KEY1", []string{"KEY1", "KEY2"}, "not […], […]"},
		{strings.Repeat(" ", snippetSource-len("s3cretKEY1")) + "s3cretKEY1", []string{"s3cretKEY1", "KEY1other"}, "[…]"}, // cut in the second
		{strings.Repeat(" ", snippetSource-len("s3cretKEY1")) + "s3cretKEY1 and more", []string{"s3cretKEY1", "KEY1other"}, "[…]"},
	} {
		if got := snippet([]byte(c.body), c.secrets); got != c.want {
			t.Errorf("%.20q without %.20q: %q", c.body, c.secrets, got)
		}
	}
	if got := printable("a\xff"); got != "?" {
		t.Errorf("a header that is no text: %q", got)
	}
}

// TestFaultSecrets: a server that refuses credentials with an error of JSON-RPC, without an
// id, does not bring them into the error either. Its code and data stay what they are.
func TestFaultSecrets(t *testing.T) {
	secrets := []string{"Bearer T0ken-of-8", "T0ken-of-8", "1"}
	for raw, want := range map[string]jsonrpc.Error{
		`{"code":-32001,"message":"no such key: T0ken-of-8"}`:                          {Code: -32001, Message: "no such key: […]"},
		`{"code":-32600,"message":"too long","data":{"limit":10}}`:                     {Code: -32600, Message: "too long", Data: []byte(`{"limit":10}`)},
		`{"code":7,"message":"no","data":["Bearer T0ken-of-8",{"T0ken-of-8":1}]}`:      {Code: 7, Message: "no", Data: []byte(`["[…]",{"[…]":1}]`)},
		`{"code":7,"message":"no","data":{"a":"T0ken-of-8","b":"Bearer T0ken-of-8x"}}`: {Code: 7, Message: "no", Data: []byte(`{"a":"[…]","b":"[…]x"}`)},
	} {
		e, ok := errors.AsType[*jsonrpc.Error](decodeFault([]byte(raw), secrets))
		if !ok || e.Code != want.Code || e.Message != want.Message || string(e.Data) != string(want.Data) {
			t.Errorf("%s: %+v", raw, e)
		}
	}
	if e, ok := errors.AsType[*jsonrpc.Error](decodeFault([]byte(`{"code":7,"message":"","data":[12345678]}`), []string{"[12345678"})); !ok || e.Data != nil {
		t.Errorf("data that is none without the secret: %+v", e)
	}
}

// TestSecretsOf: what a request holds that its sender may not want to see again; short
// words are no secrets, since texts are full of them.
func TestSecretsOf(t *testing.T) {
	r := &http.Request{URL: &url.URL{RawQuery: "a=7%2dletter&b=1234%205678&12345678&bad=12345678%zz"}, Header: http.Header{
		"Content-Type": {"application/json"}, "Accept": {"everything"}, "Cache-Control": {"no-store-at-all"}, "Last-Event-Id": {"event-number-1"},
		"Authorization": {"Bearer T0ken-of-8", ""}, "X-Short": {"seven77 eight888"},
	}}
	got := make(map[string]bool)
	for _, s := range secretsOf(r) {
		got[s] = true
	}
	for _, want := range []string{
		r.URL.RawQuery, strings.ReplaceAll(r.URL.RawQuery, "&", `\u0026`), "7%2dletter", "7-letter", "1234%205678", "1234 5678", "12345678",
		"Bearer T0ken-of-8", "T0ken-of-8", "seven77 eight888", "eight888",
	} {
		if !got[want] {
			t.Errorf("%q is no secret", want)
		}
		delete(got, want)
	}
	if len(got) > 0 {
		t.Errorf("secrets, too: %v", got)
	}
	r = &http.Request{URL: new(url.URL), Header: http.Header{"Cookie": {`a=short; session="cookie/val"; b=c`}}}
	r.SetBasicAuth("ada", `pa"ss`)
	for _, want := range []string{"cookie/val", `cookie\/val`, `pa"ss`, `pa\"ss`, "YWRhOnBhInNz", "Basic YWRhOnBhInNz"} {
		if !slices.Contains(secretsOf(r), want) {
			t.Errorf("%q is no secret of %q", want, secretsOf(r))
		}
	}
	if r.SetBasicAuth("T0ken", ""); !slices.Contains(secretsOf(r), "T0ken") {
		t.Error("a user without a password is no secret")
	}
	if got := secretsOf(&http.Request{URL: new(url.URL)}); len(got) > 0 {
		t.Errorf("secrets of nothing: %q", got)
	}
}
