package kafka_test

import (
	"context"
	"encoding/binary"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// A slowBroker is the way to one broker, on which confirmations can be held up.
type slowBroker struct {
	address string

	mu   sync.Mutex
	free chan struct{} // closed unless answers are held up
}

func (s *slowBroker) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := make(chan struct{})
	s.free = free
	return sync.OnceFunc(func() { close(free) })
}

func (s *slowBroker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || address != s.address {
		return conn, err
	}
	return &heldConn{Conn: conn, broker: s}, nil
}

// heldConn is a connection; the client has one of its own for what it publishes.
type heldConn struct {
	net.Conn
	broker     *slowBroker
	publishing atomic.Bool
}

func (c *heldConn) Write(p []byte) (int, error) {
	if len(p) > 6 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce) {
		c.publishing.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.broker.mu.Lock()
	free := c.broker.free
	c.broker.mu.Unlock()
	if free != nil && c.publishing.Load() {
		<-free
	}
	return n, err
}

// TestRefusedBesideUnconfirmed: when one broker does not know a topic, as one that has just
// started may not, what another one has taken and not confirmed yet is not written again:
// who publishes to a bridge of the existing platform relies on that.
func TestRefusedBesideUnconfirmed(t *testing.T) {
	t.Parallel()
	const topic = "tasks"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	for node := range int32(2) {
		if err := cluster.MoveTopicPartition(topic, node, node); err != nil {
			t.Fatal(err)
		}
	}
	keys := keysOf(t, cluster, topic)
	slow := &slowBroker{address: cluster.ListenAddrs()[0]}
	b := open(t, kafka.Config{Brokers: cluster.ListenAddrs(), Topics: map[string]string{bus.SubjectTasks: topic}, Dialer: slow.dial})
	publish := func(partition int32, value string) error {
		return b.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: keys[partition], Value: []byte(`{"value":"` + value + `"}`)})
	}
	for partition := range int32(2) {
		if err := publish(partition, "before"); err != nil {
			t.Fatal(err)
		}
	}

	release := slow.hold()
	defer release()
	unconfirmed := make(chan error, 1)
	go func() { unconfirmed <- publish(0, "once") }()
	eventually(t, "the record is in the log", func() bool { return written(t, cluster, topic)[`{"value":"once"}`] == 1 })
	refuse(cluster, 1)
	if err := publish(1, "refused"); err == nil {
		t.Fatal("a topic that the broker does not know was written to")
	}
	release()
	if err := <-unconfirmed; err != nil {
		t.Errorf("a record that the other broker has: %v", err)
	}
	if n := written(t, cluster, topic)[`{"value":"once"}`]; n != 1 {
		t.Errorf("it was written %d times", n)
	}
}

// refuse has a broker answer that it knows no topic of that id.
func refuse(cluster *kfake.Cluster, node int32) {
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() != node {
			return nil, nil, false
		}
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range produce.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.UnknownTopicID.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
}

// keysOf gives a key for each of two partitions.
func keysOf(t *testing.T, cluster *kfake.Cluster, topic string) map[int32]string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	keys := make(map[int32]string)
	for i := 0; len(keys) < 2; i++ {
		r := &kgo.Record{Key: []byte(strconv.Itoa(i))}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		keys[r.Partition] = string(r.Key)
	}
	return keys
}

// written counts the records of a topic by their values.
func written(t *testing.T, cluster *kfake.Cluster, topic string) map[string]int {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(end kadm.ListedOffset) { left += end.Offset })
	counts := make(map[string]int)
	for left > 0 && t.Context().Err() == nil {
		client.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { counts[string(r.Value)]++; left-- })
	}
	return counts
}
