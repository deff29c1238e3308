package workflow

import (
	"encoding/json"
	"sort"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// State is everything the core knows of one run. It is made by [NewState] and
// changed by [State.Apply] and [State.Replay] only, and belongs to one
// goroutine at a time.
//
// An execution is keyed by its path (rule S9), so that nesting, repetition and
// fan-out are more executions, not other shapes: a loop's third iteration of
// step "review" is "work[3]/review", the second run of a retried group "g#2".
type State struct {
	run string
	def *Definition

	seq        int64
	status     parley.RunStatus
	cancelling bool
	paused     bool
	input      json.RawMessage
	labels     map[string]string
	priority   *int
	trigger    string
	// scheduledAt is the firing that started the run; zero if none did.
	scheduledAt time.Time
	// chain counts the runs that have led to this one by events.
	chain int
	// trace is what agents are sent.
	trace parley.Trace

	// createdAt is when the run was accepted, startedAt when it began.
	createdAt, startedAt, endedAt time.Time
	// turn is what it was started under, timeout what bounds it once it begins, and
	// bound when it ends at the latest, if it has a parent that says so.
	turn    *Turn
	timeout time.Duration
	bound   time.Time
	// deadline ends the body (rule T3), graceUntil a cancel's grace, cleanupUntil the
	// phase that follows the body.
	deadline, graceUntil, cleanupUntil time.Time
	// phase is the part of the run under way, outcome how its body has ended.
	phase   string
	outcome outcome
	// earlier counts the executions of the phases before the one under way, earlierBytes
	// is the size of their values.
	earlier      int
	earlierBytes int64

	output       json.RawMessage
	err          *parley.Error
	cancelledBy  string
	cancelReason string
	pausedBy     string
	pauseReason  string
	retriedFrom  string

	// body is the list of the workflow's steps as it is carried out.
	body *region
	// finally is nil until then.
	finally *region
	// execs by path, and their paths in the order of being first considered. open
	// are those that run, in the order in which they began to.
	execs map[string]*execution
	order []string
	open  openList
	// leaves counts those of them that hold no others.
	leaves int
	// undoing are the executions of which the compensation is under way.
	undoing []*execution
	// inFlight maps the task ids that were scheduled and not settled to the
	// path of their execution.
	inFlight map[string]string
	// children is the same for the runs that steps have started and wait for.
	children map[string]string
	// parent is the step that has started this run, or nil; resolved are the
	// versions that fixed names of workflows mean.
	parent   *Parent
	resolved []ResolvedChild
	// copied holds what was taken over from the run that this one goes on from and was
	// not used yet, by path.
	copied map[string]Copied
	// edits are inputs of steps, by id; rerunFrom is where a rerun began.
	edits     map[string]json.RawMessage
	rerunFrom string
	// sessions maps session and agent to the agent's context id (rule P1).
	sessions map[string]string
	// listens are the paths of the executions that wait for events, in the order
	// in which they began to; taken are the ids of the events that came, with when those
	// were published.
	listens []string
	taken   map[string]time.Time
	// approvals are the paths of the executions that wait for one.
	approvals []string
	// full are the names and keys of events that cannot be published now.
	full map[string]bool
	// bytes is the size of all values of the run (§10), questions included.
	bytes int64
	// progress counts the events of step.accepted, step.progress and step.chunk,
	// progressBytes their data; progressEnded: a limit was reached, and said.
	progress      int
	progressBytes int64
	progressEnded bool

	limits RunLimits
}

// execution is one execution of a step.
type execution struct {
	path string
	step *Step
	// region is the list that it stands in; parts are the lists inside of it in its
	// round that have begun: of a loop by iteration, else by their place among the
	// blocks of the step.
	region *region
	parts  []*region
	// handling is the handler that is carried out, or was; undo what compensates x.
	handling *handling
	undo     *undo
	// endSeq is the number of the event that ended x.
	endSeq int64
	// dirty is as in region.
	dirty bool
	// place is where it stands among those that run.
	place int
	// round counts the runs of a composite's block; 2 and up after a retry.
	round int
	// entered is set once it was evaluated what a composite runs.
	entered bool
	// chosen is the case that a conditional or a switch runs, -1 for none; it is
	// chosen once, whatever the round (rule S2).
	chosen int

	// plan is the list of steps that a plan step runs, planned as it was recorded.
	plan    *Definition
	planned json.RawMessage
	// items are those that a loop goes over, truncated counts those that it leaves.
	items     []json.RawMessage
	truncated int

	status  parley.StepStatus
	handled bool
	// wentTo is the step that its handler went to, or "".
	wentTo string
	// leftOut: the flow of a chained list has gone past it.
	leftOut bool
	// copied: it has ended as in an earlier run (rule C6), in which it may have done
	// something without completing (calledBefore).
	copied, calledBefore bool
	// agent is the one called last, or whose output the step has.
	agent string
	// attempts counts the attempts that were scheduled, the newest of which has its
	// number by that; flights are those that have not ended, in the order in which they
	// were: more than one only of hedged agents. early: the step was cancelled
	// before the time of the newest had come.
	attempts int
	flights  []*flight
	early    bool
	// uncalled counts the attempts of an agent step that were none: its input could not
	// be evaluated.
	uncalled int
	// tried counts the agents of a list that were called: in the round of calls
	// under way if they are hedged. hedgeAt is when the next of them is called.
	tried   int
	hedgeAt time.Time
	// others are the errors of the agents of a list that have failed before.
	others []*parley.Error
	// retryAt is set while the execution waits for its next attempt, wakeAt while a
	// wait step waits for its time.
	retryAt, wakeAt time.Time
	// granted counts the retries that each policy has granted (rule R3).
	granted map[int]int
	// awaits is what a wait_for_event step waits for, deaf: one match has failed
	// already.
	awaits *parley.AwaitedSignal
	deaf   bool
	// ask is what an approval step asks. What it points to does not change.
	ask *asking
	// child is the run that a sub_workflow step has started, or asks for.
	child *child

	input, output json.RawMessage
	err           *parley.Error
	// agentTaskID is the agent's own name for the task of the attempt that ended
	// the step.
	agentTaskID string

	scheduledAt, startedAt, endedAt time.Time
	// triedAt is when the last attempt was scheduled.
	triedAt time.Time
	// failedAt is when an attempt failed first; zero if none did.
	failedAt time.Time
	// deadline is rule T1; zero is none.
	deadline time.Time
}

// flight is an attempt that has been scheduled and has not ended.
type flight struct {
	task, agent string
	attempt     int
	// question is what the agent waits for, or nil; news numbers the last change
	// of it, asked counts the questions.
	question    *parley.Question
	news, asked int
}

// flight gives the attempt of that task if it is in flight, else nil.
func (e *execution) flight(task string) *flight {
	for _, f := range e.flights {
		if f.task == task {
			return f
		}
	}
	return nil
}

// RunLimits are those of language.md §10 that the core watches. Passing one is
// error limit with its name and value.
type RunLimits struct {
	// Value bounds one input or output, RunValues all values of a run, in bytes.
	Value, RunValues int64
	// Executions bounds the step executions of a run.
	Executions int
	// Items bounds what one loop goes over, Running the steps of a run that run at
	// the same time and hold no others.
	Items, Running int
	// Attempts bounds the attempts of one step, PlanBytes a plan.
	Attempts  int
	PlanBytes int64
	// Runs bounds the nesting of runs: a run that none has started counts 1.
	Runs int
	// Questions bounds what the agent of one attempt may ask.
	Questions int
	// Progress bounds the events of progress of a run, ProgressBytes their data
	// in bytes; what comes beyond is not recorded, and a warning says so.
	Progress      int
	ProgressBytes int64
	// OpenApprovals bounds the approvals of a run that wait.
	OpenApprovals int
	// WaitingEvents bounds the events of one name and key that wait to be taken,
	// those of all runs together.
	WaitingEvents int
	// QueuedRuns bounds the runs of one workflow and concurrency key that wait for
	// their turn.
	QueuedRuns int
}

// DefaultRunLimits are the figures of language.md §10, and for what it does not
// name: 1,000 questions an attempt, 10,000 events and 16 MiB of progress a run,
// 10,000 runs that wait for their turn.
func DefaultRunLimits() RunLimits {
	return RunLimits{
		Value: 8 << 20, RunValues: 256 << 20, Executions: 10_000, Items: 1_000, Running: 1_000, Attempts: 100, Runs: 32, PlanBytes: 256 << 10,
		Questions: 1_000, Progress: 10_000, ProgressBytes: 16 << 20,
		OpenApprovals: 100, WaitingEvents: 1_000, QueuedRuns: 10_000,
	}
}

// NewState gives the state of a run before its first event.
func NewState(run string, def *Definition, limits RunLimits) *State {
	return &State{
		body: newRegion(def.Body, nil, 0, ""), phase: phaseBody,
		run: run, def: def, status: parley.RunPending, limits: limits,
		execs:    make(map[string]*execution, len(def.Steps)),
		inFlight: make(map[string]string, 1),
	}
}

// RunID is the id of the run.
func (s *State) RunID() string { return s.run }

// Priority is the run's among those that wait for the same agents: 0 to
// [parley.MaxRunPriority], higher goes first.
func (s *State) Priority() int {
	if s.priority == nil {
		return parley.DefaultRunPriority
	}
	return *s.priority
}

// Definition is the workflow that the run executes.
func (s *State) Definition() *Definition { return s.def }

// AgentOf gives the agent of a task in flight, or "".
func (s *State) AgentOf(task string) string {
	if x := s.execs[s.inFlight[task]]; x != nil {
		return x.flight(task).agent
	}
	return ""
}

// Judges reports whether what an agent answers to a task may be refused: it is
// parsed, shaped or checked.
func (s *State) Judges(task string) bool {
	x := s.execs[s.inFlight[task]]
	return x != nil && (x.step.ParseJSON || x.step.Output != nil || x.step.Schema != nil)
}

// Waits reports whether a task is in flight.
func (s *State) Waits(task string) bool { _, ok := s.inFlight[task]; return ok }

// Seq is the number of the newest event.
func (s *State) Seq() int64 { return s.seq }

// Status is the run's status.
func (s *State) Status() parley.RunStatus { return s.status }

// Cancelling reports whether a cancel was accepted and has not ended yet.
func (s *State) Cancelling() bool { return s.cancelling && !s.status.Terminal() }

// CancelledBy gives who cancelled the run and why.
func (s *State) CancelledBy() (by, reason string) { return s.cancelledBy, s.cancelReason }

// Err is the run's error, or nil.
func (s *State) Err() *parley.Error { return s.err }

// Times gives when the run began and ended, as far as it has.
func (s *State) Times() (started, ended time.Time) { return s.startedAt, s.endedAt }

// InFlight gives the ids of the tasks that were scheduled and have not ended,
// sorted.
func (s *State) InFlight() []string {
	ids := make([]string, 0, len(s.inFlight))
	for id := range s.inFlight {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

// Due is the earliest of the run's timers; zero if there is none.
func (s *State) Due() time.Time {
	switch {
	case s.status.Terminal():
		return time.Time{}
	case s.cancelling && len(s.inFlight) == 0: // children have times of their own
		return time.Time{}
	case s.cancelling: // no other timer does anything any more
		return s.graceUntil
	}
	due := s.deadline
	if s.phase != phaseBody {
		due = s.cleanupUntil
	}
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	for e := range s.open.all() {
		earlier(e.deadline)
		earlier(e.branchDeadline())
		if s.paused {
			continue // every other timer acts at resume (rule C5)
		}
		earlier(e.wakeAt)
		// The next attempt of an agent call is a row that becomes visible by
		// itself; only the core can begin anything else again.
		if len(e.flights) == 0 {
			earlier(e.retryAt)
		}
		earlier(e.hedgeAt)
	}
	return due
}

// taskID gives the id of an attempt: stable over re-deliveries, new for each
// attempt.
func (s *State) taskID(path string, attempt int) string {
	return s.run + "." + path + "." + strconv.Itoa(attempt)
}

// holds reports whether there are lists of steps inside of x that are carried out:
// of a conditional or a switch of which no case was met there is none.
func (e *execution) holds() bool {
	return e.handling != nil || e.plan != nil || e.step.Loop != nil || e.step.Fork != nil || e.block() != nil
}

// block is the list that x runs; nil for steps that hold none, and for forks.
func (e *execution) block() *Block {
	switch {
	case e.plan != nil:
		return e.plan.Body
	case e.step.Cases == nil:
		return e.step.Body
	}
	if !e.entered || e.chosen < 0 {
		return nil
	}
	return e.step.Cases[e.chosen].Body
}

// inside is the list of x's round, where there is but one.
func (e *execution) inside() *region { return e.part(e.block().Part) }

// passed reports whether e lets its successors start (rule S1).
func (e *execution) passed() bool {
	return e.status == parley.StepCompleted || e.status == parley.StepSkipped ||
		(e.status == parley.StepFailed && e.handled)
}

// lost reports whether e fails the scope that it stands in (rule S3).
func (e *execution) lost() bool { return e.status == parley.StepFailed && !e.handled }

// AgentAt gives the agent that the execution of a step calls, or "": for other
// kinds of steps, those that call none, and those that have not begun.
func (s *State) AgentAt(path string) string {
	if x := s.execs[path]; x != nil {
		return x.agent
	}
	return ""
}

// FailedTask is an agent step that has used up its policy, or a step that has
// failed with such a one of the run that it had started.
type FailedTask struct {
	// Task is its last attempt.
	Task parley.Task
	Err  *parley.Error
	// Root is the error of the agent step: Err, unless that is one of another run.
	Root *parley.Error
	// ScheduledAt is when its last attempt was scheduled, FirstFailedAt when the first
	// failed.
	ScheduledAt, FirstFailedAt time.Time
}

// FailedTask gives the agent step that a run has failed at: an attempt of it was
// made, it failed for good, and nothing in the workflow has handled that. If that
// was in a run that a step has started, it gives that step. ok is false for runs
// that have not failed, or for another reason (a step of another kind, an
// expression, the run's own timeout).
func (s *State) FailedTask() (f FailedTask, ok bool) {
	if s.status != parley.RunFailed || s.err == nil {
		return f, false
	}
	x := s.execs[s.err.Step]
	if x == nil || x.attempts == 0 || x.input == nil || x.status != parley.StepFailed || x.handled {
		return f, false
	}
	root, agent := x.err, x.agent
	switch x.step.Kind {
	case KindAgent:
	case KindSubWorkflow:
		for root.Cause != nil {
			root = root.Cause
		}
		if agent = root.Agent; agent == "" || root.Attempt == 0 {
			return f, false
		}
	default:
		return f, false
	}
	id := s.taskID(x.path, x.attempts)
	f = FailedTask{
		Task: parley.Task{
			ID: id, Run: s.run, Step: x.path, Attempt: x.attempts, Agent: agent, Input: x.input, CorrelationID: parley.CorrelationID(id),
			Trace: s.trace,
		},
		Err: x.err, Root: root, ScheduledAt: x.triedAt, FirstFailedAt: x.failedAt,
	}
	return f, true
}
