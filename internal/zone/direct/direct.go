package direct

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// Config is what a Transport is made of. Only URL is required.
type Config struct {
	// URL is where requests are posted to: https, or http on this machine.
	// AllowHTTP takes http to anywhere.
	URL       string
	AllowHTTP bool
	// TLS, Dial and Proxy are those of [WireConfig].
	TLS   *tls.Config
	Dial  DialFunc
	Proxy func(*http.Request) (*url.URL, error)
	// Authorize adds what proves who calls; nil adds nothing.
	Authorize Authorizer
	// Timeout bounds calls whose context allows for more; default 15 minutes.
	Timeout time.Duration
	// MaxResponse is the largest response, unpacked, in bytes; default 16 MiB, which
	// leaves room for what one of zone.DefaultMaxResponse is wrapped in; at most
	// zone.MaxPayload.
	MaxResponse int64
	Retry       Retry
	// Platform is for what is between the zones; the zero value for nothing.
	Platform Platform
}

// A Platform is something between the zones that has its own headers and errors.
type Platform struct {
	// Header adds to the headers of a request and gives its Info.Affinity. An error
	// is one of who called.
	Header func(h http.Header, meta zone.Meta) (affinity string, err error)
	// Judge is used in place of the function.
	Judge func(a Answer, now time.Time) *zone.TransportError
	// Again says whether to send again what failed; default is where the class is
	// safe.
	Again func(*zone.TransportError) bool
	// NoPing: there is no /ping beside the URL, and nobody asks for certificates.
	NoPing bool
	// RequestID is the header with the platform's name of an exchange.
	RequestID string
}

// Transport is a [zone.Transport] over HTTPS. Close it in the end.
type Transport struct {
	cfg  Config
	url  *url.URL
	wire *Wire
}

var _ zone.Transport = (*Transport)(nil)

const (
	defaultTimeout     = 15 * time.Minute
	defaultMaxResponse = 16 << 20
	defaultRequestID   = "X-Request-Id"
)

// New checks cfg and returns a Transport. It connects to nothing.
func New(cfg Config) (*Transport, error) {
	u, err := CheckURL(cfg.URL, cfg.AllowHTTP)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxResponse == 0 {
		cfg.MaxResponse = defaultMaxResponse
	}
	if cfg.MaxResponse < 0 || cfg.MaxResponse > zone.MaxPayload || cfg.Timeout < 0 {
		return nil, fmt.Errorf("zone: the limit of a response must be 1 to %d bytes, and the timeout more than 0", zone.MaxPayload)
	}
	cfg.Retry = cfg.Retry.withDefaults()
	if cfg.Platform.Judge == nil {
		cfg.Platform.Judge = Judge
	}
	if cfg.Platform.Again == nil {
		cfg.Platform.Again = func(f *zone.TransportError) bool { return f.Class.Safe() }
	}
	if cfg.Platform.RequestID == "" {
		cfg.Platform.RequestID = defaultRequestID
	}
	return &Transport{cfg: cfg, url: u, wire: NewWire(WireConfig{TLS: cfg.TLS, Dial: cfg.Dial, Proxy: cfg.Proxy})}, nil
}

// CheckURL refuses what would send a request in the clear or to nowhere. It never
// repeats the URL: people put passwords into them.
func CheckURL(text string, allowHTTP bool) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("zone: the url of the other zone is none")
	case u.Host == "" || u.Opaque != "":
		return nil, errors.New("zone: the url of the other zone must have a host, as in https://execution.example.com/invocations")
	case u.User != nil:
		return nil, errors.New("zone: the url of the other zone must hold no user; use auth")
	case u.Scheme == "https", u.Scheme == "http" && (allowHTTP || loopback(u.Hostname())):
		u.Fragment = ""
		return u, nil
	}
	return nil, fmt.Errorf("zone: the url of the other zone must begin with https://, its host is %s", u.Host)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close ends the connections that nobody uses.
func (t *Transport) Close() { t.wire.Close() }

// Call sends body and returns the response, as [zone.Transport] says.
//
//	no connection, or the body was not sent whole   not-sent, repeated
//	one of the certificates was refused             auth
//	no answer after it was sent, or half of one     unknown-outcome
//	a JSON-RPC response with any status             returned
//	2xx with other JSON                             returned
//	2xx without JSON, 3xx, other 4xx                bad-response
//	401, 403, 407                                   auth; 401 once more with a new token
//	413                                             too-large
//	429                                             throttled, repeated
//	503 with Retry-After                            unavailable, repeated
//	408, other 5xx                                  unknown-outcome
func (t *Transport) Call(ctx context.Context, body []byte, meta zone.Meta) ([]byte, zone.Info, error) {
	if err := CheckCall(ctx, body); err != nil {
		return nil, zone.Info{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	header := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"parley"},
	}
	SetHeader(header, "X-Correlation-ID", meta.CorrelationID)
	setTrace(header, meta.Trace)
	SetHeader(header, "Idempotency-Key", meta.IdempotencyKey)
	var affinity string
	if t.cfg.Platform.Header != nil {
		var err error
		if affinity, err = t.cfg.Platform.Header(header, meta); err != nil {
			return nil, zone.Info{}, &zone.TransportError{Class: zone.ClassNotSent, Err: err}
		}
	}
	return t.cfg.Retry.Do(ctx, func(ctx context.Context) ([]byte, zone.Info, *zone.TransportError) {
		info := zone.Info{Affinity: affinity}
		out, fault := t.once(ctx, body, header, &info)
		return out, info, fault
	}, t.cfg.Platform.Again)
}

// CheckCall refuses what no transport may send: a call without a deadline, and a
// body beyond zone.MaxPayload.
func CheckCall(ctx context.Context, body []byte) error {
	if _, ok := ctx.Deadline(); !ok {
		return &zone.TransportError{Class: zone.ClassNotSent, Err: errors.New("the call has no deadline")}
	}
	if len(body) > zone.MaxPayload {
		return &zone.TransportError{Class: zone.ClassTooLarge, Err: fmt.Errorf("the request has %d bytes, the limit is %d", len(body), zone.MaxPayload)}
	}
	return nil
}

// maxHeaderValue is the longest value that goes into a header beside a request.
const maxHeaderValue = 256

// SetHeader sets a header if value is one that HTTP can carry, and not overly
// long. What is left out is in the params, too.
func SetHeader(h http.Header, name, value string) {
	if value == "" || len(value) > maxHeaderValue || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return
	}
	h.Set(name, value)
}

// setTrace sets the trace context, if there is one.
func setTrace(h http.Header, t parley.Trace) {
	if t.IsZero() {
		return
	}
	h.Set(parley.HeaderTraceparent, t.Parent)
	if t.State != "" {
		h.Set(parley.HeaderTracestate, t.State)
	}
}

// once sends the request one time, or two if a token has to be renewed.
func (t *Transport) once(ctx context.Context, body []byte, header http.Header, info *zone.Info) ([]byte, *zone.TransportError) {
	for renewed := false; ; renewed = true {
		h := header.Clone()
		if err := authorize(ctx, t.cfg.Authorize, h); err != nil {
			return nil, err
		}
		answer, err := t.send(ctx, body, h, info)
		info.Status, info.ContentType = answer.Status, answer.Header.Get("Content-Type")
		info.ProviderRequestID = answer.Header.Get(t.cfg.Platform.RequestID)
		if err != nil {
			return nil, AsFault(err)
		}
		if answer.Status == http.StatusUnauthorized && !renewed && t.cfg.Authorize != nil && t.cfg.Authorize.Refused(h) {
			continue
		}
		if fault := t.cfg.Platform.Judge(answer, t.cfg.Retry.Now()); fault != nil {
			return nil, fault
		}
		return answer.Body, nil
	}
}

const (
	// probeFrom is the size from which a connection is looked at first: a server
	// that refuses a client certificate then resets the connection, and the reason
	// is lost in what it did not read.
	probeFrom = 64 << 10
	// probes bounds how often one request may meet a new connection.
	probes = 3
)

// send sends the request once and reads the answer.
func (t *Transport) send(ctx context.Context, body []byte, header http.Header, info *zone.Info) (Answer, error) {
	large := len(body) >= probeFrom && t.url.Scheme == "https" && !t.cfg.Platform.NoPing
	if large && t.wire.open.Load() == 0 {
		if err := t.probe(ctx); err != nil {
			return Answer{}, err
		}
	}
	for n := 0; ; n++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), io.NopCloser(bytes.NewReader(body)))
		if err != nil {
			return Answer{}, err
		}
		req.ContentLength, req.Header = int64(len(body)), header
		resp, err := t.wire.do(req, large && n < probes)
		if errors.Is(err, errFresh) {
			if err = t.probe(ctx); err == nil {
				continue
			}
			return Answer{}, err
		}
		info.Attempts++
		if err != nil {
			return Answer{}, err
		}
		return ReadAnswer(resp, t.cfg.MaxResponse)
	}
}

// maxProbe is how much of the answer to a probe is read, to keep the connection.
const maxProbe = 64 << 10

// probe asks for the /ping beside the URL, over a connection that the request can
// use after it. Any answer will do. What fails has sent nothing of the request.
func (t *Transport) probe(ctx context.Context) error {
	u := t.url.ResolveReference(&url.URL{Path: "ping"})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := t.wire.Do(req)
	if err != nil {
		fault := AsFault(err)
		if fault.Class != zone.ClassAuth {
			fault.Class = zone.ClassNotSent
		}
		return fault
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxProbe)); err != nil {
		return &zone.TransportError{Class: zone.ClassNotSent, Err: err}
	}
	return nil
}

// AsFault gives the TransportError in err; any other error comes from before
// anything was sent.
func AsFault(err error) *zone.TransportError {
	if f, ok := errors.AsType[*zone.TransportError](err); ok {
		return f
	}
	return &zone.TransportError{Class: zone.ClassNotSent, Err: err}
}
