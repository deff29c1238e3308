package a2a

import (
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// sort is what an answer or an event is about.
type sort int

const (
	sortTask sort = iota + 1
	sortMessage
	sortStatus   // an event: the status has changed
	sortArtifact // an event: there is more output
)

// answer is a result or an event taken apart. Members that are absent are nil;
// the others are raw JSON.
type answer struct {
	sort sort
	// raw is the object as it stands, without the wrapper that 1.0 has.
	raw []byte
	// bare: parts without kind are a deviation here, so they are warned about.
	bare bool
	// clashes: it has members of the names that outputs add.
	clashes bool
	// said: the wrapper says that it is a message.
	said bool
	// agent is whose words it holds, nil if its credentials are not to be kept out.
	agent *parley.Agent

	kind, id, contextID, taskID      []byte
	status, artifacts, history       []byte
	role, parts                      []byte
	artifact, appendTo, last         []byte
	state, statusMessage, timestamp  []byte // of the status
	version                          Version
	task, message, statusUp, artifUp []byte // the wrapper's

	warnings []bridge.Warning
}

// maxID bounds an agent's name for a task or a context, in bytes of JSON: it is
// kept, and sent back with every question.
const maxID = 1 << 10

// read takes a result or an event apart. It reads either dialect's form,
// whatever v says, wherever that is unambiguous: a bare object, with or without
// kind, or one that is wrapped in task, message, statusUpdate or artifactUpdate.
// The error is a [*bridge.DefectError].
func read(v Version, raw []byte) (*answer, error) {
	a := &answer{version: v, raw: raw, bare: v != V10}
	if raw[0] != '{' {
		a.sort = sortTask
		a.warn("result is not an object")
		return a, nil
	}
	if err := a.collect("Response result", raw, a.member); err != nil {
		return nil, err
	}
	if inner, said := a.wrapped(); inner != nil {
		*a = answer{version: v, raw: inner, said: said}
		if err := a.collect("Response result", inner, a.member); err != nil {
			return nil, err
		}
	}
	for _, id := range [][]byte{a.id, a.contextID, a.taskID} {
		if len(id) > maxID+len(`""`) {
			return nil, bridge.Defectf("long_id", "Response result names a task or a context in %d bytes, at most %d are kept", len(id)-len(`""`), maxID)
		}
	}
	if present(a.status) && a.status[0] != '{' {
		a.warn("result.status is not an object")
	}
	if err := a.collect("Response result.status", a.status, a.statusMember); err != nil {
		return nil, err
	}
	if present(a.state) && a.state[0] != '"' {
		a.warn("result.status.state is not a string")
	}
	a.sort = a.sorted()
	return a, nil
}

// read is [read] of what the agent of e says, whose credentials are kept out of words.
func (e *errand) read(raw []byte) (*answer, error) {
	a, err := read(e.to.Version, raw)
	if err == nil {
		a.agent = &e.agent
	}
	return a, err
}

// collect notes the members of object for which there is a place; each may
// stand once.
func (a *answer) collect(what string, object []byte, place func(name []byte) *[]byte) error {
	for name, value := range bridge.Members(object) {
		member := place(name)
		if member == nil {
			continue
		}
		if *member != nil {
			return twice(what, name)
		}
		*member = value
	}
	return nil
}

func (a *answer) member(name []byte) *[]byte {
	switch string(name) {
	case "kind":
		return &a.kind
	case "id":
		return &a.id
	case "contextId":
		return &a.contextID
	case "taskId":
		return &a.taskID
	case "status":
		return &a.status
	case "artifacts":
		return &a.artifacts
	case "history":
		return &a.history
	case "role":
		return &a.role
	case "parts":
		return &a.parts
	case "artifact":
		return &a.artifact
	case "append":
		return &a.appendTo
	case "lastChunk":
		return &a.last
	case "task":
		return &a.task
	case "message":
		return &a.message
	case "statusUpdate":
		return &a.statusUp
	case "artifactUpdate":
		return &a.artifUp
	case "text", "response", "data", "context_id", "task_id":
		a.clashes = true
	}
	return nil
}

func (a *answer) statusMember(name []byte) *[]byte {
	switch string(name) {
	case "state":
		return &a.state
	case "message":
		return &a.statusMessage
	case "timestamp":
		return &a.timestamp
	}
	return nil
}

// wrapped gives the object inside the wrapper of 1.0, or nil if there is no
// wrapper: an object that says what it is itself may have members of these
// names for its own purposes. said: what is inside is called a message.
func (a *answer) wrapped() (inner []byte, said bool) {
	if a.kind != nil || a.id != nil || a.status != nil || a.parts != nil || a.taskID != nil || a.artifact != nil {
		return nil, false
	}
	for i, inner := range [][]byte{a.task, a.message, a.statusUp, a.artifUp} {
		if len(inner) > 0 && inner[0] == '{' {
			return inner, i == 1
		}
	}
	return nil, false
}

// sorted says what a is about, by its kind or else by its members.
func (a *answer) sorted() sort {
	switch kind, _ := bridge.Text(a.kind); kind {
	case "task":
		return sortTask
	case "message":
		return sortMessage
	case "status-update":
		return sortStatus
	case "artifact-update":
		return sortArtifact
	case "":
	default:
		return sortTask
	}
	switch {
	case a.status == nil && a.role != nil && (a.parts != nil || a.said): // Protocol Buffers leave an empty list out
		return sortMessage
	case a.id == nil && a.taskID != nil && a.status != nil:
		return sortStatus
	case a.id == nil && a.taskID != nil && present(a.artifact):
		return sortArtifact
	}
	return sortTask
}

// warn notes an unexpected structure (BR-4.7), for at most 16 places.
func (a *answer) warn(text string) {
	if len(a.warnings) < 16 {
		a.warnings = append(a.warnings, bridge.Warning{Kind: "unexpected_structure", Text: text})
	}
}

// task gives the agent's ids of task and conversation, each "" if there is none.
func (a *answer) ids() (taskID, contextID string) {
	if a.sort == sortTask {
		taskID, _ = bridge.Text(a.id)
	} else {
		taskID, _ = bridge.Text(a.taskID)
	}
	contextID, _ = bridge.Text(a.contextID)
	return taskID, contextID
}

// The states that decide something, as A2A 0.3 spells them.
const (
	stateSubmitted = "submitted"
	stateWorking   = "working"
	stateInput     = "input-required"
	stateAuth      = "auth-required"
	stateCompleted = "completed"
	stateCanceled  = "canceled"
	stateFailed    = "failed"
	stateRejected  = "rejected"
	stateUnknown   = "unknown"
)

// stateName is the state as A2A 0.3 spells it, or "unknown" (BR-2.10). The
// names of 1.0 are read in both dialects and in any case; without their prefix
// only states of 1.0 are, since agents of the seeds are taken by their exact
// word.
func (a *answer) stateName() string {
	state, _ := bridge.Text(a.state)
	if state == "" {
		return stateUnknown
	}
	const prefix = "TASK_STATE_"
	name := state
	if len(state) > len(prefix) && strings.EqualFold(state[:len(prefix)], prefix) {
		name = state[len(prefix):]
	} else if a.version != V10 {
		return limited(state)
	}
	name = strings.ReplaceAll(strings.ToLower(limited(name)), "_", "-")
	switch name {
	case "unspecified":
		return stateUnknown
	case "cancelled":
		return stateCanceled
	}
	return name
}

// goesOn says whether the agent may come back to a task in this state.
func goesOn(state string) bool {
	switch state {
	case stateSubmitted, stateWorking, stateInput, stateAuth:
		return true
	}
	return false
}

// final says whether a task that is in state has ended.
func final(state string) bool {
	switch state {
	case stateCompleted, stateFailed, stateCanceled, stateRejected:
		return true
	}
	return false
}

// standing is the state together with what else changes while an agent works:
// when it said so last, and how much there is.
func (a *answer) standing(state string) string {
	if at, _ := bridge.Text(a.timestamp); at != "" {
		state += " " + limited(at)
	}
	for _, list := range []struct {
		raw  []byte
		noun string
	}{{a.artifacts, "artifacts"}, {a.history, "messages"}} {
		n := 0
		for range bridge.Elements(list.raw) {
			n++
		}
		if n > 0 {
			state += ", " + strconv.Itoa(n) + " " + list.noun
		}
	}
	return state
}

// outcome is what the answer means for the attempt taskID.
func (a *answer) outcome(taskID string) bridge.Outcome {
	id, contextID := a.ids()
	out := bridge.Outcome{
		Disposition: bridge.Answered, AgentTaskID: id, ContextID: contextID,
		Result: parley.Result{TaskID: taskID, AgentTaskID: id, ContextID: contextID},
	}
	state := a.stateName()
	switch {
	case a.sort == sortMessage || state == stateCompleted:
		out.Result.Outcome, out.Result.Output = parley.OutcomeOK, a.output()
		return out
	case a.sort == sortArtifact && id != "":
		out.Disposition, out.State = bridge.Accepted, stateWorking
		return out
	case goesOn(state) && id != "":
		out.Disposition, out.State, out.Question = bridge.Accepted, a.standing(state), a.question(state)
		return out
	}
	e := parley.Errorf(parley.CodeAgentError, "Task state: %s", state)
	e.Retryable = true
	if state == stateRejected {
		e.Code, e.Retryable = parley.CodeAgentRejected, false
	}
	out.Result.Outcome = parley.OutcomeError
	out.Result.Err = e.WithDetails(stateDetails{
		State: state, Message: a.statusText(maxWords), AgentTaskID: limited(id), ContextID: limited(contextID),
	})
	return out
}

// stateDetails is what the details of a failed task hold.
type stateDetails struct {
	State       string `json:"state"`
	Message     string `json:"message,omitempty"`
	AgentTaskID string `json:"agent_task_id,omitempty"`
	ContextID   string `json:"context_id,omitempty"`
}

// maxTold bounds what is passed on of an agent's words for people, and the
// other parts of its message, in bytes.
const maxTold = 64 << 10

// statusText is what the agent says about its state, at most limit bytes. A
// credential that would be cut through is taken out here: later it is not known again.
func (a *answer) statusText(limit int) string {
	text, _ := bridge.Text(joined(a.partTexts(a.statusMessage, "result.status.message")))
	if a.agent != nil {
		return bridge.Redact(*a.agent, []byte(text), limit)
	}
	return cut(text, limit)
}

// question is what the agent waits for in this state, or nil.
func (a *answer) question(state string) *parley.Question {
	q := &parley.Question{Kind: parley.QuestionInput}
	switch state {
	case stateInput:
	case stateAuth:
		q.Kind = parley.QuestionAuth
	default:
		return nil
	}
	q.Text = a.statusText(maxTold)
	parts := partsOf(a.statusMessage)
	if len(parts) <= maxTold && hasMore(parts) {
		q.Parts = append(q.Parts, parts...)
	}
	return q
}

// partsOf gives the parts of a message or an artifact, or nil.
func partsOf(holder []byte) []byte {
	for name, value := range bridge.Members(holder) {
		if string(name) == "parts" {
			return value
		}
	}
	return nil
}

// hasMore says whether a list of parts holds anything but texts.
func hasMore(parts []byte) bool {
	for p := range bridge.Elements(parts) {
		if contentOf(p).text == nil {
			return true
		}
	}
	return false
}
