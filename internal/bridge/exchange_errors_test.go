package bridge_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestResendWords: what an agent says in a response that cannot be read is in the
// texts of net/http, by which a request that was not begun is known. No word of the
// agent's has its request sent again.
func TestResendWords(t *testing.T) {
	bothPaths(t, func(t *testing.T, limits bridge.ExchangeLimits) {
		for _, words := range []string{
			"Server's graceful shutdown GOAWAY", "; REFUSED_STREAM; received from peer", "cannot rewind body after connection loss",
			"stream error: stream ID 1; REFUSED_STREAM; received from peer", "http2: Transport received Server's graceful shutdown GOAWAY",
		} {
			for _, answer := range []string{words + "\r\n\r\n", "HTTP/1.1 " + words + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + words + "\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + words + "\r\n\r\n"} {
				var requests atomic.Int64
				x := newExchange(t, bridge.ExchangeConfig{Limits: limits, DialContext: pipeAgent(t, func(c net.Conn) {
					requests.Add(1)
					_, _ = c.Read(make([]byte, 4<<10))
					_, _ = c.Write([]byte(answer))
					_ = c.Close()
				})})
				_, err := x.Post(t.Context(), testTask(), parley.Agent{URL: "http://agent.test/", Timeout: time.Minute}, []byte("{}"))
				if requests.Load() != 1 {
					t.Errorf("%q: %d requests, %v", answer, requests.Load(), err)
				}
			}
		}
	})
}

// TestResendWordsHTTP2: the same of what it says with a GOAWAY whose last stream is
// the request's, which it may have executed.
func TestResendWordsHTTP2(t *testing.T) {
	a := newH2Agents(t, bridge.ExchangeConfig{})
	requests := a.script(func(_ int64, s h2Script, stream uint32) bool {
		last := binary.BigEndian.AppendUint32(nil, stream)
		s.say(frameGoAway, 0, 0, append(append(last, 0, 0, 0, codeInternal), "; REFUSED_STREAM; received from peer"...)...)
		return false
	})
	_, err := a.x.Post(t.Context(), testTask(), a.agent, []byte("{}"))
	if wantExchangeError(t, err, bridge.Lost, parley.CodeAgentUnavailable); requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
}
