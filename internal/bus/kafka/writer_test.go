package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// loggedLines is a log that may be read while it is written.
type loggedLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *loggedLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *loggedLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *loggedLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// oneTopic is a broker in the process with one topic of one partition, for the subject of
// runs.
func oneTopic(t *testing.T) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker, kafka.Config{Brokers: broker.ListenAddrs(), Topics: map[string]string{bus.SubjectRuns: "runs"}}
}

// TestProducerRefusedAtFirst: a process that was no producer when it first published is one
// when it has been allowed to, without a new start. Until then the log has a few lines, not
// one for each publication.
func TestProducerRefusedAtFirst(t *testing.T) {
	broker, cfg := oneTopic(t)
	var refuses atomic.Bool
	var asked atomic.Int32
	refuses.Store(true)
	broker.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked.Add(1)
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil, refuses.Load()
	})
	var log loggedLines
	cfg.Logger = log.logger()
	b := open(t, cfg)
	publish := func() error { return b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}) }
	for range 200 {
		err := publish()
		if parley.CodeOf(err) != parley.CodeUnauthorized || !strings.Contains(err.Error(), "allow the user of bus.kafka.sasl WRITE on the topic runs") {
			t.Fatalf("not allowed: %v", err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n > 5 {
		t.Errorf("%d lines for 200 publications that are refused:\n%s", n, log.String())
	}
	if n := asked.Load(); n > 10 {
		t.Errorf("the broker was asked %d times for 200 publications", n)
	}
	refuses.Store(false)
	eventually(t, "it publishes when it may", func() bool { return publish() == nil })
	if err := b.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "WRITE on the topic runs") || !strings.Contains(text, "what was wrong with Kafka is over") {
		t.Errorf("the log says nothing of it:\n%s", text)
	}
}

// TestBatchTooLarge: a topic may take less at a time than we send at a time. Records that
// are small enough by themselves get there all the same, and one that is not is refused.
func TestBatchTooLarge(t *testing.T) {
	_, cfg := oneTopic(t)
	admin := administer(t, cfg.Brokers)
	most := "100000"
	altered, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &most}}, "runs")
	if err != nil || altered[0].Err != nil {
		t.Fatal(err, altered)
	}
	cfg.Linger = 50 * time.Millisecond // they travel together
	b := open(t, cfg)
	const many, large = 300, 7
	var got sync.Map
	stop, err := b.Subscribe(t.Context(), bus.SubjectRuns, "g", func(_ context.Context, m bus.Message) error {
		got.Store(m.Key, len(m.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			size := 1000
			if i == large {
				size = 500_000
			}
			err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: fmt.Sprint(i), Value: bytes.Repeat([]byte{'x'}, size)})
			switch {
			case i == large && (parley.CodeOf(err) != parley.CodeLimit || !strings.Contains(err.Error(), "max.message.bytes")):
				t.Errorf("a record of %d bytes: %v", size, err)
			case i != large && err != nil:
				t.Errorf("record %d, which is small: %v", i, err)
			}
		})
	}
	all.Wait()
	eventually(t, "all small ones arrive", func() bool {
		n := 0
		got.Range(func(_, size any) bool { n++; return size == 1000 })
		return n == many-1
	})
	if err := b.Health(t.Context()); err != nil {
		t.Errorf("a record that is too large is no trouble of Kafka: %v", err)
	}
}

// TestAdvertisedElsewhere: brokers that answer, and name an address that cannot be reached
// from here, are a fault of their advertised.listeners, which is said in bounded time.
func TestAdvertisedElsewhere(t *testing.T) {
	t.Parallel()
	_, cfg := oneTopic(t)
	told := cfg.Brokers[0]
	cfg.Brokers = []string{"kafka.example:9092"}
	cfg.PublishTimeout = 2 * time.Second
	cfg.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == told {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: told, IsNotFound: true}}
		}
		return new(net.Dialer).DialContext(ctx, network, told)
	}
	var log loggedLines
	cfg.Logger = log.logger()
	b := open(t, cfg)
	began := time.Now()
	_, subscribing := b.Subscribe(t.Context(), bus.SubjectRuns, "g", func(context.Context, bus.Message) error { return nil })
	publishing := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"})
	for _, err := range []error{subscribing, publishing, b.Health(t.Context())} {
		if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), told) || !strings.Contains(err.Error(), "advertised.listeners") {
			t.Errorf("%v, want that %s cannot be reached, and why", err, told)
		}
	}
	if d := time.Since(began); d > 40*time.Second {
		t.Errorf("it took %v", d)
	}
	if n := strings.Count(log.String(), "\n"); n > 10 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
