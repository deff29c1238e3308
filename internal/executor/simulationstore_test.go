package executor_test

import (
	"context"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/store"
)

// errDoubt is the error after which nobody knows whether something was written.
var errDoubt = errors.New("connection reset: the outcome of the commit is unknown")

// answerMeanwhile stores an answer to one of these attempts, as a bridge does that
// has it in hand: p, even if it has died just now.
func (w *simWorld) answerMeanwhile(ctx context.Context, p *simProc, list []store.Attempt) {
	ctx = context.WithoutCancel(ctx)
	for i := range list {
		if a := &list[i]; w.agents.hasDone(a.Task) {
			out := w.agents.says(a.Task, 1)
			w.holds(out.Result)
			taken, err := w.db.Answer(ctx, store.Answer{Result: out.Result, At: time.Now(), From: "another"})
			if err == nil {
				w.answered(ctx, out.Result, taken)
			}
			if taken {
				w.agents.gives(p, out.Result)
			}
			return
		}
	}
}

// decideMeanwhile lets another executor decide about a run just before one does,
// now and then.
func (w *simWorld) decideMeanwhile(ctx context.Context, p *simProc, run string) {
	if w.calm.Load() || !w.apart || !w.c.of(15) || !w.intruding.TryLock() {
		return
	}
	defer w.intruding.Unlock()
	for _, name := range w.names() {
		if x := w.proc(name); x != nil && x != p && x.executor != nil && !x.dead.Load() {
			_, _ = x.executor.Pause(ctx, parley.ControlRequest{Run: run})
			_, _ = x.executor.Resume(ctx, parley.ControlRequest{Run: run}) // and looks at everything
		}
	}
}

// endMeanwhile ends a run, while another begins for it.
func (w *simWorld) endMeanwhile(ctx context.Context, run string) {
	if x := w.someExecutor(); x != nil && run != "" {
		_, err := x.Terminate(ctx, parley.ControlRequest{Run: run})
		w.asked(run, "terminate", err)
	}
}

// beside does something while something else is done, where the database lets both be
// under way.
func (w *simWorld) beside(percent int, f func()) {
	if w.engine.each && !w.calm.Load() && w.c.of(percent) {
		w.late.Go(f)
	}
}

// unsureStore is the database as one process sees it.
type unsureStore struct {
	*store.DB
	p *simProc
}

// write executes f as one transaction, or lets it go wrong.
func (s unsureStore) write(ctx context.Context, f func(context.Context) error) error {
	w := s.p.w
	if s.cutOff() {
		return errDoubt
	}
	if !w.calm.Load() && w.c.of(8) {
		switch w.c.n(3) {
		case 0:
			return errDoubt
		case 1:
			_ = f(ctx)
			return errDoubt
		}
		after := w.c.upTo(3 * time.Second)
		w.late.Go(func() {
			time.Sleep(after)
			_ = f(context.WithoutCancel(ctx))
		})
		return errDoubt
	}
	err := f(ctx)
	if s.p.dead.Load() {
		return errDoubt
	}
	return err
}

// cutOff reports whether the process does not reach the database.
func (s unsureStore) cutOff() bool {
	return s.p.dead.Load() || !s.p.w.calm.Load() && time.Now().UnixNano() < s.p.cut.Load()
}

// History is read, and what it says is old news at once, now and then.
func (s unsureStore) History(ctx context.Context, run string) (store.History, error) {
	if s.cutOff() {
		return store.History{}, errDoubt
	}
	h, err := s.DB.History(ctx, run)
	if w := s.p.w; err == nil && !w.calm.Load() && w.c.of(20) {
		w.answerMeanwhile(ctx, s.p, h.Attempts)
	}
	return h, err
}

func (s unsureStore) Owned(ctx context.Context, worker string, inc int64) ([]store.Owned, error) {
	if s.cutOff() {
		return nil, errDoubt
	}
	return s.DB.Owned(ctx, worker, inc)
}

// Orphans are read, and who has read them is dead at once, now and then.
func (s unsureStore) Orphans(ctx context.Context, worker string, inc int64, limit int) ([]store.Attempt, error) {
	if s.cutOff() {
		return nil, errDoubt
	}
	list, err := s.DB.Orphans(ctx, worker, inc, limit)
	if w := s.p.w; len(list) > 0 && !w.calm.Load() && w.c.of(20) {
		w.declareDead(context.WithoutCancel(ctx))
	}
	return list, err
}

func (s unsureStore) StartRun(ctx context.Context, b store.Start) (existing string, err error) {
	var got string
	s.p.w.beside(20, func() { s.p.w.endMeanwhile(context.WithoutCancel(ctx), b.Run.ParentRun) })
	err = s.write(ctx, func(ctx context.Context) (err error) { got, err = s.DB.StartRun(ctx, b); return err })
	if err != nil {
		return "", err
	}
	return got, nil
}

func (s unsureStore) Decide(ctx context.Context, d store.Decision) error {
	w := s.p.w
	w.decideMeanwhile(ctx, s.p, d.Run.ID)
	w.beside(20, func() { w.decideMeanwhile(context.WithoutCancel(ctx), s.p, d.Run.ID) })
	for _, c := range d.Close {
		if c.Absorb || w.calm.Load() || !w.c.of(50) {
			continue
		}
		if a, ok, err := w.db.Attempt(ctx, c.TaskID); err == nil && ok {
			w.answerMeanwhile(ctx, s.p, []store.Attempt{a})
		}
	}
	return s.write(ctx, func(ctx context.Context) error {
		if d.Answer != nil {
			w.holds(d.Answer.Result)
		}
		err := s.DB.Decide(ctx, d)
		if err == nil {
			w.decided(d)
		}
		return err
	})
}

func (s unsureStore) Answer(ctx context.Context, a store.Answer) (bool, error) {
	w := s.p.w
	w.holds(a.Result)
	ok := false
	err := s.write(ctx, func(ctx context.Context) error {
		taken, err := s.DB.Answer(ctx, a)
		if err == nil && !s.p.dead.Load() {
			ok = taken
			w.answered(ctx, a.Result, taken)
		}
		return err
	})
	if err != nil {
		return false, err // what was written late is not looked at
	}
	return ok, nil
}

func (s unsureStore) Sweep(ctx context.Context, dead []store.Worker, at time.Time) (list []store.Worker, err error) {
	var got []store.Worker
	err = s.write(ctx, func(ctx context.Context) (err error) { got, err = s.DB.Sweep(ctx, dead, at); return err })
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (s unsureStore) Register(ctx context.Context, worker string, at time.Time) (int64, error) {
	if s.cutOff() {
		return 0, errDoubt
	}
	return s.DB.Register(ctx, worker, at)
}

func (s unsureStore) Beat(ctx context.Context, worker string, inc int64) error {
	return s.write(ctx, func(ctx context.Context) error { return s.DB.Beat(ctx, worker, inc) })
}

func (s unsureStore) Claim(ctx context.Context, c store.Claim, reqs []store.ClaimRequest, at time.Time) ([]store.Attempt, error) {
	w, got := s.p.w, []store.Attempt(nil)
	w.beside(10, func() { w.declareDead(context.WithoutCancel(ctx)) })
	err := s.write(ctx, func(ctx context.Context) (err error) { got, err = s.DB.Claim(ctx, c, reqs, at); return err })
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (s unsureStore) Defer(ctx context.Context, ds []store.Deferral) error {
	return s.write(ctx, func(ctx context.Context) error { return s.DB.Defer(ctx, ds) })
}

func (s unsureStore) Move(ctx context.Context, m store.Move) (bool, error) {
	w, ok := s.p.w, false
	w.moves(m)
	w.beside(10, func() { w.declareDead(context.WithoutCancel(ctx)) })
	err := s.write(ctx, func(ctx context.Context) (err error) { ok, err = s.DB.Move(ctx, m); return err })
	if err != nil {
		return false, err // what was written late is not looked at
	}
	return ok, nil
}

// wholeUnsureStore brings answers to the executor of the same process.
type wholeUnsureStore struct{ unsureStore }

func (s wholeUnsureStore) Answer(ctx context.Context, a store.Answer) (bool, error) {
	return s.p.executor.Answer(ctx, a)
}

// unsureBus loses, repeats and delays what one process says.
type unsureBus struct {
	*memory.Bus
	p *simProc
}

func (b unsureBus) Publish(ctx context.Context, m bus.Message) error {
	w := b.p.w
	if b.p.dead.Load() {
		return errDoubt
	}
	if w.calm.Load() {
		return b.Bus.Publish(ctx, m)
	}
	switch w.c.n(10) {
	case 0:
		return nil
	case 1:
		after := w.c.upTo(8 * time.Second)
		w.late.Go(func() {
			time.Sleep(after)
			_ = b.Bus.Publish(context.WithoutCancel(ctx), m)
		})
	}
	return b.Bus.Publish(ctx, m)
}
