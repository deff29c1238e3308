package executor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Explain says what each open step of a run waits for, as far as the run's history
// and the rows of its attempts tell. The error has code not_found for an unknown
// id.
func (x *Executor) Explain(ctx context.Context, id string) (parley.Explanation, error) {
	h, err := x.cfg.Store.History(ctx, id)
	if err != nil {
		return parley.Explanation{}, err
	}
	s, err := x.replay(ctx, h)
	if err != nil {
		return parley.Explanation{}, err
	}
	e := parley.Explanation{
		Run: id, Status: s.Status(), At: x.now(), Paused: s.Paused(), Cancelling: s.Cancelling(), Steps: []parley.StepWait{},
	}
	e.PausedBy, e.PauseReason = s.PausedBy()
	if !s.Status().Terminal() {
		e.Deadline = timePtr(s.Deadline())
	}
	m := &explainer{state: s, now: e.At, rows: make(map[string]*store.Attempt, len(h.Attempts)), events: h.Events}
	for i := range h.Attempts {
		m.rows[h.Attempts[i].ID] = &h.Attempts[i]
	}
	open := s.Open()
	for _, o := range open {
		if err := x.lookAfter(ctx, o.Child); err != nil {
			return parley.Explanation{}, err
		}
		e.Steps = append(e.Steps, m.wait(o))
	}
	e.Text = standing(s, workflow.Steps(open))
	if s.Queued() {
		err = x.explainTurn(ctx, &e)
	}
	return e, err
}

// standing says in a sentence where a run stands.
func standing(s *workflow.State, open int) string {
	var by, why string
	text := string(s.Status())
	switch {
	case s.Status().Terminal():
		return "The run has ended: it is " + text
	case s.Cancelling():
		by, why = s.CancelledBy()
		text = "The run is being cancelled"
	case s.Paused():
		by, why = s.PausedBy()
		text = "The run is paused"
	case open == 1:
		return "The run has 1 open step"
	default:
		return fmt.Sprintf("The run has %d open steps", open)
	}
	if by != "" {
		text += " by " + by
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// explainer puts together what the state and the rows say.
type explainer struct {
	state  *workflow.State
	now    time.Time
	rows   map[string]*store.Attempt
	events []parley.Event
}

func (m *explainer) wait(o workflow.OpenStep) parley.StepWait {
	w := parley.StepWait{
		Step: o.Path, Kind: string(o.Kind), Status: o.Status, Agent: o.Agent, Attempt: o.Attempt,
		Deadline: timePtr(o.Deadline), Question: o.Question, Event: o.Event, Approval: o.Approval, Child: o.Child, LastError: o.Err, TaskID: o.Task,
	}
	switch {
	case o.Status == parley.StepPending:
		m.pending(&w, o)
	case o.Task != "":
		m.call(&w, o)
	case o.Child != nil:
		m.child(&w, o.Child)
	case m.state.Cancelling():
		w.Reason, w.Text = parley.WaitCancel, "ends with the run, which is being cancelled"
	case !o.RetryAt.IsZero():
		m.timer(&w, parley.WaitBackoff, o.RetryAt, "for its next try")
	case o.Event != nil:
		w.Reason, w.Text = parley.WaitEvent, "for the event "+o.Event.Name
		if o.Event.Key != "" {
			w.Text += " with the key " + o.Event.Key
		}
	case o.Approval != nil:
		w.Reason, w.Text = parley.WaitApproval, fmt.Sprintf("for people to decide: parley run answer %s %s --choice %s", m.state.RunID(), o.Path, o.Approval.Choices[0])
	case !o.WakeAt.IsZero():
		m.timer(&w, parley.WaitTimer, o.WakeAt, "for its time")
	default:
		w.Reason, w.Text = parley.WaitSteps, fmt.Sprintf("for the steps inside of it: %d are open", o.Inside)
		if o.Inside == 1 {
			w.Text = "for the step inside of it"
		}
	}
	return w
}

// lookAfter finds out where a child stands.
func (x *Executor) lookAfter(ctx context.Context, c *parley.ChildRun) error {
	if c == nil || c.Run == "" || x.cfg.Children == nil {
		return nil
	}
	row, err := x.cfg.Children.RunRow(ctx, c.Run)
	if parley.CodeOf(err) == parley.CodeNotFound {
		return nil
	}
	c.Status = row.Status
	return err
}

// child says where the run stands that a step waits for.
func (m *explainer) child(w *parley.StepWait, c *parley.ChildRun) {
	w.Reason, w.Text = parley.WaitChild, "for run "+c.Run+" of workflow "+c.Workflow+", which is "+string(c.Status)
	switch {
	case c.Run == "":
		w.Text = "for a run of workflow " + c.Workflow + " to begin"
	case m.state.Cancelling():
		w.Text = "for run " + c.Run + " of workflow " + c.Workflow + ", which is being cancelled too"
	case !c.Status.Terminal():
		w.Text += ": parley run explain " + c.Run
	}
}

// pending says why a step has not begun.
func (m *explainer) pending(w *parley.StepWait, o workflow.OpenStep) {
	switch {
	case len(o.Needs) > 0:
		w.Reason, w.Text, w.Needs = parley.WaitNeeds, "for the end of "+strings.Join(o.Needs, ", "), o.Needs
	case m.state.Paused():
		w.Reason, w.Text = parley.WaitPaused, "begins when the run is resumed"
	case o.Full > 0:
		w.Reason, w.Text = parley.WaitMaxParallel, fmt.Sprintf("for one of its siblings: max_parallel %d is reached", o.Full)
	default:
		w.Reason, w.Text = parley.WaitNeeds, "begins at once"
	}
}

// timer says until when a step waits, or that it would go on if the run were not
// paused.
func (m *explainer) timer(w *parley.StepWait, reason parley.WaitReason, until time.Time, what string) {
	if m.state.Paused() && !until.After(m.now) {
		w.Reason, w.Text = parley.WaitPaused, "goes on when the run is resumed"
		return
	}
	w.Reason, w.Until, w.Text = reason, timePtr(until), what+" at "+stamp(until)
	if m.state.Paused() {
		w.Text += ", if the run is resumed by then"
	}
}

// call says where an attempt stands.
func (m *explainer) call(w *parley.StepWait, o workflow.OpenStep) {
	a := m.rows[o.Task]
	switch {
	case a == nil || a.State == store.AttemptSettled:
		w.Reason, w.Text = parley.WaitResult, "is about to take the answer of "+o.Agent
	case a.State == store.AttemptOpen && !o.RetryAt.IsZero() && o.RetryAt.After(m.now):
		m.timer(w, parley.WaitBackoff, o.RetryAt, fmt.Sprintf("for attempt %d", o.Attempt))
	case a.State == store.AttemptOpen && a.Held:
		w.Reason, w.Text = parley.WaitPaused, o.Agent+" is called when the run is resumed"
	case a.State == store.AttemptOpen:
		w.Reason, w.Text = parley.WaitQueue, "for its turn at "+o.Agent
	default:
		m.claimed(w, a, o)
	}
}

// claimed says how a call that was begun does.
func (m *explainer) claimed(w *parley.StepWait, a *store.Attempt, o workflow.OpenStep) {
	w.AgentTaskID = a.AgentTaskID
	if m.state.Cancelling() {
		w.Reason, w.Text = parley.WaitCancel, o.Agent+" is given time to end"
		return
	}
	if o.Question != nil {
		w.Reason, w.Text = parley.WaitPerson, fmt.Sprintf("for an answer to %s: parley run answer %s %s --text ANSWER", o.Agent, a.Run, o.Path)
		return
	}
	heard := a.ClaimedAt
	for i := len(m.events) - 1; i >= 0; i-- {
		e := &m.events[i]
		if e.Step == o.Path && e.Attempt == o.Attempt && e.At.After(heard) && signOfLife(e.Type) {
			heard = e.At
			break
		}
	}
	w.Reason, w.Heard = parley.WaitAgent, timePtr(heard)
	w.Text = o.Agent + " works on it"
	if d := a.Policy.Silence; d > 0 && !heard.IsZero() {
		w.SilentUntil = timePtr(heard.Add(d))
		w.Text += "; it may be silent until " + stamp(heard.Add(d))
	}
	if d := a.Policy.AttemptTimeout; d > 0 && !a.ClaimedAt.IsZero() {
		w.AttemptUntil = timePtr(a.ClaimedAt.Add(d))
	}
}

func signOfLife(t parley.EventType) bool {
	switch t {
	case parley.EventStepAccepted, parley.EventStepProgress, parley.EventStepChunk, parley.EventStepWaiting, parley.EventStepAnswered:
		return true
	}
	return false
}

// stamp is a time in a sentence.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
