package deadletter

import (
	"context"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// The headers of a copy: Kafka's own names for what its share groups say of dead
// letters (KIP-1191), and ours.
const (
	headerTopic     = "__dlq.errors.topic"
	headerPartition = "__dlq.errors.partition"
	headerOffset    = "__dlq.errors.offset"
	headerGroup     = "__dlq.errors.group"
	headerCount     = "__dlq.errors.delivery.count"
	headerMessage   = "__dlq.errors.message"
	headerID        = "dlq.id"
	headerAgent     = "dlq.agent"
	headerAttempts  = "dlq.attempts"
	headerStatus    = "dlq.http.status"
	headerClass     = "dlq.error.class"
	headerFirst     = "dlq.first.failed.at"
	headerSize      = "dlq.value.size"
	headerDigest    = "dlq.value.sha256"
	// headerRedriven is on a record that was published again.
	headerRedriven = "redriven-from"
)

const (
	copyBatch = 100
	// copyHeaders and copyHeaderBytes bound what a copy carries of the original
	// headers, so that ours fit beside them.
	copyHeaders     = 48
	copyHeaderBytes = 20 << 10
	// copyText bounds one of our headers in bytes.
	copyText = 1 << 10
	// copyLeast is what is left of a value, a key and each of our headers in the
	// shortest copy, at most.
	copyLeast = 128
)

// Forward is a [bus.DeadLetters] for a process without a store: the copy on the
// topic of dead letters is all that is kept.
func Forward(b bus.Bus, now func() time.Time) bus.DeadLetters {
	return func(ctx context.Context, d bus.DeadLetter) error {
		l := letterOf(d, now())
		return publishCopy(ctx, b, &l)
	}
}

// publishCopies publishes the copies of new dead letters, whoever has written
// them.
func (k *Keeper) publishCopies(ctx context.Context) {
	for {
		list, err := k.cfg.DB.DeadLetterCopies(ctx, k.now(), copyBatch)
		if err == nil && len(list) == 0 {
			return
		}
		var done []string
		for i := range list {
			if err = publishCopy(ctx, k.cfg.Bus, &list[i]); parley.CodeOf(err) == parley.CodeLimit {
				// It would never succeed, and others would wait for it.
				k.cfg.Logger.Error("a dead letter has no copy: it is too large for the bus", "event", "dead_letter_copy", "id", list[i].ID, "error", err)
				err = nil
			}
			if err != nil {
				break
			}
			done = append(done, list[i].ID)
		}
		if len(done) > 0 {
			// If that is lost, they are published again.
			if noted := k.cfg.DB.DeadLettersCopied(ctx, done); err == nil {
				err = noted
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				k.cfg.Logger.Warn("copies of dead letters not published; it is tried again", "event", "dead_letter_copy", "error", err)
			}
			return
		}
	}
}

// publishCopy publishes one copy; of a record that is too large for the bus as
// much of the value goes out as it takes, and if that is very little, without the
// original headers and with the beginning of the key.
func publishCopy(ctx context.Context, b bus.Bus, l *parley.DeadLetter) error {
	err := b.Publish(ctx, copyOf(l, copyText))
	for most := parley.DeadLetterCut; parley.CodeOf(err) == parley.CodeLimit && most >= copyLeast; most /= 8 {
		short := *l
		short.Value, short.Cut = l.Value[:min(len(l.Value), most)], true
		if most < parley.DeadLetterCut {
			short.Key, short.Headers = l.Key[:min(len(l.Key), most)], nil
		}
		err = b.Publish(ctx, copyOf(&short, min(most, copyText)))
	}
	return err
}

// copyOf makes the record of a dead letter: the original key, headers and value,
// and in headers of at most so many bytes each what is known of the failure.
func copyOf(l *parley.DeadLetter, most int) bus.Message {
	m := bus.Message{Subject: bus.SubjectDeadLetters, Key: string(l.Key), Value: valueOf(l), Header: make(map[string]string, len(l.Headers)+12)}
	size := 0
	for i, h := range l.Headers {
		if size += len(h.Name) + len(h.Value); i == copyHeaders || size > copyHeaderBytes {
			break
		}
		m.Header[h.Name] = string(h.Value)
		m.Headers = append(m.Headers, bus.Header{Name: h.Name, Value: h.Value})
	}
	set := func(name, value string) {
		if value != "" {
			m.Put(name, value[:min(len(value), most)])
		}
	}
	if s := l.Source; s != nil {
		set(headerTopic, s.Topic)
		set(headerGroup, s.Group)
		if s.Topic != "" {
			set(headerPartition, strconv.FormatInt(int64(s.Partition), 10))
			set(headerOffset, strconv.FormatInt(s.Offset, 10))
		}
	}
	set(headerCount, strconv.Itoa(l.Attempts))
	set(headerMessage, l.Reason)
	set(headerID, l.ID)
	set(headerAgent, l.Agent)
	set(headerAttempts, strconv.Itoa(l.Attempts))
	if l.HTTPStatus != 0 {
		set(headerStatus, strconv.Itoa(l.HTTPStatus))
	}
	set(headerClass, string(l.Code))
	set(headerFirst, l.FirstFailedAt.Format(time.RFC3339Nano))
	if l.Cut {
		set(headerSize, strconv.FormatInt(l.Size, 10))
		set(headerDigest, l.Digest)
	}
	return m
}

// valueOf is the value of a dead letter's record: none of a tombstone, and of no other. An
// empty one is kept as none.
func valueOf(l *parley.DeadLetter) []byte {
	if l.Tombstone || l.Value != nil {
		return l.Value
	}
	return []byte{}
}
