package kafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// peerRecord is a record as testdata/peer.py reads and writes it.
type peerRecord struct {
	Key     []byte            `json:"key"`
	Value   []byte            `json:"value"`
	Headers map[string]string `json:"headers,omitempty"`
}

func peer(t *testing.T, input []byte, args ...string) []byte {
	t.Helper()
	brokers := strings.Join(kafkatest.Brokers(t), ",")
	cmd := kafkatest.Python(t, append([]string{"testdata/peer.py", brokers}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("peer %v: %v\n%s", args, err, problems.Bytes())
	}
	return out
}

// TestPeer: the client of the existing platform writes what we read, byte for
// byte, and reads what we write.
func TestPeer(t *testing.T) {
	brokers, topics := kafkatest.Brokers(t), named(t)
	kafkatest.Create(t, brokers, 3, topics[bus.SubjectTasks], topics[bus.SubjectResults])
	sent := []peerRecord{
		{Key: []byte("run-1"), Value: []byte(`{"run_id": "run-1", "task_id": "task-a-0badc0de", "agent_name": "A", "input_data": {"text": "\u00e9"}, ` +
			`"correlation_id": "corr-1", "timestamp": "2026-11-21T10:04:05.974607"}`)},
		{Key: []byte("run-2"), Value: []byte("  [1, 2]")},
		{Key: []byte("\xff\x00"), Value: []byte("\x00garbage")},
	}
	var lines bytes.Buffer
	for _, r := range sent {
		if err := json.NewEncoder(&lines).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	got := make(chan bus.Message, len(sent))
	subscribe(t, b, spotOf(t, bus.SubjectTasks), func(_ context.Context, m bus.Message) error { got <- m; return nil })
	peer(t, lines.Bytes(), "produce", topics[bus.SubjectTasks])
	read := make(map[string]string)
	for range sent {
		select {
		case m := <-got:
			read[m.Key] = string(m.Value)
		case <-time.After(2 * time.Minute):
			t.Fatalf("%d of %d records of the peer came", len(read), len(sent))
		}
	}
	for _, r := range sent {
		if read[string(r.Key)] != string(r.Value) {
			t.Errorf("key %q: got %q, the peer wrote %q", r.Key, read[string(r.Key)], r.Value)
		}
	}
	for _, codec := range []string{"none", "gzip"} {
		t.Run(codec, func(t *testing.T) { readByPeer(t, topics, codec) })
	}
}

// readByPeer lets the peer read what is published with a codec.
func readByPeer(t *testing.T, topics map[string]string, codec string) {
	topics[bus.SubjectResults] = kafkatest.Topics(t)("results")
	brokers := kafkatest.Brokers(t)
	kafkatest.Create(t, brokers, 3, topics[bus.SubjectResults])
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics, Compression: codec})
	var want []peerRecord
	for i := range 3 {
		m := bus.Message{
			Subject: bus.SubjectResults, Key: "corr-" + strconv.Itoa(i), Header: map[string]string{"correlation-id": "c", "traceparent": "00-ab"},
			Value: []byte(`{"run_id": "run-1", "task_id": "t", "status": "SUCCESS", "output_data": {"text": "\u00e9` + strings.Repeat("x", 3000) + `"}}`),
		}
		if err := b.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		want = append(want, peerRecord{Key: []byte(m.Key), Value: m.Value, Headers: m.Header})
	}
	var read []peerRecord
	for dec := json.NewDecoder(bytes.NewReader(peer(t, nil, "consume", topics[bus.SubjectResults], "3"))); dec.More(); {
		var r peerRecord
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		read = append(read, r)
	}
	slices.SortFunc(read, func(a, b peerRecord) int { return bytes.Compare(a.Key, b.Key) })
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("what the peer read (-want +got):\n%s", diff)
	}
}
