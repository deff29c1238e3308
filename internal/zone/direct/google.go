package direct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// GoogleConfig says which tokens of Google are wanted.
type GoogleConfig struct {
	// Audience is the URL of the service that ID tokens are for.
	Audience string
	// Header is that of [TokenConfig].
	Header string
	Now    func() time.Time
	// URL is the endpoint of the metadata server that gives them; default is that of
	// Google's machines.
	URL    string
	Client *http.Client
}

const (
	googleAccount  = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/"
	googleIdentity = googleAccount + "identity"
	googleAccess   = googleAccount + "token"
	maxToken       = 64 << 10
)

// GoogleID returns an Authorizer with the ID tokens that Google's machines (Cloud
// Run, GKE, Compute Engine) give to what runs on them. Elsewhere, hand a source of
// your own to [NewTokens].
func GoogleID(cfg GoogleConfig) (*Tokens, error) {
	if cfg.Audience == "" {
		return nil, errors.New("zone: an ID token needs an audience, the URL of the service")
	}
	cfg = cfg.withDefaults(googleIdentity)
	return NewTokens(TokenConfig{Fetch: cfg.fetchID, Header: cfg.Header, Now: cfg.Now}), nil
}

// GoogleAccess returns an Authorizer with the access tokens of those machines, which
// the APIs of Google want, such as Vertex AI Agent Engine.
func GoogleAccess(cfg GoogleConfig) *Tokens {
	cfg = cfg.withDefaults(googleAccess)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return NewTokens(TokenConfig{Fetch: cfg.fetchAccess, Header: cfg.Header, Now: cfg.Now})
}

func (g GoogleConfig) withDefaults(url string) GoogleConfig {
	if g.URL == "" {
		g.URL = url
	}
	if g.Client == nil {
		// A proxy of the environment could not ask the server of this machine, which is
		// called in the clear, and would see the tokens.
		g.Client = &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	}
	return g
}

func (g GoogleConfig) fetchID(ctx context.Context) (Token, error) {
	body, err := g.ask(ctx, g.URL+"?"+url.Values{"audience": {g.Audience}, "format": {"full"}}.Encode())
	if err != nil {
		return Token{}, err
	}
	text := strings.TrimSpace(string(body))
	return Token{Secret: parley.NewSecret([]byte(text)), Expires: expiryOf(text)}, nil
}

func (g GoogleConfig) fetchAccess(ctx context.Context) (Token, error) {
	body, err := g.ask(ctx, g.URL)
	if err != nil {
		return Token{}, err
	}
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.AccessToken == "" {
		return Token{}, errors.New("the metadata server answered without a token")
	}
	return Token{Secret: parley.NewSecret([]byte(answer.AccessToken)), Expires: g.Now().Add(time.Duration(answer.ExpiresIn) * time.Second)}, nil
}

// ask asks the metadata server.
func (g GoogleConfig) ask(ctx context.Context, u string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := g.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the metadata server: %w", plain(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken))
	if err != nil {
		return nil, fmt.Errorf("the metadata server: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the metadata server answered HTTP %d", resp.StatusCode)
	}
	return body, nil
}
