package kafka

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// holdJoins gives the member of a group, which has committed the first hint, while the group
// shares its partitions out anew; release lets that end.
func holdJoins(ctx context.Context, t *testing.T) (b *Bus, g *group, release func()) {
	t.Helper()
	var h heard
	broker, b := hearing(t, "g", Config{}, &h)
	g = b.list()["g"]
	for known := int64(0); known < 1; {
		offsets, err := b.committed(ctx, "parley.hints", "g")
		if err != nil {
			t.Fatal(err)
		}
		known = offsets[0]
	}
	begun, free := make(chan struct{}, 16), make(chan struct{})
	release = sync.OnceFunc(func() { close(free) })
	t.Cleanup(release)
	broker.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		begun <- struct{}{}
		broker.SleepControl(func() {
			select {
			case <-free:
			case <-ctx.Done():
			}
		})
		return nil, nil, false
	})
	g.client.ForceRebalance()
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("the group does not share out its partitions anew")
	}
	return b, g, release
}

// commitOne commits what is due of a partition.
func (g *group) commitOne(ctx context.Context, p *partition, limit time.Duration) (left bool) {
	g.committing.Lock()
	defer g.committing.Unlock()
	return g.commitLocked(ctx, []*partition{p}, limit)
}

// TestCommitWhileJoining: while a group shares its partitions out anew, which may take as
// long as one of its members hangs, nothing is committed. That is no trouble, for which all
// the others would be taken out of service, and no sign of brokers that say nothing.
func TestCommitWhileJoining(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, g, release := holdJoins(ctx, t)
	due := newPartition(place{"parley.hints", 0})
	due.startAt(1)
	if !g.commitOne(ctx, due, 50*time.Millisecond) {
		t.Error("nothing is left of a commit that was not sent")
	}
	if s := b.State(); len(s.Troubles) > 0 || b.silent.Load() {
		t.Errorf("troubles %v, brokers say nothing: %v", s.Troubles, b.silent.Load())
	}
	release()
	for g.commitOne(ctx, due, commitLimit) {
		if ctx.Err() != nil {
			t.Fatal("nothing is committed afterwards")
		}
	}
}

// TestCommitOfLost: a partition is lost while its commit waits for the member to join anew.
// As the new member that this process is then it does not commit what others may have
// taken further.
func TestCommitOfLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, g, release := holdJoins(ctx, t)
	stale := newPartition(place{"parley.hints", 0})
	stale.startAt(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.commitOne(ctx, stale, time.Minute)
	}()
	for g.committing.TryLock() { // until it is at it
		g.committing.Unlock()
	}
	time.Sleep(50 * time.Millisecond) // then it waits; else there is nothing to see
	stale.close()
	release()
	<-done
	offsets, err := b.committed(ctx, "parley.hints", "g")
	if err != nil || offsets[0] != 1 {
		t.Errorf("offset %d, %v; want 1", offsets[0], err)
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
