package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/parley-project/parley"
)

// MaxBody is the longest response body that a client reads unless its options say
// otherwise, and the longest single event of a stream, in bytes: a run with as many
// values as it may have by default (256 MiB), and what stands in its answer twice.
const MaxBody = MaxArchiveLine

// maxErrorBody bounds what is read of a refusal.
const maxErrorBody = 1 << 20

// Options say which server to talk to, and as whom.
type Options struct {
	// URL is the server's base URL, such as "http://127.0.0.1:8420"; http or
	// https, without user information, query and fragment. A path is kept as
	// the prefix of every request's path.
	URL string
	// Key authenticates every request. The zero Secret sends none.
	Key parley.Secret
	// HTTPClient carries the requests; its CheckRedirect is not used. Nil is a
	// client that gives up on a connection after 10 s and on the head of a
	// response after 90 s.
	HTTPClient *http.Client
	// UserAgent is sent with every request; "" is "parley-client".
	UserAgent string
	// MaxBody bounds a response body and a single event of a stream, in bytes; 0 is
	// [MaxBody].
	MaxBody int64
}

// Client talks to one server. It is made by [New] and may be used
// concurrently.
type Client struct {
	base      *url.URL
	key       parley.Secret
	http      *http.Client
	userAgent string
	maxBody   int64

	// What watching needs of the world.
	now    func() time.Time
	sleep  func(context.Context, time.Duration) error
	jitter func() float64
}

// New makes a client. It does not connect; the error is about the options and
// has [parley.CodeInvalid].
func New(o Options) (*Client, error) {
	base, err := parseBase(o.URL)
	if err != nil {
		return nil, err
	}
	if bytes.ContainsAny(o.Key.Reveal(), "\r\n\x00") {
		return nil, parley.Errorf(parley.CodeInvalid, "the key holds a line break or a NUL character")
	}
	hc := http.Client{Transport: newTransport()}
	if o.HTTPClient != nil {
		hc = *o.HTTPClient
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		base: base, key: o.Key, http: &hc, userAgent: cmp.Or(o.UserAgent, "parley-client"), maxBody: cmp.Or(max(o.MaxBody, 0), MaxBody),
		now: time.Now, sleep: sleep, jitter: rand.Float64,
	}, nil
}

// URL gives the base URL that the client was made with, without a trailing
// slash.
func (c *Client) URL() string { return c.base.String() }

func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(text), "/"))
	if err != nil {
		// The text of the parser's error repeats the URL with its password.
		return nil, parley.Errorf(parley.CodeInvalid, "the server's URL cannot be read: write it as http://HOST:PORT or https://HOST")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, parley.Errorf(parley.CodeInvalid, "the server's URL must begin with http:// or https:// and name a host")
	case u.User != nil:
		return nil, parley.Errorf(parley.CodeInvalid, "the server's URL must not hold a user or password")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, parley.Errorf(parley.CodeInvalid, "the server's URL must not hold a query or a fragment")
	}
	return u, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 90 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   8,
		ForceAttemptHTTP2:     true,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call is one request. Path segments are escaped by the one who makes it.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header
	// body is sent as JSON unless header says otherwise; nil sends none.
	body []byte
	// trace is sent as its two headers.
	trace parley.Trace
}

// path joins segments below /api/v1, each escaped.
func path(segments ...string) string {
	var p strings.Builder
	p.WriteString("/api/v1")
	for _, s := range segments {
		p.WriteByte('/')
		p.WriteString(url.PathEscape(s))
	}
	return p.String()
}

// do sends a call, reads the answer and decodes it into out, unless that is
// nil. An answer that is no success is an *Error. What is read is decoded as it comes,
// so that a run of many values takes the memory of those values and not twice as much.
func (c *Client) do(ctx context.Context, k call, out any) (status int, err error) {
	resp, err := c.send(ctx, k)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body := &bounded{r: resp.Body, left: c.maxBody}
	if out == nil {
		_, err = io.Copy(io.Discard, body)
	} else {
		err = jsonv2.UnmarshalRead(body, out, jsonv1.DefaultOptionsV1(), jsonv1.ReportErrorsWithLegacySemantics(false))
	}
	switch {
	case body.beyond:
		return 0, tooLong(k, c.maxBody)
	case body.broke != nil:
		return 0, c.broken(ctx, k.method, body.broke, true)
	case err != nil && !isJSON(resp.Header.Get("Content-Type")):
		return resp.StatusCode, parley.Errorf(parley.CodeInternal,
			"%s %s: %s has answered %d with %q in place of JSON: check that it is the address of a Parley server", k.method, k.path, c.base, resp.StatusCode, resp.Header.Get("Content-Type"))
	case err != nil:
		return resp.StatusCode, parley.Errorf(parley.CodeInternal, "%s %s: the server's answer is not what the API promises: %w", k.method, k.path, err)
	}
	return resp.StatusCode, nil
}

// isJSON reports whether a media type is JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}

// bounded reads left bytes of r at most. It keeps what became of the reading, which
// who decodes tells in its own words.
type bounded struct {
	r    io.Reader
	left int64
	// beyond: there was more; broke: r has failed.
	beyond bool
	broke  error
}

// Read reads.
func (b *bounded) Read(p []byte) (n int, err error) {
	if b.beyond {
		return 0, io.ErrShortBuffer
	}
	if int64(len(p)) > b.left {
		p = p[:b.left+1] // one more tells whether there is more
	}
	n, err = b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.beyond = true
		return 0, io.ErrShortBuffer
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.broke = err
	}
	return n, err
}

// TooLongError is an answer that is longer than the client reads. It comes as the cause
// of an error of [parley.CodeLimit]. [Client.Send] gives any answer as it comes.
type TooLongError struct {
	// Method and Path are those of the request, the path with its query.
	Method, Path string
	// Limit is what the client reads, in bytes.
	Limit int64
}

// Error says how long the answer may be.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the server's answer to %s %s is longer than %d bytes", e.Method, e.Path, e.Limit)
}

func tooLong(k call, limit int64) error {
	e := &TooLongError{Method: k.method, Path: k.path, Limit: limit}
	if len(k.query) > 0 {
		e.Path += "?" + k.query.Encode()
	}
	return parley.Errorf(parley.CodeLimit, "%w", e)
}

// send gives a successful response whose body is open: the caller closes it.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, k.method, err, wrote.Load())
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, decodeError(resp)
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	target := c.base.String() + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "%s %s: %w", k.method, k.path, err)
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.userAgent)
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, k.header)
	// What somebody made without TraceOf may not be valid: then there is none.
	if t := parley.TraceOf([]string{k.trace.Parent}, []string{k.trace.State}); !t.IsZero() {
		req.Header.Set(parley.HeaderTraceparent, t.Parent)
		if t.State != "" {
			req.Header.Set(parley.HeaderTracestate, t.State)
		}
	}
	if !c.key.IsZero() {
		req.Header.Set("Authorization", "Bearer "+string(c.key.Reveal()))
	}
	return req, nil
}

// broken turns the failure of a connection into the error that callers see.
func (c *Client) broken(ctx context.Context, method string, err error, sent bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// A *url.Error repeats the whole URL; what happened is inside.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &UnreachableError{URL: c.base.String(), Method: method, Sent: sent, err: err}
}

// readBody reads r to its end, at most limit bytes.
func readBody(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, parley.Errorf(parley.CodeLimit, "the server's answer is longer than %d bytes", limit)
	}
	return b, nil
}

// encode gives v as JSON without escaping <, > and &, which is needed inside
// of HTML only. Raw values inside of v keep member order and numbers. Texts that are
// not UTF-8 are refused: others would be sent in their place.
func encode(v any) ([]byte, error) {
	b, err := jsonv2.Marshal(v, jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.AllowInvalidUTF8(false))
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the request cannot be written as JSON: %w", err)
	}
	return b, nil
}

// post sends in as JSON and decodes the answer into out.
func (c *Client) post(ctx context.Context, k call, in, out any) error {
	body, err := encode(in)
	if err != nil {
		return err
	}
	k.method, k.body = cmp.Or(k.method, http.MethodPost), body
	_, err = c.do(ctx, k, out)
	return err
}

// get decodes the answer to a read into out.
func (c *Client) get(ctx context.Context, p string, query url.Values, out any) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: p, query: query}, out)
	return err
}

// needName refuses an empty path segment, which would address another
// resource.
func needName(what, name string) error {
	if name == "" {
		return parley.Errorf(parley.CodeInvalid, "the %s must not be empty", what)
	}
	if name == "." || name == ".." {
		return parley.Errorf(parley.CodeInvalid, "the %s cannot be named %q", what, name)
	}
	return nil
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T `json:"items"`
	// Total counts the items of the whole list.
	Total int `json:"total"`
	// Number counts from 1.
	Number     int `json:"page"`
	Size       int `json:"page_size"`
	TotalPages int `json:"total_pages"`
}

// PageQuery selects a page. Number counts from 1 and 0 means 1; Size is at
// most 100 and 0 is the server's default of 20.
type PageQuery struct{ Number, Size int }

func (p PageQuery) values() url.Values {
	q := url.Values{}
	if p.Number > 0 {
		q.Set("page", fmt.Sprint(p.Number))
	}
	if p.Size > 0 {
		q.Set("page_size", fmt.Sprint(p.Size))
	}
	return q
}

// setIf sets a member of q that was given.
func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
