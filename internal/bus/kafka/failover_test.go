package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// load publishes from several goroutines until it is stopped, and remembers what
// was accepted and the longest time that one message took.
type load struct {
	mu       sync.Mutex
	accepted []string
	longest  time.Duration
	failed   []error
}

func (l *load) run(ctx context.Context, b *kafka.Bus, at spot) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("%d-%d", i, n)
				began := time.Now()
				err := b.Publish(context.WithoutCancel(ctx), bus.Message{Subject: at.subject, Key: id, Value: []byte(id)})
				l.mu.Lock()
				l.longest = max(l.longest, time.Since(began))
				if err != nil {
					l.failed = append(l.failed, err)
				} else {
					l.accepted = append(l.accepted, id)
				}
				l.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// TestFailover kills the leader of a partition of three brokers under load: no
// message that was accepted is lost, and publishing goes on within 5 seconds.
// Then it kills a second broker: Publish returns by its own timer, and works
// when that is back.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Nodes: 3})
	at := spotOf(t, "bustest.everything")
	b := open(t, kafka.Config{Brokers: c.Brokers(), Topics: map[string]string{at.subject: "load"}})
	r, err := b.CreateTopics(t.Context())
	if err != nil || r.Err() != nil || r.Brokers != 3 {
		t.Fatal(r, err)
	}
	if err := b.Publish(t.Context(), bus.Message{Subject: at.subject, Key: "warm", Value: []byte("warm")}); err != nil {
		t.Fatal(err)
	}
	var got tally
	subscribe(t, b, at, got.handle)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var l load
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx, b, at) })
	eventually(t, "the load flows", func() bool { n, _ := got.count(); return n > 200 })
	dead := c.Leader(t, "load", 0)
	c.Kill(dead)
	before, _ := got.count()
	eventually(t, "it flows again", func() bool { n, _ := got.count(); return n > before+1000 })
	stop()
	running.Wait()
	eventually(t, "everything accepted has arrived", func() bool { n, _ := got.count(); return n >= len(l.accepted) })
	for _, id := range l.accepted {
		if got.seen[id] == 0 {
			t.Errorf("%s was accepted and is lost", id)
		}
	}
	_, twice := got.count()
	t.Logf("%d accepted, %d errors, %d handled twice, longest publish %v", len(l.accepted), len(l.failed), twice, l.longest)
	if len(l.failed) > 0 {
		t.Errorf("errors while one of three brokers was dead, such as %v", l.failed[0])
	}
	// Where nothing else runs it goes on within 5 s; here other tests may have the
	// processor.
	if l.longest > 15*time.Second {
		t.Errorf("publishing went on after %v", l.longest)
	}
	outage(t, c, b)
}

// outage kills a second broker, so that too few copies are in sync.
func outage(t *testing.T, c *kafkatest.Cluster, b *kafka.Bus) {
	const subject = "bustest.everything"
	other := c.Leader(t, "load", 1)
	c.Kill(other)
	for i := range 2 { // also what is behind a record that cannot be given up
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		took := pulse(t)
		err := b.Publish(ctx, bus.Message{Subject: subject, Key: fmt.Sprint("late-", i), Value: []byte("late")})
		cancel()
		if d := took(); err == nil || d > 12*time.Second {
			t.Errorf("with one of three brokers: %v after %v, want an error after 2 s", err, d)
		} else {
			t.Logf("with one of three brokers, after %v: %v", d, err)
		}
	}
	impatient := open(t, kafka.Config{Brokers: c.Brokers(), Topics: map[string]string{subject: "load"}, PublishTimeout: time.Second})
	if err := impatient.Publish(t.Context(), bus.Message{Subject: subject, Key: "k", Value: []byte("v")}); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("without a deadline: %v, want that it is unavailable", err)
	}
	c.Start(t, other)
	eventually(t, "publishing works again", func() bool {
		return b.Publish(t.Context(), bus.Message{Subject: subject, Key: "again", Value: []byte("again")}) == nil
	})
}

// TestLeaveSilent: subscriptions end in the time of a goodbye where the broker says
// nothing, whatever the client is asking it for, and however many there are.
func TestLeaveSilent(t *testing.T) { //nolint:tparallel // its parts follow each other
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) {
			name := kafkatest.Topics(t)
			b := open(t, kafka.Config{
				Brokers: c.Brokers(), Used: []string{bus.SubjectRuns, bus.SubjectChanged},
				Topics: map[string]string{bus.SubjectRuns: name("runs"), bus.SubjectChanged: name("changes")},
			})
			if r, err := b.CreateTopics(t.Context()); err != nil || r.Err() != nil {
				t.Fatal(r, err)
			}
			var got tally
			first := subscribe(t, b, spot{bus.SubjectRuns, group}, got.handle)
			publishMany(t, b, bus.SubjectRuns, 0, 1)
			eventually(t, "a record is handled", func() bool { return got.has(0, 1) })
			second := subscribe(t, b, spot{bus.SubjectChanged, group}, got.handle) // the client asks for the topic soon
			c.Pause(t, 0)
			defer c.Continue(t, 0)
			time.Sleep(time.Second) // it has asked
			took := pulse(t)
			first()
			second()
			if took := took(); took > 9*time.Second { // what the client waits for by itself takes 12 s
				t.Errorf("it took %s", took)
			}
			t.Logf("it took %s", took())
		})
	}
}
