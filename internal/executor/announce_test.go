package executor_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// TestAnnouncedAtOnce: an executor puts on the bus what it has decided, without
// looking for it in the store; what does not get there comes 5 s later.
func TestAnnouncedAtOnce(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(twoSteps)
		r.stopFirst()
		var given atomic.Int64
		b := &slowBus{limit: 1 << 20, got: map[string]bus.Message{}}
		r.another(func(c *executor.Config) {
			c.Bus = tasksOnly{b}
			c.Take = func(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error) {
				list, err := r.db.Publish(ctx, now, limit)
				given.Add(int64(len(list)))
				return list, err
			}
		}, func(x *executor.Executor) {
			on := func(run string) bool {
				synctest.Wait()
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.got[run].Subject == bus.SubjectTasks
			}
			run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			if !on(run.ID) || given.Load() > 0 {
				t.Errorf("announced: %t, %d were looked for", on(run.ID), given.Load())
			}
			b.mu.Lock()
			b.fails = "run-2.a.1"
			b.mu.Unlock()
			lost, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			time.Sleep(4 * time.Second)
			b.mu.Lock()
			b.fails = ""
			b.mu.Unlock()
			if on(lost.ID) {
				t.Errorf("run %s is on the bus", lost.ID)
			}
			time.Sleep(2500 * time.Millisecond)
			if !on(lost.ID) {
				t.Errorf("run %s was not announced again", lost.ID)
			}
		})
	})
}

// tasksOnly is a bus that takes hints and forgets them.
type tasksOnly struct{ *slowBus }

func (b tasksOnly) Publish(ctx context.Context, m bus.Message) error {
	if m.Subject != bus.SubjectTasks {
		return nil
	}
	return b.slowBus.Publish(ctx, m)
}

// TestAnnounceDoesNotWait: what is announced waits for a slow bus in a bounded
// queue, and whoever announces does not.
func TestAnnounceDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBus{limit: 4096, takes: time.Second, got: map[string]bus.Message{}}
		whilePublishing(t, executor.PublisherConfig{Bus: b}, &looks{}, func(p *executor.Publisher) {
			began := time.Now()
			for i := range 10_000 {
				run := fmt.Sprintf("run-%d", i)
				p.Announce(store.Attempt{Task: parley.Task{ID: run + ".a.1", Run: run, Agent: "writer", CorrelationID: "c", Input: []byte(`{}`)}})
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("announcing took %v", d)
			}
			time.Sleep(5 * time.Minute)
			if n := b.count(); n < 4096 || n > 4096+500 {
				t.Errorf("%d got there", n)
			}
			// Nor do their inputs fill the memory.
			b.mu.Lock()
			b.limit = 2 << 20
			b.mu.Unlock()
			input := []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
			for i := range 100 {
				run := fmt.Sprintf("large-%d", i)
				p.Announce(store.Attempt{Task: parley.Task{ID: run + ".a.1", Run: run, Agent: "writer", CorrelationID: "c", Input: input}})
			}
			before := b.count()
			time.Sleep(time.Minute)
			if n := b.count() - before; n < 50 || n > 64 {
				t.Errorf("%d of 100 MiB got there", n)
			}
		})
	})
}

// TestAnnouncedAtTheEnd: what was announced gets to the bus though the process is
// about to stop.
func TestAnnouncedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBus{limit: 4096, takes: 10 * time.Millisecond, got: map[string]bus.Message{}}
		p := executor.NewPublisher(executor.PublisherConfig{Bus: b, Take: (&looks{}).take, Now: time.Now})
		p.Announce(store.Attempt{Task: parley.Task{ID: "run-1.a.1", Run: "run-1", Agent: "writer", CorrelationID: "c", Input: []byte(`{}`)}})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check(t, p.Run(ctx))
		if b.count() != 1 {
			t.Errorf("%d got there", b.count())
		}
	})
}
