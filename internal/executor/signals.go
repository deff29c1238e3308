package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Signals is what an executor asks of the database about events (language rule
// C8). *store.DB implements it; the methods are described there. It is apart from
// [Store] so that neither has more methods than a fake can have.
//
// What a run has taken is in its history and nowhere else, so that the fence of a
// decision, the run's sequence number, is that of its events too. A row of a step
// that waits only says "look": it is written with the decision to wait, and told
// of an event after that was committed, so that one of the two sees the other.
type Signals interface {
	PutSignal(ctx context.Context, run string, e parley.Signal, limit int) (at time.Time, repeated bool, err error)
	SpreadSignals(ctx context.Context, limit int) (runs []string, more bool, err error)
	Waiters(ctx context.Context, run string) ([]store.Waiter, error)
	SignalsFor(ctx context.Context, w store.Waiter, after store.SignalMark) ([]parley.Signal, error)
	PurgeSignals(ctx context.Context, now time.Time, limit int) (removed int, err error)
}

const (
	spreadBatch = 100
	forgetBatch = 500
)

// errNotPublished says that a decision was refused since events that it publishes
// have no room. What is decided next knows.
var errNotPublished = fmt.Errorf("%w: an event has no room", store.ErrStale)

// notPublished remembers why a decision was refused, if that were its events.
func (l *liveRun) notPublished(err error) error {
	if full, ok := errors.AsType[store.SignalsFullErrors](err); ok {
		l.full = append(l.full, full...)
		return errNotPublished
	}
	return err
}

// signals is what a decision changes about events.
func (x *Executor) signals(s *workflow.State, d workflow.Decision, looked []store.WaiterSeen) store.Signals {
	g := store.Signals{Unsubscribe: d.Unsubscribe, Emit: x.traced(s, d.Emit), Limit: x.cfg.Limits.WaitingEvents, Chain: s.Chain() + 1, Seen: looked}
	for _, w := range d.Subscribe {
		g.Subscribe = append(g.Subscribe, store.Waiter{Run: s.RunID(), Step: w.Step, Name: w.Name, Key: w.Key, Since: w.Since})
	}
	g.Taken, g.Answered = d.Taken, d.Answered
	for _, q := range d.Ask {
		g.Ask = append(g.Ask, store.Approval{Run: s.RunID(), Step: q.Step, Workflow: s.Definition().ID, CreatedAt: q.CreatedAt, Asked: q.Asked})
	}
	return g
}

// followSignals does what a durable decision asks for about events: who begins to
// wait looks for those that were there before.
func (x *Executor) followSignals(l *liveRun, d workflow.Decision) {
	if len(d.Subscribe) > 0 && !x.cfg.Guest {
		x.wake(wakeup{run: l.state.RunID()})
	}
	if len(d.Emit) > 0 {
		x.spreadSoon()
		x.startSoon()
	}
}

// Signal publishes an event, or delivers it to one run. It is durable when the
// call returns; the runs that wait take it soon afterwards. The error has code
// not_found for an unknown run, conflict for one that has ended, invalid for an
// event without a name or with data that is no JSON, and limit.
func (x *Executor) Signal(ctx context.Context, req parley.SignalRequest) (parley.SignalReceipt, error) {
	e := req.Signal
	if err := e.Validate(); err != nil {
		return parley.SignalReceipt{}, err
	}
	if x.cfg.Signals == nil {
		return parley.SignalReceipt{}, parley.Errorf(parley.CodeUnavailable, "No events are kept here")
	}
	if req.Run != "" {
		row, err := x.cfg.Store.RunRow(ctx, req.Run)
		if err != nil {
			return parley.SignalReceipt{}, err
		}
		if row.Status.Terminal() {
			return parley.SignalReceipt{}, parley.Errorf(parley.CodeConflict, "Cannot signal run %s: it is %s", req.Run, row.Status)
		}
	}
	if e.ID == "" {
		e.ID = "event-" + strings.TrimPrefix(x.cfg.NewID(), "run-")
	}
	e.Time = x.now()
	at, repeated, err := x.cfg.Signals.PutSignal(ctx, req.Run, e, x.cfg.Limits.WaitingEvents)
	if err != nil {
		return parley.SignalReceipt{}, err
	}
	x.spreadSoon()
	x.startSoon()
	return parley.SignalReceipt{ID: e.ID, Time: at, Repeated: repeated}, nil
}

// spreadSoon asks for new events to be told to those who wait.
func (x *Executor) spreadSoon() {
	select {
	case x.spreading <- struct{}{}:
	default:
	}
}

// serveSignals tells those who wait of new events until ctx ends: when it is
// asked to, and, unless others do, regularly.
func (x *Executor) serveSignals(ctx context.Context) {
	var again <-chan time.Time
	if !x.cfg.Guest {
		tick := time.NewTicker(x.cfg.SweepEvery)
		defer tick.Stop()
		again = tick.C
	}
	for {
		if err := x.spread(ctx); err != nil && ctx.Err() == nil {
			x.cfg.Logger.Error("new events were not told; that is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-x.spreading:
		case <-again:
		}
	}
}

func (x *Executor) spread(ctx context.Context) error {
	for {
		runs, more, err := x.cfg.Signals.SpreadSignals(ctx, spreadBatch)
		if err != nil {
			return err
		}
		for _, run := range runs {
			if x.cfg.Guest || x.cfg.Shared && !x.holds(run) {
				x.post(bus.Message{Subject: bus.SubjectRuns, Key: run})
				continue
			}
			x.wake(wakeup{run: run})
		}
		if !more {
			return nil
		}
	}
}

func (x *Executor) forgetSignals(ctx context.Context) error {
	if x.cfg.Signals == nil {
		return nil
	}
	_, err := x.cfg.Signals.PurgeSignals(ctx, x.now(), forgetBatch)
	return err
}

// deliver has the steps that wait look for the events that they were told of.
func (x *Executor) deliver(ctx context.Context, l *liveRun) error {
	if x.cfg.Signals == nil || len(l.state.Awaited()) == 0 {
		return nil
	}
	waiters, err := x.cfg.Signals.Waiters(ctx, l.state.RunID())
	if err != nil || len(waiters) == 0 {
		return err
	}
	for i := range waiters {
		if err := x.offer(ctx, l, waiters[i]); err != nil {
			return err
		}
	}
	var looked []store.WaiterSeen
	for _, w := range waiters {
		if awaits(l.state, func(s workflow.Subscription) bool { return s.Step == w.Step }) {
			looked = append(looked, store.WaiterSeen{Step: w.Step, News: w.News})
		}
	}
	if len(looked) == 0 {
		return nil
	}
	return x.commitWith(ctx, l, workflow.Decision{}, extra{looked: looked})
}

// offer gives a run the events that one of its steps may take, oldest first, as
// long as a step waits for one of them. Which step takes it is the run's decision.
func (x *Executor) offer(ctx context.Context, l *liveRun, w store.Waiter) error {
	wanted := func(s workflow.Subscription) bool { return s.Name == w.Name && s.Key == w.Key }
	for mark := (store.SignalMark{At: w.Since}); awaits(l.state, wanted); {
		list, err := x.cfg.Signals.SignalsFor(ctx, w, mark)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			mark = store.SignalMark{At: e.Time, ID: e.ID}
			if !awaits(l.state, wanted) {
				return nil
			}
			d := l.state.Apply(workflow.Signalled{At: x.now(), Signal: e, Jitter: x.cfg.Jitter()})
			if len(d.Events) == 0 {
				continue
			}
			if err := x.commit(ctx, l, d, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func awaits(s *workflow.State, which func(workflow.Subscription) bool) bool {
	return slices.ContainsFunc(s.Awaited(), which)
}
