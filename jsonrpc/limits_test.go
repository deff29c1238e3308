package jsonrpc

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestLargestLimits proves that a limit of the largest number there is, or of one by
// which sums go beyond that, is no limit rather than none at all: calls take their time,
// and everything is answered (RPC-10, RPC-23).
func TestLargestLimits(t *testing.T) {
	slow := HandlerFunc(func(context.Context, *Request) (any, error) {
		time.Sleep(time.Hour)
		return "done", nil
	})
	for _, large := range []int{math.MaxInt, math.MaxInt / 8 * 3} {
		for name, h := range map[string]Handler{"pooled": slow, "inline": inlineAll{slow}} {
			cfg := Config{
				Timeout: math.MaxInt64, StallTimeout: math.MaxInt64, Grace: math.MaxInt64,
				MaxPending: large, MaxHandlers: large, MaxMessage: large, MaxDepth: large, MaxBatch: large, WriteBuffer: large,
				Handler: h,
			}
			withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
				t.Logf("%s, %d", name, large)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
				defer cancel()
				defer context.AfterFunc(ctx, func() { _ = peer.s.Close() })()
				peer.send(`no JSON`, `{"jsonrpc":"2.0","id":1,"method":"m"}`, `[{"jsonrpc":"2.0","id":2,"method":"m"}]`)
				got := peer.next() + peer.next() + peer.next()
				for _, want := range []string{`"code":-32700`, `{"jsonrpc":"2.0","id":1,"result":"done"}`, `[{"jsonrpc":"2.0","id":2,"result":"done"}]`} {
					if !strings.Contains(got, want) {
						t.Errorf("got %s, want %s", got, want)
					}
				}

				go func() {
					for range 2 {
						id := requestID(t, strings.Trim(peer.next(), "[]"))
						time.Sleep(time.Hour)
						peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":7}`, id))
					}
				}()
				var n, m int
				if err := c.Call(context.Background(), "m", nil, &n); err != nil || n != 7 {
					t.Errorf("a call that takes an hour: %d, %v", n, err)
				}
				var b Batch
				one := b.Call("m", nil, &m)
				if err := c.Batch(context.Background(), &b); err != nil || one.Err() != nil || m != 7 {
					t.Errorf("a batch that takes an hour: %d, %v, %v", m, err, one.Err())
				}
			})
		}
	}
}

// TestNegativeBackoff proves that a Client with bounds below zero pauses as one without.
func TestNegativeBackoff(t *testing.T) {
	cl := NewClient(func(ctx context.Context) (Stream, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, ClientConfig{MinBackoff: -1, MaxBackoff: math.MinInt64, Random: func() float64 { return 0 }})
	defer cl.Close()
	if first, last := cl.backoff(1), cl.backoff(1000); first != 100*time.Millisecond || last != 30*time.Second {
		t.Errorf("it pauses for %v up to %v", first, last)
	}
}

// TestLargestBackoff proves that the pause of a Client stays between its bounds, however
// large they are, and however often it has failed.
func TestLargestBackoff(t *testing.T) {
	for _, tt := range []struct {
		least, most time.Duration
		failures    int
		want        time.Duration // without chance
	}{
		{time.Second, 8 * time.Second, 1, time.Second},
		{time.Second, 8 * time.Second, 3, 4 * time.Second},
		{time.Second, 8 * time.Second, 4, 8 * time.Second},
		{time.Second, 8 * time.Second, 1 << 30, 8 * time.Second},
		{time.Second, 7 * time.Second, 4, 7 * time.Second},
		{9 * time.Second, 8 * time.Second, 1, 8 * time.Second},
		{1, math.MaxInt64, 63, 1 << 62},
		{1, math.MaxInt64, 64, math.MaxInt64},
		{1, math.MaxInt64, 1000, math.MaxInt64},
		{math.MaxInt64/2 + 1, math.MaxInt64, 2, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 5, math.MaxInt64},
	} {
		for off, share := range map[float64]time.Duration{0: 0, 0.5: 4, 1 - 1.0/(1<<53): 2} {
			cl := &Client{cfg: ClientConfig{MinBackoff: tt.least, MaxBackoff: tt.most, Random: func() float64 { return off }}}
			got, want := cl.backoff(tt.failures), tt.want
			if share > 0 {
				want -= tt.want / share
			}
			if diff := got - want; diff < -1024 || diff > 1024 { // what floating point cannot tell from another
				t.Errorf("%v to %v, %d failures, %v: %v, want %v", tt.least, tt.most, tt.failures, off, got, want)
			}
		}
	}
}
