package bridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tokenRig is a token store whose fetches take a second.
type tokenRig struct {
	*tokens
	mu    sync.Mutex
	count int
	fails *tokenFailure
	life  time.Duration
}

func newTokenRig() *tokenRig {
	r := &tokenRig{life: time.Minute}
	r.tokens = &tokens{now: time.Now, kept: map[tokenKey]*tokenEntry{}, fetch: r.fetchOne}
	return r
}

func (r *tokenRig) fetchOne(ctx context.Context, _ tokenRequest) (accessToken, *tokenFailure) {
	r.mu.Lock()
	r.count++
	n, fails := r.count, r.fails
	r.mu.Unlock()
	begun := time.Now()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return accessToken{}, &tokenFailure{text: "cut"}
	}
	if fails != nil {
		return accessToken{}, fails
	}
	skew := min(maxSkew, r.life/5)
	return accessToken{value: fmt.Sprint("t", n), stale: begun.Add(r.life - skew), ends: begun.Add(r.life)}, nil
}

func (r *tokenRig) fail(f *tokenFailure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = f
}

func (r *tokenRig) fetched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// TestTokenExpiry: a token is replaced before it ends, once, while the old one
// still serves; and serves on if there is no new one.
func TestTokenExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTokenRig()
		req := tokenRequest{agent: "a"}
		want := func(token string, fetched int) {
			t.Helper()
			got, failed, err := r.get(t.Context(), req, "")
			if got != token || failed != nil || err != nil || r.fetched() != fetched {
				t.Errorf("%q, %v, %v after %d fetches; want %q after %d", got, failed, err, r.fetched(), token, fetched)
			}
		}
		start := time.Now()
		want("t1", 1)
		time.Sleep(47*time.Second - time.Since(start))
		want("t1", 1)
		time.Sleep(48*time.Second - time.Since(start)) // a fifth of its life is left
		var wg sync.WaitGroup
		wg.Go(func() { want("t2", 2) })
		synctest.Wait()
		want("t1", 2) // does not wait for the fetch
		if time.Since(start) != 48*time.Second {
			t.Errorf("waited until %v", time.Since(start))
		}
		wg.Wait()
		want("t2", 2)

		r.fail(&tokenFailure{text: "down", retryable: true})
		time.Sleep(50 * time.Second)
		want("t2", 3) // tried, and the old one is still good
		want("t2", 3) // not tried again at once
		time.Sleep(time.Second)
		want("t2", 4)
		time.Sleep(20 * time.Second) // now it has ended
		if _, failed, _ := r.get(t.Context(), req, ""); failed == nil || failed.text != "down" {
			t.Errorf("failure %+v", failed)
		}
		r.fail(nil)
		time.Sleep(2 * time.Second)
		want("t6", 6)
	})
}

// TestTokenOneFlight: all who need a token at once wait for one fetch, also
// when it fails; who goes away takes nobody along.
func TestTokenOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTokenRig()
		req := tokenRequest{agent: "a"}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if got, failed, err := r.get(t.Context(), req, ""); got != "t1" || failed != nil || err != nil {
					t.Errorf("%q, %v, %v", got, failed, err)
				}
			})
		}
		wg.Wait()
		if r.fetched() != 1 {
			t.Errorf("%d fetches for 100 callers", r.fetched())
		}

		r.fail(&tokenFailure{text: "down"})
		other := tokenRequest{agent: "b"}
		for range 100 {
			wg.Go(func() {
				if _, failed, _ := r.get(t.Context(), other, ""); failed == nil {
					t.Error("no failure")
				}
			})
		}
		wg.Wait()
		if r.fetched() != 2 {
			t.Errorf("%d fetches, want 2", r.fetched())
		}

		// The first goes away in the middle of its fetch.
		r.fail(nil)
		third := tokenRequest{agent: "c"}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			if _, failed, err := r.get(ctx, third, ""); err == nil || failed != nil {
				t.Errorf("%v, %v", failed, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if got, failed, err := r.get(t.Context(), third, ""); got != "t4" || failed != nil || err != nil {
				t.Errorf("%q, %v, %v", got, failed, err)
			}
		})
		wg.Wait()
	})
}

// TestTokenRefused: a token that was refused is not given again, and what was
// fetched meanwhile is not fetched twice.
func TestTokenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTokenRig()
		req := tokenRequest{agent: "a"}
		get := func(refused string) string { s, _, _ := r.get(t.Context(), req, refused); return s }
		if got := []string{get(""), get("t1"), get("t1"), get(""), get("t2")}; strings.Join(got, " ") != "t1 t2 t2 t2 t3" {
			t.Errorf("%v", got)
		}
		if r.fetched() != 3 {
			t.Errorf("%d fetches", r.fetched())
		}
	})
}

// TestTokenPanic: a fetch that panics does not keep the next from trying.
func TestTokenPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTokenRig()
		fetch := r.fetch
		r.fetch = func(context.Context, tokenRequest) (accessToken, *tokenFailure) { panic("bad") }
		func() {
			defer func() { _ = recover() }()
			_, _, _ = r.get(t.Context(), tokenRequest{}, "")
		}()
		r.fetch = fetch
		if got, _, _ := r.get(t.Context(), tokenRequest{}, ""); got != "t1" {
			t.Errorf("%q", got)
		}
	})
}

// TestTokensAreBounded: room is made for new ones, of ended ones first.
func TestTokensAreBounded(t *testing.T) {
	r := newTokenRig()
	now := time.Now()
	for i := range maxTokens {
		e := &tokenEntry{token: accessToken{value: "x", ends: now.Add(time.Hour)}}
		if i%4 == 0 {
			e.token.ends = now.Add(-time.Second)
		}
		r.kept[tokenRequest{agent: fmt.Sprint(i)}.key()] = e
	}
	r.entry(tokenRequest{agent: "new"}.key())
	if len(r.kept) != maxTokens*3/4+1 {
		t.Errorf("%d kept", len(r.kept))
	}
	for i := range maxTokens {
		r.kept[tokenRequest{agent: fmt.Sprint("more", i)}.key()] = &tokenEntry{token: accessToken{value: "x", ends: now.Add(time.Hour)}}
	}
	r.entry(tokenRequest{agent: "newer"}.key())
	if len(r.kept) > maxTokens {
		t.Errorf("%d kept", len(r.kept))
	}
}

// TestTokenLife: expires_in is a number or a string; without one there is a
// default, and nothing lasts for ever.
func TestTokenLife(t *testing.T) {
	begun := time.Unix(1000, 0)
	for text, want := range map[string]time.Duration{
		`60`: time.Minute, `"60"`: time.Minute, `60.5`: 60500 * time.Millisecond, `1e99`: maxLife, `0`: defaultLife, `-5`: defaultLife,
		`null`: defaultLife, `"soon"`: defaultLife, `{}`: defaultLife, `"NaN"`: defaultLife,
	} {
		got, failed := readToken(200, []byte(`{"access_token":"x","expires_in":`+text+`}`), begun)
		if failed != nil || got.ends.Sub(begun) != want || !got.stale.Before(got.ends) {
			t.Errorf("%s: %v, %v", text, got.ends.Sub(begun), failed)
		}
	}
}

func FuzzReadToken(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"x","token_type":"Bearer","expires_in":1}`))
	f.Add(400, []byte(`{"error":"invalid_client","error_description":"\u0000"}`))
	f.Add(503, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		token, failed := readToken(status, body, time.Now())
		if (failed == nil) != (token.value != "") {
			t.Errorf("%+v, %+v", token, failed)
		}
		if failed == nil && !validValue("Bearer "+token.value) {
			t.Errorf("token %q", token.value)
		}
		if failed != nil && (len(failed.text) > 600 || strings.ContainsAny(failed.text, "\n\r\x00\x1b")) {
			t.Errorf("text %q", failed.text)
		}
	})
}

func FuzzReadChallenge(f *testing.F) {
	f.Add(`Bearer realm="a, \"b", error="invalid_token", Basic`)
	f.Add(`Negotiate abc==, Digest nonce="x"`)
	f.Fuzz(func(t *testing.T, line string) {
		c := readChallenge(map[string][]string{"Www-Authenticate": {line, line}})
		for _, s := range append(c.schemes, c.code) {
			if s != "" && !isWord(s) {
				t.Errorf("%q", s)
			}
		}
		if len(c.schemes) > maxSchemes {
			t.Errorf("%q", c.schemes)
		}
	})
}
