package rpcws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSecretsOf: what a server may repeat of a handshake and nobody else should; short
// words are no secrets, since texts are full of them.
func TestSecretsOf(t *testing.T) {
	for rawURL, want := range map[string][]string{
		"ws://h/":                        nil,
		"ws://ada:pw@h/":                 {"YWRhOnB3", "pw"},
		"ws://T0ken@h/":                  {"VDBrZW46", "T0ken"},
		"ws://ada:@h/":                   {"YWRhOg=="},
		"ws://h/?k":                      {"k"},
		"ws://h/?a=1234567&b=1234%20678": {"a=1234567&b=1234%20678", "1234%20678", "1234 678"},
		"ws://h/?a=1234567%zz8":          {"a=1234567%zz8"},
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		if got := secretsOf(u, nil); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rawURL, got, want)
		}
	}
	got := secretsOf(new(url.URL), http.Header{"Authorization": {"Key 12345678 1234567", ""}})
	if want := []string{"Key 12345678 1234567", "12345678", "12345678"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r := &http.Request{Header: http.Header{"Cookie": {`a=short; session="cookie/val"`}}}
	r.SetBasicAuth("ada", "pw")
	got = secretsOf(new(url.URL), r.Header)
	for _, want := range []string{"cookie/val", "pw", "YWRhOnB3"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is no secret of %q", want, got)
		}
	}
}

// TestWithoutSecrets: nothing of a secret is left, whichever others there are, and wherever the
// text was cut off.
func TestWithoutSecrets(t *testing.T) {
	long := "T0ken-" + strings.Repeat("x", bodySource)
	for _, c := range []struct {
		text, token string
		secrets     []string
		want        string
	}{
		{"the key s1k of 1", "", []string{"1", "s1k"}, "the key […] of […]"}, // whichever comes first
		{"the key s1k of 1", "", []string{"s1k", "1"}, "the key […] of […]"},
		{"Bearer tok, tok", "tok", []string{"Bearer"}, "[…] [token], [token]"},
		{"the key of tok", "of", []string{"key of tok"}, "the […]"},
		{("the key " + long)[:bodySource], long, []string{"T0", "x"}, "the key "},
		{("the key " + long)[:bodySource], "", []string{"T0", long, "x"}, "the key "},
		{"the key T0ken", long, nil, "the key T0ken"},                               // that is all of the answer
		{"not s3cretKEY1other", "", []string{"s3cretKEY1", "KEY1other"}, "not […]"}, // they overlap
		{"not s3cretKEY1other", "s3cretKEY1", []string{"KEY1other"}, "not […]"},
		{"not abcabcabc", "abcabc", nil, "not […]"}, // so does one with itself
		{"KEY1, KEY1", "KEY1", nil, "[token], [token]"},
		{strings.Repeat(" ", bodySource-len("s3cretKEY1")) + "s3cretKEY1", "", []string{"s3cretKEY1", "KEY1other"}, strings.Repeat(" ", bodySource-len("s3cretKEY1")) + "[…]"},
		{`{"key":"ab\"c\/d"}`, `ab"c/d`, nil, `{"key":"[…]"}`}, // as it stands in JSON
		{`{"key":"ab\"c/d"}`, "", []string{`ab"c/d`}, `{"key":"[…]"}`},
	} {
		if got := withoutSecrets(c.text, c.token, c.secrets); got != c.want {
			t.Errorf("%.20q without %.20q and %.20q: %.100q", c.text, c.token, c.secrets, got)
		}
	}
}

// TestHandshakeErrorText: what to do depends on what the server said.
func TestHandshakeErrorText(t *testing.T) {
	const head = "the server answered "
	for want, e := range map[string]HandshakeError{
		head + "401 Unauthorized instead of a WebSocket handshake; check the credentials and the origin":  {Status: 401},
		head + "403 Forbidden instead of a WebSocket handshake; check the credentials and the origin: no": {Status: 403, Body: "no"},
		head + "302 Found instead of a WebSocket handshake; dial ws://h/":                                 {Status: 302, Location: "ws://h/"},
		head + "404 Not Found instead of a WebSocket handshake; check the path of the URL: nothing here":  {Status: 404, Body: "nothing here"},
		head + "200 OK instead of a WebSocket handshake; check the path of the URL":                       {Status: 200},
		head + "500 Internal Server Error instead of a WebSocket handshake":                               {Status: 500},
		"the server's WebSocket handshake is wrong: EOF":                                                  {Status: 101, Err: io.EOF},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (&CloseError{Code: 4000}).Error(); got != "rpcws: the peer closed the connection with code 4000" {
		t.Error(got)
	}
}

// TestPrintable: one line, with a bound.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		" a\tb\r\nc ": "a b  c", "a\x00\x1bb": "a\ufffd\ufffdb", "12345678901": "1234567890", "123456789é": "123456789", "12345678é": "12345678é",
	} {
		if got := printable(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestIOError: a deadline of the socket is not one of the stream, after which its reader
// would go on.
func TestIOError(t *testing.T) {
	for err, want := range map[error]string{
		io.ErrShortWrite: "rpcws: read: short write", os.ErrDeadlineExceeded: "rpcws: read: i/o timeout",
		fmt.Errorf("of the library: %w", os.ErrClosed): "rpcws: read: of the library: file already closed",
	} {
		got := ioError("read", err)
		if got.Error() != want || errors.Is(got, err) == (err == os.ErrDeadlineExceeded) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A roundTrip answers a handshake without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDialHeader: the token takes the place of credentials that the caller gave
// otherwise, and whose header is left as it is.
func TestDialHeader(t *testing.T) {
	header := http.Header{"Authorization": {"Basic old"}, "X-Own": {"yes"}}
	for range 2 {
		_, err := Dial(t.Context(), "ws://ada:pw@h/", DialConfig{
			Header: header, Bearer: func(context.Context) (string, error) { return "new", nil },
			HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if got := r.Header["Authorization"]; len(got) != 1 || got[0] != "Bearer new" || r.Header.Get("X-Own") != "yes" {
					t.Errorf("the server gets %v", r.Header)
				}
				return nil, io.EOF
			})},
		})
		if !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "pw") {
			t.Errorf("Dial: %v", err)
		}
	}
	if len(header) != 2 || header.Get("Authorization") != "Basic old" {
		t.Errorf("the caller's header became %v", header)
	}
}

// TestDialTimeoutDefault: without a timeout of the caller's, Dial waits half a minute;
// with a negative one as long as the context lets it.
func TestDialTimeoutDefault(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second, -1: time.Hour, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			_, err := Dial(ctx, "ws://h/", DialConfig{DialTimeout: timeout, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}})
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != want {
				t.Errorf("%v: %v after %v", timeout, err, took)
			}
		})
	}
}

// TestRedirectNotRead: the text of a redirect repeats the whole URL, and is no part of
// the error.
func TestRedirectNotRead(t *testing.T) {
	_, err := Dial(t.Context(), "ws://h/", DialConfig{HTTPClient: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusFound, Header: http.Header{"Location": {"https://ada:pw@other/x?key=1"}}, Request: r,
				Body: io.NopCloser(strings.NewReader("Found https://ada:pw@other/x?key=1")),
			}, nil
		}),
	}})
	e, ok := errors.AsType[*HandshakeError](err)
	if !ok || e.Location != "https://other/x" || e.Body != "" {
		t.Errorf("%v", err)
	}
}
