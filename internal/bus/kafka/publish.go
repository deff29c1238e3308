package kafka

import (
	"context"
	"errors"
	"time"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// Publish implements [bus.Bus]: it returns when all replicas that are in sync
// have the record. It waits no longer than ctx and PublishTimeout, by its own
// timer: the client's idempotent producer does not let go of a record that it
// has sent while too few replicas are in sync.
func (b *Bus) Publish(ctx context.Context, m bus.Message) error {
	select {
	case <-b.ended:
		return ErrClosed
	default:
	}
	r, err := b.encode(m)
	if err != nil {
		b.counts.published(m.Subject, err)
		return err
	}
	limited, cancel := context.WithTimeout(ctx, b.cfg.PublishTimeout)
	defer cancel()
	unanswered := b.state.unanswered.Load()
	err = b.produce(limited, r)
	if err != nil {
		err = b.unpublished(ctx, limited, r.Topic, err)
	}
	if parley.CodeOf(err) == parley.CodeUnauthorized && b.state.unanswered.Load() != unanswered {
		// An earlier try, of this record or of another one, may have been taken.
		err = parley.Errorf(parley.CodeUnavailable, "%w; a broker has not answered before that, it may arrive all the same", err)
	}
	b.counts.published(m.Subject, err)
	switch parley.CodeOf(err) {
	case "", parley.CodeUnavailable, parley.CodeNotFound, parley.CodeUnauthorized:
		// A caller that gives up says nothing about Kafka. Of a dead letter its publisher
		// says what became of it, and nothing else waits for that.
		if ctx.Err() == nil && m.Subject != bus.SubjectDeadLetters {
			b.state.note(publishing+r.Topic, err)
		}
	}
	return err
}

// unpublished says why a record was not accepted; of the caller's context it
// gives the cause.
func (b *Bus) unpublished(ctx, limited context.Context, topic string, err error) error {
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		return errUnconfirmed(topic, b.cfg.PublishTimeout, b.state.delays())
	}
	return explain(err, "publish to "+topic, toWrite(topic))
}

func errUnconfirmed(topic string, limit time.Duration, delays string) error {
	if delays != "" {
		return parley.Errorf(parley.CodeUnavailable,
			"Kafka: publish to %s: not confirmed within %v, it may arrive all the same; %w", topic, limit, errors.New(delays))
	}
	return parley.Errorf(parley.CodeUnavailable,
		"Kafka: publish to %s: not confirmed within %v, it may arrive all the same; check that enough brokers run (min.insync.replicas)", topic, limit)
}
