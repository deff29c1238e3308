package executor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/bus"
)

// handedBus hands records over as a bus of logs does: those of a key in their
// order, without waiting until they are handled.
type handedBus struct {
	bus.Bus
	hand func(ctx context.Context, m bus.Message, done func())
}

func (b *handedBus) SubscribeDeferred(_ context.Context, _, _ string, h func(context.Context, bus.Message, func())) (func(), error) {
	b.hand = h
	return func() {}, nil
}

// TestIntakeKeepsTheOrderOfAKey: a record is handled when those of its key that
// came before it are; those of other keys, and of none, are not held up.
func TestIntakeKeepsTheOrderOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &handedBus{}
		x := &Executor{cfg: Config{Bus: b, Now: time.Now}}
		var mu sync.Mutex
		var begun, acknowledged []string
		proceed := make(map[string]chan struct{})
		handle := func(_ context.Context, m bus.Message, _ time.Time) error {
			mu.Lock()
			begun = append(begun, string(m.Value))
			mu.Unlock()
			<-proceed[string(m.Value)]
			return nil
		}
		stop, err := x.takeIn(t.Context(), &intake{workers: 4, handle: handle})
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"a1", "a2", "a3", "b1", "b2", "-1", "-2"}
		for _, name := range names {
			proceed[name] = make(chan struct{})
		}
		for _, name := range names {
			b.hand(t.Context(), bus.Message{Key: strings.TrimLeft(name[:1], "-"), Value: []byte(name)}, func() {
				mu.Lock()
				defer mu.Unlock()
				acknowledged = append(acknowledged, name)
			})
		}
		want := func(list *[]string, names ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			got := slices.Clone(*list)
			slices.Sort(got)
			slices.Sort(names)
			if !slices.Equal(got, names) {
				t.Errorf("got %q, want %q", got, names)
			}
		}
		want(&begun, "a1", "b1", "-1", "-2")
		close(proceed["a1"])
		want(&begun, "a1", "a2", "b1", "-1", "-2")
		close(proceed["-1"])
		close(proceed["-2"])
		close(proceed["b2"])
		close(proceed["b1"])
		close(proceed["a3"])
		want(&begun, "a1", "a2", "b1", "b2", "-1", "-2")
		want(&acknowledged, "a1", "b1", "b2", "-1", "-2")
		close(proceed["a2"])
		want(&acknowledged, "a1", "a2", "a3", "b1", "b2", "-1", "-2")
		stop()
	})
}
