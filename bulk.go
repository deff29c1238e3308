package parley

// BulkAction is what is done to many runs at once.
type BulkAction string

// The actions. All but retry are for runs that have not ended.
const (
	BulkCancel    BulkAction = "cancel"
	BulkTerminate BulkAction = "terminate"
	BulkPause     BulkAction = "pause"
	BulkResume    BulkAction = "resume"
	BulkRetry     BulkAction = "retry"
)

// BulkDefaultLimit is how many runs one batch changes if it says nothing,
// BulkMaxLimit the most.
const (
	BulkDefaultLimit = 100
	BulkMaxLimit     = 500
)

// BulkRequest asks for something to be done to a batch of the runs that a filter
// selects, newest first.
type BulkRequest struct {
	Action BulkAction
	// Filter selects among the runs that the action is for: live ones, for resume
	// those that are paused, and for retry those that have failed or were
	// cancelled and were not retried yet. Its SortBy, Ascending and Page mean nothing; After is where the
	// batch begins.
	Filter RunQuery
	// Limit is 1 to BulkMaxLimit; 0 is BulkDefaultLimit.
	Limit int
	// DryRun only counts.
	DryRun bool
	// By and Reason (≤ 500 characters) are recorded.
	By, Reason string
}

// BulkReport says what became of a batch.
type BulkReport struct {
	Action BulkAction `json:"action"`
	DryRun bool       `json:"dry_run,omitempty"`
	// Selected is how many runs the filter selects in all, for a dry run; First are
	// some of them.
	Selected int      `json:"selected,omitempty"`
	First    []string `json:"first,omitempty"`
	Done     int      `json:"done"`
	Failed   int      `json:"failed"`
	// Results has every run of the batch.
	Results []BulkResult `json:"results" nullable:"false"`
	// Limit is that of the batch.
	Limit int `json:"limit"`
	// Next is where the following batch begins, "" after the last.
	Next string `json:"next,omitempty"`

	// NextMark is Next as a mark.
	NextMark *RunMark `json:"-"`
}

// BulkResult is what became of one run.
type BulkResult struct {
	Run string `json:"run"`
	// Status is that of the run afterwards, "" if nothing was done.
	Status RunStatus `json:"status,omitempty"`
	// NewRun is what a retry has started.
	NewRun string `json:"new_run,omitempty"`
	// Code and Detail say why nothing was done.
	Code   Code   `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
}
