package workflow

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// evolve changes the state as a recorded event says: the only place where the
// state changes, used alike by Apply and Replay.
func (s *State) evolve(e parley.Event, payload any) error {
	switch p := payload.(type) {
	case runStarted:
		s.evolveStarted(e, p)
	case runQueued:
		s.evolveQueued(e, runStarted(p))
	case runCancelling:
		s.cancelling, s.graceUntil = true, p.GraceUntil
		s.unpaused()
		s.cancelledBy, s.cancelReason = p.By, p.Reason
	case runCompleted:
		s.output = p.Output
		s.endRun(parley.RunCompleted, e.At)
	case runWarning:
		s.warned(e.Step, p)
	case runPhase:
		s.evolvePhase(p)
	case runEnded:
		s.err = p.Error
		status := parley.RunFailed
		if e.Type == parley.EventRunCancelled {
			status = parley.RunCancelled
		}
		if p.Terminated {
			s.cancelledBy, s.cancelReason = p.By, p.Reason
		}
		s.endRun(status, e.At)
	default:
		if s.evolveControl(payload) {
			return nil
		}
		return s.evolveStep(e, payload)
	}
	return nil
}

func (s *State) evolveStarted(e parley.Event, p runStarted) {
	if p.QueuedAt == nil {
		s.evolveAccepted(e, p)
	} else if s.turn != nil {
		s.turn.Wait = false
	}
	s.status, s.startedAt, s.deadline = parley.RunRunning, e.At, p.Deadline
}

// evolveAccepted notes what the run was asked for with.
func (s *State) evolveAccepted(e parley.Event, p runStarted) {
	s.createdAt = e.At
	s.input, s.labels, s.trigger = p.Input, p.Labels, p.Trigger
	if p.Concurrency != nil {
		turn := *p.Concurrency
		turn.Wait, s.turn = false, &turn
	}
	s.retriedFrom, s.priority, s.chain = p.RetriedFrom, p.Priority, p.Chain
	// A history may have come with an archive: what it says is sent to agents as headers.
	s.trace = parley.TraceOf([]string{p.Traceparent}, []string{p.Tracestate})
	if p.ScheduledAt != nil {
		s.scheduledAt = *p.ScheduledAt
	}
	s.bytes += int64(len(p.Input))
	s.evolveEdits(p)
	s.parent, s.resolved = p.Parent, p.Children
	if len(p.Copied) > 0 {
		s.copied = make(map[string]Copied, len(p.Copied))
		for _, c := range p.Copied {
			s.copied[c.Path] = c
		}
	}
}

func (s *State) endRun(status parley.RunStatus, at time.Time) {
	s.status, s.endedAt = status, at
	s.unpaused()
	clear(s.inFlight)
	s.children = nil
	s.listens, s.approvals = nil, nil
}

func (s *State) evolveStep(e parley.Event, payload any) error {
	x := s.execs[e.Step]
	if x == nil {
		step, owner, part, ok := s.locate(e.Step)
		if !ok {
			return fmt.Errorf("no step %q in workflow %s version %s", e.Step, s.def.ID, s.def.Version)
		}
		x = s.enter(s.regionOf(step.Block, owner, part), step)
	}
	x.region.begin(e.At)
	switch p := payload.(type) {
	case stepScheduled:
		s.evolveScheduled(e, x, p)
		return s.takePlan(x, p)
	case timerSet:
		x.wakeAt = p.Until
	case timerFired:
		x.wakeAt = time.Time{}
		if p.Branch != "" {
			x.timedOut(p)
		}
	case stepWaiting:
		s.evolveWaiting(x, p)
	case signalReceived:
		s.evolveSignal(x, p)
	case stepAnswered:
		s.evolveAnswered(x, p)
	case childStarted:
		s.evolveChildStarted(x, p)
	case childEnded:
		s.unchild(x)
	case stepRetrying:
		s.evolveRetrying(e, x, p)
	case attemptFailed:
		s.land(x, p.TaskID)
		x.others = append(x.others, p.Error)
		x.hedgeAt = at(p.HedgeAt)
		x.failed(e.At)
	case stepHandling:
		s.evolveHandling(e, x, p)
	case stepCompensating:
		s.evolveCompensating(x)
	case stepCompensated:
		if x.undo == nil {
			return errors.New("it was not being compensated")
		}
		s.evolveCompensated(x, p)
	default:
		return s.evolveEnd(e, x, payload)
	}
	return nil
}

// evolveEnd ends a step.
func (s *State) evolveEnd(e parley.Event, x *execution, payload any) error {
	switch p := payload.(type) {
	case stepCompleted:
		s.tookOver(x, p.CopiedFrom)
		x.agentTaskID = p.AgentTaskID
		if p.Agent != "" {
			x.agent = p.Agent
		}
		s.bytes += int64(len(p.Output))
		x.output = p.Output
		if p.ContextID != "" && p.Session != "" {
			if s.sessions == nil {
				s.sessions = make(map[string]string, 1)
			}
			s.sessions[p.Session+"\x00"+x.agent] = p.ContextID
		}
		s.endStep(x, parley.StepCompleted, e, p.Started)
		x.err = nil
		x.region.flow(x, "")
	case stepFailed:
		s.tookOver(x, p.CopiedFrom)
		x.err, x.handled, x.agentTaskID = p.Error, p.Handled, p.AgentTaskID
		x.output = p.Output
		s.bytes += int64(len(p.Output))
		x.failed(e.At)
		s.endStep(x, parley.StepFailed, e, p.Started)
		x.wentTo = p.Goto
		x.region.flow(x, p.Goto)
	case stepEnded:
		status := parley.StepSkipped
		if e.Type == parley.EventStepCancelled {
			status = parley.StepCancelled
		}
		s.tookOver(x, p.CopiedFrom)
		if p.AgentTaskID != "" {
			x.agentTaskID = p.AgentTaskID
		}
		s.endStep(x, status, e, p.Started)
		x.region.flow(x, "")
	default:
		return fmt.Errorf("no rule for %T", payload)
	}
	return nil
}

func (s *State) evolveScheduled(e parley.Event, x *execution, p stepScheduled) {
	s.count(x, parley.StepRunning)
	x.retryAt, x.triedAt = time.Time{}, e.At
	if x.scheduledAt.IsZero() {
		x.scheduledAt = e.At
	}
	if x.step.Kind != KindAgent && x.startedAt.IsZero() {
		x.startedAt = e.At // an agent begins when its attempt is claimed
	}
	if p.Agent != "" {
		x.agent, x.hedgeAt = p.Agent, at(p.HedgeAt)
		x.tried++
	}
	if p.Input != nil {
		x.input = p.Input
		s.bytes += int64(len(p.Input))
	}
	if x.step.Loop != nil && p.Input != nil {
		x.takeItems(p)
	}
	if p.Deadline != nil {
		x.deadline = *p.Deadline
	}
	if p.Round > 0 {
		s.enteredCopy(x, p.Round)
		x.entered, x.round, x.parts = true, p.Round, nil
	}
	if p.Case != nil {
		x.chosen = *p.Case
	}
	x.attempts = max(x.attempts+1, e.Attempt)
	if p.TaskID != "" {
		s.launched(x, p.TaskID)
	} else if x.step.Kind == KindAgent && !s.def.Recorded {
		x.uncalled++
	}
	if p.Child != nil {
		s.evolveChildAsked(x, *p.Child)
	}
}

func (s *State) evolveRetrying(e parley.Event, x *execution, p stepRetrying) {
	x.atOnce(e)
	s.landed(x)
	s.quiet(x)
	x.err, x.retryAt, x.hedgeAt = p.Error, p.At, at(p.HedgeAt)
	x.failed(e.At)
	switch {
	case p.Fallback:
		x.granted, x.retryAt = nil, time.Time{}
		x.others = append(x.others, p.Error)
		x.tried++
	default:
		if x.granted == nil {
			x.granted = make(map[int]int, 1)
		}
		x.granted[p.Policy]++
		if p.Agent != "" { // a new round of hedged agents
			x.others, x.tried = nil, 1
		}
	}
	if p.Agent != "" {
		x.agent = p.Agent
	}
	if p.TaskID != "" {
		x.attempts++
		s.launched(x, p.TaskID)
	}
}

// atOnce counts an attempt that has begun and ended in one event, of which nothing else
// tells: that of a step which calls no agent and was done again. Its number says so.
func (e *execution) atOnce(of parley.Event) {
	if e.step.Kind != KindAgent && !e.retryAt.IsZero() && of.Attempt > e.attempts {
		e.attempts = of.Attempt
	}
}

// at is the time that t points to, or zero.
func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// failed notes when an attempt failed.
func (e *execution) failed(at time.Time) {
	if e.failedAt.IsZero() {
		e.failedAt = at
	}
}

// launched notes that the newest attempt is in flight.
func (s *State) launched(x *execution, task string) {
	x.flights = append(x.flights, &flight{task: task, agent: x.agent, attempt: x.attempts})
	s.inFlight[task] = x.path
}

// land forgets one attempt in flight, landed all of them.
func (s *State) land(x *execution, task string) {
	delete(s.inFlight, task)
	x.flights = slices.DeleteFunc(x.flights, func(f *flight) bool { return f.task == task })
	if len(x.flights) == 0 {
		x.flights = nil
	}
}

func (s *State) landed(x *execution) {
	for _, f := range x.flights {
		delete(s.inFlight, f.task)
	}
	x.flights, x.hedgeAt = nil, time.Time{}
}

func (s *State) endStep(x *execution, status parley.StepStatus, e parley.Event, started *time.Time) {
	x.atOnce(e)
	x.early = status == parley.StepCancelled && started == nil && x.waitsToBegin(e.At)
	s.landed(x)
	s.quiet(x)
	at := e.At
	x.endSeq = e.Seq
	x.endedAt, x.retryAt, x.wakeAt = at, time.Time{}, time.Time{}
	s.count(x, status)
	if started != nil {
		x.startedAt = *started
	}
	if x.scheduledAt.IsZero() && status != parley.StepSkipped {
		// Steps that end in the event in which they start.
		x.scheduledAt, x.startedAt = at, at
	}
}

// decider collects a decision while a fact is applied.
type decider struct {
	*State
	at     time.Time
	jitter float64
	// again is the step that is being done again.
	again *execution
	// calls is as in Tick.
	calls map[string]Call
	d     Decision
	// pass is the phase that advance is in.
	pass string
	// touched are the executions that were marked as changed.
	touched []*execution
	// marked are lists that touchAll has marked.
	marked []*region
}

// record appends an event to the decision and applies it.
func (a *decider) record(t parley.EventType, x *execution, payload any) {
	attempt := x.attempts
	if a.again == x && x.step.Kind != KindAgent && !x.retryAt.IsZero() {
		attempt++ // it ends in the event in which it begins
	}
	a.recordAt(t, x.path, attempt, payload)
}

// recordOf is record for what has happened to one attempt of several.
func (a *decider) recordOf(call *flight, t parley.EventType, x *execution, payload any) {
	a.recordAt(t, x.path, call.attempt, payload)
}

func (a *decider) recordAt(t parley.EventType, path string, attempt int, payload any) {
	e := parley.Event{
		Seq: a.seq + 1, At: a.at, Type: t, Run: a.run, Step: path, Attempt: attempt,
		Data: encode(payload),
	}
	if err := a.evolve(e, payload); err != nil {
		// evolve only refuses paths that the definition does not have, and
		// these come from the definition.
		panic("workflow: " + err.Error())
	}
	a.seq = e.Seq
	if x := a.execs[path]; x != nil {
		a.touch(x)
	}
	a.d.Events = append(a.d.Events, e)
}

// touch marks an execution and all that is around it as changed, so that advance
// looks at them.
func (a *decider) touch(x *execution) {
	for ; x != nil; x = x.region.owner {
		if !x.dirty {
			x.region.changed = append(x.region.changed, x)
		}
		if !x.dirty || !x.region.dirty {
			a.touched = append(a.touched, x)
		}
		x.dirty, x.region.dirty = true, true
	}
}

// touchAll marks all that runs, for what changes the run as a whole.
func (a *decider) touchAll() {
	a.marked = append(a.marked, a.body)
	if a.finally != nil {
		a.marked = append(a.marked, a.finally)
	}
	for x := range a.open.all() {
		a.touch(x)
		for r := range x.regions {
			a.marked = append(a.marked, r)
		}
	}
	for _, x := range a.undoing {
		a.marked = append(a.marked, x.undo.region)
	}
	for _, r := range a.marked {
		r.dirty = true
	}
}

// settle takes the marks away once nothing changes any more.
func (a *decider) settle() {
	for _, x := range a.touched {
		x.dirty, x.region.dirty, x.region.changed = false, false, nil
	}
	for _, r := range a.marked {
		r.dirty = false
	}
}
