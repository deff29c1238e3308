package agentcard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

func (x *detection) chooser(card Card, doc *document) *chooser {
	c := &chooser{card: card, pins: x.pins, agent: x.url}
	base := *doc.at
	base.Path, base.RawPath, base.RawQuery = basePath(doc.at)+"/", "", ""
	c.base = &base
	if cardURL(x.url) {
		// The address of the card is no address of the agent.
		own := base
		if own.Path != "/" {
			own.Path = strings.TrimSuffix(own.Path, "/")
		}
		c.agent = &own
	}
	return c
}

// settle takes the best interface, and asks where the card is silent.
func (x *detection) settle(ctx context.Context, usable []candidate) error {
	if err := x.turn(usable); err != nil {
		return err
	}
	best := usable[0]
	if x.url.Scheme == "ws" || x.url.Scheme == "wss" {
		best.URL, best.Binding = x.agent.URL, JSONRPC
		x.say("the agent is called over its WebSocket, by the card's dialect")
	}
	if best.Version == "" {
		best.Version = x.askVersion(ctx, best.URL)
	}
	x.take(best.DetectedInterface)
	x.say(best.String() + " is taken: " + best.URL)
	for _, u := range usable[1:] {
		if u.Version != "" && u.DetectedInterface != best.DetectedInterface && len(x.found.Others) < maxOthers {
			x.found.Others = append(x.found.Others, u.DetectedInterface)
		}
	}
	return nil
}

// turn puts what the agent has refused behind the rest. If there is nothing else
// the same address is called in the other dialect: there are cards that say one
// and mean the other.
func (x *detection) turn(usable []candidate) error {
	if x.tried == "" {
		return nil
	}
	slices.SortStableFunc(usable, func(a, b candidate) int { return refused(a, x.tried) - refused(b, x.tried) })
	if usable[0].Version != x.tried {
		return nil
	}
	other := turned(x.tried)
	if usable[0].Binding != JSONRPC && other != V10 {
		return x.rejected("the agent refuses A2A %s over %s, and its card offers nothing else", x.tried, usable[0].Binding)
	}
	x.say("the agent refuses A2A " + x.tried + ", which its card gives: the same address is called in A2A " + other)
	usable[0].Version = other
	return nil
}

// askVersion asks for the dialect of an interface without a version.
func (x *detection) askVersion(ctx context.Context, address string) string {
	p, err := x.d.probe(ctx, x.agent, address)
	switch {
	case err != nil:
		x.say("the card gives no version, and the agent did not show one (" + messageOf(err) + "): A2A 0.3 is taken")
	case p.rpc:
		x.say(p.lines...)
		return p.version
	default:
		x.say("the card gives no version, and the agent did not show one: A2A 0.3 is taken")
	}
	return V03
}

func refused(c candidate, tried string) int {
	if c.Version == tried {
		return 1
	}
	return 0
}

func turned(version string) string {
	if version == V10 {
		return V03
	}
	return V10
}

// describe takes over what the card says besides.
func (x *detection) describe(r reading) {
	f, card, doc, v := &x.found, r.card, r.doc, r.verdict
	f.Name, f.Description, f.AgentVersion, f.Skills = card.Name, card.Description, card.Version, card.Skills
	f.Streaming, f.Push = card.Streaming, card.Push
	f.InputModes, f.OutputModes = card.InputModes, card.OutputModes
	f.CardURL, f.ETag, f.CardHash = doc.at.String(), doc.etag, hashOf(doc.body)
	f.Signature, f.SignatureKey = v.state, v.key
	if asks := parley.ProposeAuth(card.Alternatives()); asks.Type != parley.AuthNone {
		f.Auth = &asks
		line := "the card asks for authentication"
		if flags := asks.Flags(); flags != "" {
			line += ": " + flags
		}
		if asks.Note != "" {
			line += " (" + asks.Note + ")"
		}
		x.say(line)
	}
}

// hashOf gives the SHA-256 of the card's canonical form, so that only a change
// of what it says is one.
func hashOf(card []byte) string {
	if n, err := parseNode(card); err == nil {
		if form, err := n.canonical(); err == nil {
			card = form
		}
	}
	sum := sha256.Sum256(card)
	return hex.EncodeToString(sum[:])
}
