package registry_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

func TestAD5_AuthFromOld(t *testing.T) {
	literal := func(s string) parley.Secret { return parley.NewSecret([]byte(s)) }
	tests := []struct {
		typ, config string
		want        parley.AuthSpec
		faults      string // paths, if it fails
	}{
		{"none", "", parley.AuthSpec{Type: parley.AuthNone}, ""},
		{"NONE", "null", parley.AuthSpec{Type: parley.AuthNone}, ""},
		{"none", "{}", parley.AuthSpec{}, "auth_config"},
		{"none", `{"token":"x"}`, parley.AuthSpec{}, "auth_config"},
		{"", "", parley.AuthSpec{Type: parley.AuthNone}, ""},
		{"", "{}", parley.AuthSpec{Type: parley.AuthNone}, ""},
		{"", `{"type":"none"}`, parley.AuthSpec{Type: parley.AuthNone}, ""},
		{"", `{"type":"none","token":"x"}`, parley.AuthSpec{}, "auth_config"},
		{"", `{"token":"x"}`, parley.AuthSpec{}, "auth_config.type"},
		{"bearer", "", parley.AuthSpec{Type: parley.AuthBearer}, ""},
		{"bearer", "null", parley.AuthSpec{Type: parley.AuthBearer}, ""},
		{"Bearer", `{"token":"t"}`, parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("t")}, ""},
		{" BEARER ", `{"token":"t","unknown":1}`, parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("t")}, ""},
		{"bearer", `{"type":"apikey","token":"t"}`, parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("t")}, ""},
		{"bearer", `{"token":"env:AGENT_X"}`, parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_X"}, ""},
		{"bearer", `{"token":"file:x"}`, parley.AuthSpec{Type: parley.AuthBearer, Secret: "file:x"}, ""},
		{"bearer", `{"token":"sealed:x"}`, parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("sealed:x")}, ""},
		{"bearer", `{}`, parley.AuthSpec{}, "auth_config.token"},
		{"bearer", `{"token":""}`, parley.AuthSpec{}, "auth_config.token"},
		{"bearer", `{"token":null}`, parley.AuthSpec{}, "auth_config.token"},
		{"bearer", `{"token":5}`, parley.AuthSpec{}, "auth_config.token"},
		{"bearer", `["t"]`, parley.AuthSpec{}, "auth_config"},
		{"bearer", `{"token":"t"`, parley.AuthSpec{}, "auth_config"},
		{"bearer", `{"token":"` + strings.Repeat("x", 16<<10) + `"}`, parley.AuthSpec{}, "auth_config"},
		{"", `{"type":"bearer","token":"t"}`, parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("t")}, ""},
		{"apikey", `{"key":"k"}`, parley.AuthSpec{Type: parley.AuthAPIKey, Literal: literal("k")}, ""},
		{"apikey", `{"api_key":"k","header_name":"X-K"}`, parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X-K", Literal: literal("k")}, ""},
		{"apikey", `{"key":"k","api_key":"k","header":"X-K","header_name":"X-K"}`, parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X-K", Literal: literal("k")}, ""},
		{"apikey", `{"key":"k","api_key":"l"}`, parley.AuthSpec{}, "auth_config.api_key"},
		{"apikey", `{"key":"k","header":"A","header_name":"B"}`, parley.AuthSpec{}, "auth_config.header"},
		{"apikey", `{"header":7}`, parley.AuthSpec{}, "auth_config.key auth_config.header"},
		{"", `{"type":"apikey","key":"k","header":"X-K"}`, parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X-K", Literal: literal("k")}, ""},
		{"header", `{"key":"k","header":"X-K"}`, parley.AuthSpec{Type: parley.AuthHeader, Header: "X-K", Literal: literal("k")}, ""},
		{"digest", "", parley.AuthSpec{}, "auth_type"},
		{"", `{"type":"digest"}`, parley.AuthSpec{}, "auth_config.type"},
		{"", `{"type":7,"token":"x"}`, parley.AuthSpec{}, "auth_config.type"},
	}
	for _, tt := range tests {
		t.Run(tt.typ+" "+tt.config[:min(40, len(tt.config))], func(t *testing.T) {
			got, err := registry.AuthFromOld(tt.typ, json.RawMessage(tt.config))
			if diff := cmp.Diff(tt.want, got, secretsEqual); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			paths := ""
			if err != nil {
				paths = strings.Join(pathsOf(t, err), " ")
			}
			if paths != tt.faults {
				t.Errorf("faults at %q (%v), want %q", paths, err, tt.faults)
			}
		})
	}
}

func FuzzAuthFromOld(f *testing.F) {
	f.Add("bearer", `{"token":"c4nary"}`)
	f.Add("", `{"type":"apikey","key":"c4nary","header_name":"X"}`)
	f.Add("none", `{"token":"c4nary"`)
	f.Add("x", "")
	f.Fuzz(func(t *testing.T, typ, config string) {
		spec, err := registry.AuthFromOld(typ, json.RawMessage(config))
		if err != nil {
			if parley.CodeOf(err) != parley.CodeInvalid || len(pathsOf(t, err)) == 0 {
				t.Errorf("%v has no details or another code", err)
			}
			var members map[string]any
			if json.Unmarshal([]byte(config), &members) == nil {
				for _, name := range []string{"token", "key", "api_key"} {
					if s, ok := members[name].(string); ok && len(s) > 40 && strings.Contains(err.Error(), s) {
						t.Errorf("%v quotes the credential", err)
					}
				}
			}
			return
		}
		switch spec.Type {
		case parley.AuthNone:
			if spec.Secret != "" || spec.Header != "" || !spec.Literal.IsZero() {
				t.Errorf("none with %+v", spec)
			}
		case parley.AuthBearer, parley.AuthAPIKey, parley.AuthHeader:
			if spec.Secret != "" && !spec.Literal.IsZero() {
				t.Errorf("both: %+v", spec)
			}
		default:
			t.Errorf("type %q", spec.Type)
		}
	})
}

// A literal is stored sealed, and a change that does not give one keeps it.
func TestAD5_LiteralsAreSealedAndKept(t *testing.T) {
	f := newFixture(t)
	literal := func(s string) parley.Secret { return parley.NewSecret([]byte(s)) }
	s := spec("x")
	s.Auth = &parley.AuthSpec{Type: parley.AuthAPIKey, Literal: literal("first")}
	first := f.mustAdd(t, s)
	if !strings.HasPrefix(first.Auth.Secret, "sealed:") || first.Auth.Header != "X-API-Key" {
		t.Fatalf("stored %+v", first.Auth)
	}
	f.mustAdd(t, spec("without"))
	tests := []struct {
		name   string
		agent  string
		auth   *parley.AuthSpec
		secret string // that is sent afterwards
		fault  string
	}{
		{"no auth", "x", nil, "first", ""},
		{"neither", "x", &parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X-Other"}, "first", ""},
		{"what the API shows", "x", &parley.AuthSpec{Type: "APIKEY", Literal: literal(registry.Sealed)}, "first", ""},
		{"the same as a reference", "x", &parley.AuthSpec{Type: parley.AuthAPIKey, Secret: registry.Sealed}, "first", ""},
		{"kept for header", "x", &parley.AuthSpec{Type: parley.AuthHeader, Header: "X-H", Secret: registry.Sealed}, "first", "auth.secret"},
		{"of another type", "x", &parley.AuthSpec{Type: parley.AuthBearer, Secret: registry.Sealed}, "first", "auth.secret"},
		{"where there is none", "without", &parley.AuthSpec{Type: parley.AuthBearer, Secret: registry.Sealed}, "", "auth.secret"},
		{"none where there is none", "without", &parley.AuthSpec{Type: parley.AuthBearer}, "", ""},
		{"a new one", "x", &parley.AuthSpec{Type: parley.AuthAPIKey, Literal: literal("second")}, "second", ""},
		{"a reference", "x", &parley.AuthSpec{Type: parley.AuthAPIKey, Secret: "env:AGENT_TOKEN"}, "from-the-env", ""},
		{"another type, nothing given", "x", &parley.AuthSpec{Type: parley.AuthBearer}, "", ""},
		{"none", "x", &parley.AuthSpec{}, "", ""},
	}
	for _, tt := range tests { // in order: each goes on from the one before
		_, err := f.Update(t.Context(), tt.agent, parley.AgentSpec{Auth: tt.auth})
		fault := ""
		if err != nil {
			fault = strings.Join(pathsOf(t, err), " ")
		}
		if fault != tt.fault {
			t.Errorf("%s: %v; want faults at %q", tt.name, err, tt.fault)
		}
		got, err := f.Lookup(t.Context(), tt.agent)
		if err != nil || string(got.Credential.Reveal()) != tt.secret {
			t.Errorf("%s: credential %q, %v; want %q", tt.name, got.Credential.Reveal(), err, tt.secret)
		}
	}
}

func TestNothingIsStoredIfSealingFails(t *testing.T) {
	f := newFixture(t)
	f.secrets = nil
	bad := newFixture(t, func(c *registry.Config) {
		c.Secrets = registry.NewSecrets(registry.SecretsConfig{})
	})
	s := spec("x")
	s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Literal: parley.NewSecret([]byte("c4nary"))}
	_, err := bad.Add(t.Context(), s)
	if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeUnavailable || len(bad.store.byID) != 0 {
		t.Errorf("%v, %d stored; want unavailable and nothing stored", err, len(bad.store.byID))
	}
}
