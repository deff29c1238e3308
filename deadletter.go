package parley

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// DeadLetterKind says what a [DeadLetter] is.
type DeadLetterKind string

// The kinds of dead letters.
const (
	// DeadLetterTask: a step of a run failed for good, and the run with it; the step
	// may have failed with the run that it had started.
	DeadLetterTask DeadLetterKind = "task"
	// DeadLetterRecord: a record from the bus that could not be handled. One that
	// named whom to answer was answered with a failure.
	DeadLetterRecord DeadLetterKind = "record"
	// DeadLetterForeign: a task of an executor of the existing platform that
	// failed for good. That executor was answered: it has repeated the step, or has
	// let its run fail.
	DeadLetterForeign DeadLetterKind = "foreign_task"
)

// DeadLetterState says what became of a [DeadLetter].
type DeadLetterState string

// The states of a dead letter.
const (
	DeadLetterWaiting DeadLetterState = "waiting"
	// DeadLetterReplayed: its run was retried, or its record published again.
	DeadLetterReplayed DeadLetterState = "replayed"
	// DeadLetterDiscarded: somebody has decided that nothing is to be done.
	DeadLetterDiscarded DeadLetterState = "discarded"
)

// DeadLetter is a task or a record that was given up, kept for people to look
// at, replay or discard. Texts in it may stem from agents and strangers, and
// are not to be trusted.
type DeadLetter struct {
	// ID is "dl-" and 16 letters and digits: the same task or record always has
	// the same.
	ID    string          `json:"id"`
	Kind  DeadLetterKind  `json:"kind"`
	State DeadLetterState `json:"state"`
	// Code and Reason (at most 4 KiB) say why it was given up, Attempts how often
	// it was tried before.
	Code     Code   `json:"code"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	// Agent is the one that was to be called; "" if that is not known.
	Agent string `json:"agent,omitempty"`
	// Workflow, Run, Step (its path) and Task (the id of the last attempt) are
	// those of a task; of a foreign one Run and Task are known, in the ids of its
	// platform, and of a record those that it names, if they can be read. Of an id of a
	// run that is longer than 1 KiB it is the beginning.
	Workflow string `json:"workflow,omitempty"`
	Run      string `json:"run_id,omitempty"`
	Step     string `json:"step,omitempty"`
	Task     string `json:"task_id,omitempty"`
	// HTTPStatus is what the agent answered last; 0 for none.
	HTTPStatus int `json:"http_status,omitempty"`
	// Source is where a record came from, or the one of a task that a bridge took;
	// nil where there was none, or on a bus that keeps no positions.
	Source *DeadLetterSource `json:"source,omitempty"`
	// FirstFailedAt is when the first attempt failed, CreatedAt when it was given
	// up.
	FirstFailedAt time.Time `json:"first_failed_at"`
	CreatedAt     time.Time `json:"created_at"`
	// ResolvedAt, ResolvedBy and Note (at most 500 characters) say when, by whom
	// and why it was replayed or discarded the last time.
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`
	ResolvedBy string     `json:"resolved_by,omitempty"`
	Note       string     `json:"note,omitempty"`
	// Replays counts how often it was replayed, ReplayRun is the run that the last
	// replay of a task has led to.
	Replays   int    `json:"replays"`
	ReplayRun string `json:"replay_run_id,omitempty"`
	// Size is that of the whole value in bytes, Digest its SHA-256 in hex. Cut:
	// Value, or Key, is only its beginning. Tombstone: the record had no value.
	Size      int64  `json:"size"`
	Digest    string `json:"digest,omitempty"`
	Cut       bool   `json:"cut,omitempty"`
	Tombstone bool   `json:"tombstone,omitempty"`
	// Key, Headers and Value are the record's, byte for byte, or those that the
	// task has on the bus (of a foreign one Value is made of its members, as that
	// platform writes them). Lists leave them out. The values of headers that name
	// credentials are replaced.
	Key     Bytes              `json:"key,omitempty"`
	Headers []DeadLetterHeader `json:"headers,omitempty"`
	Value   Bytes              `json:"value,omitempty"`
}

// DeadLetterSource is where a record was read: by which consumer group, and
// where it stood.
type DeadLetterSource struct {
	// Subject is what the record was about, in the words of the bus.
	Subject   string `json:"subject"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Group     string `json:"group,omitempty"`
}

// DeadLetterHeader is one header of a record.
type DeadLetterHeader struct {
	Name  string `json:"name"`
	Value Bytes  `json:"value"`
}

// Bytes is anything, shown readably: its JSON form is a string if it is UTF-8,
// and else {"base64": "…"}.
type Bytes []byte

type base64Bytes struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (b Bytes) MarshalJSON() ([]byte, error) {
	if !utf8.Valid(b) {
		return json.Marshal(base64Bytes{b})
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(string(b))
	return bytes.TrimRight(text.Bytes(), "\n"), err
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *Bytes) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var v base64Bytes
		err := json.Unmarshal(data, &v)
		*b = v.Base64
		return err
	}
	var text string
	err := json.Unmarshal(data, &text)
	*b = Bytes(text)
	return err
}

// DeadLetterFilter selects dead letters. Zero members don't restrict.
type DeadLetterFilter struct {
	State DeadLetterState `json:"state,omitempty"`
	Kind  DeadLetterKind  `json:"kind,omitempty"`
	Code  Code            `json:"code,omitempty"`
	// Reason stands somewhere in the reason, in upper or lower case.
	Reason string `json:"reason,omitempty"`
	Agent  string `json:"agent,omitempty"`
	// Workflow is a workflow_id.
	Workflow string `json:"workflow,omitempty"`
	Run      string `json:"run_id,omitempty"`
	Topic    string `json:"topic,omitempty"`
	// CreatedAfter and CreatedBefore bound CreatedAt, both exclusive.
	CreatedAfter  time.Time `json:"created_after,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
}

// DeadLetterQuery selects dead letters for a list, newest first.
type DeadLetterQuery struct {
	Filter DeadLetterFilter
	// Ascending is oldest first.
	Ascending bool
	Page      Page
}

// ReplayRequest asks for one dead letter to be replayed: a task's run is retried
// (language rule C6), a record or the record of a foreign task is published again.
type ReplayRequest struct {
	ID string
	// Force also replays one that does not wait any more.
	Force bool
	By    string
	// Trace is that of the run that goes on, as of a [RetryRequest]. The record of a
	// foreign task has its own.
	Trace Trace
}

// The limits of a [ReplayBatch].
const (
	// ReplayRate is the default and ReplayMaxRate the most, in dead letters a
	// second.
	ReplayRate, ReplayMaxRate = 10, 1_000
	// ReplayLimit is the default and ReplayMaxLimit the most of one batch.
	ReplayLimit, ReplayMaxLimit = 100, 1_000
)

// ReplayBatch asks for the waiting dead letters that a filter selects to be
// replayed, oldest first.
type ReplayBatch struct {
	// Filter's State is empty or waiting. Foreign tasks are replayed only if Kind
	// names them: it calls their agents, and helps no run.
	Filter DeadLetterFilter
	// Rate bounds the replays of a second, Limit those of this batch; 0 is the
	// default. A batch may end before its limit, when its time is up.
	Rate, Limit int
	// After is the Next of the batch before; "" begins with the oldest.
	After string
	// DryRun changes nothing.
	DryRun bool
	By     string
}

// ReplayReport is what came of a [ReplayBatch].
type ReplayReport struct {
	DryRun bool `json:"dry_run"`
	// Matched counts what the filter selected behind After before anything was
	// done; First are the first 20 of them.
	Matched int      `json:"matched"`
	First   []string `json:"first" nullable:"false"`
	// Replayed, Failed and Elsewhere count what became of those that were tried;
	// Failures are the first 20 that failed.
	Replayed int             `json:"replayed"`
	Failed   int             `json:"failed"`
	Failures []ReplayFailure `json:"failures" nullable:"false"`
	// Elsewhere counts those that somebody else had replayed or discarded when their
	// turn came, or was replaying; Others are the first 20 of them, and say which.
	Elsewhere int             `json:"elsewhere"`
	Others    []ReplayFailure `json:"others" nullable:"false"`
	// Next is the After of the batch that goes on; "" when there are no more.
	Next string `json:"next,omitempty"`
}

// ReplayFailure is a dead letter that could not be replayed, or need not be.
type ReplayFailure struct {
	ID     string `json:"id"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// DiscardRequest asks for dead letters to be discarded: the one of that ID, or
// the waiting ones that Filter selects (its State is empty or waiting).
type DiscardRequest struct {
	ID     string
	Filter DeadLetterFilter
	// Note says why, at most 500 characters.
	Note string
	By   string
	// DryRun changes nothing; by filter only.
	DryRun bool
}

// DiscardReport is what came of discarding by filter.
type DiscardReport struct {
	DryRun bool `json:"dry_run"`
	// Matched counts what the filter selected, and First are the first 20 of them.
	Matched int      `json:"matched"`
	First   []string `json:"first" nullable:"false"`
	// Discarded counts what was discarded.
	Discarded int `json:"discarded"`
}
