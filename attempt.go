package parley

import (
	"encoding/json"
	"time"
)

// Attempt is one call of an agent for a step, as callers see it. The secrets
// that the agent was called with are not in it.
type Attempt struct {
	TaskID string `json:"task_id"`
	// Step is the path of the step's execution; Number counts its attempts
	// from 1.
	Step   string `json:"step"`
	Number int    `json:"attempt"`
	Agent  string `json:"agent"`
	// State is open (waits, until NotBefore), claimed (with the agent, as far as
	// is known), following (the agent has accepted it), settled or closed.
	State string `json:"state"`
	// Outcome is empty until the attempt has ended.
	Outcome Outcome `json:"outcome,omitempty"`
	// Status is the HTTP status that the call was answered with; 0 if there was
	// none.
	Status int    `json:"status,omitempty"`
	Error  *Error `json:"error,omitempty"`
	// Request is the step's input, Response what the agent answered. One that is
	// larger than 64 KiB is left out; its size is always there. What came instead
	// of an answer stands in Error.
	Request       json.RawMessage `json:"request"`
	RequestBytes  int64           `json:"request_bytes"`
	Response      json.RawMessage `json:"response"`
	ResponseBytes int64           `json:"response_bytes"`
	// RetryAfterMS is the least delay before the next attempt that the agent
	// asked for.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Sendings counts how often it was sent, or may have been: more than once if
	// its outcome was in doubt and the agent's policy allows that.
	Sendings int `json:"sendings"`
	// AgentTaskID and Endpoint are where the agent has accepted it.
	AgentTaskID string     `json:"agent_task_id,omitempty"`
	Endpoint    string     `json:"endpoint,omitempty"`
	ScheduledAt time.Time  `json:"scheduled_at"`
	NotBefore   *time.Time `json:"not_before,omitempty"`
	StartedAt   *time.Time `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
	// TookMS is the time between the two.
	TookMS *int64 `json:"took_ms"`
	// Late are the answers that came after the end of the attempt, the first 10 of
	// them: they are shown and have changed nothing.
	Late []LateAnswer `json:"late,omitempty"`
	// Unreadable: request, response, or what came of it cannot be read, or is no JSON,
	// and is left out. The server's log says why.
	Unreadable bool `json:"unreadable,omitempty"`
}

// LateAnswer is an answer that came when nobody waited for it any more: the attempt
// had timed out, was cancelled, or had another answer.
type LateAnswer struct {
	At time.Time `json:"at"`
	// From is the bridge that it came to.
	From    string  `json:"from,omitempty"`
	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status,omitempty"`
	Error   *Error  `json:"error,omitempty"`
	// Response is what the agent answered. Of one that is larger only the first
	// 64 KiB are kept: ResponseStart has them then, as text. A page of attempts has
	// at most 4 MiB of both; what is beyond that is left out, its size is there.
	Response      json.RawMessage `json:"response,omitempty"`
	ResponseStart string          `json:"response_start,omitempty"`
	ResponseBytes int64           `json:"response_bytes"`
	AgentTaskID   string          `json:"agent_task_id,omitempty"`
}

// AttemptQuery selects attempts of one run.
type AttemptQuery struct {
	Run string
	// Step is the path of a step's execution; "" is all.
	Step string
	Page Page
}
