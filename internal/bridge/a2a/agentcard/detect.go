package agentcard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

const (
	// maxLines and maxLine bound an explanation: lines, and characters of one.
	maxLines = 40
	maxLine  = 1000
	// maxOthers bounds the interfaces that are kept beside the chosen one.
	maxOthers = 8
)

// stdio begins the URL of a program; what follows need not be a URL.
const stdio = "stdio:"

// Found is what was found out about an agent, as it is stored in its record.
type Found = parley.Detection

// Asker makes inquiries; [*bridge.Exchange] is one.
type Asker interface {
	Ask(ctx context.Context, agent parley.Agent, q bridge.Inquiry) (bridge.Reply, error)
}

// Config is what a [Detector] works with. Exchange, Now and NewID are required.
type Config struct {
	Exchange Asker
	Now      func() time.Time
	// NewID gives a text that was never used before, for ids of tasks that
	// cannot exist.
	NewID func() string
	// Resolve gives what a reference ("env:NAME", "file:path") names, for keys
	// of cards. Nil: references are refused.
	Resolve func(ref string) (parley.Secret, error)
	// Size bounds the agents whose cards are kept; default 1,000.
	Size int
}

// Detector finds out how agents are called. It may be used concurrently and
// needs no closing.
type Detector struct {
	cfg   Config
	cards *cache
}

// New makes a Detector.
func New(cfg Config) *Detector {
	if cfg.Size <= 0 {
		cfg.Size = defaultCards
	}
	return &Detector{cfg: cfg, cards: newCache(cfg.Size)}
}

// Detect says how agent is called: by what its record pins, by its card, by a
// harmless probe. agent needs a URL; its ProtocolConfig, Detected, Auth and
// Credential are used if they are there. With Protocol "jsonrpc-2.0" the answer
// has that protocol too.
//
// A card that announces an extended one, for those who authenticate, is replaced
// by that if agent has a credential and the extended card can be used.
//
// What was found is kept as long as the card's Cache-Control says, at least 30 s
// and at most a day (5 min if it says nothing), and a failure for 5 s.
//
// The error is a [*parley.Error] with the explanation so far in Details: code
// agent_unavailable if nobody answered, agent_rejected if the card cannot be
// used, or something else than an agent answers, invalid for a URL that cannot
// be read.
func (d *Detector) Detect(ctx context.Context, agent parley.Agent) (Found, error) {
	return d.cards.get(ctx, keyOf(agent), d.cfg.Now, func(before *kept) (*kept, error) {
		return d.detect(ctx, agent, before, "")
	})
}

// Refresh is Detect without trusting what is kept: the card is fetched anew, or
// the agent says that it has not changed.
func (d *Detector) Refresh(ctx context.Context, agent parley.Agent) (Found, error) {
	d.cards.expire(keyOf(agent))
	return d.Detect(ctx, agent)
}

// Renegotiate is Refresh after an agent has said that it does not know the
// dialect tried, "0.3" or "1.0" (errors -32601 and -32009: nothing was done). It
// gives an interface of the other dialect if the card has one, else the same
// address in the other dialect. What the operator pinned stays: then the error
// is agent_rejected.
func (d *Detector) Renegotiate(ctx context.Context, agent parley.Agent, tried string) (Found, error) {
	if p := ReadPins(agent.ProtocolConfig); p.Version != "" {
		return Found{}, d.rejected(agent, nil, "the agent does not speak A2A %s, which protocol_config.a2a demands", p.Version)
	}
	key := keyOf(agent)
	if k := d.cards.entry(key).current(d.cfg.Now()); k != nil && k.err == nil && k.found.Version != tried {
		return k.found, nil // another call was refused before, and has renegotiated
	}
	d.cards.expire(key)
	return d.cards.get(ctx, key, d.cfg.Now, func(before *kept) (*kept, error) {
		return d.detect(ctx, agent, before, tried)
	})
}

// detection is one Detect while it lasts.
type detection struct {
	d     *Detector
	agent parley.Agent
	url   *url.URL
	pins  Pins
	// tried is a dialect that the agent has refused, or "".
	tried string
	found Found
	// fresh bounds how long what was found is kept; 0 leaves that to the card.
	fresh time.Duration
}

func (d *Detector) detect(ctx context.Context, agent parley.Agent, before *kept, tried string) (*kept, error) {
	program := len(agent.URL) > len(stdio) && strings.EqualFold(agent.URL[:len(stdio)], stdio)
	u, err := url.Parse(agent.URL)
	if err != nil && !program {
		return nil, d.invalid(agent, "the URL of the agent cannot be read")
	}
	x := &detection{d: d, agent: agent, url: u, pins: ReadPins(agent.ProtocolConfig), tried: tried}
	x.found = Found{At: d.cfg.Now().UTC(), Explanation: []string{}}
	if pinned := x.pins.text(); pinned != "" {
		x.say("pinned in protocol_config: " + pinned)
	}
	if program {
		x.local()
		return &kept{found: x.found, fresh: defaultFresh}, nil
	}
	switch u.Scheme {
	case "http", "https", "ws", "wss":
		if u.Hostname() == "" || u.User != nil {
			return nil, d.invalid(agent, "the URL of the agent names no host, or holds a user name")
		}
	default:
		return nil, d.invalid(agent, "agents are found out about at http, https, ws, wss and stdio URLs")
	}
	return x.run(ctx, before)
}

// say adds to the explanation, which is stored: the middle of a long one is of
// no use to anybody. It repeats words of an agent that may know a credential.
func (x *detection) say(lines ...string) {
	for _, line := range lines {
		line = bridge.Redact(x.agent, []byte(line), maxLine*utf8.UTFMax)
		switch n := len(x.found.Explanation); {
		case n < maxLines:
			x.found.Explanation = append(x.found.Explanation, clean(line, maxLine))
		case n == maxLines:
			x.found.Explanation = append(x.found.Explanation, "…", clean(line, maxLine))
		default:
			x.found.Explanation[n-1] = clean(line, maxLine)
		}
	}
}

// local settles an agent on stdio: it has no card, and asking it means starting
// it.
func (x *detection) local() {
	x.say("an agent on stdio has no card and is not asked: JSON-RPC, A2A " + cmp.Or(x.pins.Version, V03) + " (pin another with protocol_config.a2a)")
	x.take(parley.DetectedInterface{URL: x.agent.URL, Binding: JSONRPC, Version: cmp.Or(x.pins.Version, V03), Tenant: x.pins.Tenant})
}

func (x *detection) take(i parley.DetectedInterface) {
	x.found.Protocol = parley.ProtocolJSONRPC
	x.found.URL, x.found.Binding, x.found.Version, x.found.Tenant = i.URL, i.Binding, i.Version, i.Tenant
}

func (x *detection) run(ctx context.Context, before *kept) (*kept, error) {
	s := &search{d: x.d, agent: x.agent}
	if before != nil {
		s.before = before.doc
	}
	stored, _ := parley.ReadDetection(x.agent.Detected)
	doc, err := s.find(ctx, x.url, stored.CardURL)
	x.say(s.lines...)
	if err != nil && !x.pins.complete() {
		return nil, x.failed(err)
	}
	if err != nil {
		x.say("the card could not be fetched: " + messageOf(err))
	}
	if doc != nil {
		used, err := x.fromCard(ctx, doc)
		if err != nil {
			return nil, err
		}
		if used {
			fresh := freshness(doc.control)
			if x.fresh > 0 {
				fresh = min(fresh, x.fresh)
			}
			return &kept{found: x.found, doc: doc, fresh: fresh}, nil
		}
	}
	if x.pins.Keys != nil && !x.pins.complete() {
		return nil, x.rejected("the agent has no card, and protocol_config.card_keys demands a signed one")
	}
	if err := x.withoutCard(ctx); err != nil {
		return nil, err
	}
	return &kept{found: x.found, fresh: defaultFresh}, nil
}

// fromCard chooses by the card. used is false if the card is not that of this
// agent, or one that the pins replace.
func (x *detection) fromCard(ctx context.Context, doc *document) (used bool, err error) {
	if seen, err := Parse(doc.body); err == nil && doc.root && x.pins.URL == "" && !x.chooser(seen, doc).near() {
		x.say("the card is the host's and speaks of none of the addresses at " + x.url.Path +
			": not taken (if it is this agent's, register an address that is in the card)")
		return false, nil
	}
	v, err := x.verify(ctx, doc)
	if err != nil {
		return false, err
	}
	x.say(v.lines...)
	body := doc.body
	if v.card != nil {
		body = v.card
	}
	card, err := Parse(body)
	if err == nil && !x.trusted(v) {
		if !x.pins.complete() {
			return false, x.rejected("the card at %s is not used: %s%s", doc.at, distrust(v), remedy(v))
		}
		x.found.Signature = v.state
		x.say("the card is not used (" + distrust(v) + "): protocol_config.url and protocol_config.a2a say how the agent is called")
		return false, nil
	}
	if err != nil {
		return false, x.rejected("what was signed of the card at %s is no card", doc.at)
	}
	c := x.chooser(card, doc)
	usable := c.choose()
	x.say(c.lines...)
	if len(usable) == 0 && x.pins.complete() {
		return false, nil
	}
	if len(usable) == 0 {
		return false, x.rejected("the card at %s offers nothing that can be called here: %s", doc.at, strings.Join(c.lines, "; "))
	}
	r, err := x.extend(ctx, reading{card: card, doc: doc, verdict: v, usable: usable})
	if err != nil {
		return false, err
	}
	x.describe(r)
	return true, x.settle(ctx, r.usable)
}

// withoutCard settles an agent that has no card that counts.
func (x *detection) withoutCard(ctx context.Context) error {
	own := parley.DetectedInterface{
		URL: cmp.Or(x.pins.URL, x.agent.URL), Binding: cmp.Or(x.pins.Binding, JSONRPC), Version: x.pins.Version, Tenant: x.pins.Tenant,
	}
	switch {
	case own.Version != "":
	case own.Binding != JSONRPC:
		own.Version = V10
		x.say(own.Binding + " is spoken here in A2A 1.0 only")
	case x.tried != "":
		own.Version = turned(x.tried)
		x.say("the agent refuses A2A " + x.tried + " and has no card: A2A " + own.Version)
	case x.url.Scheme == "ws" || x.url.Scheme == "wss":
		own.Version = V03
		x.say("no card, and an agent on a WebSocket is not asked: A2A 0.3 (pin another with protocol_config.a2a)")
	default:
		p, err := x.d.probe(ctx, x.agent, own.URL)
		x.say(p.lines...)
		if err != nil {
			return x.failed(err)
		}
		if !p.rpc && x.agent.Protocol != parley.ProtocolJSONRPC {
			x.found.Protocol, x.found.URL = parley.ProtocolSimpleA2A, own.URL
			return nil
		}
		own.Version = cmp.Or(p.version, V03)
	}
	x.take(own)
	return nil
}

// verify checks the card's signatures.
func (x *detection) verify(ctx context.Context, doc *document) (verdict, error) {
	raw, err := bridge.CheckJSON("the card", doc.body)
	if err != nil {
		return verdict{}, x.failed(err)
	}
	keys, err := x.d.pinnedKeys(x.pins)
	if err != nil {
		return verdict{}, x.failed(err)
	}
	signatures := membersOf(raw)["signatures"]
	some := false
	for range bridge.Elements(signatures) {
		some = true
	}
	if !some {
		return verdict{state: SignatureNone}, nil
	}
	forms, err := canonicals(raw)
	if err != nil {
		return verdict{state: SignatureInvalid, lines: []string{messageOf(err)}}, nil
	}
	v := &verifier{
		forms: forms, at: doc.at, pinned: x.pins.Keys != nil, keys: keys, fetched: map[string][]jose.JSONWebKey{},
		ask: func(ctx context.Context, address string) (bridge.Reply, error) {
			return x.d.cfg.Exchange.Ask(ctx, x.agent, bridge.Inquiry{URL: address, Limit: maxKeySet})
		},
	}
	return v.check(ctx, signatures), nil
}

// trusted says whether a card with that verdict is used.
func (x *detection) trusted(v verdict) bool {
	if x.pins.Keys != nil {
		return v.state == SignatureVerified
	}
	return v.state != SignatureInvalid
}

func distrust(v verdict) string {
	switch v.state {
	case SignatureNone:
		return "it is not signed, and protocol_config.card_keys demands that"
	case SignatureUnverified:
		return "none of protocol_config.card_keys has signed it"
	}
	return "its signature is not valid"
}

// remedy says what to do about a card that is not trusted.
func remedy(v verdict) string {
	if v.state == SignatureInvalid {
		return "; to call the agent all the same, set protocol_config.url and protocol_config.a2a"
	}
	return ""
}

// pinnedKeys reads protocol_config.card_keys.
func (d *Detector) pinnedKeys(p Pins) ([]jose.JSONWebKey, error) {
	if p.Keys == nil {
		return nil, nil
	}
	text := []byte(p.Keys)
	if ref, ok := bridge.Text(p.Keys); ok {
		text = []byte(ref)
		if strings.HasPrefix(ref, "env:") || strings.HasPrefix(ref, "file:") {
			if d.cfg.Resolve == nil {
				return nil, parley.Errorf(parley.CodeInvalid, "protocol_config.card_keys: references are not resolved here; give the key set itself")
			}
			secret, err := d.cfg.Resolve(ref)
			if err != nil {
				return nil, parley.Errorf(parley.CodeAgentUnavailable, "protocol_config.card_keys: %s", messageOf(err))
			}
			text = secret.Reveal()
		}
	}
	keys, err := ReadKeys(text)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "protocol_config.card_keys: %s", messageOf(err))
	}
	return keys, nil
}

// CheckPins reports what is wrong with the members of a protocol_config that only
// a Detector reads, without resolving a reference. The error is a
// [*parley.Error] whose text names the member.
func CheckPins(config json.RawMessage) error {
	p := ReadPins(config)
	if ref, ok := bridge.Text(p.Keys); ok && (strings.HasPrefix(ref, "env:") || strings.HasPrefix(ref, "file:")) {
		return nil
	}
	_, err := (&Detector{}).pinnedKeys(p)
	return err
}

func (x *detection) rejected(format string, args ...any) error {
	return x.d.rejected(x.agent, x.found.Explanation, format, args...)
}

// failed gives err with the explanation so far.
func (x *detection) failed(err error) error {
	e, ok := errors.AsType[*parley.Error](err)
	if !ok {
		e = parley.Errorf(parley.CodeAgentRejected, "%s", messageOf(err))
	}
	c := *e
	c.Agent = x.agent.Name
	return explained(&c, x.found.Explanation)
}

func (d *Detector) rejected(agent parley.Agent, lines []string, format string, args ...any) error {
	e := parley.Errorf(parley.CodeAgentRejected, format, args...)
	e.Agent, e.Message = agent.Name, bridge.Redact(agent, []byte(e.Message), maxLine*maxLines)
	return explained(e, lines)
}

func (d *Detector) invalid(agent parley.Agent, text string) error {
	e := parley.Errorf(parley.CodeInvalid, "%s", text)
	e.Agent = agent.Name
	return e
}

func explained(e *parley.Error, lines []string) *parley.Error {
	if len(lines) == 0 {
		return e
	}
	return e.WithDetails(map[string][]string{"explanation": lines})
}

// messageOf gives the text of err for people, without a code before it.
func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
