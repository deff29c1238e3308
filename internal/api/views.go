package api

import (
	"context"

	"github.com/parley-project/parley"
)

// Runs is what the API needs of whoever runs workflows. Errors are
// *parley.Error; those named below decide the status of the answer.
type Runs interface {
	// Start begins a run, or gives the one that the same idempotency key
	// began (existing). not_found, conflict (inactive), invalid_input,
	// idempotency_conflict, limit.
	Start(ctx context.Context, req parley.StartRequest) (run parley.Run, existing bool, err error)
	// Run gives one run with its steps. not_found.
	Run(ctx context.Context, id string) (parley.Run, error)
	// List gives one page and the true number of all that match.
	List(ctx context.Context, q parley.RunQuery) (items []parley.Run, total int, err error)
	// Events gives at most limit events with Seq > after, in order. With wait
	// it blocks until there is one, or the run has ended and all its events
	// were given (then the answer is empty), or ctx ends. not_found.
	Events(ctx context.Context, id string, after int64, limit int, wait bool) ([]parley.Event, error)
	// Attempts gives one page of a run's attempts in the order in which they
	// were scheduled, and the true number of all that match. not_found.
	Attempts(ctx context.Context, q parley.AttemptQuery) (items []parley.Attempt, total int, err error)
	// Cancel asks for the end of a run; asking again is the same answer.
	// not_found, conflict (the run has ended).
	Cancel(ctx context.Context, req parley.CancelRequest) (parley.Run, error)
	// Retry makes a new run from one that is FAILED or CANCELLED, or gives the one
	// that the same idempotency key made before (existing). not_found, conflict (any
	// other state), idempotency_conflict.
	Retry(ctx context.Context, req parley.RetryRequest) (run parley.Run, existing bool, err error)
	// AnswerStep answers what the agent of a step waits for. not_found, conflict
	// (nothing waits, or several steps do and none is named), invalid, limit.
	AnswerStep(ctx context.Context, req parley.AnswerRequest) (parley.Run, error)
}

// Workflows is what the API needs of whoever keeps workflow documents. A ref
// is a version's UUID, a workflow_id, a name or workflow@version.
type Workflows interface {
	// Apply deploys a document; created is false if equal content was deployed
	// already. The error may be [parley.Problems]. not_found, conflict.
	Apply(ctx context.Context, req parley.ApplyRequest) (v parley.WorkflowVersion, created bool, err error)
	// Validate gives what Apply would find, errors and warnings.
	Validate(ctx context.Context, req parley.ApplyRequest) parley.Problems
	// Get gives one version with its source. not_found.
	Get(ctx context.Context, ref string) (parley.WorkflowVersion, error)
	// List gives one page of workflows (their newest versions) and the true
	// number of all that match.
	List(ctx context.Context, q parley.WorkflowQuery) ([]parley.WorkflowVersion, int, error)
	// Versions gives one page of the versions of one workflow, newest first, and the
	// number of all. not_found.
	Versions(ctx context.Context, ref string, p parley.Page) ([]parley.WorkflowVersion, int, error)
	// Remove marks a workflow deleted; again is no error. not_found.
	Remove(ctx context.Context, ref, by string) error
}

// Agents is what the API needs of the registry. A ref is an id or a name.
type Agents interface {
	// Add registers an agent. conflict (the name is or was taken), invalid,
	// unsupported_protocol; with the protocol auto also as Detect.
	Add(ctx context.Context, spec parley.AgentSpec) (parley.Agent, error)
	// Update changes the members that spec gives. not_found, invalid,
	// unsupported_protocol.
	Update(ctx context.Context, ref string, spec parley.AgentSpec) (parley.Agent, error)
	// Get gives one agent, also a deleted one. not_found.
	Get(ctx context.Context, ref string) (parley.Agent, error)
	// List gives one page and the true number of all that match, also deleted
	// ones.
	List(ctx context.Context, q parley.AgentQuery) ([]parley.Agent, int, error)
	// Remove marks an agent deleted; again is no error. not_found.
	Remove(ctx context.Context, ref, by string) (parley.Agent, error)
	// Detect finds out how the agent that spec describes is called, and stores
	// nothing. invalid, agent_unavailable, agent_rejected.
	Detect(ctx context.Context, spec parley.AgentSpec) (parley.Detection, error)
	// Check looks at the agent and its card anew; what it stores of that is a change
	// by whom by names. not_found.
	Check(ctx context.Context, ref, by string) (parley.AgentCheck, error)
	// Health looks at the agent once. not_found.
	Health(ctx context.Context, ref string) (parley.AgentHealth, error)
}

// Conditions is what the API needs of whoever knows how agents do.
type Conditions interface {
	// Condition says how one agent does, by its id or name. not_found.
	Condition(ctx context.Context, ref string) (parley.AgentCondition, error)
	// Conditions says how one page of agents do, and gives the true number of all
	// that match.
	Conditions(ctx context.Context, q parley.AgentQuery) ([]parley.AgentCondition, int, error)
}

// Breakers is what the API needs of whoever keeps the circuit breakers and the
// logs of agents. A ref is an id or a name. not_found, also for agents.
type Breakers interface {
	// Breaker gives the state of an agent's circuit.
	Breaker(ctx context.Context, ref string) (parley.BreakerState, error)
	// Switch opens or closes a circuit by hand; again changes nothing.
	Switch(ctx context.Context, ref string, o parley.BreakerOrder) (parley.BreakerState, error)
	// Log gives at most limit entries of the agent's log with Seq > after, in
	// order. With wait it blocks until there is one, or ctx ends.
	Log(ctx context.Context, ref string, after int64, limit int, wait bool) ([]parley.AgentEvent, error)
}
