package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writing is a record that the client has and that is not known to be accepted or
// refused. done is closed when that is known; err is set before.
type writing struct {
	done chan struct{}
	err  error
	// id is what it is adrift under; only then it is set.
	id *[sha256.Size]byte
}

// adrift are records whose publishers wait no more, while the client still holds
// them: it cannot take back what it may have sent. Who publishes the same again,
// since nothing else is known to help, waits for the first instead of adding a copy
// with each try: else a broker that is away for a minute gets each record several
// times when it is back. The client's buffer bounds how many there are.
type adrift struct {
	mu      sync.Mutex // protects what follows, and the end of each writing
	records map[[sha256.Size]byte]*writing
}

// end notes what became of a record.
func (a *adrift) end(w *writing, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.err = err
	close(w.done)
	if w.id != nil && a.records[*w.id] == w {
		delete(a.records, *w.id)
	}
}

// leave notes that nobody waits for a record any more.
func (a *adrift) leave(r *kgo.Record, w *writing) {
	id := identity(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-w.done:
		return
	default:
	}
	if a.records == nil {
		a.records = make(map[[sha256.Size]byte]*writing)
	}
	w.id = &id
	a.records[id] = w
}

// find gives a record that is the same as r and adrift, or nil.
func (a *adrift) find(r *kgo.Record) *writing {
	a.mu.Lock()
	none := len(a.records) == 0
	a.mu.Unlock()
	if none {
		return nil // as nearly always: nothing is to be reckoned
	}
	id := identity(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.records[id]
}

// identity tells records apart by all that is written of them.
func identity(r *kgo.Record) (id [sha256.Size]byte) {
	h := sha256.New()
	part := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		_, _ = h.Write(size[:])
		_, _ = h.Write(b)
	}
	part([]byte(r.Topic))
	part(r.Key)
	part(r.Value)
	for _, header := range r.Headers {
		part([]byte(header.Key))
		part(header.Value)
	}
	h.Sum(id[:0])
	return id
}

// produceOnce writes a record, and waits no longer than ctx. After an error of ctx it
// may be written all the same; then the same record is not written again before that
// is known.
func (a *adrift) produceOnce(ctx context.Context, client *kgo.Client, r *kgo.Record) error {
	if w := a.find(r); w != nil {
		if known, err := await(ctx, w); !known || err == nil {
			return err
		} // else it was given up for the sake of its first publisher
	}
	w := &writing{done: make(chan struct{})}
	// Produce waits for room in the client's buffer, no longer than ctx.
	client.Produce(ctx, r, func(_ *kgo.Record, err error) { a.end(w, err) })
	known, err := await(ctx, w)
	if !known {
		a.leave(r, w)
	}
	return err
}

// await waits until it is known what became of a record, no longer than ctx.
func await(ctx context.Context, w *writing) (known bool, err error) {
	select {
	case <-w.done:
		return true, w.err
	case <-ctx.Done():
	}
	select {
	case <-w.done:
		return true, w.err
	default:
		return false, ctx.Err()
	}
}
