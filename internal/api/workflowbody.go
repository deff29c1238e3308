package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/parley-project/parley"
)

// formatJSON is the WorkflowVersion.Format of documents in JSON.
const formatJSON = "json"

// versionLabel is a workflow's version: a number when it is one, as on the
// existing platform, else the text that its author gave.
type versionLabel string

// MarshalJSON gives a JSON number for a whole number in its usual spelling.
func (v versionLabel) MarshalJSON() ([]byte, error) {
	if n, err := strconv.Atoi(string(v)); err == nil && strconv.Itoa(n) == string(v) {
		return []byte(v), nil
	}
	return json.Marshal(string(v))
}

// Schema describes both spellings.
func (versionLabel) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger}, {Type: huma.TypeString}},
		Description: "A number when the version is a whole number, else text.",
	}
}

// workflowBody is a deployed version: the existing platform's members, then
// ours. Workflow is the workflow_id.
type workflowBody struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	Version      versionLabel    `json:"version"`
	WorkflowData json.RawMessage `json:"workflow_data" doc:"The plan, every step with all members. Of other documents an outline: ids, kinds and agents."`
	Status       string          `json:"status"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	CreatedBy    *string         `json:"created_by"`
	UpdatedBy    *string         `json:"updated_by"`

	Workflow string               `json:"workflow"`
	Number   int                  `json:"number"`
	Format   string               `json:"format"`
	Source   string               `json:"source,omitempty" doc:"The document as it was given; not in lists."`
	Steps    []parley.StepSummary `json:"steps" nullable:"false"`
	Warnings []parley.Problem     `json:"warnings,omitempty"`

	Deprecated *parley.Deprecation `json:"deprecated,omitempty" doc:"Set if the version takes no new runs."`
	Aliases    []string            `json:"aliases,omitempty" doc:"Those that stand for the version."`
}

func makeWorkflow(v parley.WorkflowVersion) workflowBody {
	b := workflowBody{
		ID: v.ID, Name: v.Name, Description: orNil(v.Description), Version: versionLabel(v.Version),
		WorkflowData: workflowData(v), Status: string(v.Status),
		CreatedAt: v.CreatedAt.UTC(), UpdatedAt: v.UpdatedAt.UTC(),
		CreatedBy: orNil(v.CreatedBy), UpdatedBy: orNil(v.UpdatedBy),
		Workflow: v.Workflow, Number: v.Number, Format: v.Format, Source: v.Source,
		Steps: v.Steps, Warnings: v.Warnings, Deprecated: v.Deprecated, Aliases: v.Aliases,
	}
	if b.Steps == nil {
		b.Steps = []parley.StepSummary{}
	}
	return b
}

func makeListed(v parley.WorkflowVersion) workflowBody {
	b := makeWorkflow(v)
	b.Source = ""
	return b
}

// workflowData gives the plan as the existing platform stores it: with the id
// and the version that its API adds, and every step with all members.
func workflowData(v parley.WorkflowVersion) json.RawMessage {
	plan, ok := planOf(v)
	if !ok {
		plan = outlineOf(v)
	}
	plan["workflow_id"], plan["name"], plan["version"] = v.Workflow, v.Name, v.Version
	data, err := encode(plan)
	if err != nil {
		return nil
	}
	return json.RawMessage(data)
}

func planOf(v parley.WorkflowVersion) (map[string]any, bool) {
	if v.Format != formatJSON || v.Source == "" {
		return nil, false
	}
	var members, steps map[string]jsontext.Value
	if jsonv2.Unmarshal([]byte(v.Source), &members) != nil || jsonv2.Unmarshal(members["steps"], &steps) != nil {
		return nil, false
	}
	plan := map[string]any{}
	for name, m := range members {
		plan[name] = json.RawMessage(m)
	}
	full := map[string]any{}
	for id, raw := range steps {
		var step map[string]jsontext.Value
		if jsonv2.Unmarshal(raw, &step) != nil {
			return nil, false
		}
		full[id] = fullStep(step)
	}
	plan["steps"] = full
	return plan, true
}

// fullStep adds the members that a step of the existing platform always has.
func fullStep(step map[string]jsontext.Value) map[string]any {
	out := map[string]any{
		"type": "agent", "agent_name": nil, "next_step": nil, "input_mapping": nil,
		"parallel_steps": nil, "max_parallelism": nil,
		"condition": nil, "if_true_step": nil, "if_false_step": nil, "loop_config": nil,
	}
	for name, m := range step {
		if name == "type" && m.Kind() == 'n' {
			continue
		}
		out[name] = json.RawMessage(m)
	}
	return out
}

// outlineOf stands for documents that are no plan, so that readers of plans
// find the steps.
func outlineOf(v parley.WorkflowVersion) map[string]any {
	steps := map[string]any{}
	start := ""
	for i, step := range v.Steps {
		if i == 0 {
			start = step.ID
		}
		steps[step.ID] = map[string]any{"id": step.ID, "type": step.Kind, "agent_name": orNil(step.Agent)}
	}
	return map[string]any{"start_step": orNil(start), "steps": steps, "outline": true}
}
