package api

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// runBody is a run under the names of interface.md and those of formats.md.
type runBody struct {
	parley.Run

	RunID string `json:"run_id"`
	// WorkflowID is the deployed version's UUID; the workflow_id of the
	// document stands in workflow.
	WorkflowID           string          `json:"workflow_id"`
	WorkflowName         string          `json:"workflow_name"`
	WorkflowDefinitionID *string         `json:"workflow_definition_id"`
	InputData            json.RawMessage `json:"input_data"`
	OutputData           json.RawMessage `json:"output_data"`
	TriggeredBy          *string         `json:"triggered_by"`
	UpdatedAt            time.Time       `json:"updated_at"`
	CompletedAt          *time.Time      `json:"completed_at"`
	CancelledAt          *time.Time      `json:"cancelled_at"`
	CancelledBy          *string         `json:"cancelled_by"`
	ErrorMessage         *string         `json:"error_message"`
}

func makeRun(run parley.Run) runBody {
	run.CreatedAt = run.CreatedAt.UTC()
	run.StartedAt, run.EndedAt = utc(run.StartedAt), utc(run.EndedAt)
	if run.Labels == nil {
		run.Labels = map[string]string{}
	}
	run.Steps = mapped(run.Steps, stepTimes)
	b := runBody{
		Run:   run,
		RunID: run.ID, WorkflowID: run.DefinitionID, WorkflowName: run.WorkflowName,
		WorkflowDefinitionID: orNil(run.DefinitionID),
		InputData:            run.Input, OutputData: run.Output,
		TriggeredBy: orNil(run.TriggeredBy), UpdatedAt: run.UpdatedAt.UTC(),
		CancelledBy: orNil(run.CancelledBy), ErrorMessage: runError(run),
	}
	if b.WorkflowID == "" {
		b.WorkflowID = run.Workflow
	}
	switch run.Status {
	case parley.RunCompleted, parley.RunFailed:
		b.CompletedAt = run.EndedAt
	case parley.RunCancelled:
		b.CancelledAt = run.EndedAt
	case parley.RunPending, parley.RunRunning:
	}
	return b
}

// runError is the text that the existing platform has for the end of a run. A
// cancel that was asked for shows at once, as it does there.
func runError(run parley.Run) *string {
	text := ""
	switch {
	case run.Status == parley.RunFailed && run.Error != nil && run.Error.Step != "":
		text = "Workflow failed at step '" + run.Error.Step + "': " + run.Error.Message
	case run.Status == parley.RunFailed && run.Error != nil:
		text = run.Error.Message
	case run.Status == parley.RunCompleted:
	case run.CancelReason != "":
		text = "Cancelled: " + run.CancelReason
	case run.Status == parley.RunCancelled:
		text = "Cancelled"
	}
	return orNil(text)
}

// stepBody is a step under the names of interface.md and those of formats.md.
type stepBody struct {
	parley.Step

	RunID        string          `json:"run_id"`
	StepID       string          `json:"step_id"`
	StepName     string          `json:"step_name"`
	AgentName    string          `json:"agent_name"`
	InputData    json.RawMessage `json:"input_data"`
	OutputData   json.RawMessage `json:"output_data"`
	CompletedAt  *time.Time      `json:"completed_at"`
	ErrorMessage *string         `json:"error_message"`
}

func makeStep(run string, step parley.Step) stepBody {
	step = stepTimes(step)
	b := stepBody{
		Step: step, RunID: run, StepID: step.ID, StepName: step.Agent, AgentName: step.Agent,
		InputData: step.Input, OutputData: step.Output, CompletedAt: step.EndedAt,
	}
	if b.StepName == "" {
		b.StepName = step.ID
	}
	if len(b.InputData) == 0 {
		b.InputData = json.RawMessage(`{}`)
	}
	if step.Error != nil {
		b.ErrorMessage = &step.Error.Message
	}
	return b
}

func stepTimes(step parley.Step) parley.Step {
	step.ScheduledAt, step.StartedAt, step.EndedAt = utc(step.ScheduledAt), utc(step.StartedAt), utc(step.EndedAt)
	return step
}

// makeSteps gives steps by the time they started; those that have not come
// last, in the order of the run.
func makeSteps(run parley.Run) []stepBody {
	out := mapped(run.Steps, func(s parley.Step) stepBody { return makeStep(run.ID, s) })
	slices.SortStableFunc(out, func(a, b stepBody) int {
		switch {
		case a.StartedAt == nil && b.StartedAt == nil:
			return 0
		case a.StartedAt == nil:
			return 1
		case b.StartedAt == nil:
			return -1
		default:
			return a.StartedAt.Compare(*b.StartedAt)
		}
	})
	return out
}
