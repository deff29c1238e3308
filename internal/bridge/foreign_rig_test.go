package bridge_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

var (
	_ bridge.ForeignLedger = (*store.DB)(nil)
	_ bridge.ForeignLedger = (*bridge.MemoryLedger)(nil)
	_ bridge.ForeignLedger = (*modelLedger)(nil)
)

// ackBus is a bus that keeps what was not acknowledged, as Kafka does.
type ackBus struct {
	*memory.Bus
	mu   sync.Mutex
	next int
	open map[int]bus.Message
	// ours is the context of all records in hand; move ends it: they are others' now.
	ours context.Context //nolint:containedctx // it is what the bus hands on
	move context.CancelFunc
	// refuse, if set, is asked about every message that is published.
	refuse func(m bus.Message) error
	// acked, if set, is told of each record that is acknowledged.
	acked func(m bus.Message)
	// offset is that of the next record.
	offset int64
	take   func(ctx context.Context, m bus.Message) error
}

func (b *ackBus) Publish(ctx context.Context, m bus.Message) error {
	b.mu.Lock()
	refuse := b.refuse
	if m.Subject == bus.SubjectTasks && m.At.Topic == "" {
		m.At = bus.Position{Topic: "tasks.topic", Partition: 3, Offset: b.offset}
		b.offset++
	}
	b.mu.Unlock()
	if refuse != nil {
		if err := refuse(m); err != nil {
			return err
		}
	}
	return b.Bus.Publish(ctx, m)
}

func (b *ackBus) refuseIf(f func(m bus.Message) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = f
}

func (b *ackBus) SubscribeDeferred(ctx context.Context, subject, group string, h func(context.Context, bus.Message, func())) (func(), error) {
	b.mu.Lock()
	again := b.open
	b.open = map[int]bus.Message{}
	if b.move != nil {
		b.move()
	}
	b.ours, b.move = context.WithCancel(context.WithoutCancel(ctx))
	stopped := false
	b.mu.Unlock()
	hand := func(_ context.Context, m bus.Message) error {
		b.mu.Lock()
		id := b.next
		b.next++
		b.open[id] = m
		ours := b.ours
		b.mu.Unlock()
		h(ours, m, func() {
			b.mu.Lock()
			if stopped {
				b.mu.Unlock()
				return
			}
			delete(b.open, id)
			acked := b.acked
			b.mu.Unlock()
			if acked != nil {
				acked(m)
			}
		})
		return nil
	}
	b.take = hand
	stop, err := b.Subscribe(ctx, subject, group, hand)
	for _, m := range again {
		_ = hand(ctx, m)
	}
	return func() {
		stop()
		b.mu.Lock()
		stopped = true
		b.mu.Unlock()
	}, err
}

// unacked is how many records would come again after a crash.
func (b *ackBus) unacked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// foreignRig is a hand-off between an executor of the existing platform and
// bridges of ours.
type foreignRig struct {
	*rig
	acks   *ackBus
	make   func(p *process) bridge.Ledger
	shared bool // several bridges work on one ledger
	begun  []*process

	mu      sync.Mutex
	results map[string][]records.AgentResult
	// traced is the trace of our own executor's tasks.
	traced parley.Trace
	dead   []bus.DeadLetter
	// unkept is the error of the keeper of dead letters, or nil.
	unkept error
}

// onLedgers runs f over each kind of ledger, in virtual time.
func onLedgers(t *testing.T, f func(r *foreignRig)) {
	t.Helper()
	t.Run("model", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newForeignRig(t)
			r.make, r.shared = func(p *process) bridge.Ledger { return foreignProcess{processLedger{r.ledger, p}} }, true
			defer r.end()
			f(r)
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "parley.db")
		synctest.Test(t, func(t *testing.T) {
			db, err := store.Open(t.Context(), file, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			r := newForeignRig(t)
			r.make = func(*process) bridge.Ledger { return db }
			defer r.end()
			f(r)
		})
	})
	t.Run("none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newForeignRig(t)
			r.make = func(*process) bridge.Ledger { return bridge.NewMemoryLedger() }
			defer r.end()
			f(r)
		})
	})
}

func newForeignRig(t *testing.T) *foreignRig {
	r := &foreignRig{rig: newRig(t), results: map[string][]records.AgentResult{}}
	r.acks = &ackBus{Bus: r.bus, open: map[int]bus.Message{}}
	retry := parley.DefaultRetryConfig()
	r.agents.put(parley.Agent{Name: "one", URL: "http://one.test/a?key=secret", Protocol: parley.ProtocolSimpleA2A, Retry: retry})
	r.agents.put(parley.Agent{Name: "long", Protocol: parley.ProtocolJSONRPC, Retry: retry})
	_, err := r.bus.Subscribe(t.Context(), bus.SubjectResults, "executor-group-run", func(_ context.Context, m bus.Message) error {
		got, err := records.DecodeResult(m.Value)
		if err != nil || m.Key != got.CorrelationID {
			t.Errorf("result %q under key %q: %v", m.Value, m.Key, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		var want map[string]string // of foreign tasks: none
		if strings.HasPrefix(got.TaskID, got.RunID+".") {
			want = map[string]string{"correlation-id": got.CorrelationID, "idempotency-key": got.TaskID}
			r.traced.Into(want)
		}
		if !maps.Equal(m.Header, want) {
			t.Errorf("result %q with headers %v", m.Value, m.Header)
		}
		r.results[got.TaskID] = append(r.results[got.TaskID], got)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// end ends the bridges, too: a test may have been given up.
func (r *foreignRig) end() {
	for _, p := range r.begun {
		p.cancel()
	}
	r.rig.end()
}

// begin starts a bridge.
func (r *foreignRig) begin(name string, adjust func(*bridge.Config, *process)) *process {
	r.t.Helper()
	p := r.start(name, func(cfg *bridge.Config, p *process) {
		cfg.Ledger, cfg.Bus, cfg.Results = r.make(p), r.acks, true
		cfg.DeadLetters = func(ctx context.Context, d bus.DeadLetter) error {
			if err := (processLedger{r.ledger, p}).alive(ctx); err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.unkept == nil {
				r.dead = append(r.dead, d)
			}
			return r.unkept
		}
		if adjust != nil {
			adjust(cfg, p)
		}
	})
	r.begun = append(r.begun, p)
	return p
}

// record is a task as the executor writes it.
func record(task, agent string) records.AgentTask {
	return records.AgentTask{
		RunID: "run-" + task, TaskID: task, AgentName: agent, Input: json.RawMessage(`{"text": "hello"}`),
		CorrelationID: "corr-" + task, At: time.Now(),
	}
}

func (r *foreignRig) send(t records.AgentTask) {
	r.t.Helper()
	value, err := t.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	r.put(t.RunID, value)
}

func (r *foreignRig) put(key string, value []byte) {
	r.t.Helper()
	r.publish(bus.Message{Subject: bus.SubjectTasks, Key: key, Value: value})
}

func (r *foreignRig) publish(m bus.Message) {
	r.t.Helper()
	if err := r.acks.Publish(r.t.Context(), m); err != nil {
		r.t.Fatal(err)
	}
}

// letters gives the dead letters so far.
func (r *foreignRig) letters() []bus.DeadLetter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.dead)
}

// keeps has dead letters kept, or not.
func (r *foreignRig) keeps(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unkept = err
}

func (r *foreignRig) resultsOf(task string) []records.AgentResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.results[task])
}

// result gives the first result of a task, waiting for at most limit.
func (r *foreignRig) result(task string, limit time.Duration) records.AgentResult {
	r.t.Helper()
	for until := time.Now().Add(limit); ; r.wait(100 * time.Millisecond) {
		if got := r.resultsOf(task); len(got) > 0 {
			return got[0]
		}
		if !time.Now().Before(until) {
			r.t.Fatalf("no result of %s after %v", task, limit)
		}
	}
}

// wantFailure wants one result, a failure whose text holds text.
func (r *foreignRig) wantFailure(task, text string) {
	r.t.Helper()
	got := r.result(task, 300*time.Second)
	if got.Status != records.StatusFailure || !strings.Contains(got.Error, text) || got.Output != nil {
		r.t.Errorf("%s: %+v, want a failure with %q", task, got, text)
	}
	r.wantOne(task)
}

// wantOne wants exactly one result, also later.
func (r *foreignRig) wantOne(task string) {
	r.t.Helper()
	r.wait(30 * time.Second)
	if got := r.resultsOf(task); len(got) != 1 {
		r.t.Errorf("%s has %d results: %+v", task, len(got), got)
	}
}

// wantQuiet wants every record to be acknowledged.
func (r *foreignRig) wantQuiet() {
	r.t.Helper()
	r.wait(2 * time.Second)
	if n := r.acks.unacked(); n != 0 {
		r.t.Errorf("%d records are not acknowledged", n)
	}
}

// foreignProcess is the model as one process sees it.
type foreignProcess struct{ processLedger }

func (l foreignProcess) ClaimForeign(ctx context.Context, list []store.Attempt, at time.Time) ([]store.Attempt, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.modelLedger.ClaimForeign(ctx, list, at)
}

func (l foreignProcess) AnswerForeign(ctx context.Context, list []store.Answer) ([]bool, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.modelLedger.AnswerForeign(ctx, list)
}

func (l foreignProcess) DeferForeign(ctx context.Context, list []store.Attempt, at time.Time) error {
	if err := l.alive(ctx); err != nil {
		return err
	}
	return l.modelLedger.DeferForeign(ctx, list, at)
}

func (l foreignProcess) Foreign(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.modelLedger.Foreign(ctx, now, limit)
}

func (l foreignProcess) Source(ctx context.Context, id string) (*store.Source, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.modelLedger.Source(ctx, id)
}

func (l foreignProcess) CloseForeign(ctx context.Context, ids []string) error {
	if err := l.alive(ctx); err != nil {
		return err
	}
	return l.modelLedger.CloseForeign(ctx, ids)
}

func (l foreignProcess) PurgeForeign(ctx context.Context, before time.Time, limit int) (int, error) {
	return l.modelLedger.PurgeForeign(ctx, before, limit)
}

func (l foreignProcess) Sweep(ctx context.Context, dead []store.Worker, at time.Time) ([]store.Worker, error) {
	if err := l.alive(ctx); err != nil {
		return nil, err
	}
	return l.modelLedger.Sweep(ctx, dead, at)
}

// The model of foreign tasks.

func (l *modelLedger) ClaimForeign(_ context.Context, list []store.Attempt, at time.Time) (mine []store.Attempt, err error) {
	stale := false
	err = l.write("P4", list[0].ID, func() {
		stale = !l.alive(list[0].Claim.Worker, list[0].Claim.Inc)
		for _, in := range list {
			a := l.rows[in.ID]
			if !l.alive(in.Claim.Worker, in.Claim.Inc) || (a != nil && (a.State != store.AttemptOpen || a.Attempt != in.Attempt)) {
				continue
			}
			if a == nil {
				a = &in
				l.rows[in.ID] = a
			}
			a.Held = true
			a.State, a.Claim, a.ClaimedAt = store.AttemptClaimed, in.Claim, at
			l.moves["P4"]++
			mine = append(mine, *a)
		}
	})
	if err == nil && stale {
		err = store.ErrStale
	}
	if err != nil {
		return nil, err
	}
	return mine, nil
}

func (l *modelLedger) AnswerForeign(_ context.Context, list []store.Answer) ([]bool, error) {
	accepted := make([]bool, len(list))
	err := l.write("P7", list[0].Result.TaskID, func() {
		for i := range list {
			accepted[i] = l.answer(list[i])
		}
	})
	if err != nil {
		return nil, err // what f wrote is not looked at: it may still run
	}
	return accepted, nil
}

func (l *modelLedger) DeferForeign(_ context.Context, list []store.Attempt, _ time.Time) error {
	return l.write("P3", list[0].ID, func() {
		for _, a := range list {
			if l.rows[a.ID] == nil {
				a.Held = true
				l.rows[a.ID] = &a
			}
		}
	})
}

func (l *modelLedger) Foreign(_ context.Context, now time.Time, limit int) (list []store.Attempt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil && l.fault("P23", "") != noFault {
		return nil, errDoubt
	}
	for _, a := range l.rows {
		due := a.State == store.AttemptOpen || (a.State == store.AttemptSettled && !now.Before(a.SettledAt.Add(5*time.Second)))
		if a.HandOff == store.HandOffForeign && due && !a.VisibleAt.After(now) {
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b store.Attempt) int {
		return cmp.Or(a.VisibleAt.Compare(b.VisibleAt), strings.Compare(a.ID, b.ID))
	})
	list = list[:min(limit, len(list))]
	for i := range list {
		list[i].VisibleAt = now.Add(5 * time.Second)
		l.rows[list[i].ID].VisibleAt = list[i].VisibleAt
	}
	return list, nil
}

func (l *modelLedger) Source(_ context.Context, id string) (*store.Source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.rows[id]; a != nil {
		return a.Source, nil
	}
	return nil, nil
}

func (l *modelLedger) CloseForeign(_ context.Context, ids []string) error {
	return l.write("P24", "", func() {
		for _, id := range ids {
			if a := l.rows[id]; a != nil && a.State == store.AttemptSettled {
				a.State = store.AttemptClosed
			}
		}
	})
}

// failing lets the writes of some transitions go wrong; nil: none.
func (l *modelLedger) failing(how func(op string) fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault = nil; how != nil {
		l.fault = func(op, _ string) fault { return how(op) }
	}
}

// waits reports whether a task has its row, and nobody has it in hand.
func (l *modelLedger) waits(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rows[id]
	return a != nil && a.State == store.AttemptOpen
}

func (l *modelLedger) PurgeForeign(context.Context, time.Time, int) (int, error) { return 0, nil }

func (l *modelLedger) Sweep(_ context.Context, dead []store.Worker, _ time.Time) (list []store.Worker, err error) {
	l.mu.Lock()
	for _, d := range dead {
		if w := l.workers[d.Name]; w != nil && *w == d {
			w.Dead = true
		}
	}
	for _, w := range l.workers {
		list = append(list, *w)
	}
	l.mu.Unlock()
	l.settleLost()
	return list, nil
}

var errNoBus = errors.New("the bus is away")

// down refuses everything on a subject.
func down(subject string) func(bus.Message) error {
	return func(m bus.Message) error {
		if m.Subject == subject {
			return errNoBus
		}
		return nil
	}
}
