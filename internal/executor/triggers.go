package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Triggers is what an executor asks of the database about what starts runs by
// itself (language.md §8). *store.DB implements it; the methods are described
// there.
type Triggers interface {
	Triggered(ctx context.Context, t store.Trigger) ([]store.Triggered, error)
	TakeEventStarts(ctx context.Context, now time.Time, limit int) ([]store.EventStart, error)
	EndEventStart(ctx context.Context, e parley.Signal, taken bool) error
}

// What a run was triggered by.
const (
	triggerWebhook = "webhook"
	triggerEvent   = "event"
	triggerKafka   = "kafka"
)

const (
	startBatch   = 64
	startWorkers = 16
	// startPatience is how long an event waits for a store that refuses its runs.
	startPatience = 7 * 24 * time.Hour
	// DefaultEventChain is how many runs may follow from each other by events.
	DefaultEventChain = 32
)

// firing is an event that has met a trigger.
type firing struct {
	v       *compiledVersion
	trigger *workflow.Trigger
	by      string
	event   json.RawMessage
	// key is that of the run (rule C7), what tells one delivery from another under
	// the same key: a run's input may be made differently by a later version.
	key, what string
	chain     int
	trace     parley.Trace
}

// fired is what a firing has led to: nothing, if the trigger's `if` does not hold.
type fired struct {
	run      string
	existing bool
}

// launch starts the run of a firing, or finds the one that it has started before.
// It may be repeated at will. The error is final, or that of the store.
func (x *Executor) launch(ctx context.Context, f firing) (fired, error) {
	holds, err := f.trigger.Holds(f.v.def.Called(), f.event)
	if err != nil || !holds {
		return fired{}, err
	}
	return x.launchWanted(ctx, f)
}

// launchWanted is launch for a firing whose trigger's `if` holds.
func (x *Executor) launchWanted(ctx context.Context, f firing) (fired, error) {
	of := f.v.def.Called()
	b := beginning{key: f.key, digest: digestText(f.what), refused: takesRuns(f.v.row)}
	input, err := f.trigger.InputOf(of, f.event)
	if err == nil {
		input, err = x.input(f.v.def, input)
	}
	if err != nil { // a former version may have made another input of it
		run, existing, err := x.begunBefore(ctx, f.v.row.Workflow, b, err)
		return fired{run: run.ID, existing: existing}, err
	}
	b.fact = workflow.Start{Input: input, Labels: f.v.def.Labels, Trigger: f.by, Chain: f.chain, Trace: f.trace}
	run, existing, err := x.begin(ctx, f.v, b)
	return fired{run: run.ID, existing: existing}, err
}

// reservedKeys begins the idempotency keys that are made here.
const reservedKeys = "parley:"

// firingKey makes the idempotency key of a firing.
func firingKey(by, id string) string {
	key := reservedKeys + by + ":" + id
	if len(key) > maxKey {
		key = reservedKeys + by + ":sha256:" + digestText(id)
	}
	return key
}

// reservedKey refuses the key of a caller that a firing might use: it would take
// the run of somebody else for its own.
func reservedKey(key string) error {
	if strings.HasPrefix(key, reservedKeys) {
		return parley.Errorf(parley.CodeInvalid, "idempotency_key: keys that begin with %s are those of triggers; use another", reservedKeys)
	}
	return nil
}

func digestText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// startSoon asks for events to be looked at that start runs.
func (x *Executor) startSoon() {
	select {
	case x.starting <- struct{}{}:
	default:
	}
}

// serveEventStarts starts the runs of events until ctx ends, or no more runs are
// taken: when it is asked to, and, unless others do, regularly.
func (x *Executor) serveEventStarts(ctx context.Context) {
	var again <-chan time.Time
	if !x.cfg.Guest {
		tick := time.NewTicker(x.cfg.SweepEvery)
		defer tick.Stop()
		again = tick.C
	}
	for x.refusing.Err() == nil {
		if err := x.startByEvents(ctx); err != nil && ctx.Err() == nil {
			x.cfg.Logger.Error("the runs of events were not started; that is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-x.refusing.Done():
			return
		case <-x.starting:
		case <-again:
		}
	}
}

func (x *Executor) startByEvents(ctx context.Context) error {
	for {
		list, err := x.cfg.Triggers.TakeEventStarts(ctx, x.now(), startBatch)
		if err != nil {
			return err
		}
		var g errgroup.Group
		g.SetLimit(startWorkers)
		for i := range list {
			g.Go(func() error { return x.startByEvent(ctx, &list[i]) })
		}
		if err := g.Wait(); err != nil || len(list) < startBatch || x.refusing.Err() != nil {
			return err
		}
	}
}

// startByEvent starts the runs of one event: one for each trigger of its name that
// wants it. It is repeated until all of them are durable.
func (x *Executor) startByEvent(ctx context.Context, e *store.EventStart) error {
	workflows, err := x.cfg.Triggers.Triggered(ctx, store.Trigger{Kind: store.TriggerEvent, Name: e.Name})
	if err != nil {
		return err
	}
	if len(workflows) > 0 && e.Chain >= x.cfg.EventChain {
		x.cfg.Metrics.trigger(triggerEvent, fateTooLong)
		x.cfg.Logger.Warn("an event starts no runs: it has come of too many runs that started each other by events", "event", "event_chain",
			"id", clip(e.ID, 256), "name", clip(e.Name, 256), "runs", e.Chain, "limit", x.cfg.EventChain)
		return x.cfg.Triggers.EndEventStart(ctx, e.Signal, true)
	}
	var first error
	for _, w := range workflows {
		err := x.fireEvent(ctx, w, e)
		switch {
		case err == nil:
		case x.now().Sub(e.Time) < startPatience:
			first = cmp.Or(first, err) // those of the others do not wait for it
		default:
			x.cfg.Logger.Error("an event is given up: its runs could not be started for days", "id", clip(e.ID, 256), "workflow", w.Workflow, "error", err)
		}
	}
	if first != nil {
		return first
	}
	return x.cfg.Triggers.EndEventStart(ctx, e.Signal, len(workflows) > 0)
}

// fireEvent starts the runs of one workflow by an event. What is wrong with the
// event, or with a trigger, is said and not tried again; the first error of another kind
// is given when all triggers were tried.
func (x *Executor) fireEvent(ctx context.Context, w store.Triggered, e *store.EventStart) (first error) {
	v, err := x.defs.resolve(ctx, w.Workflow+"@"+w.Version)
	if err != nil {
		if final(err) {
			x.missed(triggerEvent, w.Workflow, e.ID, err)
			return nil
		}
		return err
	}
	event := workflow.SignalJSON(e.Signal)
	for i, t := range v.def.Triggers {
		if t.Event == nil || t.Event.Name != e.Name {
			continue
		}
		// An id is remembered for a day: afterwards it is another event.
		what := e.Time.Format(time.RFC3339Nano)
		f, err := x.launch(ctx, firing{
			v: v, trigger: t, by: triggerEvent, event: event, key: firingKey(triggerEvent, placeOf(i)+what+"/"+e.ID), what: what, chain: e.Chain, trace: e.Trace,
		})
		switch {
		case err == nil:
			x.noted(triggerEvent, f)
		case final(err):
			x.missed(triggerEvent, w.Workflow, e.ID, err)
		default:
			first = cmp.Or(first, err)
		}
	}
	return first
}

// noted counts what a firing has led to.
func (x *Executor) noted(by string, f fired) {
	switch {
	case f.run == "":
		x.cfg.Metrics.trigger(by, fateIgnored)
	case f.existing:
		x.cfg.Metrics.trigger(by, fateRepeated)
	default:
		x.cfg.Metrics.trigger(by, fateStarted)
	}
}

// missed says that a firing has led to nothing for good.
func (x *Executor) missed(by, ref, id string, err error) {
	x.cfg.Metrics.trigger(by, fateFailed)
	x.cfg.Logger.Warn("a trigger has started no run", "event", "trigger_failed", "trigger", by, "workflow", ref, "id", clip(id, 256),
		"code", parley.CodeOf(err), "error", err)
}
