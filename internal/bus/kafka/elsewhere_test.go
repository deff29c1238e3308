package kafka_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// TestAnotherCluster: processes whose addresses lead to another cluster, such as a copy that
// takes over, begin there as a new group does. What lies in its topics was acted upon by
// others, and is not taken for new because the topics are not those that were read before.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	const name = "kafka.example:9092"
	brokers, topics := genuine(t)
	at := spotOf(t, "bustest.now")
	publishMany(t, open(t, kafka.Config{Brokers: brokers, Topics: topics}), at.subject, 0, 100)
	first, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, slices.Collect(maps.Values(topics))...))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var leads atomic.Pointer[string]
	leads.Store(&first.ListenAddrs()[0])
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == name {
			address = *leads.Load()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	var group, tail tally
	var logs [2]loggedLines
	var buses []*kafka.Bus
	for i := range logs {
		b := open(t, kafka.Config{Brokers: []string{name}, Topics: topics, Dialer: dial, Logger: logs[i].logger()})
		subscribe(t, b, at, group.handle)
		buses = append(buses, b)
	}
	subscribe(t, buses[0], spot{at.subject, ""}, tail.handle)
	publishMany(t, buses[0], at.subject, 100, 120)
	eventually(t, "all came", func() bool { return group.has(100, 120) && tail.has(100, 120) })

	leads.Store(&brokers[0])
	first.Close()
	eventually(t, "both processes say so", func() bool {
		return strings.Contains(logs[0].String(), "another Kafka cluster") && strings.Contains(logs[1].String(), "another Kafka cluster")
	})
	for i := 200; i < 300; i++ {
		m := bus.Message{Subject: at.subject, Key: strconv.Itoa(i), Value: []byte(strconv.Itoa(i))}
		eventually(t, "the other cluster takes records", func() bool { return buses[i%2].Publish(t.Context(), m) == nil })
	}
	eventually(t, "what is published there comes", func() bool { return group.has(200, 300) && tail.has(200, 300) })
	for what, c := range map[string]*tally{"the group": &group, "who has none": &tail} {
		if different, _ := c.count(); different != 120 {
			t.Errorf("%s got %d messages, want the 120 that were published since: old ones are acted upon again", what, different)
		}
	}
}

// TestAnotherClusterInPart: a topic of another cluster in which nobody can be given a place to
// begin at, since a broker is away or a right is missing, keeps nobody from the others. It is
// read when there is one, and then not from its start.
func TestAnotherClusterInPart(t *testing.T) {
	t.Parallel()
	const name, good, bad = "kafka.example:9092", "bustest.now", "bustest.other"
	cluster := func(id string) *kfake.Cluster {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id), kfake.SeedTopics(3, good, bad))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	first, second := cluster("first"), cluster("second")
	var stuck atomic.Bool
	stuck.Store(true)
	second.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		second.KeepControl()
		asked := req.(*kmsg.ListOffsetsRequest)
		about := slices.ContainsFunc(asked.Topics, func(t kmsg.ListOffsetsRequestTopic) bool {
			return t.Topic == bad && t.Partitions[0].Timestamp == -1 // where it ends; where it starts is known
		})
		return endingAt(asked, 0, kerr.LeaderNotAvailable.Code), nil, about && stuck.Load()
	})
	topics := map[string]string{good: good, bad: bad}
	publishMany(t, open(t, kafka.Config{Brokers: second.ListenAddrs(), Topics: topics}), bad, 0, 50)
	var leads atomic.Pointer[string]
	leads.Store(&first.ListenAddrs()[0])
	b := open(t, kafka.Config{Brokers: []string{name}, Topics: topics, Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == name {
			address = *leads.Load()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}})
	publish := func(subject string, from, to int) {
		for i := from; i < to; i++ {
			m := bus.Message{Subject: subject, Key: strconv.Itoa(i), Value: []byte(strconv.Itoa(i))}
			eventually(t, "records are taken", func() bool { return b.Publish(t.Context(), m) == nil })
		}
	}
	got := map[string]*tally{good: {}, bad: {}}
	for subject, c := range got {
		subscribe(t, b, spot{subject, "g"}, c.handle)
		publish(subject, 100, 110)
		eventually(t, "all came", func() bool { return c.has(100, 110) })
	}
	leads.Store(&second.ListenAddrs()[0])
	first.Close()
	next := 200 // what is published before the place to begin at is chosen is not for this group
	eventually(t, "the other topic is read", func() bool {
		publish(good, next, next+1)
		next++
		return got[good].has(next-1, next)
	})
	if err := b.Health(t.Context()); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("of the topic that is not read: %v", err)
	}
	stuck.Store(false)
	next = 300
	eventually(t, "that one is read, too", func() bool {
		publish(bad, next, next+1)
		next++
		return got[bad].has(next-1, next)
	})
	if got[bad].has(0, 1) {
		t.Error("old messages are acted upon again")
	}
}
