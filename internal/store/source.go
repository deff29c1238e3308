package store

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// Source is the record of the bus that a bridge took an attempt from.
type Source struct {
	parley.DeadLetterSource
	// Headers are those of a foreign task's record; the values of those that name
	// credentials are replaced.
	Headers []parley.DeadLetterHeader `json:"headers,omitempty"`
	// FailedAt is when a foreign task failed first; zero until it is tried again.
	FailedAt time.Time `json:"failed_at,omitzero"`
}

const selectSource = `SELECT source FROM attempt WHERE id = ?`

// encode gives the source as it is stored; nil is NULL. Claims write one each, so
// it is put together by hand.
func (s *Source) encode() (any, error) {
	if s == nil {
		return nil, nil
	}
	b := appendString(append(make([]byte, 0, 128), `{"subject":`...), s.Subject)
	b = appendString(append(b, `,"topic":`...), s.Topic)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(s.Partition), 10)
	b = strconv.AppendInt(append(b, `,"offset":`...), s.Offset, 10)
	b = appendString(append(b, `,"group":`...), s.Group)
	if len(s.Headers) > 0 {
		headers, err := json.Marshal(s.Headers)
		if err != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "headers of the record at %s/%d/%d: %w", s.Topic, s.Partition, s.Offset, err)
		}
		b = append(append(b, `,"headers":`...), headers...)
	}
	if !s.FailedAt.IsZero() {
		b = append(b, `,"failed_at":"`...)
		b = append(s.FailedAt.UTC().AppendFormat(b, time.RFC3339Nano), '"')
	}
	return append(b, '}'), nil
}

func readSource(task string, to **Source) func(*record) error {
	return func(r *record) error {
		stored := r.bytes()
		if stored == nil {
			return r.err
		}
		*to = new(Source)
		if err := json.Unmarshal(stored, *to); err != nil {
			return fmt.Errorf("source of %s: %w", task, err)
		}
		return r.err
	}
}

// Source gives the record that an attempt was taken from; nil if nobody has taken
// it, the bus keeps no positions, or there is no such attempt.
func (db *DB) Source(ctx context.Context, task string) (*Source, error) {
	var s *Source
	err := db.read(ctx, selectSource, readSource(task, &s), task)
	return s, err
}

// locateAll gives the arguments of insertDeadLetter for what a decision gives up,
// with the places where its records stood.
func locateAll(s *session, list []parley.DeadLetter) ([][]driver.NamedValue, error) {
	var bound [][]driver.NamedValue
	for i := range list {
		l := list[i]
		var from *Source
		if err := s.query(selectSource, readSource(l.Task, &from), l.Task); err != nil {
			return nil, err
		}
		if from != nil {
			l.Source = &from.DeadLetterSource
		}
		args, err := bindDeadLetter(&l)
		if err != nil {
			return nil, err
		}
		bound = append(bound, args)
	}
	return bound, nil
}
