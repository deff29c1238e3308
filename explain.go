package parley

import "time"

// WaitReason is what an open step waits for.
type WaitReason string

// The reasons. Readers take one that they don't know for its text.
const (
	// WaitPaused: the run is paused, and it would begin otherwise.
	WaitPaused WaitReason = "paused"
	// WaitNeeds: steps before it have not ended, WaitMaxParallel: as many of its
	// siblings run as may, WaitSteps: steps inside of it are open.
	WaitNeeds       WaitReason = "needs"
	WaitMaxParallel WaitReason = "max_parallel"
	WaitSteps       WaitReason = "steps"
	// WaitTimer: a wait step, until its time; WaitBackoff: the next try of what has
	// failed.
	WaitTimer   WaitReason = "timer"
	WaitBackoff WaitReason = "backoff"
	// WaitQueue: tasks that go before it at its agent, WaitBreaker: the agent's
	// circuit is open, WaitAgent: the agent works, WaitPerson: the agent waits for
	// an answer, WaitResult: it has answered, and the answer is about to be taken.
	WaitQueue   WaitReason = "queue"
	WaitBreaker WaitReason = "breaker"
	WaitAgent   WaitReason = "agent"
	WaitPerson  WaitReason = "person"
	WaitResult  WaitReason = "result"
	// WaitEvent: an event that nobody has published yet, WaitApproval: people are
	// asked.
	WaitEvent    WaitReason = "event"
	WaitApproval WaitReason = "approval"
	// WaitChild: the run that the step has started, or is about to start.
	WaitChild WaitReason = "child"
	// WaitCancel: the run is being cancelled, and ends with what is in flight.
	WaitCancel WaitReason = "cancel"
)

// Explanation says what a run waits for.
type Explanation struct {
	Run    string    `json:"run"`
	Status RunStatus `json:"status"`
	// At is the time that it is of.
	At time.Time `json:"at"`
	// Text says in a sentence where the run stands.
	Text        string `json:"text"`
	Paused      bool   `json:"paused,omitempty"`
	PausedBy    string `json:"paused_by,omitempty"`
	PauseReason string `json:"pause_reason,omitempty"`
	Cancelling  bool   `json:"cancelling,omitempty"`
	// Deadline ends the run, or the grace of one that is being cancelled.
	Deadline *time.Time `json:"deadline,omitempty"`
	// Turn is set for a run that waits for its turn.
	Turn *Turn `json:"turn,omitempty"`
	// Late counts the answers that came after the end of their attempts, also after
	// that of the run. The attempts show them.
	Late int `json:"late,omitempty"`
	// Steps has an entry for each open step, and for each agent that is called for
	// it; none for a run that has ended.
	Steps []StepWait `json:"steps" nullable:"false"`
}

// StepWait says what one open step waits for.
type StepWait struct {
	// Step is the path of the execution.
	Step   string     `json:"step"`
	Kind   string     `json:"kind"`
	Status StepStatus `json:"status"`
	Reason WaitReason `json:"reason"`
	// Text says it in a sentence.
	Text string `json:"text"`
	// Until is when that ends by itself, as far as is known.
	Until *time.Time `json:"until,omitempty"`
	// Deadline is when the step's timeout is over.
	Deadline *time.Time `json:"deadline,omitempty"`
	// Needs are the steps before it that have not ended.
	Needs []string `json:"needs,omitempty"`
	// Agent, Attempt and TaskID are those of the call, if there is one.
	Agent   string `json:"agent,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	TaskID  string `json:"task_id,omitempty"`
	// AgentTaskID is the agent's own name for the task.
	AgentTaskID string `json:"agent_task_id,omitempty"`
	// Queue is the place among those that wait for the agent.
	Queue *QueuePlace `json:"queue,omitempty"`
	// Circuit is that of the agent if it is not closed; Manual: somebody opened it.
	Circuit Circuit `json:"circuit,omitempty"`
	Manual  bool    `json:"manual,omitempty"`
	// Unhealthy is what the looks at the agent have shown if it is not well.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Question is what the agent wants to know.
	Question *Question `json:"question,omitempty"`
	// Event is what the step waits for, Approval what people are asked.
	Event    *AwaitedSignal `json:"event,omitempty"`
	Approval *Approval      `json:"approval,omitempty"`
	// Child is the run that the step waits for.
	Child *ChildRun `json:"child,omitempty"`
	// Heard is the newest sign of life of the call, SilentUntil when the attempt
	// fails as stalled if there is no other, AttemptUntil when its own time is over.
	Heard        *time.Time `json:"heard,omitempty"`
	SilentUntil  *time.Time `json:"silent_until,omitempty"`
	AttemptUntil *time.Time `json:"attempt_until,omitempty"`
	// LastError is why the attempt before has failed.
	LastError *Error `json:"last_error,omitempty"`
}

// QueuePlace is a place among the tasks that wait for an agent.
type QueuePlace struct {
	// Ahead counts those that go before, at most [MaxQueueCount].
	Ahead int `json:"ahead"`
	// InFlight counts the calls that are under way at the agent, Slots how many may
	// be from each bridge.
	InFlight int `json:"in_flight"`
	Slots    int `json:"slots"`
	// RateLimited: the agent's record bounds how many begin in a second.
	RateLimited bool `json:"rate_limited,omitempty"`
}

// MaxQueueCount is up to where tasks that wait are counted.
const MaxQueueCount = 10_000
