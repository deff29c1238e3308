package executor

import (
	"context"
	"errors"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Terminate ends a run at once (rule C3): agents in flight get a cancel that
// nobody waits for, nothing is compensated and finally does not run. The error
// has code conflict for a run that has ended.
func (x *Executor) Terminate(ctx context.Context, req parley.ControlRequest) (parley.Run, error) {
	return x.control(ctx, req, "terminate", func(*workflow.State) (workflow.Fact, error) {
		return workflow.Terminate{At: x.now(), By: req.By, Reason: req.Reason}, nil
	})
}

// Pause keeps steps and attempts of a run from starting (rule C5); what runs,
// ends. To pause a run that is paused gives the same answer. The error has code
// conflict for a run that has ended or is being cancelled.
func (x *Executor) Pause(ctx context.Context, req parley.ControlRequest) (parley.Run, error) {
	return x.control(ctx, req, "pause", func(s *workflow.State) (workflow.Fact, error) {
		if s.Queued() {
			return nil, parley.Errorf(parley.CodeConflict, "Cannot pause run %s: it has not begun, it waits for its turn; cancel it instead", req.Run)
		}
		if s.Cancelling() {
			return nil, parley.Errorf(parley.CodeConflict, "Cannot pause run %s: it is being cancelled", req.Run)
		}
		return workflow.Pause{At: x.now(), By: req.By, Reason: req.Reason}, nil
	})
}

// Resume ends the pause of a run (rule C5); timers that became due meanwhile act
// now. To resume a run that is not paused changes nothing. The error has code
// conflict for a run that has ended.
func (x *Executor) Resume(ctx context.Context, req parley.ControlRequest) (parley.Run, error) {
	return x.control(ctx, req, "resume", func(*workflow.State) (workflow.Fact, error) {
		return workflow.Resume{At: x.now(), By: req.By, Jitter: x.cfg.Jitter()}, nil
	})
}

// control lets a fact of somebody who steers a run take effect.
func (x *Executor) control(ctx context.Context, req parley.ControlRequest, verb string, fact func(*workflow.State) (workflow.Fact, error)) (parley.Run, error) {
	l := x.lock(req.Run)
	defer x.unlock(req.Run, l)
	for range maxStale {
		h, err := x.load(ctx, req.Run, l)
		if err != nil {
			return parley.Run{}, err
		}
		if s := l.state.Status(); s.Terminal() {
			return parley.Run{}, parley.Errorf(parley.CodeConflict, "Cannot %s run %s: it is %s", verb, req.Run, s)
		}
		f, err := fact(l.state)
		if err != nil {
			return parley.Run{}, err
		}
		d := l.state.Apply(f)
		if len(d.Events) == 0 {
			return x.shown(ctx, l.state, h)
		}
		if err := x.commit(ctx, l, d, nil); errors.Is(err, store.ErrStale) {
			continue
		} else if err != nil {
			return parley.Run{}, err
		}
		if d.Hold != nil && !*d.Hold {
			// What became due while the run was paused, and what was held back.
			x.cfg.Publish()
			if _, err := x.catchUp(ctx, req.Run, l, false); err != nil && !errors.Is(err, store.ErrStale) {
				return parley.Run{}, err
			}
		}
		return x.Get(ctx, req.Run)
	}
	return parley.Run{}, parley.Errorf(parley.CodeConflict, "run %s changes too fast to %s it; try again", req.Run, verb)
}
