package zoneauth_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone/zoneauth"
)

// issuer is an OpenID provider.
type issuer struct {
	*httptest.Server
	down      atomic.Bool
	discovery atomic.Int64
	fetches   atomic.Int64

	mu   sync.Mutex
	keys jose.JSONWebKeySet
}

func newIssuer(t *testing.T, keys ...jose.JSONWebKey) *issuer {
	i := &issuer{keys: jose.JSONWebKeySet{Keys: keys}}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			i.discovery.Add(1)
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + "/token"})
		case "/keys":
			i.fetches.Add(1)
			i.mu.Lock()
			defer i.mu.Unlock()
			_ = json.NewEncoder(w).Encode(i.keys)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) set(keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys.Keys = keys
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(key *rsa.PrivateKey, kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: &key.PublicKey, KeyID: kid, Algorithm: "RS256", Use: "sig"}
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key, claims any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func asks(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/invocations", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

var t0 = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func claimsOf(iss string, change func(map[string]any)) map[string]any {
	c := map[string]any{"iss": iss, "aud": "execution", "sub": "verification", "iat": t0.Unix(), "exp": t0.Add(time.Hour).Unix()}
	if change != nil {
		change(c)
	}
	return c
}

func TestZN6_OIDCTokens(t *testing.T) {
	key, other := rsaKey(t), rsaKey(t)
	iss := newIssuer(t, public(key, "k1"))
	k1 := jose.JSONWebKey{Key: key, KeyID: "k1"}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	body, _ := json.Marshal(claimsOf(iss.URL, nil))
	good := sign(t, jose.RS256, k1, claimsOf(iss.URL, nil))
	parts := strings.Split(good, ".")
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(name string, value any) string {
		return sign(t, jose.RS256, k1, claimsOf(iss.URL, func(c map[string]any) {
			if value == nil {
				delete(c, name)
				return
			}
			c[name] = value
		}))
	}
	tests := []struct {
		name, token string
		want        error
	}{
		{"good", good, nil},
		{"several audiences", claim("aud", []string{"a", "execution"}), nil},
		{"no key id", sign(t, jose.RS256, key, claimsOf(iss.URL, nil)), nil},
		{"expired within the leeway", claim("exp", t0.Add(-30*time.Second).Unix()), nil},
		{"fractions of seconds", claim("exp", 1e-1+float64(t0.Add(time.Hour).Unix())), nil},
		{"expired", claim("exp", t0.Add(-2*time.Minute).Unix()), zoneauth.ErrExpired},
		{"never expires", claim("exp", nil), zoneauth.ErrMalformed},
		{"not yet", claim("nbf", t0.Add(time.Hour).Unix()), zoneauth.ErrNotYet},
		{"issued in the future", claim("iat", t0.Add(time.Hour).Unix()), zoneauth.ErrNotYet},
		{"wrong audience", claim("aud", "somebody"), zoneauth.ErrAudience},
		{"no audience", claim("aud", nil), zoneauth.ErrAudience},
		{"wrong issuer", claim("iss", "https://evil.example.com"), zoneauth.ErrIssuer},
		{"issuer with a slash", claim("iss", iss.URL+"/"), zoneauth.ErrIssuer},
		{"wrongly signed", sign(t, jose.RS256, jose.JSONWebKey{Key: other, KeyID: "k1"}, claimsOf(iss.URL, nil)), zoneauth.ErrSignature},
		{"unknown key", sign(t, jose.RS256, jose.JSONWebKey{Key: other, KeyID: "k9"}, claimsOf(iss.URL, nil)), zoneauth.ErrSignature},
		{"other type of key", sign(t, jose.ES256, jose.JSONWebKey{Key: ec, KeyID: "k1"}, claimsOf(iss.URL, nil)), zoneauth.ErrSignature},
		{"changed claims", parts[0] + "." + b64(strings.Replace(string(body), "verification", "administrato", 1)) + "." + parts[2], zoneauth.ErrSignature},
		{"no signature", parts[0] + "." + parts[1] + ".", zoneauth.ErrSignature},
		{"alg none", b64(`{"alg":"none"}`) + "." + parts[1] + ".", zoneauth.ErrAlgorithm},
		{"alg None", b64(`{"alg":"None"}`) + "." + parts[1] + "." + parts[2], zoneauth.ErrAlgorithm},
		{"HS256 with the public key", sign(t, jose.HS256, jose.JSONWebKey{Key: publicPEM, KeyID: "k1"}, claimsOf(iss.URL, nil)), zoneauth.ErrAlgorithm},
		{"RS512", sign(t, jose.RS512, k1, claimsOf(iss.URL, nil)), zoneauth.ErrAlgorithm},
		{"no token", "", zoneauth.ErrNoToken},
		{"no JWT", "abc", zoneauth.ErrMalformed},
		{"huge", strings.Repeat("a", 1<<20), zoneauth.ErrMalformed},
	}
	check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: iss.URL, Audience: "execution", Now: func() time.Time { return t0 }, AllowHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := check(asks(tt.token))
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if err != nil && len(tt.token) > 3 && strings.Contains(err.Error(), tt.token[:4]) {
				t.Errorf("the error holds the token: %v", err)
			}
		})
	}
	if n := iss.fetches.Load(); n > 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

func TestZN6_OIDCIssuerAwayAndKeysReplaced(t *testing.T) {
	key, next := rsaKey(t), rsaKey(t)
	iss := newIssuer(t, public(key, "k1"))
	iss.down.Store(true)
	now := t0
	check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: iss.URL, Audience: "execution", Now: func() time.Time { return now }, AllowHTTP: true})
	if err != nil {
		t.Fatalf("a zone must start while the issuer is away: %v", err)
	}
	far := func(c map[string]any) { c["exp"] = t0.Add(1000 * time.Hour).Unix() }
	old := sign(t, jose.RS256, jose.JSONWebKey{Key: key, KeyID: "k1"}, claimsOf(iss.URL, far))
	renewed := sign(t, jose.RS256, jose.JSONWebKey{Key: next, KeyID: "k2"}, claimsOf(iss.URL, far))
	want := func(step, token string, want error) {
		t.Helper()
		if err := check(asks(token)); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Fatalf("%s: got %v, want %v", step, err, want)
		}
	}
	want("away", old, zoneauth.ErrUnavailable)
	iss.down.Store(false)
	want("asked a moment ago", old, zoneauth.ErrUnavailable)
	now = now.Add(11 * time.Second)
	want("back", old, nil)
	iss.set(public(next, "k2"))
	want("a new key, asked a moment ago", renewed, zoneauth.ErrSignature)
	now = now.Add(11 * time.Second)
	want("a new key", renewed, nil)
	want("the key that was withdrawn", old, zoneauth.ErrSignature)
	iss.down.Store(true)
	now = now.Add(2 * time.Hour)
	want("away for long: the keys stay", renewed, nil)
	before := iss.discovery.Load()
	for range 50 {
		want("nobody's keys", sign(t, jose.RS256, jose.JSONWebKey{Key: key, KeyID: "x"}, claimsOf(iss.URL, far)), zoneauth.ErrSignature)
	}
	if got := iss.discovery.Load(); got != before {
		t.Errorf("the issuer was asked %d times for keys that nobody has", got-before)
	}
}

func TestZN6_OIDCConcurrent(t *testing.T) {
	key := rsaKey(t)
	iss := newIssuer(t, public(key, "k1"))
	check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: iss.URL, Audience: "execution", Now: func() time.Time { return t0 }, AllowHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	token := sign(t, jose.RS256, jose.JSONWebKey{Key: key, KeyID: "k1"}, claimsOf(iss.URL, nil))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := check(asks(token)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if iss.discovery.Load() != 1 || iss.fetches.Load() != 1 {
		t.Errorf("%d discoveries, %d fetches, want one each", iss.discovery.Load(), iss.fetches.Load())
	}
}

// TestZN6_OIDCIssuerHangs: an issuer that does not answer is waited for once by all who
// are there, and not by one after the other; where there are keys only one waits.
func TestZN6_OIDCIssuerHangs(t *testing.T) {
	key := rsaKey(t)
	synctest.Test(t, func(t *testing.T) {
		const issuer = "https://login.example.com"
		hangs := true
		check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: issuer, Audience: "execution", Client: &http.Client{Transport: answers(func(r *http.Request) (any, error) {
			switch {
			case hangs:
				<-r.Context().Done()
				return nil, r.Context().Err()
			case r.URL.Path == "/keys":
				return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public(key, "k1")}}, nil
			}
			return map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys"}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		token := sign(t, jose.RS256, jose.JSONWebKey{Key: key, KeyID: "k1"}, map[string]any{"iss": issuer, "aud": "execution", "exp": time.Now().Add(24 * time.Hour).Unix()})
		together := func(want error, first, others time.Duration) {
			t.Helper()
			var all sync.WaitGroup
			for i := range 5 {
				all.Go(func() {
					most, began := others, time.Now()
					if i == 0 {
						most = first
					}
					if err := check(asks(token)); !errors.Is(err, want) || time.Since(began) > most {
						t.Errorf("caller %d: %v after %v, want %v within %v", i, err, time.Since(began), want, most)
					}
				})
				synctest.Wait()
			}
			all.Wait()
		}
		const timeout = 10 * time.Second
		together(zoneauth.ErrUnavailable, timeout, timeout)
		hangs = false
		time.Sleep(time.Minute)
		together(nil, 0, 0)
		hangs = true
		time.Sleep(2 * time.Hour)
		together(nil, timeout, 0)
	})
}

// TestZN6_OIDCKeysOverTLS: what an issuer says is believed over TLS alone, wherever it
// sends: on the way anybody could put in a key of their own.
func TestZN6_OIDCKeysOverTLS(t *testing.T) {
	const issuer = "https://login.example.com"
	mine, theirs := rsaKey(t), rsaKey(t)
	for name, sends := range map[string]map[string]string{
		"keys without TLS":      {"jwks_uri": "http://login.example.com/keys"},
		"redirect of the keys":  {"/keys": "http://login.example.com/keys"},
		"redirect of discovery": {"/.well-known/openid-configuration": "http://login.example.com/.well-known/openid-configuration"},
	} {
		asked := 0
		check, err := zoneauth.OIDC(zoneauth.OIDCConfig{
			Issuer: issuer, Audience: "execution", Now: func() time.Time { return t0 },
			Client: &http.Client{Transport: answers(func(r *http.Request) (any, error) {
				key := mine
				switch to := sends[r.URL.Path]; {
				case r.URL.Scheme == "http":
					asked++
					key = theirs
				case to != "":
					return redirect(to), nil
				}
				if r.URL.Path == "/keys" {
					return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public(key, "k1")}}, nil
				}
				return map[string]any{"issuer": issuer, "jwks_uri": cmp.Or(sends["jwks_uri"], issuer+"/keys")}, nil
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		token := sign(t, jose.RS256, jose.JSONWebKey{Key: theirs, KeyID: "k1"}, claimsOf(issuer, nil))
		if err := check(asks(token)); !errors.Is(err, zoneauth.ErrUnavailable) || asked > 0 {
			t.Errorf("%s: %v; asked %d times without TLS", name, err, asked)
		}
	}
}

// redirect is an answer that sends to another address.
type redirect string

// answers is a RoundTripper that answers in JSON what a function gives.
type answers func(*http.Request) (any, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	v, err := f(r)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if to, ok := v.(redirect); ok {
		http.Redirect(w, r, string(to), http.StatusFound)
		return w.Result(), nil
	}
	w.Header().Set("Content-Type", "application/json")
	err = json.NewEncoder(w).Encode(v)
	return w.Result(), err
}

func TestZN6_OIDCConfig(t *testing.T) {
	for _, cfg := range []zoneauth.OIDCConfig{
		{},
		{Issuer: "https://a.example.com"},
		{Issuer: "http://a.example.com", Audience: "x"},
		{Issuer: "a.example.com", Audience: "x"},
		{Issuer: "https://a.example.com", Audience: "x", Algorithms: []string{"HS256"}},
		{Issuer: "https://a.example.com", Audience: "x", Algorithms: []string{"none"}},
	} {
		if _, err := zoneauth.OIDC(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestZN6_Bearer(t *testing.T) {
	if _, err := zoneauth.Bearer(parley.Secret{}); err == nil {
		t.Error("an empty secret was accepted")
	}
	check, err := zoneauth.Bearer(parley.NewSecret([]byte("s3cret-value")))
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]error{
		"Bearer s3cret-value":  nil,
		"bearer s3cret-value":  nil,
		"Bearer s3cret-valu":   zoneauth.ErrWrongToken,
		"Bearer s3cret-value2": zoneauth.ErrWrongToken,
		"Basic s3cret-value":   zoneauth.ErrNoToken,
		"Bearer ":              zoneauth.ErrNoToken,
		"s3cret-value":         zoneauth.ErrNoToken,
		"":                     zoneauth.ErrNoToken,
	} {
		r := asks("")
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		if err := check(r); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%q: got %v, want %v", header, err, want)
		}
	}
	r := asks("s3cret-value")
	r.Header.Add("Authorization", "Bearer other")
	if err := check(r); !errors.Is(err, zoneauth.ErrSeveralSaid) {
		t.Errorf("two headers: %v", err)
	}
}

func TestZN6_OIDCKeysThatAreNoKeys(t *testing.T) {
	key := rsaKey(t)
	for name, tt := range map[string]struct {
		key  jose.JSONWebKey
		want error
	}{
		"for encryption": {jose.JSONWebKey{Key: &key.PublicKey, KeyID: "k1", Use: "enc"}, zoneauth.ErrSignature},
		"private":        {jose.JSONWebKey{Key: key, KeyID: "k1"}, zoneauth.ErrUnavailable},
		"shared":         {jose.JSONWebKey{Key: []byte("0123456789abcdef"), KeyID: "k1"}, zoneauth.ErrUnavailable},
	} {
		iss := newIssuer(t, tt.key)
		check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: iss.URL, Audience: "execution", Now: func() time.Time { return t0 }, AllowHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := check(asks(sign(t, jose.RS256, jose.JSONWebKey{Key: key, KeyID: "k1"}, claimsOf(iss.URL, nil)))); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// TestZN6_OIDCKeysOfOtherKinds: keys of which nothing is understood, or that are none, keep
// nobody from the others (RFC 7517 §5).
func TestZN6_OIDCKeysOfOtherKinds(t *testing.T) {
	key := rsaKey(t)
	good, err := json.Marshal(public(key, "k1"))
	if err != nil {
		t.Fatal(err)
	}
	token := func(iss *issuer) *http.Request {
		return asks(sign(t, jose.RS256, jose.JSONWebKey{Key: key, KeyID: "k1"}, claimsOf(iss.URL, nil)))
	}
	for set, want := range map[string]error{
		`{"keys":[{"kty":"AKP","alg":"ML-DSA-44","pub":"AAAA","kid":"k2"},GOOD]}`: nil,
		`{"keys":[GOOD,{"kty":"OKP","crv":"Ed448","x":"AAAA"}]}`:                  nil,
		`{"keys":[{"kty":"EC","crv":"secp256k1","x":"AAAA","y":"AAAA"},GOOD]}`:    nil,
		`{"keys":[{"kty":"RSA","n":"AQAB"},{},null,7,GOOD]}`:                      nil,
		`{"keys":[{"kty":"AKP","alg":"ML-DSA-44","pub":"AAAA","kid":"k1"}]}`:      zoneauth.ErrUnavailable,
		`{"keys":GOOD}`: zoneauth.ErrUnavailable,
		`{}`:            zoneauth.ErrUnavailable,
		`[GOOD]`:        zoneauth.ErrUnavailable,
	} {
		iss := newIssuer(t)
		discovery := iss.Config.Handler
		iss.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/keys" {
				discovery.ServeHTTP(w, r)
				return
			}
			_, _ = io.WriteString(w, strings.ReplaceAll(set, "GOOD", string(good)))
		})
		check, err := zoneauth.OIDC(zoneauth.OIDCConfig{Issuer: iss.URL, Audience: "execution", Now: func() time.Time { return t0 }, AllowHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := check(token(iss)); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", set, err, want)
		}
	}
}
