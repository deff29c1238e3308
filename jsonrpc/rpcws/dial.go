package rpcws

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/internal/blot"
)

// A DialConfig says how Dial connects. The zero value is ready to use.
type DialConfig struct {
	// Header is sent with the handshake, beside the headers of the protocol. It is
	// copied.
	Header http.Header
	// Bearer, if set, is asked for a token for every handshake, which is sent
	// as "Authorization: Bearer TOKEN" in place of one in Header. Its error ends Dial.
	Bearer func(ctx context.Context) (string, error)
	// TLS is used for wss URLs. Nil: the system's roots. Not beside HTTPClient,
	// whose transport has its own.
	TLS *tls.Config
	// HTTPClient makes the handshake. Nil: one that uses the proxy of the
	// environment and follows no redirects, so that no header of the handshake
	// reaches another host. It is not changed.
	HTTPClient *http.Client
	// Subprotocols are offered to the server, the preferred one first. If there
	// are any, the server must choose one.
	Subprotocols []string
	// DialTimeout bounds connecting and the handshake, besides the context.
	// Default 30 s; negative: only the context does.
	DialTimeout time.Duration
	// PingInterval is how long the peer may be silent before it is pinged.
	// Default 30 s; negative: never.
	PingInterval time.Duration
	// PingTimeout is how long after a ping the peer may go on being silent, and
	// take less than 64 KiB. Then Read returns ErrNoPong. 0 or less: 10 s.
	PingTimeout time.Duration
	// CloseTimeout bounds Close: the peer has so long to take what is being
	// written and to answer our close frame. 0 or less: 1 s.
	CloseTimeout time.Duration
	// Compression offers permessage-deflate; see the package documentation for
	// why it is off by default.
	Compression bool
}

// A HandshakeError is what Dial returns when the server answered, but did not
// agree to speak WebSocket.
type HandshakeError struct {
	// Status is the HTTP status code of its answer.
	Status int
	// Location is where a redirect leads to, without query and credentials; it
	// was not followed.
	Location string
	// Body is the beginning of the answer, at most 256 bytes, with unprintable
	// characters replaced and without what the handshake held of secrets: the
	// token of DialConfig.Bearer, the values of DialConfig.Header, password and
	// query of the URL. Empty for a redirect, whose text repeats the whole URL.
	Body string
	// Err says what was wrong when the status was right: a header, for example.
	// Else nil.
	Err error
}

// Error says what the server answered and what to do.
func (e *HandshakeError) Error() string {
	text := fmt.Sprintf("the server answered %d %s instead of a WebSocket handshake", e.Status, http.StatusText(e.Status))
	switch {
	case e.Err != nil:
		return "the server's WebSocket handshake is wrong: " + e.Err.Error()
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		text += "; check the credentials and the origin"
	case e.Location != "":
		text += "; dial " + e.Location
	case e.Status == http.StatusNotFound || e.Status == http.StatusOK:
		text += "; check the path of the URL"
	}
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// Unwrap returns Err.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Recoverable says whether the server may agree later without anybody changing
// anything, as after 429 and 503 (RPC-22). jsonrpc.AdviceFor asks it.
func (e *HandshakeError) Recoverable() bool { return mayPass(e.Status) }

// ErrSubprotocol says that the two ends have no subprotocol in common although
// one of them asks for it (RFC 6455 section 1.9). It is in errors of Dial and Accept.
var ErrSubprotocol = errors.New("no subprotocol in common")

// maxBody is how much of a refusal becomes part of the error, in bytes.
const maxBody = 256

// bodySource is how much is read of it for that, in bytes: what the library leaves.
const bodySource = 1024

// Dial connects to a ws:// or wss:// URL. ctx bounds the handshake, not the
// connection. Credentials in the URL are sent by basic authentication.
//
// Errors wrap a *HandshakeError if the server answered something else than a
// handshake, ErrSubprotocol, the error of Bearer, or that of the network. They
// name the URL without credentials and query, and no secret. jsonrpc.AdviceFor
// knows which of them may pass.
//
// The Stream is what jsonrpc.Stream asks for; who gives it to a Conn leaves
// closing to the Conn.
func Dial(ctx context.Context, rawURL string, cfg DialConfig) (jsonrpc.Stream, error) {
	target, err := url.Parse(rawURL)
	if err != nil || target.Host == "" || target.Scheme != "ws" && target.Scheme != "wss" {
		// The parser's message would repeat the URL with its secrets.
		return nil, lasting{errors.New("rpcws: dial: not a WebSocket URL; it looks like ws://HOST[:PORT]/PATH or wss://…")}
	}
	s, err := dial(ctx, target, cfg)
	if err != nil {
		return nil, fmt.Errorf("rpcws: dial %s: %w", publicURL(target), err)
	}
	return s.withAbilities(), nil
}

func dial(ctx context.Context, target *url.URL, cfg DialConfig) (*stream, error) {
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 30 * time.Second
	}
	if cfg.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.DialTimeout)
		defer cancel()
	}
	header := cfg.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	var token string
	if cfg.Bearer != nil {
		var err error
		if token, err = cfg.Bearer(ctx); err != nil {
			return nil, fmt.Errorf("bearer token: %w", err)
		}
		header.Set("Authorization", "Bearer "+token)
	}
	client, err := cfg.client()
	if err != nil {
		return nil, err
	}
	tap := &tapTransport{base: client.Transport}
	client.Transport = tap
	o := options{cfg.PingInterval, cfg.PingTimeout, cfg.CloseTimeout, compression(cfg.Compression)}.withDefaults()
	//nolint:bodyclose // the library closes it, or it is the connection
	ws, resp, err := websocket.Dial(ctx, target.String(), &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: header, Subprotocols: cfg.Subprotocols, CompressionMode: o.compression,
	})
	if err != nil {
		return nil, dialError(err, resp, token, secretsOf(target, cfg.Header))
	}
	if len(cfg.Subprotocols) > 0 && ws.Subprotocol() == "" {
		_ = ws.CloseNow()
		return nil, lasting{fmt.Errorf("%w: the server chose none of %s", ErrSubprotocol, strings.Join(cfg.Subprotocols, ", "))}
	}
	return newStream(ws, tap.wire, o), nil
}

// client returns a copy of the client to dial with.
func (cfg *DialConfig) client() (*http.Client, error) {
	if cfg.HTTPClient != nil {
		if cfg.TLS != nil {
			return nil, lasting{errors.New("TLS and HTTPClient are both set; put the TLS configuration into the client's transport")}
		}
		c := *cfg.HTTPClient
		if c.Transport == nil {
			c.Transport = http.DefaultTransport
		}
		return &c, nil
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			TLSClientConfig:   cfg.TLS.Clone(),
			DisableKeepAlives: true, // one connection, one request
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// dialError takes the URL and other secrets out of what went wrong.
func dialError(err error, resp *http.Response, token string, secrets []string) error {
	if resp == nil {
		// *url.Error repeats the URL with its query.
		if e, ok := errors.AsType[*url.Error](err); ok {
			return e.Err
		}
		return err
	}
	e := &HandshakeError{Status: resp.StatusCode}
	if e.Status == http.StatusSwitchingProtocols {
		e.Err = err
		return e
	}
	if to, err := resp.Location(); err == nil {
		e.Location = publicURL(to)
	}
	if resp.Body != nil && e.Location == "" {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, bodySource))
		e.Body = printable(withoutSecrets(string(text), token, secrets), maxBody)
	}
	return e
}

// withoutSecrets is text without the token, which it names, and without the other secrets.
func withoutSecrets(text, token string, secrets []string) string {
	all := append(slices.Clone(secrets), token)
	return blot.Text(text, append(all, blot.InJSON(all)...), len(text) == bodySource, func(hidden string) string {
		if hidden == token {
			return "[token]"
		}
		return blot.Mark
	})
}

// secretsOf lists what a server may repeat of a handshake that should not be
// repeated: password and query of the URL, the values of headers and the words in them,
// such as "KEY" of "Bearer KEY" and of "session=KEY;", and the password in one.
func secretsOf(target *url.URL, header http.Header) []string {
	var secrets []string
	if user := target.User; user != nil {
		secret, ok := user.Password()
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+secret)))
		if !ok {
			secret = user.Username() // a token, perhaps
		}
		secrets = append(secrets, secret)
	}
	secrets = append(secrets, blot.Query(target.RawQuery)...)
	for _, values := range header {
		for _, value := range values {
			secrets = append(append(secrets, value), blot.Words(value)...)
		}
	}
	if user, password, ok := (&http.Request{Header: header}).BasicAuth(); ok {
		secrets = append(secrets, cmp.Or(password, user))
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// publicURL is u without what may be secret.
func publicURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// A tapTransport puts a wire between the connection of a handshake and the
// library, whatever transport made it.
type tapTransport struct {
	base http.RoundTripper
	wire *wire
}

// RoundTrip implements http.RoundTripper.
func (t *tapTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var conn net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn }}
	resp, err := t.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	if rwc, ok := resp.Body.(io.ReadWriteCloser); ok {
		t.wire = newWire(rwc, nil)
		t.wire.bare = true
		resp.Body = t.wire
		if _, ok := t.base.(*http.Transport); ok {
			// The body's Write is that of the connection, and nothing else.
			t.wire.try = tryWriterOf(conn)
		}
	}
	return resp, nil
}
