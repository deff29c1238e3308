package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
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

// TestIntakeGoesOnBesideWhatFails: records that fail each time they are tried, more of
// them than there are workers, hold up those of their key and no others, and become
// dead letters in the end.
func TestIntakeGoesOnBesideWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var handled []string
		var letters []bus.DeadLetter
		b := &handedBus{}
		x := &Executor{cfg: Config{
			Bus: b, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			DeadLetters: func(_ context.Context, d bus.DeadLetter) error {
				mu.Lock()
				defer mu.Unlock()
				letters = append(letters, d)
				handled = append(handled, "letter "+string(d.Message.Value))
				return nil
			},
		}}
		handle := func(_ context.Context, m bus.Message, _ time.Time) error {
			if strings.HasPrefix(string(m.Value), "bad") {
				return errors.New("this one cannot be")
			}
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, string(m.Value))
			return nil
		}
		stop, err := x.takeIn(t.Context(), &intake{workers: 4, handle: handle})
		if err != nil {
			t.Fatal(err)
		}
		acknowledged := 0
		put := func(key, value string) {
			b.hand(t.Context(), bus.Message{Key: key, Value: []byte(value)}, func() {
				mu.Lock()
				defer mu.Unlock()
				acknowledged++
			})
		}
		const bad = 9
		for i := range bad {
			put(fmt.Sprint("bad-", i), fmt.Sprint("bad ", i))
		}
		put("bad-0", "behind a bad one")
		put("good", "good")
		put("", "of no key")
		synctest.Wait()
		mu.Lock()
		slices.Sort(handled)
		if !slices.Equal(handled, []string{"good", "of no key"}) || acknowledged != 2 {
			t.Errorf("handled at once: %q, %d acknowledged", handled, acknowledged)
		}
		mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(letters) != bad || acknowledged != bad+3 {
			t.Fatalf("%d dead letters, %d acknowledged", len(letters), acknowledged)
		}
		for _, d := range letters {
			if d.Attempts != intakeTries {
				t.Errorf("%s is a dead letter after %d tries", d.Message.Value, d.Attempts)
			}
		}
		if slices.Index(handled, "behind a bad one") < slices.Index(handled, "letter bad 0") {
			t.Errorf("the order of a key was not kept: %q", handled)
		}
		stop()
	})
}

// TestIntakeWaitsForValues: records that cannot be handled since values are away, more of
// them than there are workers, are handled when those are back, many minutes later, and
// hold up no others. Where they do not come back the records are dead letters in the end.
func TestIntakeWaitsForValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled, letters atomic.Int32
		b := &handedBus{}
		x := &Executor{cfg: Config{
			Bus: b, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			DeadLetters: func(context.Context, bus.DeadLetter) error {
				letters.Add(1)
				return nil
			},
		}}
		back := time.Now().Add(30 * time.Minute)
		handle := func(_ context.Context, m bus.Message, _ time.Time) error {
			if m.Key != "good" && (m.Key == "gone" || time.Now().Before(back)) {
				return parley.Errorf(parley.CodeUnavailable, "it cannot be fetched now: %w", store.ErrAway)
			}
			handled.Add(1)
			return nil
		}
		stop, err := x.takeIn(t.Context(), &intake{workers: 4, handle: handle})
		if err != nil {
			t.Fatal(err)
		}
		put := func(key string) { b.hand(t.Context(), bus.Message{Key: key}, func() {}) }
		for i := range 9 {
			put(fmt.Sprint("away-", i))
		}
		put("gone")
		put("good")
		want := func(d time.Duration, well, dead int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if handled.Load() != well || letters.Load() != dead {
				t.Errorf("%d are handled, want %d; %d are dead letters, want %d", handled.Load(), well, letters.Load(), dead)
			}
		}
		want(0, 1, 0)
		want(29*time.Minute, 1, 0)
		want(2*time.Minute, 10, 0)
		want(45*time.Minute, 10, 1)
		stop()
	})
}

// TestIntakeStopsWhileRecordsWait: what waits to be tried again is neither handled nor
// acknowledged after the end, and keeps nobody.
func TestIntakeStopsWhileRecordsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		b := &handedBus{}
		x := &Executor{cfg: Config{Bus: b, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}}
		stop, err := x.takeIn(t.Context(), &intake{workers: 2, handle: func(context.Context, bus.Message, time.Time) error {
			tries.Add(1)
			return errors.New("not now")
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			b.hand(t.Context(), bus.Message{}, func() { t.Error("acknowledged") })
		}
		time.Sleep(time.Second)
		stop()
		was := tries.Load()
		time.Sleep(time.Hour)
		if now := tries.Load(); was < 5 || now != was {
			t.Errorf("%d tries before the end, %d after it", was, now-was)
		}
	})
}
