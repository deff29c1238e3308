package parley

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Code is the machine-readable kind of an [Error]. A Code is not an error, so
// that one cannot be returned by mistake.
type Code string

// The codes of steps and runs (language.md §5).
const (
	CodeAgentUnavailable Code = "agent_unavailable"
	CodeAgentError       Code = "agent_error"
	CodeAgentRejected    Code = "agent_rejected"
	CodeTimeout          Code = "timeout"
	CodeStalled          Code = "stalled"
	CodeInvalidOutput    Code = "invalid_output"
	CodeInvalidInput     Code = "invalid_input"
	CodeExpression       Code = "expression"
	CodeLimit            Code = "limit"
	CodeUnknownAgent     Code = "unknown_agent"
	CodeOutcomeUnknown   Code = "outcome_unknown"
	CodeCancelled        Code = "cancelled"
	CodeJoinFailed       Code = "join_failed"
	// CodeToleranceExceeded and CodeMaxIterations are those of loops.
	CodeToleranceExceeded Code = "tolerance_exceeded"
	CodeMaxIterations     Code = "max_iterations"
	CodeFinallyFailed     Code = "finally_failed"
	CodePlanInvalid       Code = "plan_invalid"
	CodeValidationFailed  Code = "validation_failed"
	CodeApprovalRejected  Code = "approval_rejected"
	// CodeSubWorkflowFailed and CodeSubWorkflowCancelled say what became of a child.
	CodeSubWorkflowFailed    Code = "sub_workflow_failed"
	CodeSubWorkflowCancelled Code = "sub_workflow_cancelled"
)

// The codes of requests that are refused before or beside a run.
const (
	CodeInvalid             Code = "invalid"
	CodeNotFound            Code = "not_found"
	CodeConflict            Code = "conflict"
	CodeIdempotencyConflict Code = "idempotency_conflict"
	CodeUnsupportedProtocol Code = "unsupported_protocol"
	CodeUnauthorized        Code = "unauthorized"
	CodeForbidden           Code = "forbidden"
	CodeUnavailable         Code = "unavailable"
	CodeInternal            Code = "internal"
)

// Error is the one error type that crosses package borders and is shown to
// people. Message says what happened, where, and where it helps what to do
// next; it never holds a secret. Cause is another error of the same form
// (language.md §5); Unwrap gives the Go error that led here, which goes to
// logs only and is never encoded.
type Error struct {
	Code      Code            `json:"code"`
	Message   string          `json:"message"`
	Step      string          `json:"step,omitempty"`
	Attempt   int             `json:"attempt,omitempty"`
	Agent     string          `json:"agent,omitempty"`
	Retryable bool            `json:"retryable"`
	Details   json.RawMessage `json:"details,omitempty"`
	Cause     *Error          `json:"cause,omitempty"`

	wrapped error
}

// Errorf makes an [Error] of the given code. A %w verb is honoured: the
// wrapped error is found by [errors.Is] and [errors.As]. If it is an Error of the
// same code, the message does not repeat the code.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error(), wrapped: errors.Unwrap(err)}
	if inner, ok := errors.AsType[*Error](e.wrapped); ok && inner.Code == code {
		e.Message = strings.Replace(e.Message, inner.Error(), inner.Message, 1)
	}
	return e
}

// Error gives "code: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap gives the Go error that e was made from, or nil.
func (e *Error) Unwrap() error { return e.wrapped }

// WithDetails returns a copy of e whose Details are v as JSON. Values that
// JSON cannot hold are left out.
func (e *Error) WithDetails(v any) *Error {
	c := *e
	if b, err := json.Marshal(v); err == nil {
		c.Details = b
	}
	return &c
}

// CodeOf gives the code of the first [Error] in err's chain, CodeInternal for
// any other error and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
