package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/parley-project/parley/internal/config"
)

// TestZoneProxy: a Verification Zone goes out by the proxy of its environment, to Slack
// as to the other zone.
func TestZoneProxy(t *testing.T) {
	t.Parallel()
	a := &app{stderr: io.Discard, env: []string{"HTTPS_PROXY=http://proxy.example:3128", "no_proxy=near.example"}}
	cfg, err := a.verificationConfig(&config.Loaded{})
	if err != nil {
		t.Fatal(err)
	}
	for name, choose := range map[string]func(*http.Request) (*url.URL, error){"Slack": cfg.Slack.Proxy, "the other zone": cfg.Transport.Proxy} {
		for target, want := range map[string]string{
			"https://slack.com/api": "http://proxy.example:3128", "https://near.example/invocations": "", "https://127.0.0.1/invocations": "",
		} {
			got, err := choose(httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil))
			if err != nil || got == nil && want != "" || got != nil && got.String() != want {
				t.Errorf("%s at %s by %v, want %q: %v", name, target, got, want, err)
			}
		}
	}
}
