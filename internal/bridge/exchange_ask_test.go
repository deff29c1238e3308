package bridge_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

func TestExchangeAsk(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	agentServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(t.Context())
		body, _ = io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/card", http.StatusFound)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", 2000))
		default:
			w.Header().Set("ETag", `"1"`)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "hello")
		}
	}))
	defer agentServer.Close()
	other := httptest.NewServer(agentServer.Config.Handler)
	defer other.Close()
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	defer x.Close()
	agent := parley.Agent{
		Name: "a", URL: agentServer.URL + "/rpc", Timeout: time.Minute,
		Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("c4nary")),
	}

	r, err := x.Ask(t.Context(), agent, bridge.Inquiry{URL: agentServer.URL + "/card?x=1", Header: http.Header{"A2A-Version": {"1.0"}}})
	if err != nil || r.Status != http.StatusTeapot || string(r.Body) != "hello" || r.Header.Get("ETag") != `"1"` {
		t.Errorf("%v, %v", r, err)
	}
	if got.Method != http.MethodGet || got.Header.Get("Authorization") != "Bearer c4nary" || got.Header.Get("A2A-Version") != "1.0" ||
		got.Header.Get("Content-Type") != "" || got.Header.Get("X-Correlation-Id") != "" {
		t.Errorf("request: %s %v", got.Method, got.Header)
	}
	if r, err := x.Ask(t.Context(), agent, bridge.Inquiry{Method: "POST", URL: agentServer.URL, Body: []byte("{}")}); err != nil || r.Status != http.StatusTeapot {
		t.Errorf("%v, %v", r, err)
	}
	if got.Header.Get("Content-Type") != "application/json" || string(body) != "{}" {
		t.Errorf("POST of %q with %v", body, got.Header)
	}
	if r, err := x.Ask(t.Context(), agent, bridge.Inquiry{URL: agentServer.URL + "/away"}); err != nil || r.Status != http.StatusFound {
		t.Errorf("a redirect: %v, %v", r, err)
	}
	// Another host, also on the same machine, gets no credential.
	if _, err := x.Ask(t.Context(), agent, bridge.Inquiry{URL: other.URL}); err != nil || got.Header.Get("Authorization") != "" {
		t.Errorf("another host: %v, %v", got.Header, err)
	}
	for _, tt := range []struct {
		q    bridge.Inquiry
		want parley.Code
	}{
		{bridge.Inquiry{URL: agentServer.URL + "/large", Limit: 1999}, parley.CodeLimit},
		{bridge.Inquiry{URL: "http://127.0.0.1:1/c4nary"}, parley.CodeAgentUnavailable},
		{bridge.Inquiry{URL: "http://10.1.2.3/"}, parley.CodeAgentUnavailable},
		{bridge.Inquiry{URL: "http://user:c4nary@127.0.0.1/"}, parley.CodeInvalid},
		{bridge.Inquiry{URL: "file:///etc/passwd"}, parley.CodeInvalid},
		{bridge.Inquiry{URL: "http://%zz"}, parley.CodeInvalid},
	} {
		_, err := x.Ask(t.Context(), agent, tt.q)
		if parley.CodeOf(err) != tt.want || strings.Contains(err.Error(), "c4nary") {
			t.Errorf("%s: %v, want %s", tt.q.URL, err, tt.want)
		}
	}
}

// TestExchangeAskTime: a question that gets no answer ends with the agent's timeout.
func TestExchangeAskTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, bridge.ExchangeConfig{DialContext: pipeAgent(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })})
		agent := parley.Agent{Name: "a", URL: "http://agent.test/rpc", Timeout: 3 * time.Second}
		begun := time.Now()
		_, err := x.Ask(t.Context(), agent, bridge.Inquiry{URL: "http://agent.test/slow"})
		if took := time.Since(begun); parley.CodeOf(err) != parley.CodeTimeout || took != agent.Timeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
