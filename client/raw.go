package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/parley-project/parley"
)

// Request is a request to any path of the server, for what no method of [Client]
// stands for.
type Request struct {
	Method string
	// Path begins with "/", and may end with a query. It has no dot segments: the
	// prefix of the base URL cannot be left.
	Path string
	// Header is sent beside that of every request; the key goes before its
	// Authorization.
	Header http.Header
	// Body is sent as JSON unless Header says otherwise; nil sends none.
	Body []byte
}

// Response is a successful answer whose body has not been read.
type Response struct {
	Status int
	Header http.Header
	// Body is the caller's to close. Its length is not bounded, and a break of the
	// connection is an [*UnreachableError].
	Body io.ReadCloser
}

// Send sends a request with the client's key, and gives the answer as it comes: a
// stream of events goes on until its body is closed. An answer that is no success
// is an [*Error], and redirects are none. A path that could lead away from the
// server is refused with [parley.CodeInvalid].
func (c *Client) Send(ctx context.Context, r Request) (*Response, error) {
	if err := checkPath(r.Path); err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, call{method: r.Method, path: r.Path, header: r.Header, body: r.Body}) //nolint:bodyclose // the caller reads it
	if err != nil {
		return nil, err
	}
	body := &unbroken{ReadCloser: resp.Body, fail: func(err error) error { return c.broken(ctx, r.Method, err, true) }}
	return &Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// checkPath refuses what is no path below the base URL: the key would go elsewhere.
func checkPath(text string) error {
	bad := func(why string) error {
		return parley.Errorf(parley.CodeInvalid, "the path of a request %s", why)
	}
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return bad(`must begin with one "/", and name no host`)
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("cannot be read: " + strings.TrimPrefix(err.Error(), "parse "))
	}
	if u.Fragment != "" || strings.Contains(text, "#") {
		return bad("must not hold a fragment; write # as %23")
	}
	if strings.Contains(u.Path, `\`) {
		return bad(`must not hold a "\"`)
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return bad("must not hold the segments . and ..")
		}
	}
	return nil
}

// unbroken tells a break of the connection in the form of the other errors.
type unbroken struct {
	io.ReadCloser
	fail func(error) error
}

// Read reads the body.
func (u *unbroken) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.fail(err)
	}
	return n, err
}
