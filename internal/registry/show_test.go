package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/registry"
)

// TestShowSection: agents are shown as they stand in the file, but for credentials.
func TestShowSection(t *testing.T) {
	for _, tt := range []struct {
		name, agents, want string
		masked             bool
	}{
		{name: "none", agents: "log: {level: info}"},
		{name: "null", agents: "agents:"},
		{name: "an empty list", agents: "agents: []"},
		{
			name:   "order, numbers, aliases",
			agents: `agents: [{name: a, url: &u http://a, timeout: 30s, retry: {multiplier: +1.5, max_retries: 3}, idempotent: True}, {url: *u, name: "1.0", protocol_config: {n: 12345678901234567890123, x: [1.10, ~, {}, []]}}]`,
			want:   `[{"name":"a","url":"http://a","timeout":"30s","retry":{"multiplier":1.5,"max_retries":3},"idempotent":true},{"url":"http://a","name":"1.0","protocol_config":{"n":12345678901234567890123,"x":[1.10,null,{},[]]}}]`,
		},
		{
			name:   "references",
			agents: `agents: [{name: a, url: http://a, auth: {type: bearer, secret: env:A}, tls: {ca: file:ca.pem}}, {name: b, url: http://b, auth_type: apikey, auth_config: {api_key: "file:k", header_name: X-K}}]`,
			want:   `[{"name":"a","url":"http://a","auth":{"type":"bearer","secret":"env:A"},"tls":{"ca":"file:ca.pem"}},{"name":"b","url":"http://b","auth_type":"apikey","auth_config":{"api_key":"file:k","header_name":"X-K"}}]`,
		},
		{
			name: "credentials", masked: true,
			agents: `agents: [{name: a, url: http://a, auth: {type: basic, user: ann, password: hunter2}}, {name: b, url: http://b, auth_type: bearer, auth_config: {token: hunter2, more: [hunter2, {x: hunter2}]}}]`,
			want:   `[{"name":"a","url":"http://a","auth":{"type":"basic","user":"ann","password":"[redacted]"}},{"name":"b","url":"http://b","auth_type":"bearer","auth_config":{"token":"[redacted]","more":["[redacted]",{"x":"[redacted]"}]}}]`,
		},
		{
			name: "of headers and OAuth", masked: true,
			agents: `agents: [{name: a, url: http://a, auth: {type: headers, headers: {name: hunter2, X-B: env:B}}}, {name: b, url: http://b, auth: {type: oauth2, token_url: "https://b/t", client_id: c, client_secret: env:C, scopes: [x, y]}}]`,
			want:   `[{"name":"a","url":"http://a","auth":{"type":"headers","headers":{"name":"[redacted]","X-B":"env:B"}}},{"name":"b","url":"http://b","auth":{"type":"oauth2","token_url":"https://b/t","client_id":"c","client_secret":"env:C","scopes":["x","y"]}}]`,
		},
		{
			name: "behind an alias", masked: true,
			agents: `agents: [{name: a, url: http://a, description: &s hunter1, auth: {type: bearer, token: *s}}]`,
			want:   `[{"name":"a","url":"http://a","description":"hunter1","auth":{"type":"bearer","token":"[redacted]"}}]`,
		},
		{
			name: "of TLS", masked: true,
			agents: "agents: [{name: a, url: https://a, tls: {key: \"-----BEGIN PRIVATE KEY-----\\nhunter2\\n-----END PRIVATE KEY-----\\n\", cert: env:C}}] # hunter2",
			want:   `[{"name":"a","url":"https://a","tls":{"key":"[redacted]","cert":"env:C"}}]`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := []byte("data: d\n" + tt.agents)
			specs, problems := registry.LoadSection("a.yaml", file)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			got := registry.ShowSection(file)
			if diff := cmp.Diff(tt.want, string(got.JSON)); diff != "" || got.Masked != tt.masked {
				t.Errorf("masked %v (-want +got):\n%s", got.Masked, diff)
			}
			if strings.Contains(string(got.JSON), "hunter2") {
				t.Error("a credential is shown")
			}
			if tt.want == "" {
				return
			}
			if got.Line != 2 || !json.Valid(got.JSON) {
				t.Errorf("line %d", got.Line)
			}
			// It is such a section itself, unless something is hidden.
			again, problems := registry.LoadSection("b.yaml", []byte(`{"agents": `+string(got.JSON)+"}"))
			if tt.masked {
				if len(problems) == 0 {
					t.Error("it is taken for what it was made of")
				}
				return
			}
			if diff := cmp.Diff(specs, again, secretsEqual); diff != "" || len(problems) > 0 {
				t.Error(problems, diff)
			}
		})
	}
}

// TestShowSection_OfWhatIsWrong: it is for LoadSection to say so.
func TestShowSection_OfWhatIsWrong(t *testing.T) {
	for _, text := range []string{"", "[", "a: 1\n---\nb: 2", "agents: hello", "- agents", "agents: &a [*a]", "agents: [&a {name: a, protocol_config: {x: *a}}]", "agents: [!x {name: a}]"} {
		if got := registry.ShowSection([]byte(text)); got.JSON != nil {
			t.Errorf("%q: %s", text, got.JSON)
		}
	}
}
