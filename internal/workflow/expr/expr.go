// Package expr compiles and evaluates what stands in ${…}: path references and
// CEL (language.md §4). It is pure: no clock, no randomness, no I/O.
package expr

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
)

// Scope is what an expression may see while it is evaluated (rule E4). Values
// are JSON as it is stored.
type Scope struct {
	Workflow WorkflowInfo
	Run      RunInfo
	// Now is the time of the event that is being applied.
	Now time.Time
	// Step gives the state of a visible step; ok is false for ids that are not
	// visible from where the expression stands.
	Step func(id string) (info StepInfo, ok bool)
	// Result is the value that `output` shapes; nil where it is not in scope.
	Result json.RawMessage
	// Error is in scope of handlers and compensation; nil elsewhere.
	Error *parley.Error
	// Each is the innermost iteration; nil outside of loops.
	Each *EachInfo
	// Event is the event of `match` and triggers; nil where it is not in scope.
	Event json.RawMessage
	// PlanInput is `plan.input`; nil outside of plans.
	PlanInput json.RawMessage
	// Values has what [Options.Values] names.
	Values map[string]json.RawMessage
	// MaxValue is what a template may give, in bytes, where that is more than 8 MiB.
	MaxValue int64
}

// maxValue bounds what a template gives.
func (s *Scope) maxValue() int64 { return max(s.MaxValue, maxValue) }

// WorkflowInfo is `workflow`.
type WorkflowInfo struct {
	ID, Name, Version string
	Input             json.RawMessage
}

// RunInfo is `run`.
type RunInfo struct {
	ID      string
	Labels  map[string]string
	Trigger string
	// ScheduledAt is zero for runs that no schedule has started.
	ScheduledAt time.Time
	// Parent is the id of the run that started this one; "" if none did.
	Parent    string
	StartedAt time.Time
	Deadline  time.Time
	// Outcome and Error are in scope of `finally` only.
	Outcome string
	Error   *parley.Error
}

// StepInfo is `steps.<id>`.
type StepInfo struct {
	Status   parley.StepStatus
	Output   json.RawMessage
	Error    *parley.Error
	Handled  bool
	Attempts int
	// Case is the place of the case that a switch has chosen, -1 for none; nil for
	// other steps.
	Case *int
	// StartedAt and EndedAt are zero until then.
	StartedAt, EndedAt time.Time
}
