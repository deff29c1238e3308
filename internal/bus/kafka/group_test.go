package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// tally counts the deliveries of numbered messages.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) handle(_ context.Context, m bus.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[string]int)
	}
	c.seen[string(m.Value)]++
	return nil
}

// count gives the different messages and those that came more than once.
func (c *tally) count() (different, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seen {
		if n > 1 {
			twice++
		}
	}
	return len(c.seen), twice
}

// has reports whether all of a range came.
func (c *tally) has(from, to int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := from; i < to; i++ {
		if c.seen[strconv.Itoa(i)] == 0 {
			return false
		}
	}
	return true
}

// record is what a logger wrote.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

func (r *record) contains(s string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.text.String(), s)
}

func publishMany(t *testing.T, b *kafka.Bus, subject string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := b.Publish(t.Context(), bus.Message{Subject: subject, Key: strconv.Itoa(i), Value: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
}

// spot is a subject and a group that no other test uses.
type spot struct{ subject, group string }

func spotOf(t *testing.T, subject string) spot {
	t.Helper()
	return spot{subject, kafkatest.Topics(t)("g")}
}

func subscribe(t *testing.T, b *kafka.Bus, at spot, h bus.Handler) (stop func()) {
	t.Helper()
	stop, err := b.Subscribe(t.Context(), at.subject, at.group, h)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

// TestRestart: a process that is started again under its instance id goes on at
// once with its partitions, gets what was published meanwhile, and nothing that
// it acknowledged.
func TestRestart(t *testing.T) {
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.groups")
	publisher := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	config := kafka.Config{Brokers: brokers, Topics: topics, InstanceID: "bridge-1", SessionTimeout: time.Minute}
	b := open(t, config)
	var first, second tally
	subscribe(t, b, at, first.handle)
	publishMany(t, publisher, at.subject, 0, 20)
	eventually(t, "all arrives", func() bool { n, _ := first.count(); return n == 20 })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	publishMany(t, publisher, at.subject, 20, 40)
	began := time.Now()
	b = open(t, config)
	subscribe(t, b, at, second.handle)
	eventually(t, "the rest arrives", func() bool { n, _ := second.count(); return n == 20 })
	if d := time.Since(began); d > config.SessionTimeout/2 {
		t.Errorf("it took %v to go on, as if the session of before had to end", d)
	} else {
		t.Logf("went on within %v", d)
	}
	if n, twice := second.count(); n != 20 || twice != 0 || first.seen["19"] != 1 || second.seen["20"] != 1 {
		t.Errorf("after the restart %d messages came, %d of them twice", n, twice)
	}
}

// TestSessionEnds: the partitions of a process that does not come back move when
// its session times out, with what it had not acknowledged.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.leave")
	config := kafka.Config{Brokers: brokers, Topics: topics, SessionTimeout: 2 * time.Second}
	config.InstanceID = "gone"
	gone := open(t, config)
	hang := make(chan struct{})
	subscribe(t, gone, at, func(ctx context.Context, m bus.Message) error { <-hang; return nil })
	publisher := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	publishMany(t, publisher, at.subject, 0, 30)
	config.InstanceID = "stays"
	stays := open(t, config)
	var got tally
	subscribe(t, stays, at, got.handle)
	go func() { time.Sleep(300 * time.Millisecond); close(hang) }() // what runs ends in good order, the rest stays
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	publishMany(t, publisher, at.subject, 30, 60)
	eventually(t, "everything was handled by one or the other", func() bool { n, _ := got.count(); return n >= 60-8 })
	eventually(t, "the one that stays has all partitions", func() bool { return len(stays.State().Assigned[at.group][topics[at.subject]]) == 3 })
}

// TestFencedByNobody: a member that the brokers refuse, although no other process has its
// instance id, joins anew, and handles what came meanwhile. Here somebody has taken the
// membership and is gone, with a farewell or without, or the whole group is; a coordinator
// that could not write it down does the same.
func TestFencedByNobody(t *testing.T) {
	t.Parallel()
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.errors")
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics, InstanceID: "alone", SessionTimeout: 6 * time.Second})
	var got tally
	subscribe(t, b, at, got.handle)
	publishMany(t, b, at.subject, 0, 5)
	eventually(t, "it works", func() bool { n, _ := got.count(); return n == 5 })
	other, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const leaves, deleted = 0, 2
	for round := range 3 {
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.InstanceID, join.ProtocolType = at.group, new("alone"), "consumer"
		join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 6000, 6000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: []byte{0, 1, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0}}}
		if answer, err := join.RequestWith(t.Context(), other); err != nil || kerr.ErrorForCode(answer.ErrorCode) != nil {
			t.Fatalf("join: %+v, %v", answer, err)
		}
		eventually(t, "it is refused", func() bool {
			err := b.Health(t.Context())
			return err != nil && strings.Contains(err.Error(), "bus.kafka.instance_id")
		})
		if round == leaves || round == deleted {
			leave := kmsg.NewPtrLeaveGroupRequest()
			leave.Group, leave.Members = at.group, []kmsg.LeaveGroupRequestMember{{InstanceID: new("alone")}}
			if answer, err := leave.RequestWith(t.Context(), other); err != nil || kerr.ErrorForCode(answer.ErrorCode) != nil {
				t.Fatalf("leave: %+v, %v", answer, err)
			}
		}
		if round == deleted {
			if gone, err := administer(t, brokers).DeleteGroup(t.Context(), at.group); err != nil || gone.Err != nil {
				t.Fatal(err, gone.Err)
			}
		}
		from := 100 * (round + 1)
		publishMany(t, b, at.subject, from, from+5)
		eventually(t, "it goes on", func() bool { return got.has(from, from+5) })
		eventually(t, "it is well", func() bool { return b.Health(t.Context()) == nil })
	}
}

// TestFenced: of two processes under one instance id the older one stops, and says why.
// What it has in hand then comes to the newer one, however late the older one is done with
// it, and what it was handed meanwhile counts for nothing. It does not take the membership
// back while the newer one lives, and goes on when that has ended.
func TestFenced(t *testing.T) {
	t.Parallel()
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.errors")
	config := kafka.Config{Brokers: brokers, Topics: topics, InstanceID: "same", SessionTimeout: 2 * time.Second}
	newer := open(t, config)
	var log record
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	older := open(t, config)
	var got, later, last tally
	stuck, begun := make(chan struct{}), make(chan struct{}, 3)
	subscribe(t, older, at, func(ctx context.Context, m bus.Message) error {
		if n, _ := strconv.Atoi(string(m.Value)); n >= 100 {
			begun <- struct{}{}
			<-stuck
		}
		return got.handle(ctx, m)
	})
	publishMany(t, newer, at.subject, 0, 5)
	eventually(t, "the older one works", func() bool { n, _ := got.count(); return n == 5 })
	publishMany(t, newer, at.subject, 100, 103)
	<-begun
	subscribe(t, newer, at, later.handle)
	eventually(t, "the older one says that it was replaced", func() bool {
		err := older.Health(t.Context())
		return err != nil && strings.Contains(err.Error(), "bus.kafka.instance_id")
	})
	publishMany(t, newer, at.subject, 5, 15)
	eventually(t, "the newer one gets everything", func() bool { return later.has(5, 15) && later.has(100, 103) })
	close(stuck)
	eventually(t, "the older one is done, too late", func() bool { n, _ := got.count(); return n >= 6 })
	eventually(t, "the older one says that it waits", func() bool { return log.contains("another process has the membership") })
	publishMany(t, newer, at.subject, 15, 20)
	eventually(t, "the newer one goes on", func() bool { return later.has(15, 20) })
	if err := newer.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := older.Subscribe(t.Context(), at.subject, at.group, got.handle); parley.CodeOf(err) != parley.CodeConflict {
		t.Errorf("subscribe again: %v, want a conflict", err)
	}
	if err := newer.Close(); err != nil {
		t.Error(err)
	}
	publishMany(t, older, at.subject, 20, 25)
	eventually(t, "the older one goes on", func() bool { return got.has(20, 25) })
	eventually(t, "the older one is well", func() bool { return older.Health(t.Context()) == nil })
	ends, err := older.EndOffsets(t.Context(), at.subject)
	if err != nil {
		t.Fatal(err)
	}
	// Else it may be that it loses its session, which is short, before it commits them.
	eventually(t, "what it has done is committed", func() bool {
		ok, err := older.CaughtUp(t.Context(), at.subject, at.group, ends)
		return ok && err == nil
	})
	if err := older.Close(); err != nil {
		t.Error(err)
	}
	third := open(t, config)
	subscribe(t, third, at, last.handle)
	publishMany(t, third, at.subject, 200, 203)
	eventually(t, "a third one goes on", func() bool { n, _ := last.count(); return n >= 3 })
	if n, _ := last.count(); n != 3 {
		t.Errorf("the third one got %v", last.seen)
	}
}

// TestOtherKind: a group whose members share partitions in another way, as the
// bridge of the existing platform does, is named.
func TestOtherKind(t *testing.T) {
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.other")
	old, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(at.group), kgo.ConsumeTopics(topics[at.subject]),
		kgo.Balancers(kgo.RangeBalancer()), kgo.ClientID("kafka-python-2.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	eventually(t, "the group is refused", func() bool {
		stop, err := b.Subscribe(t.Context(), at.subject, at.group, func(context.Context, bus.Message) error { return nil })
		if err == nil {
			stop()
			return false
		}
		if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "kafka-python-2.0.2") || !strings.Contains(err.Error(), "(bus.kafka.groups)") {
			t.Fatal(err)
		}
		return true
	})
	old.Close()
	subscribe(t, b, at, func(context.Context, bus.Message) error { return nil })
}

// TestStorm: members come and go all the time, and everything that is published
// is handled; what a handler has finished is repeated only where its partition
// was taken away from it meanwhile. On a machine that stands still for seconds a
// session may end before what was done is committed: then there is another storm.
func TestStorm(t *testing.T) {
	t.Parallel()
	const most = 5
	var twice []int
	for range 3 {
		n := storm(t)
		if n <= most {
			return
		}
		twice = append(twice, n)
	}
	t.Errorf("more than %d were handled twice, each time: %v", most, twice)
}

// storm gives how many were handled twice.
func storm(t *testing.T) (twice int) {
	t.Helper()
	brokers, topics := genuine(t)
	const n = 1500
	at := spotOf(t, "bustest.everything")
	var got tally
	var running sync.Map
	var overlaps atomic.Int32
	handle := func(ctx context.Context, m bus.Message) error {
		if _, other := running.LoadOrStore(m.Key, true); other {
			overlaps.Add(1)
		}
		defer running.Delete(m.Key)
		time.Sleep(5 * time.Millisecond)
		return got.handle(ctx, m)
	}
	// Offsets are committed where partitions move, or not soon enough.
	config := kafka.Config{Brokers: brokers, Topics: topics, SessionTimeout: 8 * time.Second, CommitInterval: time.Minute}
	stays := open(t, config)
	subscribe(t, stays, at, handle)
	over := make(chan struct{})
	var members sync.WaitGroup
	for i := range 3 {
		members.Go(func() {
			for round := 0; ; round++ {
				own := config
				if i == 0 {
					own.InstanceID = "storm"
				}
				b, err := kafka.New(context.Background(), own)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = b.Subscribe(context.Background(), at.subject, at.group, handle)
				if err != nil {
					t.Error(err)
				}
				select {
				case <-over:
				case <-time.After(time.Duration(200+rand.IntN(400)) * time.Millisecond):
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	publishMany(t, stays, at.subject, 0, n)
	close(over)
	members.Wait()
	eventually(t, "everything was handled", func() bool { different, _ := got.count(); return different == n })
	_, twice = got.count()
	t.Logf("%d of %d twice, %d overlaps", twice, n, overlaps.Load())
	if overlaps.Load() > 0 {
		t.Errorf("%d handlers of one key began while another ran", overlaps.Load())
	}
	if err := stays.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stays.Close(); err != nil {
		t.Error(err)
	}
	return twice
}

// TestMove: when partitions move to a member that joins, what runs may end, what
// has not begun begins there, and nothing is handled twice.
func TestMove(t *testing.T) {
	brokers, topics := fake(t)
	at := spotOf(t, "bustest.overlap")
	const n = 60
	var got tally
	slow := func(ctx context.Context, m bus.Message) error {
		time.Sleep(200 * time.Millisecond)
		return got.handle(ctx, m)
	}
	config := kafka.Config{Brokers: brokers, Topics: topics, CommitInterval: time.Minute}
	first := open(t, config)
	subscribe(t, first, at, slow)
	publishMany(t, first, at.subject, 0, n)
	eventually(t, "it is under way", func() bool { different, _ := got.count(); return different > 0 })
	second := open(t, config)
	subscribe(t, second, at, slow)
	eventually(t, "both have partitions", func() bool {
		return len(first.State().Assigned[at.group]) > 0 && len(second.State().Assigned[at.group]) > 0
	})
	eventually(t, "everything was handled", func() bool { different, _ := got.count(); return different == n })
	if _, twice := got.count(); twice > 0 {
		t.Errorf("%d messages were handled twice", twice)
	}
}

// TestBackPressure: no more is in hand than allowed, and it flows again.
func TestBackPressure(t *testing.T) {
	brokers, topics := fake(t)
	const subject, n = "bustest.deferred", 3000
	for _, c := range []struct {
		name   string
		config kafka.Config
		most   int
	}{
		{"records", kafka.Config{OpenRecords: 20}, 3 * (20 + 500)},
		{"bytes", kafka.Config{OpenBytes: 20_000}, 3 * 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Brokers, c.config.Topics = brokers, topics
			b := open(t, c.config)
			var mu sync.Mutex
			var open []func()
			total := 0
			stop, err := b.SubscribeDeferred(t.Context(), subject, c.name, func(_ context.Context, _ bus.Message, done func()) {
				mu.Lock()
				defer mu.Unlock()
				open = append(open, done)
				total++
			})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					for j := range n / 10 {
						_ = b.Publish(t.Context(), bus.Message{Subject: subject, Key: fmt.Sprint(i, j), Value: []byte("v")})
					}
				})
			}
			all.Wait()
			time.Sleep(500 * time.Millisecond)
			mu.Lock()
			if len(open) == 0 || len(open) > c.most {
				t.Errorf("%d of %d are in hand, at most %d may be", len(open), n, c.most)
			}
			mu.Unlock()
			eventually(t, "all arrives", func() bool {
				mu.Lock()
				now := open
				open = nil
				all := total
				mu.Unlock()
				for _, done := range now {
					done()
				}
				return all == n
			})
		})
	}
}

// TestAnchor: what is published after Subscribe is delivered, even if the process
// ended before it handled anything, also for a subject that was added to a group
// that has members.
func TestAnchor(t *testing.T) {
	for name, where := range map[string]func(*testing.T) ([]string, map[string]string){"fake": fake, "real": genuine} {
		t.Run(name, func(t *testing.T) {
			brokers, topics := where(t)
			first, second := spotOf(t, "bustest.now"), spotOf(t, "bustest.other")
			second.group = first.group
			publisher := open(t, kafka.Config{Brokers: brokers, Topics: topics})
			for _, at := range []spot{first, second} {
				publishMany(t, publisher, at.subject, 0, 10)
			}
			config := kafka.Config{Brokers: brokers, Topics: topics, InstanceID: "one"}
			b := open(t, config)
			nobody := func(context.Context, bus.Message) error { return nil }
			subscribe(t, b, first, nobody)
			eventually(t, "the group has a member", func() bool { return len(b.State().Assigned[first.group]) > 0 })
			subscribe(t, b, second, nobody)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			for _, at := range []spot{first, second} {
				publishMany(t, publisher, at.subject, 10, 20)
			}
			b = open(t, config)
			for _, at := range []spot{second, first} {
				var got tally
				subscribe(t, b, at, got.handle)
				eventually(t, "what was published since arrives", func() bool { n, _ := got.count(); return n >= 10 })
				if n, _ := got.count(); n != 10 || got.seen["10"] != 1 {
					t.Errorf("%s: %d messages, want the 10 after Subscribe", at.subject, n)
				}
			}
		})
	}
}

// TestHealth: a broker that is gone is noticed, also when nothing is done.
func TestHealth(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	var later atomic.Int64
	b := open(t, kafka.Config{Brokers: broker.ListenAddrs(), Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	if err := b.Health(t.Context()); err != nil {
		t.Error(err)
	}
	broker.Close()
	later.Store(int64(10 * time.Second))
	if err := b.Health(t.Context()); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "bus.kafka.brokers") {
		t.Errorf("without a broker: %v", err)
	}
	if s := b.State(); s.Connected || len(s.Troubles) == 0 {
		t.Errorf("without a broker: %+v", s)
	}
}
