package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCommitWhileJoining: while a group shares its partitions out anew, which may take as
// long as one of its members hangs, nothing is committed. That is no trouble, for which all
// the others would be taken out of service, and no sign of brokers that say nothing.
func TestCommitWhileJoining(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var h heard
	broker, b := hearing(t, "g", Config{}, &h)
	g := b.list()["g"]
	begun, release := make(chan struct{}, 16), make(chan struct{})
	broker.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		begun <- struct{}{}
		broker.SleepControl(func() {
			select {
			case <-release:
			case <-ctx.Done():
			}
		})
		return nil, nil, false
	})
	defer func() {
		select {
		case <-release:
		default:
			close(release)
		}
	}()
	g.client.ForceRebalance()
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("the group does not share out its partitions anew")
	}
	commit := func(limit time.Duration) (left bool) {
		p := newPartition(place{"parley.hints", 0})
		p.startAt(1)
		g.committing.Lock()
		defer g.committing.Unlock()
		return g.commitLocked(ctx, []*partition{p}, limit)
	}
	if !commit(50 * time.Millisecond) {
		t.Error("nothing is left of a commit that was not sent")
	}
	if s := b.State(); len(s.Troubles) > 0 || b.silent.Load() {
		t.Errorf("troubles %v, brokers say nothing: %v", s.Troubles, b.silent.Load())
	}
	close(release)
	for commit(commitLimit) {
		if ctx.Err() != nil {
			t.Fatal("nothing is committed afterwards")
		}
	}
}

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
