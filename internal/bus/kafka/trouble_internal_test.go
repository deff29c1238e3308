package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/parley-project/parley/internal/bus"
)

// TestFetchTroublePasses: a topic that could not be read is a trouble until it can
// be, for subscriptions with and without a group.
func TestFetchTroublePasses(t *testing.T) {
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) {
			broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "parley.hints"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(broker.Close)
			b, err := New(t.Context(), Config{Brokers: broker.ListenAddrs()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			var h heard
			stop, err := b.Subscribe(t.Context(), bus.SubjectHint, group, h.handle)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			send(t, b, bus.SubjectHint, 0, 1)
			h.wait(t, 1)
			broker.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				req := kreq.(*kmsg.FetchRequest)
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				for _, rt := range req.Topics {
					st := kmsg.NewFetchResponseTopic()
					st.Topic, st.TopicID = rt.Topic, rt.TopicID
					for _, rp := range rt.Partitions {
						sp := kmsg.NewFetchResponseTopicPartition()
						sp.Partition, sp.ErrorCode = rp.Partition, kerr.TopicAuthorizationFailed.Code
						st.Partitions = append(st.Partitions, sp)
					}
					resp.Topics = append(resp.Topics, st)
				}
				return resp, nil, len(req.Topics) > 0
			})
			deadline := time.Now().Add(20 * time.Second)
			for b.Health(t.Context()) == nil {
				if time.Now().After(deadline) {
					t.Fatal("a topic that cannot be read is no trouble")
				}
				time.Sleep(10 * time.Millisecond)
			}
			send(t, b, bus.SubjectHint, 1, 2)
			h.wait(t, 2)
			if err := b.Health(t.Context()); err != nil {
				t.Errorf("after a record was read: %v", err)
			}
		})
	}
}
