package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// faked gives a bus and a plain client on a broker in the process that has the
// default topics.
func faked(t *testing.T, c kafka.Config) (*kafka.Bus, *kgo.Client) {
	t.Helper()
	var topics []string
	for _, topic := range kafka.DefaultTopics() {
		topics = append(topics, topic)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	plain, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	c.Brokers = broker.ListenAddrs()
	return open(t, c), plain
}

// TestGuard: what would stop a peer of the existing platform is not published.
func TestGuard(t *testing.T) {
	b, _ := faked(t, kafka.Config{MaxRecord: 1000})
	big := `{"a":"` + strings.Repeat("x", 1000) + `"}`
	for _, c := range []struct {
		name string
		m    bus.Message
		code parley.Code
	}{
		{"object", bus.Message{Subject: bus.SubjectTasks, Value: []byte(` {"a": "\u00e9"}`)}, ""},
		{"tombstone", bus.Message{Subject: bus.SubjectTasks}, parley.CodeInvalid},
		{"empty", bus.Message{Subject: bus.SubjectResults, Value: []byte{}}, parley.CodeInvalid},
		{"array", bus.Message{Subject: bus.SubjectResults, Value: []byte(`[]`)}, parley.CodeInvalid},
		{"not JSON", bus.Message{Subject: bus.SubjectMonitoring, Value: []byte(`{"a":NaN}`)}, parley.CodeInvalid},
		{"two objects", bus.Message{Subject: bus.SubjectStartRequests, Value: []byte(`{}{}`)}, parley.CodeInvalid},
		{"not UTF-8", bus.Message{Subject: bus.SubjectCancelRequests, Value: []byte("{\"a\":\"\xff\"}")}, parley.CodeInvalid},
		{"key not UTF-8", bus.Message{Subject: bus.SubjectTasks, Key: "\xff", Value: []byte(`{}`)}, parley.CodeInvalid},
		{"ours may be empty", bus.Message{Subject: bus.SubjectRuns, Key: "r"}, ""},
		{"too large", bus.Message{Subject: bus.SubjectTasks, Value: []byte(big)}, parley.CodeLimit},
		{"large with its header", bus.Message{Subject: bus.SubjectRuns, Value: []byte(big[:900]), Header: map[string]string{"a": big[:200]}}, parley.CodeLimit},
		{"unknown subject", bus.Message{Subject: "nobody's"}, parley.CodeInvalid},
	} {
		if err := b.Publish(t.Context(), c.m); parley.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want code %q", c.name, err, c.code)
		}
	}
	many := make(map[string]string)
	for i := range 65 {
		many[strings.Repeat("h", i+1)] = ""
	}
	if err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectDeadLetters, Header: many}); parley.CodeOf(err) != parley.CodeLimit {
		t.Errorf("65 headers: %v", err)
	}
}

// TestForeignRecords: records reach the handler as they are, whoever wrote them,
// with the place where they stand.
func TestForeignRecords(t *testing.T) {
	b, plain := faked(t, kafka.Config{})
	got := make(chan bus.Message, 10)
	at := spotOf(t, bus.SubjectTasks)
	subscribe(t, b, at, func(_ context.Context, m bus.Message) error { got <- m; return nil })
	topic := kafka.DefaultTopics()[bus.SubjectTasks]
	many := make([]kgo.RecordHeader, 100)
	for i := range many {
		many[i] = kgo.RecordHeader{Key: strings.Repeat("x", i+1), Value: []byte("v")}
	}
	records := []*kgo.Record{
		{Value: []byte("garbage \xff\x00"), Key: []byte("\xfe")},
		{Key: []byte("tombstone")},
		{Key: []byte("empty"), Value: []byte{}},
		{Key: []byte("headers"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("\xff")}, {Key: "null"}, {Key: "a", Value: []byte("last")}}},
		{Key: []byte("many"), Value: []byte("v"), Headers: many},
	}
	for i, r := range records {
		r.Topic, r.Partition = topic, 2
		if err := plain.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		var m bus.Message
		select {
		case m = <-got:
		case <-time.After(2 * time.Minute):
			t.Fatalf("record %d did not come", i)
		}
		want := bus.Message{
			Subject: bus.SubjectTasks, Key: string(r.Key), Value: r.Value, Header: m.Header, Headers: m.Headers,
			At: bus.Position{Topic: topic, Partition: 2, Offset: int64(i), Time: r.Timestamp.UTC().Truncate(time.Millisecond)},
		}
		if diff := cmp.Diff(want, m); diff != "" || (r.Value == nil) != (m.Value == nil) {
			t.Errorf("record %d (-want +got):\n%s", i, diff)
		}
		switch i {
		case 3:
			if want := map[string]string{"a": "last", "null": ""}; !maps.Equal(m.Header, want) {
				t.Errorf("header %q, want %q", m.Header, want)
			}
			want := []bus.Header{{Name: "a", Value: []byte("\xff")}, {Name: "null", Value: []byte{}}, {Name: "a", Value: []byte("last")}}
			if diff := cmp.Diff(want, m.Headers, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("all headers (-want +got):\n%s", diff)
			}
		case 4:
			if len(m.Header) != 64 {
				t.Errorf("%d headers were handed on, want 64", len(m.Header))
			}
		}
	}
}

// TestRecordBytes: what is published is what a plain client reads: key, value,
// headers in the order of their names, and no compression that old peers cannot
// read.
func TestRecordBytes(t *testing.T) {
	for _, codec := range []string{"none", "gzip"} {
		b, plain := faked(t, kafka.Config{Compression: codec})
		value := []byte(`{"run_id": "r", "a": "` + strings.Repeat("x", 5000) + `"}`)
		m := bus.Message{Subject: bus.SubjectResults, Key: "corr", Value: value, Header: map[string]string{"traceparent": "00-1", "correlation-id": "c"}}
		if err := b.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns}); err != nil {
			t.Fatal(err)
		}
		plain.AddConsumeTopics("results.topic", "parley.runs")
		records := make(map[string]*kgo.Record)
		for len(records) < 2 {
			for _, r := range plain.PollFetches(t.Context()).Records() {
				records[r.Topic] = r
			}
		}
		r := records["results.topic"]
		want := []kgo.RecordHeader{{Key: "correlation-id", Value: []byte("c")}, {Key: "traceparent", Value: []byte("00-1")}}
		if string(r.Key) != "corr" || !bytes.Equal(r.Value, value) || cmp.Diff(want, r.Headers) != "" {
			t.Errorf("key %q, value %.80q, headers %v", r.Key, r.Value, r.Headers)
		}
		if got, want := r.Attrs.CompressionType(), map[string]uint8{"none": 0, "gzip": 1}[codec]; got != want {
			t.Errorf("%s: compression %d, want %d", codec, got, want)
		}
		if r := records["parley.runs"]; r.Key != nil {
			t.Errorf("no key was published as %q", r.Key)
		}
	}
}

// TestMetrics: lag counts what is not acknowledged, and errors are counted by
// their code.
func TestMetrics(t *testing.T) {
	b, _ := faked(t, kafka.Config{})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(b)
	at := spotOf(t, bus.SubjectRuns)
	hang := make(chan struct{})
	stop := subscribe(t, b, at, func(ctx context.Context, _ bus.Message) error {
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return nil
	})
	for range 5 {
		if err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "one"}); err != nil {
			t.Fatal(err)
		}
	}
	_ = b.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks})
	eventually(t, "the lag is 5", func() bool { return metric(t, reg, "parley_kafka_consumer_lag") == 5 })
	close(hang)
	eventually(t, "the lag is 0", func() bool { return metric(t, reg, "parley_kafka_consumer_lag") == 0 })
	if n := metric(t, reg, "parley_kafka_publishes_total"); n != 6 {
		t.Errorf("%v publishes were counted, want 6", n)
	}
	if n := metric(t, reg, "parley_kafka_rebalances_total"); n < 1 {
		t.Errorf("%v rebalances were counted", n)
	}
	if s := b.State(); !s.Connected || len(s.Assigned[at.group]["parley.runs"]) != 3 || len(s.Troubles) != 0 {
		t.Errorf("state %+v", s)
	}
	stop()
	if n := metric(t, reg, "parley_kafka_consumer_lag"); n != -1 {
		t.Errorf("lag %v of a group that is no more", n)
	}
}

// metric is the sum over all labels, -1 if there is none.
func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	return -1
}

// TestNoTopic: a topic that does not exist is named at once, with the command
// that makes it.
func TestNoTopic(t *testing.T) {
	brokers, _ := fake(t)
	b := open(t, kafka.Config{Brokers: brokers})
	began := time.Now()
	err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns})
	_, err2 := b.Subscribe(t.Context(), bus.SubjectRuns, "g", nil)
	_, err3 := b.Subscribe(t.Context(), bus.SubjectRuns, "", nil)
	_, err4 := b.EndOffsets(t.Context(), bus.SubjectRuns)
	for i, err := range []error{err, err2, err3, err4} {
		if parley.CodeOf(err) != parley.CodeNotFound || !strings.Contains(err.Error(), "parley topics create") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// mute is a connection whose answers stop coming.
type mute struct {
	net.Conn
	silent  *atomic.Bool
	release chan struct{}
}

func (m *mute) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if m.silent.Load() {
		<-m.release
	}
	return n, err
}

// muting gives the dialer of such connections.
func muting(silent *atomic.Bool, release chan struct{}) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &mute{Conn: conn, silent: silent, release: release}, err
	}
}

// TestPublicationLongAgo: a publication that failed is a trouble until one succeeds
// or none was tried for a while. A process that is given no work while it is in
// trouble would stay so for ever.
func TestPublicationLongAgo(t *testing.T) {
	var silent atomic.Bool
	var later atomic.Int64
	release := make(chan struct{})
	b, _ := faked(t, kafka.Config{
		PublishTimeout: 300 * time.Millisecond,
		Now:            func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
		Dialer:         muting(&silent, release),
	})
	m := bus.Message{Subject: bus.SubjectRuns, Key: "k"}
	// One try waits too little for a slow machine.
	eventually(t, "it publishes", func() bool { return b.Publish(t.Context(), m) == nil })
	silent.Store(true)
	if err := b.Publish(t.Context(), m); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Fatal(err)
	}
	silent.Store(false)
	close(release)
	later.Store(int64(20 * time.Second))
	if err := b.Health(t.Context()); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "publish to") {
		t.Errorf("after 20 s: %v", err)
	}
	later.Store(int64(40 * time.Second))
	if err := b.Health(t.Context()); err != nil {
		t.Errorf("after 40 s without another try: %v", err)
	}
}

// TestDeadLettersAreNoTrouble: whoever publishes a dead letter, or a copy of one, says
// what became of it; where they have no topic, everything else works on.
func TestDeadLettersAreNoTrouble(t *testing.T) {
	brokers, _ := fake(t)
	b := open(t, kafka.Config{Brokers: brokers})
	for _, subject := range []string{bus.SubjectDeadLetters, bus.SubjectRuns} {
		if err := b.Publish(t.Context(), bus.Message{Subject: subject, Key: "k"}); parley.CodeOf(err) != parley.CodeNotFound {
			t.Fatalf("%s: %v", subject, err)
		}
		if err := b.Health(t.Context()); (err == nil) != (subject == bus.SubjectDeadLetters) {
			t.Errorf("%s: %v", subject, err)
		}
	}
}

// TestPublishTimer: Publish returns by its own timer, and with its context, while
// the broker says nothing; the client's producer would wait.
func TestPublishTimer(t *testing.T) {
	var silent atomic.Bool
	release := make(chan struct{})
	b, _ := faked(t, kafka.Config{
		PublishTimeout: 2 * time.Second,
		Dialer:         muting(&silent, release),
	})
	m := bus.Message{Subject: bus.SubjectRuns, Key: "k"}
	// One try waits too little for a slow machine.
	eventually(t, "it publishes", func() bool { return b.Publish(t.Context(), m) == nil })
	silent.Store(true)
	for _, limit := range []time.Duration{time.Hour, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		err := b.Publish(ctx, m)
		cancel()
		if d := time.Since(began); parley.CodeOf(err) != parley.CodeUnavailable || d > 20*time.Second {
			t.Errorf("context of %v: %v after %v", limit, err, d)
		}
		if own := strings.Contains(fmt.Sprint(err), "min.insync.replicas"); own != (limit == time.Hour) {
			t.Errorf("context of %v: %v", limit, err)
		}
	}
	if s := b.State(); len(s.Troubles) != 1 || s.Troubles[0].Where != "publish to parley.runs" {
		t.Errorf("troubles %+v", s.Troubles)
	}
	silent.Store(false)
	close(release)
	eventually(t, "it publishes again", func() bool { return b.Publish(t.Context(), m) == nil })
	if err := b.Health(t.Context()); err != nil {
		t.Error(err)
	}
}
