package rpchttp

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A wireTap keeps what was sent, and answers.
type wireTap struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
	answer   func(n int, r *http.Request) *http.Response // to the request with this number, from 0
}

// RoundTrip implements http.RoundTripper.
func (tap *wireTap) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	kept := *r // its header may be that of all POSTs
	kept.Header = r.Header.Clone()
	tap.mu.Lock()
	n := len(tap.requests)
	tap.requests, tap.bodies = append(tap.requests, &kept), append(tap.bodies, string(body))
	tap.mu.Unlock()
	return transport(func(r *http.Request) (*http.Response, error) { return tap.answer(n, r), nil }).RoundTrip(r)
}

// clients are those with wishes of their own, for which net/http follows redirects,
// and one without.
func clients(t *testing.T) map[string]*http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*http.Client{"plain": {}, "timeout": {Timeout: time.Minute}, "cookies": {Jar: jar}}
}

func redirectTo(status int, location string) *http.Response {
	res := respond(status, "", "")
	res.Header.Set("Location", location)
	return res
}

const aResult = `{"jsonrpc":"2.0","id":1,"result":1}`

// TestRedirects: a message and its credentials follow a redirect to the same server,
// with the same method, four times at most; else nobody gets them.
func TestRedirects(t *testing.T) {
	const first, limit = "http://host/rpc", 4
	for name, c := range map[string]struct {
		status int
		to     string // %d: one after the other
		sent   int
	}{
		"307":                {307, "http://host/other", 2},
		"308":                {308, "http://host/other", 2},
		"a path":             {307, "/other?key=1", 2},
		"GET instead":        {302, "http://host/other", 1},
		"GET, for good":      {301, "http://host/other", 1},
		"see other":          {303, "http://host/other", 1},
		"another scheme":     {307, "https://host/rpc", 1},
		"another host":       {308, "http://foreign/rpc", 1},
		"another port":       {307, "http://host:8080/rpc", 1},
		"host with a suffix": {307, "http://host.foreign/rpc", 1},
		"no address":         {307, "", 1},
		"no URL":             {308, "http://ho st/", 1},
		"as often as may be": {307, "/%d", limit + 1},
	} {
		for kind, client := range clients(t) {
			tap := &wireTap{answer: func(n int, _ *http.Request) *http.Response {
				if strings.Contains(c.to, "%d") {
					return redirectTo(c.status, fmt.Sprintf(c.to, n))
				}
				if n == 0 {
					return redirectTo(c.status, c.to)
				}
				return respond(http.StatusOK, jsonType, aResult)
			}}
			client.Transport = tap
			synctest.Test(t, func(t *testing.T) {
				s, err := NewStream("http://ada:S3cret@host/rpc", ClientConfig{Client: client})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				say(t, s, aCall)
				part, err := s.Read()
				if followed := c.sent == 2; (err == nil) != followed {
					t.Errorf("%s, %s: %s, %v", kind, name, part.Data, err)
				}
			})
			if len(tap.requests) != c.sent {
				t.Errorf("%s, %s: %d requests, want %d", kind, name, len(tap.requests), c.sent)
			}
			for i, r := range tap.requests {
				user, password, _ := r.BasicAuth()
				if r.Method != http.MethodPost || r.URL.Host != "host" || r.URL.Scheme != "http" || tap.bodies[i] != aCall || user != "ada" || password != "S3cret" {
					t.Errorf("%s, %s: %s %s of %s with %q", kind, name, r.Method, r.URL, user, tap.bodies[i])
				}
			}
		}
	}
}

// TestRedirectOfOwn: who wants to decide about redirects does.
func TestRedirectOfOwn(t *testing.T) {
	tap := &wireTap{answer: func(n int, _ *http.Request) *http.Response {
		if n == 0 {
			return redirectTo(http.StatusTemporaryRedirect, "http://elsewhere/rpc")
		}
		return respond(http.StatusOK, jsonType, aResult)
	}}
	asked := 0
	synctest.Test(t, func(t *testing.T) {
		s, err := NewStream("http://host/rpc", ClientConfig{Client: &http.Client{
			Transport:     tap,
			CheckRedirect: func(*http.Request, []*http.Request) error { asked++; return nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		say(t, s, aCall)
		if part, err := s.Read(); err != nil || string(part.Data) != aResult {
			t.Errorf("%s, %v", part.Data, err)
		}
	})
	if asked != 1 || len(tap.requests) != 2 || tap.requests[1].URL.Host != "elsewhere" {
		t.Errorf("asked %d times, %d requests", asked, len(tap.requests))
	}
}

// inSession answers as a server with sessions does: "1" is the id of them all.
func inSession(_ int, r *http.Request) *http.Response {
	switch r.Method {
	case http.MethodGet:
		res := open(r, eventType, "id: 0\n\n")
		res.Header.Set(DefaultSessionHeader, "1")
		return res
	case http.MethodDelete:
		return respond(http.StatusNoContent, "", "")
	}
	return respond(http.StatusOK, jsonType, aResult)
}

// TestCredentialsEverywhere: those of the URL, or those that ClientConfig.Headers
// sets in their place, are sent with the GET and the DELETE of a session, too, and no
// request leaves anything in the header of the next one.
func TestCredentialsEverywhere(t *testing.T) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:S3cret"))
	bearer := func(_ context.Context, h http.Header) error {
		h.Add("X-Request", "yes")
		h.Set("Authorization", "Bearer T0ken")
		return nil
	}
	for name, headers := range map[string]func(context.Context, http.Header) error{"": nil, "Headers": bearer} {
		for kind, client := range clients(t) {
			tap := &wireTap{answer: inSession}
			client.Transport = tap
			if client.Jar != nil {
				client.Jar.SetCookies(&url.URL{Scheme: "http", Host: "host"}, []*http.Cookie{{Name: "a", Value: "1"}})
			}
			synctest.Test(t, func(t *testing.T) {
				s, err := NewStream("http://ada:S3cret@host/rpc", ClientConfig{Client: client, WayBack: WayBackAtOnce, Headers: headers})
				if err != nil {
					t.Fatal(err)
				}
				before := maps.Clone(s.header)
				for range 3 {
					say(t, s, aCall)
					if _, err := s.Read(); err != nil {
						t.Error(err)
					}
				}
				s.Close()
				if len(s.header) != len(before) {
					t.Errorf("%s %s: the header of all POSTs became %v", kind, name, s.header)
				}
			})
			var methods strings.Builder
			for _, r := range tap.requests {
				methods.WriteString(r.Method + " ")
				want, cookies, own := basic, 0, 0
				if headers != nil {
					want, own = "Bearer T0ken", 1
				}
				if client.Jar != nil {
					cookies = 1
				}
				session := r.Header.Get(DefaultSessionHeader) == "1"
				if got := r.Header.Values("Authorization"); len(got) != 1 || got[0] != want || len(r.Cookies()) != cookies ||
					len(r.Header.Values("X-Request")) != own || session == (r.Method == http.MethodGet) || r.Host != "host" {
					t.Errorf("%s %s: %s has %v", kind, name, r.Method, r.Header)
				}
			}
			if methods.String() != "GET POST POST POST DELETE " {
				t.Errorf("%s %s: %s", kind, name, methods.String())
			}
		}
	}
}

// TestHeaderOfPosts: without a session, too, no POST leaves anything in the header that
// all of them begin with.
func TestHeaderOfPosts(t *testing.T) {
	for kind, client := range clients(t) {
		tap := &wireTap{answer: func(int, *http.Request) *http.Response { return respond(http.StatusOK, jsonType, aResult) }}
		client.Transport = tap
		cookies := 0
		if client.Jar != nil {
			client.Jar.SetCookies(&url.URL{Scheme: "http", Host: "host"}, []*http.Cookie{{Name: "a", Value: "1"}})
			cookies = 1
		}
		for _, own := range []int{0, 1} {
			cfg := ClientConfig{Client: client}
			if own == 1 {
				cfg.Headers = func(_ context.Context, h http.Header) error {
					h.Add("X-Request", "yes")
					return nil
				}
			}
			tap.requests = nil
			synctest.Test(t, func(t *testing.T) {
				s, err := NewStream("http://host/rpc", cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for range 3 {
					say(t, s, aCall)
					if _, err := s.Read(); err != nil {
						t.Error(err)
					}
				}
				if len(s.header) != 2 {
					t.Errorf("%s: the header of all POSTs became %v", kind, s.header)
				}
			})
			for _, r := range tap.requests {
				if len(r.Header["X-Request"]) != own || len(r.Cookies()) != cookies || r.Header["Authorization"] != nil {
					t.Errorf("%s: sent with %v", kind, r.Header)
				}
			}
		}
	}
}

// TestRedirectsClosed: the answer that redirects is closed, and a server in a session
// that fails is not one that has forgotten it.
func TestRedirectsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := streamOver(t, ClientConfig{}, func(*http.Request) (*http.Response, error) {
			if n++; n == 1 {
				return redirectTo(http.StatusTemporaryRedirect, "/other"), nil
			}
			return respond(http.StatusInternalServerError, "", ""), nil
		})
		s.learn("abc")
		say(t, s, aCall)
		if e := lostBy(t, s); e.Status != http.StatusInternalServerError || s.in.failure() != nil || n != 2 {
			t.Errorf("%v after %d requests, %v", e, n, s.in.failure())
		}
	})
}
