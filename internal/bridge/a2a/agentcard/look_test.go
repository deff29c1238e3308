package agentcard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

// TestHealthHostile: whatever answers a look, over the real network: it ends, takes
// little memory, follows nothing, and says what is wrong, at the card as at the
// agent's own URL.
func TestHealthHostile(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(elsewhere.Close)
	// The port of a server that was closed would be given to one of those below.
	const nobody = "http://127.0.0.2:1/"
	endless := func(w http.ResponseWriter, r *http.Request) {
		piece := []byte(strings.Repeat(" ", 64<<10))
		for n := 0; n < 1<<30 && r.Context().Err() == nil; n += len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	says := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(text)) }
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		url     string
		// card and plain are what is said where the agent has a card, and where it
		// has none; "+" is healthy.
		card, plain string
	}{
		"card":           {handler: says(200, `{"name":"N","protocolVersion":"0.3.0","url":"http://h/"}`), card: "+card is there", plain: "+200"},
		"none any more":  {handler: says(404, "no"), card: "+404 Not Found", plain: "+404 Not Found"},
		"no GET":         {handler: says(501, "no"), card: "+501 Not Implemented", plain: "+501 Not Implemented"},
		"too many":       {handler: says(429, "no"), card: "+429", plain: "+429"},
		"page":           {handler: says(200, "<!doctype html><p>Parked"), card: "no agent card at", plain: "+200"},
		"fails":          {handler: says(503, "no"), card: "503 Service Unavailable", plain: "503 Service Unavailable"},
		"redirect":       {handler: http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, card: "not followed", plain: "not followed"},
		"private":        {handler: http.RedirectHandler("http://169.254.169.254/latest/", http.StatusTemporaryRedirect).ServeHTTP, card: "not followed", plain: "not followed"},
		"endless":        {handler: endless, card: "1048576 bytes", plain: "1048576 bytes"},
		"nobody":         {url: nobody, card: "could not be read", plain: "could not be reached"},
		"metadata":       {url: "http://169.254.169.254/", card: "could not be read", plain: "could not be reached"},
		"private ranges": {url: "http://10.1.2.3/", card: "could not be read", plain: "could not be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := c.url
			if url == "" {
				s := httptest.NewServer(c.handler)
				t.Cleanup(s.Close)
				url = s.URL
			}
			x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}})
			t.Cleanup(x.Close)
			look(t, x, parley.Agent{Name: "a", URL: url, Protocol: parley.ProtocolJSONRPC, Timeout: time.Minute}, c.card, c.plain)
		})
	}
	t.Cleanup(func() {
		if n := followed.Load(); n != 0 {
			t.Errorf("%d redirects were followed", n)
		}
	})
}

// look has the health of an agent looked at by its card and without one.
func look(t *testing.T, x *bridge.Exchange, agent parley.Agent, card, plain string) {
	t.Helper()
	d := agentcard.New(agentcard.Config{Exchange: x, Now: time.Now, NewID: func() string { return "id" }})
	found, err := json.Marshal(parley.Detection{Protocol: parley.ProtocolJSONRPC, CardURL: agent.URL + "/.well-known/agent-card.json"})
	if err != nil {
		t.Fatal(err)
	}
	agent.Detected = found
	h, ok := d.Look(context.Background(), agent)
	if !ok {
		t.Error("nobody has looked")
	}
	judge(t, h, card)
	if (h.CardHash != "") != (card == "+card is there") {
		t.Errorf("hash %q", h.CardHash)
	}
	h, err = x.Probe(context.Background(), agent)
	if err != nil {
		t.Error(err)
	}
	judge(t, h, plain)
}

// TestHealthSlow: an answer that does not begin, or does not end, ends the look with the
// agent's timeout.
func TestHealthSlow(t *testing.T) {
	for says, plain := range map[string]string{
		"": "could not be reached", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n": "of no use",
	} {
		synctest.Test(t, func(t *testing.T) {
			var agents sync.WaitGroup
			defer agents.Wait()
			x := bridge.NewExchange(bridge.ExchangeConfig{DialContext: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				agents.Go(func() {
					defer theirs.Close()
					_, err := http.ReadRequest(bufio.NewReader(theirs))
					if says == "" {
						_, _ = io.Copy(io.Discard, theirs)
						return
					}
					for piece := says; err == nil; piece = " " { // a drip
						_, err = io.WriteString(theirs, piece)
						time.Sleep(5 * time.Millisecond)
					}
				})
				return ours, nil
			}})
			defer x.Close()
			begun := time.Now()
			look(t, x, parley.Agent{Name: "a", URL: "http://agent.test", Protocol: parley.ProtocolJSONRPC, Timeout: time.Second}, "could not be read", plain)
			if took := time.Since(begun); took != 2*time.Second {
				t.Errorf("two looks of a second each took %v", took)
			}
		})
	}
}

func judge(t *testing.T, h parley.AgentHealth, want string) {
	t.Helper()
	text, healthy := strings.CutPrefix(want, "+")
	if h.Healthy != healthy || !strings.Contains(h.Message, text) || len(h.Message) > 1<<10 || len(h.Card) > 1<<20 {
		t.Errorf("healthy: %v, %q; want %q", h.Healthy, h.Message, want)
	}
}

// TestLookElsewhere: without a card that was found once, the look is somebody
// else's.
func TestLookElsewhere(t *testing.T) {
	d := agentcard.New(agentcard.Config{Exchange: &network{}, Now: time.Now, NewID: func() string { return "id" }})
	for _, detected := range []string{"", `{"protocol":"jsonrpc-2.0","url":"http://h/"}`} {
		if _, ok := d.Look(context.Background(), parley.Agent{URL: "http://h/", Detected: json.RawMessage(detected)}); ok {
			t.Errorf("detected %q: somebody has looked", detected)
		}
	}
}
