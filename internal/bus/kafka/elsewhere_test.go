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

	"github.com/twmb/franz-go/pkg/kfake"

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
