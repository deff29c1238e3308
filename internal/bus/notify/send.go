package notify

import (
	"context"
	"encoding/json"
	"time"

	"github.com/parley-project/parley/internal/bus"
)

// batchBytes is how much goes into one letter of several messages: what fits
// into one payload.
const batchBytes = maxPayload - 512

// serveQueue sends what waits: what gathers while one payload is under way goes
// into the next.
func (b *Bus) serveQueue(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-b.queue:
			b.sendFrom(ctx, b.encode(m))
		}
	}
}

// sendFrom sends an encoded message and all that wait behind it.
func (b *Bus) sendFrom(ctx context.Context, batch []byte) {
	n := min(len(batch), 1)
	flush := func() {
		if n > 0 {
			b.count(b.send(ctx, `{"m":[`+string(batch)+`]}`), n)
		}
	}
	for {
		select {
		case m := <-b.queue:
			next := b.encode(m)
			switch {
			case len(next) == 0:
				continue
			case n > 0 && len(batch)+1+len(next) > batchBytes:
				flush()
				batch, n = next, 1
				continue
			case n > 0:
				batch = append(batch, ',')
			}
			batch = append(batch, next...)
			n++
		default:
			flush()
			return
		}
	}
}

func (b *Bus) count(ok bool, n int) {
	if ok {
		b.sent.Add(int64(n))
	} else {
		b.dropped.Add(int64(n))
	}
}

// encode gives a message as JSON; nil, and counted, if it is too large.
func (b *Bus) encode(m bus.Message) []byte {
	v, err := json.Marshal(wrap(m))
	if err != nil || len(v) > maxLetter-64 {
		b.dropped.Add(1)
		b.cfg.Logger.Debug("a message for other processes is too large", "subject", m.Subject, "key", m.Key, "bytes", len(v))
		return nil
	}
	return v
}

// send sends one letter, and reports whether the database has taken it. Whoever
// it has not taken it from rests, and holds nobody else up meanwhile.
func (b *Bus) send(ctx context.Context, body string) bool {
	err := b.notify(ctx, body)
	if err != nil && ctx.Err() == nil {
		b.cfg.Logger.Debug("hints for other processes were not sent", "error", err)
		pause(ctx, restAfter)
	}
	return err == nil
}

// notify sends the frames of one letter, one behind the other.
func (b *Bus) notify(ctx context.Context, body string) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.number++
	for _, payload := range frames(b.cfg.Process, b.number, body) {
		one, cancel := context.WithTimeout(ctx, notifyWithin)
		err := b.cfg.DB.Notify(one, payload)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// tell sends the own memberships; with asks it wants those of the others.
func (b *Bus) tell(ctx context.Context, asks bool) {
	groups := make(map[string][]string)
	b.mu.Lock()
	for g := range b.groups {
		groups[g.subject] = append(groups[g.subject], g.group)
	}
	b.mu.Unlock()
	b.sendLetter(ctx, letter{Groups: groups, Asks: asks})
}

// farewell tells that this process is a member of nothing any more.
func (b *Bus) farewell(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	b.sendLetter(last, letter{Groups: map[string][]string{}})
}

func (b *Bus) sendLetter(ctx context.Context, l letter) {
	// A map without members is left out by omitempty; it says something here.
	v, err := json.Marshal(struct {
		Groups map[string][]string `json:"g"`
		Asks   bool                `json:"a,omitempty"`
	}{l.Groups, l.Asks})
	if err == nil {
		b.send(ctx, string(v))
	}
}
