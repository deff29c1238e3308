package a2a

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestSocketSlow: an agent that takes the connection and says nothing, or a
// byte now and then, is given up in time.
func TestSocketSlow(t *testing.T) {
	for _, every := range []time.Duration{0, 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var agents sync.WaitGroup
			defer agents.Wait()
			dial := func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				agents.Go(func() { // until we hang up
					for err := error(nil); err == nil; {
						_, err = theirs.Read(make([]byte, 1<<10))
					}
					_ = theirs.Close()
				})
				agents.Go(func() {
					for err := error(nil); every > 0 && err == nil; {
						time.Sleep(every)
						_, err = theirs.Write([]byte("H"))
					}
				})
				return ours, nil
			}
			r := newLinkRig(t, "ws://agent.example/", linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{DialContext: dial})})
			r.agent.Timeout = 3 * time.Second
			begun := time.Now()
			_, _, err := r.call(t.Context(), verbSend, "", "")
			wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
			r.close()
			if took := time.Since(begun); took != r.agent.Timeout {
				t.Errorf("after %v, want %v", took, r.agent.Timeout)
			}
		})
	}
}

// TestBelongs: a credential goes to the agent's own host, by whatever spelling,
// and never from TLS to none.
func TestBelongs(t *testing.T) {
	agent := parley.Agent{URL: "https://a.example/"}
	for address, want := range map[string]bool{
		"https://A.example:8443/x": true, "a.example:50051": true, "wss://a.example/": true,
		"http://a.example/": false, "HTTP://a.example/": false, "ws://a.example/": false, "Ws://a.example/": false,
		"https://a.example.evil.example/": false, "https://a.example@evil.example/": false, "https://evil.example/#@a.example": false,
		"https://a.example\\@evil.example/": false, "https://a.example%00.evil.example/": false, "a.example:80@evil.example:90": false,
		"//a.example": false, "https:a.example": false, "stdio:a.example": false,
	} {
		if got := belongs(address, agent, Config{}); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
}
