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
	// closes the connection and says whether bytes had left. Directly before the
	// first byte it asks [Guarded], which an [Exchange] does by itself.
	//
	// The error is non-nil only if nothing was sent because task or agent
	// cannot be translated: a [*TranslationError], or a [*parley.Error] with
	// the code of language.md §5. Everything else, also a useless answer, is
	// an Outcome.
	//
	// The one exception to "once" is a request that the agent is known not to
	// have executed because it does not speak its dialect, or did not accept an
	// expired token: it may be sent once more in another form.
	Call(ctx context.Context, task parley.Task, agent parley.Agent, progress Progress) (Outcome, error)
}

// AgentTask is the agent's own task, as it was named when it was accepted. All
// of it is durable before the task is asked about for the first time
// (protocol.md P6), so that any bridge can go on with it.
type AgentTask struct {
	// ID is the agent's name for the task, ContextID that of the conversation.
	ID, ContextID string
	// Endpoint and Version are where, and in which dialect, the agent took it:
	// the adapter's own words, at most 2 KiB and 64 bytes. Both may be empty:
	// then the agent's record says it.
	Endpoint, Version string
}

// Follower is an Adapter whose agents name a task that can be asked about.
type Follower interface {
	// Poll asks once for the state of the agent's own task. Accepted means
	// that it is still at work, or waits if Question is set. An error of code
	// not_found, or outcome_unknown, says that the agent does not know the task
	// any more; whatever else goes wrong says nothing about it.
	Poll(ctx context.Context, task parley.Task, agent parley.Agent, at AgentTask) (Outcome, error)
}

// Finder is an Adapter whose agents can be asked what became of a message for
// which no answer is held (policy lookup, protocol.md §4.5).
type Finder interface {
	// Find looks for the task that the agent made of task. Answered and
	// Accepted are what it found. Of the errors, code not_found says that the
	// agent knows of none (which does not prove that nothing arrived), and
	// outcome_unknown that this agent cannot be asked; with any other the
	// question may be put again.
	Find(ctx context.Context, task parley.Task, agent parley.Agent) (Outcome, error)
}

// Subscriber is an Adapter whose agents tell by themselves how a task goes on.
type Subscriber interface {
	// Subscribe opens the stream of a task's events. Accepted with a Stream is
	// success; without one the agent has no streams, which the adapter knows
	// without asking as a rule. Answered: the task has ended. Everything else
	// says nothing about the task; it is polled instead.
	Subscribe(ctx context.Context, task parley.Task, agent parley.Agent, at AgentTask) (Outcome, error)
}

// Stream is an open stream of one task's events. Its owner closes it.
type Stream interface {
	// Listen passes events on until the stream ends, the agent begins to wait
	// for a person, or ctx ends. Answered is the end of the task as the events
	// told it: a Poll may say more. Accepted is a task that is not known to
	// have ended, with its Question if it waits; Lost a stream that was cut.
	// It is called once.
	Listen(ctx context.Context, progress Progress) Outcome
	// Close ends the stream, also during Listen. It may be called again.
	Close()
}

// Answerer is an Adapter whose agents can wait for a person's answer.
type Answerer interface {
	// Answer sends reply to the agent's waiting task, as the number-th answer
	// of the attempt, counted from 1; the same number is sent under the same
	// message id. It never sends twice. The Outcome is as with Call: Accepted
	// if the agent took it and goes on, NotSent or Lost as there. Answered is
	// only given if the agent's task has ended; an agent that refuses the
	// answer gives NotSent with an error that is not retryable.
	Answer(ctx context.Context, task parley.Task, agent parley.Agent, reply TaskReply) (Outcome, error)
}

// TaskReply is one answer to the question of one task.
type TaskReply struct {
	At     AgentTask
	Number int
	Reply  parley.Reply
}

// Canceler is an Adapter whose agents can be told to stop a task.
type Canceler interface {
	// Cancel asks the agent to stop, best effort, and gives what is known
	// afterwards: Answered if the task has ended, Accepted if it goes on.
	Cancel(ctx context.Context, task parley.Task, agent parley.Agent, at AgentTask) (Outcome, error)
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
	// Chunk is a piece of its output, or nil.
	Chunk *Chunk
	// Past: the chunk is of an artifact as the agent had it before it was listened to.
	// It is passed on if nothing of that artifact was yet.
	Past bool
}

// Chunk is a piece of an agent's output while it is being made. The whole
// output comes with the task's end: chunks may be lost.
type Chunk struct {
	// Artifact is the agent's id of what the chunk belongs to, Name its name.
	Artifact string `json:"artifact,omitempty"`
	Name     string `json:"name,omitempty"`
	// Text is the chunk's text; Data holds its other parts, as a JSON array, or
	// nil. Together at most 32 KiB.
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Append: it continues what came before under the same Artifact; else it
	// replaces it. Last: nothing more comes under it.
	Append bool `json:"append,omitempty"`
	Last   bool `json:"last,omitempty"`
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
	// Endpoint and Version complete them to an [AgentTask].
	AgentTaskID       string
	ContextID         string
	Endpoint, Version string
	// Partial, with Answered of a Stream: the task may have made more, before the
	// stream began. It counts if the agent has no more to say.
	Partial bool
	// Question is what the agent waits for, with Accepted, or nil.
	Question *parley.Question
	// Stream is the rest of the task's events, with Accepted, or nil. Whoever
	// gets the Outcome closes it.
	Stream Stream
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
