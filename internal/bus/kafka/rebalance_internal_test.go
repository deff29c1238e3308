package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestRevokeLimit: handlers that do not return hold partitions that have to go for
// the limit, however many partitions they are of.
func TestRevokeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &group{wake: make(chan struct{}, 1), parts: make(map[place]*partition)}
		var running []*partition
		for i := range int32(3) {
			p := newPartition(place{"t", i})
			p.begin()
			g.parts[p.place] = p
			running = append(running, p)
		}
		revoked := make(chan struct{})
		go func() {
			defer close(revoked)
			g.revoked(context.Background(), nil, map[string][]int32{"t": {0, 1, 2}})
		}()
		select {
		case <-revoked:
		case <-time.After(2 * revokeLimit):
			t.Error("the partitions are still held after twice the limit")
		}
		for _, p := range running {
			p.finished()
		}
		<-revoked
	})
}
