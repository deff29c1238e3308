package agentcard_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

const (
	token = "c4nary-token"
	// announced10 and announced03 make public cards announce an extended one.
	announced10 = `,"capabilities":{"extendedAgentCard":true}`
	announced03 = `,"supportsAuthenticatedExtendedCard":true`
)

// known is an agent of which the record has a credential.
func known(address string, config ...string) parley.Agent {
	a := agentAt(address, config...)
	a.Auth, a.Credential = parley.Auth{Type: parley.AuthBearer}, parley.NewSecret([]byte(token))
	return a
}

// rich gives an extended card of 1.0 that declares everything.
func rich(interfaces string) string {
	return `{"name":"Rich","supportedInterfaces":[` + interfaces + `],"capabilities":{"streaming":true,"pushNotifications":true,"extendedAgentCard":true},` +
		`"defaultInputModes":["application/json"],"defaultOutputModes":["text/plain"],"securitySchemes":{"k":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"securityRequirements":[{"schemes":{"k":{"list":[]}}}]}`
}

func result(card string) string {
	return `{"jsonrpc":"2.0","id":"parley-card-1","result":` + card + `}`
}

// shows serves a public card at its place, and gives everything else to other.
func shows(card string, other http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == newPath {
			_, _ = io.WriteString(w, card)
			return
		}
		other(w, r)
	})
}

// extendedWith answers whatever is asked for but the public card.
func extendedWith(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// TestAD14_ExtendedCard: how the extended card is asked for in each dialect and
// over each binding, and that it replaces the public one.
func TestAD14_ExtendedCard(t *testing.T) {
	t.Parallel()
	const h = "https://a.example"
	tenant := func(binding string) string {
		return `{"url":"https://a.example/r/?v=1","protocolBinding":"` + binding + `","protocolVersion":"1.0","tenant":"acme corp"}`
	}
	rpc10 := iface(h+"/rpc", "JSONRPC", "1.0")
	const old03 = `,"url":"https://a.example/rpc","capabilities":{"streaming":true,"pushNotifications":true},"defaultInputModes":["application/json"],"defaultOutputModes":["text/plain"],` +
		`"securitySchemes":{"k":{"type":"http","scheme":"bearer"}},"security":[{"k":[]}]`
	for _, tt := range []struct {
		name, agent, config, public, extended string
		// line, version and body are the one question's.
		line, version, body string
		want                string // "binding version url"
	}{
		{
			"1.0 JSON-RPC", h + "/", ``, card10(rpc10, announced10), result(rich(rpc10)),
			"POST /rpc", "1.0", `{"jsonrpc":"2.0","id":"parley-card-1","method":"GetExtendedAgentCard","params":{}}`, "JSONRPC 1.0 https://a.example/rpc",
		},
		{
			"1.0 JSON-RPC, tenant", h + "/", ``, card10(tenant("JSONRPC"), announced10), result(rich(tenant("JSONRPC"))),
			"POST /r/", "1.0", `{"jsonrpc":"2.0","id":"parley-card-1","method":"GetExtendedAgentCard","params":{"tenant":"acme corp"}}`, "JSONRPC 1.0 https://a.example/r/?v=1",
		},
		{
			"1.0 HTTP+JSON", h + "/", ``, card10(iface(h+"/rest", "HTTP+JSON", "1.0"), announced10), rich(iface(h+"/rest", "HTTP+JSON", "1.0")),
			"GET /rest/extendedAgentCard", "1.0", "", "HTTP+JSON 1.0 https://a.example/rest",
		},
		{
			"1.0 HTTP+JSON, tenant", h + "/", ``, card10(tenant("HTTP+JSON"), announced10), rich(tenant("HTTP+JSON")),
			"GET /r/acme corp/extendedAgentCard?v=1", "1.0", "", "HTTP+JSON 1.0 https://a.example/r/?v=1",
		},
		{
			"0.3 JSON-RPC", h + "/", ``, card03(`,"url":"/rpc"` + announced03), result(card03(old03)),
			"POST /rpc", "", `{"jsonrpc":"2.0","id":"parley-card-1","method":"agent/getAuthenticatedExtendedCard"}`, "JSONRPC 0.3 https://a.example/rpc",
		},
		{
			"a union, asked in 1.0", h + "/", ``, card03(`,"url":"/old","supportedInterfaces":[` + rpc10 + `]` + announced03), result(rich(rpc10)),
			"POST /rpc", "1.0", "", "JSONRPC 1.0 https://a.example/rpc",
		},
		{
			"gRPC beside JSON-RPC", h + "/", ``, card10(iface("a.example:443", "GRPC", "1.0")+","+rpc10, announced10), result(rich(iface("a.example:443", "GRPC", "1.0"))),
			"POST /rpc", "1.0", "", "GRPC 1.0 https://a.example:443",
		},
		{
			"gRPC pinned beside JSON-RPC", h + "/", `{"binding":"GRPC","url":"a.example:50051"}`, card10(iface("a.example:443", "GRPC", "1.0")+","+rpc10, announced10), result(rich(iface("a.example:443", "GRPC", "1.0"))),
			"POST /rpc", "1.0", "", "GRPC 1.0 a.example:50051",
		},
		{
			"a WebSocket with a card", "wss://a.example/", ``, card10(rpc10, announced10), result(rich(rpc10)),
			"POST /rpc", "1.0", "", "JSONRPC 1.0 wss://a.example/",
		},
		{
			"another interface in the extended card", h + "/", ``, card10(iface(h+"/old", "JSONRPC", "0.3"), announced10), result(rich(rpc10)),
			"POST /old", "", `{"jsonrpc":"2.0","id":"parley-card-1","method":"agent/getAuthenticatedExtendedCard"}`, "JSONRPC 1.0 https://a.example/rpc",
		},
		{
			"pins go before the extended card", h + "/", `{"a2a":"1.0","url":"https://a.example/mine"}`, card10(rpc10, announced10), result(rich(rpc10)),
			"POST /mine", "1.0", "", "JSONRPC 1.0 https://a.example/mine",
		},
		{
			"no address and no version in the extended card", h + "/", ``, card10(rpc10, announced10),
			result(`{"name":"Rich","capabilities":{"streaming":true,"pushNotifications":true},"defaultInputModes":["application/json"],"defaultOutputModes":["text/plain"],"securitySchemes":{"k":{"type":"http","scheme":"bearer"}},"security":[{"k":[]}]}`),
			"POST /rpc", "1.0", "", "JSONRPC 1.0 https://a.example/rpc",
		},
		{
			"no version in the extended card", h + "/", ``, card10(rpc10, announced10),
			result(strings.Replace(card03(old03), `"protocolVersion":"0.3.0",`, "", 1)),
			"POST /rpc", "1.0", "", "JSONRPC 1.0 https://a.example/rpc",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked []*http.Request
			var body string
			r := newRig(t, map[string]http.Handler{"a.example": shows(tt.public, func(w http.ResponseWriter, req *http.Request) {
				b, _ := io.ReadAll(req.Body)
				asked, body = append(asked, req), string(b)
				_, _ = io.WriteString(w, tt.extended)
			})})
			f, err := r.Detect(t.Context(), known(tt.agent, tt.config))
			if err != nil || len(asked) != 1 {
				t.Fatalf("%d questions, %v: %v", len(asked), err, f.Explanation)
			}
			q := asked[0]
			line := q.Method + " " + q.URL.Path
			if q.Method == http.MethodGet && q.URL.RawQuery != "" {
				line += "?" + q.URL.RawQuery
			}
			if line != tt.line || q.Header.Get("A2A-Version") != tt.version || q.Header.Get("Authorization") != "Bearer "+token || tt.body != "" && body != tt.body ||
				strings.HasPrefix(line, "GET") && (body != "" || !strings.Contains(q.Header.Get("Accept"), "application/a2a+json")) {
				t.Errorf("%s, %v, %s", line, q.Header, body)
			}
			if got := f.Binding + " " + f.Version + " " + f.URL; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if !f.Streaming || !f.Push || len(f.InputModes) != 1 || f.InputModes[0] != "application/json" || len(f.OutputModes) != 1 ||
				f.Auth == nil || f.Auth.Type != parley.AuthBearer || f.CardURL != "https://a.example"+newPath {
				t.Errorf("%+v", f)
			}
			if !has(f.Explanation, "the extended card from https://a.example") || !has(f.Explanation, "is used in place of the public one") || has(f.Explanation, "v=1 (") {
				t.Errorf("explanation: %s", strings.Join(f.Explanation, "\n"))
			}
		})
	}
}

// TestACTS_ClientAuth001: ACTS CLIENT-AUTH-001, once the extended card is there,
// the client goes by its capabilities, and does not ask for it again.
func TestACTS_ClientAuth001(t *testing.T) {
	t.Parallel()
	rpc := iface("https://a.example/rpc", "JSONRPC", "1.0")
	r := newRig(t, map[string]http.Handler{"a.example": shows(card10(rpc, announced10), func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, result(rich(rpc)))
	})})
	anonymous, err := r.Detect(t.Context(), agentAt("https://a.example/"))
	if err != nil || anonymous.Streaming || anonymous.Push || len(r.lines()) != 1 {
		t.Errorf("without a credential: %+v, %v", anonymous, err)
	}
	f, err := r.Detect(t.Context(), known("https://a.example/"))
	if got := r.lines(); err != nil || !f.Streaming || !f.Push || f.Name != "Rich" || len(got) != 2 {
		t.Errorf("asked %v: %+v, %v", got, f, err)
	}
	again, err := r.Detect(t.Context(), known("https://a.example/"))
	if err != nil || !again.Streaming || len(r.lines()) != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	if f, err := r.Refresh(t.Context(), known("https://a.example/")); err != nil || !f.Streaming || len(r.lines()) != 2 {
		t.Errorf("refreshed: %+v, %v", f, err)
	}
	if anonymous.CardHash == f.CardHash {
		t.Error("the extended card counts for the public one")
	}
}

// TestAD14_ExtendedCardRefused: whatever stands in the way of the extended card,
// the public one is used, and the explanation says why.
func TestAD14_ExtendedCardRefused(t *testing.T) {
	t.Parallel()
	rpc, rest := iface("https://a.example/rpc", "JSONRPC", "1.0"), iface("https://a.example/rest", "HTTP+JSON", "1.0")
	restError := func(reason string) string {
		return `{"error":{"code":400,"message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + reason + `","domain":"a2a-protocol.org"}]}}`
	}
	for _, tt := range []struct {
		name, use string
		status    int
		answer    string
		line      string
	}{
		{"none is configured", rpc, 200, rpcError("-32007", "Extended card not configured"), "error -32007 (no extended card is configured)"},
		{"not supported", rpc, 200, rpcError("-32004", "no"), "error -32004 (not supported)"},
		{"an unknown method", rpc, 200, rpcError("-32601", "no"), "error -32601 (it does not know the method)"},
		{"an internal error", rpc, 200, rpcError("-32603", "extended card not supported"), "error -32603 (internal error)"},
		{"not found", rpc, 200, rpcError("-32001", "no"), "error -32001 (not found)"},
		{"another version", rpc, 400, rpcError("-32009", "no"), "error -32009 (it does not speak this version)"},
		{"a code of its own", rpc, 200, rpcError("-31401", "who are you"), "error -31401;"},
		{"on an error status", rpc, 500, rpcError("-32007", "no"), "error -32007"},
		{"a result on an error status", rpc, 500, result(rich(rpc)), "the answer (HTTP 500) is no result of JSON-RPC"},
		{"401", rpc, 401, "", "wants other credentials for it (HTTP 401)"},
		{"403", rpc, 403, rpcError("-31403", "no"), "wants other credentials for it (HTTP 403)"},
		{"404", rpc, 404, "<html>", "HTTP 404"},
		{"a redirect", rpc, 302, "", "HTTP 302"},
		{"busy", rpc, 503, "", "HTTP 503"},
		{"a page", rpc, 200, "<html>hello", "the answer is no JSON object"},
		{"nothing", rpc, 200, "", "the answer is no JSON object"},
		{"a list", rpc, 200, "[]", "the answer is no JSON object"},
		{"no result", rpc, 200, `{"jsonrpc":"2.0","id":"1"}`, "is no result of JSON-RPC"},
		{"a null result", rpc, 200, result("null"), "the card is no JSON object"},
		{"no card", rpc, 200, result(`{"id":"t"}`), "is no agent card"},
		{"a bare card over JSON-RPC", rpc, 200, rich(rpc), "is no result of JSON-RPC"},
		{"too large", rpc, 200, result(`{"name":"` + strings.Repeat("x", agentcard.MaxBody) + `"}`), "https://a.example/rpc is larger than 1048576 bytes"},
		{"too deep", rpc, 200, result(strings.Repeat("[", 100000)), "the answer is no JSON object"},
		{"nothing to call in it", rpc, 200, result(rich(iface("https://b.example/rpc", "JSONRPC", "1.0"))), "offers nothing that can be called here"},
		{"without TLS in it", rpc, 200, result(rich(iface("http://a.example/rpc", "JSONRPC", "1.0"))), "extended card: interface 1 (JSONRPC 1.0) not taken: it is without TLS"},
		{"REST: none is configured", rest, 400, restError("EXTENDED_AGENT_CARD_NOT_CONFIGURED"), "HTTP 400 (no extended card is configured)"},
		{"REST: not supported", rest, 501, restError("UNSUPPORTED_OPERATION"), "HTTP 501 (not supported)"},
		{"REST: another version", rest, 400, restError("VERSION_NOT_SUPPORTED"), "HTTP 400 (it does not speak this version)"},
		{"REST: something else", rest, 400, restError("SOMETHING"), "HTTP 400;"},
		{"REST: 401", rest, 401, `{}`, "HTTP 401"},
		{"REST: 404", rest, 404, "nothing here", "HTTP 404"},
		{"REST: a page", rest, 200, "<html>", "the answer is no JSON object"},
		{"REST: no card", rest, 200, `{}`, "is no agent card"},
		{"gRPC only", iface("a.example:443", "GRPC", "1.0"), 418, "", "over JSON-RPC and HTTP+JSON only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]http.Handler{"a.example": shows(card10(tt.use, announced10), extendedWith(tt.status, tt.answer))})
			f, err := r.Detect(t.Context(), known("https://a.example/"))
			if err != nil || f.Name != "N" || f.Streaming || f.Push || f.Protocol != parley.ProtocolJSONRPC || !strings.HasPrefix(f.URL, "https://a.example") {
				t.Fatalf("%+v, %v", f, err)
			}
			if !has(f.Explanation, tt.line) || !has(f.Explanation, "the public card is used") || has(f.Explanation, "in place of") {
				t.Errorf("no %q in:\n%s", tt.line, strings.Join(f.Explanation, "\n"))
			}
			if n := len(r.lines()); n > 2 {
				t.Errorf("%d questions", n)
			}
		})
	}
	// What the agent does not announce is not asked for.
	r := newRig(t, map[string]http.Handler{"a.example": shows(card10(rpc), extendedWith(200, result(rich(rpc))))})
	if f, err := r.Detect(t.Context(), known("https://a.example/")); err != nil || f.Streaming || len(r.lines()) != 1 || has(f.Explanation, "extended") {
		t.Errorf("not announced: %+v, %v", f, err)
	}
}

// TestAD14_ExtendedCardSignature: an extended card that is not what was signed,
// or not signed where the operator demands it, has no effect at all.
func TestAD14_ExtendedCardSignature(t *testing.T) {
	t.Parallel()
	s, other := newSigner(t, jose.ES256, "key-1"), newSigner(t, jose.ES256, "key-1")
	s.jku = "https://a.example/keys"
	rpc := iface("https://a.example/rpc", "JSONRPC", "1.0")
	public, extended := card10(rpc, announced10), rich(rpc)
	signed := s.sign(t, extended, canonical(t, extended))
	// Members of 0.3 that were not signed say nothing.
	mute := strings.Replace(extended, `,"securityRequirements":[{"schemes":{"k":{"list":[]}}}]`, "", 1)
	mixed := strings.Replace(s.sign(t, mute, canonical(t, mute)), `"name"`, `"security":[{"k":[]}],"name"`, 1)
	for _, tt := range []struct{ name, extended, config, signature, line string }{
		{"valid, with something unsigned", mixed, ``, "verified", "in place of"},
		{"valid", signed, ``, "verified", "extended card: signature 1 of the card is valid"},
		{"valid, pinned keys", signed, pinned(set(t, s)), "verified", "in place of"},
		{"unsigned", extended, ``, "none", "in place of"},
		{"unsigned, pinned keys", extended, pinned(set(t, s)), "", "the extended card is not used: it is not signed"},
		{"of another key", other.sign(t, extended, canonical(t, extended)), pinned(set(t, s)), "", "the extended card is not used: its signature is not valid"},
		{"a capability changed", strings.Replace(signed, `"pushNotifications":true`, `"pushNotifications":false`, 1), ``, "", "the extended card is not used: its signature is not valid"},
		{"an address changed", strings.Replace(signed, "a.example/rpc", "a.example/evil", 1), ``, "", "its signature is not valid"},
		{"a mode changed", strings.Replace(signed, "application/json", "text/html", 1), pinned(set(t, s)), "", "its signature is not valid"},
		{"a name that repeats", strings.Replace(signed, `"name"`, `"name":"x","name"`, 1), ``, "", "its signature is not valid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			front := s.sign(t, public, canonical(t, public))
			r := newRig(t, map[string]http.Handler{"a.example": shows(front, func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/keys" {
					_, _ = io.WriteString(w, set(t, s))
					return
				}
				_, _ = io.WriteString(w, result(tt.extended))
			})})
			f, err := r.Detect(t.Context(), known("https://a.example/", tt.config))
			if err != nil || !has(f.Explanation, tt.line) {
				t.Fatalf("no %q: %+v, %v", tt.line, f.Explanation, err)
			}
			want, used := tt.signature, tt.signature != ""
			if !used {
				want = "verified" // the public card's
			}
			if f.Signature != want || f.Streaming != used || f.Push != used || f.URL != "https://a.example/rpc" || (f.Name == "Rich") != used ||
				(f.Auth != nil) != (used && tt.extended != mixed) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestAD14_ExtendedCardCredential: the extended card is asked for with a
// credential or not at all, and where the agent may be called.
func TestAD14_ExtendedCardCredential(t *testing.T) {
	t.Parallel()
	secret := func(text string) parley.Secret { return parley.NewSecret([]byte(text)) }
	rpc := iface("https://a.example/rpc", "JSONRPC", "1.0")
	for _, tt := range []struct {
		name, url string
		change    func(*parley.Agent)
		asked     bool
	}{
		{"bearer", "https://a.example/", func(*parley.Agent) {}, true},
		{"none", "https://a.example/", func(a *parley.Agent) { a.Auth.Type, a.Credential = parley.AuthNone, parley.Secret{} }, false},
		{"nothing is said", "https://a.example/", func(a *parley.Agent) { a.Auth.Type = "" }, false},
		{"nothing was resolved", "https://a.example/", func(a *parley.Agent) { a.Credential = parley.Secret{} }, false},
		{"headers", "https://a.example/", func(a *parley.Agent) {
			a.Auth.Type, a.Resolved = parley.AuthHeaders, &parley.ResolvedAuth{Headers: map[string]parley.Secret{"X-A": secret("a")}}
		}, true},
		{"no headers", "https://a.example/", func(a *parley.Agent) { a.Auth.Type, a.Resolved = parley.AuthHeaders, &parley.ResolvedAuth{} }, false},
		{"a certificate", "https://a.example/", func(a *parley.Agent) {
			a.Auth.Type, a.Resolved = parley.AuthMTLS, &parley.ResolvedAuth{Cert: secret("pem")}
		}, true},
		{"only a root certificate", "https://a.example/", func(a *parley.Agent) { a.Auth.Type, a.Resolved = "", &parley.ResolvedAuth{CA: secret("pem")} }, false},
		{"a certificate without TLS", "http://a.example/", func(a *parley.Agent) {
			a.Auth.Type, a.Resolved = parley.AuthMTLS, &parley.ResolvedAuth{Cert: secret("pem")}
		}, false},
	} {
		use := strings.Replace(rpc, "https:", strings.TrimSuffix(tt.url, "//a.example/"), 1)
		r := newRig(t, map[string]http.Handler{"a.example": shows(card10(use, announced10), extendedWith(200, result(rich(use))))})
		a := known(tt.url)
		tt.change(&a)
		f, err := r.Detect(t.Context(), a)
		if n := len(r.lines()); err != nil || f.Streaming != tt.asked || n != 1 && !tt.asked || !tt.asked && !has(f.Explanation, "was not fetched, as the agent's record has no credential for "+tt.url+"rpc") {
			t.Errorf("%s: %d questions, %+v, %v", tt.name, n, f, err)
		}
	}

	// Where it goes: never to another host but one that the operator has named.
	var sent []string
	note := func(host string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			sent = append(sent, host+" "+req.Header.Get("Authorization"))
			_, _ = io.WriteString(w, result(rich(rpc)))
		}
	}
	far, port := iface("https://b.example/rpc", "JSONRPC", "1.0"), iface("https://a.example:8443/rpc", "JSONRPC", "1.0")
	for _, tt := range []struct{ name, card, config, want string }{
		{"the first interface is elsewhere", card10(far+","+rpc, announced10), ``, "a Bearer " + token},
		{"another port", card10(port, announced10), ``, "a:8443 Bearer " + token},
		{"a pinned host", card10(rpc, announced10), `{"url":"https://b.example/rpc"}`, "b Bearer " + token},
		{"elsewhere, with gRPC pinned", card10(iface("a.example:443", "GRPC", "1.0")+","+far, announced10), `{"binding":"GRPC"}`, ""},
		{"gRPC pinned elsewhere", card10(iface("a.example:443", "GRPC", "1.0")+","+rpc, announced10), `{"binding":"GRPC","url":"b.example:443"}`, "a Bearer " + token},
	} {
		sent = nil
		r := newRig(t, map[string]http.Handler{"a.example": shows(tt.card, note("a")), "a.example:8443": note("a:8443"), "b.example": note("b")})
		if f, err := r.Detect(t.Context(), known("https://a.example/", tt.config)); err != nil || strings.Join(sent, ";") != tt.want {
			t.Errorf("%s: sent %v, %v\n%s", tt.name, sent, err, strings.Join(f.Explanation, "\n"))
		}
	}
}

// An agent that repeats its caller's credential does not get it into what is
// stored, over the exchange that calls are made with.
func TestAD14_ExtendedCardSecrets(t *testing.T) {
	t.Parallel()
	rpc := iface("http://a.example/rpc", "JSONRPC", "1.0")
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + token + `"}`))
	card := strings.Replace(rich(iface("http://a.example/rpc", token, "1.0")+","+rpc), "Rich", "Rich "+token, 1)
	for name, answer := range map[string]string{
		"an error":    rpcError("-32603", "bad token "+token),
		"not JSON":    "who is " + token,
		"a card":      result(card),
		"a signature": result(withSignature(t, card, `{"protected":"`+header+`","signature":"AAAA"}`)),
	} {
		server := httptest.NewServer(shows(card10(rpc, announced10), func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") != "Bearer "+token {
				t.Errorf("%s: authorization %q", name, req.Header.Get("Authorization"))
			}
			w.Header().Set("WWW-Authenticate", token)
			_, _ = io.WriteString(w, answer)
		}))
		x := bridge.NewExchange(bridge.ExchangeConfig{
			Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			},
		})
		d := agentcard.New(agentcard.Config{Exchange: x, Now: time.Now, NewID: func() string { return "1" }})
		f, err := d.Detect(t.Context(), known("http://a.example/"))
		b, _ := json.Marshal(f)
		if err != nil || strings.Contains(string(b), token) {
			t.Errorf("%s: %s, %v", name, b, err)
		}
		if strings.HasPrefix(name, "a ") && !f.Streaming {
			t.Errorf("%s: the extended card is not used: %s", name, strings.Join(f.Explanation, "\n"))
		}
		x.Close()
		server.Close()
	}
}

// What was missing for the moment is asked for again soon, and a caller who went
// away decides nothing for the others.
func TestAD14_ExtendedCardLater(t *testing.T) {
	t.Parallel()
	rest := iface("https://a.example/rest", "HTTP+JSON", "1.0")
	status, control := http.StatusServiceUnavailable, ""
	ctx, leave := context.WithCancel(t.Context())
	during := func() {}
	r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == newPath {
			w.Header().Set("Cache-Control", "max-age=3600")
			_, _ = io.WriteString(w, card10(rest, announced10))
			return
		}
		during()
		w.Header().Set("Cache-Control", control)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, rich(rest))
	})})
	a := known("https://a.example/")
	detect := func(streaming bool, asked int) {
		t.Helper()
		f, err := r.Detect(t.Context(), a)
		if n := len(r.lines()); err != nil || f.Streaming != streaming || n != asked {
			t.Errorf("%d questions, %+v, %v", n, f, err)
		}
	}
	detect(false, 2)
	r.clock.pass(29 * time.Second)
	detect(false, 0)
	status, control = http.StatusOK, "max-age=60"
	r.clock.pass(2 * time.Second)
	detect(true, 2)
	r.clock.pass(59 * time.Second)
	detect(true, 0)
	control = ""
	r.clock.pass(2 * time.Second)
	detect(true, 2)
	r.clock.pass(3590 * time.Second)
	detect(true, 0)

	r.clock.pass(time.Minute)
	during = leave
	if _, err := r.Detect(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("left: %v", err)
	}
	r.lines()
	detect(true, 2)
}

// A secret that has changed behind its reference is another credential: the agent is asked
// again at once, whatever kind of authentication that is.
func TestAD14_ExtendedCardRotated(t *testing.T) {
	t.Parallel()
	secret := func(s string) parley.Secret { return parley.NewSecret([]byte(s)) }
	for name, rotated := range map[string]func(a *parley.Agent, to string){
		"one secret": func(a *parley.Agent, to string) {
			a.Auth, a.Credential = parley.Auth{Type: parley.AuthBearer, Secret: "file:token"}, secret(to)
		},
		"headers": func(a *parley.Agent, to string) {
			a.Auth, a.Credential = parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"X-A": "file:a", "X-B": "file:b"}}, parley.Secret{}
			a.Resolved = &parley.ResolvedAuth{Headers: map[string]parley.Secret{"X-A": secret("a"), "X-B": secret(to)}}
		},
		"a certificate": func(a *parley.Agent, to string) {
			a.Auth, a.Credential, a.TLS = parley.Auth{Type: parley.AuthMTLS}, parley.Secret{}, parley.AgentTLS{Cert: "file:cert", Key: "file:key"}
			a.Resolved = &parley.ResolvedAuth{Cert: secret(to), Key: secret("key")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := http.StatusForbidden
			rest := iface("https://a.example/rest", "HTTP+JSON", "1.0")
			r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if w.Header().Set("Cache-Control", "max-age=3600"); req.URL.Path == newPath {
					_, _ = io.WriteString(w, card10(rest, announced10))
					return
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, rich(rest))
			})})
			a := known("https://a.example/")
			detect := func(secret string, streaming bool, asked int) {
				t.Helper()
				rotated(&a, secret)
				f, err := r.Detect(t.Context(), a)
				if n := len(r.lines()); err != nil || f.Streaming != streaming || n != asked {
					t.Errorf("%d questions, streaming %v, %v; want %d, %v", n, f.Streaming, err, asked, streaming)
				}
			}
			detect("wrong", false, 2)
			detect("wrong", false, 0)
			status = http.StatusOK
			detect("right", true, 2)
			detect("right", true, 0)
		})
	}
}

// A dialect that the agent has refused is not asked for the extended card.
func TestAD14_ExtendedCardRenegotiated(t *testing.T) {
	t.Parallel()
	both := iface("https://a.example/new", "JSONRPC", "1.0") + "," + iface("https://a.example/old", "JSONRPC", "0.3")
	r := newRig(t, map[string]http.Handler{"a.example": shows(card10(both, announced10), extendedWith(200, result(rich(both))))})
	f, err := r.Renegotiate(t.Context(), known("https://a.example/"), "1.0")
	if got := r.lines(); err != nil || f.URL != "https://a.example/old" || f.Version != "0.3" || !f.Streaming || len(got) != 2 || got[1] != "POST /old" {
		t.Errorf("asked %v: %+v, %v", got, f, err)
	}
	// An extended card that offers nothing but what was refused is of no use.
	rest := iface("https://a.example/rest", "HTTP+JSON", "1.0")
	both = rest + "," + iface("https://a.example/old", "JSONRPC", "0.3")
	r = newRig(t, map[string]http.Handler{"a.example": shows(card10(both, announced10), extendedWith(200, result(rich(rest))))})
	f, err = r.Renegotiate(t.Context(), known("https://a.example/"), "1.0")
	if err != nil || f.URL != "https://a.example/old" || f.Streaming || !has(f.Explanation, "the public card is used") {
		t.Errorf("nothing else: %+v, %v", f, err)
	}
	// A card without a version: the probe comes first, once.
	silent := `{"name":"N","url":"/rpc"` + announced03 + `}`
	r = newRig(t, map[string]http.Handler{"a.example": shows(silent, func(w http.ResponseWriter, req *http.Request) {
		switch b, _ := io.ReadAll(req.Body); {
		case strings.Contains(string(b), `"GetTask"`):
			_, _ = io.WriteString(w, rpcError("-32001", "no"))
		case strings.Contains(string(b), `"GetExtendedAgentCard"`):
			_, _ = io.WriteString(w, result(rich(iface("/rpc", "JSONRPC", "1.0"))))
		default:
			_, _ = io.WriteString(w, rpcError("-32601", "no"))
		}
	})})
	f, err = r.Detect(t.Context(), known("https://a.example/"))
	if got := r.lines(); err != nil || f.Version != "1.0" || !f.Streaming || len(got) != 4 {
		t.Errorf("asked %v: %+v, %v", got, f, err)
	}
}
