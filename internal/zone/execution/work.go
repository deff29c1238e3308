// Package execution is the serving side of a zone connection: the HTTP routes of an
// Execution Zone (ZN-2…ZN-6), which take requests of the contract and have the work
// done by a [Work]. It has two listeners: [Zone.Handler] is the HTTP contract of
// Bedrock AgentCore, and [Zone.A2AHandler] its A2A contract.
//
// # Tasks and ids
//
// The id of a request that is a UUID is the id of its task: the same request sent
// twice is one task, and has one answer. Whoever lost the response asks for it with
// get_async_task_result, and the id of the request. Every other id, such as the 1
// with which many libraries number every request, makes a task of its own.
//
// # What comes back
//
// Every response is JSON-RPC over HTTP 200, failures too, except that a caller who
// is not authorized gets 401. The data of an error has a reason and a correlation
// id, and nothing of what went wrong inside: that is in the log, in the line that
// has the correlation id.
package execution

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// Work does what tasks ask for, and remembers it. Any number of goroutines may use
// it at the same time.
type Work interface {
	// Start begins the task key, durably: when it returns nil the task goes on
	// whatever becomes of the caller or of this process. With a key that was started
	// before it does nothing if in has the same Fingerprint, and returns ErrConflict
	// if not. Other errors are *OverloadedError, ErrStopping, ErrInvalid, or anything
	// else for a failure inside.
	Start(ctx context.Context, key string, in Input) error
	// Await waits until the task has ended, or until ctx has: then the State is
	// Running and the error nil. The error is ErrUnknown for a task that was never
	// started or is forgotten, or anything else for a failure inside.
	Await(ctx context.Context, key string) (Outcome, error)
	// Look is Await that does not wait.
	Look(ctx context.Context, key string) (Outcome, error)
	// Running counts the tasks that run, also those that an earlier process has
	// started. It never blocks: the platform asks every other second.
	Running() int
}

// What a Work may refuse.
var (
	// ErrConflict: the key belongs to a task with another input.
	ErrConflict = errors.New("execution: the key belongs to another task")
	// ErrUnknown: no task has the key.
	ErrUnknown = errors.New("execution: no task has this key")
	// ErrStopping: nothing is begun any more.
	ErrStopping = errors.New("execution: being stopped")
	// ErrInvalid: the input is not what the workflow takes.
	ErrInvalid = errors.New("execution: the input is not what the workflow takes")
)

// An OverloadedError is a Work's word that it has enough to do.
type OverloadedError struct {
	// RetryAfter is when to try again, 0 if that is not known.
	RetryAfter time.Duration
}

// Error says that there is too much to do.
func (e *OverloadedError) Error() string { return "execution: overloaded" }

// Input is a task without its token, which goes no further than the door.
type Input struct {
	Text          string            `json:"text"`
	Channel       string            `json:"channel,omitempty"`
	ThreadTS      string            `json:"thread_ts,omitempty"`
	TeamID        string            `json:"team_id,omitempty"`
	UserID        string            `json:"user_id,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Attachments   []zone.Attachment `json:"attachments,omitempty"`
	// Trace is the trace context of the request that starts the task; that of a task
	// which was started is not told.
	Trace parley.Trace `json:"-"`
}

// Fingerprint tells inputs apart that one key must not have. What differs when a
// request is made again does not count: the correlation id, and the links that
// were signed anew.
func (in Input) Fingerprint() string {
	in.CorrelationID = ""
	attachments := make([]zone.Attachment, len(in.Attachments))
	for i, a := range in.Attachments {
		a.PresignedURL = ""
		attachments[i] = a
	}
	in.Attachments = attachments
	text, err := json.Marshal(in)
	if err != nil { // strings and numbers always encode
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A State says how a task stands.
type State int

// The states. All but Running are final.
const (
	Running State = iota
	Completed
	Failed
	Cancelled
	// TimedOut: it took longer than it may.
	TimedOut
	// Expired: it has ended, and what it gave is no longer kept.
	Expired
)

// An Outcome is how a task stands.
type Outcome struct {
	State State
	// Input is what the task was started with; its members come back in the result.
	Input Input
	// Output is what the workflow or the agent gave, of Completed.
	Output json.RawMessage
	// Cause says why it failed, for the log only.
	Cause string
}
