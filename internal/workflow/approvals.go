package workflow

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Voted is what somebody has answered to an approval. It changes nothing if
// [State.MayVote] refuses it.
type Voted struct {
	At time.Time
	Vote
	// Jitter as in Settled: a rejection may be retried.
	Jitter float64
}

func (Voted) fact() {}

// Vote is one answer to an approval, and who gives it.
type Vote struct {
	// Step is the path of the step's execution.
	Step   string
	Choice string
	// By is who answers, Roles what that person is besides.
	By      string
	Roles   []string
	Comment string
	// Data is one JSON value; nil is none.
	Data json.RawMessage
}

// Asking is an approval that waits.
type Asking struct {
	// Step is the path of its execution.
	Step      string
	CreatedAt time.Time
	Asked     parley.Approval
}

// timeoutVoter is who answers when the time is up.
const timeoutVoter = "timeout"

// asking is what an approval step asks, as it was evaluated when it began.
type asking struct {
	Title   string          `json:"title"`
	To      []string        `json:"to"`
	Choices []string        `json:"choices"`
	Min     int             `json:"min"`
	Form    json.RawMessage `json:"form,omitempty"`
	// Since is when it was asked, Escalate who may answer besides after a while,
	// and Escalated how many of these times have come.
	Since     time.Time    `json:"since"`
	Escalate  []escalation `json:"escalate,omitempty"`
	Escalated int          `json:"escalated,omitempty"`
	// OnTimeout is the choice that counts when the time is up.
	OnTimeout string `json:"on_timeout,omitempty"`

	answers []parley.ApprovalAnswer
}

type escalation struct {
	AfterMS int64    `json:"after_ms"`
	To      []string `json:"to"`
}

// who gives all that may answer now; nobody is anybody.
func (q *asking) who() []string {
	to := slices.Clone(q.To)
	for _, e := range q.Escalate[:q.Escalated] {
		switch {
		case len(to) == 0:
		case len(e.To) == 0:
			to = nil
		default:
			to = append(to, e.To...)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// escalateAt is when more people may answer; zero is never.
func (q *asking) escalateAt() time.Time {
	if q.Escalated == len(q.Escalate) {
		return time.Time{}
	}
	return q.Since.Add(time.Duration(q.Escalate[q.Escalated].AfterMS) * time.Millisecond)
}

func (q *asking) view(x *execution) *parley.Approval {
	to := q.who()
	if to == nil {
		to = []string{}
	}
	return &parley.Approval{
		Title: q.Title, To: to, Choices: q.Choices, Min: q.Min, Form: q.Form, Answers: q.answers,
		EscalateAt: ptr(q.escalateAt()), Deadline: ptr(x.deadline), OnTimeout: q.OnTimeout,
	}
}

// beginApproval asks. What is asked is evaluated once, also if it is asked again
// (rule S2).
func (a *decider) beginApproval(x *execution) {
	var q asking
	if x.ask != nil {
		q = *x.ask
		q.answers = nil
	} else {
		var err error
		if q, err = a.evalAsking(x); err != nil {
			a.fail(x, asError(err), attemptEnd{})
			return
		}
	}
	if len(a.approvals) >= a.limits.OpenApprovals {
		a.fail(x, limitError("open approvals", int64(a.limits.OpenApprovals), int64(len(a.approvals))+1), attemptEnd{})
		return
	}
	q.Since, q.Escalated = a.at, 0
	a.recordAt(parley.EventStepScheduled, x.path, x.attempts+1, stepScheduled{Kind: KindApproval, Deadline: a.deadlineOf(x)})
	a.record(parley.EventStepWaiting, x, stepWaiting{Approval: &q})
}

func (a *decider) evalAsking(x *execution) (asking, error) {
	spec, scope := x.step.Approval, a.scope(x)
	q := asking{Choices: spec.Choices, Min: spec.Min, OnTimeout: spec.OnTimeout}
	var err error
	if q.Title, err = textOf("title", spec.Title, scope); err != nil {
		return q, err
	}
	if n := len(q.Title); n > 4096 {
		return q, limitError("title", 4096, int64(n))
	}
	if q.To, err = approversOf(spec.To, scope); err != nil {
		return q, err
	}
	for _, e := range spec.Escalate {
		to, err := approversOf(e.To, scope)
		if err != nil {
			return q, err
		}
		q.Escalate = append(q.Escalate, escalation{AfterMS: e.After.Milliseconds(), To: to})
	}
	if spec.Form != nil {
		q.Form = asRecorded(spec.Form.Raw())
	}
	return q, nil
}

// approversOf evaluates a list of roles and users; it gives none for anybody. A list that
// comes out empty means nobody, and never everybody.
func approversOf(t *expr.Template, scope *expr.Scope) ([]string, error) {
	if t == nil {
		return []string{}, nil
	}
	v, err := t.Eval(scope)
	if err != nil {
		return nil, err
	}
	var one string
	if json.Unmarshal(v, &one) == nil && one == "any" {
		return []string{}, nil
	}
	var list []string
	if json.Unmarshal(v, &list) != nil || string(v) == "null" {
		return nil, parley.Errorf(parley.CodeInvalidInput, "to: %s is no list of roles and users", capText(v))
	}
	if len(list) == 0 {
		return nil, parley.Errorf(parley.CodeInvalidInput, "to: the list is empty, so that nobody could answer; anybody may where to is any")
	}
	if len(list) > maxTo {
		return nil, limitError("to", maxTo, int64(len(list)))
	}
	for _, name := range list {
		if name == "" || utf8.RuneCountInString(name) > parley.MaxSignalText || strings.ContainsAny(name, "\r\n\x00") {
			return nil, parley.Errorf(parley.CodeInvalidInput, "to: a role or user has 1 to %d characters on one line, %q is none", parley.MaxSignalText, name)
		}
	}
	return list, nil
}

// asRecorded gives a value as the history will give it back.
func asRecorded(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

// MayVote says why an answer to an approval cannot be taken; nil: it can. The
// code is conflict if the step does not wait for it (any more), not_found if there
// is none, forbidden for somebody who may not answer, invalid for a choice that
// there is not and data that does not fit the form, and limit for more than a value,
// or all values of the run, may have.
func (s *State) MayVote(v Vote) *parley.Error {
	x := s.execs[v.Step]
	switch {
	case s.status.Terminal():
		return parley.Errorf(parley.CodeConflict, "Cannot answer run %s: it is %s", s.run, s.status)
	case s.cancelling:
		return parley.Errorf(parley.CodeConflict, "Cannot answer run %s: it is being cancelled", s.run)
	case !s.asksAt(v.Step):
		text, ok := s.StepState(v.Step)
		if !ok {
			return parley.Errorf(parley.CodeNotFound, "run %s has no step %q", s.run, v.Step)
		}
		return parley.Errorf(parley.CodeConflict, "Step %s of run %s waits for no approval: it is %s", v.Step, s.run, text)
	}
	to := x.ask.who()
	may := func(name string) bool { return slices.Contains(to, name) }
	if len(to) > 0 && !may(v.By) && !slices.ContainsFunc(v.Roles, may) {
		return parley.Errorf(parley.CodeForbidden, "%q may not answer step %s of run %s: it is for %s", v.By, v.Step, s.run, strings.Join(to, ", "))
	}
	if !slices.Contains(x.ask.Choices, v.Choice) {
		return parley.Errorf(parley.CodeInvalid, "choice: %q is none of %s", v.Choice, strings.Join(x.ask.Choices, ", "))
	}
	// Who rejects need not fill in the form.
	if form := x.step.Approval.Form; form != nil && (v.Data != nil || v.Choice != choiceReject) {
		if err := form.Check(orNull(v.Data)); err != nil {
			return parley.Errorf(parley.CodeInvalid, "data does not fit the form: %v", err).WithDetails(findingsOf(err))
		}
	}
	longest := time.Date(2000, 1, 1, 0, 0, 0, 999_999_999, time.UTC)
	n := int64(len(decisionOf(parley.ApprovalAnswer{Choice: v.Choice, By: v.By, At: longest, Comment: v.Comment, Data: v.Data})))
	if err := s.room("answer", n, n+int64(len(v.Comment)+len(asRecorded(v.Data)))); err != nil {
		return asError(err)
	}
	return nil
}

func findingsOf(err error) any {
	if fault, ok := err.(*SchemaError); ok { //nolint:errorlint // Check gives nothing else
		return fault.Findings
	}
	return nil
}

// voted takes an answer, and ends the step if that decides.
func (a *decider) voted(f Voted) {
	if a.seq == 0 || a.MayVote(f.Vote) != nil {
		return
	}
	x := a.execs[f.Step]
	answer := parley.ApprovalAnswer{
		Choice: f.Choice, By: strings.ToValidUTF8(f.By, "\uFFFD"), At: f.At, Comment: strings.ToValidUTF8(f.Comment, "\uFFFD"), Data: f.Data,
	}
	recorded := answer
	recorded.Data = asRecorded(answer.Data)
	a.record(parley.EventStepAnswered, x, stepAnswered{Approval: &recorded, By: answer.By})
	same := 0
	for _, given := range x.ask.answers {
		if given.Choice == answer.Choice {
			same++
		}
	}
	if answer.Choice == choiceReject || same >= x.ask.Min {
		a.decide(x, answer)
	}
	a.advance()
}

// decide ends an approval with the answer that decides it.
func (a *decider) decide(x *execution, answer parley.ApprovalAnswer) {
	end := attemptEnd{started: x.scheduledAt}
	value := decisionOf(answer)
	if answer.Choice != choiceReject {
		a.complete(x, value, completion{attemptEnd: end})
		return
	}
	text := "Rejected by " + answer.By
	if answer.Comment != "" {
		text += ": " + answer.Comment
	}
	err := parley.Errorf(parley.CodeApprovalRejected, "%s", text)
	err.Details = value
	a.fail(x, err, end)
}

// decisionOf is the output of an approval.
func decisionOf(answer parley.ApprovalAnswer) json.RawMessage {
	o := object{buf: []byte{'{'}}
	o.str("decision", answer.Choice)
	o.str("by", answer.By)
	o.time("at", &answer.At)
	o.str("comment", answer.Comment)
	o.raw("data", answer.Data)
	return o.end()
}

// decidedByTimeout ends an approval whose time is up, if that counts as an answer.
func (a *decider) decidedByTimeout(x *execution) bool {
	if !a.asksAt(x.path) || x.ask.OnTimeout == "" {
		return false
	}
	answer := parley.ApprovalAnswer{Choice: x.ask.OnTimeout, By: timeoutVoter, At: a.at}
	a.record(parley.EventStepAnswered, x, stepAnswered{Approval: &answer, By: timeoutVoter})
	a.decide(x, answer)
	return true
}

// escalate lets more people answer, as many times as have come.
func (a *decider) escalate(x *execution) {
	a.record(parley.EventTimerFired, x, timerFired{})
	q := *x.ask
	for at := q.escalateAt(); !at.IsZero() && !at.After(a.at); at = q.escalateAt() {
		q.Escalated++
	}
	a.record(parley.EventStepWaiting, x, stepWaiting{Approval: &q})
}

// evolveAsking takes notice of what is asked, and keeps what was answered.
func (s *State) evolveAsking(x *execution, q *asking) {
	next := *q
	next.answers = nil
	if s.asksAt(x.path) {
		next.answers = x.ask.answers
	} else {
		s.approvals = append(s.approvals, x.path)
	}
	x.ask, x.wakeAt = &next, next.escalateAt()
}

// evolveVote takes notice of an answer. That of somebody who has answered before
// takes its place.
func (s *State) evolveVote(x *execution, answer parley.ApprovalAnswer) {
	next := *x.ask
	next.answers = slices.DeleteFunc(slices.Clone(next.answers), func(a parley.ApprovalAnswer) bool { return a.By == answer.By })
	next.answers = append(next.answers, answer)
	x.ask = &next
	s.bytes += int64(len(answer.Data) + len(answer.Comment))
}

func (s *State) unask(x *execution) {
	if x.ask == nil {
		return
	}
	x.wakeAt = time.Time{}
	s.approvals = slices.DeleteFunc(slices.Clone(s.approvals), func(path string) bool { return path == x.path })
	if len(s.approvals) == 0 {
		s.approvals = nil
	}
}

func (s *State) asksAt(path string) bool { return slices.Contains(s.approvals, path) }

// asking gives what is asked, by path.
func (s *State) asking() map[string]*asking {
	if len(s.approvals) == 0 {
		return nil
	}
	m := make(map[string]*asking, len(s.approvals))
	for _, path := range s.approvals {
		m[path] = s.execs[path].ask
	}
	return m
}

// Asked gives the approvals that wait, in the order in which they began to.
func (s *State) Asked() []Asking {
	if s.cancelling || s.status.Terminal() {
		return nil
	}
	list := make([]Asking, len(s.approvals))
	for i, path := range s.approvals {
		list[i] = s.openApproval(path)
	}
	return list
}

func (s *State) openApproval(path string) Asking {
	x := s.execs[path]
	return Asking{Step: path, CreatedAt: x.ask.Since, Asked: *x.ask.view(x)}
}

// ask says which approvals are new, or have changed, and which are over.
func (a *decider) ask(before, after map[string]*asking) {
	for _, path := range a.approvals {
		if before[path] != after[path] {
			a.d.Ask = append(a.d.Ask, a.openApproval(path))
		}
	}
	for path := range before {
		if after[path] == nil {
			a.d.Answered = append(a.d.Answered, path)
		}
	}
	slices.Sort(a.d.Answered)
}
