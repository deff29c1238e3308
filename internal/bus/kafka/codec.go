package kafka

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// Limits of a record's headers. What a foreign record has beyond them is not
// handed on.
const (
	maxHeaders     = 64
	maxHeaderBytes = 32 << 10
)

// encode makes a record of m, or says why it must not be published.
func (b *Bus) encode(m bus.Message) (*kgo.Record, error) {
	topic := b.topic(m.Subject)
	if topic == "" {
		return nil, noTopic(m.Subject)
	}
	if shared(m.Subject) {
		if err := fitForPeers(topic, m); err != nil {
			return nil, err
		}
	}
	r := &kgo.Record{Topic: topic, Value: m.Value}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	header := 0
	for name, value := range m.All() {
		header += len(name) + len(value)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
	if len(r.Headers) > maxHeaders || header > maxHeaderBytes {
		return nil, parley.Errorf(parley.CodeLimit, "record for %s: %d headers of %d bytes; at most %d of %d bytes in all may be published",
			topic, len(r.Headers), header, maxHeaders, maxHeaderBytes)
	}
	if size := len(r.Key) + len(r.Value) + header; size > b.cfg.MaxRecord {
		return nil, parley.Errorf(parley.CodeLimit, "record for %s: %d bytes are more than the %d that bus.kafka.max_record allows", topic, size, b.cfg.MaxRecord)
	}
	return r, nil
}

// fitForPeers refuses what would stop a peer of the existing platform for good:
// a tombstone, what is not a JSON object in UTF-8, and a key that is not UTF-8
// (formats.md, "Kafka").
func fitForPeers(topic string, m bus.Message) error {
	text := bytes.TrimLeft(m.Value, " \t\r\n")
	if len(text) > 0 && text[0] == '{' && utf8.Valid(m.Value) && json.Valid(m.Value) && utf8.ValidString(m.Key) {
		return nil
	}
	return parley.Errorf(parley.CodeInvalid,
		"record for %s: what peers of the existing platform read must be a JSON object, and it and its key UTF-8; any other record would stop them", topic)
}

// decode makes a message of a record as it is.
func decode(subject string, r *kgo.Record) bus.Message {
	m := bus.Message{
		Subject: subject, Key: string(r.Key), Value: r.Value,
		At: bus.Position{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp},
	}
	if len(r.Headers) == 0 {
		return m
	}
	most := min(len(r.Headers), maxHeaders)
	m.Header, m.Headers = make(map[string]string, most), make([]bus.Header, 0, most)
	size := 0
	for _, h := range r.Headers[:most] {
		if size += len(h.Key) + len(h.Value); size > maxHeaderBytes {
			break
		}
		m.Header[h.Key] = string(h.Value)
		m.Headers = append(m.Headers, bus.Header{Name: h.Key, Value: h.Value})
	}
	return m
}

// sizeOf is what a record takes while it is held, about.
func sizeOf(r *kgo.Record) int64 {
	size := 256 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return int64(size)
}
