package executor

import (
	"context"
	"errors"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// LateAnswers is what an executor asks of the database about answers that came
// after the end of their attempts (language rule T3). *store.DB implements it; the
// methods are described there.
type LateAnswers interface {
	LateNews(ctx context.Context, run string, limit int) ([]store.LateNews, error)
	SawLate(ctx context.Context, ids []int64) error
}

// lateBatch bounds the late answers of one look at a run. A sweep finds the rest.
const lateBatch = 100

// attendLate has the history of a run say which answers came too late. Nothing
// depends on that, so nobody is told of one but by the sweep; what was refused
// because somebody else has decided meanwhile is found by the next one. done is
// false if w is about something else.
func (x *Executor) attendLate(ctx context.Context, l *liveRun, w wakeup) (done bool, err error) {
	if !w.late || x.cfg.LateAnswers == nil {
		return w.late, nil
	}
	held := l.state != nil
	err = x.takeLate(ctx, l, w.run)
	if !held && x.cfg.Shared {
		l.state = nil // somebody else decides about it (protocol.md §4.10)
	}
	if errors.Is(err, store.ErrStale) {
		return true, nil
	}
	return true, err
}

func (x *Executor) takeLate(ctx context.Context, l *liveRun, run string) error {
	news, err := x.cfg.LateAnswers.LateNews(ctx, run, lateBatch)
	if err != nil || len(news) == 0 {
		return err
	}
	if l.state == nil {
		if _, err := x.load(ctx, run, l); err != nil {
			if parley.CodeOf(err) == parley.CodeNotFound {
				return nil // removed meanwhile
			}
			return err
		}
	}
	now, seen := x.now(), l.state.Seq()
	ids := make([]int64, len(news))
	var events []parley.Event
	for i := range news {
		n := &news[i]
		ids[i] = n.ID
		e, ok := l.state.Late(workflow.LateAnswer{
			At: now, Came: n.At, TaskID: n.TaskID, Step: n.Step, Attempt: n.Number, Outcome: n.Result.Outcome, Bytes: n.Bytes, Err: n.Result.Err,
		})
		if ok {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return x.cfg.LateAnswers.SawLate(ctx, ids)
	}
	err = x.cfg.Store.Decide(ctx, store.Decision{Run: x.row(l, now), Seen: seen, Events: events, LateSeen: ids, Prompt: true})
	if err != nil {
		l.state = nil
		return err
	}
	x.cfg.Metrics.decided(l.state, events)
	x.changed(l)
	return nil
}
