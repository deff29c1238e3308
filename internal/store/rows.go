package store

import (
	"time"

	"github.com/parley-project/parley"
)

// AttemptState is the state of an attempt's row (protocol.md §2).
type AttemptState string

// The states of an attempt. Nothing leaves AttemptClosed.
const (
	AttemptOpen      AttemptState = "open"
	AttemptClaimed   AttemptState = "claimed"
	AttemptFollowing AttemptState = "following"
	AttemptSettled   AttemptState = "settled"
	AttemptClosed    AttemptState = "closed"
)

// HandOff says who was, or will be, handed an attempt (protocol.md §1).
type HandOff string

// The kinds of hand-off.
const (
	// HandOffStore: a bridge that claims in the store.
	HandOffStore HandOff = ""
	// HandOffBus: a bridge of the existing platform, which knows nothing but the
	// bus. Such an attempt is claimed by [BusClaim] from the moment on at which
	// it may be published.
	HandOffBus HandOff = "bus"
	// HandOffForeign: the task of an executor of the existing platform, which
	// came by the bus and has no run here; see [ForeignTaskID].
	HandOffForeign HandOff = "foreign"
)

// busOwner is the owner of attempts that were handed to the bus. No bridge can
// have its name, so no sweep of orphans finds them.
const busOwner = "bus"

// BusClaim is the claim of an attempt that is handed to the bus. The token is
// new for each time that it is published.
func BusClaim(token string) Claim { return Claim{Worker: busOwner, Token: token} }

// Claim says whose an attempt is: a bridge process, its incarnation, and a
// token that is never used twice. The three together are "mine".
type Claim struct {
	Worker string
	Inc    int64
	Token  string
}

// Policy is what was frozen about the agent call when the attempt was scheduled.
type Policy struct {
	OutcomeUnknown parley.OutcomePolicy `json:"outcome_unknown,omitempty"`
	// AttemptTimeout and Silence are language rule T2; 0 is none.
	AttemptTimeout time.Duration `json:"attempt_timeout,omitempty"`
	Silence        time.Duration `json:"silence,omitempty"`
	// OnOpen, if set, goes before what the agent's record says: the step has
	// another agent to call while the circuit of this one is open (rule R5).
	OnOpen parley.OnOpen `json:"on_open,omitempty"`
}

// Attempt is one row of table attempt: the outbox entry, the claim, the
// deferral and the result of one task at once (protocol.md §1).
type Attempt struct {
	// Task holds the id (the primary key), run, step path, attempt number,
	// agent, input, correlation id, context id and deadline.
	parley.Task
	Policy Policy
	State  AttemptState
	// Urgency is how far the run's priority is above the default one.
	Urgency int
	// ScheduledAt is when the attempt was inserted; only [DB.Publish] gives it.
	ScheduledAt time.Time
	// HandOff says who is told of it and how its claim comes about.
	HandOff HandOff
	// Source is the record that a foreign attempt is inserted with; it is not read
	// back ([DB.Source]).
	Source *Source
	// VisibleAt is the instant from which an open attempt may be published.
	VisibleAt time.Time
	Held      bool
	// Announced: whoever inserts the attempt, which is open, puts it on the bus after
	// the commit. So it is hidden as if [DB.Publish] had given it then. It is not
	// read back.
	Announced bool
	// Claim is the owner; zero while the attempt is open and never owned.
	Claim Claim
	// Orphanings counts claims that ended without anybody knowing the outcome.
	Orphanings      int
	CancelRequested bool
	// AgentTaskID and AgentContextID are the agent's ids once it is followed.
	AgentTaskID    string
	AgentContextID string
	// AgentEndpoint and AgentVersion are where, and in which dialect, the agent
	// accepted it, in the words of its adapter.
	AgentEndpoint, AgentVersion string
	// Question is what the agent waits for, or nil; Questions counts those that
	// were asked in the attempt so far, this one included. It is never set back,
	// so that it names one question (and the message that answers it) for good.
	Question  *parley.Question
	Questions int
	// Reply is the answer to Question, or nil; ReplySent: it may have left.
	Reply     *parley.Reply
	ReplySent bool
	// News counts the changes of Question; the run records each (step.waiting,
	// step.answered).
	News int
	// NewsSeen is how many of them the run has recorded or passed over.
	NewsSeen int
	// Result is set when State is AttemptSettled or AttemptClosed.
	Result *parley.Result
	// InputApart and OutputApart are set instead of Input and Result.Output for
	// values that are kept apart and were not fetched: [DB.Publish] and [DB.History]
	// do not fetch what nobody asks them for.
	InputApart, OutputApart *Apart
	// ClaimedAt and SettledAt are zero until then.
	ClaimedAt, SettledAt time.Time
}

// Answer is transition P7: somebody holds what ended the task at the agent.
type Answer struct {
	Result parley.Result
	// Started is when the call began, At when the answer was complete.
	Started, At time.Time
	// From names who brought it, for the record of late answers.
	From string
}

// Run is one row of table run, without the values: input and output stand in
// the run's first and last event.
type Run struct {
	ID string
	// Workflow is the workflow_id, Name its display name, DefinitionID the
	// id of the deployed version that the run stays on.
	Workflow, Name, Version, DefinitionID string
	// Seq is the number of the newest event; the only fence an executor has.
	Seq        int64
	Status     parley.RunStatus
	Phase      string
	Paused     bool
	Cancelling bool
	// Hidden runs (agent call) are left out of lists.
	Hidden      bool
	Labels      map[string]string
	RetriedFrom string
	TriggeredBy string
	// ParentRun and ParentStep name the step that has started the run; "" if none
	// did.
	ParentRun, ParentStep string
	// Error is the run's error as JSON, nil unless Status is FAILED or CANCELLED.
	Error []byte
	// CancelledBy and CancelReason are set by a cancel.
	CancelledBy, CancelReason string
	// Due is the earliest of the run's timers; zero is none.
	Due time.Time
	// Unread is set in lists where Labels cannot be read.
	Unread error

	CreatedAt, UpdatedAt, StartedAt, EndedAt time.Time
}

// Imported reports whether the run was carried out elsewhere and taken over
// ([DB.Import]): it is on no version of a definition, since every deployed
// version has a name.
func (r *Run) Imported() bool { return r.Version == "" }

// Start is transition P1: a run, its first events and its first attempts, all
// or nothing.
type Start struct {
	Run Run
	// Events begin with seq 1 and have no gap.
	Events   []parley.Event
	Attempts []Attempt
	// Named: the id of the run was not made for it, and may be that of one that is
	// being removed.
	Named bool
	// Replay, if set, resolves the dead letters of Run.RetriedFrom.
	Replay *Replay
	// Signals is what changes about events and approvals.
	Signals Signals
	// Child is the attempt of a step that asks for the run: the start is refused
	// unless it still does. Children is what the run asks for itself.
	Child    string
	Children Children
	// IdempotencyKey is unique per workflow; "" is none. InputDigest tells
	// equal input from other input under the same key (language rule C7).
	// GivenKey is how whoever asked has called the key; "" is the same.
	IdempotencyKey string
	InputDigest    string
	GivenKey       string
	// Refuse, if set, is why the workflow takes no new runs: only a run that was
	// started before under the same key is given, else this error.
	Refuse error
	// Turn is set for a workflow with concurrency.
	Turn *Turn
}

// Decision is transition P11, P12, P13, P14 or P15: what an executor decided
// about one run, written only if the run's seq is still the one it saw and the
// run has not ended.
type Decision struct {
	// Run is the run's row as it is after the decision. Its immutable columns
	// are not written.
	Run Run
	// Seen is the seq on which the decision is based.
	Seen int64
	// Events begin with Seen+1 and have no gap.
	Events []parley.Event
	// Answer, if set, settles its attempt in the same transaction (merged
	// write, protocol.md §6); the attempt is closed by Close like any other.
	// If the attempt was settled or closed by somebody else the whole unit is
	// refused.
	Answer *Answer
	// Replies are the answers that somebody gave to agents (P19). The decision
	// is refused unless each question stands and has no answer yet.
	Replies []TaskReply
	// NewsSeen says which changes of questions the run has taken notice of, LateSeen
	// which late answers ([LateAnswer].ID).
	NewsSeen []NewsSeen
	LateSeen []int64
	// Prompt says that nobody waits for the disk: the decision is committed at
	// once and synced with the next one of anybody. It may hold nothing but
	// events and what was seen, for what costs nothing when it is lost (progress).
	// After a power failure its numbers may be given to other events.
	Prompt bool
	// Close lists attempts that end here.
	Close []Close
	// RequestCancel lists attempts whose owners are asked to cancel (P13). One
	// that is still open has no owner: it is settled as cancelled at once.
	RequestCancel []string
	// Hold, if set, holds the run's open attempts back, or frees them (P15), and
	// claimed ones in case that their owner releases them unsent.
	// Attempts of Insert carry their own Held.
	Hold *bool
	// Insert holds the next attempts: open, or claimed by the caller's own
	// bridge (§6), which is refused unless that worker is alive with its inc.
	Insert []Attempt
	// DeadLetters are what is given up by the decision. One that is there already
	// stays as it is.
	DeadLetters []parley.DeadLetter
	// Signals is what changes about events and approvals, Children about the runs
	// that steps have started.
	Signals  Signals
	Children Children
	// Turn is what changes about the turn of a run that has one.
	Turn *TurnMove
}

// TaskReply answers the question of an attempt. It is stored in the same
// transaction as the event that says so; its owner sends it ([MoveReply]).
type TaskReply struct {
	TaskID string
	// Questions is the number of the question, as read from the attempt.
	Questions int
	// Reply is at most 1 MiB and has a text, data or both.
	Reply parley.Reply
}

// NewsSeen says that a run has taken notice of an attempt's changes up to the
// one numbered News.
type NewsSeen struct {
	TaskID string
	News   int
}

// Close ends one attempt.
type Close struct {
	TaskID string
	// Absorb: the attempt is settled (or is the one of Decision.Answer) and
	// its own result stands. A decision is refused if it is not, and one whose
	// Outcome is unknown if an answer has come in place of that.
	Absorb bool
	// Outcome without Absorb closes an attempt that is not settled: cancelled or timeout.
	// If the attempt is settled meanwhile, a timeout is refused (P12: absorb
	// it instead), so is what is to be Unanswered (P14), and any other cancelled one
	// keeps its own result (P11).
	Outcome    parley.Outcome
	Unanswered bool
	// CancelAgent asks the owner to cancel at the agent, best effort.
	CancelAgent bool
}

// MoveKind names the transitions that an owner or a taker-over makes.
type MoveKind string

// The moves of a bridge (protocol.md §3).
const (
	// MoveRelease is P5: nothing was sent, orphanings = 0; back to open.
	MoveRelease MoveKind = "release"
	// MoveCancelled is P5 for a cancel, before anything was sent, and the end
	// of a call that was cut because of a cancel: settled as cancelled.
	MoveCancelled MoveKind = "cancelled"
	// MoveFollow is P6: the agent's task id is known.
	MoveFollow MoveKind = "follow"
	// MoveFail is P8 for what is known to have failed without an answer of
	// the agent: settled with Result.
	MoveFail MoveKind = "fail"
	// MoveUnknown is P8 under policy fail, or when orphanings are used up.
	MoveUnknown MoveKind = "unknown"
	// MoveAgain is P8 under the other policies: new token, orphanings + 1.
	MoveAgain MoveKind = "again"
	// MoveTakeover is P9: the owner seen in From is dead or replaced.
	MoveTakeover MoveKind = "takeover"
	// MoveQuestion (P18) notes what a followed agent waits for, or that it waits
	// no more.
	MoveQuestion MoveKind = "question"
	// MoveRetry (P22) ends one try of a foreign attempt that is known to have
	// failed, and opens the next one at the time Move.At.
	MoveRetry MoveKind = "retry"
	// MoveReply (P20) notes that the answer to the agent's question is about to be
	// sent.
	MoveReply MoveKind = "reply"
)

// Move is one fenced transition by a bridge. It is refused, and writes
// nothing, unless the row is still From's.
type Move struct {
	Kind   MoveKind
	TaskID string
	// From is the claim as the caller knows it: its own, or for a takeover
	// the one it saw on the orphan.
	From Claim
	// To is the new claim of MoveAgain and MoveTakeover.
	To Claim
	// AgentTaskID and AgentContextID are stored by MoveFollow. For MoveTakeover
	// AgentTaskID is the one that the caller saw on the orphan: if it has been
	// followed since, it must not be taken for one whose outcome is lost.
	AgentTaskID, AgentContextID string
	// AgentEndpoint and AgentVersion are stored by MoveFollow, at most 2 KiB
	// and 64 bytes.
	AgentEndpoint, AgentVersion string
	// Question is stored by MoveQuestion; nil is none. Its text and its parts
	// are at most 64 KiB each.
	Question *parley.Question
	// Questions is, for MoveReply, the number of the question that is answered,
	// and for MoveQuestion the one that the question gets: one more than the row
	// has. Then it may be repeated at any time; 0 leaves the number to the store.
	Questions int
	// Source is stored by MoveRetry; nil leaves what is there.
	Source *Source
	// Result settles the attempt (MoveFail, MoveUnknown, MoveCancelled).
	Result *parley.Result
	// At is the time of the transition.
	At time.Time
}

// ClaimRequest is one line of transition P4.
type ClaimRequest struct {
	TaskID string
	Token  string
	// Source is the record that the task was taken from, or nil.
	Source *Source
}

// Owned is what a bridge is told about a row that carries its incarnation.
type Owned struct {
	TaskID          string
	Token           string
	State           AttemptState
	Orphanings      int
	CancelRequested bool
	// Reply is an answer that waits to be sent, or nil; Questions is the number
	// of its question.
	Reply     *parley.Reply
	Questions int
}

// Deferral is transition P3: an open attempt waits until At.
type Deferral struct {
	TaskID string
	At     time.Time
	// Attempt, if not 0, is the number that the attempt has to have: a foreign one
	// that was opened for another try since is left alone.
	Attempt int
}

// Worker is one row of table worker: one bridge process, the lease of all its
// claims.
type Worker struct {
	Name string
	Inc  int64
	Beat int64
	Dead bool
}

// History is everything an executor needs to go on with a run.
type History struct {
	Run    Run
	Events []parley.Event
	// Attempts are the rows that are not closed.
	Attempts []Attempt
}

// Wakeups tells an executor which runs want attention.
type Wakeups struct {
	// Settled are runs with a settled attempt (P11); Due are runs whose Due is
	// not after the given time (P12); News are runs with an attempt that has
	// asked, or asks no more, since they last looked ([Attempt].News).
	Settled, Due, News []string
	// Signals are runs whose steps were told of events that they have not looked
	// for yet.
	Signals []string
	// Turns are runs that wait for their turn and may begin.
	Turns []string
	// Children are runs that have not taken notice of what became of those that
	// their steps have started, Late those that have not of a late answer.
	Children, Late []string
}

// Definition is one deployed version of a workflow.
type Definition struct {
	// ID is a UUID, Workflow the workflow_id, Name the display name.
	ID, Workflow, Name, Version string
	// Number counts the versions of one workflow from 1.
	Number      int
	Description string
	// Format is "yaml" or "json"; Source is the document as it was given.
	Format string
	Source []byte
	// Digest tells equal content from other content.
	Digest               string
	Status               parley.AgentStatus
	CreatedAt, UpdatedAt time.Time
	CreatedBy, UpdatedBy string
	// Deprecated is nil if the version takes new runs as far as its status says.
	Deprecated *parley.Deprecation
	// Triggers are what starts runs of it. They are written with a new version and
	// never read back: see [DB.Triggered].
	Triggers []Trigger
}

// PutMode says what a definition that is put becomes (language rule C10).
type PutMode int

// The modes of [DB.PutDefinition].
const (
	// PutVersion makes a new version of its workflow with the given ID. With
	// the version of a deployed one and equal content it is that one; other
	// content is a conflict. Without a version, content equal to the newest
	// gives the newest.
	PutVersion PutMode = iota
	// PutAlways makes a new version even of equal content. A version that is
	// named and taken is a conflict.
	PutAlways
	// PutReplace makes a new version of the workflow that the definition with
	// the given ID belongs to, under that same ID. Runs find the version that
	// they are on by "workflow@version".
	PutReplace
)
