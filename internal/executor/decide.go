package executor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
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
func (x *Executor) attempts(l *liveRun, d workflow.Decision, now time.Time, reserve bool) ([]store.Attempt, []Reservation) {
	if len(d.Schedule) == 0 {
		return nil, nil
	}
	rows := make([]store.Attempt, len(d.Schedule))
	slots := make([]Reservation, len(d.Schedule))
	for i, s := range d.Schedule {
		rows[i] = store.Attempt{
			Task: s.Task, State: store.AttemptOpen, Held: s.Held, VisibleAt: s.At, Urgency: l.state.Priority() - parley.DefaultRunPriority,
			Policy: store.Policy{AttemptTimeout: s.AttemptTimeout, Silence: s.Silence},
		}
		rows[i].Trace = x.cfg.Tracer.Step(s.Task.Run, s.Task.Trace, s.Task.Step)
		if s.HasNext {
			rows[i].Policy.OnOpen = parley.OnOpenFail
		}
		if info, ok := x.cfg.Agent(context.Background(), s.Task.Agent); ok {
			rows[i].Policy.OutcomeUnknown = info.Policy
		}
		if s.Held || s.At.After(now) {
			continue
		}
		if x.publisher != nil && x.old == nil {
			rows[i].Announced, rows[i].ScheduledAt = true, now
		}
		if !reserve {
			continue
		}
		if x.old != nil {
			if slot, ok := x.old.reserve(); ok {
				slots[i] = slot
				rows[i].State, rows[i].HandOff, rows[i].Claim, rows[i].ClaimedAt = store.AttemptClaimed, store.HandOffBus, slot.Claim, now
			}
			continue
		}
		if x.cfg.Reserve == nil {
			continue
		}
		if slot, ok := x.cfg.Reserve(s.Task.Agent); ok {
			slots[i] = slot
			rows[i].State, rows[i].Claim, rows[i].ClaimedAt, rows[i].Announced = store.AttemptClaimed, slot.Claim, now, false
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
	// looked says which steps have looked for their events.
	looked []store.WaiterSeen
	// begun and done are children whose begin, or end, the decision is about.
	begun, done []string
}

// commitWith is commit for a decision that brings something along; it may have
// no events then.
func (x *Executor) commitWith(ctx context.Context, l *liveRun, d workflow.Decision, e extra) error {
	now := x.now()
	rows, slots := x.attempts(l, d, now, !l.refused)
	err := x.cfg.Store.Decide(ctx, store.Decision{
		Run:  x.row(l, now),
		Seen: l.state.Seq() - int64(len(d.Events)), Events: d.Events, Answer: e.answer,
		Close: closes(d.Close), RequestCancel: d.RequestCancel, Hold: d.Hold, Insert: rows,
		Replies: e.replies, NewsSeen: e.seen, DeadLetters: deadLetters(l.state, d, now),
		Signals: x.signals(l.state, d, e.looked), Turn: turnMove(l.state, d), Children: x.family(l.state, d, e),
		// That nothing came of news may be found out again.
		Prompt: len(d.Events)+len(e.begun)+len(e.done) == 0,
	})
	l.refused = err != nil
	if err != nil {
		if errors.Is(err, store.ErrStale) {
			x.refused.Add(1)
		}
		l.state = nil
		release(slots)
		x.old.inDoubt(rows, err)
		return l.notPublished(err)
	}
	x.accepted.Add(1)
	x.follow(l, d, rows, slots)
	return nil
}

// follow does what a durable decision asks for.
func (x *Executor) follow(l *liveRun, d workflow.Decision, rows []store.Attempt, slots []Reservation) {
	if l.full != nil {
		l.full, l.leave = nil, true // the state knows of it, and there may be room the next time
	}
	for i, slot := range slots {
		switch {
		case slot.Start != nil:
			slot.Start(rows[i])
		case rows[i].VisibleAt.After(x.cfg.Clock()):
			x.at(timer{at: rows[i].VisibleAt})
		case rows[i].Announced:
			x.publisher.Announce(rows[i])
		default:
			x.cfg.Publish()
		}
	}
	x.count(d)
	x.cfg.Metrics.decided(l.state, d.Events)
	x.trace(l.state, d.Events)
	for _, id := range d.RequestCancel {
		x.tellCancel(id)
	}
	for _, c := range d.Close {
		if !c.Absorb {
			x.tellCancel(c.TaskID)
		}
	}
	if due := l.state.Due(); !due.IsZero() {
		x.at(timer{at: due, run: l.state.RunID()})
	}
	x.followSignals(l, d)
	x.followTurn(l, d)
	x.followChildren(l, d)
	x.monitor.tell(l.state, d.Events)
	x.changed(l)
	if x.cfg.Shared {
		x.followShared(l, slots)
	}
}

// count notes first calls: of them the agents' retries are a share.
func (x *Executor) count(d workflow.Decision) {
	for _, s := range d.Schedule {
		if !s.Retry {
			info, _ := x.cfg.Agent(context.Background(), s.Task.Agent)
			x.budgets.called(s.Task.Agent, info.Retry.Budget)
		}
	}
}

// tellCancel hints to the bridges; each also reads its cancelled rows every
// second (protocol.md P13), so a lost hint costs time only.
func (x *Executor) tellCancel(task string) {
	x.post(bus.Message{Subject: bus.SubjectCancel, Key: task, Value: []byte(task)})
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
		Paused: s.Paused(), Phase: s.Phase(), Due: s.Due(), UpdatedAt: now, CreatedAt: s.CreatedAt(), StartedAt: started, EndedAt: ended,
		CancelledBy: by, CancelReason: reason,
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
		out[i] = store.Close{TaskID: c.TaskID, Absorb: c.Absorb, Outcome: c.Outcome, Unanswered: c.Unanswered, CancelAgent: !c.Absorb}
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
	done, err := x.end(ctx, l, ending{a.Result, a.Started, a.At}, &a)
	if err != nil && !errors.Is(err, store.ErrStale) {
		x.cfg.Logger.Warn("answer and decision not written together", "task_id", a.Result.TaskID, "error", err)
	}
	return done && err == nil
}

// end decides about the end of an attempt and saves the decision, with the
// answer if there is one. done is false if there was nothing to decide.
func (x *Executor) end(ctx context.Context, l *liveRun, e ending, answer *store.Answer) (done bool, err error) {
	agent := l.state.AgentOf(e.result.TaskID)
	f, giveBack, err := x.settled(ctx, l.state, e)
	if err != nil {
		return false, err
	}
	d := l.state.Apply(f)
	if len(d.Events) > 0 {
		err = x.commit(ctx, l, d, answer)
	}
	if err != nil || !retries(d) {
		giveBack()
	} else {
		x.cfg.Metrics.retried(agent, f.NotBefore.IsZero())
	}
	return len(d.Events) > 0, err
}

func retries(d workflow.Decision) bool {
	return slices.ContainsFunc(d.Schedule, func(s workflow.Schedule) bool { return s.Retry })
}

// ending is how and when an attempt ended.
type ending struct {
	result         parley.Result
	started, ended time.Time
}

// settled makes the fact that an attempt has ended. If the agent is called again
// for it, that is paid for; else the caller gives it back. The error says that how often
// that may be is not known now.
func (x *Executor) settled(ctx context.Context, s *workflow.State, e ending) (f workflow.Settled, giveBack func(), err error) {
	r := e.result
	f = workflow.Settled{At: x.now(), TaskID: r.TaskID, Result: r, Started: e.started, Ended: e.ended.UTC().Truncate(time.Microsecond)}
	if r.Outcome == parley.OutcomeOK && !s.Judges(r.TaskID) {
		return f, func() {}, nil
	}
	f.Jitter = x.cfg.Jitter()
	agent := s.AgentOf(r.TaskID)
	if agent == "" {
		return f, func() {}, nil // it comes too late
	}
	info, ok := x.cfg.Agent(ctx, agent)
	if info.Err != nil {
		return f, nil, info.Err
	}
	if !ok {
		info.Retry = parley.DefaultRetryConfig()
	}
	f.AgentRetry = workflow.AgentRetry(info.Retry)
	wait, giveBack := x.budgets.take(agent, info.Retry.Budget)
	if wait > 0 {
		f.NotBefore = f.At.Add(wait.Truncate(time.Microsecond))
	}
	return f, giveBack, nil
}

// runOf gives the run of a task id, which is "{run}.{path}.{attempt}"; run ids
// hold no dot.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, ".")
	return run
}
