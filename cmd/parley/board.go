package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// board is what is known about a run while it is watched. It is changed by
// events only.
type board struct {
	run     string
	started time.Time
	steps   map[string]*boardStep
	// order holds the ids of the steps as they were first heard of.
	order []string
	// status is the run's word.
	status string
	// queued: the run waits for its turn.
	queued bool
}

// boardStep is one step on the board.
type boardStep struct {
	id, agent, status string
	attempts          int
	began, ended      time.Time
	// again is when the next attempt begins, while status is retrying.
	again time.Time
	// note is what there is to say besides.
	note string
}

// news is one line that an event is worth.
type news struct {
	at time.Time
	// id is a step, or the run.
	id, status, agent, took, note string
	// final: nothing more will happen to it.
	final bool
	// answer is what to type if it waits for a person.
	answer string
}

func newBoard(run parley.Run) *board {
	b := &board{run: run.ID, started: run.CreatedAt, steps: map[string]*boardStep{}, status: string(run.Status)}
	if run.Status.Terminal() {
		// The events tell how it came to that.
		b.status = string(parley.RunRunning)
	}
	for _, s := range run.Steps {
		b.step(s.ID).agent = s.Agent
	}
	return b
}

func (b *board) step(id string) *boardStep {
	s := b.steps[id]
	if s == nil {
		s = &boardStep{id: id, status: string(parley.StepPending)}
		b.steps[id] = s
		b.order = append(b.order, id)
	}
	return s
}

// counts gives how many steps have ended, of how many that are known.
func (b *board) counts() (ended, all int) {
	for _, s := range b.steps {
		if parley.StepStatus(s.status).Terminal() && s.status != retrying && s.status != waiting {
			ended++
		}
	}
	return ended, len(b.order)
}

const (
	retrying   = "RETRYING"
	waiting    = "WAITING"
	cancelling = "CANCELLING"
	warning    = "WARNING"
	late       = "LATE"
)

// payload is what the board reads of an event's data.
type payload struct {
	Agent      string        `json:"agent"`
	Error      *parley.Error `json:"error"`
	DelayMS    int64         `json:"delay_ms"`
	Handled    bool          `json:"handled"`
	CopiedFrom string        `json:"copied_from"`
	Reason     string        `json:"reason"`
	Message    string        `json:"message"`
	// Of agents that wait, and of what they tell.
	Question *parley.Question `json:"question"`
	// Of steps that wait for an event or an approval.
	Event    *parley.AwaitedSignal `json:"event"`
	Approval *parley.Approval      `json:"approval"`
	// Of runs that steps have started.
	Run      string `json:"run"`
	Workflow string `json:"workflow"`
	// Of answers that nobody waited for any more.
	Outcome  parley.Outcome `json:"outcome"`
	Version  string         `json:"version"`
	By       string         `json:"by"`
	Resolved string         `json:"resolved"`
	State    string         `json:"state"`
	Text     string         `json:"text"`
	Chunks   []struct {
		Text string `json:"text"`
	} `json:"chunks"`
}

// waitsFor says what a step waits for, and what to type to answer it; "" if
// nobody can.
func (p payload) waitsFor(run, step string) (note, answer string) {
	switch {
	case p.Event != nil:
		return strings.TrimSpace("for event " + p.Event.Name + " " + p.Event.Key), ""
	case p.Approval != nil && len(p.Approval.Choices) > 0:
		return "for an approval: " + oneLine(p.Approval.Title), approveCommand(run, step, p.Approval)
	case p.Question != nil:
		note = strings.TrimSpace(fmt.Sprintf("for %s: %s", asksFor(p.Question), oneLine(p.Question.Text+" "+p.Question.Note)))
	}
	return note, answerCommand(run, step)
}

// lateNote says what came when nobody waited for it any more.
func (p payload) lateNote(attempt int) string {
	note := fmt.Sprintf("attempt %d was answered after its end", attempt)
	if p.Error != nil {
		note += ": " + errorText(p.Error)
	}
	return note
}

// told gives the newest words of an agent that works.
func (p payload) told() string {
	for _, k := range slices.Backward(p.Chunks) {
		if text := oneLine(k.Text); text != "" {
			return text
		}
	}
	return oneLine(cmp.Or(p.Text, p.State))
}

// apply takes one event; ok is false for events that are not worth a line.
func (b *board) apply(e parley.Event) (n news, ok bool) {
	var p payload
	if json.Unmarshal(e.Data, &p) != nil {
		// What an event's type says still holds if its data is new to us.
		p = payload{}
	}
	if e.Step != "" {
		return b.applyStep(e, p)
	}
	n = news{at: e.At, id: b.run}
	switch e.Type {
	case parley.EventRunQueued:
		b.status, n.status, b.queued = string(parley.RunPending), "QUEUED", true
		n.note = "it waits for its turn: parley run explain " + b.run
		return n, true
	case parley.EventRunStarted:
		waited := b.queued
		b.started, b.status, b.queued = e.At, string(parley.RunRunning), false
		n.status = b.status
		return n, waited
	case parley.EventRunCancelling:
		b.status, n.note = cancelling, p.Reason
	case parley.EventRunPaused:
		n.status, n.note = "PAUSED", p.Reason
		return n, true
	case parley.EventRunResumed:
		n.status = "RESUMED"
		return n, true
	case parley.EventRunWarning:
		n.status, n.note = warning, p.Message
		return n, true
	case parley.EventRunCompleted:
		b.status, n.final = string(parley.RunCompleted), true
	case parley.EventRunFailed:
		b.status, n.final = string(parley.RunFailed), true
	case parley.EventRunCancelled:
		b.status, n.final = string(parley.RunCancelled), true
	default:
		return n, false
	}
	n.status = b.status
	if n.final {
		n.took = duration(e.At.Sub(b.started))
		n.note = errorText(p.Error)
	}
	return n, true
}

func (b *board) applyStep(e parley.Event, p payload) (n news, ok bool) {
	s := b.step(e.Step)
	s.attempts = max(s.attempts, e.Attempt)
	if p.Agent != "" {
		s.agent = p.Agent
	}
	was, noted, answer := s.status, s.note, ""
	s.note = ""
	switch e.Type {
	case parley.EventStepWaiting:
		s.status, ok = waiting, true
		s.note, answer = p.waitsFor(b.run, s.id)
	case parley.EventChildStarted:
		s.status, s.note, ok = waiting, "for run "+p.Run+" of "+p.Workflow+"@"+p.Version, true
	case parley.EventChildEnded:
		s.status = string(parley.StepRunning)
	case parley.EventStepAnswered:
		s.status, ok = string(parley.StepRunning), was == waiting
		s.note = "answered by " + cmp.Or(p.By, "somebody")
		if p.Resolved != "" {
			s.note = "goes on without an answer"
		}
	case parley.EventStepProgress, parley.EventStepChunk:
		if s.note = p.told(); was == waiting || s.note == "" {
			s.note = noted
		}
	case parley.EventStepScheduled:
		s.status = string(parley.StepRunning)
		if s.began.IsZero() {
			s.began = e.At
		}
		ok = was != s.status
	case parley.EventStepRetrying:
		pause := time.Duration(p.DelayMS) * time.Millisecond
		s.status, s.again, ok = retrying, e.At.Add(pause), true
		s.note = fmt.Sprintf("attempt %d in %s: %s", s.attempts+1, duration(pause), errorText(p.Error))
	case parley.EventStepCompleted:
		s.end(e.At, parley.StepCompleted)
		if p.CopiedFrom != "" {
			s.note = "copied from " + p.CopiedFrom
		}
	case parley.EventStepFailed:
		s.end(e.At, parley.StepFailed)
		s.note = errorText(p.Error)
		if p.Handled {
			s.note = "handled: " + s.note
		}
	case parley.EventStepCancelled:
		s.end(e.At, parley.StepCancelled)
	case parley.EventStepSkipped:
		s.end(e.At, parley.StepSkipped)
	case parley.EventStepLate:
		s.note = noted
		n = news{at: e.At, id: s.id, status: late, agent: s.agent, note: p.lateNote(e.Attempt)}
		return n, p.Outcome != parley.OutcomeCancelled // that the agent confirms is no surprise
	default:
		s.note = noted
		return n, false
	}
	final := !s.ended.IsZero()
	return news{
		at: e.At, id: s.id, status: s.status, agent: s.agent, took: s.took(), note: s.said(final), final: final, answer: answer,
	}, ok || final
}

func (s *boardStep) end(at time.Time, status parley.StepStatus) {
	s.ended, s.status = at, string(status)
}

// took gives how long the step ran, "" if it did not or has not ended.
func (s *boardStep) took() string {
	if s.began.IsZero() || s.ended.IsZero() {
		return ""
	}
	return duration(s.ended.Sub(s.began))
}

// said gives the number of attempts, if it is more than one, and the note.
func (s *boardStep) said(final bool) string {
	if final && s.attempts > 1 {
		return strings.TrimSpace(fmt.Sprintf("%d attempts %s", s.attempts, s.note))
	}
	return s.note
}

func errorText(e *parley.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Code) + ": " + errorMessage(e)
}

// errorMessage is what an error says, and behind it what the agent says of a task of
// its own that has not completed: the text has only the state of that task.
func errorMessage(e *parley.Error) string {
	if said := agentSays(e); said != "" {
		return e.Message + " (" + said + ")"
	}
	return e.Message
}

// agentSays is what the agent says in an error, or in the one that its text ends with:
// a run that has failed is quoted by the step that started it, however deep.
func agentSays(e *parley.Error) string {
	var task struct{ State, Message string }
	if len(e.Details) > 0 && json.Unmarshal(e.Details, &task) == nil && task.State != "" && task.Message != "" {
		return oneLine(task.Message)
	}
	if e.Cause == nil || !strings.HasSuffix(e.Message, e.Cause.Message) {
		return ""
	}
	return agentSays(e.Cause)
}

// plain gives the news as one line without colours.
func (n news) plain(zone *time.Location) string {
	parts := []string{n.at.In(zone).Format("15:04:05.000"), n.id, n.status}
	for _, p := range []string{n.agent, n.took, n.note} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return clean(strings.Join(parts, " "))
}
