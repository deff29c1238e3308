package zone

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zoneauth"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

const (
	audience     = "urn:parley:execution"
	clientID     = "verification"
	clientSecret = "secret-of-the-verification-zone"
)

// guarded is a zone of ours that wants tokens of an issuer.
type guarded struct {
	rig *zonetest.Rig
	url string

	mu      sync.Mutex
	ahead   time.Duration // of its clock
	revoked string        // a token
	tokens  []string      // that came
	refused []error
}

func newGuarded(t *testing.T, issuer string) *guarded {
	t.Helper()
	g := &guarded{}
	believed, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: issuer, Audience: audience, AllowHTTP: true, Now: g.now})
	check(t, err)
	g.rig = zonetest.NewRig(func(c *execution.Config) {
		c.Authorize = func(r *http.Request) error {
			err := believed(r)
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			g.mu.Lock()
			defer g.mu.Unlock()
			if err == nil && token == g.revoked {
				err = zoneauth.ErrWrongToken
			}
			g.tokens = append(g.tokens, token)
			if err != nil {
				g.refused = append(g.refused, err)
			}
			return err
		}
	})
	srv := httptest.NewServer(g.rig.Zone.Handler())
	t.Cleanup(srv.Close)
	g.url = srv.URL + "/invocations"
	return g
}

func (g *guarded) now() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Add(g.ahead)
}

// asker calls a guarded zone, with one connection and one set of tokens.
func (g *guarded) asker(t *testing.T, a direct.Authorizer) func() (zone.Result, zone.Info, error) {
	t.Helper()
	tr, err := direct.New(direct.Config{URL: g.url, Authorize: a})
	check(t, err)
	t.Cleanup(tr.Close)
	ids := zonetest.IDs()
	client := zone.NewClient(zone.ClientConfig{Transport: tr, Profile: zone.ProfileRelaxed, NewID: ids})
	return func() (zone.Result, zone.Info, error) {
		res, info, err := client.Ask(within(t, 2*time.Minute), zone.Call{ID: ids(), Task: zone.Task{Text: "say x"}})
		text := g.rig.Log.String()
		if err != nil {
			text += err.Error()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, token := range append([]string{clientSecret}, g.tokens...) {
			if token != "" && strings.Contains(text, token) {
				t.Errorf("a token is in an error or in the log: %s", text)
			}
		}
		return res, info, err
	}
}

// credentialsOf has tokens from an issuer by client credentials.
func credentialsOf(t *testing.T, issuer, secret string, now func() time.Time) direct.Authorizer {
	t.Helper()
	a, err := direct.OIDC(direct.OIDCConfig{
		Issuer: issuer, ClientID: clientID, ClientSecret: parley.NewSecret([]byte(secret)), Audience: audience, Now: now,
	})
	check(t, err)
	return a
}

// tokenFrom gets a token past everything of ours.
func tokenFrom(t *testing.T, issuer string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuer+"/token", strings.NewReader(form.Encode()))
	check(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(clientID, clientSecret)
	resp, err := http.DefaultClient.Do(r)
	check(t, err)
	defer resp.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
		t.Fatalf("no token: HTTP %d, %v", resp.StatusCode, err)
	}
	return got.Token
}

func fixed(token string) direct.Authorizer { return direct.Bearer(parley.NewSecret([]byte(token))) }

// unsigned is a token with what another one says, and nobody's signature.
func unsigned(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token has %d parts", len(parts))
	}
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"at+jwt"}`)) + "." + parts[1] + "."
}

// TestZN6_ForeignIssuerGood: tokens of a real issuer are had, believed, kept, and
// renewed when they are about to end or are no longer believed.
func TestZN6_ForeignIssuerGood(t *testing.T) {
	t.Parallel()
	at := "http://" + serve(t, issuer, setup{})
	g := newGuarded(t, at)
	var clock struct {
		sync.Mutex
		ahead time.Duration
	}
	ask := g.asker(t, credentialsOf(t, at, clientSecret, func() time.Time {
		clock.Lock()
		defer clock.Unlock()
		return time.Now().Add(clock.ahead)
	}))
	good := func(what string, starts, tokens int) {
		t.Helper()
		res, info, err := ask()
		if err != nil || res.ResponseText != "x" || info.Status != http.StatusOK || g.rig.Work.Starts() != starts {
			t.Fatalf("%s: %+v, %+v, %v", what, res, info, err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		different := make(map[string]bool)
		for _, token := range g.tokens {
			different[token] = true
		}
		if len(different) != tokens {
			t.Fatalf("%s: %d tokens", what, len(different))
		}
	}
	good("first", 1, 1)
	good("kept", 2, 1)
	clock.Lock()
	clock.ahead = 9*time.Minute + 30*time.Second // of ten
	clock.Unlock()
	good("about to end", 3, 2)
	g.mu.Lock()
	g.revoked = g.tokens[len(g.tokens)-1]
	g.mu.Unlock()
	good("no longer believed", 4, 3)
	if len(g.refused) != 1 {
		t.Errorf("refused %v", g.refused)
	}
}

// TestZN6_ForeignIssuerBad: every other token is refused with 401, and nothing
// runs.
func TestZN6_ForeignIssuerBad(t *testing.T) {
	t.Parallel()
	at := "http://" + serve(t, issuer, setup{})
	other := "http://" + serve(t, issuer, setup{env: []string{"TOKEN_AUDIENCE=urn:parley:elsewhere"}})
	short := "http://" + serve(t, issuer, setup{env: []string{"TOKEN_SECONDS=1"}})
	forger := "http://" + serve(t, issuer, setup{env: []string{"TOKEN_ISSUER=" + at}})
	tampered := tokenFrom(t, at)
	tampered = tampered[:len(tampered)-10] + strings.Map(func(r rune) rune {
		if r == 'A' {
			return 'B'
		}
		return 'A'
	}, tampered[len(tampered)-10:])
	for name, c := range map[string]struct {
		issuer string
		auth   direct.Authorizer
		ahead  time.Duration
		want   error
	}{
		"wrong audience":  {issuer: other, auth: credentialsOf(t, other, clientSecret, nil), want: zoneauth.ErrAudience},
		"expired":         {issuer: short, auth: credentialsOf(t, short, clientSecret, nil), ahead: 2 * time.Minute, want: zoneauth.ErrExpired},
		"another issuer":  {issuer: at, auth: credentialsOf(t, other, clientSecret, nil), want: zoneauth.ErrIssuer},
		"wrongly signed":  {issuer: at, auth: fixed(tokenFrom(t, forger)), want: zoneauth.ErrSignature},
		"tampered":        {issuer: at, auth: fixed(tampered), want: zoneauth.ErrSignature},
		"signed by none":  {issuer: at, auth: fixed(unsigned(t, tokenFrom(t, at))), want: zoneauth.ErrAlgorithm},
		"no token at all": {issuer: at, want: zoneauth.ErrNoToken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, c.issuer)
			g.ahead = c.ahead
			_, info, err := g.asker(t, c.auth)()
			if !isUnauthorized(err) || info.Status != http.StatusUnauthorized || g.rig.Work.Starts() != 0 {
				t.Errorf("%v, %+v, %d tasks were begun", err, info, g.rig.Work.Starts())
			}
			if len(g.refused) == 0 || len(g.refused) > 2 {
				t.Errorf("refused %d times", len(g.refused))
			}
			for _, err := range g.refused {
				if !errors.Is(err, c.want) {
					t.Errorf("refused since %v, want %v", err, c.want)
				}
			}
		})
	}
}

func isUnauthorized(err error) bool {
	fault, ok := errors.AsType[*zone.Error](err)
	return ok && fault.Reason == zone.ReasonUnauthorized
}

// TestZN6_ForeignIssuerRefuses: an issuer that does not know who asks, and one that
// is away.
func TestZN6_ForeignIssuerRefuses(t *testing.T) {
	t.Parallel()
	at := "http://" + serve(t, issuer, setup{})
	g := newGuarded(t, at)
	_, _, err := g.asker(t, credentialsOf(t, at, "another-secret-of-nobody", nil))()
	if class(err) != zone.ClassAuth || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "another-secret-of-nobody") {
		t.Errorf("unknown client: %v", err)
	}
	// Nobody can say whether it is a good token: nobody is let in, and nobody refused.
	away := newGuarded(t, "http://127.0.0.1:9")
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"http://127.0.0.1:9"}`)) + ".AAAA"
	_, info, err := away.asker(t, fixed(token))()
	fault, ok := errors.AsType[*zone.Error](err)
	if !ok || fault.Reason != zone.ReasonOverloaded || fault.RetryAfterMS == 0 || info.Status != http.StatusServiceUnavailable {
		t.Errorf("%v, %+v", err, info)
	}
	if len(away.refused) == 0 || !errors.Is(away.refused[0], zoneauth.ErrUnavailable) || away.rig.Work.Starts() != 0 {
		t.Errorf("refused %v", away.refused)
	}
	if len(g.tokens) != 0 || g.rig.Work.Starts() != 0 {
		t.Errorf("%d calls without a token", len(g.tokens))
	}
}
