package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

func TestDetect(t *testing.T) {
	t.Parallel()
	const good = `{"name":"N","capabilities":{}}`
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for _, tt := range []struct {
		name, path string
		routes     map[string]http.HandlerFunc
		want       string
	}{
		{"none", "/", nil, ""},
		{"new place", "/", map[string]http.HandlerFunc{"/.well-known/agent-card.json": say(good)}, "/.well-known/agent-card.json"},
		{"old place", "", map[string]http.HandlerFunc{"/.well-known/agent.json": say(good)}, "/.well-known/agent.json"},
		{"below the agent's path first", "/a/b/", map[string]http.HandlerFunc{
			"/a/b/.well-known/agent.json": say(good), "/.well-known/agent-card.json": say(good),
		}, "/a/b/.well-known/agent.json"},
		{"at the root of the host", "/a/b", map[string]http.HandlerFunc{"/.well-known/agent-card.json": say(good)}, "/.well-known/agent-card.json"},
		{"a page for everything", "/", map[string]http.HandlerFunc{"/": say("<html>hello")}, ""},
		{"JSON that is no card", "/", map[string]http.HandlerFunc{"/": say(`{"name":"N"}`)}, ""},
		{"an array", "/", map[string]http.HandlerFunc{"/": say(`[1]`)}, ""},
		{"a card without a name", "/", map[string]http.HandlerFunc{"/": say(`{"skills":[]}`)}, ""},
		{"a card that is too long", "/", map[string]http.HandlerFunc{"/": say(`{"name":"N","skills":["` + strings.Repeat("x", maxCard) + `"]}`)}, ""},
		{"an error with a card", "/", map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, good)
		}}, ""},
		{"the card of somebody else", "/", map[string]http.HandlerFunc{
			"/.well-known/agent-card.json": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
			"/other":                       say(good),
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			for path, h := range tt.routes {
				mux.HandleFunc(path, h)
			}
			s := httptest.NewServer(mux)
			t.Cleanup(s.Close)
			u, err := url.Parse(s.URL + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := newTestApp(io.Discard, io.Discard).detect(t.Context(), u)
			want := tt.want
			if want != "" {
				want = s.URL + want
			}
			if err != nil || got.at != want {
				t.Errorf("%q, %v, want %q", got.at, err, want)
			}
		})
	}
}

// An agent that is not running has no card; an interrupt is an interrupt.
func TestDetectWithoutAnAgent(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	a := newTestApp(io.Discard, io.Discard)
	if got, err := a.detect(t.Context(), u); err != nil || got.at != "" {
		t.Errorf("%v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.detect(ctx, u); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"not_found 404": exitNotFound, "not_found 400": exitNotFound, "conflict 400": exitConflict, "conflict 409": exitConflict,
		"idempotency_conflict 409": exitConflict, "unauthorized 401": exitNotAllowed, "forbidden 403": exitNotAllowed, "forbidden 421": exitNotAllowed,
		"invalid 422": exitUsage, "invalid_input 422": exitUsage, "unsupported_protocol 422": exitUsage, "unknown_agent 400": exitUsage,
		"limit 413": exitUsage, "limit 422": exitUsage, "limit 429": exitFailed, "internal 500": exitFailed, "unavailable 503": exitFailed,
		"not_implemented 501": exitFailed, "something_new 404": exitNotFound, "something_new 409": exitConflict, "something_new 403": exitNotAllowed,
	} {
		var code string
		var status int
		if _, err := fmt.Sscan(text, &code, &status); err != nil {
			t.Fatal(err)
		}
		if got := exitOfCode(parley.Code(code), status); got != want {
			t.Errorf("%s: exit code %d, want %d", text, got, want)
		}
	}
}
