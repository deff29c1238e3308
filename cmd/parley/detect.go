package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

const (
	// detectTime bounds the search for a card in all.
	detectTime = 5 * time.Second
	// maxCard bounds an agent card, in bytes.
	maxCard = 1 << 20
	maxSlug = 64
)

// card is what is read of an agent card.
type card struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// One of these makes the object a card and not just any object with a name.
	URL          string          `json:"url"`
	Version      string          `json:"protocolVersion"`
	Capabilities json.RawMessage `json:"capabilities"`
	Skills       json.RawMessage `json:"skills"`
	Interfaces   json.RawMessage `json:"supportedInterfaces"`

	// at is where the card was found; "" is nowhere.
	at string
}

func (c card) valid() bool {
	return c.Name != "" && (c.URL != "" || c.Version != "" || c.Capabilities != nil || c.Skills != nil || c.Interfaces != nil)
}

// detect looks for the agent's card: below the agent's own path, then at the
// root of its host. An agent without one gives the zero card. Redirects are
// not followed: the card of somebody else says nothing about this agent. The
// error is only that ctx has ended.
func (a *app) detect(ctx context.Context, agent *url.URL) (card, error) {
	looking, cancel := context.WithTimeout(ctx, detectTime)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	hc := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	bases := []string{strings.TrimRight(agent.EscapedPath(), "/"), ""}
	if bases[0] == "" {
		bases = bases[1:]
	}
	for _, base := range bases {
		for _, name := range []string{"agent-card.json", "agent.json"} {
			at := agent.Scheme + "://" + agent.Host + base + "/.well-known/" + name
			if c, ok := fetchCard(looking, hc, at); ok {
				return c, nil
			}
		}
	}
	return card{}, ctx.Err()
}

func fetchCard(ctx context.Context, hc *http.Client, at string) (card, bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return card{}, false
	}
	req.Header.Set("Accept", "application/json")
	resp, err := hc.Do(req)
	if err != nil {
		return card{}, false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return card{}, false
	}
	b, err := readAll(resp.Body, at, maxCard)
	if err != nil {
		return card{}, false
	}
	var c card
	if json.Unmarshal(b, &c) != nil || !c.valid() {
		return card{}, false
	}
	c.at = at
	return c, true
}

// slug makes a name of an agent: letters, digits, dots and dashes, in lower
// case; "" if nothing of that is in it.
func slug(text string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(text) {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' && b.Len() > 0 {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
			if b.Len() >= maxSlug {
				break
			}
			continue
		}
		dash = true
	}
	return strings.TrimRight(b.String(), ".-")
}
