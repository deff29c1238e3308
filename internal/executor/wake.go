package executor

import (
	"context"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// wake queues a run for a look.
func (x *Executor) wake(w wakeup) { x.wakeups.add(w) }

func (x *Executor) serveWakeups(ctx context.Context) {
	for {
		w, ok := x.wakeups.take(ctx)
		if !ok {
			return
		}
		err := x.attend(ctx, w)
		x.wakeups.done(w.run)
		if err != nil && ctx.Err() == nil {
			x.cfg.Logger.Error("run not attended to; the next sweep tries again", "run", w.run, "error", err)
		}
	}
}

// attend brings a run up to date with the store: it absorbs what is settled
// and fires what is due.
func (x *Executor) attend(ctx context.Context, w wakeup) error {
	l := x.lock(w.run)
	defer x.unlock(w.run, l)
	if w.task != "" && l.state != nil && !x.cfg.Shared && !l.state.Waits(w.task) {
		return nil // absorbed together with the answer
	}
	if done, err := x.attendLate(ctx, l, w); done {
		return err
	}
	refused := false
	if done, err := x.attendTask(ctx, l, w); done {
		if !errors.Is(err, store.ErrStale) {
			return err
		}
		refused = true
	}
	if done, err := x.attendChildren(ctx, l, w); done {
		if !errors.Is(err, store.ErrStale) {
			return err
		}
		refused = true
	}
	for try := range maxStale {
		acted, err := x.catchUp(ctx, w.run, l, try >= maxSpared)
		if !errors.Is(err, store.ErrStale) {
			if !acted && x.cfg.Shared && (refused || w.stranger) {
				l.state = nil // somebody else decides about it (protocol.md §4.10)
			}
			return err
		}
		refused = true
	}
	return parley.Errorf(parley.CodeConflict, "run %s: %w after %d tries", w.run, store.ErrStale, maxStale)
}

// attendTask decides about the one attempt that w is about, if the run is held
// here: its history need not be read again, since the store refuses a decision
// that was not made about its end. done is false if there was nothing to decide.
func (x *Executor) attendTask(ctx context.Context, l *liveRun, w wakeup) (done bool, err error) {
	if w.task == "" || w.stranger || l.state == nil || x.old != nil || !l.state.Waits(w.task) {
		return false, nil
	}
	a, ok, err := x.cfg.Store.Attempt(ctx, w.task)
	if err != nil {
		return true, err
	}
	if !ok || a.State != store.AttemptSettled {
		return false, nil // the history will show why
	}
	return true, x.absorb(ctx, l, store.History{Attempts: []store.Attempt{a}})
}

// maxStale bounds how often a decision about one run is made anew because
// somebody else was faster.
const maxStale = 10

// maxSpared bounds how often that is because agents have answered what a timer was
// about to end.
const maxSpared = 5

// catchUp loads the run and decides about everything that the store shows; hurry is
// that of [workflow.Tick]. acted is false if there was nothing to decide.
func (x *Executor) catchUp(ctx context.Context, run string, l *liveRun, hurry bool) (acted bool, err error) {
	read := x.resultsRead()
	h, err := x.load(ctx, run, l)
	if err != nil {
		if parley.CodeOf(err) == parley.CodeNotFound {
			return false, nil // removed meanwhile
		}
		return false, err
	}
	if l.state.Queued() {
		return x.admit(ctx, l)
	}
	if err := x.absorb(ctx, l, h); err != nil {
		return true, err
	}
	if err := x.deliver(ctx, l); err != nil {
		return true, err
	}
	seen := view{h.Attempts, read, hurry}
	if err := x.adopt(ctx, l, seen); err != nil {
		return true, err
	}
	if err := x.fireDue(ctx, l, seen); err != nil {
		return true, err
	}
	return l.state.Seq() != h.Run.Seq, nil
}

// absorb decides about every attempt of h that was settled, or has asked
// something, since the run last looked.
func (x *Executor) absorb(ctx context.Context, l *liveRun, h store.History) error {
	for i := range h.Attempts {
		a := &h.Attempts[i]
		x.old.resolve(a)
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
		if _, err := x.end(ctx, l, ending{*a.Result, a.ClaimedAt, a.SettledAt}, nil); err != nil {
			return err
		}
	}
	return nil
}

// view is what was known of a run's attempts when it was loaded: read is up to when the
// results of an old bridge were in the store before.
type view struct {
	attempts []store.Attempt
	read     time.Time
	hurry    bool
}

// fireDue fires the run's timers. With an old bridge none acts that ends what
// that works on before the results that were there when it was due are in the
// store.
func (x *Executor) fireDue(ctx context.Context, l *liveRun, v view) error {
	due := l.state.Due()
	if due.IsZero() {
		return nil
	}
	now := x.now()
	if due.After(now) {
		x.at(timer{at: due, run: l.state.RunID()})
		return nil
	}
	if x.unread(l.state, v.read, now) {
		if !x.old.gate.await(due, l.state.RunID()) {
			x.wake(wakeup{run: l.state.RunID()})
		}
		return nil
	}
	d := l.state.Apply(workflow.Tick{At: now, Jitter: x.cfg.Jitter(), Calls: calls(v.attempts), Hurry: v.hurry})
	if len(d.Events) == 0 {
		return nil
	}
	return x.commit(ctx, l, d, nil)
}

// unread reports whether results of an old bridge may lie on its bus, read up to a time,
// that came before a timer of the run which is due by now, and which may end what that
// bridge works on.
func (x *Executor) unread(s *workflow.State, read, now time.Time) bool {
	due := s.Due()
	return x.old != nil && !due.IsZero() && !due.After(now) && read.Before(due) && len(s.InFlight()) > 0
}

// calls says which attempts had begun when the run was loaded: a timer may end them.
func calls(list []store.Attempt) map[string]workflow.Call {
	m := make(map[string]workflow.Call, len(list))
	for i := range list {
		if a := &list[i]; a.State != store.AttemptOpen && !a.ClaimedAt.IsZero() {
			m[a.ID] = workflow.Call{Started: a.ClaimedAt, AgentTaskID: a.AgentTaskID}
		}
	}
	return m
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
	for _, f := range l.full {
		state.SignalsFull(f.Name, f.Key)
	}
	l.state = state
	return h, nil
}

func (x *Executor) replay(ctx context.Context, h store.History) (*workflow.State, error) {
	def, err := x.defs.behind(ctx, h)
	if err != nil {
		return nil, err
	}
	state := workflow.NewState(h.Run.ID, def, x.cfg.Limits)
	for _, e := range h.Events {
		if err := state.Replay(e); err != nil {
			return nil, err
		}
	}
	return state, nil
}
