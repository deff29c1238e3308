package kafka

import (
	"sync/atomic"
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
			var h heard
			broker, b := hearing(t, group, Config{}, &h)
			broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				return refuseFetch(req.(*kmsg.FetchRequest)), nil, len(req.(*kmsg.FetchRequest).Topics) > 0
			})
			deadline := time.Now().Add(2 * time.Minute)
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

// TestFetchTroubleRests: a topic that cannot be read, since it was deleted or a right is
// missing, is not asked for again and again without a pause, though brokers refuse at once.
// When it can be read again it is.
func TestFetchTroubleRests(t *testing.T) {
	for _, group := range []string{"", "g"} {
		t.Run("group "+group, func(t *testing.T) {
			var h heard
			broker, b := hearing(t, group, Config{}, &h)
			var refused atomic.Int64
			var over atomic.Bool
			broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				if over.Load() {
					return nil, nil, false
				}
				broker.KeepControl()
				refused.Add(1)
				return refuseFetch(req.(*kmsg.FetchRequest)), nil, true
			})
			deadline := time.Now().Add(2 * time.Minute)
			for refused.Load() < 2 {
				if time.Now().After(deadline) {
					t.Fatal("the topic is not read")
				}
				time.Sleep(10 * time.Millisecond)
			}
			before := refused.Load()
			time.Sleep(2 * time.Second)
			if n := refused.Load() - before; n > 40 {
				t.Errorf("in 2 s it was asked for %d times", n)
			}
			over.Store(true)
			send(t, b, bus.SubjectHint, 1, 2)
			h.wait(t, 2)
		})
	}
}

// hearing gives a bus over a broker of one topic with one partition, on which h has
// heard a first hint.
func hearing(t *testing.T, group string, c Config, h *heard) (*kfake.Cluster, *Bus) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "parley.hints"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c.Brokers = broker.ListenAddrs()
	b, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	stop, err := b.Subscribe(t.Context(), bus.SubjectHint, group, h.handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	send(t, b, bus.SubjectHint, 0, 1)
	h.wait(t, 1)
	return broker, b
}

// refuseFetch answers for every partition of a request that it may not be read,
// and a request that names none, since its session knows them, that there is no
// such session.
func refuseFetch(req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	if len(req.Topics) == 0 {
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
	}
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
	return resp
}

// A topic without news shows by no record that it can be read again: trouble
// that does not come again is over after a while, trouble that does is not.
func TestFetchTroubleOfQuietTopic(t *testing.T) {
	var ahead atomic.Int64 // of the bus's clock
	var h heard
	broker, b := hearing(t, "g", Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}, &h)
	await := func(why string, well bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); (b.Health(t.Context()) == nil) != well; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(why)
			}
		}
	}
	var refuses atomic.Bool
	refuses.Store(true)
	broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		return refuseFetch(req.(*kmsg.FetchRequest)), nil, refuses.Load()
	})
	await("a topic that cannot be read is no trouble", false)
	ahead.Add(int64(2 * readPast))
	await("what goes on is forgotten", false)
	refuses.Store(false)
	// An answer that is on its way still counts as one of now.
	for deadline := time.Now().Add(2 * time.Minute); b.Health(t.Context()) != nil; ahead.Add(int64(readPast / 4)) {
		if time.Now().After(deadline) {
			t.Fatal("trouble of a topic without news stays")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
