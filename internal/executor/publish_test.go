package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// slowBus takes a moment for each record, as one between processes does, and no
// record above its limit.
type slowBus struct {
	takes time.Duration
	limit int
	fails string

	mu  sync.Mutex
	got map[string]bus.Message
}

func (b *slowBus) Publish(ctx context.Context, m bus.Message) error {
	time.Sleep(b.takes)
	if ctx.Err() != nil {
		return ctx.Err() // the test is over
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(m.Value) > b.limit {
		return parley.Errorf(parley.CodeLimit, "too large")
	}
	if b.fails != "" && strings.Contains(string(m.Value), b.fails) {
		return errors.New("the bus is away")
	}
	b.got[m.Key] = m
	return nil
}

func (b *slowBus) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

func (b *slowBus) Subscribe(context.Context, string, string, bus.Handler) (func(), error) {
	return func() {}, nil
}

// published runs a publisher over rows until nothing more happens for a second.
func published(t *testing.T, b *slowBus, inputs map[string]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var rows []store.Attempt
		for run, input := range inputs {
			rows = append(rows, store.Attempt{Task: parley.Task{
				ID: run + ".a.1", Run: run, Agent: "writer", CorrelationID: "corr-" + run, Input: json.RawMessage(input),
			}})
		}
		b.got = map[string]bus.Message{}
		p := executor.NewPublisher(executor.PublisherConfig{
			Bus: b, Now: time.Now,
			Take: func(context.Context, time.Time, int) ([]store.Attempt, error) {
				all := rows
				rows = nil
				return all, nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestPublishDies: whoever dies between the mark and the announcement has announced
// nothing; what was taken is given again later.
func TestPublishDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBus{limit: 4096, got: map[string]bus.Message{}}
		row := store.Attempt{Task: parley.Task{ID: "run-1.a.1", Run: "run-1", Agent: "writer", CorrelationID: "corr-1", Input: json.RawMessage(`{}`)}}
		var died atomic.Int64
		p := executor.NewPublisher(executor.PublisherConfig{
			Bus: b, Now: time.Now, Every: time.Second,
			Take: func(context.Context, time.Time, int) ([]store.Attempt, error) {
				if died.Load() > 1 {
					return nil, nil
				}
				return []store.Attempt{row}, nil
			},
			Failpoint: func(name string) error {
				n := died.Add(1)
				if name != "P2.before-publish" || b.count() > 0 {
					t.Errorf("%s with %d announced", name, b.count())
				}
				if n == 1 {
					return errors.New("dead")
				}
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if died.Load() != 1 || b.count() != 0 {
			t.Errorf("%d announced, %d deaths", b.count(), died.Load())
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-ended; err != nil || b.count() != 1 || died.Load() != 2 {
			t.Errorf("%d announced, %d looks, %v", b.count(), died.Load(), err)
		}
	})
}

// TestPublishTogether: on a bus that confirms each record after a while, a
// batch is not announced one by one.
func TestPublishTogether(t *testing.T) {
	inputs := map[string]string{}
	for i := range 400 {
		inputs[strings.Repeat("r", i+1)] = `{}`
	}
	b := &slowBus{takes: 50 * time.Millisecond, limit: 4096}
	published(t, b, inputs) // one by one it would take 20 s
	if len(b.got) != len(inputs) {
		t.Errorf("%d of %d announced within a second", len(b.got), len(inputs))
	}
}

// TestPublishByReference: what a record cannot hold is read from the store, and
// a record that fails keeps no other back.
func TestPublishByReference(t *testing.T) {
	b := &slowBus{limit: 4096, fails: "run-lost"}
	published(t, b, map[string]string{
		"run-small": `{"text":"h\u00e9llo"}`, "run-large": `{"text":"` + strings.Repeat("x", 8192) + `"}`, "run-list": `[1,2]`, "run-lost": `{}`,
	})
	for run, want := range map[string]string{"run-small": `{"text": "h\u00e9llo"}`, "run-large": `{}`, "run-list": `{}`} {
		m, ok := b.got[run]
		if !ok {
			t.Errorf("%s was not announced", run)
			continue
		}
		task, err := records.DecodeTask(m.Value)
		if err != nil {
			t.Errorf("%s: %v", run, err)
		}
		if string(task.Input) != want || task.TaskID != run+".a.1" || m.Header[bus.HeaderTask] == "" {
			t.Errorf("%s: record %s, header %v", run, m.Value, m.Header)
		}
		if m.Header["correlation-id"] != "corr-"+run || m.Header["idempotency-key"] != run+".a.1" {
			t.Errorf("%s: header %v", run, m.Header)
		}
	}
	if len(b.got) != 3 {
		t.Errorf("%d records", len(b.got))
	}
}

// looks notes when a publisher looks at the store, and gives it what the test has
// put there.
type looks struct {
	mu     sync.Mutex
	began  time.Time
	at     []string
	limits []int
	rows   []store.Attempt
	err    error
	// gate, if set, is what a look waits for.
	gate chan struct{}
}

func (l *looks) take(_ context.Context, now time.Time, limit int) ([]store.Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = append(l.at, now.Sub(l.began).String())
	if gate := l.gate; gate != nil {
		l.mu.Unlock()
		<-gate
		l.mu.Lock()
	}
	l.limits = append(l.limits, limit)
	n := min(limit, len(l.rows))
	list := l.rows[:n]
	l.rows = l.rows[n:]
	return list, l.err
}

// seen gives the looks since the last time.
func (l *looks) seen() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := strings.Join(l.at, " ")
	l.at = nil
	return at
}

// whilePublishing runs f beside a publisher.
func whilePublishing(t *testing.T, cfg executor.PublisherConfig, l *looks, f func(p *executor.Publisher)) {
	t.Helper()
	cfg.Take, cfg.Now, l.began = l.take, time.Now, time.Now()
	p := executor.NewPublisher(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	synctest.Wait()
	f(p)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPublisherLooks: at its start, whenever it is asked, regularly, and when
// somebody says that there are open attempts; several questions are one look, and
// a look that fails is made again.
func TestPublisherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer func() { _ = b.Close() }()
		l := &looks{}
		told := func() {
			check(t, b.Publish(t.Context(), bus.Message{Subject: bus.SubjectOpen}))
		}
		whilePublishing(t, executor.PublisherConfig{Bus: b, Told: true, Every: time.Second}, l, func(p *executor.Publisher) {
			time.Sleep(1500 * time.Millisecond)
			told()
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			p.Soon()
			synctest.Wait()
			l.mu.Lock()
			l.err = errors.New("the store is away")
			l.mu.Unlock()
			time.Sleep(2 * time.Second)
			if got, want := l.seen(), "0s 1s 1.5s 1.6s 2s 3s"; got != want {
				t.Errorf("looked at %q, want %q", got, want)
			}
		})
		whilePublishing(t, executor.PublisherConfig{Bus: b}, l, func(p *executor.Publisher) {
			told() // nobody listens
			time.Sleep(time.Hour)
			l.gate = make(chan struct{}) // a look that takes its time
			p.Soon()
			synctest.Wait()
			for range 10 {
				p.Soon()
			}
			close(l.gate)
			synctest.Wait()
			if got, want := l.seen(), "0s 1h0m0s 1h0m0s"; got != want {
				t.Errorf("looked at %q, want %q", got, want)
			}
		})
	})
}

// TestPublisherBatches: a look goes on while its batches are full, and each holds
// as many as is said, 500 by default.
func TestPublisherBatches(t *testing.T) {
	for batch, want := range map[int][]int{0: {500, 500, 500}, 64: slices.Repeat([]int{64}, 16)} {
		synctest.Test(t, func(t *testing.T) {
			l := &looks{}
			for i := range 1001 {
				run := fmt.Sprintf("run-%d", i)
				l.rows = append(l.rows, store.Attempt{Task: parley.Task{ID: run + ".a.1", Run: run, Agent: "writer", CorrelationID: "c", Input: []byte(`{}`)}})
			}
			b := &slowBus{limit: 4096, got: map[string]bus.Message{}}
			whilePublishing(t, executor.PublisherConfig{Bus: b, Batch: batch}, l, func(*executor.Publisher) { time.Sleep(time.Second) })
			if len(b.got) != 1001 || !slices.Equal(l.limits, want) {
				t.Errorf("%d announced by looks of %v", len(b.got), l.limits)
			}
		})
	}
}

// TestPublisherNotTold: a bus that cannot be listened to ends the publisher.
func TestPublisherNotTold(t *testing.T) {
	b := memory.New(memory.Options{})
	check(t, b.Close())
	l := &looks{}
	p := executor.NewPublisher(executor.PublisherConfig{Bus: b, Told: true, Take: l.take, Now: time.Now})
	if err := p.Run(t.Context()); err == nil || len(l.at) > 0 {
		t.Errorf("%v after %d looks", err, len(l.at))
	}
}
