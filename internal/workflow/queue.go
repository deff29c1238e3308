package workflow

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Concurrency bounds the runs of a workflow that have an equal key and run at the
// same time (language.md §1).
type Concurrency struct {
	// Key is evaluated over the input at the start; nil is one key for all.
	Key      *expr.Template
	Limit    int
	WhenFull parley.WhenFull
}

// maxConcurrencyKey bounds the key of a run, in characters.
const maxConcurrencyKey = 255

// TurnOf gives the key and the bound of a run with that input, nil if the workflow
// has none. It does not say whether the run waits.
func (d *Definition) TurnOf(input json.RawMessage) (*Turn, error) {
	c := d.Concurrency
	if c == nil {
		return nil, nil
	}
	t := &Turn{Limit: c.Limit, WhenFull: c.WhenFull}
	if c.Key == nil {
		return t, nil
	}
	v, err := c.Key.Eval(&expr.Scope{
		Workflow: expr.WorkflowInfo{ID: d.ID, Name: d.Name, Version: d.Version, Input: input},
	})
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(v, &t.Key) != nil {
		t.Key = string(v)
	}
	if n := utf8.RuneCountInString(t.Key); n > maxConcurrencyKey {
		return nil, parley.Errorf(parley.CodeLimit, "concurrency.key: %d characters, the limit is %d", n, maxConcurrencyKey).
			WithDetails(map[string]any{"limit": "concurrency.key", "value": maxConcurrencyKey})
	}
	return t, nil
}

// Turn is what a run was started under: of the runs of its workflow with that key,
// Limit run at the same time.
type Turn struct {
	Key      string          `json:"key"`
	Limit    int             `json:"limit"`
	WhenFull parley.WhenFull `json:"when_full"`
	// Wait: the run was accepted and has not begun; it is PENDING until it is
	// admitted.
	Wait bool `json:"-"`
}

// Admit begins a run that was waiting for its turn.
type Admit struct {
	At time.Time
	// Jitter as in Settled.
	Jitter float64
}

func (Admit) fact() {}

// runQueued accepts a run that waits for its turn. It says all that run.started
// says of other runs; that of this one says when the run began.
type runQueued runStarted

// Turn is what the run was started under; nil for most runs.
func (s *State) Turn() *Turn { return s.turn }

// Queued reports whether the run was accepted and waits for its turn.
func (s *State) Queued() bool { return s.turn != nil && s.turn.Wait && s.status == parley.RunPending }

// CreatedAt is when the run was accepted.
func (s *State) CreatedAt() time.Time { return s.createdAt }

// queue accepts a run that does not begin yet.
func (a *decider) queue(p runStarted) {
	a.recordAt(parley.EventRunQueued, "", 0, runQueued(p))
}

// whileWaiting applies a fact to a run that waits for its turn: it can begin or be
// ended, and nothing else happens to it.
func (a *decider) whileWaiting(f Fact) {
	switch f := f.(type) {
	case Admit:
		a.at, a.jitter = f.At, f.Jitter
		queued := a.createdAt
		a.recordAt(parley.EventRunStarted, "", 0, runStarted{
			Workflow: a.def.ID, Version: a.def.Version, Labels: a.labels, Trigger: a.trigger,
			Deadline: a.earliest(f.At.Add(a.timeout), a.bound), Priority: a.priority, RetriedFrom: a.retriedFrom, RerunFrom: a.rerunFrom, QueuedAt: &queued,
		})
		a.advance()
	case Cancel:
		a.at = f.At
		a.leaveQueue(f.By, f.Reason)
	case Terminate:
		a.at = f.At
		a.terminate(f)
	}
}

// leaveQueue ends a run that has not begun: nothing is to be undone, and finally
// does not run.
func (a *decider) leaveQueue(by, reason string) {
	text := "The run was cancelled before it began"
	if by != "" {
		text = "The run was cancelled by " + by + " before it began"
	}
	if reason != "" {
		text += ": " + reason
	}
	a.recordAt(parley.EventRunCancelled, "", 0, runEnded{
		Error: parley.Errorf(parley.CodeCancelled, "%s", text), By: by, Reason: reason, Terminated: true,
	})
}

// evolveQueued notes what the run was accepted with.
func (s *State) evolveQueued(e parley.Event, p runStarted) {
	s.evolveAccepted(e, p)
	s.status, s.timeout, s.bound = parley.RunPending, time.Duration(p.TimeoutMS)*time.Millisecond, p.Deadline
	if s.turn != nil {
		s.turn.Wait = true
	}
}
