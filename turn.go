package parley

// WhenFull says what becomes of a run that is started while as many of its workflow
// and key run as may (language.md §1, concurrency).
type WhenFull string

// What becomes of one more run.
const (
	// WhenFullQueue: it waits for its turn, PENDING.
	WhenFullQueue WhenFull = "queue"
	// WhenFullReject: it is not accepted.
	WhenFullReject WhenFull = "reject"
	// WhenFullCancelOldest: the oldest one is cancelled, and it waits for the end of
	// that.
	WhenFullCancelOldest WhenFull = "cancel_oldest"
)

// ByConcurrency is who has cancelled a run that had to make room for another.
const ByConcurrency = "concurrency"

// Turn says how a run that waits for its turn stands.
type Turn struct {
	Key      string   `json:"key"`
	Limit    int      `json:"limit"`
	WhenFull WhenFull `json:"when_full"`
	// Place is that of the run among those that wait, 1 is the next; 0 in the
	// details of a refusal.
	Place int `json:"place,omitempty"`
	// Waiting and RunningCount count those that wait and those that run; Running
	// are the oldest of the latter, ten at most.
	Waiting      int      `json:"waiting"`
	RunningCount int      `json:"running_count"`
	Running      []string `json:"running" nullable:"false"`
}

// FullDetails are the details of an error conflict or limit: a run was refused since
// others of its workflow and key run, or too many wait.
type FullDetails struct {
	ConflictDetails

	Turn
}
