package bustest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/bustest"
	"github.com/parley-project/parley/internal/bus/memory"
)

// TestBrokenBuses holds the suite to finding what is wrong: each bus breaks
// one promise on purpose, and the named case has to notice.
func TestBrokenBuses(t *testing.T) {
	for _, broken := range []struct {
		name, notices string
		bus           func(bus.Bus) bus.Bus
	}{
		{"drops every tenth message", "everything arrives", func(b bus.Bus) bus.Bus { return &dropper{Bus: b} }},
		{"reorders a key", "order of a key", func(b bus.Bus) bus.Bus { return &swapper{Bus: b} }},
		{"acknowledges before the handler has returned", "one of a key at a time", func(b bus.Bus) bus.Bus { return hasty{b} }},
		{"stops while a handler runs", "stop waits", func(b bus.Bus) bus.Bus { return impatient{b} }},
		{"repeats after an error", "errors do not repeat", func(b bus.Bus) bus.Bus { return repeater{b} }},
		{"gives everybody everything", "group shares", func(b bus.Bus) bus.Bus { return generous{b} }},
		{"blocks for ever", "publish is bounded", func(b bus.Bus) bus.Bus { return stubborn{b} }},
		{"forgets the header", "everything arrives", func(b bus.Bus) bus.Bus { return bare{b} }},
	} {
		t.Run(broken.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memory.New(memory.Options{Queue: 1000})
				defer inner.Close()
				b := broken.bus(inner)
				for _, c := range bustest.Cases() {
					if c.Name != broken.notices {
						continue
					}
					if err := c.Check(t.Context(), b); err == nil {
						t.Errorf("case %q did not notice", c.Name)
					}
				}
			})
		})
	}
}

type dropper struct {
	bus.Bus
	mu sync.Mutex
	n  int
}

func (d *dropper) Publish(ctx context.Context, m bus.Message) error {
	d.mu.Lock()
	d.n++
	drop := d.n%10 == 0
	d.mu.Unlock()
	if drop {
		return nil
	}
	return d.Bus.Publish(ctx, m)
}

type swapper struct {
	bus.Bus
	mu   sync.Mutex
	held *bus.Message
}

func (s *swapper) Publish(ctx context.Context, m bus.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(m.Value) == "10" {
		s.held = &m
		return nil
	}
	if err := s.Bus.Publish(ctx, m); err != nil {
		return err
	}
	if string(m.Value) == "15" && s.held != nil {
		return s.Bus.Publish(ctx, *s.held)
	}
	return nil
}

type hasty struct{ bus.Bus }

func (b hasty) Subscribe(ctx context.Context, subject, group string, h bus.Handler) (func(), error) {
	var wg sync.WaitGroup
	stop, err := b.Bus.Subscribe(ctx, subject, group, func(ctx context.Context, m bus.Message) error {
		wg.Go(func() { _ = h(context.WithoutCancel(ctx), m) })
		return nil
	})
	return func() { stop(); wg.Wait() }, err
}

type impatient struct{ bus.Bus }

func (b impatient) Subscribe(ctx context.Context, subject, group string, h bus.Handler) (func(), error) {
	stop, err := b.Bus.Subscribe(ctx, subject, group, h)
	return func() { go stop() }, err
}

type repeater struct{ bus.Bus }

func (b repeater) Subscribe(ctx context.Context, subject, group string, h bus.Handler) (func(), error) {
	return b.Bus.Subscribe(ctx, subject, group, func(ctx context.Context, m bus.Message) error {
		if h(ctx, m) == nil {
			return nil
		}
		return h(ctx, m)
	})
}

type generous struct{ bus.Bus }

func (b generous) Subscribe(ctx context.Context, subject, _ string, h bus.Handler) (func(), error) {
	return b.Bus.Subscribe(ctx, subject, "", h)
}

type stubborn struct{ bus.Bus }

func (b stubborn) Publish(ctx context.Context, m bus.Message) error {
	return b.Bus.Publish(context.WithoutCancel(ctx), m)
}

type bare struct{ bus.Bus }

func (b bare) Publish(ctx context.Context, m bus.Message) error {
	m.Header = nil
	return b.Bus.Publish(ctx, m)
}
