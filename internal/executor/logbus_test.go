package executor_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/records"
)

// logBus is a bus that keeps what old peers read and write in logs, as Kafka
// does; everything else goes over the memory bus.
type logBus struct {
	*memory.Bus

	mu     sync.Mutex // protects what follows
	moved  *sync.Cond
	logs   map[string][]bus.Message
	groups map[string]*logGroup
	// held: nothing is delivered.
	held bool
	// fault may refuse a message before it is written; lost means that it is
	// written all the same.
	fault func(m bus.Message) (lost bool, err error)
}

type logGroup struct {
	next  int
	acked map[int]bool
	done  int // all before are acknowledged
}

func newLogBus(t *testing.T) *logBus {
	b := &logBus{Bus: memory.New(memory.Options{}), logs: make(map[string][]bus.Message), groups: make(map[string]*logGroup)}
	b.moved = sync.NewCond(&b.mu)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func kept(subject string) bool {
	if _, foreign := bus.TopicOf(subject); foreign {
		return true
	}
	return slices.Contains([]string{
		bus.SubjectTasks, bus.SubjectResults, bus.SubjectMonitoring, bus.SubjectStartRequests, bus.SubjectCancelRequests,
	}, subject)
}

func (b *logBus) Publish(ctx context.Context, m bus.Message) error {
	if !kept(m.Subject) {
		return b.Bus.Publish(ctx, m)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if b.fault != nil {
		var lost bool
		if lost, err = b.fault(m); err != nil && !lost {
			return err
		}
	}
	m.At = bus.Position{Topic: m.Subject, Offset: int64(len(b.logs[m.Subject])), Time: time.Now().UTC()}
	b.logs[m.Subject] = append(b.logs[m.Subject], m)
	b.moved.Broadcast()
	return err
}

// breaks sets the fault; nil is none.
func (b *logBus) breaks(f func(m bus.Message) (lost bool, err error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

// hold stops or goes on with deliveries.
func (b *logBus) hold(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = on
	b.moved.Broadcast()
}

// log gives what is on a subject.
func (b *logBus) log(subject string) []bus.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.logs[subject])
}

func (b *logBus) SubscribeDeferred(ctx context.Context, subject, group string, h func(context.Context, bus.Message, func())) (func(), error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[subject+" "+group]
	if g == nil {
		g = &logGroup{acked: make(map[int]bool)}
		b.groups[subject+" "+group] = g
	}
	g.next = g.done
	maps.DeleteFunc(g.acked, func(int, bool) bool { return true })
	running.Go(func() {
		for {
			b.mu.Lock()
			for ctx.Err() == nil && (b.held || g.next >= len(b.logs[subject])) {
				b.moved.Wait()
			}
			if ctx.Err() != nil {
				b.mu.Unlock()
				return
			}
			n := g.next
			m := b.logs[subject][n]
			g.next++
			b.mu.Unlock()
			h(ctx, m, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				if ctx.Err() == nil {
					g.acked[n] = true
					for g.acked[g.done] {
						g.done++
					}
				}
			})
		}
	})
	return func() {
		b.mu.Lock()
		cancel()
		b.moved.Broadcast()
		b.mu.Unlock()
		running.Wait()
	}, nil
}

func (b *logBus) EndOffsets(_ context.Context, subject string) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return map[int32]int64{0: int64(len(b.logs[subject]))}, nil
}

func (b *logBus) CaughtUp(_ context.Context, subject, group string, ends map[int32]int64) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[subject+" "+group]
	return ends[0] == 0 || g != nil && int64(g.done) >= ends[0], nil
}

// says is what an agent behind an old bridge makes of a task: a result, and
// how long it takes. Without status there never is a result.
type says struct {
	records.AgentResult
	after time.Duration
}

// oldBridge works on one task at a time, in the order of the log, and does not
// know what it has done before.
type oldBridge struct {
	bus *logBus

	mu    sync.Mutex // protects what follows
	agent func(t records.AgentTask) says
	next  int
}

// answers sets what becomes of tasks from now on.
func (o *oldBridge) answers(f func(t records.AgentTask) says) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agent = f
}

// serve works until ctx ends.
func (o *oldBridge) serve(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		log := o.bus.log(bus.SubjectTasks)
		o.mu.Lock()
		n, agent := o.next, o.agent
		o.next = min(n+1, max(n, len(log)))
		o.mu.Unlock()
		if n >= len(log) {
			sleep(ctx, 20*time.Millisecond)
			continue
		}
		task, err := records.DecodeTask(log[n].Value)
		if err != nil {
			t.Errorf("task %s: %v", log[n].Value, err)
			continue
		}
		s := agent(task)
		sleep(ctx, s.after)
		if s.Status == "" {
			continue
		}
		s.RunID, s.TaskID, s.CorrelationID, s.At = task.RunID, task.TaskID, task.CorrelationID, time.Now()
		o.result(ctx, t, s.AgentResult)
	}
}

func (o *oldBridge) result(ctx context.Context, t *testing.T, r records.AgentResult) {
	v, err := r.Encode()
	if err == nil {
		err = o.bus.Publish(ctx, bus.Message{Subject: bus.SubjectResults, Key: r.CorrelationID, Value: v})
	}
	if err != nil && ctx.Err() == nil {
		t.Errorf("result of %s: %v", r.TaskID, err)
	}
}

// rewind makes it take the last n tasks again, as after a crash.
func (o *oldBridge) rewind(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = max(0, o.next-n)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
