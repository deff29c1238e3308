package kafka_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// remake deletes a topic and makes it anew.
func remake(t *testing.T, brokers []string, topic string, partitions int32) {
	t.Helper()
	admin := administer(t, brokers)
	if gone, err := admin.DeleteTopics(t.Context(), topic); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	eventually(t, "the topic is gone", func() bool {
		known, err := admin.ListTopics(t.Context(), topic)
		return err == nil && known[topic].Err != nil
	})
	var err error
	eventually(t, "the topic is made anew", func() bool {
		var made kadm.CreateTopicResponse
		made, err = admin.CreateTopic(t.Context(), partitions, -1, nil, topic)
		return err == nil && made.Err == nil
	})
	kafkatest.Create(t, brokers, 1, kafkatest.Topics(t)("another")) // every broker knows by then
}

// TestTopicRemade: a topic that an operator deletes and makes anew under running
// processes is written and read again by all of them: from its start, whatever was
// committed in the old one.
func TestTopicRemade(t *testing.T) {
	t.Parallel()
	for _, instance := range []string{"", "one"} {
		t.Run("instance "+instance, func(t *testing.T) {
			t.Parallel()
			brokers, topics := genuine(t)
			at := spotOf(t, "bustest.now")
			b := open(t, kafka.Config{Brokers: brokers, Topics: topics, InstanceID: instance, CommitInterval: 10 * time.Millisecond})
			var group, tail tally
			subscribe(t, b, at, group.handle)
			other := spot{"bustest.other", at.group}
			var beside tally
			subscribe(t, b, other, beside.handle)
			publishMany(t, b, at.subject, 0, 180)
			subscribe(t, b, spot{at.subject, ""}, tail.handle) // behind where the new topic will end
			publishMany(t, b, at.subject, 180, 200)
			eventually(t, "all came", func() bool { return group.has(0, 200) && tail.has(180, 200) })

			remake(t, brokers, topics[at.subject], 5)
			// As a sweep publishes: again and again until it is taken.
			for i := 200; i < 300; i++ {
				m := bus.Message{Subject: at.subject, Key: strconv.Itoa(i), Value: []byte(strconv.Itoa(i))}
				eventually(t, "the new topic takes records", func() bool { return b.Publish(t.Context(), m) == nil })
			}
			took := pulse(t)
			eventually(t, "all of the new topic came", func() bool { return group.has(200, 300) && tail.has(200, 300) })
			if took := took(); took > 20*time.Second {
				t.Errorf("that took %s", took)
			}
			publishMany(t, b, at.subject, 300, 320)
			publishMany(t, b, other.subject, 0, 20)
			eventually(t, "work goes on", func() bool { return group.has(300, 320) && tail.has(300, 320) && beside.has(0, 20) })
			eventually(t, "all is well", func() bool { return b.Health(t.Context()) == nil })
		})
	}
}

// TestCaughtUpRemade: who waits until a group has read up to ends of a topic does not
// wait for ever when that was deleted and made anew, with fewer records or partitions.
func TestCaughtUpRemade(t *testing.T) {
	t.Parallel()
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.now")
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	stop := subscribe(t, b, at, new(tally).handle)
	stop()
	publishMany(t, b, at.subject, 0, 30)
	ends, err := b.EndOffsets(t.Context(), at.subject)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := b.CaughtUp(t.Context(), at.subject, at.group, ends); ok || err != nil {
		t.Fatalf("caught up with what nobody has read: %v %v", ok, err)
	}
	remake(t, brokers, topics[at.subject], 2)
	eventually(t, "what is gone counts as read", func() bool {
		ok, err := b.CaughtUp(t.Context(), at.subject, at.group, ends)
		return ok && err == nil
	})
}

// TestRemadeBehindFirstRecord: a topic that is made anew while the very first record that
// a process writes there is being confirmed is written again, too.
func TestRemadeBehindFirstRecord(t *testing.T) {
	t.Parallel()
	cluster, c := oneTopic(t)
	admin, topic := administer(t, c.Brokers), c.Topics[bus.SubjectRuns]
	slow := &slowBroker{address: c.Brokers[0]}
	c.Dialer = slow.dial
	b := open(t, c)
	publish := func(value string) error {
		return b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k", Value: []byte(value)})
	}

	release := slow.hold()
	defer release()
	first := make(chan error, 1)
	go func() { first <- publish("old") }()
	eventually(t, "the record is in the log", func() bool { return written(t, cluster, topic)["old"] == 1 })
	if gone, err := admin.DeleteTopics(t.Context(), topic); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	if made, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil || made.Err != nil {
		t.Fatal(err, made.Err)
	}
	release()
	if err := <-first; err != nil {
		t.Fatalf("the record that the old topic has: %v", err)
	}
	eventually(t, "the new topic takes records", func() bool { return publish("new") == nil })
}
