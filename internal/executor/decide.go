package executor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// attempts turns what the core scheduled into rows. Those that a slot of the
// own bridge is free for are claimed by it; their reservations come back in
// the same order, with a zero Start where there is none.
func (x *Executor) attempts(d workflow.Decision, now time.Time, reserve bool) ([]store.Attempt, []Reservation) {
	if len(d.Schedule) == 0 {
		return nil, nil
	}
	rows := make([]store.Attempt, len(d.Schedule))
	slots := make([]Reservation, len(d.Schedule))
	for i, s := range d.Schedule {
		rows[i] = store.Attempt{
			Task: s.Task, State: store.AttemptOpen, VisibleAt: s.At,
			Policy: store.Policy{AttemptTimeout: s.AttemptTimeout, Silence: s.Silence},
		}
		if info, ok := x.cfg.Agent(context.Background(), s.Task.Agent); ok {
			rows[i].Policy.OutcomeUnknown = info.Policy
		}
		if !reserve || x.cfg.Reserve == nil || s.At.After(now) {
			continue
		}
		if slot, ok := x.cfg.Reserve(s.Task.Agent); ok {
			slots[i] = slot
			rows[i].State, rows[i].Claim, rows[i].ClaimedAt = store.AttemptClaimed, slot.Claim, now
		}
	}
	return rows, slots
}

// commit saves a decision and then does what follows from it. The caller holds
// the run's lock. After an error nothing has followed, and the state must not
// be used any more.
func (x *Executor) commit(ctx context.Context, l *liveRun, d workflow.Decision, answer *store.Answer) error {
	return x.commitWith(ctx, l, d, extra{answer: answer})
}

// extra is what the store writes along with a decision.
type extra struct {
	answer  *store.Answer
	replies []store.TaskReply
	seen    []store.NewsSeen
}

// commitWith is commit for a decision that brings something along; it may have
// no events then.
func (x *Executor) commitWith(ctx context.Context, l *liveRun, d workflow.Decision, e extra) error {
	now := x.now()
	rows, slots := x.attempts(d, now, !l.refused)
	err := x.cfg.Store.Decide(ctx, store.Decision{
		Run:  x.row(l, now),
		Seen: l.state.Seq() - int64(len(d.Events)), Events: d.Events, Answer: e.answer,
		Close: closes(d.Close), RequestCancel: d.RequestCancel, Insert: rows,
		Replies: e.replies, NewsSeen: e.seen,
		// That nothing came of news may be found out again.
		Prompt: len(d.Events) == 0,
	})
	l.refused = err != nil
	if err != nil {
		l.state = nil
		release(slots)
		return err
	}
	x.follow(l, d, rows, slots)
	return nil
}

// follow does what a durable decision asks for.
func (x *Executor) follow(l *liveRun, d workflow.Decision, rows []store.Attempt, slots []Reservation) {
	run := l.state.RunID()
	for i, slot := range slots {
		switch {
		case slot.Start != nil:
			slot.Start(rows[i])
		case rows[i].VisibleAt.After(x.cfg.Now()):
			x.timers.at(rows[i].VisibleAt, "")
		default:
			x.publishSoon()
		}
	}
	for _, id := range d.RequestCancel {
		x.tellCancel(id)
	}
	for _, c := range d.Close {
		if !c.Absorb {
			x.tellCancel(c.TaskID)
		}
	}
	if due := l.state.Due(); !due.IsZero() {
		x.timers.at(due, run)
	}
	x.hub.changed(run, l.state.Status())
}

// tellCancel hints to the bridges; each also reads its cancelled rows every
// second (protocol.md P13), so a lost hint costs time only.
func (x *Executor) tellCancel(task string) {
	err := x.cfg.Bus.Publish(context.Background(), bus.Message{Subject: bus.SubjectCancel, Key: task, Value: []byte(task)})
	if err != nil {
		x.cfg.Logger.Debug("cancel hint not published", "task_id", task, "error", err)
	}
}

func release(slots []Reservation) {
	for _, s := range slots {
		if s.Release != nil {
			s.Release()
		}
	}
}

// row gives the mutable columns of the run after a decision.
func (x *Executor) row(l *liveRun, now time.Time) store.Run {
	s := l.state
	started, ended := s.Times()
	by, reason := s.CancelledBy()
	r := store.Run{
		ID: s.RunID(), Seq: s.Seq(), Status: s.Status(), Cancelling: s.Cancelling(),
		Due: s.Due(), UpdatedAt: now, CreatedAt: started, StartedAt: started, EndedAt: ended,
		CancelledBy: by, CancelReason: reason,
	}
	if !r.Status.Terminal() {
		r.Phase = "body"
	}
	if err := s.Err(); err != nil {
		r.Error = encodeError(err)
	}
	return r
}

func encodeError(err *parley.Error) []byte {
	b, e := json.Marshal(err)
	if e != nil {
		// Only details that are no JSON can fail; the code and the text stay.
		b, _ = json.Marshal(parley.Errorf(err.Code, "%s", err.Message))
	}
	return b
}

func closes(cs []workflow.Close) []store.Close {
	if len(cs) == 0 {
		return nil
	}
	out := make([]store.Close, len(cs))
	for i, c := range cs {
		out[i] = store.Close{TaskID: c.TaskID, Absorb: c.Absorb, Outcome: c.Outcome, CancelAgent: !c.Absorb}
	}
	return out
}

// Answer records what an agent answered and, if the run is at hand, decides
// what follows in the same transaction (protocol.md §6). The answer never
// waits for the executor: if the run is busy, not loaded, or the merged write
// is refused, it is recorded alone at once and absorbed afterwards. accepted is
// false for an answer that came after the attempt's end; it is kept as late.
func (x *Executor) Answer(ctx context.Context, a store.Answer) (accepted bool, err error) {
	run := runOf(a.Result.TaskID)
	if done := x.answerAndAbsorb(ctx, run, a); done {
		return true, nil
	}
	accepted, err = x.cfg.Store.Answer(ctx, a)
	if err == nil && accepted {
		x.wake(wakeup{run: run})
	}
	return accepted, err
}

func (x *Executor) answerAndAbsorb(ctx context.Context, run string, a store.Answer) bool {
	x.mu.Lock()
	l := x.live[run]
	x.mu.Unlock()
	if l == nil || !l.mu.TryLock() {
		return false
	}
	defer x.unlock(run, l)
	if l.gone || l.state == nil {
		return false
	}
	d := l.state.Apply(x.settled(ctx, l.state, a.Result, a.Started))
	if len(d.Events) == 0 {
		return false
	}
	err := x.commit(ctx, l, d, &a)
	if err != nil && !errors.Is(err, store.ErrStale) {
		x.cfg.Logger.Warn("answer and decision not written together", "task_id", a.Result.TaskID, "error", err)
	}
	return err == nil
}

// settled makes the fact that an attempt has ended.
func (x *Executor) settled(ctx context.Context, s *workflow.State, r parley.Result, started time.Time) workflow.Settled {
	f := workflow.Settled{At: x.now(), TaskID: r.TaskID, Result: r, Started: started}
	if r.Outcome == parley.OutcomeOK {
		return f
	}
	f.Jitter = x.cfg.Jitter()
	info, ok := x.cfg.Agent(ctx, s.AgentOf(r.TaskID))
	if !ok {
		info.Retry = parley.DefaultRetryConfig()
	}
	f.AgentRetry = workflow.AgentRetry(info.Retry)
	return f
}

// runOf gives the run of a task id, which is "{run}.{path}.{attempt}"; run ids
// hold no dot.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, ".")
	return run
}
