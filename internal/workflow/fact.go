package workflow

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
)

// Fact is something that happened outside the core: the only way in. Every
// outside thing that a decision needs (time, ids, jitter, an agent's answer)
// is a member of the fact (rule C10).
type Fact interface{ fact() }

// Start begins a run. It is applied once, to a new state.
type Start struct {
	At time.Time
	// Input has been filled with defaults and checked.
	Input  json.RawMessage
	Labels map[string]string
	// Trigger says what started the run: "api", "cli", "retry" …
	Trigger string
	// ScheduledAt is the time of the firing that started the run; zero if no
	// schedule did.
	ScheduledAt time.Time
	// Priority is that of the run among those that wait for the same agents, 0 to
	// [parley.MaxRunPriority]; nil is [parley.DefaultRunPriority].
	Priority *int
	// Timeout bounds the run if it is less than the workflow's own (rule T3); 0
	// leaves that.
	Timeout time.Duration
	// RetriedFrom names the run whose steps are Copied (rule C6), RerunFrom the
	// step that it is begun again at; Edits are inputs of steps.
	RetriedFrom, RerunFrom string
	Copied                 []Copied
	Edits                  []Edit
	// Turn is what the run is started under; nil if its workflow has no concurrency.
	Turn *Turn
	// Chain counts the runs that have led to this one, each of them by an event that
	// it has published; 0 for one that no such event has started.
	Chain int
	// Jitter as in Settled.
	Jitter float64
	// Parent is the step that has started the run, nil if none did. Children are
	// the versions that the fixed names of workflows mean.
	Parent   *Parent
	Children []ResolvedChild
	// Until bounds the body of the run as Timeout does; zero leaves that.
	Until time.Time
	// Trace is what the run's agents are sent; nothing else depends on it.
	Trace parley.Trace
}

// Settled says how an attempt ended.
type Settled struct {
	At      time.Time
	TaskID  string
	Result  parley.Result
	Started time.Time
	// Ended is when the attempt ended, which a retry's delay is counted from;
	// zero, or a time after At, is At.
	Ended time.Time
	// AgentRetry is the retry policy of the agent's record (rule R4).
	AgentRetry RetryPolicy
	// Jitter in [0, 1) is drawn by the executor for a retry's delay (rule R2).
	Jitter float64
	// NotBefore is the earliest time of a retry that the agent's budget allows;
	// zero is any.
	NotBefore time.Time
}

// Tick says what time it is, so that due timers fire.
type Tick struct {
	At time.Time
	// Calls tells of the attempts that have begun, by task: a timer may end them.
	// Nothing depends on it but when a step is said to have started.
	Calls map[string]Call
	// Jitter as in Settled.
	Jitter float64
	// Hurry: what a timer ends is not spared for an answer that nobody has read yet.
	// Without it a run whose agents answer all the time might not reach its end.
	Hurry bool
}

// Call is what is known of an attempt that has begun and may not have ended.
type Call struct {
	Started time.Time
	// AgentTaskID is the agent's own name for the task, or "".
	AgentTaskID string
}

// Cancel asks for the end of the run (rule C3).
type Cancel struct {
	At         time.Time
	By, Reason string
	// Grace is how long agents in flight get to end.
	Grace time.Duration
}

func (Start) fact()   {}
func (Settled) fact() {}
func (Tick) fact()    {}
func (Cancel) fact()  {}

// Decision is what follows from a fact, as data: what to record, and what to
// do once that is durable.
type Decision struct {
	// Events continue the history without a gap. Empty if the fact changed
	// nothing; then there is nothing to do either.
	Events []parley.Event
	// Schedule holds new attempts.
	Schedule []Schedule
	// Close ends attempts, RequestCancel asks their owners to end them.
	Close         []Close
	RequestCancel []string
	// Hold, if set, holds the attempts back that nobody has begun, or frees them
	// (rule C5). Those of Schedule carry their own Held.
	Hold *bool
	// Subscribe holds the steps that begin to wait for events, Unsubscribe the
	// paths of those that do so no more.
	Subscribe   []Subscription
	Unsubscribe []string
	// Emit holds events to be published, with their ids and times.
	Emit []parley.Signal
	// Taken are the ids of the events that steps have taken.
	Taken []string
	// Ask holds the approvals that are opened, or have changed; Answered are the
	// paths of the steps that wait for theirs no more.
	Ask      []Asking
	Answered []string
	// Children are runs to be started, StopChildren those that are not waited for
	// any more, or are to end.
	Children     []ChildCall
	StopChildren []ChildStop
}

// Schedule is one new attempt of an agent step.
type Schedule struct {
	Task parley.Task
	// At is the earliest instant of the call; not after the decision's time
	// for a first attempt.
	At                      time.Time
	AttemptTimeout, Silence time.Duration
	// Retry: the agent was called for the step before.
	Retry bool
	// HasNext: the step has another agent to call if this one cannot be.
	HasNext bool
	// Held: the run is paused, and nobody may begin the attempt until it is resumed.
	Held bool
}

// Close ends one attempt.
type Close struct {
	TaskID string
	// Absorb: its own result was taken, of this Outcome. Otherwise Outcome is what
	// ends it.
	Absorb  bool
	Outcome parley.Outcome
	// Unanswered: a timer ends it, which is not to stand in the place of an answer: if
	// there is one by now, all of the decision is to be made anew (protocol.md P12, P14).
	Unanswered bool
}
