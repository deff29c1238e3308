package server

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-project/parley"
)

// Explain says what each open step of a run waits for: to what the run itself
// tells comes how its agents do, and what came too late.
func (r runs) Explain(ctx context.Context, id string) (parley.Explanation, error) {
	e, err := r.Executor.Explain(ctx, id)
	if err != nil {
		return e, err
	}
	if e.Late, err = r.db.LateCount(ctx, id); err != nil {
		return e, err
	}
	if e.Late > 0 {
		e.Text += lateText(e.Late, e.Run)
	}
	look := agentLook{runs: r, states: make(map[string]*agentState)}
	for i := range e.Steps {
		w := &e.Steps[i]
		if w.TaskID == "" || w.Reason != parley.WaitQueue && w.Reason != parley.WaitAgent {
			continue
		}
		if err := look.complete(ctx, w, e.At); err != nil {
			return e, err
		}
	}
	return e, nil
}

// lateText tells of answers that nobody waited for any more.
func lateText(n int, run string) string {
	if n == 1 {
		return "; 1 answer came after its attempt had ended: parley run attempts " + run
	}
	return fmt.Sprintf("; %d answers came after their attempts had ended: parley run attempts %s", n, run)
}

// agentLook finds out how agents do, each once.
type agentLook struct {
	runs
	states   map[string]*agentState
	inFlight map[string]int
}

// agentState is how an agent does.
type agentState struct {
	agent   parley.Agent
	circuit parley.BreakerState
	health  parley.HealthState
}

func (l *agentLook) at(ctx context.Context, name string) (*agentState, error) {
	if s := l.states[name]; s != nil {
		return s, nil
	}
	s := &agentState{}
	var err error
	if s.agent, err = l.agents.Lookup(ctx, name); err != nil && parley.CodeOf(err) != parley.CodeNotFound {
		return nil, err
	}
	if s.circuit, err = l.db.Breaker(ctx, name); err != nil {
		return nil, err
	}
	if s.health, err = l.db.Health(ctx, name); err != nil {
		return nil, err
	}
	l.states[name] = s
	return s, nil
}

func (l *agentLook) complete(ctx context.Context, w *parley.StepWait, now time.Time) (err error) {
	s, err := l.at(ctx, w.Agent)
	if err != nil {
		return err
	}
	if s.health.Status == parley.HealthUnhealthy {
		w.Unhealthy = s.health.Message
	}
	if w.Reason != parley.WaitQueue {
		return nil
	}
	if c := s.circuit; c.Circuit == parley.CircuitOpen || c.Circuit == parley.CircuitHalfOpen {
		w.Reason, w.Circuit, w.Manual = parley.WaitBreaker, c.Circuit, c.Manual
		if c.Until.After(now) {
			w.Until = timePtr(c.Until)
		}
		w.Text = circuitText(w.Agent, c, now)
	}
	return l.place(ctx, w, s)
}

// circuitText says how a circuit keeps a task waiting.
func circuitText(agent string, c parley.BreakerState, now time.Time) string {
	switch {
	case c.Manual:
		text := "the circuit of " + agent + " was opened by hand"
		if c.By != "" {
			text += " by " + c.By
		}
		return text + ": parley agent breaker " + agent + " close"
	case c.Circuit == parley.CircuitHalfOpen:
		return agent + " is tried after failures by a few calls at a time"
	case !c.Until.After(now):
		return "the time of " + agent + "'s open circuit is over: it is about to be tried again, by a few calls at a time"
	}
	return "the circuit of " + agent + " is open after failures until " + c.Until.UTC().Format(time.RFC3339)
}

// place gives the place of a task among those that wait for its agent.
func (l *agentLook) place(ctx context.Context, w *parley.StepWait, s *agentState) (err error) {
	if l.inFlight == nil {
		if l.inFlight, err = l.db.InFlight(ctx); err != nil {
			return err
		}
	}
	q := &parley.QueuePlace{InFlight: l.inFlight[w.Agent], Slots: s.agent.MaxConcurrent, RateLimited: s.agent.Limits.Rate > 0}
	if q.Slots == 0 {
		q.Slots = l.slots
	}
	if q.Ahead, err = l.db.Ahead(ctx, w.Agent, w.TaskID); err != nil {
		return err
	}
	w.Queue = q
	if w.Reason == parley.WaitQueue {
		w.Text = fmt.Sprintf("for its turn at %s: %d before it, %d of %d calls under way", w.Agent, q.Ahead, q.InFlight, q.Slots)
		if q.RateLimited {
			w.Text += ", and calls are spaced by its rate"
		}
	}
	return nil
}
