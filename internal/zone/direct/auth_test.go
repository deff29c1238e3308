package direct_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

// tokenIssuer gives tokens t1, t2, … for client credentials.
type tokenIssuer struct {
	*httptest.Server
	tokens, discoveries atomic.Int64
	status              atomic.Int64 // of the token endpoint, 0 for success
	life                atomic.Int64 // seconds
	path                atomic.Value // of the token endpoint
}

func newTokenIssuer(t *testing.T) *tokenIssuer {
	i := &tokenIssuer{}
	i.life.Store(3600)
	i.path.Store("/token")
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path, _ := i.path.Load().(string)
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			i.discoveries.Add(1)
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + path})
			return
		case path:
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = r.ParseForm()
		id, secret, _ := r.BasicAuth()
		if id == "" {
			id, secret = r.Form.Get("client_id"), r.Form.Get("client_secret")
		}
		if s := int(i.status.Load()); s != 0 {
			w.WriteHeader(s)
			_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":"secret %s is wrong"}`, secret)
			return
		}
		if id != "verification" || secret != "hunter2" || r.Form.Get("grant_type") != "client_credentials" || r.Form.Get("audience") != "execution" || r.Form.Get("scope") != "a b" {
			t.Errorf("%v", r.Form)
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":%d}`, i.tokens.Add(1), i.life.Load())
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *tokenIssuer) auth(t *testing.T, now func() time.Time) *direct.Tokens {
	t.Helper()
	a, err := direct.OIDC(direct.OIDCConfig{
		Issuer: i.URL, ClientID: "verification", ClientSecret: parley.NewSecret([]byte("hunter2")), Audience: "execution", Scopes: []string{"a", "b"}, Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// believing is a zone that believes one token.
func believing(t *testing.T, token *atomic.Value) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, good)
	}))
	t.Cleanup(srv.Close)
	return srv
}

func TestZN6_DirectOIDC(t *testing.T) {
	iss := newTokenIssuer(t)
	now := time.Now()
	var token atomic.Value
	token.Store("t1")
	srv := believing(t, &token)
	tr := open(t, direct.Config{URL: srv.URL, Authorize: iss.auth(t, func() time.Time { return now })})
	call := func(step string, tokens, attempts int64, class zone.Class) {
		t.Helper()
		_, info, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if class == "" && err != nil || class != "" && fault(t, err).Class != class {
			t.Fatalf("%s: %v", step, err)
		}
		if iss.tokens.Load() != tokens || int64(info.Attempts) != attempts {
			t.Fatalf("%s: %d tokens, %d attempts, want %d, %d", step, iss.tokens.Load(), info.Attempts, tokens, attempts)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error holds the secret: %v", step, err)
		}
	}
	call("first", 1, 1, "")
	call("kept", 1, 1, "")
	token.Store("t2")
	call("withdrawn", 2, 2, "")
	now = now.Add(time.Hour - 2*time.Minute)
	call("kept to the end", 2, 1, "")
	token.Store("t3")
	now = now.Add(90 * time.Second)
	call("renewed before the end", 3, 1, "")
	token.Store("none")
	call("not believed twice", 4, 2, zone.ClassAuth)
	iss.status.Store(401)
	now = now.Add(2 * time.Hour)
	call("the issuer refuses", 4, 0, zone.ClassAuth)
	iss.status.Store(503)
	call("the issuer is ill", 4, 0, zone.ClassNotSent)
	iss.status.Store(0)
	token.Store("t5")
	call("well again", 5, 1, "")
	if iss.discoveries.Load() != 1 {
		t.Errorf("%d discoveries", iss.discoveries.Load())
	}
}

// TestZN6_DirectOIDCTokenEndpointMoves: an issuer whose token endpoint is not there any more is
// asked where it is, once for each fetch.
func TestZN6_DirectOIDCTokenEndpointMoves(t *testing.T) {
	iss := newTokenIssuer(t)
	now := time.Now()
	auth := iss.auth(t, func() time.Time { return now })
	for step, path := range []string{"/token", "/token", "/oauth2/token", "/oauth2/token"} {
		iss.path.Store(path)
		h := http.Header{}
		if err := auth.Authorize(within(t, time.Minute), h); err != nil || h.Get("Authorization") != fmt.Sprintf("Bearer t%d", step+1) {
			t.Fatalf("step %d: %q, %v", step, h.Get("Authorization"), err)
		}
		now = now.Add(2 * time.Hour)
	}
	if n := iss.discoveries.Load(); n != 2 {
		t.Errorf("%d discoveries", n)
	}
	iss.path.Store("")
	if err := auth.Authorize(within(t, time.Minute), http.Header{}); fault(t, err).Class != zone.ClassAuth || iss.discoveries.Load() != 3 {
		t.Errorf("%d discoveries, %v", iss.discoveries.Load(), err)
	}
}

// TestZN6_DirectOIDCKeepsTheSecret: the client_secret goes to the token endpoint of the
// issuer over TLS and nowhere else, wherever the issuer sends.
func TestZN6_DirectOIDCKeepsTheSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint, discovery, token string // where the issuer sends; "" is nowhere else
	}{
		"endpoint without TLS":  {endpoint: "http://plain.example/token"},
		"redirect without TLS":  {token: "http://plain.example/token"},
		"redirect elsewhere":    {token: "https://other.example/token"},
		"redirect of discovery": {discovery: "http://plain.example/.well-known/openid-configuration"},
	} {
		var strangers atomic.Int64
		stranger := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			strangers.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"issuer":"https://issuer.example","token_endpoint":"http://plain.example/token","access_token":"t1","token_type":"Bearer"}`)
		})
		plain := httptest.NewServer(stranger)
		t.Cleanup(plain.Close)
		secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := map[string]string{"/token": tc.token, "/.well-known/openid-configuration": tc.discovery}[r.URL.Path]
			switch {
			case r.Host == "other.example":
				stranger(w, r)
			case to != "":
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			default:
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]any{"issuer": "https://issuer.example", "jwks_uri": "https://issuer.example/keys", "token_endpoint": cmp.Or(tc.endpoint, "https://issuer.example/token")})
			}
		}))
		t.Cleanup(secure.Close)
		client := secure.Client()
		transport := client.Transport.(*http.Transport)
		transport.TLSClientConfig.InsecureSkipVerify = true // of names of our own making
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			to := secure
			if strings.HasPrefix(address, "plain.") {
				to = plain
			}
			return new(net.Dialer).DialContext(ctx, network, to.Listener.Addr().String())
		}
		auth, err := direct.OIDC(direct.OIDCConfig{
			Issuer: "https://issuer.example", ClientID: "verification", ClientSecret: parley.NewSecret([]byte("hunter2")), Client: client,
		})
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		if err = auth.Authorize(within(t, time.Minute), h); err == nil || strings.Contains(err.Error(), "hunter2") || strangers.Load() != 0 || len(h) != 0 {
			t.Errorf("%s: %v; %d requests to somebody else, %v", name, err, strangers.Load(), h)
		}
	}
}

func TestZN6_DirectOIDCStartsWhileTheIssuerIsAway(t *testing.T) {
	iss := newTokenIssuer(t)
	auth := iss.auth(t, nil)
	handler := iss.Config.Handler
	var away atomic.Bool
	away.Store(true)
	iss.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	})
	if err := auth.Authorize(within(t, time.Minute), http.Header{}); err == nil {
		t.Fatal("no error")
	}
	away.Store(false)
	if err := auth.Authorize(within(t, time.Minute), http.Header{}); err != nil {
		t.Fatal(err)
	}
}

func TestZN6_DirectTokensAreFetchedOnce(t *testing.T) {
	for _, broken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var fetches atomic.Int64
			enter, leave := make(chan struct{}, 100), make(chan struct{})
			tokens := direct.NewTokens(direct.TokenConfig{Header: "X-Serverless-Authorization", Fetch: func(ctx context.Context) (direct.Token, error) {
				fetches.Add(1)
				enter <- struct{}{}
				<-leave
				if broken {
					return direct.Token{}, errors.New("broken")
				}
				return direct.Token{Secret: parley.NewSecret([]byte("tok"))}, nil
			}})
			ctx := within(t, time.Minute)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					h := http.Header{}
					if err := tokens.Authorize(ctx, h); (err != nil) != broken {
						t.Error(err)
					} else if !broken && h.Get("X-Serverless-Authorization") != "Bearer tok" {
						t.Errorf("%v", h)
					}
				})
			}
			<-enter
			synctest.Wait() // the others have come to wait
			close(leave)
			wg.Wait()
			if fetches.Load() != 1 {
				t.Errorf("broken %v: %d fetches", broken, fetches.Load())
			}
		})
	}
}

// TestZN6_DirectTokenOfNobody: calls that have waited for one token in vain do not share
// what is known of their exchanges. The next attempt of a question would go to the session
// of another one, which ends with that.
func TestZN6_DirectTokenOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		tokens := direct.NewTokens(direct.TokenConfig{Fetch: func(context.Context) (direct.Token, error) {
			<-leave
			return direct.Token{}, &zone.TransportError{Class: zone.ClassNotSent, Err: errors.New("HTTP 503")}
		}})
		transport, err := direct.New(direct.Config{
			URL: "https://execution.example/", Authorize: tokens, Retry: direct.Retry{Attempts: 1},
			Platform: direct.Platform{Header: func(_ http.Header, meta zone.Meta) (string, error) { return "session of " + meta.Task, nil }},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		ctx := within(t, time.Minute)
		var faults [2]*zone.TransportError
		var calls sync.WaitGroup
		for i, task := range []string{"a", "b"} {
			calls.Go(func() {
				_, _, err := transport.Call(ctx, []byte("{}"), zone.Meta{Task: task})
				faults[i], _ = errors.AsType[*zone.TransportError](err)
			})
		}
		synctest.Wait() // both have come to wait
		close(leave)
		calls.Wait()
		for i, want := range []string{"session of a", "session of b"} {
			if f := faults[i]; f == nil || f.Class != zone.ClassNotSent || f.Info.Affinity != want {
				t.Errorf("%+v, want %s", f, want)
			}
		}
	})
}

// TestZN6_DirectTokenOfOneWhoGivesUp: the others go on without it.
func TestZN6_DirectTokenOfOneWhoGivesUp(t *testing.T) {
	var n atomic.Int64
	first := make(chan struct{})
	tokens := direct.NewTokens(direct.TokenConfig{Fetch: func(ctx context.Context) (direct.Token, error) {
		if n.Add(1) == 1 {
			close(first)
			<-ctx.Done()
			return direct.Token{}, ctx.Err()
		}
		return direct.Token{Secret: parley.NewSecret([]byte("tok"))}, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := tokens.Authorize(ctx, http.Header{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-first
	wg.Go(func() {
		if err := tokens.Authorize(t.Context(), http.Header{}); err != nil {
			t.Error(err)
		}
	})
	cancel()
	wg.Wait()
}

// TestZN6_DirectTokenOfOneInAHurry: one whose time is over while a token is fetched says
// nothing about the token; the others, who have time, get it.
func TestZN6_DirectTokenOfOneInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := direct.NewTokens(direct.TokenConfig{Fetch: func(ctx context.Context) (direct.Token, error) {
			select {
			case <-time.After(2 * time.Second):
				return direct.Token{Secret: parley.NewSecret([]byte("tok"))}, nil
			case <-ctx.Done():
				return direct.Token{}, ctx.Err()
			}
		}})
		var wg sync.WaitGroup
		for _, d := range []time.Duration{time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			wg.Go(func() {
				if err := tokens.Authorize(ctx, http.Header{}); (err == nil) != (d == time.Minute) {
					t.Errorf("with %v: %v", d, err)
				}
			})
			synctest.Wait() // the one in a hurry comes first
		}
		wg.Wait()
	})
}

// TestZN6_DirectGoogleAccess: an access token is kept as long as it lives, and an
// answer without one is an error that shows nothing of it.
func TestZN6_DirectGoogleAccess(t *testing.T) {
	var asked atomic.Int64
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := asked.Add(1); {
		case r.Header.Get("Metadata-Flavor") != "Google":
			w.WriteHeader(http.StatusForbidden)
		case n == 3:
			_, _ = fmt.Fprint(w, `{"token":"ya29.secret"}`)
		default:
			_, _ = fmt.Fprintf(w, `{"access_token":"ya29.%d","expires_in":3600,"token_type":"Bearer"}`, n)
		}
	}))
	defer meta.Close()
	auth := direct.GoogleAccess(direct.GoogleConfig{URL: meta.URL, Now: func() time.Time { return now }})
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "Bearer ya29.1"}, {30 * time.Minute, "Bearer ya29.1"}, {30 * time.Minute, "Bearer ya29.2"}, {time.Hour, ""}} {
		now = now.Add(step.after)
		h := http.Header{}
		err := auth.Authorize(within(t, time.Minute), h)
		if h.Get("Authorization") != step.want || (err == nil) != (step.want != "") || err != nil && strings.Contains(err.Error(), "ya29") {
			t.Errorf("after %s: %v, %v, want %s", step.after, h, err, step.want)
		}
	}
}

// TestZN6_DirectGoogleNoProxy: a proxy of the environment is not asked for tokens.
// The environment is read once, so that a process of its own asks.
func TestZN6_DirectGoogleNoProxy(t *testing.T) {
	if os.Getenv("TEST_PROXY") != "" {
		auth := direct.GoogleAccess(direct.GoogleConfig{URL: "http://metadata.invalid/token"})
		if err := auth.Authorize(within(t, time.Minute), http.Header{}); err == nil {
			t.Error("a token came from nowhere")
		}
		return
	}
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = fmt.Fprint(w, `{"access_token":"ya29.1","expires_in":3600}`)
	}))
	defer proxy.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestZN6_DirectGoogleNoProxy$")
	cmd.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "TEST_PROXY=on", "NO_PROXY=")
	if out, err := cmd.CombinedOutput(); err != nil || asked.Load() != 0 {
		t.Errorf("%v, the proxy was asked %d times: %s", err, asked.Load(), out)
	}
}

func TestZN6_DirectGoogleID(t *testing.T) {
	var asked atomic.Int64
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" || r.URL.Query().Get("audience") != "https://x.run.app" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, "id-token-%d\n", asked.Add(1))
	}))
	defer meta.Close()
	auth, err := direct.GoogleID(direct.GoogleConfig{Audience: "https://x.run.app", URL: meta.URL, Header: "X-Serverless-Authorization"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h := http.Header{}
		if err := auth.Authorize(within(t, time.Minute), h); err != nil || h.Get("X-Serverless-Authorization") != "Bearer id-token-1" {
			t.Errorf("%v, %v", h, err)
		}
	}
	if _, err := direct.GoogleID(direct.GoogleConfig{}); err == nil {
		t.Error("no audience was accepted")
	}
}
