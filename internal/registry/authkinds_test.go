package registry_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// pemText is what a reference to a certificate or a key leads to.
func pemText(name string) string {
	return "-----BEGIN " + name + "-----\nYWJj\n-----END " + name + "-----\n"
}

func secretOf(s string) parley.Secret { return parley.NewSecret([]byte(s)) }

func oauth() *parley.OAuth2 {
	return &parley.OAuth2{TokenURL: "https://login.example/token", ClientID: "me"}
}

func TestAuthKindsFaults(t *testing.T) {
	auth := func(a parley.AuthSpec) func(*parley.AgentSpec) { return func(s *parley.AgentSpec) { s.Auth = &a } }
	oauth2 := func(change func(*parley.OAuth2)) func(*parley.AgentSpec) {
		o := oauth()
		change(o)
		return auth(parley.AuthSpec{Type: parley.AuthOAuth2, Secret: "env:AGENT_TOKEN", OAuth2: o})
	}
	headers := func(h map[string]parley.SecretSpec) func(*parley.AgentSpec) {
		return auth(parley.AuthSpec{Type: parley.AuthHeaders, Headers: h})
	}
	ref := parley.SecretSpec{Secret: "env:AGENT_TOKEN"}
	file := parley.SecretSpec{Secret: "file:x.pem"}
	tls := func(s parley.TLSSpec) func(*parley.AgentSpec) {
		return func(a *parley.AgentSpec) { a.TLS, a.URL = &s, new("https://agent.example") }
	}
	many := map[string]parley.SecretSpec{}
	for i := range 17 {
		many[fmt.Sprint("X-", i)] = ref
	}
	for _, tt := range []struct {
		what   string
		change func(*parley.AgentSpec)
		paths  string // of the faults; "" is fine
	}{
		{"query", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "api key", Secret: "env:AGENT_TOKEN"}), ""},
		{"query without a name", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InQuery, Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"query with a line end", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "a\nb", Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"cookie", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid", Literal: secretOf("a=b")}), ""},
		{"cookie's name", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "s d", Literal: secretOf("a")}), "auth.header"},
		{"cookie's value", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid", Literal: secretOf("a; b")}), "auth.secret"},
		{"other place", auth(parley.AuthSpec{Type: parley.AuthAPIKey, In: "body", Header: "x", Secret: "env:AGENT_TOKEN"}), "auth.in"},
		{"bearer in a cookie", auth(parley.AuthSpec{Type: parley.AuthBearer, In: parley.InCookie, Secret: "env:AGENT_TOKEN"}), "auth.in"},

		{"basic", auth(parley.AuthSpec{Type: parley.AuthBasic, User: "änn", Literal: secretOf("pä ss:")}), ""},
		{"basic without all", auth(parley.AuthSpec{Type: parley.AuthBasic}), "auth.user auth.secret"},
		{"user with a colon", auth(parley.AuthSpec{Type: parley.AuthBasic, User: "a:b", Secret: "env:AGENT_TOKEN"}), "auth.user"},
		{"password with a line end", auth(parley.AuthSpec{Type: parley.AuthBasic, User: "a", Literal: secretOf("a\nb")}), "auth.secret"},
		{"bearer with a user", auth(parley.AuthSpec{Type: parley.AuthBearer, User: "a", Secret: "env:AGENT_TOKEN"}), "auth.user"},

		{"headers", headers(map[string]parley.SecretSpec{"X-A": ref, "Authorization": {Literal: secretOf("Own x")}}), ""},
		{"no headers", headers(nil), "auth.headers"},
		{"17 headers", headers(many), "auth.headers"},
		{"header of ours", headers(map[string]parley.SecretSpec{"Host": ref, "X-A": ref}), "auth.headers.Host"},
		{"traceparent", headers(map[string]parley.SecretSpec{"Traceparent": ref}), "auth.headers.Traceparent"},
		{"tracestate", auth(parley.AuthSpec{Type: parley.AuthHeader, Header: "tracestate", Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"a header twice", headers(map[string]parley.SecretSpec{"X-A": ref, "x-a": ref}), "auth.headers.x-a"},
		{"header without a secret", headers(map[string]parley.SecretSpec{"X-A": {}}), "auth.headers.X-A"},
		{"header and no reference", headers(map[string]parley.SecretSpec{"X-A": {Secret: "t0p"}}), "auth.headers.X-A"},
		{"header with both", headers(map[string]parley.SecretSpec{"X-A": {Secret: "env:AGENT_TOKEN", Literal: secretOf("t0p")}}), "auth.headers.X-A"},
		{"header as shown", headers(map[string]parley.SecretSpec{"X-A": {Secret: registry.Sealed}}), "auth.headers.X-A"},
		{"header with a line end", headers(map[string]parley.SecretSpec{"X-A": {Literal: secretOf("t0p\n")}}), "auth.headers.X-A"},
		{"headers and a secret", auth(parley.AuthSpec{Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": ref}, Secret: "env:AGENT_TOKEN"}), "auth"},
		{"bearer with headers", auth(parley.AuthSpec{Type: parley.AuthBearer, Headers: map[string]parley.SecretSpec{"X-A": ref}, Secret: "env:AGENT_TOKEN"}), "auth.headers"},

		{"oauth2", oauth2(func(o *parley.OAuth2) { o.Scopes, o.Audience, o.Style = []string{"a:b", "c/d"}, "x y", "body" }), ""},
		{"oauth2 without all", auth(parley.AuthSpec{Type: parley.AuthOAuth2}), "auth.secret auth.token_url auth.client_id"},
		{"token URL", oauth2(func(o *parley.OAuth2) { o.TokenURL = "ftp://x/t" }), "auth.token_url"},
		{"token URL without host", oauth2(func(o *parley.OAuth2) { o.TokenURL = "https:///t" }), "auth.token_url"},
		{"token URL with a user", oauth2(func(o *parley.OAuth2) { o.TokenURL = "https://me:t0p@x/t" }), "auth.token_url"},
		{"token URL with a fragment", oauth2(func(o *parley.OAuth2) { o.TokenURL = "https://x/t#y" }), "auth.token_url"},
		{"scope with a blank", oauth2(func(o *parley.OAuth2) { o.Scopes = []string{"a b"} }), "auth.scopes"},
		{"empty scope", oauth2(func(o *parley.OAuth2) { o.Scopes = []string{""} }), "auth.scopes"},
		{"65 scopes", oauth2(func(o *parley.OAuth2) { o.Scopes = slices.Repeat([]string{"a"}, 65) }), "auth.scopes"},
		{"audience", oauth2(func(o *parley.OAuth2) { o.Audience = "a\nb" }), "auth.audience"},
		{"style", oauth2(func(o *parley.OAuth2) { o.Style = "query" }), "auth.auth_style"},
		{"bearer with a token URL", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN", OAuth2: oauth()}), "auth.token_url"},

		{"TLS", tls(parley.TLSSpec{Cert: file, Key: parley.SecretSpec{Literal: secretOf(pemText("PRIVATE KEY"))}, CA: file}), ""},
		{"CA alone", tls(parley.TLSSpec{CA: file}), ""},
		{"certificate alone", tls(parley.TLSSpec{Cert: file}), "tls.key"},
		{"key alone", tls(parley.TLSSpec{Key: file}), "tls.cert"},
		{"no PEM", tls(parley.TLSSpec{CA: parley.SecretSpec{Literal: secretOf("t0p")}}), "tls.ca"},
		{"TLS as shown", tls(parley.TLSSpec{CA: parley.SecretSpec{Secret: registry.Sealed}}), "tls.ca"},
		{"TLS, no reference", tls(parley.TLSSpec{CA: parley.SecretSpec{Secret: "t0p"}}), "tls.ca"},
		{"TLS without https", func(s *parley.AgentSpec) { s.TLS = &parley.TLSSpec{CA: file} }, "tls"},
		{"mtls without a certificate", auth(parley.AuthSpec{Type: parley.AuthMTLS}), "tls.cert"},
		{"mtls with a secret", func(s *parley.AgentSpec) {
			tls(parley.TLSSpec{Cert: file, Key: file})(s)
			s.Auth = &parley.AuthSpec{Type: parley.AuthMTLS, Secret: "env:AGENT_TOKEN"}
		}, "auth"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := spec("a")
			tt.change(&s)
			_, err := newFixture(t).Add(t.Context(), s)
			paths := ""
			if err != nil {
				paths = strings.Join(pathsOf(t, err), " ")
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), "t0p") {
					t.Errorf("%v shows the secret", err)
				}
			}
			if paths != tt.paths {
				t.Errorf("%v: faults at %q, want %q", err, paths, tt.paths)
			}
		})
	}
}

// Every kind is resolved for a call, and what was sealed stays when a change
// gives back what is shown.
func TestAuthKindsAreSealedKeptAndResolved(t *testing.T) {
	f := newFixture(t)
	write(t, filepath.Join(f.dir, "cert.pem"), pemText("CERTIFICATE"))
	s := spec("a")
	s.URL = new("https://agent.example")
	s.Auth = &parley.AuthSpec{Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:AGENT_TOKEN"}, "X-B": {Literal: secretOf("h1dden")}}}
	s.TLS = &parley.TLSSpec{Cert: parley.SecretSpec{Secret: "file:cert.pem"}, Key: parley.SecretSpec{Literal: secretOf(pemText("PRIVATE KEY"))}}
	added := f.mustAdd(t, s)
	if stored := fmt.Sprintf("%+v", f.store.byID); strings.Contains(stored, "h1dden") || strings.Contains(stored, "BEGIN") {
		t.Errorf("stored %s", stored)
	}
	resolved := func() string {
		t.Helper()
		got, err := f.Lookup(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got.Resolved == nil {
			return string(got.Credential.Reveal())
		}
		out := []string{string(got.Credential.Reveal())}
		for _, name := range slices.Sorted(maps.Keys(got.Resolved.Headers)) {
			out = append(out, name+"="+string(got.Resolved.Headers[name].Reveal()))
		}
		for _, s := range []parley.Secret{got.Resolved.Cert, got.Resolved.Key, got.Resolved.CA} {
			kind, _, _ := strings.Cut(strings.TrimPrefix(string(s.Reveal()), "-----BEGIN "), "-----")
			out = append(out, kind)
		}
		return strings.Join(out, "|")
	}
	update := func(s parley.AgentSpec) {
		t.Helper()
		if _, err := f.Update(t.Context(), "a", s); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		if got := resolved(); got != text {
			t.Errorf("resolved %q, want %q", got, text)
		}
	}
	want("|X-A=from-the-env|X-B=h1dden|CERTIFICATE|PRIVATE KEY|")

	// What an API shows of it: references, and a word for what was sealed.
	shown := func(ref string) parley.SecretSpec {
		if strings.HasPrefix(ref, "sealed:") {
			ref = registry.Sealed
		}
		return parley.SecretSpec{Secret: ref}
	}
	back := parley.AuthSpec{Type: added.Auth.Type, Headers: map[string]parley.SecretSpec{}}
	for name, ref := range added.Auth.Headers {
		back.Headers[name] = shown(ref)
	}
	update(parley.AgentSpec{Auth: &back, TLS: &parley.TLSSpec{Cert: shown(added.TLS.Cert), Key: shown(added.TLS.Key)}})
	want("|X-A=from-the-env|X-B=h1dden|CERTIFICATE|PRIVATE KEY|")

	update(parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthOAuth2, Literal: secretOf("cl1ent"), OAuth2: oauth()}})
	want("cl1ent|CERTIFICATE|PRIVATE KEY|")
	o := oauth()
	o.Scopes = []string{"x"}
	update(parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthOAuth2, OAuth2: o}, TLS: &parley.TLSSpec{}})
	want("cl1ent|||")
	if got, _ := f.Get(t.Context(), "a"); got.Auth.OAuth2 == nil || cmp.Diff([]string{"x"}, got.Auth.OAuth2.Scopes) != "" || got.TLS != (parley.AgentTLS{}) {
		t.Errorf("%+v", got)
	}
	update(parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthNone}})
	want("")

	// What belongs together cannot be taken apart later.
	update(parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthMTLS}, TLS: &parley.TLSSpec{Cert: parley.SecretSpec{Secret: "file:cert.pem"}, Key: parley.SecretSpec{Secret: "file:cert.pem"}}})
	for path, s := range map[string]parley.AgentSpec{"tls.cert": {TLS: &parley.TLSSpec{}}, "tls": {URL: new("http://agent.example")}} {
		if _, err := f.Update(t.Context(), "a", s); err == nil || strings.Join(pathsOf(t, err), " ") != path {
			t.Errorf("%v, want a fault at %s", err, path)
		}
	}
}

// A secret that cannot travel as its kind wants keeps the agent from being
// called, and the error does not show it.
func TestAuthKindsUnfitSecrets(t *testing.T) {
	f := newFixture(t)
	f.env["AGENT_LINES"], f.env["AGENT_COOKIE"] = "t0p\nt0p", "t0p; t0p"
	for name, auth := range map[string]parley.AuthSpec{
		"bearer":  {Type: parley.AuthBearer, Secret: "env:AGENT_LINES"},
		"basic":   {Type: parley.AuthBasic, User: "u", Secret: "env:AGENT_LINES"},
		"cookie":  {Type: parley.AuthAPIKey, In: parley.InCookie, Header: "s", Secret: "env:AGENT_COOKIE"},
		"headers": {Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:AGENT_LINES"}}},
		"missing": {Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:AGENT_NONE"}}},
	} {
		s := spec(name)
		s.Auth = &auth
		f.mustAdd(t, s)
		_, err := f.Lookup(t.Context(), name)
		if parley.CodeOf(err) != parley.CodeAgentUnavailable || strings.Contains(err.Error(), "t0p") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := spec("tls")
	s.URL, s.TLS = new("https://a"), &parley.TLSSpec{CA: parley.SecretSpec{Secret: "env:AGENT_COOKIE"}}
	f.mustAdd(t, s)
	if _, err := f.Lookup(t.Context(), "tls"); err == nil || strings.Contains(err.Error(), "t0p") || !strings.Contains(err.Error(), "tls.ca") {
		t.Error(err)
	}
}

// Renew reads a file again, and so does the next Lookup.
func TestRenew(t *testing.T) {
	f := newFixture(t)
	write(t, filepath.Join(f.dir, "token"), "first\n")
	s := spec("a")
	s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: "file:token"}
	f.mustAdd(t, s)
	before, err := f.Lookup(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(f.dir, "token"), "second\n")
	if again, err := f.Lookup(t.Context(), "a"); err != nil || string(again.Credential.Reveal()) != "first" {
		t.Errorf("%q, %v", again.Credential.Reveal(), err)
	}
	fresh, err := f.Renew(t.Context(), before)
	if err != nil || string(fresh.Credential.Reveal()) != "second" || string(before.Credential.Reveal()) != "first" {
		t.Errorf("%q, %v", fresh.Credential.Reveal(), err)
	}
	if again, err := f.Lookup(t.Context(), "a"); err != nil || string(again.Credential.Reveal()) != "second" {
		t.Errorf("%q, %v", again.Credential.Reveal(), err)
	}
}

// AD-12: every kind in a file, and declaring it again changes nothing.
func TestAD12_AuthKinds(t *testing.T) {
	const text = `agents:
- {name: query, url: 'http://a', auth: {type: apikey, in: query, name: key, secret: 'env:AGENT_K'}}
- {name: cookie, url: 'http://a', auth: {type: APIKEY, in: Cookie, header: sid, key: abc}}
- {name: basic, url: 'http://a', auth: {type: basic, user: ann, password: 'p w'}}
- name: headers
  url: http://a
  auth: {type: headers, headers: {X-A: 'env:AGENT_A', X-B: literal}}
- name: oauth2
  url: https://a
  auth:
    type: oauth2
    token_url: https://login.example/token
    client_id: me
    secret: file:client
    scopes: [a, b]
    audience: z
    auth_style: Body
  tls: {ca: 'file:ca.pem'}
- {name: oauth2-old, url: 'http://a', auth_type: oauth2, auth_config: {token_url: 'https://l/t', client_id: me, client_secret: s, scopes: a b}}
- {name: mtls, url: 'https://a', auth: {type: mtls}, tls: {cert: 'file:c.pem', key: "-----BEGIN PRIVATE KEY-----\nYWJj\n-----END PRIVATE KEY-----\n"}}
`
	specs, problems := registry.LoadFile("a.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	o := &parley.OAuth2{TokenURL: "https://login.example/token", ClientID: "me", Scopes: []string{"a", "b"}, Audience: "z", Style: "body"}
	old := &parley.OAuth2{TokenURL: "https://l/t", ClientID: "me", Scopes: []string{"a", "b"}}
	want := []*parley.AuthSpec{
		{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "key", Secret: "env:AGENT_K"},
		{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid", Literal: secretOf("abc")},
		{Type: parley.AuthBasic, User: "ann", Literal: secretOf("p w")},
		{Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:AGENT_A"}, "X-B": {Literal: secretOf("literal")}}},
		{Type: parley.AuthOAuth2, Secret: "file:client", OAuth2: o},
		{Type: parley.AuthOAuth2, Literal: secretOf("s"), OAuth2: old},
		{Type: parley.AuthMTLS},
	}
	for i, s := range specs {
		if diff := cmp.Diff(want[i], s.Auth, secretsEqual); diff != "" {
			t.Errorf("%s (-want +got):\n%s", *s.Name, diff)
		}
	}
	if tls := specs[6].TLS; tls == nil || tls.Cert.Secret != "file:c.pem" || !strings.HasPrefix(string(tls.Key.Literal.Reveal()), "-----BEGIN") {
		t.Errorf("%+v", tls)
	}
	f := newFixture(t)
	for i, counts := range [][3]int{{7, 0, 0}, {0, 0, 7}, {0, 0, 7}} {
		if got, err := f.declare(t, text); got != counts || err != nil {
			t.Errorf("time %d: %v, %v; want %v", i+1, got, err, counts)
		}
		f.advance(time.Minute)
	}
	changed := strings.NewReplacer("literal", "other", "scopes: [a, b]", "scopes: [a]", "YWJj", "ZGVm").Replace(text)
	if got, err := f.declare(t, changed); got != [3]int{0, 3, 4} || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := f.declare(t, strings.Replace(changed, "  tls: {ca: 'file:ca.pem'}\n", "", 1)); got != [3]int{0, 1, 6} || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// What is wrong stands where it is in the file, and shows no secret.
func TestAD12_AuthKindsProblems(t *testing.T) {
	_, problems := registry.LoadFile("a.yaml", []byte(`agents:
- name: a
  url: https://a
  auth: {type: oauth2, client_id: [x], secret: t0p, scopes: {a: b}, tokenurl: x}
  tls: {cert: 5, kee: x, ca: t0p}
- name: b
  url: http://a
  auth: {type: headers, headers: {X-A: [t0p]}}
- {name: c, url: 'http://a', auth: {type: mtls, password: t0p}}
- {name: d, url: 'http://a', auth: {type: basic, user: u, password: p, secret: 'env:AGENT_X'}}
`))
	var got []string
	for _, p := range problems {
		if strings.Contains(p.String(), "t0p") {
			t.Errorf("%s shows the secret", p)
		}
		got = append(got, fmt.Sprintf("%d:%d %s %s", p.Line, p.Col, p.Path, p.Code))
	}
	want := []string{
		"5:15 agents[0].tls.cert type", "5:18 agents[0].tls.kee unknown_member",
		"5:30 agents[0].tls.ca value",
		"4:69 agents[0].auth.tokenurl unknown_member",
		"4:35 agents[0].auth.client_id type", "4:61 agents[0].auth.scopes type",
		"8:34 agents[1].auth.headers type",
		"9:36 agents[2].auth value", "10:80 agents[3].auth.secret value",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAuthFromOldOfNewKinds(t *testing.T) {
	for config, want := range map[string]parley.AuthSpec{
		`{"type":"basic","user":"u","password":"p"}`:                   {Type: parley.AuthBasic, User: "u", Literal: secretOf("p")},
		`{"type":"headers","headers":{"X-A":"env:A"}}`:                 {Type: parley.AuthHeaders, Headers: map[string]parley.SecretSpec{"X-A": {Secret: "env:A"}}},
		`{"type":"apikey","key":"k","name":"dropped"}`:                 {Type: parley.AuthAPIKey, Literal: secretOf("k")},
		`{"type":"apikey","key":"[redacted]","in":"query","name":"n"}`: {Type: parley.AuthAPIKey, Secret: registry.Sealed, In: parley.InQuery, Header: "n"},
	} {
		got, err := registry.AuthFromOld("", json.RawMessage(config))
		if diff := cmp.Diff(want, got, secretsEqual); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", config, err, diff)
		}
	}
}
