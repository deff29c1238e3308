package records

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
)

// The limits of records.
const (
	// MaxSize is the size of the largest record that is read, in bytes.
	MaxSize = 4 << 20
	// MaxDepth is how deep a value may be nested, in objects and arrays.
	MaxDepth = 256
	// MaxID bounds an id and MaxName an agent's name, in bytes.
	MaxID   = 16 << 10
	MaxName = 1 << 10
)

// The two states of an [AgentResult]. Only final results are ever written.
const (
	StatusSuccess = "SUCCESS"
	StatusFailure = "FAILURE"
)

// The states of a [MonitoringUpdate].
const (
	StatusRunning   = "RUNNING"
	StatusCompleted = "COMPLETED"
	StatusFailed    = "FAILED"
)

// AgentTask is a record of the tasks topic, key = RunID.
type AgentTask struct {
	RunID, TaskID, AgentName string
	// Input is a JSON object; none is {}.
	Input         json.RawMessage
	CorrelationID string
	// At is zero in a record that was read if its timestamp is none.
	At time.Time
}

// Answerable reports whether the record names everything that a result has to
// name.
func (t AgentTask) Answerable() bool {
	return t.RunID != "" && t.TaskID != "" && t.CorrelationID != ""
}

// Encode gives the record, or an error of code invalid or limit.
func (t AgentTask) Encode() ([]byte, error) {
	w := newWriter("AgentTask", 256+len(t.RunID)+len(t.TaskID)+len(t.CorrelationID)+len(t.Input))
	w.id("run_id", t.RunID)
	w.id("task_id", t.TaskID)
	w.id("agent_name", t.AgentName)
	w.object("input_data", t.Input)
	w.id("correlation_id", t.CorrelationID)
	w.timestamp(t.At)
	return w.end()
}

// DecodeTask reads a record. With an error of code invalid or limit what could
// be read is in it.
func DecodeTask(value []byte) (AgentTask, error) {
	t := AgentTask{}
	err := read("AgentTask", value, []field{
		{name: "run_id", required: true, take: text(&t.RunID, MaxID)},
		{name: "task_id", required: true, take: text(&t.TaskID, MaxID)},
		{name: "agent_name", required: true, take: text(&t.AgentName, MaxName)},
		{name: "input_data", take: object(&t.Input)},
		{name: "correlation_id", required: true, take: text(&t.CorrelationID, MaxID)},
		{name: "timestamp", take: instant(&t.At)},
	})
	if t.Input == nil {
		t.Input = json.RawMessage("{}")
	}
	return t, err
}

// AgentResult is a record of the results topic, key = CorrelationID.
type AgentResult struct {
	RunID, TaskID string
	// Status is StatusSuccess or StatusFailure when written. Whatever else is
	// read counts as a failure there.
	Status string
	// Output is any JSON value when written with StatusSuccess, and a JSON
	// object or nil when read.
	Output        json.RawMessage
	CorrelationID string
	// Error is written with StatusFailure only; "" is null.
	Error string
	At    time.Time
}

// Encode gives the record, or an error of code invalid or limit.
func (r AgentResult) Encode() ([]byte, error) {
	w := newWriter("AgentResult", 256+len(r.RunID)+len(r.TaskID)+len(r.CorrelationID)+len(r.Output)+len(r.Error))
	w.id("run_id", r.RunID)
	w.id("task_id", r.TaskID)
	switch r.Status {
	case StatusSuccess:
		w.text("status", r.Status)
		w.output("output_data", r.Output)
	case StatusFailure:
		w.text("status", r.Status)
		w.null("output_data")
	default:
		w.fail(parley.CodeInvalid, "status", "%q is neither SUCCESS nor FAILURE; nothing else may go to this topic", r.Status)
	}
	w.id("correlation_id", r.CorrelationID)
	if r.Status == StatusFailure && r.Error != "" {
		w.text("error_message", r.Error)
	} else {
		w.null("error_message")
	}
	w.timestamp(r.At)
	return w.end()
}

// DecodeResult reads a record. With an error of code invalid or limit what
// could be read is in it.
func DecodeResult(value []byte) (AgentResult, error) {
	r := AgentResult{}
	err := read("AgentResult", value, []field{
		{name: "run_id", required: true, take: text(&r.RunID, MaxID)},
		{name: "task_id", required: true, take: text(&r.TaskID, MaxID)},
		{name: "status", required: true, take: text(&r.Status, MaxName)},
		{name: "output_data", take: object(&r.Output)},
		{name: "correlation_id", required: true, take: text(&r.CorrelationID, MaxID)},
		{name: "error_message", take: optional(&r.Error)},
		{name: "timestamp", take: instant(&r.At)},
	})
	return r, err
}

// MonitoringUpdate is a record of the monitoring topic, key = RunID.
type MonitoringUpdate struct {
	RunID, StepID, StepName string
	// Status is StatusRunning, StatusCompleted or StatusFailed.
	Status string
	At     time.Time
	// Metadata is a JSON object; none is {}.
	Metadata json.RawMessage
}

// Encode gives the record, or an error of code invalid or limit.
func (m MonitoringUpdate) Encode() ([]byte, error) {
	w := newWriter("MonitoringUpdate", 256+len(m.Metadata))
	w.id("run_id", m.RunID)
	w.id("step_id", m.StepID)
	w.text("step_name", m.StepName)
	switch m.Status {
	case StatusRunning, StatusCompleted, StatusFailed:
		w.text("status", m.Status)
	default:
		w.fail(parley.CodeInvalid, "status", "%q is none of RUNNING, COMPLETED, FAILED", m.Status)
	}
	w.timestamp(m.At)
	w.object("metadata", m.Metadata)
	return w.end()
}

// DecodeMonitoring reads a record. With an error of code invalid or limit what
// could be read is in it.
func DecodeMonitoring(value []byte) (MonitoringUpdate, error) {
	m := MonitoringUpdate{}
	err := read("MonitoringUpdate", value, []field{
		{name: "run_id", required: true, take: text(&m.RunID, MaxID)},
		{name: "step_id", required: true, take: text(&m.StepID, MaxID)},
		{name: "step_name", required: true, take: text(&m.StepName, MaxID)},
		{name: "status", required: true, take: text(&m.Status, MaxName)},
		{name: "timestamp", take: instant(&m.At)},
		{name: "metadata", take: object(&m.Metadata)},
	})
	return m, err
}

// ExecutionRequest is a record of the topic of requests to start a run, key =
// RunID.
type ExecutionRequest struct {
	RunID string
	// Plan and Input are JSON objects; no Input is {}.
	Plan, Input json.RawMessage
	At          time.Time
}

const (
	messageType       = "message_type"
	executionType     = "execution_request"
	cancellationType  = "cancellation_request"
	recordOfExecution = "ExecutionRequest"
	recordOfCancel    = "CancellationRequest"
)

// Encode gives the record, or an error of code invalid or limit.
func (r ExecutionRequest) Encode() ([]byte, error) {
	w := newWriter(recordOfExecution, 256+len(r.Plan)+len(r.Input))
	w.id("run_id", r.RunID)
	if len(r.Plan) == 0 {
		w.fail(parley.CodeInvalid, "workflow_plan", "it is missing")
	}
	w.object("workflow_plan", r.Plan)
	w.object("input_data", r.Input)
	w.timestamp(r.At)
	w.text(messageType, executionType)
	return w.end()
}

// DecodeExecution reads a record. With an error of code invalid or limit what
// could be read is in it. The message_type may be absent, but no other.
func DecodeExecution(value []byte) (ExecutionRequest, error) {
	r := ExecutionRequest{}
	err := read(recordOfExecution, value, []field{
		{name: "run_id", required: true, take: text(&r.RunID, MaxID)},
		{name: "workflow_plan", required: true, take: needed(object(&r.Plan))},
		{name: "input_data", take: object(&r.Input)},
		{name: "timestamp", take: instant(&r.At)},
		{name: messageType, take: exactly(executionType)},
	})
	if r.Input == nil {
		r.Input = json.RawMessage("{}")
	}
	return r, err
}

// CancellationRequest is a record of the topic of requests to cancel a run, key
// = RunID.
type CancellationRequest struct {
	RunID string
	// CancelledBy and Reason are null if they are "".
	CancelledBy, Reason string
	At                  time.Time
}

// Encode gives the record, or an error of code invalid or limit.
func (r CancellationRequest) Encode() ([]byte, error) {
	w := newWriter(recordOfCancel, 256+len(r.Reason))
	w.id("run_id", r.RunID)
	for _, m := range []struct{ name, value string }{{"cancelled_by", r.CancelledBy}, {"reason", r.Reason}} {
		if m.value == "" {
			w.null(m.name)
		} else {
			w.text(m.name, m.value)
		}
	}
	w.timestamp(r.At)
	w.text(messageType, cancellationType)
	return w.end()
}

// DecodeCancellation reads a record. With an error of code invalid or limit
// what could be read is in it. The message_type may be absent, but no other.
func DecodeCancellation(value []byte) (CancellationRequest, error) {
	r := CancellationRequest{}
	err := read(recordOfCancel, value, []field{
		{name: "run_id", required: true, take: text(&r.RunID, MaxID)},
		{name: "cancelled_by", take: optional(&r.CancelledBy)},
		{name: "reason", take: optional(&r.Reason)},
		{name: "timestamp", take: instant(&r.At)},
		{name: messageType, take: exactly(cancellationType)},
	})
	return r, err
}
