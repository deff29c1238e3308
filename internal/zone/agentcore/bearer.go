package agentcore

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

func newBearer(ctx context.Context, cfg Config) (*Transport, error) {
	if cfg.Authorize == nil {
		return nil, errors.New("zone: agentcore.auth jwt needs a token")
	}
	base, err := endpoint(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg}
	c := direct.Config{
		URL: cfg.operation(base, "invocations"), AllowHTTP: cfg.AllowHTTP, TLS: cfg.TLS, Dial: cfg.Dial, Proxy: cfg.Proxy,
		Authorize: cfg.Authorize, Timeout: cfg.Timeout, MaxResponse: cfg.MaxResponse, Retry: cfg.Retry,
		Platform: direct.Platform{Header: cfg.header, Judge: judge, Again: again, NoPing: true, RequestID: requestIDHeader},
	}
	if t.calls, err = direct.New(c); err != nil {
		return nil, err
	}
	c.URL, c.MaxResponse, c.Platform.Judge = cfg.operation(base, "stopruntimesession"), maxStopAnswer, judgeStop
	if t.stops, err = direct.New(c); err != nil {
		return nil, err
	}
	return t, nil
}

// operation gives the URL of an operation. The ARN is one segment of the path: its
// colons and slashes are escaped, as the SDK does.
func (c Config) operation(base *url.URL, name string) string {
	u := strings.TrimSuffix(base.String(), "/") + "/runtimes/" + url.QueryEscape(c.RuntimeARN) + "/" + name
	if c.Qualifier != "" {
		u += "?qualifier=" + strings.ReplaceAll(url.QueryEscape(c.Qualifier), "+", "%20")
	}
	return u
}

// header adds what the platform wants to see.
func (c Config) header(h http.Header, meta zone.Meta) (string, error) {
	session, err := c.session(meta)
	if err != nil {
		return "", err
	}
	h.Set(sessionHeader, session)
	direct.SetHeader(h, CorrelationHeader, meta.CorrelationID)
	h.Del("Idempotency-Key")
	return session, nil
}
