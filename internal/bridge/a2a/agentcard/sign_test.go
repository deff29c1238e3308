package agentcard_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

// signer signs cards as an agent's operator would.
type signer struct {
	alg jose.SignatureAlgorithm
	kid string
	key crypto.Signer
	jku string
}

func newSigner(t *testing.T, alg jose.SignatureAlgorithm, kid string) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.ES512:
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer{alg: alg, kid: kid, key: key}
}

// sign gives the card with a signature over payload, its canonical form.
func (s signer) sign(t *testing.T, card, payload string) string {
	t.Helper()
	o := (&jose.SignerOptions{}).WithType("JOSE")
	if s.jku != "" {
		o.WithHeader("jku", s.jku)
	}
	js, err := jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: jose.JSONWebKey{Key: s.key, KeyID: s.kid}}, o)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := js.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	var flat struct{ Protected, Signature string }
	if err := json.Unmarshal([]byte(jws.FullSerialize()), &flat); err != nil {
		t.Fatal(err)
	}
	return withSignature(t, card, fmt.Sprintf(`{"protected":%q,"signature":%q}`, flat.Protected, flat.Signature))
}

func withSignature(t *testing.T, card, signature string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(card), &m); err != nil {
		t.Fatal(err)
	}
	list := []json.RawMessage{}
	if m["signatures"] != nil {
		if err := json.Unmarshal(m["signatures"], &list); err != nil {
			t.Fatal(err)
		}
	}
	m["signatures"], _ = json.Marshal(append(list, json.RawMessage(signature)))
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// set is the key set that holds the public keys of signers.
func set(t *testing.T, signers ...signer) string {
	t.Helper()
	var keys jose.JSONWebKeySet
	for _, s := range signers {
		keys.Keys = append(keys.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid, Algorithm: string(s.alg), Use: "sig"})
	}
	b, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	v := jsontext.Value(text)
	if err := v.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// signed is what is signed in these tests: with defaults that the canonical form
// leaves out (§8.4.1), and its canonical form.
const (
	signedCard = `{
  "version": "1", "name": "Signed Agent", "description": "",
  "supportedInterfaces": [{"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": ""}],
  "capabilities": {"streaming": false, "pushNotifications": true, "extensions": []},
  "defaultInputModes": ["text/plain"], "defaultOutputModes": [], "skills": [],
  "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": ""}}},
  "securityRequirements": [{"schemes": {"k": {"list": []}}}], "iconUrl": ""
}`
	signedForm = `{"capabilities":{"pushNotifications":true,"streaming":false},"defaultInputModes":["text/plain"],"defaultOutputModes":[],` +
		`"description":"","iconUrl":"","name":"Signed Agent","securityRequirements":[{"schemes":{"k":{}}}],` +
		`"securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}},"skills":[],` +
		`"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://a.example/rpc"}],"version":"1"}`
)

// detectCard detects an agent that serves card, and keys at /keys.
func detectCard(t *testing.T, card, keys, config string) (agentcard.Found, error) {
	t.Helper()
	r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case newPath:
			_, _ = io.WriteString(w, card)
		case "/keys":
			_, _ = io.WriteString(w, keys)
		default:
			http.NotFound(w, r)
		}
	})})
	return r.Detect(t.Context(), agentAt("https://a.example/", config))
}

func pinned(keys string) string { return `{"card_keys":` + keys + `}` }

// TestAD14_Signatures: a signed card is verified in every algorithm and every
// form that signers use.
func TestAD14_Signatures(t *testing.T) {
	t.Parallel()
	for _, alg := range []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.PS256, jose.EdDSA} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			s := newSigner(t, alg, "key-1")
			f, err := detectCard(t, s.sign(t, signedCard, signedForm), "", pinned(set(t, s)))
			if err != nil || f.Signature != "verified" || f.SignatureKey != "key-1" || f.URL != "https://a.example/rpc" || !f.Push {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
	s := newSigner(t, jose.ES256, "key-1")
	const python = `{"capabilities":{"pushNotifications":true,"streaming":false},"defaultInputModes":["text/plain"],"name":"Signed Agent",` +
		`"securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}},` +
		`"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://a.example/rpc"}],"version":"1"}`
	union := strings.Replace(signedCard, `"version"`, `"url":"https://a.example/old","protocolVersion":"0.3.0","preferredTransport":"JSONRPC","version"`, 1)
	foreign := strings.Replace(signedCard, "Signed Agent", "Größe 😀", 1)
	for _, tt := range []struct{ name, card, payload string }{
		{"as it stands", signedCard, canonical(t, signedCard)},
		{"without anything empty", signedCard, python},
		{"without the security schemes", signedCard, python[:strings.Index(python, `"securitySchemes"`)] + python[strings.Index(python, `"supportedInterfaces"`):]},
		{"without the members of 0.3", union, signedForm},
		{"with the members of 0.3", union, canonical(t, union)},
		{"escaped", foreign, strings.Replace(python, "Signed Agent", `Gr\u00f6\u00dfe \ud83d\ude00`, 1)},
		{"0.3", card03(`,"url":"https://a.example/rpc"`), canonical(t, card03(`,"url":"https://a.example/rpc"`))},
	} {
		if f, err := detectCard(t, s.sign(t, tt.card, tt.payload), "", pinned(set(t, s))); err != nil || f.Signature != "verified" || f.URL != "https://a.example/rpc" {
			t.Errorf("%s: %+v, %v", tt.name, f, err)
		}
	}
	// What was not signed has no effect, even if it does not break the signature.
	mixed := strings.Replace(s.sign(t, signedCard, signedForm), `"name"`, `"preferredTransport":"JSONRPC","url":"https://a.example/evil","supportsAuthenticatedExtendedCard":true,"name"`, 1)
	if f, err := detectCard(t, mixed, "", pinned(set(t, s))); err != nil || f.Signature != "verified" || f.URL != "https://a.example/rpc" {
		t.Errorf("unsigned members: %+v, %v", f, err)
	}
	const open = `"securityRequirements":[{"schemes":{"k":{}}}],`
	lenient := s.sign(t, strings.Replace(signedCard, `  "securityRequirements": [{"schemes": {"k": {"list": []}}}], "iconUrl"`, `  "iconUrl"`, 1), strings.Replace(signedForm, open, "", 1))
	asking := strings.Replace(lenient, `"name"`, `"security":[{"k":[]}],"name"`, 1)
	if f, err := detectCard(t, asking, "", pinned(set(t, s))); err != nil || f.Signature != "verified" || f.Auth != nil || !strings.Contains(asking, `"security":`) {
		t.Errorf("an unsigned member of 0.3 has an effect: %+v, %v", f.Auth, err)
	}
}

// Cards that the official SDKs have signed are verified: testdata holds what
// a2a-sdk 1.3.0 (Python) and @a2a-js/sdk 1.3.0 made of cards of ours, with the
// public keys.
func TestAD14_SignaturesOfOthers(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"signed-python-1.3.0.json": 2, "signed-javascript-1.3.0.json": 2} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var o struct{ Keys, Cards json.RawMessage }
		var cards []json.RawMessage
		if err := errors.Join(json.Unmarshal(text, &o), json.Unmarshal(o.Cards, &cards)); err != nil || len(cards) != count {
			t.Fatalf("%s: %d cards, %v", name, len(cards), err)
		}
		for i, card := range cards {
			if f, err := detectCard(t, string(card), "", pinned(string(o.Keys))); err != nil || f.Signature != "verified" || f.URL != "https://a.example/rpc" {
				t.Errorf("%s, card %d: %+v, %v", name, i, f, err)
			}
			bad := strings.Replace(string(card), "https://a.example/rpc", "https://a.example/evil", 1)
			if _, err := detectCard(t, bad, "", pinned(string(o.Keys))); parley.CodeOf(err) != parley.CodeAgentRejected {
				t.Errorf("%s, card %d, changed: %v", name, i, err)
			}
		}
	}
}

// TestAD14_SignatureTampering: no member can be changed, added or left out.
func TestAD14_SignatureTampering(t *testing.T) {
	t.Parallel()
	s := newSigner(t, jose.ES256, "key-1")
	s.jku = "https://a.example/keys"
	card := s.sign(t, signedCard, signedForm)
	if f, err := detectCard(t, card, set(t, s), ``); err != nil || f.Signature != "verified" {
		t.Fatalf("untouched: %+v, %v", f, err)
	}
	var whole map[string]any
	if err := json.Unmarshal([]byte(card), &whole); err != nil {
		t.Fatal(err)
	}
	try := func(name string, change func(map[string]any)) {
		t.Helper()
		var m map[string]any
		if err := json.Unmarshal([]byte(card), &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		b, _ := json.Marshal(m)
		f, err := detectCard(t, string(b), set(t, s), ``)
		if parley.CodeOf(err) != parley.CodeAgentRejected || !strings.Contains(err.Error(), "signature is not valid") {
			t.Errorf("%s: %q, %v", name, f.Signature, err)
		}
	}
	for _, member := range slices.Sorted(maps.Keys(whole)) {
		if member == "signatures" {
			continue
		}
		try("without "+member, func(m map[string]any) {
			if member == "supportedInterfaces" {
				m["url"] = "https://a.example/evil" // else it is no card
			}
			if member == "name" {
				m["name"] = "somebody else"
				return
			}
			delete(m, member)
		})
		try("another "+member, func(m map[string]any) {
			switch v := m[member].(type) {
			case string:
				m[member] = v + "x"
			case []any:
				m[member] = append(v, map[string]any{"url": "https://a.example/evil", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "schemes": map[string]any{"z": map[string]any{}}})
			case map[string]any:
				v["added"] = map[string]any{"streaming": true}
				v["streaming"] = true
			}
		})
	}
	try("a URL", func(m map[string]any) {
		m["supportedInterfaces"].([]any)[0].(map[string]any)["url"] = "https://a.example/evil"
	})
	try("a capability", func(m map[string]any) { m["capabilities"].(map[string]any)["streaming"] = true })
	try("the name of a key", func(m map[string]any) {
		m["securitySchemes"].(map[string]any)["k"].(map[string]any)["apiKeySecurityScheme"].(map[string]any)["name"] = "X-Other"
	})
	try("a tenant", func(m map[string]any) { m["supportedInterfaces"].([]any)[0].(map[string]any)["tenant"] = "evil" })
	try("the signature", func(m map[string]any) {
		sig := m["signatures"].([]any)[0].(map[string]any)
		sig["signature"] = "AAAA" + sig["signature"].(string)[4:]
	})
	try("the header", func(m map[string]any) {
		sig := m["signatures"].([]any)[0].(map[string]any)
		h, _ := base64.RawURLEncoding.DecodeString(sig["protected"].(string))
		sig["protected"] = base64.RawURLEncoding.EncodeToString(append([]byte(" "), h...))
	})
	// A name that repeats has no canonical form.
	twice := strings.Replace(card, `"name"`, `"name":"evil","name"`, 1)
	if _, err := detectCard(t, twice, set(t, s), ``); parley.CodeOf(err) != parley.CodeAgentRejected {
		t.Errorf("a repeated name: %v", err)
	}
	// An operator may call the agent all the same, as it was pinned.
	bad := strings.Replace(card, "Signed Agent", "Signed Agenx", 1)
	f, err := detectCard(t, bad, set(t, s), `{"a2a":"1.0","url":"https://a.example/mine"}`)
	if err != nil || f.URL != "https://a.example/mine" || f.Signature != "invalid" || f.Name != "" {
		t.Errorf("pinned: %+v, %v", f, err)
	}
}

// TestAD14_SignatureKeys: which keys count, and what is said where none does.
func TestAD14_SignatureKeys(t *testing.T) {
	t.Parallel()
	s, other := newSigner(t, jose.ES256, "key-1"), newSigner(t, jose.ES256, "key-1")
	at := func(jku string) signer { c := s; c.jku = jku; return c }
	header := func(h string) string {
		return withSignature(t, signedCard, fmt.Sprintf(`{"protected":%q,"signature":"AAAA"}`, base64.RawURLEncoding.EncodeToString([]byte(h))))
	}
	plain := s.sign(t, signedCard, signedForm)
	for _, tt := range []struct{ name, card, keys, config, want, line string }{
		{"no signature", signedCard, "", ``, "none", ""},
		{"no key", plain, "", ``, "unverified", "give the key in protocol_config.card_keys"},
		{"the card's host", at("https://a.example/keys").sign(t, signedCard, signedForm), set(t, s), ``, "verified", "the key set of the card's host"},
		{"another host", at("https://b.example/keys").sign(t, signedCard, signedForm), set(t, s), ``, "unverified", "not at an https URL on the card's own host"},
		{"another port", at("https://a.example:444/keys").sign(t, signedCard, signedForm), set(t, s), ``, "unverified", ""},
		{"without TLS", at("http://a.example/keys").sign(t, signedCard, signedForm), set(t, s), ``, "unverified", ""},
		{"with a user", at("https://a@a.example/keys").sign(t, signedCard, signedForm), set(t, s), ``, "unverified", ""},
		{"no key set there", at("https://a.example/none").sign(t, signedCard, signedForm), set(t, s), ``, "unverified", "could not be fetched: HTTP 404"},
		{"an odd key set", at("https://a.example/keys").sign(t, signedCard, signedForm), `{"keys":[{"kty":"oct","k":"AAAA"}]}`, ``, "unverified", "no public key"},
		{"another key under the same id", at("https://a.example/keys").sign(t, signedCard, signedForm), set(t, other), ``, "agent_rejected", "signature is not valid"},
		{"one of two", other.sign(t, at("https://a.example/keys").sign(t, signedCard, signedForm), signedForm), set(t, s), ``, "verified", ""},
		{"the second of two", at("https://a.example/keys").sign(t, other.sign(t, signedCard, signedForm), signedForm), set(t, s), ``, "verified", ""},
		{"none", header(`{"alg":"none"}`), "", ``, "agent_rejected", "signs nothing"},
		{"None", header(`{"alg":"None","kid":"key-1"}`), "", pinned(set(t, s)), "agent_rejected", "signs nothing"},
		{"a shared secret", header(`{"alg":"HS256","kid":"key-1"}`), "", pinned(set(t, s)), "agent_rejected", "none of protocol_config.card_keys"},
		{"critical members", header(`{"alg":"ES256","kid":"key-1","crit":["x"],"x":1}`), "", ``, "unverified", "critical"},
		{"no header", withSignature(t, signedCard, `{"protected":"!","signature":"AAAA"}`), "", ``, "agent_rejected", "cannot be read"},

		{"pinned keys", plain, "", pinned(set(t, other, s)), "verified", ""},
		{"a pinned key alone", plain, "", pinned(strings.TrimSuffix(strings.TrimPrefix(set(t, s), `{"keys":[`), `]}`)), "verified", ""},
		{"pinned keys as a text", plain, "", pinned(fmt.Sprintf("%q", set(t, s))), "verified", ""},
		{"other pinned keys", plain, "", pinned(set(t, other)), "agent_rejected", ""},
		{"only pinned keys count", at("https://a.example/keys").sign(t, signedCard, signedForm), set(t, s), pinned(strings.ReplaceAll(set(t, other), "key-1", "key-2")), "agent_rejected", "none of protocol_config.card_keys has signed it"},
		{"pinned keys and no signature", signedCard, "", pinned(set(t, s)), "agent_rejected", "it is not signed"},
		{"pinned keys that are no keys", plain, "", pinned(`{"keys":[]}`), "invalid", "protocol_config.card_keys: the key set holds no public key"},
		{"pinned keys that cannot be had", plain, "", pinned(`"env:GONE"`), "agent_unavailable", "protocol_config.card_keys: secret env:GONE does not exist"},
		{"pinned keys and no card", `[]`, "", pinned(set(t, s)), "agent_rejected", "demands a signed one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := detectCard(t, tt.card, tt.keys, tt.config)
			got, lines := f.Signature, f.Explanation
			if err != nil {
				got, lines = string(parley.CodeOf(err)), []string{err.Error() + string(detailsOf(err))}
			}
			if got != tt.want || !has(lines, tt.line) {
				t.Errorf("%q, want %q, with %q in:\n%s", got, tt.want, tt.line, strings.Join(lines, "\n"))
			}
		})
	}
}

// TestAD14_SignaturesBounded: a card whose signatures may be of any of many keys is
// checked up to a bound, and not for minutes.
func TestAD14_SignaturesBounded(t *testing.T) {
	t.Parallel()
	s := newSigner(t, jose.ES256, "")
	s.jku = "https://a.example/keys"
	large := strings.Replace(signedCard, `"description": ""`, `"description": "`+strings.Repeat("x", 256<<10)+`"`, 1)
	keys := make([]signer, 64)
	for i := range keys {
		keys[i] = newSigner(t, jose.ES256, "")
	}
	f, err := detectCard(t, s.sign(t, s.sign(t, large, "{}"), "{}"), set(t, keys...), "")
	if parley.CodeOf(err) != parley.CodeAgentRejected || !has([]string{string(detailsOf(err))}, "let its header name one (kid)") {
		t.Errorf("%+v, %v %s", f, err, detailsOf(err))
	}
	f, err = detectCard(t, s.sign(t, signedCard, signedForm), set(t, append(keys[:31], s)...), "")
	if err != nil || f.Signature != "verified" {
		t.Errorf("32 keys and a small card: %+v, %v", f, err)
	}
}

func TestReadKeys(t *testing.T) {
	t.Parallel()
	s := newSigner(t, jose.ES256, "k")
	private, err := json.Marshal(jose.JSONWebKey{Key: s.key, KeyID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := agentcard.ReadKeys(private)
	if err != nil || len(keys) != 1 || !keys[0].IsPublic() {
		t.Errorf("a private key: %v, %v", keys, err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	enc, _ := json.Marshal(jose.JSONWebKey{Key: small.Public(), KeyID: "e", Use: "enc"})
	for _, text := range []string{
		``, `[]`, `{}`, `{"keys":[]}`, `{"keys":{}}`, `{"kty":"oct","k":"AAAA"}`, string(enc),
		`{"kty":"RSA","n":"` + strings.Repeat("A", 100) + `E","e":"AQAB"}`, `{"keys":["` + strings.Repeat("x", 256<<10) + `"]}`,
	} {
		if keys, err := agentcard.ReadKeys([]byte(text)); err == nil {
			t.Errorf("%.60s: %v", text, keys)
		}
		if text != "" && agentcard.CheckPins(json.RawMessage(pinned(text))) == nil {
			t.Errorf("%.60s passes the check", text)
		}
	}
	for _, ok := range []string{`"env:NAME"`, `"file:keys.json"`, string(private), "null"} {
		if err := agentcard.CheckPins(json.RawMessage(pinned(ok))); err != nil {
			t.Errorf("%.20s: %v", ok, err)
		}
	}
}
