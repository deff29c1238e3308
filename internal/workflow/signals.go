package workflow

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Signalled says that an event has come that a run may wait for (rule C8). It
// may be told as often as one likes: a run takes it once at most.
type Signalled struct {
	At     time.Time
	Signal parley.Signal
	// Jitter as in Settled: what the step's output or schema refuses may be
	// retried.
	Jitter float64
}

func (Signalled) fact() {}

// Subscription is a step that waits for an event.
type Subscription struct {
	// Step is the path of its execution.
	Step string
	parley.AwaitedSignal
}

// signalReceived is the event that a step has taken, with its data.
type signalReceived struct{ parley.Signal }

// SignalJSON gives an event as matches, outputs and histories see it, its data
// byte for byte.
func SignalJSON(s parley.Signal) json.RawMessage {
	o := object{buf: append(make([]byte, 0, 128+len(s.Data)), '{')}
	o.str("id", s.ID)
	o.str("name", s.Name)
	o.str("key", s.Key)
	o.raw("data", s.Data)
	o.time("time", &s.Time)
	return o.end()
}

// beginAwait begins to wait for an event. What it waits for is evaluated once,
// also if it waits again (rule S2).
func (a *decider) beginAwait(x *execution) {
	what := x.awaits
	if what == nil {
		var err error
		if what, err = a.awaitedBy(x); err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return
		}
	}
	a.recordAt(parley.EventStepScheduled, x.path, x.attempts+1, stepScheduled{Kind: KindAwait, Deadline: a.deadlineOf(x)})
	a.record(parley.EventStepWaiting, x, stepWaiting{Event: what})
}

// awaitedBy evaluates what a step waits for.
func (a *decider) awaitedBy(x *execution) (*parley.AwaitedSignal, error) {
	scope := a.scope(x)
	name, err := textOf("event", x.step.Await.Event, scope)
	if err != nil {
		return nil, err
	}
	key, err := textOf("key", x.step.Await.Key, scope)
	if err != nil {
		return nil, err
	}
	if err := (&parley.Signal{Name: name, Key: key}).Validate(); err != nil {
		return nil, invalidInput(err)
	}
	w := &parley.AwaitedSignal{Name: name, Key: key, Since: a.createdAt, Fresh: x.step.Await.Fresh}
	if w.Fresh {
		w.Since = a.at
	}
	return w, nil
}

// textOf evaluates a member that is a text: numbers and booleans are written as
// such, and an absent member is "".
func textOf(member string, t *expr.Template, scope *expr.Scope) (string, error) {
	if t == nil {
		return "", nil
	}
	v, err := t.Eval(scope)
	if err != nil {
		return "", err
	}
	var text string
	switch {
	case json.Unmarshal(v, &text) == nil && string(v) != "null":
		return text, nil
	case string(v) == "null" || v[0] == '{' || v[0] == '[':
		return "", parley.Errorf(parley.CodeInvalidInput, "%s: %s is no text", member, capText(v))
	}
	return string(v), nil
}

// invalidInput gives an error of a request as that of a step.
func invalidInput(err error) error {
	e := asError(err)
	if e.Code == parley.CodeInvalid {
		return parley.Errorf(parley.CodeInvalidInput, "%s", e.Message)
	}
	return e
}

// signalled gives an event to the first step, in list order, that it matches.
func (a *decider) signalled(f Signalled) {
	if a.seq == 0 || a.status.Terminal() || a.cancelling || a.Took(f.Signal) {
		return
	}
	for _, x := range a.listeners() {
		if !x.hears(f.Signal) || !a.matches(x, f.Signal) {
			continue
		}
		value := SignalJSON(f.Signal)
		if err := a.fits("event", value); err != nil {
			a.fail(x, asError(err), attemptEnd{started: x.scheduledAt})
		} else {
			a.record(parley.EventSignalReceived, x, signalReceived{f.Signal})
			a.d.Taken = append(a.d.Taken, f.Signal.ID)
			a.complete(x, value, completion{attemptEnd: attemptEnd{started: x.scheduledAt}})
		}
		a.advance()
		return
	}
}

// hears reports whether an event is of the name and key that a step waits for,
// and not older than it may be.
func (e *execution) hears(s parley.Signal) bool {
	w := e.awaits
	return w.Name == s.Name && w.Key == s.Key && (s.Time.After(w.Since) || !w.Fresh && s.Time.Equal(w.Since))
}

// matches evaluates `match`. An error counts as no match; the first of a step is
// said in the history.
func (a *decider) matches(x *execution, signal parley.Signal) bool {
	if x.step.Await.Match == nil {
		return true
	}
	scope := a.scope(x)
	scope.Event = SignalJSON(signal)
	ok, err := x.step.Await.Match.Eval(scope)
	if err != nil && !x.deaf {
		fault := asError(err)
		a.recordAt(parley.EventRunWarning, x.path, 0, runWarning{
			Message: "An event does not match: " + fault.Message, Code: fault.Code, Event: signal.ID,
		})
	}
	return ok && err == nil
}

// warned takes notice of a warning about an event.
func (s *State) warned(path string, w runWarning) {
	if x := s.execs[path]; x != nil && w.Event != "" {
		x.deaf = true
	}
}

// listeners gives the executions that wait for events in the order of the
// document, and of the iterations.
func (s *State) listeners() []*execution {
	list := make([]*execution, len(s.listens))
	for i, path := range s.listens {
		list[i] = s.execs[path]
	}
	slices.SortStableFunc(list, func(x, y *execution) int { return documentOrder(x.step, y.step) })
	return list
}

// documentOrder compares two steps by their places in the document.
func documentOrder(x, y *Step) int {
	above := func(s *Step) []*Step {
		var line []*Step
		for ; s != nil; s = s.Block.Parent {
			line = append(line, s)
		}
		slices.Reverse(line)
		return line
	}
	p, q := above(x), above(y)
	for i := range min(len(p), len(q)) {
		if p[i] == q[i] {
			continue
		}
		if i > 0 && p[i].Block != q[i].Block {
			blocks := p[i-1].AllBlocks()
			return cmp.Compare(slices.Index(blocks, p[i].Block), slices.Index(blocks, q[i].Block))
		}
		return cmp.Compare(p[i].Index, q[i].Index)
	}
	return cmp.Compare(len(p), len(q))
}

// listen notes that an execution waits for an event, unlisten that it does so no
// more.
func (s *State) listen(x *execution, w *parley.AwaitedSignal) {
	x.awaits = w
	if s.listensAt(x.path) {
		return
	}
	s.listens = append(s.listens, x.path)
}

func (s *State) unlisten(x *execution) {
	if x.awaits == nil {
		return
	}
	s.listens = slices.DeleteFunc(slices.Clone(s.listens), func(path string) bool { return path == x.path })
	if len(s.listens) == 0 {
		s.listens = nil
	}
}

// quiet ends whatever an execution waits for: an event, an approval.
func (s *State) quiet(x *execution) {
	s.unlisten(x)
	s.unask(x)
	s.unchild(x)
}

// listening gives the paths of the executions that wait for events. The list
// does not change any more.
func (s *State) listening() []string { return slices.Clip(s.listens) }

func (s *State) listensAt(path string) bool { return slices.Contains(s.listens, path) }

func (s *State) evolveSignal(x *execution, p signalReceived) {
	if s.taken == nil {
		s.taken = make(map[string]time.Time, 1)
	}
	s.taken[p.ID] = p.Time
	s.bytes += int64(len(p.Data))
	s.unlisten(x)
}

// Awaited gives the steps that wait for events.
func (s *State) Awaited() []Subscription {
	if s.cancelling || s.status.Terminal() {
		return nil
	}
	list := make([]Subscription, len(s.listens))
	for i, path := range s.listens {
		list[i] = Subscription{Step: path, AwaitedSignal: *s.execs[path].awaits}
	}
	return list
}

// idKept is how long the id of an event stays its own (rule C8).
const idKept = 24 * time.Hour

// Took reports whether the run has taken an event. One that was published later than its
// id was remembered is another one.
func (s *State) Took(e parley.Signal) bool {
	at, ok := s.taken[e.ID]
	return ok && !e.Time.After(at.Add(idKept))
}

// subscribe says who has begun and who has ceased to wait for events.
func (a *decider) subscribe(before, after []string) {
	if len(before)+len(after) == 0 {
		return
	}
	for _, path := range before {
		if !slices.Contains(after, path) {
			a.d.Unsubscribe = append(a.d.Unsubscribe, path)
		}
	}
	for _, path := range after {
		if !slices.Contains(before, path) {
			a.d.Subscribe = append(a.d.Subscribe, Subscription{Step: path, AwaitedSignal: *a.execs[path].awaits})
		}
	}
}

// beginEmit publishes an event with the event in which the step ends. Its id is
// that of the execution if no other is given, so that it is published once
// whoever decides how often.
func (a *decider) beginEmit(x *execution) {
	signal, err := a.emission(x)
	if err == nil {
		err = a.fits("emit", signal.Data)
	}
	if err == nil && a.full[signal.Name+"\x00"+signal.Key] {
		err = limitError("waiting events", int64(a.limits.WaitingEvents), int64(a.limits.WaitingEvents)+1)
	}
	if err != nil {
		a.fail(x, asError(err), attemptEnd{})
		return
	}
	o := object{buf: []byte{'{'}}
	o.str("event_id", signal.ID)
	if a.complete(x, o.end(), completion{}); x.status == parley.StepCompleted {
		a.d.Emit = append(a.d.Emit, signal)
	}
}

// SignalsFull says that no more events of a name and key are taken now, as whoever
// keeps them has found out: emit steps fail until the state is thrown away. That
// is no part of the state; what follows from it is in the history.
func (s *State) SignalsFull(name, key string) {
	if s.full == nil {
		s.full = make(map[string]bool, 1)
	}
	s.full[name+"\x00"+key] = true
}

// signalID is the id of the event that the execution at a path publishes.
func (s *State) signalID(path string) string {
	if len(path) > maxPathInID {
		sum := sha256.Sum256([]byte(path))
		path = hex.EncodeToString(sum[:])
	}
	return s.run + "." + path
}

// maxPathInID is how long a path may be, in bytes, to stand in an id as it is.
const maxPathInID = 128

// emission evaluates what an emit step publishes.
func (a *decider) emission(x *execution) (signal parley.Signal, err error) {
	spec, scope := x.step.Emit, a.scope(x)
	signal = parley.Signal{ID: a.signalID(x.path), Data: json.RawMessage("null"), Time: a.at, Trace: a.trace}
	if signal.Name, err = textOf("event", spec.Event, scope); err != nil {
		return signal, err
	}
	if signal.Key, err = textOf("key", spec.Key, scope); err != nil {
		return signal, err
	}
	if spec.ID != nil {
		if signal.ID, err = textOf("id", spec.ID, scope); err != nil {
			return signal, err
		}
		if signal.ID == "" {
			return signal, parley.Errorf(parley.CodeInvalidInput, "id: an event's id is not empty")
		}
	}
	if spec.Data != nil {
		if signal.Data, err = spec.Data.Eval(scope); err != nil {
			return signal, err
		}
	}
	if err = signal.Validate(); err != nil {
		return signal, invalidInput(err)
	}
	return signal, nil
}

// Chain counts the runs that have led to this one by events that they have
// published: what it publishes is one further.
func (s *State) Chain() int { return s.chain }
