package parley

import "time"

// StableAlias is the alias that a start takes which names no version, if the
// workflow has it (language rule S11).
const StableAlias = "stable"

// WorkflowAlias is a name that stands for one version of a workflow. It moves new
// runs only: a run stays on its version (language rule C10).
type WorkflowAlias struct {
	// Workflow is the workflow_id, Alias a name such as stable, Version what it
	// stands for, DefinitionID that version's id.
	Workflow     string    `json:"workflow"`
	Alias        string    `json:"alias"`
	Version      string    `json:"version"`
	DefinitionID string    `json:"definition_id"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
	CreatedBy    string    `json:"created_by,omitempty"`
	UpdatedBy    string    `json:"updated_by,omitempty"`
}

// AliasRequest sets an alias, or moves it.
type AliasRequest struct {
	// Workflow is a workflow_id or a name.
	Workflow, Alias string
	// Version is what it is to stand for: a version, or another alias, whose
	// version it gets.
	Version string
	By      string
}

// Deprecation says that a version takes no new runs.
type Deprecation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// DeprecateRequest deprecates a version, or undoes that.
type DeprecateRequest struct {
	// Ref names one version: workflow@version, or its id.
	Ref string
	// Reason is for people, at most 500 characters.
	Reason string
	Undo   bool
	By     string
}

// ConflictDetails are the details of an error conflict which the existing platform
// cannot have: its status is 409 on the paths of formats.md too.
type ConflictDetails struct {
	// Conflict is version (it is deployed with other content), alias (one stands
	// for the version, or has its name), deprecated (the version takes no new
	// runs), concurrency (others run), ending (the run's body has ended, so that it
	// cannot be cancelled) or compensated (what the run had done was undone, so that
	// nothing can be taken over from it).
	Conflict string `json:"conflict"`
}

// The kinds of [ConflictDetails].
const (
	ConflictVersion    = "version"
	ConflictAlias      = "alias"
	ConflictDeprecated = "deprecated"
	// ConflictConcurrency has the members of [FullDetails], too.
	ConflictConcurrency = "concurrency"
	ConflictEnding      = "ending"
	ConflictCompensated = "compensated"
)

// maxAlias bounds an alias, in bytes.
const maxAlias = 64

// CheckAlias says whether a text can be an alias: a letter a-z, then letters
// a-z, digits and . _ -, at most 64. So it is no whole number, as versions are.
func CheckAlias(alias string) error {
	ok := alias != "" && len(alias) <= maxAlias && alias[0] >= 'a' && alias[0] <= 'z'
	for i := 0; ok && i < len(alias); i++ {
		c := alias[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return Errorf(CodeInvalid, "alias %.80q: an alias has 1 to 64 characters a-z 0-9 . _ -, a letter first", alias)
	}
	return nil
}
