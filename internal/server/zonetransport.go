package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/agentcore"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/internal/zone/zoneauth"
)

// ZoneTransport says how a Verification Zone calls the other one (ZN-6): by HTTPS,
// or by AWS Bedrock AgentCore if RuntimeARN is set.
type ZoneTransport struct {
	// URL is the /invocations of the other zone.
	URL string
	// CA, Cert and Key are PEM files, "" for none.
	CA, Cert, Key string
	// Bearer proves who calls; so do the tokens of an issuer, and those of Google for
	// an audience, and Google's access tokens. At most one of the four.
	Bearer         parley.Secret
	OIDC           ZoneOIDC
	GoogleAudience string
	GoogleAccess   bool

	// RuntimeARN names a runtime of AgentCore. Requests are signed with the
	// credentials of AWS; with JWT they have a token, as one of the three above says.
	RuntimeARN, Qualifier, Region, Endpoint string
	JWT                                     bool

	// Wrap is the version of A2A whose messages carry the requests, "" for bare ones,
	// and WrapBinding what they go by, JSONRPC or HTTP+JSON.
	Wrap, WrapBinding string
	// Timeout bounds one call, MaxResponse a response of the other zone without what
	// it is wrapped in, in bytes; 0 is zone.DefaultMaxResponse.
	Timeout     time.Duration
	MaxResponse int
	// Proxy is asked which proxy to go through; nil is none.
	Proxy func(*http.Request) (*url.URL, error)
}

// ZoneOIDC gets tokens by client credentials.
type ZoneOIDC struct {
	Issuer, ClientID string
	ClientSecret     parley.Secret
	Audience         string
	Scopes           []string
}

// closingTransport is a transport with connections of its own.
type closingTransport interface {
	zone.Transport
	Close()
}

// open makes the transport. The error has code invalid if it does not go together.
func (t ZoneTransport) open(ctx context.Context, log *slog.Logger, now func() time.Time) (closingTransport, error) {
	inner, err := t.bare(ctx, log, now)
	if err != nil { // inner may be a nil of its type
		return nil, parley.Errorf(parley.CodeInvalid, "zone.verification: %w", err)
	}
	if t.Wrap == "" {
		return inner, nil
	}
	dialect := zone.Dialect{Version: zone.Version10, Binding: zone.BindingJSONRPC}
	if t.Wrap == zone.Version03 {
		dialect.Version = zone.Version03
	}
	if t.WrapBinding == zone.BindingREST {
		dialect.Binding = zone.BindingREST
	}
	return wrappedTransport{zone.Wrapped(inner, zone.WrapConfig{Dialect: dialect, NewID: uuid.NewString}), inner}, nil
}

// wrappedTransport closes what the requests go by in the end.
type wrappedTransport struct {
	zone.Transport
	inner closingTransport
}

// Release implements zone.Releaser for an inner transport that has it.
func (w wrappedTransport) Release(ctx context.Context, affinity string) error {
	if r, ok := w.inner.(zone.Releaser); ok {
		return r.Release(ctx, affinity)
	}
	return nil
}

// Close closes the connections.
func (w wrappedTransport) Close() { w.inner.Close() }

func (t ZoneTransport) bare(ctx context.Context, log *slog.Logger, now func() time.Time) (closingTransport, error) {
	authorize, err := t.authorizer(now)
	if err != nil {
		return nil, err
	}
	secure, err := t.tls(now)
	if err != nil {
		return nil, err
	}
	if t.RuntimeARN == "" {
		if t.URL == "" {
			return nil, parley.Errorf(parley.CodeInvalid, "direct.url or agentcore.runtime_arn is required: where the other zone is")
		}
		return direct.New(direct.Config{URL: t.URL, TLS: secure, Proxy: t.Proxy, Authorize: authorize, Timeout: t.Timeout, MaxResponse: t.carried()})
	}
	cfg := agentcore.Config{
		RuntimeARN: t.RuntimeARN, Qualifier: t.Qualifier, Region: t.Region, Endpoint: t.Endpoint,
		Auth: agentcore.SigV4, Proxy: t.Proxy, Timeout: t.Timeout, MaxResponse: t.carried(),
		NewID: uuid.NewString, Logger: log,
	}
	if t.JWT {
		cfg.Auth, cfg.Authorize = agentcore.JWT, authorize
		if authorize == nil {
			return nil, parley.Errorf(parley.CodeInvalid, "agentcore.auth is jwt: set agentcore.token")
		}
	}
	return agentcore.New(ctx, cfg)
}

// carried is how much comes at most where a response has MaxResponse: messages that
// carry responses quote them, which makes them longer. The client looks at what is
// inside.
func (t ZoneTransport) carried() int64 {
	inside := int64(cmp.Or(t.MaxResponse, zone.DefaultMaxResponse))
	return min(inside+inside/2+1<<20, zone.MaxPayload)
}

// authorizer gives what proves who calls; nil for nothing.
func (t ZoneTransport) authorizer(now func() time.Time) (direct.Authorizer, error) {
	var given []direct.Authorizer
	if !t.Bearer.IsZero() {
		given = append(given, direct.Bearer(t.Bearer))
	}
	if t.OIDC.Issuer != "" {
		tokens, err := direct.OIDC(direct.OIDCConfig{
			Issuer: t.OIDC.Issuer, ClientID: t.OIDC.ClientID, ClientSecret: t.OIDC.ClientSecret, Audience: t.OIDC.Audience, Scopes: t.OIDC.Scopes, Now: now,
		})
		if err != nil {
			return nil, err
		}
		given = append(given, tokens)
	}
	if t.GoogleAudience != "" {
		tokens, err := direct.GoogleID(direct.GoogleConfig{Audience: t.GoogleAudience, Now: now})
		if err != nil {
			return nil, err
		}
		given = append(given, tokens)
	}
	if t.GoogleAccess {
		given = append(given, direct.GoogleAccess(direct.GoogleConfig{Now: now}))
	}
	switch len(given) {
	case 0:
		return nil, nil //nolint:nilnil // nothing proves who calls
	case 1:
		return given[0], nil
	}
	return nil, parley.Errorf(parley.CodeInvalid, "direct.auth has more than one of bearer, oidc, google_audience and google_access: keep one of them")
}

func (t ZoneTransport) tls(now func() time.Time) (*tls.Config, error) {
	return zoneauth.ClientTLS{CA: pemFile(t.CA), Cert: pemFile(t.Cert), Key: pemFile(t.Key), Now: now}.Config()
}
