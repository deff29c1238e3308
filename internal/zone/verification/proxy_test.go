package verification_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone/verification"
)

// forwardProxy passes requests on, and opens tunnels.
type forwardProxy struct{ requests, tunnels atomic.Int64 }

// ServeHTTP implements [http.Handler].
func (p *forwardProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		p.tunnels.Add(1)
		tunnel(w, r.Host)
		return
	}
	p.requests.Add(1)
	r.RequestURI = ""
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// tunnel joins the caller to an address until one of both ends it.
func tunnel(w http.ResponseWriter, address string) {
	far, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	near, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close()
		return
	}
	var both sync.WaitGroup
	join := func(to io.Writer, from io.Reader) {
		both.Go(func() {
			_, _ = io.Copy(to, from)
			_ = near.Close()
			_ = far.Close()
		})
	}
	join(near, far)
	join(far, early) // what the caller has sent since it was told
	both.Wait()
}

// TestZN7_SlackByProxy: where the way to Slack is a proxy, both its Web API and the
// events of Socket Mode come by it.
func TestZN7_SlackByProxy(t *testing.T) {
	proxy := &forwardProxy{}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	check(t, err)
	r := newSocketRig(t, store.Options{}, func(cfg *verification.Config) { cfg.Slack.Proxy = http.ProxyURL(at) })
	r.start()
	eventually(t, "a connection", func() bool { return r.slack.Connections() > 0 })
	m := inChannel("why?")
	r.slack.Push("events_api", m.Body())
	eventually(t, "an answer", func() bool { return len(r.texts(m)) > 0 })
	r.stop()
	r.want(m, "You asked: why?")
	if proxy.requests.Load() < 2 || proxy.tunnels.Load() != 1 {
		t.Errorf("%d requests and %d tunnels went by the proxy", proxy.requests.Load(), proxy.tunnels.Load())
	}
}
