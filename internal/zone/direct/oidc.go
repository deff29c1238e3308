package direct

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// OIDCConfig says how tokens are had by client credentials (RFC 6749 §4.4).
type OIDCConfig struct {
	// Issuer is where the token endpoint is looked up.
	Issuer       string
	ClientID     string
	ClientSecret parley.Secret
	// Audience and Scopes are asked for if they are given.
	Audience string
	Scopes   []string
	// Header and Now are those of [TokenConfig].
	Header string
	Now    func() time.Time
	// Client reaches the issuer; nil is one with the roots of the system.
	Client *http.Client
}

// OIDC returns an Authorizer whose tokens an issuer gives. The issuer is asked
// when the first is needed: a zone starts while it is away.
func OIDC(cfg OIDCConfig) (*Tokens, error) {
	if _, err := CheckURL(cfg.Issuer, false); err != nil {
		return nil, errors.New("zone: the issuer must be an https URL")
	}
	if cfg.ClientID == "" || cfg.ClientSecret.IsZero() {
		return nil, errors.New("zone: an issuer needs client_id and client_secret")
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: fetchTimeout}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client := *cfg.Client
	client.CheckRedirect = followed
	cfg.Client = &client
	i := &issuer{cfg: cfg}
	return NewTokens(TokenConfig{Fetch: i.fetch, Header: cfg.Header, Now: cfg.Now}), nil
}

// followed says which redirects of an issuer are followed: none of a request for a
// token, since the secret would go along to wherever it leads, and none out of TLS.
func followed(next *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet {
		return http.ErrUseLastResponse
	}
	if _, err := CheckURL(next.URL.String(), false); err != nil || len(via) >= maxRedirects {
		return errRedirect
	}
	return nil
}

const maxRedirects = 10

var errRedirect = errors.New("a redirect that is not followed: to http, or one of too many")

type issuer struct {
	cfg OIDCConfig

	mu       sync.Mutex
	endpoint oauth2.Endpoint // guarded by mu; the zero value until it is known
}

// fetch gets a token. It is called once at a time.
func (i *issuer) fetch(ctx context.Context) (Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, i.cfg.Client)
	endpoint, before, err := i.discover(ctx)
	if err != nil {
		return Token{}, err
	}
	t, err := i.ask(ctx, endpoint)
	if err == nil || !gone(err) {
		return t, tokenFault(err)
	}
	i.forget() // perhaps it has moved
	if !before {
		return t, tokenFault(err)
	}
	return i.fetch(ctx)
}

// ask asks the token endpoint.
func (i *issuer) ask(ctx context.Context, endpoint oauth2.Endpoint) (Token, error) {
	c := clientcredentials.Config{
		ClientID: i.cfg.ClientID, ClientSecret: string(i.cfg.ClientSecret.Reveal()), TokenURL: endpoint.TokenURL, Scopes: i.cfg.Scopes,
	}
	if i.cfg.Audience != "" {
		c.EndpointParams = url.Values{"audience": {i.cfg.Audience}}
	}
	tok, err := c.Token(ctx)
	if err != nil {
		return Token{}, err
	}
	t := Token{Secret: parley.NewSecret([]byte(tok.AccessToken))}
	if !tok.Expiry.IsZero() { // by the clock of oauth2
		t.Expires = i.cfg.Now().Add(time.Until(tok.Expiry))
	}
	return t, nil
}

// gone says whether err is that of an endpoint that is not where it was.
func gone(err error) bool {
	r, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || r.Response == nil {
		op, ok := errors.AsType[*net.OpError](err)
		return ok && op.Op == "dial"
	}
	switch r.Response.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return true
	}
	return false
}

// discover gives the token endpoint, and says whether it was known before.
func (i *issuer) discover(ctx context.Context) (endpoint oauth2.Endpoint, before bool, err error) {
	i.mu.Lock()
	known := i.endpoint
	i.mu.Unlock()
	if known.TokenURL != "" {
		return known, true, nil
	}
	p, err := oidc.NewProvider(ctx, i.cfg.Issuer)
	if err != nil {
		return oauth2.Endpoint{}, false, fmt.Errorf("the issuer %s could not be asked: %w", i.cfg.Issuer, plain(firstLine(err)))
	}
	if p.Endpoint().TokenURL == "" {
		return oauth2.Endpoint{}, false, fmt.Errorf("the issuer %s names no token endpoint", i.cfg.Issuer)
	}
	if _, err := CheckURL(p.Endpoint().TokenURL, false); err != nil {
		return oauth2.Endpoint{}, false, fmt.Errorf("the issuer %s names a token endpoint that is no https URL; it would get the client_secret in the clear", i.cfg.Issuer)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endpoint = p.Endpoint()
	return i.endpoint, false, nil
}

// forget has the issuer asked anew where its endpoint is.
func (i *issuer) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endpoint = oauth2.Endpoint{}
}

// tokenFault leaves out what the issuer wrote: it may repeat what it was sent.
func tokenFault(err error) error {
	if err == nil {
		return nil
	}
	r, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || r.Response == nil {
		return fmt.Errorf("no token: %w", plain(err))
	}
	status := r.Response.StatusCode
	fault := &zone.TransportError{Class: zone.ClassNotSent, Err: fmt.Errorf("the token endpoint answered HTTP %d %s", status, errorCode(r.ErrorCode))}
	if status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout {
		fault.Class = zone.ClassAuth
	}
	return fault
}

// errorCode gives a code of RFC 6749 §5.2, and nothing else that stands there.
func errorCode(code string) string {
	switch code {
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope":
		return code
	}
	return ""
}

// firstLine cuts off the page that a discovery error repeats.
func firstLine(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return err
	}
	head, _, _ := strings.Cut(err.Error(), "\n")
	if status, _, ok := strings.Cut(head, ": "); ok {
		head = status
	}
	return errors.New(head)
}

// expiryOf reads when a token ends that came from who made it.
func expiryOf(text string) time.Time {
	var claims jwt.Claims
	t, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil || t.UnsafeClaimsWithoutVerification(&claims) != nil || claims.Expiry == nil {
		return time.Time{}
	}
	return claims.Expiry.Time()
}
