package agentcard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// reading is a card that can be used, and what was made of it.
type reading struct {
	card Card
	// doc holds the card's text.
	doc     *document
	verdict verdict
	// usable are the interfaces that can be called, the best one first.
	usable []candidate
}

// extend gives what the agent shows to those who authenticate in place of its
// public card (A2A specification 1.0 §3.1.11, 0.3 §7.10), or public if there is
// no such card, or none that can be used. An error says that the agent cannot be
// called by any card, or that the caller went away.
func (x *detection) extend(ctx context.Context, public reading) (reading, error) {
	if err := x.turn(public.usable); err != nil || !public.card.Extended {
		return public, err
	}
	at := x.teller(public)
	switch {
	case at == nil:
		x.say("the card announces an extended one, which is fetched over JSON-RPC and HTTP+JSON only, and it offers neither here: the public card is used")
		return public, nil
	case !authenticates(x.agent, at.URL):
		x.say("the card announces an extended one for those who authenticate: it was not fetched, as the agent's record has no credential for " + bare(at.URL))
		return public, nil
	case at.Version == "":
		at.Version = x.askVersion(ctx, at.URL)
	}
	text, why := x.fetchExtended(ctx, *at)
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return public, x.failed(parley.Errorf(parley.CodeUnavailable, "finding out about an agent was given up: %w", context.Cause(ctx)))
	}
	var extended reading
	if why == "" {
		extended, why = x.readExtended(ctx, text, public, *at)
	}
	if why != "" {
		x.say("the extended card is not used: " + why + "; the public card is used")
		return public, nil
	}
	x.say("the extended card from " + bare(at.URL) + " (" + at.how() + ") is used in place of the public one")
	return extended, nil
}

// teller gives the interface that is asked for the extended card, nil if there
// is none: the best one that can be.
func (x *detection) teller(public reading) *candidate {
	can := func(c candidate) bool {
		return c.Binding != GRPC && (strings.HasPrefix(c.URL, "http://") || strings.HasPrefix(c.URL, "https://"))
	}
	if i := slices.IndexFunc(public.usable, can); i >= 0 {
		return &public.usable[i]
	}
	if x.pins.Binding != GRPC {
		return nil
	}
	// The operator has decided how the agent is called, and with that where; but
	// the card is asked for where the card says.
	c := x.chooser(public.card, public.doc)
	c.pins = Pins{Version: x.pins.Version, Tenant: x.pins.Tenant, HasTenant: x.pins.HasTenant}
	other := c.choose()
	if i := slices.IndexFunc(other, can); i >= 0 {
		return &other[i]
	}
	return nil
}

// authenticates says whether a request to address carries a credential of agent.
func authenticates(agent parley.Agent, address string) bool {
	switch agent.Auth.Type {
	case parley.AuthNone, parley.AuthMTLS, "":
	case parley.AuthHeaders:
		if agent.Resolved != nil && len(agent.Resolved.Headers) > 0 {
			return true
		}
	default:
		if !agent.Credential.IsZero() {
			return true
		}
	}
	return agent.Resolved != nil && !agent.Resolved.Cert.IsZero() && strings.HasPrefix(address, "https://")
}

// how names the request for an extended card.
func (c candidate) how() string {
	switch {
	case c.Binding == REST:
		return "GET /extendedAgentCard"
	case c.Version == V10:
		return "GetExtendedAgentCard"
	}
	return "agent/getAuthenticatedExtendedCard"
}

// fetchExtended asks for the extended card. It gives its text, or why there is
// none, in words that repeat nothing of what the agent wrote: it knows the
// credential.
func (x *detection) fetchExtended(ctx context.Context, at candidate) (text []byte, why string) {
	agent := x.agent
	// The credential goes where calls go: to the agent's own host on any port, or
	// where the operator says.
	agent.URL = at.URL
	reply, err := x.d.cfg.Exchange.Ask(ctx, agent, x.requestFor(at))
	switch {
	case parley.CodeOf(err) == parley.CodeLimit:
		return nil, messageOf(err)
	case err != nil:
		x.shortly()
		return nil, messageOf(err)
	case reply.Status == http.StatusUnauthorized || reply.Status == http.StatusForbidden:
		return nil, fmt.Sprintf("the agent wants other credentials for it (HTTP %d)", reply.Status)
	case reply.Status == http.StatusTooManyRequests || reply.Status >= 502 && reply.Status <= 504:
		x.shortly()
		return nil, fmt.Sprintf("the agent answered HTTP %d", reply.Status)
	}
	raw, err := bridge.CheckJSON("the answer", reply.Body)
	switch object := err == nil && raw[0] == '{'; {
	case !object && reply.Status == http.StatusOK:
		return nil, "the answer is no JSON object"
	case !object:
		return nil, fmt.Sprintf("the agent answered HTTP %d", reply.Status)
	case at.Binding == REST && reply.Status != http.StatusOK:
		return nil, fmt.Sprintf("the agent answered HTTP %d%s", reply.Status, reasonText(raw))
	case at.Binding == REST:
		x.bound(reply.Header)
		return raw, ""
	}
	m := membersOf(raw)
	if failure := m["error"]; len(failure) > 0 && failure[0] == '{' {
		code, _ := strconv.Atoi(string(membersOf(failure)["code"]))
		return nil, fmt.Sprintf("the agent answered error %d%s", code, codeText(code))
	}
	if m["result"] == nil || reply.Status != http.StatusOK {
		return nil, fmt.Sprintf("the answer (HTTP %d) is no result of JSON-RPC", reply.Status)
	}
	return m["result"], ""
}

// requestFor gives the request for the extended card (A2A specification 1.0
// §9.4.10, §11.3.4; 0.3 §7.10).
func (x *detection) requestFor(at candidate) bridge.Inquiry {
	q := bridge.Inquiry{URL: at.URL, Header: http.Header{}, Limit: MaxBody}
	if at.Version == V10 {
		q.Header["A2A-Version"] = []string{V10}
	}
	if at.Binding == REST {
		q.Header["Accept"] = []string{"application/a2a+json, application/json"}
		path := "/extendedAgentCard"
		if at.Tenant != "" {
			path = "/" + url.PathEscape(at.Tenant) + path
		}
		base, own, has := strings.Cut(at.URL, "?")
		q.URL = strings.TrimRight(base, "/") + path
		if has {
			q.URL += "?" + own
		}
		return q
	}
	q.Method = http.MethodPost
	params := ""
	if at.Version == V10 {
		params = `,"params":{}`
		if at.Tenant != "" {
			tenant, _ := json.Marshal(at.Tenant) // a string
			params = `,"params":{"tenant":` + string(tenant) + `}`
		}
	}
	q.Body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":%q%s}`, "parley-card-"+x.d.cfg.NewID(), at.how(), params)
	return q
}

// readExtended reads an extended card by the rules of the public one, or says
// why it cannot be used. at is the interface that gave it.
func (x *detection) readExtended(ctx context.Context, text []byte, public reading, at candidate) (reading, string) {
	doc := *public.doc
	doc.body = text
	if _, err := Parse(text); err != nil {
		return reading{}, messageOf(err)
	}
	v, err := x.verify(ctx, &doc)
	if err != nil {
		return reading{}, messageOf(err)
	}
	x.sayOf("extended card", v.lines)
	if !x.trusted(v) {
		return reading{}, distrust(v)
	}
	if v.card != nil {
		text = v.card
	}
	card, err := Parse(text)
	if err != nil {
		return reading{}, "what was signed of it is no card"
	}
	if card.silent() {
		card.Interfaces, card.Modern = public.card.Interfaces, public.card.Modern
	}
	c := x.chooser(card, &doc)
	usable := c.choose()
	x.sayOf("extended card", c.lines)
	for n := range usable {
		if usable[n].Version == "" && usable[n].Binding == JSONRPC {
			usable[n].Version = at.Version // it has just been spoken
		}
	}
	if len(usable) == 0 || x.turn(usable) != nil {
		return reading{}, "it offers nothing that can be called here"
	}
	return reading{card: card, doc: &doc, verdict: v, usable: usable}, ""
}

// silent says that the card names no address, so that its one interface is only
// a default.
func (c *Card) silent() bool { return !c.Modern && len(c.Interfaces) == 1 && c.Interfaces[0].URL == "" }

func (x *detection) sayOf(what string, lines []string) {
	for _, line := range lines {
		x.say(what + ": " + line)
	}
}

// shortly makes what is found be looked at again soon: what was missing now may
// be there then.
func (x *detection) shortly() { x.fresh = minFresh }

// bound keeps what is found no longer than h allows, if it says something.
func (x *detection) bound(h http.Header) {
	if control := h.Get("Cache-Control"); control != "" {
		x.fresh = freshness(control)
	}
}

// bare is an address without its query, which may hold a key.
func bare(address string) string {
	base, _, _ := strings.Cut(address, "?")
	return base
}

// codeText names the errors of A2A with which agents refuse an extended card;
// the official servers do not agree on one.
func codeText(code int) string {
	switch code {
	case -32007:
		return " (no extended card is configured)"
	case -32004:
		return " (not supported)"
	case codeUnknownMethod:
		return " (it does not know the method)"
	case -32603:
		return " (internal error)"
	case -32001:
		return " (not found)"
	case codeWrongVersion:
		return " (it does not speak this version)"
	}
	return ""
}

// reasonText names the reason in an error of HTTP+JSON, if it is one of A2A's.
func reasonText(raw []byte) string {
	for d := range bridge.Elements(membersOf(membersOf(raw)["error"])["details"]) {
		switch membersOf(d).text("reason") {
		case "EXTENDED_AGENT_CARD_NOT_CONFIGURED":
			return codeText(-32007)
		case "UNSUPPORTED_OPERATION":
			return codeText(-32004)
		case "VERSION_NOT_SUPPORTED":
			return codeText(codeWrongVersion)
		}
	}
	return ""
}
