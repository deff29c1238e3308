package bridge_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

func secretOf(s string) parley.Secret { return parley.NewSecret([]byte(s)) }

// TestAuthorize: every kind of authentication, as the agent sees it.
func TestAuthorize(t *testing.T) {
	type seen struct {
		Header map[string]string
		Query  string
	}
	for _, tt := range []struct {
		name  string
		agent parley.Agent
		want  seen
	}{
		{"none", parley.Agent{}, seen{}},
		{"mtls alone", parley.Agent{Auth: parley.Auth{Type: parley.AuthMTLS}}, seen{}},
		{"bearer", parley.Agent{Auth: parley.Auth{Type: parley.AuthBearer}, Credential: secretOf("tok")}, seen{Header: map[string]string{"Authorization": "Bearer tok"}}},
		{"key", parley.Agent{Auth: parley.Auth{Type: parley.AuthAPIKey}, Credential: secretOf("k")}, seen{Header: map[string]string{"X-Api-Key": "k"}}},
		{
			"key in the query",
			parley.Agent{Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "api key"}, Credential: secretOf("k&=ü")},
			seen{Query: "fixed=1&api+key=k%26%3D%C3%BC"},
		},
		{
			"key in a cookie",
			parley.Agent{Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid"}, Credential: secretOf("k=")},
			seen{Header: map[string]string{"Cookie": "sid=k="}},
		},
		{"header", parley.Agent{Auth: parley.Auth{Type: parley.AuthHeader, Header: "X-Own"}, Credential: secretOf("v")}, seen{Header: map[string]string{"X-Own": "v"}}},
		{
			"headers",
			parley.Agent{
				Auth:     parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"X-A": "env:A", "Authorization": "env:B"}},
				Resolved: &parley.ResolvedAuth{Headers: map[string]parley.Secret{"X-A": secretOf("a"), "Authorization": secretOf("Own b")}},
			},
			seen{Header: map[string]string{"X-A": "a", "Authorization": "Own b"}},
		},
		{
			"basic",
			parley.Agent{Auth: parley.Auth{Type: parley.AuthBasic, User: "ann"}, Credential: secretOf("pä:ss")},
			seen{Header: map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:pä:ss"))}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
				var got seen
				s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
					got.Query = strings.TrimPrefix(r.URL.RawQuery, "fixed=1")
					if got.Query != "" {
						got.Query = r.URL.RawQuery
					}
					for _, name := range []string{"Authorization", "X-Api-Key", "X-Own", "X-A", "Cookie"} {
						if v := r.Header.Get(name); v != "" {
							if got.Header == nil {
								got.Header = map[string]string{}
							}
							got.Header[name] = v
						}
					}
				})
				agent := tt.agent
				agent.URL = s.URL + "/?fixed=1"
				if agent.Auth.Type == parley.AuthMTLS {
					agent.Auth.Type = parley.AuthNone // its certificate is another test's
				}
				if _, err := newExchange(t, limited(loopback(), limits)).Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestAuthorizeRefuses: what no request can carry is refused before one is
// made, without the secret in the error.
func TestAuthorizeRefuses(t *testing.T) {
	x := newExchange(t, loopback())
	for name, agent := range map[string]parley.Agent{
		"empty":              {Auth: parley.Auth{Type: parley.AuthBasic, User: "u"}},
		"line end":           {Auth: parley.Auth{Type: parley.AuthBearer}, Credential: secretOf("t0p\nX: y")},
		"cookie":             {Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid"}, Credential: secretOf("t0p; a=b")},
		"cookie's name":      {Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "a b"}, Credential: secretOf("t0p")},
		"query without name": {Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery}, Credential: secretOf("t0p")},
		"other place":        {Auth: parley.Auth{Type: parley.AuthAPIKey, In: "body", Header: "a"}, Credential: secretOf("t0p")},
		"user":               {Auth: parley.Auth{Type: parley.AuthBasic, User: "a:b"}, Credential: secretOf("t0p")},
		"no headers":         {Auth: parley.Auth{Type: parley.AuthHeaders}},
		"header of ours":     {Auth: parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"Host": "env:A"}}},
		"unresolved header":  {Auth: parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"X-A": "env:A"}}},
		"other type":         {Auth: parley.Auth{Type: "digest"}, Credential: secretOf("t0p")},
		"oauth2 without all": {Auth: parley.Auth{Type: parley.AuthOAuth2}, Credential: secretOf("t0p")},
		"oauth2, no secret":  {Auth: parley.Auth{Type: parley.AuthOAuth2, OAuth2: &parley.OAuth2{TokenURL: "https://l/", ClientID: "c"}}},
		"certificate":        {URL: "https://127.0.0.1:1/", Auth: parley.Auth{Type: parley.AuthMTLS}},
		"plain with TLS":     {TLS: parley.AgentTLS{CA: "file:ca"}},
	} {
		if agent.URL == "" {
			agent.URL = "http://127.0.0.1:1/"
		}
		_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
		e, ok := errors.AsType[*parley.Error](err)
		if _, exchanged := errors.AsType[*bridge.ExchangeError](err); !ok || exchanged || strings.Contains(err.Error(), "t0p") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Code != parley.CodeInvalid && e.Code != parley.CodeAgentRejected {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWrongHeaders: of headers that cannot be sent the first by its name is named,
// every time.
func TestWrongHeaders(t *testing.T) {
	x := newExchange(t, loopback())
	agent := parley.Agent{
		URL: "http://127.0.0.1:1/", Credential: secretOf("0ther"),
		Auth:     parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"X-A": "env:A", "X-B": "env:B", "X-C": "env:C", "X-D": "env:D", "X-E": "env:E"}},
		Resolved: &parley.ResolvedAuth{Headers: map[string]parley.Secret{"X-A": secretOf("a"), "X-C": secretOf("t0p\nX: y"), "X-D": secretOf("d")}},
	}
	for range 20 {
		_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
		if want := `its header "X-B" is empty`; err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %s", err, want)
		}
	}
	agent.Resolved.Headers["X-B"] = secretOf("b")
	_, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
	if want := `the agent's header "X-C" holds characters that a header cannot`; err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "t0p") {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAuthorizationIsRedacted(t *testing.T) {
	a, err := newExchange(t, loopback()).Authorize(t.Context(), testTask(),
		parley.Agent{Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "k"}, Credential: secretOf("t0p")})
	if err != nil || !a.InURL() {
		t.Fatal(err, a.InURL())
	}
	if out := fmt.Sprintf("%v %+v %#v %s %q", a, a, a, a, []any{a}); strings.Contains(out, "t0p") {
		t.Error(out)
	}
	u, _ := url.Parse("https://a/x")
	if got := a.URL(u).String(); got != "https://a/x?k=t0p" || u.RawQuery != "" {
		t.Error(got, u)
	}
}

// idp is a token endpoint that numbers its tokens.
type idp struct {
	mu     sync.Mutex
	count  int
	answer func(n int, form url.Values, r *http.Request) (status int, body string)
	forms  []url.Values
}

func (i *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.count++
	i.forms = append(i.forms, r.PostForm)
	status, body := 200, fmt.Sprintf(`{"access_token":"t0ken-%d","token_type":"bearer","expires_in":3600}`, i.count)
	if i.answer != nil {
		status, body = i.answer(i.count, r.PostForm, r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (i *idp) calls() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

func oauthAgent(agentURL, tokenURL string) parley.Agent {
	return parley.Agent{
		ID: "id-1", Name: "a", URL: agentURL, Credential: secretOf("cl1ent"),
		Auth:     parley.Auth{Type: parley.AuthOAuth2, OAuth2: &parley.OAuth2{TokenURL: tokenURL, ClientID: "me", Scopes: []string{"x", "y"}, Audience: "z"}},
		Resolved: &parley.ResolvedAuth{},
	}
}

// TestOAuth2: one token for all calls, asked for as RFC 6749 §4.4.2 says.
func TestOAuth2(t *testing.T) {
	for style, check := range map[string]func(url.Values, *http.Request) bool{
		"": func(form url.Values, r *http.Request) bool {
			user, pass, ok := r.BasicAuth()
			return ok && user == "m%2Fe" && pass == "cl1ent" && !form.Has("client_secret")
		},
		parley.OAuth2InBody: func(form url.Values, r *http.Request) bool {
			return r.Header.Get("Authorization") == "" && form.Get("client_id") == "m/e" && form.Get("client_secret") == "cl1ent"
		},
	} {
		tokens := &idp{}
		tokens.answer = func(n int, form url.Values, r *http.Request) (int, string) {
			if !check(form, r) || r.Method != http.MethodPost {
				return 401, `{"error":"invalid_client"}`
			}
			return 200, fmt.Sprintf(`{"access_token":"t0ken-%d","token_type":"Bearer","expires_in":"3600"}`, n)
		}
		login := newServer(t, tokens.ServeHTTP)
		var got []string
		var mu sync.Mutex
		s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.Header.Get("Authorization"))
		})
		var seen []string
		cfg := loopback()
		cfg.SecretSeen = func(s parley.Secret) { seen = append(seen, string(s.Reveal())) }
		x := newExchange(t, cfg)
		agent := oauthAgent(s.URL, login.URL+"/token")
		agent.Auth.OAuth2.Style, agent.Auth.OAuth2.ClientID = style, "m/e"
		for range 3 {
			if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"Bearer t0ken-1", "Bearer t0ken-1", "Bearer t0ken-1"}, got); diff != "" || tokens.calls() != 1 {
			t.Errorf("%d token requests, (-want +got):\n%s", tokens.calls(), diff)
		}
		if diff := cmp.Diff([]string{"t0ken-1"}, seen); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
		form := tokens.forms[0]
		if form.Get("grant_type") != "client_credentials" || form.Get("scope") != "x y" || form.Get("audience") != "z" {
			t.Errorf("form %v", form)
		}
		// Another agent, another scope and another secret have tokens of their own.
		for i, change := range []func(*parley.Agent){
			func(a *parley.Agent) { a.ID = "id-2" },
			func(a *parley.Agent) { o := *a.Auth.OAuth2; o.Scopes = []string{"x"}; a.Auth.OAuth2 = &o },
		} {
			other := agent
			change(&other)
			if _, err := x.Post(t.Context(), testTask(), other, []byte("{}")); err != nil || tokens.calls() != i+2 {
				t.Errorf("%v, %d token requests, want %d", err, tokens.calls(), i+2)
			}
		}
	}
}

// TestOAuth2Refreshed: a 401 leads to one new token and one more request; the
// second 401 is the answer.
func TestOAuth2Refreshed(t *testing.T) {
	for _, tt := range []struct {
		name          string
		good          string // the token that the agent takes
		calls, tokens int
		ok            bool
	}{
		{"revoked", "Bearer t0ken-2", 2, 2, true},
		{"401 twice", "none", 2, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
				tokens := &idp{}
				login := newServer(t, tokens.ServeHTTP)
				var calls atomic.Int64
				s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
					calls.Add(1)
					body, _ := io.ReadAll(r.Body)
					if r.Header.Get("Authorization") != tt.good {
						w.Header().Set("WWW-Authenticate", `Bearer realm="a, b", error="invalid_token"`)
						w.WriteHeader(http.StatusUnauthorized)
						_, _ = io.WriteString(w, "no: "+r.Header.Get("Authorization"))
						return
					}
					_, _ = w.Write(body)
				})
				x := newExchange(t, limited(loopback(), limits))
				reply, err := x.Post(t.Context(), testTask(), oauthAgent(s.URL, login.URL), []byte(`{"a":1}`))
				if int(calls.Load()) != tt.calls || tokens.calls() != tt.tokens {
					t.Errorf("%d calls, %d tokens; want %d, %d", calls.Load(), tokens.calls(), tt.calls, tt.tokens)
				}
				if tt.ok {
					if err != nil || string(reply.Body) != `{"a":1}` {
						t.Errorf("%s, %v", reply.Body, err)
					}
					return
				}
				e := wantExchangeError(t, err, bridge.Answered, parley.CodeAgentRejected)
				for _, want := range []string{"HTTP 401", "asks for Bearer authentication (invalid_token)", "auth.scopes"} {
					if !strings.Contains(e.Err.Message, want) {
						t.Errorf("%q is not in %s", want, e.Err.Message)
					}
				}
				if all := e.Err.Message + string(e.Err.Details) + string(e.Body); strings.Contains(all, "t0ken") || !strings.Contains(string(e.Body), "no: Bearer [redacted]") {
					t.Errorf("the error holds a token: %s", all)
				}
			})
		})
	}
}

// TestOAuth2RefreshedForAll: many calls that are refused together share one new
// token.
func TestOAuth2RefreshedForAll(t *testing.T) {
	const n = 32
	tokens := &idp{}
	login := newServer(t, tokens.ServeHTTP)
	var refused sync.WaitGroup
	refused.Add(n)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer t0ken-1" {
			refused.Done()
			refused.Wait()
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	x := newExchange(t, loopback())
	agent := oauthAgent(s.URL, login.URL)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := x.Post(t.Context(), testTask(), agent, []byte("{}")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if tokens.calls() != 2 {
		t.Errorf("%d token requests for %d calls, want 2", tokens.calls(), n)
	}
}

// TestNotRefreshed: no other 401, and no 403, leads to a second request.
func TestNotRefreshed(t *testing.T) {
	oauth := func(s, l string) parley.Agent { return oauthAgent(s, l) }
	bearer := func(ref string) func(string, string) parley.Agent {
		return func(s, _ string) parley.Agent {
			return parley.Agent{URL: s, Auth: parley.Auth{Type: parley.AuthBearer, Secret: ref}, Credential: secretOf("t0ken"), Resolved: &parley.ResolvedAuth{}}
		}
	}
	for _, tt := range []struct {
		name   string
		agent  func(string, string) parley.Agent
		status int
		asks   string
		renews int64
		text   string
	}{
		{"403", oauth, 403, "Bearer", 0, "does not allow this call"},
		{"bearer", bearer("env:A"), 401, "Bearer", 0, "check the credential"},
		{"bearer from a file that is as it was", bearer("file:a"), 401, "Bearer", 1, "check the credential"},
		{"another kind", bearer("env:A"), 401, `Basic realm="x", Digest nonce="Bearer"`, 0, "asks for Basic or Digest authentication; its record has auth type bearer"},
		{"none", func(s, _ string) parley.Agent { return parley.Agent{URL: s} }, 401, "Bearer", 0, "its record has no authentication"},
		{"no challenge", bearer("env:A"), 401, "", 0, "HTTP 401 Unauthorized; check the credential"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tokens := &idp{}
			login := newServer(t, tokens.ServeHTTP)
			var calls, renews atomic.Int64
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				if tt.asks != "" {
					w.Header().Set("WWW-Authenticate", tt.asks)
				}
				w.WriteHeader(tt.status)
			})
			cfg := loopback()
			cfg.Renew = func(_ context.Context, a parley.Agent) (parley.Agent, error) { renews.Add(1); return a, nil }
			_, err := newExchange(t, cfg).Post(t.Context(), testTask(), tt.agent(s.URL, login.URL), []byte("{}"))
			e := wantExchangeError(t, err, bridge.Answered, parley.CodeAgentRejected)
			if calls.Load() != 1 || renews.Load() != tt.renews || tokens.calls() > 1 || !strings.Contains(e.Err.Message, tt.text) {
				t.Errorf("%d calls, %d renewals, %d tokens, %s", calls.Load(), renews.Load(), tokens.calls(), e.Err.Message)
			}
		})
	}
}

// TestFileChanged: a secret in a file that has changed since it was read is
// read again, for every kind.
func TestFileChanged(t *testing.T) {
	for name, agent := range map[string]parley.Agent{
		"bearer": {Auth: parley.Auth{Type: parley.AuthBearer, Secret: "file:a"}},
		"query":  {Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "k", Secret: "file:a"}},
		"basic":  {Auth: parley.Auth{Type: parley.AuthBasic, User: "u", Secret: "file:a"}},
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
				var calls atomic.Int64
				s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
					_, password, _ := r.BasicAuth()
					if calls.Add(1); r.Header.Get("Authorization") != "Bearer new-s3cret" && password != "new-s3cret" && r.URL.Query().Get("k") != "new-s3cret" {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, "new-s3cret and old-s3cret")
				})
				cfg := limited(loopback(), limits)
				cfg.Renew = func(_ context.Context, a parley.Agent) (parley.Agent, error) {
					a.Credential, a.Resolved = secretOf("new-s3cret"), &parley.ResolvedAuth{}
					return a, nil
				}
				a := agent
				a.URL, a.Credential, a.Resolved = s.URL, secretOf("old-s3cret"), &parley.ResolvedAuth{}
				_, err := newExchange(t, cfg).Post(t.Context(), testTask(), a, []byte("{}"))
				e := wantExchangeError(t, err, bridge.Answered, parley.CodeAgentUnavailable)
				if calls.Load() != 2 || string(e.Body) != "[redacted] and [redacted]" {
					t.Errorf("%d calls, %s", calls.Load(), e.Body)
				}
			})
		})
	}
}

// TestTokenEndpointFails: nothing goes to the agent, and the error names the
// token endpoint's answer without a secret.
func TestTokenEndpointFails(t *testing.T) {
	for _, tt := range []struct {
		name      string
		status    int
		body      string
		code      parley.Code
		retryable bool
		text      string
	}{
		{"client", 401, `{"error":"invalid_client","error_description":"bad secret cl1ent\nfor me"}`, parley.CodeAgentRejected, false, "HTTP 401 Unauthorized, invalid_client (bad secret [redacted] for me); check the agent's auth"},
		{"scope", 400, `{"error":"invalid_scope"}`, parley.CodeAgentRejected, false, "HTTP 400 Bad Request, invalid_scope"},
		{"error with 200", 200, `{"error":"invalid_client"}`, parley.CodeAgentRejected, false, "invalid_client"},
		{"busy", 503, `<html>`, parley.CodeAgentUnavailable, true, "HTTP 503 Service Unavailable"},
		{"temporarily", 400, `{"error":"temporarily_unavailable"}`, parley.CodeAgentUnavailable, true, "temporarily_unavailable"},
		{"redirect", 302, ``, parley.CodeAgentRejected, false, "redirects are not followed"},
		{"HTML", 200, `<html>`, parley.CodeAgentRejected, false, "no JSON object"},
		{"no token", 200, `{}`, parley.CodeAgentRejected, false, "no access_token"},
		{"other type", 200, `{"access_token":"x","token_type":"mac"}`, parley.CodeAgentRejected, false, "not of type Bearer"},
		{"unfit", 200, `{"access_token":"x\ny"}`, parley.CodeAgentRejected, false, "does not fit"},
		{"huge", 200, `{"access_token":"` + strings.Repeat("x", 70<<10) + `"}`, parley.CodeAgentUnavailable, true, "could not be read"},
		{"long words", 400, `{"error":"` + strings.Repeat("e", 1000) + `","error_description":"` + strings.Repeat("d", 1000) + `"}`, parley.CodeAgentRejected, false, "eee…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tokens := &idp{answer: func(int, url.Values, *http.Request) (int, string) { return tt.status, tt.body }}
			login := newServer(t, tokens.ServeHTTP)
			var calls atomic.Int64
			s := newServer(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
			_, err := newExchange(t, loopback()).Post(t.Context(), testTask(), oauthAgent(s.URL, login.URL+"/t?key=qu3ry"), []byte("{}"))
			e := wantExchangeError(t, err, bridge.NotSent, tt.code)
			if e.Err.Retryable != tt.retryable || calls.Load() != 0 || !strings.Contains(e.Err.Message, tt.text) || len(e.Err.Message) > 700 {
				t.Errorf("retryable %v, %d calls, %s; want %v, 0, %s", e.Err.Retryable, calls.Load(), e.Err.Message, tt.retryable, tt.text)
			}
			if !strings.HasPrefix(e.Err.Message, "POST "+login.URL+"/t (the token endpoint): ") || e.Err.Agent != "a" || e.Err.Step != "ask" {
				t.Errorf("%+v", e.Err)
			}
			all, _ := json.Marshal(e.Err)
			if strings.Contains(string(all), "cl1ent") || strings.Contains(string(all), "qu3ry") {
				t.Errorf("the error holds a secret: %s", all)
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		_, err := newExchange(t, loopback()).Post(t.Context(), testTask(), oauthAgent("http://127.0.0.1:1/", "http://127.0.0.1:1/t"), []byte("{}"))
		if e := wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); !e.Err.Retryable {
			t.Error(e)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		x := newExchange(t, bridge.ExchangeConfig{})
		_, err := x.Post(t.Context(), testTask(), oauthAgent("http://127.0.0.1:1/", "http://127.0.0.1:1/t"), []byte("{}"))
		if e := wantExchangeError(t, err, bridge.NotSent, parley.CodeAgentRejected); e.Err.Retryable || !strings.Contains(e.Err.Message, "egress") {
			t.Error(e)
		}
	})
}

// TestStreamRefreshed: a stream is opened once more with a new token as well.
func TestStreamRefreshed(t *testing.T) {
	tokens := &idp{}
	login := newServer(t, tokens.ServeHTTP)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken-2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
	})
	body, _, err := newExchange(t, loopback()).Stream(t.Context(), testTask(), oauthAgent(s.URL, login.URL), bridge.Request{Body: []byte("{}")})
	if err != nil || body == nil {
		t.Fatal(err, body)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || string(got) != "data: {}\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRedactsEverySecret: what requests carried is in no text that the agent
// sends back, in the form of the request either.
func TestRedactsEverySecret(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString([]byte("ann:p4ss word"))
	clientSecret := func(s string) parley.Agent { a := oauthAgent("", ""); a.Credential = secretOf(s); return a }
	later := &parley.ResolvedAuth{Headers: map[string]parley.Secret{"X-A": secretOf("h3ader")}}
	later.Later.Add(secretOf("l4ter"))
	for _, tt := range []struct {
		agent parley.Agent
		text  string
	}{
		{parley.Agent{Auth: parley.Auth{Type: parley.AuthBasic, User: "ann"}, Credential: secretOf("p4ss word")}, "x p4ss word y " + pair + " z"},
		{parley.Agent{Auth: parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery}, Credential: secretOf("k/ey+1")}, `x k/ey+1 y k%2Fey%2B1 z`},
		{clientSecret("cl/1ent"), "x cl%2F1ent y " + base64.StdEncoding.EncodeToString([]byte("me:cl%2F1ent")) + " z"},
		{oauthAgent("", ""), "x cl1ent y " + base64.StdEncoding.EncodeToString([]byte("me:cl1ent")) + " z"},
		{parley.Agent{Auth: parley.Auth{Type: parley.AuthHeaders}, Resolved: later}, `x h3ader y l4ter z`},
	} {
		if got := bridge.Redact(tt.agent, []byte(tt.text), 1000); got != "x [redacted] y [redacted] z" {
			t.Errorf("%q became %q", tt.text, got)
		}
	}
}

// TestRedactsEscapedOutputs: a key that an agent repeats is in no result, whichever of
// its characters the agent's language escapes in JSON.
func TestRedactsEscapedOutputs(t *testing.T) {
	for of, escaped := range map[string]string{
		"PHP":    `k/e+y=&\u00e9\ud83d\ude00`,
		"Gson":   `k/e+y\u003d\u0026é😀`,
		"C#":     `k/e\u002By=\u0026\u00E9\uD83D\uDE00`,
		"Go":     `k/e+y=\u0026é😀`,
		"nobody": `\u006b\u002f\u0065\u002b\u0079\u003d\u0026\u00e9\ud83d\ude00`,
	} {
		said := strings.ReplaceAll(escaped, "k/e", `k\/e`)
		for _, key := range []string{escaped, said} {
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"h":"Bearer `+key+`\n","n":"\\"}`)
			})
			agent := parley.Agent{URL: s.URL, Auth: parley.Auth{Type: parley.AuthBearer}, Credential: secretOf("k/e+y=&é😀")}
			out, err := bridge.NewWire(newExchange(t, loopback()), nil, nil).Call(t.Context(), testTask(), agent, bridge.Conversation{
				Request: func() ([]byte, error) { return []byte("{}"), nil },
				Answer: func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
					return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{Outcome: parley.OutcomeOK, Output: body}}, nil, nil
				},
			})
			if want := `{"h":"Bearer [redacted]\n","n":"\\"}`; err != nil || string(out.Result.Output) != want {
				t.Errorf("%s: %s, %v; want %s", of, out.Result.Output, err, want)
			}
		}
	}
}

// TestRedactsOutputs: an agent that repeats what it was called with does not get
// it into a result; a short credential may be a word of the output.
func TestRedactsOutputs(t *testing.T) {
	for credential, want := range map[string]string{
		"l0ng-secret": `{"headers":"Bearer [redacted]","n":1}`,
		"1":           `{"headers":"Bearer 1","n":1}`,
	} {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"headers":"`+r.Header.Get("Authorization")+`","n":1}`)
		})
		agent := parley.Agent{URL: s.URL, Auth: parley.Auth{Type: parley.AuthBearer}, Credential: secretOf(credential)}
		out, err := bridge.NewWire(newExchange(t, loopback()), nil, nil).Call(t.Context(), testTask(), agent, bridge.Conversation{
			Request: func() ([]byte, error) { return []byte("{}"), nil },
			Answer: func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
				return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{Outcome: parley.OutcomeOK, Output: body}}, nil, nil
			},
		})
		if err != nil || string(out.Result.Output) != want {
			t.Errorf("%s, %v; want %s", out.Result.Output, err, want)
		}
	}
}
