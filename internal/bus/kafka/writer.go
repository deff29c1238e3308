package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// renewEvery is the least time between two clients of which the brokers refused the
// producer: while nothing is granted, each publication would make one.
const renewEvery = 2 * time.Second

// writer has the clients that publish.
type writer struct {
	make func(...kgo.Opt) (*kgo.Client, error)
	now  func() time.Time
	// asks is the bus's own client. It publishes until it is replaced, and stays open.
	asks *kgo.Client
	// turn is held while a record is written by itself.
	turn chan struct{}
	// adrift are records that nobody waits for any more.
	adrift adrift

	mu      sync.Mutex // protects what follows
	current *kgo.Client
	old     *kgo.Client // the one before, which was refused
	renewed time.Time
	lone    *kgo.Client
	closed  bool
}

func newWriter(first *kgo.Client, another func(...kgo.Opt) (*kgo.Client, error), now func() time.Time) *writer {
	return &writer{make: another, now: now, asks: first, current: first, turn: make(chan struct{}, 1)}
}

// client gives the one that publishes now.
func (w *writer) client() *kgo.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// renew replaces a client with which the brokers let nobody publish. The library asks once
// who may be a producer, and fails for good with the answer: a process that could not
// publish when it first tried would never do so, whatever is granted to it afterwards.
func (w *writer) renew(ctx context.Context, failed *kgo.Client, why error) {
	refusal, ok := errors.AsType[*kerr.Error](why)
	if !ok || refusal.Retriable || w.client() != failed {
		return
	}
	if _, _, err := failed.ProducerID(ctx); !errors.Is(err, refusal) {
		return // it is about the record, not about the producer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.current != failed || w.now().Sub(w.renewed) < renewEvery {
		return
	}
	fresh, err := w.make()
	if err != nil {
		return
	}
	w.retireLocked()
	w.old, w.current, w.renewed = failed, fresh, w.now()
}

// retireLocked ends the client before the one that was replaced: whoever is about to
// publish with that one is to hear why it was refused.
func (w *writer) retireLocked() {
	if w.old != nil && w.old != w.asks {
		w.old.Close()
	}
	w.old = nil
}

// alone writes a record in a batch of its own. A batch that is too large for its topic
// fails with all its records, though each by itself may be small enough.
func (w *writer) alone(ctx context.Context, r *kgo.Record) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	client, err := w.single()
	if err != nil {
		return err
	}
	if err = w.adrift.produceOnce(ctx, client, r); err != nil && !tooLarge(err) {
		w.forget(client) // whatever it is that it cannot get over
	}
	return err
}

// single gives the client of which nobody else makes use.
func (w *writer) single() (*kgo.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, kgo.ErrClientClosed
	}
	if w.lone == nil {
		lone, err := w.make(kgo.ProducerLinger(0)) // there is nobody to wait for
		if err != nil {
			return nil, err
		}
		w.lone = lone
	}
	return w.lone, nil
}

// forget ends the client of single records; there will be another one.
func (w *writer) forget(client *kgo.Client) {
	w.mu.Lock()
	if w.lone == client {
		w.lone = nil
	}
	w.mu.Unlock()
	client.Close()
}

// flush waits for what is being published, no longer than ctx.
func (w *writer) flush(ctx context.Context) error {
	w.mu.Lock()
	current, lone := w.current, w.lone
	w.mu.Unlock()
	err := flush(ctx, current)
	if lone != nil {
		err = errors.Join(err, flush(ctx, lone))
	}
	return err
}

// flush is that for one client. Where nothing is left there is nothing to complain of,
// though ctx may end before the client has found that out.
func flush(ctx context.Context, client *kgo.Client) error {
	err := client.Flush(ctx)
	if client.BufferedProduceRecords() == 0 {
		return nil
	}
	return err
}

// close ends the clients, but not the bus's own.
func (w *writer) close() {
	w.mu.Lock()
	current, lone := w.current, w.lone
	w.closed, w.lone = true, nil
	w.retireLocked()
	w.mu.Unlock()
	if current != w.asks {
		current.Close()
	}
	if lone != nil {
		lone.Close()
	}
}

// tooLarge reports whether a topic does not take so large a record, or the batch that
// it was in.
func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}
