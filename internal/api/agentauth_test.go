package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

var secretsEqual = cmp.Comparer(func(a, b parley.Secret) bool { return string(a.Reveal()) == string(b.Reveal()) })

func TestAgentAuthForms(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/agents", `{"name":"a","url":"https://a"}`)
	literal := func(s string) parley.Secret { return parley.NewSecret([]byte(s)) }
	oauth := &parley.OAuth2{TokenURL: "https://l/t", ClientID: "c", Scopes: []string{"x", "y"}, Audience: "z", Style: "body"}
	for _, tt := range []struct {
		name, body string
		want       *parley.AuthSpec
		tls        *parley.TLSSpec
	}{
		{"bearer", `{"auth":{"type":"Bearer","token":"t"}}`, &parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("t")}, nil},
		{"none", `{"auth":{"type":"none"}}`, &parley.AuthSpec{Type: parley.AuthNone}, nil},
		{"absent", `{"auth":null,"tls":null}`, nil, nil},
		{
			"mtls", `{"auth":{"type":"mtls"},"tls":{"cert":"file:c","key":"PEM\nx","ca":""}}`, &parley.AuthSpec{Type: parley.AuthMTLS},
			&parley.TLSSpec{Cert: parley.SecretSpec{Secret: "file:c"}, Key: parley.SecretSpec{Literal: literal("PEM\nx")}},
		},
		{"tls as shown", `{"tls":{"key":"[redacted]"}}`, nil, &parley.TLSSpec{Key: parley.SecretSpec{Secret: "[redacted]"}}},
		{"no tls", `{"tls":{}}`, nil, &parley.TLSSpec{}},
		{
			"query", `{"auth":{"type":"apikey","in":"Query","name":"api key","secret":"env:K"}}`,
			&parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "api key", Secret: "env:K"}, nil,
		},
		{
			"cookie in the old form", `{"auth_type":"apikey","auth_config":{"in":"cookie","name":"sid","key":"k"}}`,
			&parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid", Literal: literal("k")}, nil,
		},
		{
			"a name that was dropped", `{"auth_type":"apikey","auth_config":{"name":"x","key":"k"}}`,
			&parley.AuthSpec{Type: parley.AuthAPIKey, Literal: literal("k")}, nil,
		},
		{"basic", `{"auth":{"type":"basic","user":"Ann","password":"p w"}}`, &parley.AuthSpec{Type: parley.AuthBasic, User: "Ann", Literal: literal("p w")}, nil},
		{"headers", `{"auth":{"type":"headers","headers":{"X-A":"env:A","X-B":"b","X-C":"[redacted]"}}}`, &parley.AuthSpec{
			Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:A"}, "X-B": {Literal: literal("b")}, "X-C": {}},
		}, nil},
		{
			"oauth2", `{"auth":{"type":"oauth2","token_url":"https://l/t","client_id":"c","secret":"env:S","scopes":["x","y"],"audience":"z","auth_style":"Body"}}`,
			&parley.AuthSpec{Type: parley.AuthOAuth2, Secret: "env:S", OAuth2: oauth}, nil,
		},
		{
			"oauth2 in the old form", `{"auth_type":"oauth2","auth_config":{"token_url":"https://l/t","client_id":"c","client_secret":"s","scopes":"x y","audience":"z","auth_style":"body"}}`,
			&parley.AuthSpec{Type: parley.AuthOAuth2, Literal: literal("s"), OAuth2: oauth}, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := call(h, "PUT", "/api/v1/agents/a", tt.body)
			if rec.Code != 200 {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
			got := w.specs[len(w.specs)-1]
			if diff := cmp.Diff(tt.want, got.Auth, secretsEqual); diff != "" {
				t.Errorf("auth (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.tls, got.TLS, secretsEqual); diff != "" {
				t.Errorf("tls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAgentAuthFaults(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for body, want := range map[string]string{
		`"auth":{}`:                "body.auth.type",
		`"auth":{"type":"digest"}`: "body.auth.type",
		`"auth":"bearer"`:          "body.auth",
		`"auth":{"type":"bearer","token":"t"},"auth_type":"none"`:   "body.auth",
		`"auth":{"type":"basic","user":"u"}`:                        "body.auth.password",
		`"auth":{"type":"oauth2","client_secret":"s","scopes":[1]}`: "body.auth.scopes",
		`"auth":{"type":"headers","headers":{"X-A":1}}`:             "body.auth.headers.X-A",
		`"auth":{"type":"apikey","in":"body","key":"k"}`:            "body.auth.in",
		`"auth":{"type":"basic","secret":"hunter2"}`:                "body.auth.secret",
		`"tls":{"cert":7}`: "body.tls.cert",
		`"tls":[]`:         "body.tls",
	} {
		rec := call(h, "POST", "/api/v1/agents", `{"name":"n","url":"https://n",`+body+`}`)
		var got struct{ Errors []struct{ Field string } }
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != 422 || len(got.Errors) != 1 || got.Errors[0].Field != want {
			t.Errorf("%s: %d %s, want a fault at %s", body, rec.Code, rec.Body, want)
		}
		if strings.Contains(rec.Body.String(), "hunter2") {
			t.Errorf("%s shows the secret", body)
		}
	}
}

// What is shown of an agent holds no secret, and sent back it changes nothing.
func TestAgentAuthShown(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	for _, tt := range []struct {
		auth parley.Auth
		tls  parley.AgentTLS
		want string // from auth_type on
		back parley.AuthSpec
	}{
		{parley.Auth{Type: parley.AuthBearer, Secret: "sealed:t0p"}, parley.AgentTLS{}, `"bearer","auth_config":{"token":"[redacted]"}`, parley.AuthSpec{Type: parley.AuthBearer}},
		{
			parley.Auth{Type: parley.AuthAPIKey, Header: "k", In: parley.InQuery, Secret: "env:K"},
			parley.AgentTLS{},
			`"apikey","auth_config":{"secret":"env:K","name":"k","in":"query"}`,
			parley.AuthSpec{Type: parley.AuthAPIKey, Header: "k", In: parley.InQuery, Secret: "env:K"},
		},
		{
			parley.Auth{Type: parley.AuthBasic, User: "u", Secret: "sealed:t0p"},
			parley.AgentTLS{},
			`"basic","auth_config":{"password":"[redacted]","user":"u"}`,
			parley.AuthSpec{Type: parley.AuthBasic, User: "u"},
		},
		{
			parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"X-A": "env:A", "X-B": "sealed:t0p"}},
			parley.AgentTLS{},
			`"headers","auth_config":{"headers":{"X-A":"env:A","X-B":"[redacted]"}}`,
			parley.AuthSpec{Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:A"}, "X-B": {}}},
		},
		{
			parley.Auth{Type: parley.AuthOAuth2, Secret: "sealed:t0p", OAuth2: &parley.OAuth2{TokenURL: "https://l/t", ClientID: "c", Scopes: []string{"x"}}},
			parley.AgentTLS{},
			`"oauth2","auth_config":{"client_secret":"[redacted]","token_url":"https://l/t","client_id":"c","scopes":["x"]}`,
			parley.AuthSpec{Type: parley.AuthOAuth2, OAuth2: &parley.OAuth2{TokenURL: "https://l/t", ClientID: "c", Scopes: []string{"x"}}},
		},
		{parley.Auth{Type: parley.AuthMTLS}, parley.AgentTLS{Cert: "file:c", Key: "sealed:t0p"}, `"mtls","auth_config":null`, parley.AuthSpec{Type: parley.AuthMTLS}},
	} {
		t.Run(string(tt.auth.Type), func(t *testing.T) {
			shown, err := json.Marshal(makeAgent(parley.Agent{
				Name: "a", URL: "https://a/", Protocol: parley.ProtocolSimpleA2A, Auth: tt.auth, TLS: tt.tls,
				Timeout: 30e9, Retry: parley.DefaultRetryConfig(), Status: parley.AgentActive,
			}))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(shown), `"auth_type":`+tt.want+`,"timeout_ms"`) || strings.Contains(string(shown), "t0p") {
				t.Errorf("shown %s", shown)
			}
			if wantTLS := tt.tls != (parley.AgentTLS{}); wantTLS != strings.Contains(string(shown), `"tls":{"cert":"file:c","key":"[redacted]"}`) {
				t.Errorf("shown %s", shown)
			}
			call(h, "POST", "/api/v1/agents", `{"name":"`+string(tt.auth.Type)+`","url":"https://a"}`)
			if rec := call(h, "PUT", "/api/v1/agents/"+string(tt.auth.Type), string(shown)); rec.Code != 200 {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
			got := w.specs[len(w.specs)-1]
			if diff := cmp.Diff(&tt.back, got.Auth, secretsEqual); diff != "" {
				t.Errorf("sent back (-want +got):\n%s", diff)
			}
			if got.TLS != nil && (got.TLS.Cert.Secret != "file:c" || got.TLS.Key.Secret != "[redacted]") {
				t.Errorf("sent back %+v", got.TLS)
			}
		})
	}
}
