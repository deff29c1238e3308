package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestIdentity: records are the same if all that is written of them is. One that was taken
// for another that is adrift would not be written at all.
func TestIdentity(t *testing.T) {
	record := func(topic, key, value string, headers ...string) *kgo.Record {
		r := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
		for i := 0; i < len(headers); i += 2 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
		}
		return r
	}
	one := identity(record("t", "k", "v", "a", "1"))
	if identity(record("t", "k", "v", "a", "1")) != one {
		t.Error("the same record is another one")
	}
	for name, r := range map[string]*kgo.Record{
		"topic":         record("u", "k", "v", "a", "1"),
		"key":           record("t", "l", "v", "a", "1"),
		"value":         record("t", "k", "w", "a", "1"),
		"header":        record("t", "k", "v", "b", "1"),
		"its value":     record("t", "k", "v", "a", "2"),
		"one less":      record("t", "k", "v"),
		"where it ends": record("t", "kv", "", "a", "1"),
	} {
		if identity(r) == one {
			t.Errorf("a record with another %s is the same", name)
		}
	}
}
