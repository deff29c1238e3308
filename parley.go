// Package parley is the vocabulary of the system: agents, workflows, runs,
// tasks, results, events and errors, as data with validation and nothing else.
//
// Every other package of the module may import it; it imports none of them.
// All types are plain values: they may be copied and read concurrently, and
// whoever changes one owns it. Values that travel between steps (inputs,
// outputs) are opaque JSON bytes ([encoding/json.RawMessage]) and are kept
// byte for byte: member order, big numbers and U+0000 pass unchanged.
//
// All times are UTC. All durations are whole milliseconds on the wire.
package parley

import (
	"encoding/json"
	"time"
)

// Names of the protocols that are built in. An agent names one of them, or one
// that was registered with the bridge besides (AD-4).
const (
	ProtocolSimpleA2A = "simple-a2a"
	ProtocolJSONRPC   = "jsonrpc-2.0"
)

// Task is one attempt of a step: what a bridge is to do with one agent. It is
// the adapter's whole view of the workflow.
type Task struct {
	// ID is "{run}.{path}.{attempt}": stable over re-deliveries of one
	// attempt, new for each attempt.
	ID string
	// Run is the id of the run that the task belongs to.
	Run string
	// Step is the path of the step's execution (language rule S9).
	Step string
	// Attempt counts from 1.
	Attempt int
	// Agent is the name of the agent to call.
	Agent string
	// Input is one JSON value, never empty.
	Input json.RawMessage
	// Foreign: an executor of the existing platform wants it done. Where its input
	// becomes a text, that is spelled as that platform spells it (formats.md).
	Foreign bool
	// CorrelationID is sent to the agent as X-Correlation-ID and stands on
	// every log line about the task; see [CorrelationID].
	CorrelationID string
	// ContextID continues an earlier conversation with the same agent, if set.
	ContextID string
	// Deadline is the instant at which the step's time is up; zero is none.
	Deadline time.Time
	// Trace is sent to the agent as traceparent and tracestate, if there is one.
	Trace Trace
}

// CorrelationID is the correlation id of a task that was given no other.
func CorrelationID(taskID string) string { return "corr-" + taskID }

// MessageID is the idempotency key that agents get beside the task id: stable
// for one attempt (BR-1.8).
func (t Task) MessageID() string { return "msg-" + t.ID }

// Outcome says how an attempt ended, or that nobody knows.
type Outcome string

// The outcomes of an attempt (protocol.md §1).
const (
	// OutcomeOK: the agent answered and the answer is a result.
	OutcomeOK Outcome = "ok"
	// OutcomeError: the attempt failed and is known to have ended, by the
	// agent's own answer or because nothing ever reached it.
	OutcomeError Outcome = "error"
	// OutcomeUnknown: bytes were sent, no answer is held, and the agent's
	// policy does not allow to find out. Never retried by itself.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeCancelled: ended by a cancel before an answer.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeTimeout: a timer of the run or the step closed the attempt.
	OutcomeTimeout Outcome = "timeout"
)

// Result is what came of one attempt.
type Result struct {
	// TaskID is always the id of the task that was asked for (BR-3.6).
	TaskID string
	// Outcome decides which of the other members are set.
	Outcome Outcome
	// Output is one JSON value with OutcomeOK, else nil (BR-3.5).
	Output json.RawMessage
	// Err is set with every outcome but OutcomeOK.
	Err *Error
	// RetryAfter is the least delay that the agent asked for; 0 is none.
	RetryAfter time.Duration
	// AgentTaskID and ContextID are the agent's own ids, if it gave any.
	AgentTaskID string
	ContextID   string
	// Status is the HTTP status that the call was answered with; 0 if there was
	// none. It is for people.
	Status int
}

// Question is what an agent waits for before it goes on with a task: input, or
// an authorization that somebody gives elsewhere. It is shown to people as the
// agent put it, and is not to be trusted.
type Question struct {
	Kind QuestionKind `json:"kind"`
	// Text is the agent's wording, at most 64 KiB.
	Text string `json:"text,omitempty"`
	// Parts is the agent's message as a JSON array of parts, at most 64 KiB,
	// or nil if it said nothing but text.
	Parts json.RawMessage `json:"parts,omitempty"`
	// Note is ours: what became of an answer that did not get through.
	Note string `json:"note,omitempty"`
}

// QuestionKind says what a [Question] asks for.
type QuestionKind string

// The kinds of questions (A2A states input-required and auth-required).
const (
	QuestionInput QuestionKind = "input"
	// QuestionAuth may also be settled out of band: the agent is asked again.
	QuestionAuth QuestionKind = "auth"
)

// Reply is what somebody answered to a [Question]: a text, or one JSON value,
// or both.
type Reply struct {
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// By is who answered, for the record.
	By string `json:"by,omitempty"`
}

// RunStatus is the state of a run (language.md §3).
type RunStatus string

// The states of a run. The last three are terminal.
const (
	RunPending   RunStatus = "PENDING"
	RunRunning   RunStatus = "RUNNING"
	RunCompleted RunStatus = "COMPLETED"
	RunFailed    RunStatus = "FAILED"
	RunCancelled RunStatus = "CANCELLED"
)

// Terminal reports whether nothing can leave s.
func (s RunStatus) Terminal() bool {
	return s == RunCompleted || s == RunFailed || s == RunCancelled
}

// StepStatus is the state of one execution of a step (language.md §3).
type StepStatus string

// The states of a step. All but the first two are terminal.
const (
	StepPending   StepStatus = "PENDING"
	StepRunning   StepStatus = "RUNNING"
	StepCompleted StepStatus = "COMPLETED"
	StepFailed    StepStatus = "FAILED"
	StepCancelled StepStatus = "CANCELLED"
	StepSkipped   StepStatus = "SKIPPED"
)

// Terminal reports whether nothing can leave s.
func (s StepStatus) Terminal() bool { return s != StepPending && s != StepRunning }

// StepPhase says more about a step that is RUNNING.
type StepPhase string

// The phases of a running step (language.md §3).
const (
	PhaseQueued        StepPhase = "queued"
	PhaseWorking       StepPhase = "working"
	PhaseBackoff       StepPhase = "backoff"
	PhaseWaiting       StepPhase = "waiting"
	PhaseInputRequired StepPhase = "input_required"
	PhaseStalled       StepPhase = "stalled"
	PhaseCancelling    StepPhase = "cancelling"
)

// Run is one execution of a workflow as callers see it (interface.md, REST).
type Run struct {
	ID          string            `json:"id"`
	Workflow    string            `json:"workflow"`
	Version     string            `json:"version"`
	Status      RunStatus         `json:"status"`
	Phase       string            `json:"phase,omitempty"`
	Paused      bool              `json:"paused,omitempty"`
	Input       json.RawMessage   `json:"input"`
	Output      json.RawMessage   `json:"output"`
	Error       *Error            `json:"error"`
	Labels      map[string]string `json:"labels"`
	RetriedFrom string            `json:"retried_from,omitempty"`
	// Compensated: something that the run had done was undone, so that no other run
	// can go on from it; false in lists.
	Compensated bool `json:"compensated,omitempty"`
	// InputBytes and OutputBytes are set in lists where the value is left out because
	// it is kept apart from the database: the run itself has it.
	InputBytes  int64 `json:"input_bytes,omitempty"`
	OutputBytes int64 `json:"output_bytes,omitempty"`
	// Unreadable is set in lists where input, output, error or labels of the run cannot be read:
	// the run itself is an internal error then, and the server's log says why.
	Unreadable bool `json:"unreadable,omitempty"`
	// Parent is the step that has started the run; nil if none did.
	Parent *RunParent `json:"parent,omitempty"`
	// RerunFrom is the step that a rerun of RetriedFrom began at; "" in lists.
	RerunFrom string `json:"rerun_from,omitempty"`
	// Priority is nil in lists, and if the start named none.
	Priority  *int       `json:"priority,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	// Steps is in the order in which the steps were first considered; steps
	// that were not reached yet follow as PENDING. Nil in lists.
	Steps []Step `json:"steps,omitempty"`
	// Seq is the number of the run's newest event.
	Seq int64 `json:"seq"`
	// Turn is set while the run is PENDING: it waits for its turn.
	Turn *Turn `json:"turn,omitempty"`
	// Traceparent and Tracestate are the trace context that the run passes on to
	// agents ([Trace]); "" if it has none, and in lists.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`

	// WorkflowName, DefinitionID, TriggeredBy, UpdatedAt, CancelledBy and
	// CancelReason are sent under the names of formats.md on the paths that
	// old clients use.
	WorkflowName string    `json:"-"`
	DefinitionID string    `json:"-"`
	TriggeredBy  string    `json:"-"`
	UpdatedAt    time.Time `json:"-"`
	CancelledBy  string    `json:"-"`
	CancelReason string    `json:"-"`
}

// Step is one execution of a step as callers see it (interface.md, REST).
type Step struct {
	// ID is the path of the execution (language rule S9); at the top level of
	// a workflow that is the id in the document.
	ID          string          `json:"id"`
	Kind        string          `json:"kind"`
	Status      StepStatus      `json:"status"`
	Phase       StepPhase       `json:"phase,omitempty"`
	Handled     bool            `json:"handled,omitempty"`
	Agent       string          `json:"agent,omitempty"`
	Protocol    string          `json:"protocol,omitempty"`
	Attempts    int             `json:"attempts"`
	Input       json.RawMessage `json:"input"`
	Output      json.RawMessage `json:"output"`
	Error       *Error          `json:"error"`
	AgentTaskID string          `json:"agent_task_id,omitempty"`
	// Question is set while Phase is PhaseInputRequired.
	Question *Question `json:"question,omitempty"`
	// Event is what a step of kind wait_for_event waits for, while it does.
	Event *AwaitedSignal `json:"event,omitempty"`
	// Approval is what a step of kind approval asks, while it waits.
	Approval *Approval `json:"approval,omitempty"`
	// Child is the run of a step of kind sub_workflow.
	Child       *ChildRun  `json:"child,omitempty"`
	ScheduledAt *time.Time `json:"scheduled_at"`
	StartedAt   *time.Time `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
}

// Event is one entry of a run's history. Seq starts at 1 and has no gaps.
// Readers ignore types that they don't know.
type Event struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Type    EventType       `json:"type"`
	Run     string          `json:"run"`
	Step    string          `json:"step,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Data    json.RawMessage `json:"data"`
}

// EventType names what happened (interface.md, events).
type EventType string

// The event types. Nothing writes [EventStepClaimed]: that an attempt was claimed
// stands with the attempt.
const (
	// EventRunQueued accepts a run that waits for its turn ([Turn]); EventRunStarted
	// begins it.
	EventRunQueued     EventType = "run.queued"
	EventRunStarted    EventType = "run.started"
	EventRunPaused     EventType = "run.paused"
	EventRunResumed    EventType = "run.resumed"
	EventRunCancelling EventType = "run.cancelling"
	EventRunCompleted  EventType = "run.completed"
	EventRunFailed     EventType = "run.failed"
	EventRunCancelled  EventType = "run.cancelled"
	EventRunWarning    EventType = "run.warning"
	// EventRunPhase begins what follows the body of a run: its compensation, or its
	// finally.
	EventRunPhase      EventType = "run.phase"
	EventStepScheduled EventType = "step.scheduled"
	EventStepClaimed   EventType = "step.claimed"
	EventTimerSet      EventType = "timer.set"
	EventTimerFired    EventType = "timer.fired"
	EventStepAccepted  EventType = "step.accepted"
	EventStepProgress  EventType = "step.progress"
	EventStepChunk     EventType = "step.chunk"
	EventStepWaiting   EventType = "step.waiting"
	EventStepAnswered  EventType = "step.answered"
	// EventSignalReceived: the event that a step waited for has come.
	EventSignalReceived EventType = "signal.received"
	// EventChildStarted: the step's own run has begun, EventChildEnded: it has ended,
	// or could not begin.
	EventChildStarted EventType = "child.started"
	EventChildEnded   EventType = "child.ended"
	EventStepRetrying EventType = "step.retrying"
	// EventStepAttemptFailed ends one attempt of a step whose agents are hedged;
	// the others go on.
	EventStepAttemptFailed EventType = "step.attempt_failed"
	// EventStepHandling: the step has failed and a handler of it is carried out.
	EventStepHandling     EventType = "step.handling"
	EventStepCompensating EventType = "step.compensating"
	EventStepCompensated  EventType = "step.compensated"
	EventStepCompleted    EventType = "step.completed"
	EventStepFailed       EventType = "step.failed"
	EventStepCancelled    EventType = "step.cancelled"
	EventStepSkipped      EventType = "step.skipped"
	// EventStepLate: an agent has answered after the end of an attempt. The answer
	// changes nothing and stands with the attempt ([Attempt].Late).
	EventStepLate EventType = "step.late"
)
