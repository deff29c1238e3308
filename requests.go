package parley

import (
	"encoding/json"
	"fmt"
	"time"
)

// StartRequest asks for a run.
type StartRequest struct {
	// Workflow is a workflow_id, a name, or the id of a deployed version.
	Workflow string
	// Version is empty for the newest.
	Version string
	// Input is one JSON value; nil is {}.
	Input json.RawMessage
	// IdempotencyKey makes the start repeatable (language rule C7); ≤ 255.
	IdempotencyKey string
	// Labels are at most 32 of at most 256 characters.
	Labels      map[string]string
	TriggeredBy string
	// Priority is 0 to [MaxRunPriority]; nil is [DefaultRunPriority].
	Priority *int
	// Timeout bounds the run if it is less than the workflow's own; 0 leaves that.
	Timeout time.Duration
	// CallAgent starts a hidden one-step run of that agent instead of a
	// workflow; Workflow and Version are ignored.
	CallAgent string
	// Schedule is the id of the schedule that starts the run, ScheduledAt the time
	// of its firing: they make the idempotency key (language rule C7). Only the
	// scheduler names one.
	Schedule    string
	ScheduledAt time.Time
	// Trace is what the run's agents are sent.
	Trace Trace
}

// CancelRequest asks for the end of a run (language rule C3).
type CancelRequest struct {
	Run string
	// By and Reason (≤ 500 characters) are recorded.
	By, Reason string
}

// ControlRequest steers a run: it is terminated, paused or resumed (language rules
// C3 and C5).
type ControlRequest struct {
	Run string
	// By and Reason (≤ 500 characters) are recorded.
	By, Reason string
}

// RetryRequest asks for a new run that goes on after the completed steps of one that
// failed or was cancelled (language rule C6).
type RetryRequest struct {
	Run string
	// IdempotencyKey makes the request repeatable, as that of a [RerunRequest] does.
	IdempotencyKey string
	By             string
	// Trace is that of the new run; without one it has that of the old run.
	Trace Trace
}

// RerunRequest asks for a new run that does a part of an ended one again (language
// rule C6).
type RerunRequest struct {
	Run string
	// From is the step, by id or path, that is run again with all that depends on
	// it; everything else is copied. "" is the start: nothing is copied.
	From string
	// Input, if set, is that of the step From; WorkflowInput that of the workflow.
	Input, WorkflowInput json.RawMessage
	// Version is another version of the workflow; "" stays on the run's.
	Version string
	// IdempotencyKey makes the request repeatable: with the same key, the same request
	// gives the run that the first one has begun (language rule C7); ≤ 255. Retries and
	// reruns of the runs of one workflow share their keys, apart from those of starts.
	IdempotencyKey string
	By             string
	// Trace is that of the new run; without one it has that of the old run.
	Trace Trace
}

// AnswerRequest answers what the agent of a run's step waits for, or an approval.
type AnswerRequest struct {
	Run string
	// Step is the path of the step's execution; "" is the only one that waits.
	Step string
	// Reply has a text, data or both: at most 1 MiB in all, and data is one JSON
	// value. Its By is recorded.
	Reply Reply
	// Choice answers an approval instead of a question: one of those that it has.
	// The data of the Reply has to fit its form; its text is a comment. With Choice
	// empty, an approval takes it from the Reply, if the text is a choice and
	// nothing else, or the data is one, or an object whose member choice or decision
	// is one: then the member comment is the comment, and the others are the data.
	Choice string
	// Roles are what whoever answers, the By of the Reply, is besides.
	Roles []string
}

// RunQuery selects runs for a list. Zero members don't restrict.
type RunQuery struct {
	// Status lists the statuses; one of them is enough.
	Status []RunStatus
	// Workflow is a workflow_id or name, Version a version of it; DefinitionID a
	// deployed version's id.
	Workflow, Version, DefinitionID string
	// Labels are all of the run's.
	Labels map[string]string
	// Text is found in the run's id, its workflow_id and the workflow's name, and
	// the code and message of its error, in upper or lower case.
	Text string
	// Parent is the run whose steps have started them.
	Parent string
	// Paused restricts to runs that are paused, NotRetried to those that no other
	// run was made of by a retry or a rerun.
	Paused, NotRetried          bool
	CreatedAfter, CreatedBefore time.Time
	EndedAfter, EndedBefore     time.Time
	// SortBy is created_at (default), updated_at or status; Ascending turns
	// the order, which is newest first.
	SortBy    string
	Ascending bool
	// Hidden includes the runs of agent calls.
	Hidden bool
	Page   Page
	// After is the last run of the page before, in a search by the time of creation;
	// SortBy and Page mean nothing then.
	After *RunMark
}

// RunMark is where a run stands in the order of creation.
type RunMark struct {
	ID string
	At time.Time
}

// RunPage is one page of a search.
type RunPage struct {
	// Items are runs without steps.
	Items []Run
	// Next is the After of the next page; nil after the last.
	Next *RunMark
}

// Page is a window on a list. Offset counts from 0; Limit is at most 500, 0 is
// the default of 20.
type Page struct{ Offset, Limit int }

// WorkflowVersion is one deployed, immutable version of a workflow.
type WorkflowVersion struct {
	// ID is the version's UUID, Workflow the workflow_id.
	ID          string `json:"id"`
	Workflow    string `json:"workflow"`
	Name        string `json:"name"`
	Version     string `json:"version"`
	Number      int    `json:"number"`
	Description string `json:"description,omitempty"`
	// Format is "yaml" or "json"; Source the document as it was given.
	Format    string      `json:"format"`
	Source    string      `json:"source,omitempty"`
	Status    AgentStatus `json:"status"`
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
	CreatedBy string      `json:"created_by,omitempty"`
	UpdatedBy string      `json:"updated_by,omitempty"`
	// Steps are the document's steps in order, for display.
	Steps []StepSummary `json:"steps,omitempty"`
	// Warnings are what validation found besides errors.
	Warnings []Problem `json:"warnings,omitempty"`
	// Deprecated is set if the version takes no new runs.
	Deprecated *Deprecation `json:"deprecated,omitempty"`
	// Aliases are those that stand for the version, sorted.
	Aliases []string `json:"aliases,omitempty"`
}

// StepSummary is one step of a deployed version.
type StepSummary struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Agent string `json:"agent,omitempty"`
	// Agents is set, and Agent is not, for a step that may call several.
	Agents []string `json:"agents,omitempty"`
	// Workflow is the one that a sub_workflow step runs, as it is written.
	Workflow string `json:"workflow,omitempty"`
}

// WorkflowQuery selects workflows (their newest versions) for a list.
type WorkflowQuery struct {
	Name   string
	Status AgentStatus
	// SortBy is created_at (default), updated_at or name.
	SortBy    string
	Ascending bool
	Page      Page
}

// ApplyRequest deploys a document.
type ApplyRequest struct {
	// File names the document in problems.
	File string
	// Source is YAML or JSON, at most 1 MiB.
	Source []byte
	// Always makes a new version even of equal content (the old API's POST).
	Always bool
	// Replace is the id of a version whose workflow gets a new version under
	// that same id (the old API's PUT).
	Replace string
	// Base, with Replace, is the Number of the version under that id that Source was
	// made of: if it is not the newest any more, nothing is deployed, and the error has
	// code conflict. 0 does not ask.
	Base int
	// Status, with Replace, also sets the workflow's status (active or
	// inactive; "" keeps it). Source may then be empty: only the status changes.
	Status AgentStatus
	By     string
}

// Severity says whether a finding keeps a document from being deployed.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Problem is one finding in a document, printed as "file:line:col: code: text".
type Problem struct {
	File string `json:"file,omitempty"`
	// Line and Col count from 1; Col counts characters. 0 is unknown.
	Line int `json:"line"`
	Col  int `json:"col"`
	// Path names the member, such as "steps[2].input.text".
	Path     string   `json:"path"`
	Severity Severity `json:"severity"`
	// Code is stable: syntax, duplicate_key, unknown_member, type, required,
	// value, id, reference, expression, limit, unsupported, unknown_agent …
	Code string `json:"code"`
	// Text says what is wrong; Suggestion what to write instead, if known.
	Text       string `json:"text"`
	Suggestion string `json:"suggestion,omitempty"`
}

// Problems are the findings in one document. As an error it stands for the
// refusal of the document: at least one of them is of [SeverityError].
type Problems []Problem

// Error gives the first error and the count of the others.
func (p Problems) Error() string {
	first, n := "", 0
	for _, x := range p {
		if x.Severity != SeverityError {
			continue
		}
		if n++; n == 1 {
			first = x.String()
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s (and %d more)", first, n-1)
	}
	return first
}

// AgentQuery selects agents for a list.
type AgentQuery struct {
	Name     string
	Protocol string
	Status   AgentStatus
	Page     Page
}

// AgentHealth is what one look at an agent showed.
type AgentHealth struct {
	Healthy      bool
	Message      string
	ResponseTime time.Duration
	At           time.Time
	// Card is the agent card, if the agent serves one.
	Card json.RawMessage
	// CardHash is the SHA-256 of its canonical form, in hex, if it is known to be
	// an agent card.
	CardHash string
}
