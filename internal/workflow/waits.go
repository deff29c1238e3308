package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// Asked says that the agent of an attempt waits for a person, or that it goes
// on by itself. The step's timeout runs on meanwhile (rule T2).
type Asked struct {
	At     time.Time
	TaskID string
	// AgentTaskID is the agent's own name for the task, or "".
	AgentTaskID string
	// Question is what it waits for; nil: it waits no more.
	Question *parley.Question
	// News numbers the changes of one attempt from 1. One that is not newer
	// than the last that the run has recorded changes nothing.
	News int
	// Jitter as in Settled, for what follows if the question is one too many.
	Jitter float64
}

// Replied says that somebody has answered the question of an attempt. It is
// empty if the attempt does not wait.
type Replied struct {
	At     time.Time
	TaskID string
	Reply  parley.Reply
}

func (Asked) fact()   {}
func (Replied) fact() {}

// resolvedByAgent is how a wait ends that nobody has answered.
const resolvedByAgent = "agent"

type (
	stepWaiting struct {
		Question    *parley.Question `json:"question,omitempty"`
		TaskID      string           `json:"task_id,omitempty"`
		AgentTaskID string           `json:"agent_task_id,omitempty"`
		News        int              `json:"news,omitempty"`
		// Event is what a wait_for_event step waits for.
		Event *parley.AwaitedSignal `json:"event,omitempty"`
		// Approval is what an approval step asks.
		Approval *asking `json:"approval,omitempty"`
	}
	stepAnswered struct {
		TaskID string        `json:"task_id,omitempty"`
		Reply  *answeredWith `json:"reply,omitempty"`
		By     string        `json:"by,omitempty"`
		// Resolved says who ended a wait that nobody has answered, News with
		// which change.
		Resolved string `json:"resolved,omitempty"`
		News     int    `json:"news,omitempty"`
		// Approval is one answer to an approval.
		Approval *parley.ApprovalAnswer `json:"approval,omitempty"`
	}
	answeredWith struct {
		Text string          `json:"text,omitempty"`
		Data json.RawMessage `json:"data,omitempty"`
		// Withheld: the answer to a request for an authorization is not kept in
		// the history, since it may hold a secret.
		Withheld bool `json:"withheld,omitempty"`
	}
)

// asked records what an agent waits for, or that it goes on.
func (a *decider) asked(f Asked) {
	x, call := a.waitable(f.TaskID)
	if x == nil || f.News <= call.news {
		return
	}
	if f.Question == nil {
		if call.question != nil {
			a.recordOf(call, parley.EventStepAnswered, x, stepAnswered{TaskID: f.TaskID, Resolved: resolvedByAgent, News: f.News})
		}
		return
	}
	q := readable(f.Question)
	err := a.fits("question", append([]byte(q.Text+q.Note), q.Parts...))
	if call.asked >= a.limits.Questions {
		err = limitError("questions", int64(a.limits.Questions), int64(call.asked)+1)
	}
	if err != nil {
		e := asError(err)
		e.Step, e.Agent = x.path, call.agent
		a.abandon(x, parley.OutcomeCancelled)
		a.failFinally(x, e, attemptEnd{})
		a.advance()
		return
	}
	a.recordOf(call, parley.EventStepWaiting, x, stepWaiting{
		Question: q, TaskID: f.TaskID, AgentTaskID: strings.ToValidUTF8(f.AgentTaskID, "\uFFFD"), News: f.News,
	})
}

// replied records what somebody answered.
func (a *decider) replied(f Replied) {
	x, call := a.waitable(f.TaskID)
	if x == nil || call.question == nil {
		return
	}
	with := &answeredWith{Text: strings.ToValidUTF8(f.Reply.Text, "\uFFFD")}
	if json.Valid(f.Reply.Data) {
		with.Data = asRecorded(f.Reply.Data)
	}
	if call.question.Kind == parley.QuestionAuth {
		with = &answeredWith{Withheld: true}
	}
	a.recordOf(call, parley.EventStepAnswered, x, stepAnswered{TaskID: f.TaskID, Reply: with, By: strings.ToValidUTF8(f.Reply.By, "\uFFFD")})
}

// waitable gives the execution of a task in flight, unless its run is ending:
// then nobody is asked any more.
func (a *decider) waitable(task string) (*execution, *flight) {
	path, ok := a.inFlight[task]
	if !ok || a.status.Terminal() || a.cancelling {
		return nil, nil
	}
	x := a.execs[path]
	return x, x.flight(task)
}

// readable gives a question as the history will give it back. What is not JSON
// is left out: there is always the text.
func readable(q *parley.Question) *parley.Question {
	c := parley.Question{
		Kind: parley.QuestionKind(strings.ToValidUTF8(string(q.Kind), "\uFFFD")),
		Text: strings.ToValidUTF8(q.Text, "\uFFFD"), Note: strings.ToValidUTF8(q.Note, "\uFFFD"),
	}
	if len(q.Parts) > 0 {
		if b, err := json.Marshal(q.Parts); err == nil {
			c.Parts = b
		}
	}
	return &c
}

func (s *State) evolveWaiting(x *execution, p stepWaiting) {
	if p.Event != nil {
		s.listen(x, p.Event)
		return
	}
	if p.Approval != nil {
		s.evolveAsking(x, p.Approval)
		return
	}
	if call := x.flight(p.TaskID); call != nil {
		call.question, call.news = p.Question, p.News
		call.asked++
		x.retryAt = time.Time{} // whoever asks has begun
	}
	if p.Question != nil {
		s.bytes += int64(len(p.Question.Text) + len(p.Question.Note) + len(p.Question.Parts))
	}
}

func (s *State) evolveAnswered(x *execution, p stepAnswered) {
	if p.Approval != nil {
		s.evolveVote(x, *p.Approval)
		return
	}
	if call := x.flight(p.TaskID); call != nil {
		call.question, call.news = nil, max(call.news, p.News)
	}
	if p.Reply != nil {
		s.bytes += int64(len(p.Reply.Text) + len(p.Reply.Data))
	}
}

// Waiting is one step whose agent waits for a person.
type Waiting struct {
	// Step is the path of the step's execution, TaskID its attempt in flight.
	Step, TaskID string
	Question     parley.Question
}

// Waiting gives the steps whose agents wait for people, in the order in which
// they were considered. There is none in a run that ends.
func (s *State) Waiting() []Waiting {
	var list []Waiting
	for _, path := range s.order {
		if call := s.asks(s.execs[path]); call != nil {
			list = append(list, Waiting{Step: path, TaskID: call.task, Question: *call.question})
		}
	}
	return list
}

// asks gives the attempt of x whose agent waits for a person, or nil. Of several
// the one that began first is answered first.
func (s *State) asks(x *execution) *flight {
	if s.cancelling || s.status.Terminal() {
		return nil
	}
	for _, call := range x.flights {
		if call.question != nil {
			return call
		}
	}
	return nil
}

// StepState says in words where a step stands, for whoever expected something
// else of it; ok is false if the run has no such step.
func (s *State) StepState(path string) (text string, ok bool) {
	x := s.execs[path]
	if x == nil {
		step, owner, part, known := s.locate(path)
		if !known {
			return "", false
		}
		return string(s.unbegunAt(step, owner, part)), true
	}
	v := s.viewStep(x)
	if v.Phase == "" {
		return string(v.Status), true
	}
	return string(v.Status) + " (" + string(v.Phase) + ")", true
}

// Progress gives the event of something that an agent in flight has told: one
// of the types step.accepted, step.progress and step.chunk. It is the next of
// the history and changes nothing else (it never enters Apply); the caller
// records it as it does a decision. Once the run has recorded as much as its
// limits allow, the event is a warning instead, and then there is none any more.
// ok is false for that, and for a task that is not in flight.
func (s *State) Progress(at time.Time, t parley.EventType, task string, data json.RawMessage) (e parley.Event, ok bool) {
	path, ok := s.inFlight[task]
	if !ok || s.status.Terminal() || !isProgress(t) {
		return e, false
	}
	if s.progressEnded {
		return e, false
	}
	e = parley.Event{Seq: s.seq + 1, At: at, Type: t, Run: s.run, Step: path, Attempt: s.execs[path].flight(task).attempt, Data: data}
	if s.progress >= s.limits.Progress || s.progressBytes+int64(len(data)) > s.limits.ProgressBytes {
		e = parley.Event{Seq: e.Seq, At: at, Type: parley.EventRunWarning, Run: s.run, Data: encode(runWarning{
			Message: fmt.Sprintf("No more progress of the run's agents is recorded: the limit is %d events and %d bytes",
				s.limits.Progress, s.limits.ProgressBytes),
			Code: parley.CodeLimit, Limit: progressLimit,
		})}
	}
	s.seq = e.Seq
	s.countProgress(e)
	return e, true
}

// LateAnswer is an answer that came after the end of its attempt.
type LateAnswer struct {
	// At is when the run takes notice of it, Came when the answer was complete.
	At, Came time.Time
	TaskID   string
	// Step is the path of the step, Attempt the number of the attempt.
	Step    string
	Attempt int
	Outcome parley.Outcome
	// Bytes is how much of the output is kept.
	Bytes int64
	Err   *parley.Error
}

// stepLate is what the history says of it. The answer itself stands with the attempt.
type stepLate struct {
	TaskID  string         `json:"task_id"`
	Outcome parley.Outcome `json:"outcome"`
	CameAt  time.Time      `json:"came_at"`
	Bytes   int64          `json:"bytes"`
	Error   *parley.Error  `json:"error,omitempty"`
}

// Late gives the event that says that an answer came too late (rule T3). It is the
// next of the history and changes nothing else, as with Progress; ok is false for a
// run that has ended, since nothing follows the event that says so.
func (s *State) Late(l LateAnswer) (e parley.Event, ok bool) {
	if s.status.Terminal() || s.seq == 0 {
		return e, false
	}
	s.seq++
	return parley.Event{
		Seq: s.seq, At: l.At, Type: parley.EventStepLate, Run: s.run, Step: l.Step, Attempt: l.Attempt,
		Data: encode(stepLate{l.TaskID, l.Outcome, l.Came, l.Bytes, l.Err}),
	}, true
}

// progressLimit names the limits of progress in a warning.
const progressLimit = "progress"

type runWarning struct {
	Message string      `json:"message"`
	Code    parley.Code `json:"code"`
	// Limit names what was reached with code limit.
	Limit string `json:"limit,omitempty"`
	// Event is the id of the event that the warning is about.
	Event string `json:"event,omitempty"`
}

// countProgress takes notice of an event that changes nothing else.
func (s *State) countProgress(e parley.Event) {
	switch {
	case isProgress(e.Type):
		s.progress++
		s.progressBytes += int64(len(e.Data))
	case e.Type == parley.EventRunWarning:
		var w runWarning
		if json.Unmarshal(e.Data, &w) == nil {
			s.progressEnded = s.progressEnded || w.Limit == progressLimit
			s.warned(e.Step, w)
		}
	}
}

func isProgress(t parley.EventType) bool {
	return slices.Contains([]parley.EventType{parley.EventStepAccepted, parley.EventStepProgress, parley.EventStepChunk}, t)
}
