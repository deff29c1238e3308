package agentcard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

// network answers inquiries from handlers, by host, and keeps what was asked.
type network struct {
	mu    sync.Mutex
	hosts map[string]http.Handler
	asked []asked
}

// asked is one inquiry as a line, with its header and body.
type asked struct {
	line   string
	header http.Header
	body   string
}

func (n *network) Ask(ctx context.Context, agent parley.Agent, q bridge.Inquiry) (bridge.Reply, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		return bridge.Reply{}, parley.Errorf(parley.CodeInvalid, "no URL")
	}
	method := q.Method
	if method == "" {
		method = http.MethodGet
	}
	n.mu.Lock()
	n.asked = append(n.asked, asked{method + " " + u.Path, q.Header, string(q.Body)})
	h := n.hosts[u.Host]
	n.mu.Unlock()
	if h == nil {
		e := parley.Errorf(parley.CodeAgentUnavailable, "%s %s: no connection", method, q.URL)
		e.Retryable = true
		return bridge.Reply{}, e
	}
	req := httptest.NewRequestWithContext(ctx, method, q.URL, strings.NewReader(string(q.Body)))
	req.Header = http.Header{}
	for name, values := range q.Header {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	// As [bridge.Exchange] does: the credential goes to the host of agent.URL.
	own, err := url.Parse(agent.URL)
	if token := agent.Credential.Reveal(); len(token) > 0 && err == nil && own.Host == u.Host {
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	body := rec.Body.Bytes()
	if q.Limit > 0 && len(body) > q.Limit {
		return bridge.Reply{}, parley.Errorf(parley.CodeLimit, "%s is larger than %d bytes", q.URL, q.Limit)
	}
	return bridge.Reply{Status: rec.Code, Header: rec.Header(), Body: body}, nil
}

// lines gives the methods and paths that were asked for, and forgets them.
func (n *network) lines() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, a := range n.asked {
		out = append(out, a.line)
	}
	n.asked = nil
	return out
}

// clock is a time that stands still until it is set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type rig struct {
	*network
	*agentcard.Detector
	clock *clock
}

func newRig(t *testing.T, hosts map[string]http.Handler) *rig {
	t.Helper()
	r := &rig{network: &network{hosts: hosts}, clock: &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}}
	n := 0
	r.Detector = agentcard.New(agentcard.Config{
		Exchange: r.network, Now: r.clock.now,
		NewID: func() string { n++; return fmt.Sprint(n) },
		Resolve: func(ref string) (parley.Secret, error) {
			if ref == "env:KEYS" {
				return parley.NewSecret([]byte(`{"keys":[]}`)), nil
			}
			return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "secret %s does not exist", ref)
		},
	})
	return r
}

// serve answers GETs of path with text, and everything else with 404.
func serve(path, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	})
}

// says answers every POST with status and text.
func says(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="x"`)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
}

func agentAt(address string, config ...string) parley.Agent {
	a := parley.Agent{Name: "a", URL: address}
	if len(config) > 0 {
		a.ProtocolConfig = []byte(config[0])
	}
	return a
}

// has says whether one of the lines holds text.
func has(lines []string, text string) bool {
	return strings.Contains(strings.Join(lines, "\n"), text)
}

func copyTo(b *strings.Builder, r *http.Request) (int64, error) { return io.Copy(b, r.Body) }

func detailsOf(err error) []byte {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Details
	}
	return nil
}
