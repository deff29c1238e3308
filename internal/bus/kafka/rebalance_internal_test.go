package kafka

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/parley-project/parley/internal/bus"
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

// TestCommitsWithoutNews: what is acknowledged soon after a commit, or when a commit is
// refused, is committed though nothing else happens: a process that starts again would do
// it once more.
func TestCommitsWithoutNews(t *testing.T) {
	var h heard
	broker, b := hearing(t, "g", Config{}, &h)
	readToEnd(t, b, "g")
	send(t, b, bus.SubjectHint, 1, 2)
	readToEnd(t, b, "g")
	broker.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) { // once
		answer := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range req.(*kmsg.OffsetCommitRequest).Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic, topic.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				p := kmsg.NewOffsetCommitResponseTopicPartition()
				p.Partition, p.ErrorCode = rp.Partition, kerr.UnknownServerError.Code
				topic.Partitions = append(topic.Partitions, p)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	send(t, b, bus.SubjectHint, 2, 3)
	readToEnd(t, b, "g")
}

// TestPress: a partition with too much open is left alone until half of that is done, each
// time anew; so it is when all of the group has too many bytes. One that goes holds nothing.
func TestPress(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1")) // where nobody is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for name, gone := range map[string]func(*group, map[string][]int32){
		"lost":    func(g *group, parts map[string][]int32) { g.lost(t.Context(), nil, parts) },
		"revoked": func(g *group, parts map[string][]int32) { g.revoked(t.Context(), nil, parts) },
		"left": func(g *group, _ map[string][]int32) {
			if g.remove(g.feeds["t"]) || g.feeds["t"] != nil || len(g.feeds) != 1 {
				t.Error("not one of two is left")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPartition(place{"t", 0})
			p.resumeAt(0)
			g := &group{
				bus:    &Bus{cfg: Config{OpenRecords: 10, OpenBytes: 1000}, state: newState(time.Now, slog.New(slog.DiscardHandler))},
				client: client, wake: make(chan struct{}, 1), parts: map[place]*partition{p.place: p},
				feeds: map[string]*feed{"t": {topic: "t", queue: newQueue(1)}, "u": {topic: "u", queue: newQueue(1)}},
			}
			var open []*entry
			at := int64(0)
			take := func(n int, size int64) {
				for range n {
					open = append(open, p.receive(&kgo.Record{Offset: at}, size))
					g.bytes.Add(size)
					at++
				}
				g.press(p)
			}
			done := func(n int) {
				for _, e := range open[len(open)-n:] { // the last ones: nothing is to be committed
					g.acknowledge(p, e)
				}
				open = open[:len(open)-n]
				g.ease()
			}
			paused := func(when string, want bool) {
				t.Helper()
				if got := len(client.PauseFetchPartitions(nil)) > 0; got != want || p.paused != want || (g.paused.Load() == 1) != want {
					t.Errorf("%s: paused: %t, %t, %d; want %t", when, got, p.paused, g.paused.Load(), want)
				}
			}
			for _, round := range []string{"first", "second"} {
				take(9-len(open), 1)
				paused(round+", nearly", false)
				take(1, 1)
				paused(round+", full", true)
				take(1, 1)
				done(5)
				paused(round+", still more than half", true)
				done(1)
				paused(round+", half", false)
			}
			take(1, 995)
			paused("many bytes", true)
			done(1)
			paused("few bytes", false)
			take(1, 995)
			paused("many bytes again", true)
			gone(g, p.only())
			paused("gone", false)
			if g.bytes.Load() != 0 || len(g.partitions()) != 0 {
				t.Errorf("%d bytes are held by %d partitions", g.bytes.Load(), len(g.parts))
			}
		})
	}
}
