package zoneauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// OIDCConfig says whose tokens are believed. Issuer and Audience are required.
type OIDCConfig struct {
	// Issuer is the URL that discovery begins at and that tokens must name;
	// Audience is one that they must be for.
	Issuer, Audience string
	// Algorithms are the signatures accepted; default RS256, PS256, ES256, ES384 and
	// EdDSA. Those with a shared secret are refused.
	Algorithms []string
	// Leeway is how far the clocks of zone and issuer may differ; default 1 minute.
	Leeway time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Client reaches the issuer; nil is one with the roots of the system.
	Client *http.Client
	// AllowHTTP takes an issuer without TLS.
	AllowHTTP bool
}

const (
	defaultLeeway = time.Minute
	issuerTimeout = 10 * time.Second
	// refetchAfter is how long an issuer is left alone, whatever tokens come: keys
	// that nobody knows must not make a zone ask for each of them.
	refetchAfter = 10 * time.Second
	// keysLife is how long keys are believed without asking again.
	keysLife = time.Hour
	maxKeys  = 1 << 20
	// maxRedirects bounds those that are followed to a document of the issuer.
	maxRedirects = 10
)

// OIDC returns a Check for the signed tokens of an issuer. The issuer is asked
// when the first token comes, and again until it answers: a zone starts while it
// is away. Its keys are kept, and asked for anew when a key is not known.
func OIDC(cfg OIDCConfig) (Check, error) {
	u, err := url.Parse(cfg.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !cfg.AllowHTTP) {
		return nil, errNoIssuer
	}
	if cfg.Audience == "" {
		return nil, errNoAudience
	}
	if cfg.Algorithms == nil {
		cfg.Algorithms = []string{oidc.RS256, oidc.PS256, oidc.ES256, oidc.ES384, oidc.EdDSA}
	}
	for _, alg := range cfg.Algorithms {
		if strings.HasPrefix(alg, "HS") || strings.EqualFold(alg, "none") {
			return nil, errBadAlgorithm
		}
	}
	if cfg.Leeway == 0 {
		cfg.Leeway = defaultLeeway
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: issuerTimeout}
	}
	client := *cfg.Client
	client.CheckRedirect = cfg.followed
	cfg.Client = &client
	keys := &keySet{cfg: cfg, fetching: make(chan struct{}, 1)}
	return func(r *http.Request) error {
		token, err := tokenOf(r)
		if err != nil {
			return err
		}
		return cfg.verify(r.Context(), keys, token)
	}, nil
}

// followed says which redirects of the issuer are followed: none out of TLS, where
// anybody on the way could put in keys of their own.
func (c OIDCConfig) followed(next *http.Request, via []*http.Request) error {
	switch {
	case !c.secure(next.URL):
		return errNotSecure
	case len(via) >= maxRedirects:
		return errors.New("too many redirects")
	}
	return nil
}

func (c OIDCConfig) secure(u *url.URL) bool { return u.Scheme == "https" || c.AllowHTTP }

// verify checks in this order: form and algorithm, issuer, signature, audience,
// times. What it says never holds what the token says.
func (c OIDCConfig) verify(ctx context.Context, keys *keySet, token string) error {
	sig, err := c.parse(token)
	if err != nil {
		return err
	}
	payload, err := keys.verify(ctx, sig)
	if err != nil {
		return err
	}
	var claims jwt.Claims
	if json.Unmarshal(payload, &claims) != nil || claims.Expiry == nil {
		return ErrMalformed
	}
	now := c.Now()
	switch {
	case !claims.Audience.Contains(c.Audience):
		return ErrAudience
	case !now.Before(claims.Expiry.Time().Add(c.Leeway)):
		return ErrExpired
	case c.future(claims.NotBefore, now), c.future(claims.IssuedAt, now):
		return ErrNotYet
	}
	return nil
}

func (c OIDCConfig) future(at *jwt.NumericDate, now time.Time) bool {
	return at != nil && at.Time().After(now.Add(c.Leeway))
}

// parse looks at what is not believed yet, so that nobody is asked for nothing.
func (c OIDCConfig) parse(token string) (*jose.JSONWebSignature, error) {
	algorithms := make([]jose.SignatureAlgorithm, len(c.Algorithms))
	for i, alg := range c.Algorithms {
		algorithms[i] = jose.SignatureAlgorithm(alg)
	}
	sig, err := jose.ParseSignedCompact(token, algorithms)
	if bad, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok && bad != nil {
		return nil, ErrAlgorithm
	}
	if err != nil {
		return nil, ErrMalformed
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(sig.UnsafePayloadWithoutVerification(), &claims) != nil {
		return nil, ErrMalformed
	}
	if claims.Issuer != c.Issuer {
		return nil, ErrIssuer
	}
	return sig, nil
}

// keySet has the keys of an issuer. The one of the oidc package asks the issuer for
// every token with an unknown key, needs it at the start, and gives one error for
// a wrong signature and an issuer that is away.
type keySet struct {
	cfg OIDCConfig
	// fetching is held by who asks the issuer, and guards keysURL.
	fetching chan struct{}
	keysURL  string // "" until discovery

	mu     sync.Mutex // guards the following
	keys   []jose.JSONWebKey
	got    time.Time // when the keys came
	asked  time.Time // when the issuer was last asked
	failed error     // what came of it
}

// verify returns the payload of a token that one of the keys has signed.
func (k *keySet) verify(ctx context.Context, sig *jose.JSONWebSignature) ([]byte, error) {
	keys, fresh := k.known()
	// Old keys do while somebody asks for new ones.
	if payload, ok := match(sig, keys); ok && (fresh || len(k.fetching) > 0) {
		return payload, nil
	}
	keys, err := k.fetch(ctx)
	if err != nil {
		return nil, err
	}
	if payload, ok := match(sig, keys); ok {
		return payload, nil
	}
	return nil, ErrSignature
}

// match finds the key of a signature.
func match(sig *jose.JSONWebSignature, keys []jose.JSONWebKey) ([]byte, bool) {
	kid := sig.Signatures[0].Header.KeyID
	for i := range keys {
		if kid != "" && keys[i].KeyID != kid || keys[i].Use == "enc" {
			continue
		}
		if payload, err := sig.Verify(&keys[i]); err == nil {
			return payload, true
		}
	}
	return nil, false
}

func (k *keySet) known() (keys []jose.JSONWebKey, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, k.cfg.Now().Sub(k.got) < keysLife
}

// fetch gives the keys of the issuer, asking it if it was left alone long enough.
// Old keys do while it is away.
func (k *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	select {
	case k.fetching <- struct{}{}:
		defer func() { <-k.fetching }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	k.mu.Lock()
	now := k.cfg.Now()
	wait := !k.asked.IsZero() && now.Sub(k.asked) < refetchAfter
	k.mu.Unlock()
	if !wait {
		// A caller that goes away must not keep the others from the keys.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTimeout)
		defer cancel()
		keys, err := k.ask(ctx)
		if err != nil {
			k.keysURL = "" // perhaps they have moved
		}
		k.settle(keys, err, k.cfg.Now()) // it may have taken long, and others wait to ask
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, k.failed)
	}
	return k.keys, nil
}

func (k *keySet) settle(keys []jose.JSONWebKey, err error, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked, k.failed = now, err
	if err == nil {
		k.keys, k.got = keys, now
	}
}

// ask discovers where the keys are, and gets them.
func (k *keySet) ask(ctx context.Context) ([]jose.JSONWebKey, error) {
	if k.keysURL == "" {
		p, err := oidc.NewProvider(oidc.ClientContext(ctx, k.cfg.Client), k.cfg.Issuer)
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
		var doc struct {
			URL string `json:"jwks_uri"`
		}
		if err := p.Claims(&doc); err != nil || doc.URL == "" {
			return nil, errors.New("discovery: no jwks_uri")
		}
		k.keysURL = doc.URL
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.keysURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	if !k.cfg.secure(req.URL) {
		return nil, fmt.Errorf("keys: %w", errNotSecure)
	}
	resp, err := k.cfg.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys: HTTP %d", resp.StatusCode)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxKeys)).Decode(&set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return usable(set.Keys)
}

// usable gives the keys that signatures may be checked with. Others are left out, be it that
// nothing is understood of them: an issuer may have new kinds of keys beside the old ones
// (RFC 7517 §5).
func usable(texts []json.RawMessage) ([]jose.JSONWebKey, error) {
	var keys []jose.JSONWebKey
	why := errors.New("none")
	for _, text := range texts {
		var key jose.JSONWebKey
		if err := json.Unmarshal(text, &key); err != nil {
			why = err
			continue
		}
		// A key that is secret would make everybody who reads it a signer.
		if key.Valid() && key.IsPublic() {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keys: %w", why)
	}
	return keys, nil
}
