package agentcard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

// TestAD14_CardForms: the forms of 0.3 and 1.0 are read as the same card.
func TestAD14_CardForms(t *testing.T) {
	t.Parallel()
	const same = `"name":"A","description":"d","version":"1.2","defaultInputModes":["text/plain","application/json"],"defaultOutputModes":["image/png"],` +
		`"skills":[{"id":"s1","name":"x"},{"name":"no id"},{"id":"s2"}],"signatures":[{},{}],`
	old := `{` + same + `"protocolVersion":"0.3.0","url":"https://a/rpc","preferredTransport":"JSONRPC",
"additionalInterfaces":[{"url":"https://a/rpc","transport":"JSONRPC"},{"url":"https://a:1","transport":"GRPC"},{"url":"https://a/r","transport":"HTTP+JSON"}],
"capabilities":{"streaming":true,"pushNotifications":true,"stateTransitionHistory":false},"supportsAuthenticatedExtendedCard":true,
"securitySchemes":{"key":{"type":"apiKey","in":"query","name":"k"},"web":{"type":"http","scheme":"Bearer"},"basic":{"type":"http","scheme":"basic"},
 "oauth":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"https://t/","scopes":{"r":"","w":""}}}},
 "oidc":{"type":"openIdConnect","openIdConnectUrl":"https://o/"},"cert":{"type":"mutualTLS"}},
"security":[{"key":[]},{"oauth":["r"],"cert":[]},{}]}`
	modern := `{` + same + `"supportedInterfaces":[{"url":"https://a/rpc","protocolBinding":"JSONRPC","protocolVersion":"0.3.0"},
{"url":"https://a:1","protocolBinding":"GRPC","protocolVersion":"0.3.0"},{"url":"https://a/r","protocolBinding":"HTTP+JSON","protocolVersion":"0.3.0"}],
"capabilities":{"streaming":true,"pushNotifications":true,"extendedAgentCard":true},
"securitySchemes":{"key":{"apiKeySecurityScheme":{"location":"query","name":"k"}},"web":{"httpAuthSecurityScheme":{"scheme":"Bearer"}},
 "basic":{"httpAuthSecurityScheme":{"scheme":"basic"}},
 "oauth":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":"https://t/","scopes":{"r":"","w":""}}}}},
 "oidc":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://o/"}},"cert":{"mtlsSecurityScheme":{}}},
"securityRequirements":[{"schemes":{"key":{"list":[]}}},{"schemes":{"oauth":{"list":["r"]},"cert":{}}},{"schemes":{}}]}`
	want := agentcard.Card{
		Name: "A", Description: "d", Version: "1.2", Streaming: true, Push: true, Extended: true, Signatures: 2,
		Interfaces: []agentcard.Interface{
			{URL: "https://a/rpc", Binding: "JSONRPC", Version: "0.3.0"},
			{URL: "https://a:1", Binding: "GRPC", Version: "0.3.0"},
			{URL: "https://a/r", Binding: "HTTP+JSON", Version: "0.3.0"},
		},
		InputModes: []string{"text/plain", "application/json"}, OutputModes: []string{"image/png"}, Skills: []string{"s1", "s2"},
		Schemes: map[string]parley.SecurityScheme{
			"key": {Name: "key", Type: "apiKey", In: "query", Param: "k"}, "web": {Name: "web", Type: "http", Scheme: "Bearer"},
			"basic": {Name: "basic", Type: "http", Scheme: "basic"}, "oauth": {Name: "oauth", Type: "oauth2", TokenURL: "https://t/"},
			"oidc": {Name: "oidc", Type: "openIdConnect"}, "cert": {Name: "cert", Type: "mutualTLS"},
		},
		Security: []agentcard.Requirement{{"key": nil}, {"oauth": {"r"}, "cert": nil}, {}},
	}
	for i, text := range []string{old, modern} {
		want.Modern = i == 1
		got, err := agentcard.Parse([]byte(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%d: %v (-want +got):\n%s", i, err, diff)
		}
	}
}

// TestAD14_Asks: what a card asks for is named with the flags to give.
func TestAD14_Asks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ schemes, security, want, line string }{
		{`"x":{"type":"apiKey","in":"cookie","name":"it's"}`, `{"x":[]}`, "apikey", `the card asks for authentication: --auth apikey --auth-name 'it'\''s' --auth-in cookie --auth-secret env:`},
		{`"x":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":"https://t/x"}}}}`, `{"x":["r"]}`, "oauth2", "--auth-token-url https://t/x --auth-client-id CLIENT_ID --auth-scope r"},
		{`"x":{"type":"http","scheme":"bearer"},"c":{"type":"mutualTLS"}`, `{"x":[],"c":[]}`, "bearer", "--auth bearer"},
		{`"x":{"type":"magic"}`, `{"x":[]}`, "", `its type "magic" is not known`},
		{``, `{"y":[]}`, "", `scheme "y"`},
		{`"x":{"type":"http","scheme":"bearer"}`, `{"x":[]},{}`, "-", ""},
		{`"x":{"type":"http","scheme":"bearer"}`, ``, "-", ""},
	} {
		card := `{"name":"A","url":"/","protocolVersion":"0.3.0","securitySchemes":{` + tt.schemes + `},"security":[` + tt.security + `]}`
		f, err := newRig(t, map[string]http.Handler{"a.example": serve(newPath, card)}).Detect(t.Context(), agentAt("https://a.example/"))
		got := "-"
		if f.Auth != nil {
			got = string(f.Auth.Type)
		}
		if err != nil || got != tt.want || !has(f.Explanation, tt.line) || tt.want == "-" && has(f.Explanation, "asks for") {
			t.Errorf("%s: %q, %v, want %q:\n%s", tt.security, got, err, tt.want, strings.Join(f.Explanation, "\n"))
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	var schemes strings.Builder
	for i := range 100 {
		fmt.Fprintf(&schemes, `,"s%d":{"type":"http"}`, i)
	}
	card, err := agentcard.Parse([]byte(`{"name":"` + strings.Repeat("n", 1000) + `","description":"` + strings.Repeat("d", 100_000) + "\\u0000\\u001b[31m\\u202e" + `",
"supportedInterfaces":[` + many(200, iface("https://a/", "JSONRPC", "1.0")) + `],"skills":[` + many(200, `{"id":"s"}`) + `],
"defaultInputModes":[` + many(200, `"m"`) + `],"securitySchemes":{` + schemes.String()[1:] + `},"security":[` + many(200, `{"s1":[`+many(200, `"x"`)+`]}`) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(card.Interfaces) != 64 || len(card.Skills) != 64 || len(card.InputModes) != 32 || len(card.Schemes) != 32 || len(card.Security) != 16 ||
		len(card.Security[0]["s1"]) != 32 || utf8.RuneCountInString(card.Name) != 256 || utf8.RuneCountInString(card.Description) != 4096 ||
		strings.ContainsAny(card.Description, "\x00\x1b\u202e") {
		t.Errorf("%d %d %d %d %d", len(card.Interfaces), len(card.Skills), len(card.InputModes), len(card.Schemes), len(card.Security))
	}
	for text, kind := range map[string]string{
		``: "empty", `<html>`: "HTML", `[]`: "JSON object", `{}`: "no agent card", `{"name":"x"}`: "no agent card", `{"name":"x","url":null}`: "no agent card",
		`{"name":"x","url":"u"`: "not JSON", "{\"name\":\"\xff\"}": "UTF-8", strings.Repeat("[", 100): "deep",
	} {
		if _, err := agentcard.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), kind) {
			t.Errorf("%.20q: %v, want %s", text, err, kind)
		}
	}
}

// No card makes the detector fail otherwise than with an error of ours, and what
// it takes is on the agent's own host.
func FuzzDetect(f *testing.F) {
	for _, seed := range []string{
		signedCard, card03(`,"url":"https://a.example/rpc","signatures":[{"protected":"e30","signature":"AA"}]`),
		card10(iface("a.example:1", "GRPC", "1.0") + "," + iface("//b.example/", "JSONRPC", "1.0")), card10(iface("rpc?x#y", "JSONRPC", "")),
		`{"name":"n","url":"https://[::1%25x]/"}`, `{"name":"n","url":"https:a"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, card string) {
		r := agentcard.New(agentcard.Config{
			Exchange: &network{hosts: map[string]http.Handler{"a.example": serve(newPath, card)}},
			Now:      func() time.Time { return time.Time{} }, NewID: func() string { return "1" },
		})
		found, err := r.Detect(t.Context(), agentAt("https://a.example/"))
		if err != nil {
			if c := parley.CodeOf(err); c != parley.CodeAgentRejected && c != parley.CodeAgentUnavailable {
				t.Errorf("%v", err)
			}
			return
		}
		if u, err := url.Parse(found.URL); err != nil || u.Hostname() != "a.example" || u.Scheme != "https" {
			t.Errorf("taken: %q", found.URL)
		}
		b, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		again, ok := parley.ReadDetection(b)
		if !ok || !utf8.Valid(b) || !reflect.DeepEqual(again.URL, found.URL) {
			t.Errorf("stored as %s", b)
		}
	})
}
