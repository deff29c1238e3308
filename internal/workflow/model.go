package workflow

import (
	"math"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// Form is the spelling of a document (language.md, head).
type Form string

// The two spellings. Both compile to one model.
const (
	FormList  Form = "list"
	FormGraph Form = "graph"
)

// Kind is what a step does (language.md §2).
type Kind string

// The kinds that this version runs.
const (
	KindAgent       Kind = "agent"
	KindGroup       Kind = "group"
	KindParallel    Kind = "parallel"
	KindConditional Kind = "conditional"
	KindSwitch      Kind = "switch"
	KindForkJoin    Kind = "fork_join"
	KindLoop        Kind = "loop"
	KindPlan        Kind = "plan"
	KindWait        Kind = "wait"
	KindSet         Kind = "set"
	KindFail        Kind = "fail"
	KindFinish      Kind = "finish"
	KindValidate    Kind = "validate"
	KindAwait       Kind = "wait_for_event"
	KindEmit        Kind = "emit"
	KindApproval    Kind = "approval"
	KindSubWorkflow Kind = "sub_workflow"
)

// Definition is one compiled version of a workflow: checked, immutable, free
// for concurrent use.
type Definition struct {
	// ID is the workflow_id, Name the display name (language rule D-top).
	ID, Name, Version, Description string
	Language                       int
	Labels                         map[string]string
	Form                           Form
	// Input is checked before a start is accepted; nil accepts anything.
	Input *Schema
	Body  *Block
	// Finally runs after the body and its compensation, however they ended; nil is
	// nothing.
	Finally *Block
	// Output is evaluated when the body has completed; nil is the block output.
	Output *expr.Template
	// Timeout bounds the body of a run; never zero (default 30 days).
	Timeout        time.Duration
	CleanupTimeout time.Duration
	// IdempotencyKey is used when a start names no key; nil is none.
	IdempotencyKey *expr.Template
	// Concurrency bounds the runs that run at the same time; nil is no bound.
	Concurrency *Concurrency
	// Triggers start runs by themselves, in the order of the source.
	Triggers []*Trigger
	// Steps holds every step of the document at every depth, by id.
	Steps map[string]*Step
	// Hedged are the agents that must be declared idempotent before a run is
	// started (rule R5).
	Hedged []HedgedAgent
	// Children are the fixed names of the workflows that steps run, of which the
	// versions are found when a run is started (rule S11).
	Children []ChildRef
	// Warnings are the findings that did not keep the document from compiling.
	Warnings []Problem
	// Recorded: it is made of the history of a run that was carried out elsewhere.
	Recorded bool
}

// HedgedAgent is an agent that a step calls beside others.
type HedgedAgent struct{ Step, Agent string }

// Block is one list of steps: a scope (rule S1).
type Block struct {
	// Steps in list order; in graph form in the order of the main path.
	Steps []*Step
	// Parent is the composite step that owns the block; nil for the body.
	Parent *Step
	// Name tells the blocks of one step apart: "then", "else", "1" … It is "" for
	// the only block of its step.
	Name string
	// MaxParallel bounds the steps of the block that run at the same time (rule
	// S5); 0 is no bound.
	MaxParallel int
	// Wait lets all steps of the block end before it fails (rule S4, losers:
	// wait); otherwise it fails with the first of them.
	Wait bool
	// Role is what the block is to its step.
	Role BlockRole
	// Part is the place of the block among those of its step.
	Part int
	// Timeout bounds the block; 0 is none. It is that of the branch of a fork.
	Timeout time.Duration
	// After has, for each step, the indexes of those that need it.
	After [][]int
	// Chained is set for chains of the graph form that part or meet: what comes after
	// a step is its Next, what stands between the two is skipped.
	Chained bool
}

// link notes which steps need which, once all of them are known.
func (b *Block) link() {
	b.After = make([][]int, len(b.Steps))
	for _, s := range b.Steps {
		for _, n := range s.Needs {
			b.After[n] = append(b.After[n], s.Index)
		}
	}
}

// BlockRole is what a list of steps is to the step, or the workflow, that it stands
// in.
type BlockRole int

// The roles of a list of steps.
const (
	roleBody BlockRole = iota
	roleHandler
	roleCompensate
	roleFinally
)

// Case is one of the blocks of a conditional or a switch, of which one is run at
// most.
type Case struct {
	// When says whether it is run, Old is the same in the old platform's grammar;
	// with neither it always is.
	When *expr.Condition
	Old  *expr.OldCondition
	// Body is nil where there is nothing to run, such as an else that is absent. Two
	// cases of which the chains meet have the same one.
	Body *Block
	// Entry is the index of the step that it begins with.
	Entry int
}

// Step is one compiled step. Which members are set depends on Kind.
type Step struct {
	ID          string
	Kind        Kind
	Name        string
	Description string
	// Block is the list that the step stands in, Index its place there.
	Block *Block
	Index int
	// Needs are the indexes of the siblings that must have ended (rule S1).
	Needs []int
	// Next is the index of what comes after the step in a Block that is Chained; its
	// length is the end.
	Next int
	// If is nil when the step always runs.
	If *expr.Condition

	// Agent is the fixed name of an agent step; "" when AgentExpr gives it at
	// the start of the step, as one of Among.
	Agent     string
	AgentExpr *expr.Template
	Among     []string
	// Agents are called one after another, or side by side if Hedged, HedgeAfter
	// after each other (rule R5); nil when Agent or AgentExpr says who is called.
	Agents     []string
	Hedged     bool
	HedgeAfter time.Duration
	// Input of the kinds that take one, never nil there (default {}).
	Input *expr.Template
	// Session continues a conversation; nil is none.
	Session string
	// ParseJSON is `parse: json` (rule P1).
	ParseJSON bool
	// Output shapes the step's output; nil keeps the result.
	Output *expr.Template
	Schema *Schema

	// Timeout bounds the whole step, AttemptTimeout one attempt, Silence the
	// time without a sign of life; 0 is none. Defaults of the workflow are
	// resolved; Silence is 5 minutes if nothing is said (rule T2).
	Timeout, AttemptTimeout, Silence time.Duration
	// Retry is nil when rule R4 applies.
	Retry []RetryPolicy
	// Handlers are those of on_error, in their order; none lets the failure pass on.
	Handlers []Handler
	// Compensate undoes the step; nil is nothing. CompensateStarted is
	// `compensate_if: started`.
	Compensate        *Block
	CompensateStarted bool

	// Body of a group or a parallel.
	Body *Block
	// Cases of a conditional, then and else, or of a switch.
	Cases []Case
	// Branching is a conditional of the graph form, whose output says what was
	// decided (formats.md).
	Branching bool
	// Fork and Loop are what a fork_join and a loop are told; the body of a loop is
	// Body.
	Fork *Fork
	Loop *Loop
	// Plan is what a plan step runs.
	Plan *Plan
	// Wait is how long a wait step waits, unless WaitUntil says until when.
	Wait      time.Duration
	WaitUntil *expr.Template
	// Set, Fail, Finish and Validate are the value of their kind.
	Set      *expr.Template
	Fail     *Fail
	Finish   *expr.Template
	Validate *expr.Template
	// Await is what a wait_for_event step waits for, Emit what an emit step
	// publishes.
	Await *Await
	Emit  *Emit
	// Approval is what an approval step asks.
	Approval *ApprovalSpec
	// Child is what a sub_workflow step runs.
	Child *Child
}

// Fail is the value of a fail step.
type Fail struct {
	Code             parley.Code
	Message, Details *expr.Template
}

// RetryPolicy is rule R1. Defaults are filled in.
type RetryPolicy struct {
	// Attempts counts all calls: 1 to 100.
	Attempts   int
	Delay      time.Duration
	Multiplier float64
	MaxDelay   time.Duration
	// FullJitter draws uniformly from [0, delay]; otherwise there is no jitter.
	FullJitter bool
	// On lists codes; nil is the default set, ["*"] everything but cancelled,
	// limit, expression and outcome_unknown. NotOn takes codes away.
	On, NotOn []parley.Code
}

// Problem is one finding in a document.
type Problem = parley.Problem

// Fork says what becomes of the branches of a fork_join (rule S4).
type Fork struct {
	// Branches in the order of the source; their blocks have the branch's name.
	Branches []*Block
	// Need is how many must complete.
	Need int
	// Wait lets all branches end; otherwise the rest is cancelled as soon as the
	// outcome is certain.
	Wait bool
	// MaxParallel bounds the branches that run at the same time; 0 is no bound.
	MaxParallel int
}

// Loop says how often the body of a loop is run: for each item of a list (rule
// S7), or until something holds (rule S8).
type Loop struct {
	// Over is the list; nil for repeat.
	Over *expr.Template
	// MaxParallel bounds the iterations that run at the same time; 0 is no bound.
	MaxParallel int
	// MaxIterations takes the first so many items; 0 takes all. The rest is counted
	// in the output if Truncated is set.
	MaxIterations int
	Truncated     bool
	Errors        ItemErrors
	// Tolerate is how many iterations may fail, a count or a part of all of them in
	// percent; nil is none, or what Enough leaves.
	Tolerate *Tolerance
	// Enough completes the loop with so many completed iterations; 0 is all.
	Enough int

	// Max, Until and FailAtMax are those of repeat. A nil Until is never true.
	Max       int
	Until     *expr.Condition
	FailAtMax bool
}

// ItemErrors is what failed iterations mean for a loop.
type ItemErrors string

// The values of item_errors.
const (
	ItemErrorsStop     ItemErrors = "stop"
	ItemErrorsContinue ItemErrors = "continue"
	ItemErrorsCollect  ItemErrors = "collect"
)

// Tolerance is how many iterations of a loop may fail: Count of them, or Percent of
// all.
type Tolerance struct {
	Count   int
	Percent float64
}

// of gives the bound for n iterations.
func (t *Tolerance) of(n int) float64 {
	if t == nil {
		return 0
	}
	// 64.6 % of 500 are 323, and not the 322.99999999999994 of the machine.
	return max(float64(t.Count), math.Round(t.Percent*float64(n)*1e6)/1e8)
}

// Blocks gives the lists of steps inside of a step, none for most kinds.
func (s *Step) Blocks() []*Block {
	var all []*Block
	if s.Body != nil {
		all = append(all, s.Body)
	}
	for _, c := range s.Cases {
		if c.Body != nil && !slices.Contains(all, c.Body) {
			all = append(all, c.Body)
		}
	}
	if s.Fork != nil {
		all = append(all, s.Fork.Branches...)
	}
	return all
}

// AllBlocks gives the lists inside of a step, with those of its handlers and its
// compensation.
func (s *Step) AllBlocks() []*Block {
	all := s.Blocks()
	for _, h := range s.Handlers {
		if h.Body != nil {
			all = append(all, h.Body)
		}
	}
	if s.Compensate != nil {
		all = append(all, s.Compensate)
	}
	return all
}

// blockAt is the block with that place among those of the step; an iteration of a
// loop has no block of its own.
func (s *Step) blockAt(part int) *Block {
	switch {
	case s.Cases != nil:
		return s.Cases[part].Body
	case s.Fork != nil:
		return s.Fork.Branches[part]
	}
	return s.Body
}
