package agentcard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// The places of a card below an address: that of 0.3 and 1.0, and that of 0.2
// (A2A specification 1.0 §8.2).
const (
	wellKnown    = "/.well-known/"
	cardPath     = wellKnown + "agent-card.json"
	oldCardPath  = wellKnown + "agent.json"
	maxCardLines = 16
)

// place is where a card may be.
type place struct {
	url string
	// root says that the card is not known to be the one of the agent's path.
	root bool
	// old is the place to look at if there is nothing here, "" for none.
	old string
}

// document is a card as it was fetched.
type document struct {
	body []byte
	at   *url.URL
	root bool
	etag string
	// control is its Cache-Control.
	control string
}

// places gives where to look for the card of the agent at u, in order.
func places(u *url.URL, known string) []place {
	var list []place
	if k, err := url.Parse(known); err == nil && known != "" && sameHost(k, u) && (k.Scheme == "https" || !secure(u)) {
		list = append(list, place{url: known})
	}
	if cardURL(u) {
		list = append(list, place{url: at(u, u.EscapedPath()) + query(u)})
	}
	base := basePath(u)
	if base != "" {
		list = append(list, place{url: at(u, base+cardPath), old: at(u, base+oldCardPath)})
	}
	list = append(list, place{url: at(u, cardPath), old: at(u, oldCardPath), root: base != ""})
	return slices.CompactFunc(list, func(a, b place) bool { return a.url == b.url })
}

// cardURL says that an operator gave the address of the card itself.
func cardURL(u *url.URL) bool {
	return strings.Contains(u.Path, wellKnown) || strings.HasSuffix(u.Path, ".json")
}

// basePath is the agent's path without a slash at its end, and without the name
// of the card if u is the card's own address.
func basePath(u *url.URL) string {
	p := u.EscapedPath()
	if i := strings.Index(p, wellKnown); i >= 0 {
		p = p[:i]
	} else if cardURL(u) {
		p = path.Dir(p)
	}
	return strings.TrimRight(p, "/")
}

// at gives the http address with u's host and that path.
func at(u *url.URL, escapedPath string) string {
	scheme := "http"
	if secure(u) {
		scheme = "https"
	}
	return scheme + "://" + u.Host + escapedPath
}

func query(u *url.URL) string {
	if u.RawQuery == "" {
		return ""
	}
	return "?" + u.RawQuery
}

// search looks for the card of an agent.
type search struct {
	d     *Detector
	agent parley.Agent
	// before is the document that is known, to ask whether it changed.
	before *document
	lines  []string
}

func (s *search) say(format string, args ...any) {
	if len(s.lines) < maxCardLines {
		s.lines = append(s.lines, fmt.Sprintf(format, args...))
	}
}

// find gives the card, or nil if there is none. The error is a [*parley.Error]
// of code agent_unavailable: there may be a card, but nobody answers.
func (s *search) find(ctx context.Context, u *url.URL, known string) (*document, error) {
	for _, p := range places(u, known) {
		doc, missing, err := s.look(ctx, p.url)
		if err == nil && missing && p.old != "" {
			doc, _, err = s.look(ctx, p.old)
		}
		if err != nil {
			return nil, err
		}
		if doc != nil {
			doc.root = p.root
			return doc, nil
		}
	}
	return nil, nil
}

// look fetches one address. missing says that nothing is there.
func (s *search) look(ctx context.Context, address string) (doc *document, missing bool, err error) {
	q := bridge.Inquiry{URL: address, Header: http.Header{"A2A-Version": {V10}}, Limit: MaxBody}
	conditional := s.before != nil && s.before.etag != "" && s.before.at.String() == address
	if conditional {
		q.Header["If-None-Match"] = []string{s.before.etag}
	}
	reply, err := s.d.cfg.Exchange.Ask(ctx, s.agent, q)
	switch {
	case parley.CodeOf(err) == parley.CodeLimit:
		s.say("%s: %s", address, messageOf(err))
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case reply.Status == http.StatusNotModified && conditional:
		same := *s.before
		if c := reply.Header.Get("Cache-Control"); c != "" {
			same.control = c
		}
		s.say("%s has not changed", address)
		return &same, false, nil
	}
	return s.judge(address, reply)
}

// judge says whether reply is a card.
func (s *search) judge(address string, reply bridge.Reply) (doc *document, missing bool, err error) {
	switch status := reply.Status; {
	case status == http.StatusTooManyRequests || status >= 502 && status <= 504:
		e := parley.Errorf(parley.CodeAgentUnavailable, "%s answered HTTP %d: try again later", address, status)
		e.Agent, e.Retryable = s.agent.Name, true
		return nil, false, e
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		s.say("%s wants other credentials (HTTP %d%s)", address, status, schemeText(authScheme(reply.Header)))
		return nil, true, nil
	case status >= 300 && status <= 399:
		s.say("%s redirects to another place, which is not followed", address)
		return nil, true, nil
	case status != http.StatusOK:
		s.say("no card at %s (HTTP %d)", address, status)
		return nil, true, nil
	}
	if _, err := Parse(reply.Body); err != nil {
		s.say("no card at %s: %s", address, messageOf(err))
		return nil, true, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, false, err
	}
	s.say("found an agent card at %s", address)
	etag := reply.Header.Get("ETag")
	if len(etag) > maxWord || !printable(etag) {
		etag = ""
	}
	return &document{body: reply.Body, at: u, etag: etag, control: reply.Header.Get("Cache-Control")}, false, nil
}
