package a2a

import (
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// answer is a result taken apart: a task or a message. Absent members are nil.
type answer struct {
	raw []byte // the result as it stands

	kind, id, contextID, taskID []byte
	status, artifacts, history  []byte
	role, parts                 []byte
	state, statusMessage        []byte
	timestamp                   []byte // of the status

	warnings []bridge.Warning
}

// readAnswer takes result apart. The error is a [*bridge.DefectError].
func readAnswer(result []byte) (*answer, error) {
	a := &answer{raw: result}
	if result[0] != '{' {
		a.warn("result is not an object")
		return a, nil
	}
	for name, value := range bridge.Members(result) {
		member := a.member(name)
		if member == nil {
			continue
		}
		if *member != nil {
			return nil, twice("Response result", name)
		}
		*member = value
	}
	if present(a.status) && a.status[0] != '{' {
		a.warn("result.status is not an object")
	}
	for name, value := range bridge.Members(a.status) {
		var member *[]byte
		switch string(name) {
		case "state":
			member = &a.state
		case "message":
			member = &a.statusMessage
		case "timestamp":
			member = &a.timestamp
		default:
			continue
		}
		if *member != nil {
			return nil, twice("Response result.status", name)
		}
		*member = value
	}
	if present(a.state) && a.state[0] != '"' {
		a.warn("result.status.state is not a string")
	}
	return a, nil
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
	}
	return nil
}

// warn notes an unexpected structure (BR-4.7), for at most 16 places.
func (a *answer) warn(text string) {
	if len(a.warnings) < 16 {
		a.warnings = append(a.warnings, bridge.Warning{Kind: "unexpected_structure", Text: text})
	}
}

// isMessage reports whether the agent answered with a message and no task.
func (a *answer) isMessage() bool {
	kind, ok := bridge.Text(a.kind)
	if ok {
		return kind == "message"
	}
	return a.status == nil && a.parts != nil && a.role != nil
}

// stateName is the state, or "unknown" (BR-2.10).
func (a *answer) stateName() string {
	state, ok := bridge.Text(a.state)
	if !ok || state == "" {
		return "unknown"
	}
	return limited(state)
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
	id, _ := bridge.Text(a.id)
	contextID, _ := bridge.Text(a.contextID)
	out := bridge.Outcome{
		Disposition: bridge.Answered, AgentTaskID: id, ContextID: contextID,
		Result: parley.Result{TaskID: taskID, AgentTaskID: id, ContextID: contextID},
	}
	if a.isMessage() {
		out.AgentTaskID, _ = bridge.Text(a.taskID)
		out.Result.AgentTaskID = out.AgentTaskID
		out.Result.Outcome, out.Result.Output = parley.OutcomeOK, a.output()
		return out
	}
	state := a.stateName()
	switch state {
	case "completed":
		out.Result.Outcome, out.Result.Output = parley.OutcomeOK, a.output()
		return out
	case "submitted", "working", "input-required", "auth-required":
		if id != "" {
			out.Disposition, out.State = bridge.Accepted, a.standing(state)
			return out
		}
	}
	e := parley.Errorf(parley.CodeAgentError, "Task state: %s", state)
	e.Retryable = true
	if state == "rejected" {
		e.Code, e.Retryable = parley.CodeAgentRejected, false
	}
	out.Result.Outcome = parley.OutcomeError
	out.Result.Err = e.WithDetails(stateDetails{
		State: state, Message: a.statusText(), AgentTaskID: limited(id), ContextID: limited(contextID),
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

// statusText is what the agent says about its state, at most 4 KiB.
func (a *answer) statusText() string {
	const limit = 4 << 10
	text, _ := bridge.Text(joined(a.partTexts(a.statusMessage, "result.status.message")))
	if len(text) > limit {
		text = text[:limit]
	}
	return text
}

// Response reads an agent's answer to message/send for the attempt taskID, with
// a 2xx status. The error is a [*bridge.DefectError]: the answer cannot be used.
func Response(body []byte, taskID string) (bridge.Outcome, []bridge.Warning, error) {
	return respond(body, taskID, nil)
}

// respond is Response that tells progress of a task that is not finished.
func respond(body []byte, taskID string, progress bridge.Progress) (bridge.Outcome, []bridge.Warning, error) {
	env, err := open(body, taskID)
	if err != nil {
		return bridge.Outcome{}, nil, err
	}
	if env.failure != nil {
		return failed(taskID, env.failure.asError(0)), nil, nil
	}
	a, err := readAnswer(env.result)
	if err != nil {
		return bridge.Outcome{}, nil, err
	}
	out := a.outcome(taskID)
	if out.Disposition == bridge.Accepted && progress != nil {
		progress(bridge.Report{State: out.State, Text: a.statusText()})
	}
	return out, a.warnings, nil
}

// failed is an answer that ends the task without an output.
func failed(taskID string, e *parley.Error) bridge.Outcome {
	return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: taskID, Outcome: parley.OutcomeError, Err: e}}
}
