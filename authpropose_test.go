package parley_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

func TestProposeAuth(t *testing.T) {
	key := parley.SecurityScheme{Name: "k", Type: "apiKey", In: "header", Param: "X-Key"}
	other := parley.SecurityScheme{Name: "k2", Type: "apiKey", In: "header", Param: "X-Other"}
	query := parley.SecurityScheme{Name: "q", Type: "apiKey", In: "query", Param: "api key"}
	bearer := parley.SecurityScheme{Name: "b", Type: "http", Scheme: "Bearer"}
	basic := parley.SecurityScheme{Name: "c", Type: "http", Scheme: "BASIC"}
	digest := parley.SecurityScheme{Name: "d", Type: "http", Scheme: "digest"}
	oauth := parley.SecurityScheme{Name: "o", Type: "oauth2", TokenURL: "https://idp.example/token", Scopes: []string{"a", "b c"}}
	person := parley.SecurityScheme{Name: "p", Type: "oauth2"}
	oidc := parley.SecurityScheme{Name: "i", Type: "openIdConnect"}
	tls := parley.SecurityScheme{Name: "t", Type: "mutualTLS"}
	set := func(s ...parley.SecurityScheme) []parley.SecurityScheme { return s }
	const ref = "--auth-secret env:PARLEY_SECRET_NAME"
	for _, tt := range []struct {
		name         string
		alternatives [][]parley.SecurityScheme
		want         parley.AuthProposal
		flags        string
	}{
		{"no requirement", nil, parley.AuthProposal{Type: parley.AuthNone}, ""},
		{"optional", [][]parley.SecurityScheme{set(key), set()}, parley.AuthProposal{Type: parley.AuthNone}, ""},
		{"key", [][]parley.SecurityScheme{set(key)}, parley.AuthProposal{Type: parley.AuthAPIKey, Header: "X-Key", In: parley.InHeader}, "--auth apikey --auth-name X-Key " + ref},
		{"key in the query", [][]parley.SecurityScheme{set(query)}, parley.AuthProposal{Type: parley.AuthAPIKey, Header: "api key", In: parley.InQuery}, "--auth apikey --auth-name 'api key' --auth-in query " + ref},
		{"bearer", [][]parley.SecurityScheme{set(bearer)}, parley.AuthProposal{Type: parley.AuthBearer}, "--auth bearer " + ref},
		{"basic", [][]parley.SecurityScheme{set(basic)}, parley.AuthProposal{Type: parley.AuthBasic}, "--auth basic --auth-user USER " + ref},
		{
			"client credentials",
			[][]parley.SecurityScheme{set(oauth)},
			parley.AuthProposal{Type: parley.AuthOAuth2, TokenURL: "https://idp.example/token", Scopes: []string{"a", "b c"}},
			"--auth oauth2 --auth-token-url https://idp.example/token --auth-client-id CLIENT_ID --auth-scope a --auth-scope 'b c' " + ref,
		},
		{"certificate", [][]parley.SecurityScheme{set(tls)}, parley.AuthProposal{Type: parley.AuthMTLS, TLS: true}, "--auth mtls --tls-cert file:CERT.pem --tls-key file:KEY.pem"},
		{"certificate and token", [][]parley.SecurityScheme{set(tls, bearer)}, parley.AuthProposal{Type: parley.AuthBearer, TLS: true}, "--auth bearer " + ref + " --tls-cert file:CERT.pem --tls-key file:KEY.pem"},
		{
			"two keys",
			[][]parley.SecurityScheme{set(key, other)},
			parley.AuthProposal{Type: parley.AuthHeaders, Headers: []string{"X-Key", "X-Other"}},
			"--auth headers --auth-header X-Key=env:PARLEY_SECRET_NAME --auth-header X-Other=env:PARLEY_SECRET_NAME",
		},
		{"the first that can be done", [][]parley.SecurityScheme{set(digest), set(key), set(bearer)}, parley.AuthProposal{Type: parley.AuthAPIKey, Header: "X-Key", In: parley.InHeader}, "--auth apikey --auth-name X-Key " + ref},
		{"a secret rather than a person", [][]parley.SecurityScheme{set(person), set(oidc), set(basic)}, parley.AuthProposal{Type: parley.AuthBasic}, "--auth basic --auth-user USER " + ref},
		{"nothing can be done", [][]parley.SecurityScheme{set(digest), set(query, key)}, parley.AuthProposal{
			Note: `scheme "d": HTTP authentication "digest" is not spoken; several credentials at once are possible in headers only`,
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parley.ProposeAuth(tt.alternatives)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if flags := got.Flags(); flags != tt.flags {
				t.Errorf("flags %s\nwant  %s", flags, tt.flags)
			}
		})
	}
}

// TestProposeAuthUntrusted: what a card says can neither end the quotes nor
// steer a terminal.
func TestProposeAuthUntrusted(t *testing.T) {
	p := parley.ProposeAuth([][]parley.SecurityScheme{{{
		Type: "oauth2", TokenURL: "https://x/'; rm -rf ~; '\x1b[2J\n" + strings.Repeat("y", 1000), Scopes: []string{"$(reboot)"},
	}}})
	got := p.Flags()
	for _, bad := range []string{"\x1b", "\n", " $("} {
		if strings.Contains(got, bad) {
			t.Errorf("%q in %q", bad, got)
		}
	}
	if !strings.Contains(got, `'\''; rm -rf ~; '\''`) || !strings.Contains(got, `'$(reboot)'`) || len(got) > 600 {
		t.Errorf("flags %s", got)
	}
}
