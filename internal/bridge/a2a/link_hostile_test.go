package a2a

import (
	"net"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestSocketSlow: an agent that takes the connection and says nothing, or a
// byte now and then, is given up in time.
func TestSocketSlow(t *testing.T) {
	for _, every := range []time.Duration{0, 20 * time.Millisecond} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					for every > 0 {
						time.Sleep(every)
						if _, err := c.Write([]byte("H")); err != nil {
							return
						}
					}
					_, _ = c.Read(make([]byte, 1<<20))
					_, _ = c.Read(make([]byte, 1<<20))
				}()
			}
		}()
		r := newLinkRig(t, "ws://"+l.Addr().String(), linkOptions{Exchange: loopbackExchange(bridge.ExchangeConfig{})})
		r.agent.Timeout = 300 * time.Millisecond
		begun := time.Now()
		_, _, err = r.call(t.Context(), verbSend, "", "")
		wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		r.close()
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("after %v", took)
		}
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
