package dryrun

import (
	_ "embed"
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/expr"
)

//go:embed schema.json
var schemaJSON []byte

// SchemaJSON gives the JSON Schema of scripts.
func SchemaJSON() []byte { return append([]byte(nil), schemaJSON...) }

// Script is what is played in dry runs of one workflow: one test, or several. It
// is immutable.
type Script struct {
	// Tests are the runs, never none. Single says that the script names no tests:
	// it plays one run.
	Tests  []Test
	Single bool
}

// Test is one run and what is expected of it.
type Test struct {
	// Name is "" if the script names no tests.
	Name   string
	Input  json.RawMessage
	Labels map[string]string
	// At is when the run starts.
	At   time.Time
	Seed uint64
	// Expect is nil if nothing is.
	Expect *Expect

	agents map[string]*agent
	// workflows are what the runs come to that steps start, by the names of their
	// workflows.
	workflows map[string]*agent
	// echo answers calls of agents that the script does not name.
	echo   bool
	cancel *cancel
	// signals are the events that come, votes the answers to approvals by the paths
	// or ids of their steps.
	signals []signal
	votes   map[string][]vote
}

// Start is when runs start if nobody says otherwise.
func Start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// agent is what a script says of one agent.
type agent struct {
	cases []*answer
	// echo answers calls that no case fits.
	echo bool
	// ignoresCancel: it goes on when it is asked to end.
	ignoresCancel bool
	retry         workflow.RetryPolicy
}

// answer is one case of an agent.
type answer struct {
	// when is nil if it fits any call; members is the other way to say it.
	when    *expr.Condition
	members json.RawMessage
	// times bounds for how many calls it is taken; 0 is any number.
	times int
	after time.Duration
	// talks: it shows signs of life while it works (rule T2).
	talks bool
	ask   *question
	// output is nil unless the agent answers with a value; fault is how it fails.
	// With neither nothing is heard of it.
	output *expr.Template
	fault  *fault
}

// question is what an agent asks before it answers.
type question struct {
	kind parley.QuestionKind
	text *expr.Template
	// reply is nil if nobody answers.
	reply *parley.Reply
	// after is how long the person takes, work how long the agent does then.
	after, work time.Duration
}

// fault is how a call fails.
type fault struct {
	outcome    parley.Outcome
	err        parley.Error
	retryAfter time.Duration
}

// cancel ends the run from outside.
type cancel struct {
	at, grace  time.Duration
	by, reason string
}

// Expect is what is to come of a run. What is zero is not looked at.
type Expect struct {
	Status parley.RunStatus
	Output json.RawMessage
	Error  *ExpectedError
	// Calls are all calls in their order; nil is not looked at, empty is none.
	Calls []ExpectedCall
	// Runs are all runs that steps start, as Calls.
	Runs []ExpectedCall
	// Emits are all events that the run publishes, in their order, as Calls.
	Emits        []ExpectedEmit
	Steps        map[string]ExpectedStep
	Took, Within *time.Duration
	// Refused: the start is to be refused, with Why in its message; nothing else is
	// looked at then.
	Refused bool
	Why     string
}

// ExpectedError is what an error is to be. What is "" is not looked at; Message is
// a part of the message.
type ExpectedError struct{ Code, Step, Agent, Message string }

// ExpectedCall is one call of an agent, or one run of the workflow that Agent names.
type ExpectedCall struct {
	Agent, Step string
	Input       json.RawMessage
	At          *time.Duration
}

// ExpectedEmit is one event that the run publishes. A nil Data or Key is not looked
// at.
type ExpectedEmit struct {
	Name string
	Key  *string
	Data json.RawMessage
}

// ExpectedStep is what is to come of a step.
type ExpectedStep struct {
	Status   parley.StepStatus
	Output   json.RawMessage
	Error    string
	Attempts *int
	Handled  *bool
}
