package bridge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// call is one attempt that this bridge has in hand, from its known claim to
// its known end. One goroutine works on it, step by step; the others only
// interrupt it.
type call struct {
	b    *Bridge
	lane *lane
	// row is the attempt as the ledger has it, as far as is known. The call's
	// goroutine owns it.
	row store.Attempt
	// began is the start of the write that gave the present claim, since the
	// start of the attempt's limits, sentAt that of the newest call.
	began, since, sentAt time.Time
	// keep: the row is not known to have left this bridge, so its entry stays,
	// and nobody takes it for a claim under which nothing was sent.
	keep bool
	// follows: it is counted among the tasks that are followed.
	follows bool
	// turnDown: it was claimed because its agent's circuit is open. unseen: it was
	// claimed before the agent's limit was known.
	turnDown, unseen bool
	later            int
	// requeue: the task is to wait for another slot after this call. tell is the
	// result that is to be told when the slot is free, or nil.
	requeue bool
	// unread: the agent was not looked up, because what knows it did not answer.
	unread bool
	// uncalled: the present try has ended before the adapter was asked.
	uncalled bool
	tell     *parley.Result
	span     callSpan
	agent    parley.Agent
	out      Outcome
	// status is the HTTP status that the newest call was answered with, or 0.
	status int
	// why is what interrupted the newest exchange or wait, or nil.
	why error
	// stream is what the agent tells by itself, or nil; deaf counts the streams
	// in a row that were of no use.
	stream Stream
	deaf   int
	// partial is the answer that a stream has told, perhaps not all of it, or nil.
	partial *Outcome
	// inDoubt: an answer was sent, and nobody knows whether it arrived, since
	// doubted; resend: it is to be sent once more.
	inDoubt, resend bool
	doubted         time.Time
	// replyFrom is when the agent wants the answer that it did not take, at the earliest.
	replyFrom time.Time

	// heard is the newest sign of life, in nanoseconds after since; misses
	// counts in how many readings of the own rows it was not there.
	heard  atomic.Int64
	misses atomic.Int32
	// mine: the claim is known to be committed.
	mine atomic.Bool

	// inc, slots, bytes, reserved and settles are protected by the bridge's mu.
	// bytes are those of the request; reserved: one of the agent's rate is kept for
	// the next sending, which is due at the earliest then; settles: it is one of
	// those that the bridge counts as settling.
	inc      int64
	slots    slotSet
	bytes    int64
	reserved bool
	settles  bool
	due      time.Time

	mu sync.Mutex // protects what follows; taken after the bridge's mu
	// cancel interrupts the present phase.
	cancel context.CancelCauseFunc
	timer  *time.Timer
	phase  phase
	// limited: the attempt's limits interrupt the phase. stopped is since when
	// they stand still, zero if they run.
	limited bool
	stopped time.Time
	// asked: a cancel was requested; told: it was acted upon. gone: the
	// attempt has ended without this bridge. leaving: bytes of the present call may
	// have left.
	asked, told, gone, leaving bool
	// adapter speaks the agent's protocol; only the call's goroutine sets it.
	adapter Adapter
	state   string
	reports *reporter // nil until there is something to report
	// poke makes a call that follows look at once; nil before.
	poke chan struct{}
	// replies is an answer that waits to be sent, for question replyTo.
	replies *parley.Reply
	replyTo int
	// answeredAt is when the agent took an answer, answeredState where it stood
	// before, and answeredTo what it had asked.
	answeredAt    time.Time
	answeredState string
	answeredTo    *parley.Question
}

type phase uint8

// The phases in which a call can be interrupted.
const (
	phaseBusy phase = iota // it is not
	phaseSending
	phaseWaiting
	phaseFollowing
)

// step is one step of a call; it gives the next one, or nil at the end.
type step func(*call) step

// What interrupts a call, besides [errDrained] and [limitError].
var (
	errCancelled = errors.New("a cancel was requested")
	errGone      = errors.New("the attempt has ended elsewhere")
)

// limitError is a time limit that has passed.
type limitError struct {
	limit string
	after time.Duration
}

func (e limitError) Error() string { return e.limit + " of " + e.after.String() + " is over" }

// Is makes adapters see a deadline.
func (e limitError) Is(target error) bool { return target == context.DeadlineExceeded }

// run works on the call until its end.
func (c *call) run(first step) {
	defer c.b.cfg.Metrics.inHand(c.row.Agent)()
	c.openSpan()
	for s := first; s != nil; {
		s = s(c)
	}
	b := c.b
	c.hangUp()
	c.stopReports()
	c.tellSpan()
	// Nobody else is to have a foreign task in hand before its result is told.
	tells := c.tell != nil && c.foreign()
	b.mu.Lock()
	if !tells && !c.keep {
		delete(b.calls, c.row.ID)
	}
	if c.follows {
		b.following--
	}
	if c.reserved {
		c.lane.gate.Release()
	}
	c.lane.dropPermitLocked(c.row.Claim.Token) // it may have ended before it was sent
	b.carryLocked(c.lane, -c.bytes)
	c.vacateLocked()
	c.settlesLocked(tells)
	b.mu.Unlock()
	switch {
	case tells:
		c.tellForeign()
	case c.tell != nil:
		b.hint(&c.row, c.tell)
	}
	if c.requeue {
		b.enqueueForeign(queuedForeign{row: c.row, stored: true}, ack{})
		nudge(b.dispatch)
	}
	b.inHand.Done()
}

// leave ends the work without a write: the row stays as it is.
func (c *call) leave() step {
	c.keep = true
	return nil
}

// begin is the first step of an attempt that was claimed just now: nothing was
// ever sent for it.
func (c *call) begin() step {
	c.since = c.b.cfg.Now()
	c.mine.Store(true)
	if c.b.failpoint("claim.before-guard") {
		return c.leave()
	}
	if c.b.isStopping() {
		return (*call).release
	}
	return (*call).send
}

// send calls the agent once, if the guard allows it.
func (c *call) send() step {
	b := c.b
	c.uncalled = true
	if err := c.meet(b.hard); err != nil {
		c.out = Outcome{Disposition: NotSent, Result: parley.Result{Err: err}}
		if c.unread || err.Retryable && c.row.Orphanings > 0 {
			return (*call).unmet
		}
		return (*call).fail
	}
	if err := c.mayCall(); err != nil {
		c.out = Outcome{Disposition: NotSent, Result: parley.Result{Err: err}}
		return (*call).fail
	}
	if next := c.makeRoom(); next != nil {
		return next
	}
	if next := c.admit(); next != nil {
		return next
	}
	defer c.dropPermit(c.row.Claim.Token)
	ctx := c.arm(phaseSending, true)
	// Directly before the first byte (protocol.md §4.3).
	if ctx.Err() == nil && !b.mayBegin(c.row.Claim.Inc, c.began) {
		c.disarm(ctx)
		b.log.LogAttrs(b.hard, slog.LevelWarn, "call not begun: its claim is too old", c.attrs("bridge_guard")...)
		return (*call).refused
	}
	if b.failpoint("guard.before-send") {
		c.disarm(ctx)
		return c.leave()
	}
	if ctx.Err() != nil {
		c.disarm(ctx)
		c.out = Outcome{Disposition: NotSent, Result: parley.Result{Err: parley.Errorf(parley.CodeCancelled, "nothing was sent: %w", c.why)}}
		return (*call).notSent
	}
	if next := c.takeTurn(); next != nil {
		c.disarm(ctx)
		return next
	}
	b.cfg.Metrics.request(c.agent.Protocol, c.agent.Name)
	c.uncalled = false
	may := c.permit()
	guard := &sendGuard{may: may.given}
	out, err := c.shielded("Call", func() (Outcome, error) {
		return c.adapter.Call(withSendGuard(ctx, guard), c.task(), c.agent, c.progress)
	})
	c.disarm(ctx)
	c.status = int(guard.status.Load())
	if err == nil && out.Disposition == NotSent && may.wasRefused() {
		return (*call).refused
	}
	if err != nil {
		c.out = Outcome{Disposition: NotSent, Result: parley.Result{Err: c.untranslatable(err)}}
		return (*call).fail
	}
	c.noteHealth(&out)
	c.noteLoad(&out)
	c.out = out
	return c.judge()
}

// untranslatable is the error of a call that could not even be put into words.
func (c *call) untranslatable(err error) *parley.Error {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e
	}
	return parley.Errorf(parley.CodeInvalidInput, "the task cannot be sent to agent %q: %w", c.row.Agent, err)
}

// judge decides by what a call has left behind.
func (c *call) judge() step {
	c.out.Result.TaskID = c.row.ID
	switch c.out.Disposition {
	case Answered:
		return (*call).answer
	case Accepted:
		return (*call).accept
	case NotSent:
		return (*call).notSent
	case Lost:
		if _, ok := c.adapter.(Follower); ok && c.out.AgentTaskID != "" {
			return (*call).accept // the agent can be asked, whatever the policy
		}
		return (*call).lost
	}
	c.out.Result.Err = parley.Errorf(parley.CodeInternal, "the adapter of %s did not say what came of the call", c.agent.Protocol)
	return (*call).lost
}

// arm makes the context of the next phase and lets it be interrupted; limits
// says whether the attempt's time limits do so.
func (c *call) arm(p phase, limits bool) context.Context {
	ctx, cancel := context.WithCancelCause(c.b.calling)
	c.mu.Lock()
	c.cancel, c.phase, c.leaving = cancel, p, false
	switch why := c.unwantedLocked(); {
	case why != nil:
		cancel(why)
	case limits:
		c.limited = true
		c.rearmLocked()
	}
	c.mu.Unlock()
	if p != phaseSending && c.b.isStopping() {
		c.rest()
	}
	return ctx
}

// disarm ends the phase that arm began, and notes what interrupted it.
func (c *call) disarm(ctx context.Context) {
	c.mu.Lock()
	c.why = nil
	if ctx.Err() != nil {
		c.why = context.Cause(ctx)
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.phase, c.limited = phaseBusy, false
	c.cancel(context.Canceled)
	c.mu.Unlock()
}

// rearmLocked sets the timer to the first of the limits that interrupt the
// present phase.
func (c *call) rearmLocked() {
	if !c.limited {
		return
	}
	d, limit := c.remaining()
	switch {
	case limit.limit == "":
		if c.timer != nil {
			c.timer.Stop()
		}
	case d <= 0:
		c.cancel(limit)
	case c.timer == nil:
		c.timer = time.AfterFunc(d, c.tick)
	default:
		c.timer.Reset(d)
	}
}

// remaining gives the time until the first of the attempt's limits, which has
// no name if there is none.
func (c *call) remaining() (d time.Duration, limit limitError) {
	passed := c.b.cfg.Now().Sub(c.since)
	look := func(left time.Duration, l limitError) {
		if limit.limit == "" || left < d {
			d, limit = left, l
		}
	}
	if t := c.row.Policy.AttemptTimeout; t > 0 && c.stopped.IsZero() {
		look(t-passed, limitError{"attempt_timeout", t})
	}
	if t := c.row.Policy.Silence; t > 0 && c.stopped.IsZero() {
		look(t-passed+time.Duration(c.heard.Load()), limitError{"silence", t})
	}
	if !c.row.Deadline.IsZero() {
		left := c.row.Deadline.Sub(c.b.cfg.Clock())
		look(left+deadlineSlack, limitError{"timeout", left + passed})
	}
	return d, limit
}

// tick is called when a limit may have passed.
func (c *call) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rearmLocked()
}

// progress takes signs of life from the adapter.
func (c *call) progress(r Report) {
	c.heard.Store(int64(c.b.cfg.Now().Sub(c.since)))
	c.mu.Lock()
	if c.state == "" {
		c.state = r.State
	}
	c.mu.Unlock()
	if !c.foreign() {
		c.reporter().take(r)
	}
}

// reporter gives the call's reporter.
func (c *call) reporter() *reporter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reports == nil {
		c.reports = newReporter(c)
	}
	return c.reports
}

// stopReports passes on what was not reported yet. What comes afterwards is
// dropped.
func (c *call) stopReports() {
	c.mu.Lock()
	p := c.reports
	c.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// requestCancel interrupts the call because somebody wants it to end.
func (c *call) requestCancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked {
		return
	}
	c.asked = true
	c.interruptLocked(errCancelled)
}

// endedElsewhere interrupts the call because its attempt is settled or closed.
func (c *call) endedElsewhere() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.gone = true
		c.interruptLocked(errGone)
	}
}

// unwantedLocked says why nothing may be sent any more, or gives nil.
func (c *call) unwantedLocked() error {
	switch {
	case c.gone:
		return errGone
	case c.asked && !c.told:
		return errCancelled
	}
	return nil
}

// interruptLocked ends the present phase. An agent that can be told to stop, and
// may have the task, gets a moment to name what it has begun.
func (c *call) interruptLocked(why error) {
	if c.phase == phaseBusy {
		return // the next phase sees it
	}
	if _, ok := c.adapter.(Canceler); ok && c.phase == phaseSending && c.leaving {
		cancel := c.cancel
		time.AfterFunc(cancelPatience, func() { cancel(why) })
		return
	}
	c.cancel(why)
}

// rest interrupts a call that only waits, because the bridge stops.
func (c *call) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseWaiting || c.phase == phaseFollowing {
		c.cancel(errDrained)
	}
}

// isAsked reports whether a cancel was requested.
func (c *call) isAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// attrs are what every log line about a call has (BR-7.5).
func (c *call) attrs(event string, more ...slog.Attr) []slog.Attr {
	list := append([]slog.Attr{
		slog.String("event", event), slog.String("task_id", c.row.ID), slog.String("agent", c.row.Agent),
		slog.String("correlation_id", c.row.CorrelationID), slog.String("run", c.row.Run),
	}, more...)
	if id := c.row.Trace.ID(); id != "" {
		list = append(list, slog.String("trace_id", id))
	}
	return list
}
