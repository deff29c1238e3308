package dryrun

import (
	"container/heap"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Limits bound one dry run.
type Limits struct {
	// Facts bounds what may happen in it, Bytes the data of its events.
	Facts int
	Bytes int64
	// Run are those of the core.
	Run workflow.RunLimits
}

// DefaultLimits are 100,000 facts, 256 MiB of events, and what a server's runs
// are bounded by.
func DefaultLimits() Limits {
	return Limits{Facts: 100_000, Bytes: 256 << 20, Run: workflow.DefaultRunLimits()}
}

// Config is what a dry run is made of.
type Config struct {
	Definition *workflow.Definition
	Test       Test
	// Run is the id of the run, without dots.
	Run    string
	Limits Limits
	// Event hears of every event as it happens; nil is nobody.
	Event func(parley.Event)
}

// Call is one call of an agent.
type Call struct {
	Agent   string          `json:"agent"`
	Step    string          `json:"step"`
	Attempt int             `json:"attempt"`
	Input   json.RawMessage `json:"input"`
	// At is how long after the run's start it was made.
	At time.Duration `json:"-"`
}

// Result is what came of a dry run.
type Result struct {
	Run    parley.Run
	Events []parley.Event
	Calls  []Call
	// Started are the runs that steps have started; their Agent is the workflow.
	Started []Call
	// Emitted are the events that the run has published.
	Emitted []parley.Signal
	// Failures are the expectations that do not hold, one line each.
	Failures []string
	// Refused is set if the start was refused, as was expected: there is no run.
	Refused *parley.Error
}

// Run plays one test. The error has code invalid_input if the workflow does not
// take the input and that is not expected, unknown_agent if the script does not say what a called agent
// answers, expression or invalid for a fault in the script, limit if the run takes too much;
// after ctx has ended it is the cause of that.
func Run(ctx context.Context, c Config) (*Result, error) {
	input, err := c.Definition.CheckInput(c.Test.Input, c.Limits.Run.Value)
	if err != nil {
		return c.Test.Expect.refusal(err)
	}
	if err := strangers(c.Definition, c.Test); err != nil {
		return nil, err
	}
	if _, err := c.Definition.TurnOf(input); err != nil {
		return c.Test.Expect.refusal(err)
	}
	w := &world{
		cfg: c, now: c.Test.At, state: workflow.NewState(c.Run, c.Definition, c.Limits.Run),
		random: rand.NewPCG(c.Test.Seed, c.Test.Seed), calls: map[string]*call{}, called: map[string]int{}, taken: map[*answer]int{},
		asked: map[string]int{}, children: map[string]*child{}, family: map[string]*child{},
	}
	labels := maps.Clone(c.Definition.Labels)
	if labels == nil {
		labels = c.Test.Labels
	} else {
		maps.Copy(labels, c.Test.Labels)
	}
	if x := c.Test.cancel; x != nil {
		w.in(x.at, func() workflow.Fact { return workflow.Cancel{At: w.now, By: x.by, Reason: x.reason, Grace: x.grace} })
	}
	w.announce()
	w.apply(workflow.Start{At: w.now, Input: input, Labels: labels, Trigger: "dry-run", Jitter: w.jitter()})
	if err := w.play(ctx); err != nil {
		return nil, err
	}
	r := &Result{Run: w.state.View(), Events: w.events, Calls: w.made, Started: w.started, Emitted: w.emitted}
	r.Run.UpdatedAt = w.now
	r.Failures = c.Test.Expect.failures(r)
	return r, nil
}

// world is everything around the core in one dry run. One goroutine has it.
type world struct {
	cfg    Config
	state  *workflow.State
	now    time.Time
	random *rand.PCG
	queue  things
	// queued counts what was ever in the queue, facts what was applied.
	queued, facts int
	bytes         int64
	events        []parley.Event
	made          []Call
	// calls are those under way, by task; called counts them by agent, taken by
	// case.
	calls  map[string]*call
	called map[string]int
	taken  map[*answer]int
	// kept are the events of the last 24 h, oldest first; listening: the run is about
	// to be offered them. emitted are those that the run has published.
	kept      []parley.Signal
	listening bool
	emitted   []parley.Signal
	// asked counts how often an approval was opened, by path.
	asked map[string]int
	// children are the runs that steps wait for, by task; family those that they
	// have asked for last, by path.
	children, family map[string]*child
	started          []Call
	// broken is what the script lacks.
	broken error
}

// play goes from one thing that is due to the next, up to the end of the run.
// Of what is due at the same instant, agents and people come first, in the order
// in which they were set going, then the timers of the run.
func (w *world) play(ctx context.Context) error {
	for !w.state.Status().Terminal() {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case w.broken != nil:
			return w.broken
		case w.facts > w.cfg.Limits.Facts:
			return parley.Errorf(parley.CodeLimit, "the dry run takes more than %d facts: does the workflow come to an end?", w.cfg.Limits.Facts)
		case w.bytes > w.cfg.Limits.Bytes:
			return parley.Errorf(parley.CodeLimit, "the events of the dry run have more than %d bytes", w.cfg.Limits.Bytes)
		}
		if err := w.next(); err != nil {
			return err
		}
	}
	return w.broken
}

// next does what is due first.
func (w *world) next() error {
	due := w.state.Due()
	if len(w.queue) > 0 && (due.IsZero() || !w.queue[0].at.After(due)) {
		first := heap.Pop(&w.queue).(thing)
		w.pass(first.at)
		if f := first.do(); f != nil {
			w.apply(f)
		}
		return nil
	}
	if due.IsZero() {
		return parley.Errorf(parley.CodeInternal, "nothing is due, and the run has not ended")
	}
	w.pass(due)
	if n := w.apply(workflow.Tick{At: w.now, Jitter: w.jitter(), Calls: w.begun()}); n == 0 && !w.state.Due().After(w.now) {
		return parley.Errorf(parley.CodeInternal, "the timer of %s changes nothing", due.Format(time.RFC3339Nano))
	}
	return nil
}

// pass lets time go by.
func (w *world) pass(until time.Time) {
	if until.After(w.now) {
		w.now = until
	}
}

// apply hands a fact to the core and does what it decides. It gives the number of
// events.
func (w *world) apply(f workflow.Fact) int {
	w.facts++
	d := w.state.Apply(f)
	for _, e := range d.Events {
		w.bytes += int64(len(e.Data))
		w.events = append(w.events, e)
		if w.cfg.Event != nil {
			w.cfg.Event(e)
		}
	}
	for _, c := range d.Close {
		delete(w.calls, c.TaskID)
	}
	for _, s := range d.Schedule {
		w.schedule(s)
	}
	for _, task := range d.RequestCancel {
		w.stop(task)
	}
	for _, e := range d.Emit {
		w.emitted = append(w.emitted, e)
		w.keep(e)
	}
	if len(d.Subscribe) > 0 {
		w.listen()
	}
	w.asks(d)
	w.adopt(d)
	return len(d.Events)
}

// jitter draws from [0, 1).
func (w *world) jitter() float64 { return float64(w.random.Uint64()>>11) / (1 << 53) }

// in sets something going that happens after a while. What it gives is applied,
// unless it is nil.
func (w *world) in(d time.Duration, do func() workflow.Fact) { w.at(w.now.Add(d), do) }

func (w *world) at(t time.Time, do func() workflow.Fact) {
	w.queued++
	heap.Push(&w.queue, thing{at: t, n: w.queued, do: do})
}

// thing is something that will happen.
type thing struct {
	at time.Time
	n  int
	do func() workflow.Fact
}

// things are ordered by time, then by when they were set going.
type things []thing

func (q *things) Len() int { return len(*q) }
func (q *things) Less(i, j int) bool {
	if a, b := (*q)[i], (*q)[j]; !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return (*q)[i].n < (*q)[j].n
}
func (q *things) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *things) Push(v any)    { *q = append(*q, v.(thing)) }
func (q *things) Pop() any {
	old := *q
	v := old[len(old)-1]
	old[len(old)-1] = thing{}
	*q = old[:len(old)-1]
	return v
}

// scope is what expressions of the script see of a call.
func (w *world) scope(c *call, reply json.RawMessage) *expr.Scope {
	about, err := json.Marshal(map[string]any{
		"agent": c.task.Agent, "step": c.task.Step, "attempt": c.task.Attempt, "number": c.number, "context": c.task.ContextID,
	})
	if err != nil {
		about = []byte("{}") // texts and numbers always have a JSON form
	}
	return &expr.Scope{Now: w.now, Values: map[string]json.RawMessage{"input": c.task.Input, "call": about, "reply": reply}}
}
