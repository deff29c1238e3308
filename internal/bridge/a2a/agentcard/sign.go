package agentcard

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// What can be said about the signatures of a card.
const (
	// SignatureNone: the card bears none.
	SignatureNone = "none"
	// SignatureVerified: one of them was made with a key that is trusted.
	SignatureVerified = "verified"
	// SignatureUnverified: there is no key to check any of them with.
	SignatureUnverified = "unverified"
	// SignatureInvalid: the card is not what was signed.
	SignatureInvalid = "invalid"
)

const (
	// maxKeys bounds a key set; maxKeySet is its size in bytes.
	maxKeys   = 64
	maxKeySet = 256 << 10
	// minRSA is the smallest RSA key that counts, in bits (RFC 7518 §3.3).
	minRSA = 2048
	// maxChecked bounds the text that the signatures of one card are checked
	// against, in bytes; each check counts as leastChecked at least.
	maxChecked, leastChecked = 16 << 20, 64 << 10
)

// algorithms are those that a signature may have. All are asymmetric: a key set
// is public.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.PS256, jose.EdDSA}
}

// verdict is what checking the signatures of a card gave.
type verdict struct {
	state string
	// key is the id of the key that verified the card.
	key string
	// card is the form of the card that was signed, if it is verified.
	card  []byte
	lines []string
}

func (v *verdict) say(format string, args ...any) {
	v.lines = append(v.lines, fmt.Sprintf(format, args...))
}

// verifier checks the signatures of one card (A2A specification 1.0 §8.4.3).
type verifier struct {
	ask   func(ctx context.Context, address string) (bridge.Reply, error)
	forms [][]byte
	// at is where the card was found.
	at *url.URL
	// pinned says that only the operator's keys count; keys are those.
	pinned bool
	keys   []jose.JSONWebKey
	// fetched are the key sets that were fetched already.
	fetched map[string][]jose.JSONWebKey
	// checked is how much of maxChecked is used up.
	checked int
}

// header is the protected header of a signature.
type header struct {
	Alg  string   `json:"alg"`
	Kid  string   `json:"kid"`
	Jku  string   `json:"jku"`
	Crit []string `json:"crit"`
}

// check gives the verdict on a card that bears signatures. One good signature is
// enough: the others may be of keys that are being replaced.
func (v *verifier) check(ctx context.Context, signatures []byte) verdict {
	out := verdict{state: SignatureUnverified}
	n, bad := 0, false
	for entry := range bridge.Elements(signatures) {
		n++
		if n > maxSignatures {
			out.say("the card bears more than %d signatures; the others were not looked at", maxSignatures)
			break
		}
		state, kid, form, why := v.one(ctx, membersOf(entry))
		switch state {
		case SignatureVerified:
			out.state, out.key, out.card = state, kid, form
			out.say("signature %d of the card is valid (key %s, %s)", n, quoted(kid), why)
			return out
		case SignatureInvalid:
			bad = true
		}
		out.say("signature %d of the card is %s: %s", n, state, why)
	}
	if bad {
		out.state = SignatureInvalid
	}
	return out
}

// one checks one signature; why explains the state.
func (v *verifier) one(ctx context.Context, m members) (state, kid string, form []byte, why string) {
	protected, signature := m.text("protected"), m.text("signature")
	raw, err := base64.RawURLEncoding.DecodeString(protected)
	var h header
	if err != nil || json.Unmarshal(raw, &h) != nil || signature == "" {
		return SignatureInvalid, "", nil, "its header or value cannot be read"
	}
	if h.Kid == "" {
		h.Kid = membersOf(m["header"]).text("kid")
	}
	h.Kid = word(h.Kid)
	switch {
	case strings.EqualFold(h.Alg, "none"):
		return SignatureInvalid, h.Kid, nil, `the algorithm "none" signs nothing`
	case !slices.Contains(algorithms(), jose.SignatureAlgorithm(h.Alg)):
		return SignatureUnverified, h.Kid, nil, fmt.Sprintf("the algorithm %s is not accepted here", quoted(h.Alg))
	case len(h.Crit) > 0:
		return SignatureUnverified, h.Kid, nil, "its header holds critical members that are not known here"
	}
	keys, from := v.keysFor(ctx, h)
	if len(keys) == 0 {
		return SignatureUnverified, h.Kid, nil, from
	}
	for _, key := range keys {
		for _, form := range v.forms {
			if v.checked += max(len(form), leastChecked); v.checked > maxChecked {
				return SignatureInvalid, h.Kid, nil, fmt.Sprintf("more than %d MiB of text would have to be checked with all keys that it may be of; let its header name one (kid)", maxChecked>>20)
			}
			if verified(form, protected, signature, key) {
				return SignatureVerified, key.KeyID, form, from
			}
		}
	}
	return SignatureInvalid, h.Kid, nil, "the card is not what was signed with key " + quoted(h.Kid)
}

// verified checks a signature over form.
func verified(form []byte, protected, signature string, key jose.JSONWebKey) bool {
	jws, err := jose.ParseDetached(protected+".."+signature, form, algorithms())
	return err == nil && jws.DetachedVerify(form, key) == nil
}

// keysFor gives the keys that may have made a signature, and where they are
// from; without any, why there are none.
func (v *verifier) keysFor(ctx context.Context, h header) (keys []jose.JSONWebKey, from string) {
	if v.pinned {
		if keys = fitting(v.keys, h); len(keys) == 0 {
			return nil, fmt.Sprintf("protocol_config.card_keys holds no key %s for %s", quoted(h.Kid), h.Alg)
		}
		return keys, "protocol_config.card_keys"
	}
	if h.Jku == "" {
		return nil, "nothing says where its key is; give the key in protocol_config.card_keys"
	}
	u, err := url.Parse(h.Jku)
	if err != nil || u.Scheme != "https" || u.User != nil || !strings.EqualFold(u.Host, v.at.Host) {
		return nil, "its key set (jku) is not at an https URL on the card's own host; give the key in protocol_config.card_keys"
	}
	set, seen := v.fetched[h.Jku]
	if !seen {
		set, err = v.fetchKeys(ctx, u)
		if err != nil {
			return nil, "its key set could not be fetched: " + messageOf(err)
		}
		v.fetched[h.Jku] = set
	}
	if keys = fitting(set, h); len(keys) == 0 {
		return nil, fmt.Sprintf("the key set of the card's host holds no key %s for %s", quoted(h.Kid), h.Alg)
	}
	return keys, "the key set of the card's host"
}

func (v *verifier) fetchKeys(ctx context.Context, u *url.URL) ([]jose.JSONWebKey, error) {
	reply, err := v.ask(ctx, u.String())
	if err != nil {
		return nil, err
	}
	if reply.Status != 200 {
		return nil, parley.Errorf(parley.CodeAgentRejected, "HTTP %d", reply.Status)
	}
	return ReadKeys(reply.Body)
}

// ReadKeys reads a JSON Web Key Set (RFC 7517), or one key of it, at most 64
// keys and 256 KiB. Keys of kinds that cannot sign cards are left out, private
// keys are read as their public halves. The error is a [*bridge.DefectError].
func ReadKeys(text []byte) ([]jose.JSONWebKey, error) {
	if len(text) > maxKeySet {
		return nil, bridge.Defectf("too_large", "the key set is larger than %d bytes", maxKeySet)
	}
	raw, err := bridge.CheckJSON("the key set", text)
	if err != nil {
		return nil, err
	}
	m := membersOf(raw)
	var keys []jose.JSONWebKey
	read := func(one []byte) {
		var k jose.JSONWebKey
		if len(keys) < maxKeys && json.Unmarshal(one, &k) == nil {
			if k = k.Public(); k.Valid() && k.Use != "enc" && !weak(k) {
				keys = append(keys, k)
			}
		}
	}
	switch {
	case m["keys"] != nil:
		for one := range bridge.Elements(m["keys"]) {
			read(one)
		}
	case m["kty"] != nil:
		read(raw)
	}
	if len(keys) == 0 {
		return nil, bridge.Defectf("no_keys", "the key set holds no public key that could sign a card")
	}
	return keys, nil
}

func weak(k jose.JSONWebKey) bool {
	r, ok := k.Key.(*rsa.PublicKey)
	return ok && r.N.BitLen() < minRSA
}

// fitting gives the keys that h may mean. A signature without a key id may be of
// any of them.
func fitting(keys []jose.JSONWebKey, h header) []jose.JSONWebKey {
	var out []jose.JSONWebKey
	for _, k := range keys {
		if (h.Kid == "" || word(k.KeyID) == h.Kid) && (k.Algorithm == "" || k.Algorithm == h.Alg) {
			out = append(out, k)
		}
	}
	return out
}

// quoted shows a word that somebody else wrote.
func quoted(s string) string { return fmt.Sprintf("%q", word(s)) }
