package bustest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/parley-project/parley/internal/bus"
)

// Place opens a bus on what the buses that it opened before have left behind, as
// a process does that is started again. end ends that process; the test ends
// what it did not.
type Place func(t *testing.T) (b bus.Deferred, end func())

// RunDeferred checks that the buses of a place keep the contract of
// [bus.Deferred]. fresh makes a new place for each case.
func RunDeferred(t *testing.T, fresh func(t *testing.T) Place) {
	for _, c := range []struct {
		name, rule string
		check      func(t *testing.T, p Place) error
	}{
		{"equal keys together", "Messages with equal key may be in hand together: delivery waits for no acknowledgement.", together},
		{"done once and for all", "What was acknowledged, in any order, once or more often, does not come again after a restart.", doneForAll},
		{"open comes again", "A message that was not acknowledged comes again after a restart.", openAgain},
		{"done too late", "Acknowledging after stop does nothing.", doneTooLate},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(t, fresh(t)); err != nil {
				t.Errorf("%v\nviolated: %s", err, c.rule)
			}
		})
	}
}

const deferredSubject = "bustest.deferred"

// hand holds what has been delivered and not acknowledged.
type hand struct {
	*inbox
	mu   sync.Mutex
	done map[int]func()
}

// take subscribes a hand.
func take(ctx context.Context, b bus.Deferred) (*hand, func(), error) {
	h := &hand{inbox: newInbox(), done: make(map[int]func())}
	stop, err := b.SubscribeDeferred(ctx, deferredSubject, "g", func(ctx context.Context, m bus.Message, done func()) {
		i, err := strconv.Atoi(string(m.Value))
		if err != nil {
			i = -1
		}
		h.mu.Lock()
		h.done[i] = done
		h.mu.Unlock()
		_ = h.handle(ctx, m)
	})
	return h, stop, err
}

// finish acknowledges everything in hand but the given messages, in an order
// that is not that of their delivery, some of it twice.
func (h *hand) finish(but ...int) {
	h.mu.Lock()
	held := maps.Clone(h.done)
	h.mu.Unlock()
	var all sync.WaitGroup
	for i, done := range held { // maps are ranged over at random
		if slices.Contains(but, i) {
			continue
		}
		all.Go(func() {
			done()
			if i%3 == 0 {
				done()
			}
		})
	}
	all.Wait()
}

// values are the numbers of the messages that came.
func (h *hand) values() map[int]bool {
	seen := make(map[int]bool)
	for _, m := range h.all() {
		if i, err := strconv.Atoi(string(m.Value)); err == nil {
			seen[i] = true
		}
	}
	return seen
}

func together(t *testing.T, p Place) error {
	b, _ := p(t)
	h, stop, err := take(t.Context(), b)
	if err != nil {
		return err
	}
	defer stop()
	if err := numbered(t.Context(), b, deferredSubject, 10, 1); err != nil {
		return err
	}
	_, err = h.exactly(10)
	return err
}

// restarted is one process that gets 60 messages and leaves some open, and
// another one after it; it gives what the second one got besides a new message for each key.
func restarted(t *testing.T, p Place, keys int, open ...int) (map[int]bool, error) {
	const n = 60
	b, end := p(t)
	h, _, err := take(t.Context(), b)
	if err != nil {
		return nil, err
	}
	if err := numbered(t.Context(), b, deferredSubject, n, keys); err != nil {
		return nil, err
	}
	if _, err := h.exactly(n); err != nil {
		return nil, err
	}
	h.finish(open...)
	end()
	b, _ = p(t)
	h, stop, err := take(t.Context(), b)
	if err != nil {
		return nil, err
	}
	defer stop()
	for i := range keys {
		m := bus.Message{Subject: deferredSubject, Key: fmt.Sprintf("key-%d", i), Value: fmt.Append(nil, n+i)}
		if err := publish(t.Context(), b, m); err != nil {
			return nil, err
		}
	}
	if _, err := h.wait(keys + len(open)); err != nil {
		return nil, err
	}
	seen := h.values()
	for i := range keys {
		if !seen[n+i] {
			return nil, fmt.Errorf("the new message of key-%d did not come", i)
		}
		delete(seen, n+i)
	}
	return seen, nil
}

func doneForAll(t *testing.T, p Place) error {
	again, err := restarted(t, p, 6)
	if err == nil && len(again) > 0 {
		err = fmt.Errorf("came again: %v", slices.Sorted(maps.Keys(again)))
	}
	return err
}

func openAgain(t *testing.T, p Place) error {
	again, err := restarted(t, p, 1, 57, 59)
	if err != nil {
		return err
	}
	for _, open := range []int{57, 59} {
		if !again[open] {
			return fmt.Errorf("%d did not come again", open)
		}
	}
	for i := range 57 {
		if again[i] {
			return fmt.Errorf("%d came again, all up to 56 was acknowledged", i)
		}
	}
	return nil
}

func doneTooLate(t *testing.T, p Place) error {
	b, _ := p(t)
	h, stop, err := take(t.Context(), b)
	if err != nil {
		return err
	}
	if err := numbered(t.Context(), b, deferredSubject, 5, 1); err != nil {
		stop()
		return err
	}
	if _, err := h.exactly(5); err != nil {
		stop()
		return err
	}
	if err := within(stop); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	h.finish()
	again, stop, err := take(t.Context(), b)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := again.wait(5); err != nil {
		return err
	}
	if len(again.values()) != 5 {
		return errors.New("not all that was open came again")
	}
	return nil
}
