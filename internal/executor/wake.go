package executor

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// wake queues a run for a look. A full queue drops the hint: the sweep finds
// the run a second later.
func (x *Executor) wake(w wakeup) {
	select {
	case x.wakeups <- w:
	default:
	}
}

func (x *Executor) serveWakeups(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-x.wakeups:
			if err := x.attend(ctx, w); err != nil && ctx.Err() == nil {
				x.cfg.Logger.Error("run not attended to; the next sweep tries again", "run", w.run, "error", err)
			}
		}
	}
}

// attend brings a run up to date with the store: it absorbs what is settled
// and fires what is due.
func (x *Executor) attend(ctx context.Context, w wakeup) error {
	l := x.lock(w.run)
	defer x.unlock(w.run, l)
	if w.task != "" && l.state != nil && !l.state.Waits(w.task) {
		return nil // absorbed together with the answer
	}
	for range maxStale {
		err := x.catchUp(ctx, w.run, l)
		if !errors.Is(err, store.ErrStale) {
			return err
		}
	}
	return parley.Errorf(parley.CodeConflict, "run %s: %w after %d tries", w.run, store.ErrStale, maxStale)
}

// maxStale bounds how often a decision about one run is made anew because
// somebody else was faster.
const maxStale = 10

// catchUp loads the run and decides about everything that the store shows.
func (x *Executor) catchUp(ctx context.Context, run string, l *liveRun) error {
	h, err := x.load(ctx, run, l)
	if err != nil {
		if parley.CodeOf(err) == parley.CodeNotFound {
			return nil // removed meanwhile
		}
		return err
	}
	if err := x.absorb(ctx, l, h); err != nil {
		return err
	}
	return x.fireDue(ctx, l)
}

// absorb decides about every attempt of h that was settled, or has asked
// something, since the run last looked.
func (x *Executor) absorb(ctx context.Context, l *liveRun, h store.History) error {
	for i := range h.Attempts {
		a := &h.Attempts[i]
		if l.state.Status().Terminal() {
			return nil
		}
		if hasNews(a) {
			if err := x.hear(ctx, l, a); err != nil {
				return err
			}
			continue
		}
		if a.State != store.AttemptSettled || a.Result == nil {
			continue
		}
		d := l.state.Apply(x.settled(ctx, l.state, *a.Result, a.ClaimedAt))
		if len(d.Events) == 0 {
			continue
		}
		if err := x.commit(ctx, l, d, nil); err != nil {
			return err
		}
	}
	return nil
}

func (x *Executor) fireDue(ctx context.Context, l *liveRun) error {
	due := l.state.Due()
	if due.IsZero() {
		return nil
	}
	now := x.now()
	if due.After(now) {
		x.timers.at(due, l.state.RunID())
		return nil
	}
	d := l.state.Apply(workflow.Tick{At: now, Jitter: x.cfg.Jitter()})
	if len(d.Events) == 0 {
		return nil
	}
	return x.commit(ctx, l, d, nil)
}

// load replaces the run's state by what the store holds.
func (x *Executor) load(ctx context.Context, run string, l *liveRun) (store.History, error) {
	l.state = nil
	h, err := x.cfg.Store.History(ctx, run)
	if err != nil {
		return h, err
	}
	state, err := x.replay(ctx, h)
	if err != nil {
		return h, err
	}
	l.state = state
	return h, nil
}

func (x *Executor) replay(ctx context.Context, h store.History) (*workflow.State, error) {
	v, err := x.defs.of(ctx, h.Run)
	if err != nil {
		return nil, err
	}
	state := workflow.NewState(h.Run.ID, v.def, x.cfg.Limits)
	for _, e := range h.Events {
		if err := state.Replay(e); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// publishSoon asks for open attempts to be published now.
func (x *Executor) publishSoon() {
	select {
	case x.publish <- struct{}{}:
	default:
	}
}

func (x *Executor) servePublishing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.publish:
		}
		if err := x.publishOpen(ctx); err != nil && ctx.Err() == nil {
			x.cfg.Logger.Error("open attempts not published; the next sweep tries again", "error", err)
		}
	}
}

// publishOpen is transition P2: every visible open attempt is announced on the
// bus. It may be repeated at will.
func (x *Executor) publishOpen(ctx context.Context) error {
	for {
		rows, err := x.cfg.Store.Publish(ctx, x.now(), publishBatch)
		if err != nil {
			return err
		}
		for _, a := range rows {
			m, err := taskRecord(a, x.now())
			if err != nil {
				return err
			}
			if err := x.cfg.Bus.Publish(ctx, m); err != nil {
				return err
			}
		}
		if len(rows) < publishBatch {
			return nil
		}
	}
}

// taskRecord is an AgentTask of formats.md: what an old bridge reads too. Ours
// only looks at the row that task_id names.
func taskRecord(a store.Attempt, now time.Time) (bus.Message, error) {
	v, err := json.Marshal(struct {
		RunID         string          `json:"run_id"`
		TaskID        string          `json:"task_id"`
		AgentName     string          `json:"agent_name"`
		InputData     json.RawMessage `json:"input_data"`
		CorrelationID string          `json:"correlation_id"`
		Timestamp     string          `json:"timestamp"`
	}{a.Run, a.ID, a.Agent, a.Input, a.CorrelationID, now.Format("2006-01-02T15:04:05.000000")})
	return bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: v}, err
}

// fire is called by the timers: a run's timer is due, or an attempt has become
// visible.
func (x *Executor) fire(run string) {
	if run == "" {
		x.publishSoon()
		return
	}
	x.wake(wakeup{run: run})
}
