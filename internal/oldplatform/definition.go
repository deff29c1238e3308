package oldplatform

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// definition makes the version of a workflow. The plan is kept as it is read.
// workflowID is the workflow that all versions of the name belong to.
func definition(row *definitionRow, workflowID string) (store.Import, error) {
	created, err := timeOf(row.CreatedAt)
	if err != nil {
		return store.Import{}, err
	}
	updated, err := timeOf(row.UpdatedAt)
	if err != nil {
		return store.Import{}, err
	}
	status := parley.AgentStatus(row.Status)
	switch status {
	case parley.AgentActive, parley.AgentInactive, parley.AgentDeleted:
	default:
		return store.Import{}, parley.Errorf(parley.CodeInvalid, "its status %q is none of active, inactive and deleted", row.Status)
	}
	const maxSource = 1 << 20
	if n := len(row.Data); n > maxSource {
		return store.Import{}, parley.Errorf(parley.CodeLimit, "its plan has %d bytes, the limit is %d", n, maxSource)
	}
	sum := sha256.Sum256([]byte(row.Data))
	return store.Import{Kind: store.ImportDefinition, ID: row.ID, Definition: &store.Definition{
		ID: row.ID, Workflow: workflowID, Name: row.Name, Version: version(row), Description: textOf(row.Description),
		Format: "json", Source: []byte(row.Data), Digest: hex.EncodeToString(sum[:]), Status: status,
		CreatedAt: created, UpdatedAt: updated, CreatedBy: textOf(row.CreatedBy), UpdatedBy: textOf(row.UpdatedBy),
	}}, nil
}

// workflowID gives the workflow of a name: the one that the API here gives it,
// so that the next version that an old client posts is the next of the same
// workflow. Where another name has that id, a part of the name's hash follows.
func workflowID(name string, taken bool) string {
	id := workflow.IDOf(name)
	if taken {
		sum := sha256.Sum256([]byte(name))
		id += "-" + hex.EncodeToString(sum[:4])
	}
	return id
}

// faults gives why a plan cannot be run by this version, or nil.
func faults(row *definitionRow) error {
	if def, problems := workflow.Parse(workflow.ParseOptions{File: row.Name, Version: version(row)}, []byte(row.Data)); def == nil {
		return problems
	}
	return nil
}

// loopBodies gives the steps of a plan that a loop repeats. Plans that cannot be
// read have none.
func loopBodies(plan string) []string {
	var p struct {
		Steps map[string]struct {
			Loop struct {
				Body []string `json:"loop_body"`
			} `json:"loop_config"`
		} `json:"steps"`
	}
	if json.Unmarshal([]byte(plan), &p) != nil {
		return nil
	}
	var ids []string
	for _, step := range p.Steps {
		ids = append(ids, step.Loop.Body...)
	}
	return ids
}

// version is the name of a version here.
func version(row *definitionRow) string { return strconv.FormatInt(row.Version, 10) }
