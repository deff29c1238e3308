package bridge

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/parley-project/parley"
)

// Adapter speaks one agent protocol (AD-1). Translations are pure functions
// beside it; the adapter itself only calls. All methods may be called
// concurrently.
type Adapter interface {
	// Protocol is the name by which agents choose the adapter.
	Protocol() string

	// Call sends task to agent once and says what came of it. It never retries
	// and never sends twice. ctx bounds the whole call; when it ends Call
	// closes the connection and says whether bytes had left.
	//
	// The error is non-nil only if nothing was sent because task or agent
	// cannot be translated: a [*TranslationError], or a [*parley.Error] with
	// the code of language.md §5. Everything else, also a useless answer, is
	// an Outcome.
	Call(ctx context.Context, task parley.Task, agent parley.Agent, progress Progress) (Outcome, error)
}

// Follower is an Adapter whose agents name a task that can be asked about.
type Follower interface {
	// Poll asks once for the state of the agent's own task. Accepted means
	// that it is still at work.
	Poll(ctx context.Context, task parley.Task, agent parley.Agent, agentTaskID string) (Outcome, error)
}

// Canceler is an Adapter whose agents can be told to stop a task.
type Canceler interface {
	// Cancel asks the agent to stop, best effort, and gives what is known
	// afterwards.
	Cancel(ctx context.Context, task parley.Task, agent parley.Agent, agentTaskID string) (Outcome, error)
}

// ConfigChecker is an Adapter that knows the members of its protocol_config.
type ConfigChecker interface {
	// CheckConfig reports every fault of config (a JSON object, or nil) at
	// once; the texts name the member.
	CheckConfig(config json.RawMessage) []error
}

// Progress takes signs of life during a call. It may be called from any
// goroutine of the adapter until Call returns, and returns at once.
type Progress func(Report)

// Report is one sign of life of an agent.
type Report struct {
	// State is the agent's own word for where it stands.
	State string
	// Text is what it says for people, capped by the adapter at 64 KiB.
	Text string
}

// Disposition says what a call has left behind, which decides what may be done
// next (protocol.md P7, P8).
type Disposition int

// The dispositions.
const (
	// Answered: the agent ended the task. Result is its answer, also when that
	// is a failure, and is never thrown away.
	Answered Disposition = iota + 1
	// Accepted: the agent works on it under AgentTaskID.
	Accepted
	// NotSent: nothing was executed: no connection, TLS refused, 429, 503.
	// Result.Err says why; Result.RetryAfter is the agent's wish.
	NotSent
	// Lost: bytes left and no answer is held: a reset, a cut or oversize body,
	// an exchange timeout, 502, 504. Result.Err says why.
	Lost
)

// Outcome is what a call came to.
type Outcome struct {
	Disposition Disposition
	// Result carries TaskID always, and Outcome, Output or Err as the
	// disposition says. With Lost and NotSent its Outcome is OutcomeError.
	Result parley.Result
	// AgentTaskID and ContextID are the agent's own ids, set with Accepted.
	AgentTaskID string
	ContextID   string
	// State, with Accepted, is the agent's word for where it stands, together
	// with whatever else changes while it works (a time, a count of
	// artifacts). A poll whose State differs from the former one is a sign of
	// life (language rule T2).
	State string
}

// TranslationError says that a task or an answer could not be translated
// (AD-9). Direction is "request" or "response". Data is the original, capped
// and redacted, for logs.
type TranslationError struct {
	Protocol  string
	Direction string
	Data      []byte
	Err       error
}

// Error gives "protocol direction: cause".
func (e *TranslationError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Protocol, e.Direction, e.Err)
}

// Unwrap gives the cause.
func (e *TranslationError) Unwrap() error { return e.Err }
