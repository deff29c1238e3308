package executor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// HandOffs is what an executor asks of the database about attempts that are
// handed to a bridge of the existing platform. *store.DB implements it; the
// methods and their refusals are described there.
type HandOffs interface {
	HandOver(ctx context.Context, token string, now time.Time, limit int) ([]store.Handed, error)
	HandedOver(ctx context.Context, token string) ([]store.Handed, error)
	Overdue(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error)
	ForResult(ctx context.Context, task string) (a store.Attempt, late int, ok bool, err error)
	Move(ctx context.Context, m store.Move) (ok bool, err error)
}

// OldBridge says how attempts go to a bridge of the existing platform
// (`executor.bridge: old`, protocol.md §4.12). It has no dedup, so each is
// published once, after its claim is durable; an attempt whose agent has policy
// resend is published again when its time is over, at most twice. The bus should
// be a [bus.Deferred] with [bus.Offsets]: then no result is acknowledged before
// it is stored, and no timer closes an attempt whose result lies on the bus
// unread. All executors of a store have to agree about the kind of bridge.
type OldBridge struct {
	// NewToken gives a text that is never given again.
	NewToken func() string
	// Group reads the results; default "parley-executor".
	Group string
}

const (
	// publications bounds the tasks that one executor publishes at a time, and so
	// those that are in doubt if it dies.
	publications = 128
	// publishFor bounds one publication.
	publishFor = 15 * time.Second
	// doubtFor is how long a write is remembered whose outcome is not known.
	doubtFor = time.Minute
	// maxDoubts bounds how many.
	maxDoubts = 10_000
	// After a publication that failed, one attempt is tried after probeFirst, the
	// next after twice that time, at most probeLast.
	probeFirst, probeLast = time.Second, 15 * time.Second
	// awayFor is how long a task is left alone whose input cannot be fetched.
	awayFor = 5 * time.Second
)

// oldBridge hands attempts over, takes the results and ends what never comes
// back. Nil stands for bridges of ours.
type oldBridge struct {
	x        *Executor
	newToken func() string
	group    string
	gate     gate
	// slots holds one element per publication that is under way or planned.
	slots chan struct{}

	mu sync.Mutex // protects what follows
	// running: publications may begin in the background.
	running bool
	// pause is not 0 if the last publication failed. Nothing is handed over at
	// birth then; from probeAt on one attempt tries whether the bus is back.
	pause   time.Duration
	probeAt time.Time
	// probing: one does. spare: no open attempt wants to, so an overdue one may.
	probing, spare bool
	publishing     sync.WaitGroup
	// doubts are the claims of decisions whose write is in doubt, by task.
	doubts map[string]doubt
}

type doubt struct {
	token string
	since time.Time
}

func newOldBridge(x *Executor, cfg OldBridge) *oldBridge {
	o := &oldBridge{
		x: x, newToken: cfg.NewToken, group: cfg.Group,
		slots: make(chan struct{}, publications), doubts: make(map[string]doubt),
	}
	if o.group == "" {
		o.group = executorGroup
	}
	o.gate = gate{group: o.group, now: x.cfg.Clock, logger: x.cfg.Logger, opened: o.gateOpened, kick: make(chan struct{}, 1)}
	o.gate.offsets, _ = x.cfg.Bus.(bus.Offsets)
	return o
}

// handsOver has open attempts handed to an old bridge. A guest, which takes no
// results in, leaves that to executors.
func (x *Executor) handsOver(cfg OldBridge) {
	x.old = newOldBridge(x, cfg)
	x.cfg.Reserve = nil
	if x.publisher == nil {
		x.publisher = NewPublisher(PublisherConfig{Bus: x.cfg.Bus, Now: x.cfg.Clock, Every: x.cfg.SweepEvery, Logger: x.cfg.Logger})
		x.cfg.Publish = x.publisher.Soon
	}
	x.publisher.announce = x.old.handOver
	if x.cfg.Guest {
		x.publisher = nil
		x.cfg.Publish = func() {} // whoever holds the run finds its open attempts
	}
}

// gateOpened goes on with what has waited for results to be read.
func (o *oldBridge) gateOpened(ctx context.Context, runs map[string]struct{}) {
	if err := o.x.endOverdue(ctx); err != nil && ctx.Err() == nil {
		o.x.cfg.Logger.Error("overdue tasks not ended; the next sweep tries again", "error", err)
	}
	for run := range runs {
		o.x.wake(wakeup{run: run})
	}
}

// begin takes results in before anything can be published.
func (o *oldBridge) begin(ctx context.Context) (stop func(), err error) {
	leave, err := o.x.takeIn(ctx, &intake{
		subject: bus.SubjectResults, group: o.group, workers: resultWorkers, handle: o.takeResult,
	})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.running = true
	o.mu.Unlock()
	return func() {
		o.mu.Lock()
		o.running = false
		o.mu.Unlock()
		o.publishing.Wait()
		leave()
	}, nil
}

// reserve gives the claim of an attempt that is handed over at its birth; ok is
// false if it has to wait for handOver.
func (o *oldBridge) reserve() (r Reservation, ok bool) {
	o.mu.Lock()
	ok = o.running && o.pause == 0
	o.mu.Unlock()
	if !ok {
		return r, false
	}
	return o.take()
}

// reserveAgain gives the claim of an attempt whose result has not come; ok is false
// if it has to wait for the next sweep.
func (o *oldBridge) reserveAgain() (r Reservation, ok bool) {
	o.mu.Lock()
	ok = o.running && (o.pause == 0 || o.spare)
	o.probing, o.spare = o.probing || o.spare, false
	o.mu.Unlock()
	if !ok {
		return r, false
	}
	return o.take()
}

// take gives a claim if there is a free place.
func (o *oldBridge) take() (r Reservation, ok bool) {
	select {
	case o.slots <- struct{}{}:
	default:
		return r, false
	}
	return Reservation{Claim: store.BusClaim(o.newToken()), Start: o.start, Release: func() { <-o.slots }}, true
}

// start publishes an attempt whose claim is durable; the caller has a slot.
func (o *oldBridge) start(a store.Attempt) {
	o.mu.Lock()
	background := o.running
	if background {
		o.publishing.Add(1)
	}
	o.mu.Unlock()
	publish := func() {
		o.publish(a)
		<-o.slots
	}
	if !background { // the last ones of an executor that ends
		publish()
		return
	}
	go func() {
		defer o.publishing.Done()
		publish()
	}()
}

// publish puts an attempt on the bus, once. It belongs to nobody's request: a
// claim that is durable is worth the time.
func (o *oldBridge) publish(a store.Attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), publishFor)
	defer cancel()
	m, err := oldTaskRecord(a, o.x.now())
	if err == nil {
		err = o.x.cfg.Bus.Publish(ctx, m)
	}
	refused := err != nil && slices.Contains([]parley.Code{parley.CodeLimit, parley.CodeInvalid}, parley.CodeOf(err))
	if !refused {
		o.went(err)
	}
	switch {
	case err == nil:
		o.x.cfg.Metrics.handOff(fatePublished)
	case refused:
		o.x.cfg.Metrics.handOff(fateRefused)
		o.refuse(ctx, &a, err)
	case parley.CodeOf(err) == parley.CodeUnauthorized && o.takeBack(ctx, &a, o.x.now()):
		o.x.cfg.Metrics.handOff(fateReturned)
		o.x.cfg.Logger.Warn("a task was not published; it is when that is allowed", "task_id", a.ID, "agent", a.Agent, "error", err)
	default:
		o.x.cfg.Metrics.handOff(fateDoubtful)
		o.x.cfg.Logger.Warn("a task may not have been published; it is not published again before its time is over",
			"task_id", a.ID, "agent", a.Agent, "error", err)
	}
}

// takeBack opens an attempt again of which nothing was sent, to be handed over from that
// time on. It reports whether it did: not if something was sent earlier.
func (o *oldBridge) takeBack(ctx context.Context, a *store.Attempt, at time.Time) bool {
	ok, err := o.x.cfg.HandOffs.Move(ctx, store.Move{Kind: store.MoveRelease, TaskID: a.ID, From: a.Claim, At: at})
	if err != nil {
		o.x.cfg.Logger.Error("that a task was not handed over was not recorded", "task_id", a.ID, "error", err)
	}
	return ok && err == nil
}

// giveBack takes an attempt back whose input cannot be fetched now, also if nobody waits for
// that any more: a process that ends fetches nothing.
func (o *oldBridge) giveBack(ctx context.Context, a *store.Attempt) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishFor)
	defer cancel()
	if o.takeBack(ctx, a, o.x.now().Add(awayFor)) {
		o.x.cfg.Metrics.handOff(fateReturned)
	}
}

// went notes whether the bus is there.
func (o *oldBridge) went(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		if o.pause > 0 {
			o.x.cfg.Publish()
		}
		o.pause = 0
		return
	}
	now := o.x.cfg.Now()
	if o.pause == 0 || o.probing {
		o.pause, o.probing = min(max(2*o.pause, probeFirst), probeLast), false
		o.probeAt = now.Add(o.pause)
	}
}

// tries notes what became of a look for an attempt that tries whether the bus is back.
func (o *oldBridge) tries(found int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probing = o.pause > 0 && found > 0
	o.spare = o.pause > 0 && found == 0 && err == nil
}

// refuse ends an attempt whose record the bus does not take: nothing was sent.
func (o *oldBridge) refuse(ctx context.Context, a *store.Attempt, reason error) {
	e := parley.Errorf(parley.CodeOf(reason), "The task cannot be handed to the bridge of the existing platform: %s", messageOf(reason))
	e.Agent = a.Agent
	ok, err := o.x.cfg.HandOffs.Move(ctx, store.Move{
		Kind: store.MoveFail, TaskID: a.ID, From: a.Claim, At: o.x.now(),
		Result: &parley.Result{TaskID: a.ID, Outcome: parley.OutcomeError, Err: e},
	})
	if err != nil || !ok {
		o.x.cfg.Logger.Error("that a task cannot be handed over was not recorded; it ends when its time is over", "task_id", a.ID, "error", err)
		return
	}
	o.x.wake(wakeup{run: a.Run})
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// oldTaskRecord is an attempt as an old bridge reads it. One whose input is no
// object would never be answered: it becomes the text of one.
func oldTaskRecord(a store.Attempt, now time.Time) (bus.Message, error) {
	input := a.Input
	var v any
	if err := json.Unmarshal(input, &v); err != nil {
		return bus.Message{}, parley.Errorf(parley.CodeInvalid, "the input is no JSON: %w", err)
	}
	switch v.(type) {
	case map[string]any:
	case string:
		input = slices.Concat([]byte(`{"text":`), input, []byte(`}`))
	case nil:
		input = nil
	default:
		input = slices.Concat([]byte(`{"input":`), input, []byte(`}`))
	}
	value, err := records.AgentTask{
		RunID: a.Run, TaskID: a.ID, AgentName: a.Agent, Input: input, CorrelationID: a.CorrelationID, At: now,
	}.Encode()
	return bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: value}, err
}

// handOver is transition P21: open attempts that are visible are claimed, as
// many as can be published at once, and published.
func (o *oldBridge) handOver(ctx context.Context) error {
	for ctx.Err() == nil {
		slots := o.takeSlots(o.room(ctx))
		if slots == 0 {
			return nil
		}
		list, err := o.claim(ctx, slots)
		o.tries(len(list), err)
		started := 0
		for _, h := range list {
			switch {
			case h.Doubtful:
				o.x.cfg.Metrics.handOff(fateDoubtful)
				o.x.cfg.Logger.Warn("a task was published for another kind of bridge before; it is not published again",
					"task_id", h.ID, "agent", h.Agent)
			case h.Away:
				o.giveBack(ctx, &h.Attempt)
			default:
				o.start(h.Attempt)
				started++
			}
		}
		for range slots - started {
			<-o.slots
		}
		if err != nil || len(list) < slots || slots == 1 {
			return err
		}
	}
	return nil
}

// room is how many attempts may be claimed in a batch. After a publication that
// failed that is none, and, when a pause is over and the bus answers a question
// that costs nothing, one.
func (o *oldBridge) room(ctx context.Context) int {
	o.mu.Lock()
	now := o.x.cfg.Now()
	paused, early := o.pause > 0, now.Before(o.probeAt)
	if paused && !early {
		o.probeAt = now.Add(o.pause)
	}
	o.mu.Unlock()
	switch {
	case !paused:
		return publications / 4
	case early:
		return 0
	case o.gate.offsets != nil:
		ctx, cancel := context.WithTimeout(ctx, gateAsk)
		defer cancel()
		if _, err := o.gate.offsets.EndOffsets(ctx, bus.SubjectTasks); err != nil {
			o.x.cfg.Logger.Warn("tasks wait: the bus does not answer", "error", err)
			o.mu.Lock()
			o.spare = false
			o.mu.Unlock()
			return 0
		}
	}
	return 1
}

// takeSlots reserves what is free now, no more than most.
func (o *oldBridge) takeSlots(most int) (n int) {
	for ; n < most; n++ {
		select {
		case o.slots <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

// claim writes the claims. If their outcome is unknown they are read again;
// what is not found is never published on doubt.
func (o *oldBridge) claim(ctx context.Context, limit int) ([]store.Handed, error) {
	token := o.newToken()
	list, err := o.x.cfg.HandOffs.HandOver(ctx, token, o.x.now(), limit)
	if err == nil {
		return list, nil
	}
	list, again := o.x.cfg.HandOffs.HandedOver(ctx, token)
	return list, errors.Join(err, again)
}

// inDoubt remembers the claims of a decision whose write may have happened.
func (o *oldBridge) inDoubt(rows []store.Attempt, err error) {
	if o == nil || errors.Is(err, store.ErrStale) || final(err) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range rows {
		if rows[i].HandOff == store.HandOffBus && len(o.doubts) < maxDoubts {
			o.doubts[rows[i].ID] = doubt{token: rows[i].Claim.Token, since: o.x.cfg.Now()}
		}
	}
}

// resolve has an attempt that was read from the store handed over if nobody has
// done so yet, and publishes one whose claim was in doubt: it is durable.
func (o *oldBridge) resolve(a *store.Attempt) {
	if o == nil {
		return
	}
	if a.State == store.AttemptOpen && !a.Held && !a.VisibleAt.After(o.x.cfg.Clock()) {
		o.x.cfg.Publish()
		return
	}
	o.mu.Lock()
	d, ok := o.doubts[a.ID]
	delete(o.doubts, a.ID)
	o.mu.Unlock()
	if !ok || a.State != store.AttemptClaimed || a.Claim.Token != d.token {
		return
	}
	select {
	case o.slots <- struct{}{}:
		o.start(*a)
	default: // no place now: the next sweep looks again
		o.mu.Lock()
		o.doubts[a.ID] = d
		o.mu.Unlock()
	}
}

// lookAgain wakes the runs with a write in doubt.
func (o *oldBridge) lookAgain() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for task, d := range o.doubts {
		if o.x.cfg.Now().Sub(d.since) > doubtFor {
			delete(o.doubts, task)
			continue
		}
		o.x.wake(wakeup{run: runOf(task)})
	}
}
