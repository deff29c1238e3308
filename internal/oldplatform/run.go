package oldplatform

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// The limits of one run (language.md §10); a run beyond them is refused.
const (
	maxRunSteps = 10_000
	maxRunBytes = 256 << 20
	// maxDepth bounds the nesting of a value: a little below what the JSON of the
	// events that hold it can have.
	maxDepth = 9_000
)

// The payloads of the events that an imported run is made of. The members beside
// "row" are those that package workflow reads; "row" keeps what it does not.
type (
	runStarted struct {
		Workflow string          `json:"workflow"`
		Version  string          `json:"version"`
		Input    json.RawMessage `json:"input,omitempty"`
		Trigger  string          `json:"trigger,omitempty"`
		Row      *runKept        `json:"row"`
	}
	runKept struct {
		WorkflowID string `json:"workflow_id"`
		Status     string `json:"status"`
		Error      string `json:"error_message,omitempty"`
	}
	runCancelling struct {
		By     string `json:"by,omitempty"`
		Reason string `json:"reason,omitempty"`
	}
	runCompleted struct {
		Output json.RawMessage `json:"output"`
	}
	runEnded struct {
		Error *parley.Error `json:"error,omitempty"`
	}
	stepScheduled struct {
		Kind  string          `json:"kind"`
		Agent string          `json:"agent"`
		Input json.RawMessage `json:"input"`
		Row   *stepKept       `json:"row"`
	}
	stepKept struct {
		ID     string `json:"id"`
		StepID string `json:"step_id"`
		Name   string `json:"step_name"`
		Status string `json:"status"`
		Parent string `json:"parent_step_id,omitempty"`
		Branch string `json:"branch_name,omitempty"`
		Join   string `json:"join_policy,omitempty"`
	}
	stepRetrying struct {
		Error *parley.Error   `json:"error"`
		At    time.Time       `json:"at"`
		Kept  json.RawMessage `json:"output,omitempty"`
	}
	stepCompleted struct {
		Kind    string          `json:"kind"`
		Output  json.RawMessage `json:"output"`
		Started time.Time       `json:"started_at"`
	}
	stepFailed struct {
		Kind    string          `json:"kind"`
		Error   *parley.Error   `json:"error"`
		Started time.Time       `json:"started_at"`
		Kept    json.RawMessage `json:"output,omitempty"`
	}
	stepEnded struct {
		Kind string `json:"kind"`
	}
)

// kindAgent is the kind of every step that has rows over there.
const kindAgent = "agent"

// oldRun is one run of the existing platform with the rows of its steps by the
// time they started.
type oldRun struct {
	run   *runRow
	steps []stepRow
	// rows counts the rows of its steps, and size the bytes of its values and errors.
	// Of a run that is beyond its limits, steps are not kept.
	rows int
	size int64
	// workflow is the workflow_id that its definition has here, "" if the run
	// has none.
	workflow string
	// loops are the steps whose every row is an execution of its own.
	loops map[string]bool
	// now is when it is imported.
	now time.Time
}

// unfinished reports whether a run had not ended. States that we don't know are
// none that a run ends in.
func (o *oldRun) unfinished() bool { return !parley.RunStatus(o.run.Status).Terminal() }

// add takes the next row of its steps.
func (o *oldRun) add(step *stepRow) {
	o.rows++
	o.size += step.size()
	if o.rows > maxRunSteps || o.size > maxRunBytes {
		o.steps = nil
		return
	}
	o.steps = append(o.steps, *step)
}

// held is about how many bytes of the run are in memory.
func (o *oldRun) held() int64 {
	if o.rows > len(o.steps) {
		return o.run.size()
	}
	return o.size
}

// record makes the run as it is kept here.
func (o *oldRun) record() (store.Import, error) {
	if o.rows > maxRunSteps {
		return store.Import{}, parley.Errorf(parley.CodeLimit, "it has %d rows of steps, the limit is %d", o.rows, maxRunSteps)
	}
	if o.size > maxRunBytes {
		return store.Import{}, parley.Errorf(parley.CodeLimit, "its values and errors have %d bytes, the limit is %d", o.size, maxRunBytes)
	}
	if err := o.checkDepth(); err != nil {
		return store.Import{}, err
	}
	run, err := o.row()
	if err != nil {
		return store.Import{}, err
	}
	b := builder{old: o, run: run}
	if err := b.build(); err != nil {
		return store.Import{}, err
	}
	run.Seq = int64(len(b.events))
	return store.Import{Kind: store.ImportRun, ID: run.ID, Run: run, Events: b.events}, nil
}

// checkDepth refuses values that are nested too deep for an event.
func (o *oldRun) checkDepth() error {
	if deep(textOf(o.run.Input)) {
		return tooDeep("its input_data")
	}
	for i := range o.steps {
		if s := &o.steps[i]; deep(s.Input) || deep(textOf(s.Output)) {
			return tooDeep("a value of the row " + s.ID + " of its steps")
		}
	}
	return nil
}

func tooDeep(what string) error {
	return parley.Errorf(parley.CodeLimit, "%s is nested deeper than the limit of %d", what, maxDepth)
}

// deep reports whether a JSON value is nested deeper than maxDepth.
func deep(value string) bool {
	depth, quoted := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// row makes the run's row; what the events say is not in it yet.
func (o *oldRun) row() (*store.Run, error) {
	r := o.run
	run := &store.Run{
		ID: r.ID, Workflow: r.WorkflowID, Name: r.WorkflowName, DefinitionID: textOf(r.DefinitionID),
		Status: parley.RunStatus(r.Status), TriggeredBy: textOf(r.TriggeredBy), CancelledBy: textOf(r.CancelledBy),
	}
	if o.workflow != "" {
		run.Workflow = o.workflow
	}
	completed, err1 := timeOf(r.CompletedAt)
	cancelled, err2 := timeOf(r.CancelledAt)
	var err3, err4 error
	run.CreatedAt, err3 = timeOf(r.CreatedAt)
	run.UpdatedAt, err4 = timeOf(r.UpdatedAt)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return nil, err
		}
	}
	run.StartedAt = run.CreatedAt
	ends := []time.Time{completed, cancelled, run.UpdatedAt, run.CreatedAt}
	switch {
	case o.unfinished():
		run.Status, ends = parley.RunFailed, []time.Time{o.now}
	case run.Status == parley.RunCancelled:
		ends[0], ends[1] = cancelled, completed
	}
	run.EndedAt = ends[slices.IndexFunc(ends, func(t time.Time) bool { return !t.IsZero() })]
	return run, nil
}

// builder makes the history of one run.
type builder struct {
	old    *oldRun
	run    *store.Run
	events []parley.Event
}

func (b *builder) add(t parley.EventType, e parley.Event, payload any) {
	e.Seq, e.Type, e.Run, e.Data = int64(len(b.events))+1, t, b.run.ID, encode(payload)
	b.events = append(b.events, e)
}

func (b *builder) build() error {
	r := b.old.run
	b.add(parley.EventRunStarted, parley.Event{At: b.run.CreatedAt}, runStarted{
		Workflow: b.run.Workflow, Input: raw(r.Input), Trigger: b.run.TriggeredBy,
		Row: &runKept{WorkflowID: r.WorkflowID, Status: r.Status, Error: textOf(r.Error)},
	})
	last, err := b.steps()
	if err != nil {
		return err
	}
	b.end(last)
	return nil
}

// end adds the last event, and what leads to it. last is the step that was under
// way last, or "".
func (b *builder) end(last string) {
	at := parley.Event{At: b.run.EndedAt}
	if b.old.unfinished() {
		b.fail(b.old.stuck(last))
		return
	}
	text := textOf(b.old.run.Error)
	switch b.run.Status {
	case parley.RunCompleted:
		// The existing platform keeps no output of a run.
		b.add(parley.EventRunCompleted, at, runCompleted{Output: json.RawMessage("null")})
	case parley.RunCancelled:
		b.run.CancelReason = strings.TrimPrefix(text, "Cancelled: ")
		b.add(parley.EventRunCancelling, at, runCancelling{b.run.CancelledBy, b.run.CancelReason})
		b.add(parley.EventRunCancelled, at, runEnded{})
	default:
		b.fail(runError(text))
	}
}

func (b *builder) fail(err *parley.Error) {
	b.run.Error = encode(err)
	b.add(parley.EventRunFailed, parley.Event{At: b.run.EndedAt}, runEnded{err})
}

// stuck is the error of a run that had not ended.
func (o *oldRun) stuck(last string) *parley.Error {
	text := fmt.Sprintf("the run was %s on the existing platform when it was imported, and does not go on here; retry it if it does not go on there either",
		o.run.Status)
	if old := textOf(o.run.Error); old != "" {
		text += " (" + old + ")"
	}
	if last == "" {
		return parley.Errorf(parley.CodeStalled, "%s", text)
	}
	err := parley.Errorf(parley.CodeOutcomeUnknown, "%s", text)
	err.Step = last
	return err
}

// atStep is how the existing platform begins the error of a run.
var atStep = regexp.MustCompile(`(?s)^Workflow failed at step '([^']*)': (.*)$`)

// runError reads the error of a run, so that it is shown with the same text.
func runError(text string) *parley.Error {
	if text == "" {
		return parley.Errorf(parley.CodeAgentError, "failed; the existing platform has recorded no reason")
	}
	m := atStep.FindStringSubmatch(text)
	if m == nil {
		return stepError(text)
	}
	err := stepError(m[2])
	err.Step = m[1]
	return err
}

// stepError gives a text of the existing platform the code that goes with it.
func stepError(text string) *parley.Error {
	code := parley.CodeAgentError
	switch {
	case text == "":
		text = "failed; the existing platform has recorded no reason"
	case strings.Contains(text, "Timeout waiting for agent result"):
		code = parley.CodeTimeout
	case strings.Contains(text, "Cannot resolve "):
		code = parley.CodeExpression
	case strings.Contains(text, "not found in API database or registry"):
		code = parley.CodeUnknownAgent
	}
	return parley.Errorf(code, "%s", text)
}

// raw gives a JSON value that may be NULL.
func raw(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}
