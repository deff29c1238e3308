package parley

import (
	"encoding/json"
	"time"
)

// Schedule starts runs of a workflow at times (language §8).
type Schedule struct {
	ID string `json:"id"`
	// Name is that of one that was added; "" is none.
	Name     string `json:"name,omitempty"`
	Workflow string `json:"workflow"`
	// Version is the one whose definition it stands in; "" for one that was added,
	// which starts what a plain start does.
	Version string         `json:"version,omitempty"`
	Status  ScheduleStatus `json:"status"`
	ScheduleSpec
	// NextAt is the next firing, DueAt that with its jitter; nil while there is none.
	NextAt *time.Time `json:"next_at"`
	DueAt  *time.Time `json:"due_at,omitempty"`
	// Last is the newest firing that was recorded; nil if there is none.
	Last *ScheduleFiring `json:"last"`
	// Unreadable is set in lists where what the schedule says cannot be read: the
	// schedule itself is an internal error then, and the server's log says why.
	Unreadable bool `json:"unreadable,omitempty"`
	// Waiting counts the firings that wait for the end of a run.
	Waiting   int        `json:"waiting"`
	PausedAt  *time.Time `json:"paused_at,omitempty"`
	PausedBy  string     `json:"paused_by,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	CreatedBy string     `json:"created_by,omitempty"`
	UpdatedBy string     `json:"updated_by,omitempty"`
}

// ScheduleSpec is what a schedule says, as the member schedule of a trigger does:
// durations are written as 30s, 5m or 1h30m. One of Cron and Every is given.
type ScheduleSpec struct {
	Cron    string          `json:"cron,omitempty"`
	Every   string          `json:"every,omitempty"`
	Zone    string          `json:"zone,omitempty"`
	Overlap string          `json:"overlap,omitempty"`
	CatchUp string          `json:"catch_up,omitempty"`
	Jitter  string          `json:"jitter,omitempty"`
	Input   json.RawMessage `json:"input,omitempty"`
}

// ScheduleStatus is how a schedule stands.
type ScheduleStatus string

// The statuses of schedules.
const (
	ScheduleActive ScheduleStatus = "active"
	SchedulePaused ScheduleStatus = "paused"
)

// FiringState is what became of a firing.
type FiringState string

// The states of firings.
const (
	// FiringStarting: its run is being started.
	FiringStarting FiringState = "starting"
	// FiringWaiting: it starts when the run before it has ended.
	FiringWaiting FiringState = "waiting"
	// FiringFired: it has started a run.
	FiringFired FiringState = "fired"
	// FiringSkipped: the run before it had not ended.
	FiringSkipped FiringState = "skipped"
	// FiringMissed: nobody was there in time.
	FiringMissed FiringState = "missed"
	// FiringFailed: its run was refused.
	FiringFailed FiringState = "failed"
)

// ScheduleFiring is one firing of a schedule. The newest 100 of each are kept, and
// those that wait.
type ScheduleFiring struct {
	// ScheduledAt is the time of the firing, DueAt that with its jitter.
	ScheduledAt time.Time   `json:"scheduled_at"`
	DueAt       time.Time   `json:"due_at"`
	State       FiringState `json:"state"`
	// Run is what it has started, Reason why it has not.
	Run    string `json:"run,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Backfill: somebody asked for it afterwards.
	Backfill   bool      `json:"backfill,omitempty"`
	RecordedAt time.Time `json:"recorded_at"`
}

// ScheduleRequest adds a schedule.
type ScheduleRequest struct {
	// Workflow is a workflow_id or a name.
	Workflow string
	// Name is for people, "" is none; no two schedules have the same.
	Name string
	ScheduleSpec
	By string
}

// ScheduleQuery selects schedules. Zero members match everything.
type ScheduleQuery struct {
	Workflow string
	Status   ScheduleStatus
	Page
}

// ScheduleChange asks for a change of one schedule.
type ScheduleChange struct {
	// Ref is an id or a name.
	Ref string
	By  string
}

// BackfillRequest asks for the firings of a time that has passed.
type BackfillRequest struct {
	Ref string
	// From and To are both included.
	From, To time.Time
	By       string
}

// BackfillReport says what a backfill does.
type BackfillReport struct {
	// Firings is how many there are from the beginning to the end; Before counts
	// those of them that are recorded as fired already, and are left alone.
	Firings int `json:"firings"`
	Before  int `json:"before"`
}

// MaxBackfill bounds the firings of one [BackfillRequest].
const MaxBackfill = 1000

// ScheduleKeyPrefix begins the idempotency keys of runs that schedules start, and no
// others.
const ScheduleKeyPrefix = "parley:schedule:"

// ScheduleKey is the idempotency key of the run that a firing starts: there is one
// for each schedule and time (language rule C7).
func ScheduleKey(schedule string, at time.Time) string {
	return ScheduleKeyPrefix + schedule + ":" + at.UTC().Format(time.RFC3339Nano)
}
