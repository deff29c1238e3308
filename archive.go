package parley

// ArchiveOutcome says what became of a run of an archive.
type ArchiveOutcome string

// The outcomes of an import.
const (
	// ArchiveAdded: the run is here now.
	ArchiveAdded ArchiveOutcome = "added"
	// ArchiveSame: it was here already, as the archive has it.
	ArchiveSame ArchiveOutcome = "same"
	// ArchiveConflict: its id, its idempotency key or its version is something else
	// here. Nothing was written.
	ArchiveConflict ArchiveOutcome = "conflict"
	// ArchiveInvalid: the line is not that of a whole run. Nothing was written.
	ArchiveInvalid ArchiveOutcome = "invalid"
)

// ArchivedRun is what became of one line of an archive.
type ArchivedRun struct {
	// Line counts the lines of what was sent from 1.
	Line int `json:"line"`
	// Run is "" if the line cannot be read.
	Run     string         `json:"run,omitempty"`
	Outcome ArchiveOutcome `json:"outcome" enum:"added,same,conflict,invalid"`
	// Code and Detail say why it was refused.
	Code   Code   `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// ArchiveReport is what became of the lines of an archive. Blank ones are not in it.
type ArchiveReport struct {
	Added    int `json:"added"`
	Same     int `json:"same"`
	Conflict int `json:"conflict"`
	Invalid  int `json:"invalid"`
	// Refused are the lines that were not taken.
	Refused []ArchivedRun `json:"refused" nullable:"false"`
}

// Count adds one line.
func (r *ArchiveReport) Count(a ArchivedRun) {
	switch a.Outcome {
	case ArchiveAdded:
		r.Added++
	case ArchiveSame:
		r.Same++
	case ArchiveConflict:
		r.Conflict++
		r.Refused = append(r.Refused, a)
	default:
		r.Invalid++
		r.Refused = append(r.Refused, a)
	}
}
