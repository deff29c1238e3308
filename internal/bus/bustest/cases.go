package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/internal/bus"
)

func everything(ctx context.Context, b bus.Bus) error {
	in := newInbox()
	stop, err := b.Subscribe(ctx, "bustest.everything", "g", in.handle)
	if err != nil {
		return err
	}
	defer stop()
	sent := bus.Message{
		Subject: "bustest.everything", Key: "ключ \"1\"", Value: []byte{0, 1, 0xff},
		Header: map[string]string{"a": "1", "b": "zwei"},
	}
	if err := publish(ctx, b, sent); err != nil {
		return err
	}
	got, err := in.exactly(1)
	if err != nil {
		return err
	}
	if g := got[0]; g.Subject != sent.Subject || g.Key != sent.Key || !bytes.Equal(g.Value, sent.Value) || !maps.Equal(g.Header, sent.Header) {
		return fmt.Errorf("sent %+v, got %+v", sent, g)
	}
	const n = 500
	if err := numbered(ctx, b, sent.Subject, n, 7); err != nil {
		return err
	}
	got, err = in.exactly(n + 1)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, m := range got[1:] {
		seen[string(m.Value)] = true
	}
	if len(seen) != n {
		return fmt.Errorf("%d different messages arrived of %d", len(seen), n)
	}
	return nil
}

func keyOrder(ctx context.Context, b bus.Bus) error {
	in := newInbox()
	slow := func(ctx context.Context, m bus.Message) error {
		if m.Value[len(m.Value)-1] == '3' {
			time.Sleep(time.Millisecond)
		}
		return in.handle(ctx, m)
	}
	for range 2 {
		stop, err := b.Subscribe(ctx, "bustest.order", "g", slow)
		if err != nil {
			return err
		}
		defer stop()
	}
	const n, keys = 300, 5
	if err := numbered(ctx, b, "bustest.order", n, keys); err != nil {
		return err
	}
	got, err := in.wait(n)
	if err != nil {
		return err
	}
	last := make(map[string]int)
	for _, m := range got {
		i, err := strconv.Atoi(string(m.Value))
		if err != nil {
			return err
		}
		if before, ok := last[m.Key]; ok && i <= before {
			return fmt.Errorf("%s: message %d arrived after %d", m.Key, i, before)
		}
		last[m.Key] = i
	}
	return nil
}

func noOverlap(ctx context.Context, b bus.Bus) error {
	in := newInbox()
	var running, overlaps atomic.Int32
	h := func(ctx context.Context, m bus.Message) error {
		if running.Add(1) > 1 {
			overlaps.Add(1)
		}
		time.Sleep(time.Millisecond)
		running.Add(-1)
		return in.handle(ctx, m)
	}
	for range 3 {
		stop, err := b.Subscribe(ctx, "bustest.overlap", "g", h)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := numbered(ctx, b, "bustest.overlap", 50, 1); err != nil {
		return err
	}
	if _, err := in.exactly(50); err != nil {
		return err
	}
	if n := overlaps.Load(); n > 0 {
		return fmt.Errorf("%d handlers of one key began while another ran", n)
	}
	return nil
}

func groups(ctx context.Context, b bus.Bus) error {
	one, other := newInbox(), newInbox()
	for group, in := range map[string]*inbox{"one": one, "other": other} {
		for range 2 {
			stop, err := b.Subscribe(ctx, "bustest.groups", group, in.handle)
			if err != nil {
				return err
			}
			defer stop()
		}
	}
	const n = 100
	if err := numbered(ctx, b, "bustest.groups", n, 10); err != nil {
		return err
	}
	_, err := one.exactly(n)
	_, err2 := other.exactly(n)
	return errors.Join(err, err2)
}

func broadcast(ctx context.Context, b bus.Bus) error {
	var inboxes []*inbox
	for range 3 {
		in := newInbox()
		inboxes = append(inboxes, in)
		stop, err := b.Subscribe(ctx, "bustest.broadcast", "", in.handle)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := numbered(ctx, b, "bustest.broadcast", 20, 4); err != nil {
		return err
	}
	for i, in := range inboxes {
		if _, err := in.exactly(20); err != nil {
			return fmt.Errorf("subscription %d: %w", i, err)
		}
	}
	return nil
}

func fromNowOn(ctx context.Context, b bus.Bus) error {
	if err := publish(ctx, b, bus.Message{Subject: "bustest.now", Key: "k", Value: []byte("before")}); err != nil {
		return err
	}
	in := newInbox()
	stop, err := b.Subscribe(ctx, "bustest.now", "g", in.handle)
	if err != nil {
		return err
	}
	defer stop()
	for _, subject := range []string{"bustest.other", "bustest.now"} {
		if err := publish(ctx, b, bus.Message{Subject: subject, Key: "k", Value: []byte(subject)}); err != nil {
			return err
		}
	}
	got, err := in.exactly(1)
	if err != nil {
		return err
	}
	if v := string(got[0].Value); v != "bustest.now" {
		return fmt.Errorf("%q arrived", v)
	}
	return nil
}

func errorsAcknowledge(ctx context.Context, b bus.Bus) error {
	in := newInbox()
	stop, err := b.Subscribe(ctx, "bustest.errors", "g", func(ctx context.Context, m bus.Message) error {
		return errors.Join(in.handle(ctx, m), errors.New("not today"))
	})
	if err != nil {
		return err
	}
	defer stop()
	if err := numbered(ctx, b, "bustest.errors", 3, 1); err != nil {
		return err
	}
	_, err = in.exactly(3)
	return err
}

func stopWaits(ctx context.Context, b bus.Bus) error {
	begun := make(chan struct{})
	var once sync.Once
	var running, begins atomic.Int32
	stop, err := b.Subscribe(ctx, "bustest.stop", "g", func(context.Context, bus.Message) error {
		begins.Add(1)
		running.Add(1)
		once.Do(func() { close(begun) })
		time.Sleep(calm)
		running.Add(-1)
		return nil
	})
	if err != nil {
		return err
	}
	if err := numbered(ctx, b, "bustest.stop", 10, 1); err != nil {
		stop()
		return err
	}
	select {
	case <-begun:
	case <-time.After(patience):
		stop()
		return errors.New("no handler began")
	}
	if err := within(stop); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if running.Load() > 0 {
		return errors.New("stop returned while a handler ran")
	}
	n := begins.Load()
	if err := numbered(ctx, b, "bustest.stop", 3, 1); err != nil {
		return err
	}
	time.Sleep(3 * calm)
	if begins.Load() != n {
		return errors.New("a handler began after stop had returned")
	}
	return nil
}

func stopAgain(ctx context.Context, b bus.Bus) error {
	stop, err := b.Subscribe(ctx, "bustest.again", "g", newInbox().handle)
	if err != nil {
		return err
	}
	return within(func() { stop(); stop() })
}

func publishBounded(ctx context.Context, b bus.Bus) error {
	free := make(chan struct{})
	stop, err := b.Subscribe(ctx, "bustest.full", "g", func(context.Context, bus.Message) error { <-free; return nil })
	if err != nil {
		return err
	}
	defer stop()
	defer close(free)
	short, cancel := context.WithTimeout(ctx, 2*calm)
	defer cancel()
	return within(func() {
		for i := 0; i < 20_000 && short.Err() == nil; i++ {
			if b.Publish(short, bus.Message{Subject: "bustest.full", Key: "k", Value: fmt.Append(nil, i)}) != nil {
				return
			}
		}
	})
}

func memberLeaves(ctx context.Context, b bus.Bus) error {
	for _, group := range []string{"g", ""} {
		if err := leaves(ctx, b, group); err != nil {
			return fmt.Errorf("group %q: %w", group, err)
		}
	}
	return nil
}

func leaves(ctx context.Context, b bus.Bus, group string) error {
	leaver, stayer := newInbox(), newInbox()
	stopLeaver, err := b.Subscribe(ctx, "bustest.leave", group, leaver.handle)
	if err != nil {
		return err
	}
	stop, err := b.Subscribe(ctx, "bustest.leave", group, stayer.handle)
	if err != nil {
		stopLeaver()
		return err
	}
	defer stop()
	if err := within(stopLeaver); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := numbered(ctx, b, "bustest.leave", 40, 8); err != nil {
		return err
	}
	if _, err := stayer.exactly(40); err != nil {
		return err
	}
	if n := len(leaver.all()); n > 0 {
		return fmt.Errorf("%d messages went to the one that had left", n)
	}
	return nil
}

func comesAgain(ctx context.Context, b bus.Bus) error {
	first, second := newInbox(), newInbox()
	stop, err := b.Subscribe(ctx, "bustest.back", "g", first.handle)
	if err != nil {
		return err
	}
	if err := within(stop); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	stop, err = b.Subscribe(ctx, "bustest.back", "g", second.handle)
	if err != nil {
		return err
	}
	defer stop()
	if err := numbered(ctx, b, "bustest.back", 10, 3); err != nil {
		return err
	}
	_, err = second.exactly(10)
	return err
}
