package a2a

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestLinkProbe proves what is said about the health of agents that no GET
// reaches, and that a probe and a call share the connection.
func TestLinkProbe(t *testing.T) {
	for url, healthy := range map[string]string{"stdio:agent --key s3cr3t": "The process runs", "ws://agent.example/": "The WebSocket is open"} {
		onStage(t, url, linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
			x := bridge.NewExchange(bridge.ExchangeConfig{})
			a := New(Options{Exchange: x})
			defer a.Close()
			a.link = r.links
			s.slow = time.Second
			h, ok := a.Probe(t.Context(), r.agent)
			if !ok || !h.Healthy || h.Message != healthy || h.ResponseTime != time.Second {
				t.Errorf("%s: %+v, %v", url, h, ok)
			}
			r.to.Version = V03
			if _, _, err := r.call(t.Context(), verbSend, "echo", ""); err != nil || len(s.dials) != 1 {
				t.Errorf("%s: %v, dialed at %v, want once", url, err, s.dials)
			}
			s.hangUp()
			s.err = errors.New("no such thing")
			time.Sleep(time.Minute)
			h, ok = a.Probe(t.Context(), r.agent)
			if !ok || h.Healthy || !strings.Contains(h.Message, "no such thing") || strings.Contains(h.Message, "s3cr3t") {
				t.Errorf("%s: %+v, %v, want the reason", url, h, ok)
			}
			r.agent.Timeout, s.slow = time.Millisecond, time.Hour
			time.Sleep(time.Minute)
			if h, _ = a.Probe(t.Context(), r.agent); h.Healthy || h.ResponseTime > time.Second {
				t.Errorf("%s: %+v, want unhealthy in time", url, h)
			}
		})
	}
	a := New(Options{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	defer a.Close()
	if _, ok := a.Probe(t.Context(), parley.Agent{URL: "https://agent.example/"}); ok {
		t.Error("an agent over HTTP is probed as a link")
	}
	if h, ok := a.Probe(t.Context(), parley.Agent{URL: "stdio:agent"}); !ok || h.Healthy || !strings.Contains(h.Message, "--allow-stdio") {
		t.Errorf("a program where none are run: %+v", h)
	}
}
