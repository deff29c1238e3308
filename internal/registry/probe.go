package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/parley-project/parley"
)

// maxCard bounds an agent card, in bytes.
const maxCard = 1 << 20

// GetProber is the [Prober] for agents that speak HTTP. 2xx is healthy, and so
// is 405: many an agent only takes POST, but it is there.
type GetProber struct {
	// Client makes the request. Its transport decides what may be reached at
	// all; redirects are not followed, whatever it says.
	Client *http.Client
	Now    func() time.Time
}

// Probe makes one GET of the agent's URL. Its error is always nil.
func (p GetProber) Probe(ctx context.Context, agent parley.Agent) (parley.AgentHealth, error) {
	start := p.Now()
	health := parley.AgentHealth{At: start.UTC()}
	health.Healthy, health.Message, health.Card = p.get(ctx, agent)
	health.ResponseTime = max(p.Now().Sub(start), 0)
	return health, nil
}

func (p GetProber) get(ctx context.Context, agent parley.Agent) (healthy bool, message string, card json.RawMessage) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, agent.URL, nil)
	if err != nil {
		return false, "the agent's url cannot be used", nil
	}
	req.Header.Set("Accept", "application/json")
	Authorize(req.Header, agent)
	client := *p.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return false, unreachable(ctx, err), nil
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxCard+1))
		if err != nil {
			return false, "the answer broke off", nil
		}
		return true, "the agent answers", cardOf(body)
	case code == http.StatusMethodNotAllowed:
		return true, "the agent is there (HTTP 405 for GET)", nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return false, fmt.Sprintf("the agent refuses the credential (HTTP %d); check auth", code), nil
	default:
		return false, fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)), nil
	}
}

// unreachable says why without the URL, whose query may hold a credential.
func unreachable(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "no answer in time"
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return "cannot be reached: " + err.Error()
}

// cardOf gives body if it is an agent card: an object with a name and skills.
func cardOf(body []byte) json.RawMessage {
	var card struct {
		Name   *string            `json:"name"`
		Skills *[]json.RawMessage `json:"skills"`
	}
	if len(body) > maxCard || json.Unmarshal(body, &card) != nil || card.Name == nil || card.Skills == nil {
		return nil
	}
	return body
}

// Authorize puts the Credential of agent into h as its Auth says: bearer as
// Authorization, apikey and header under their header. Without a credential it
// does nothing.
func Authorize(h http.Header, agent parley.Agent) {
	if agent.Credential.IsZero() {
		return
	}
	switch value := string(agent.Credential.Reveal()); agent.Auth.Type {
	case parley.AuthBearer:
		h.Set("Authorization", "Bearer "+value)
	case parley.AuthAPIKey, parley.AuthHeader:
		name := agent.Auth.Header
		if name == "" {
			name = defaultKeyHeader
		}
		h.Set(name, value)
	}
}
