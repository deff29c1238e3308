package bridge

import "time"

// DefaultPerAgent is [Limits].PerAgent where nothing is said.
const DefaultPerAgent = 1024

// Limits bound what one bridge has in hand. The zero value of each member is
// its default.
type Limits struct {
	// PerAgent bounds the calls in flight to one agent whose record names no
	// limit of its own; default 1,024 calls. Tasks that are only followed do
	// not count then; a limit in the record is the agent's capacity, and they
	// do.
	PerAgent int
	// Global bounds the calls in flight of the whole bridge; default 8,192
	// calls. One agent never takes the last of them: it gets another slot only
	// while it holds fewer than are free. So k agents that hang leave one part
	// in k + 1 of the slots to all others (promise 7).
	Global int
	// QueuePerAgent bounds the records that wait unclaimed for slots of one
	// agent; default 1,024 records. An agent that is seen to do more of them
	// within QueueFor has as many, at most 16,384. More are deferred in the store.
	QueuePerAgent int
	// QueueFor is how long a record waits unclaimed before it is deferred in
	// the store; default 2 s.
	QueueFor time.Duration
	// ClaimBatch bounds the attempts of one claim; default 256 attempts.
	ClaimBatch int
	// Following bounds the tasks that are followed at their agents; default
	// 16,384 tasks. While there are that many nothing new is claimed.
	Following int
	// GlobalBytes bounds the bytes of all requests that wait unclaimed or are in
	// hand; default 256 MiB. As with Global, an agent gets more only while it has
	// less than is free. One request goes however large it is.
	GlobalBytes int64
	// QueueBytes bounds the bytes of the requests that wait unclaimed for slots of
	// one agent; default 16 MiB.
	QueueBytes int64
}

func (l Limits) withDefaults() Limits {
	l.PerAgent = orDefault(l.PerAgent, DefaultPerAgent)
	l.Global = orDefault(l.Global, 8192)
	l.QueuePerAgent = orDefault(l.QueuePerAgent, 1024)
	l.QueueFor = orDefault(l.QueueFor, 2*time.Second)
	l.ClaimBatch = orDefault(l.ClaimBatch, 256)
	l.Following = orDefault(l.Following, 16_384)
	l.GlobalBytes = orDefault(l.GlobalBytes, 256<<20)
	l.QueueBytes = orDefault(l.QueueBytes, 16<<20)
	return l
}

// The times of protocol.md §1 and §4, relative to the lease where they hang
// together.
const (
	defaultLease = 15 * time.Second
	// claimWindow is how long after the start of its claim a call may begin.
	claimWindow = 2 * time.Second
	// watchEvery is how often own rows are read for cancels, and orphans for
	// takeovers.
	watchEvery = time.Second
	// takeovers bounds the orphans that are looked at in one go.
	takeovers = 256

	// maxOrphanings is how often the outcome of one attempt may be lost.
	maxOrphanings = 2
	// unmetPause is how long an attempt waits whose agent could not be looked up.
	unmetPause = 2 * time.Second
	// againAfter is the delay before the same attempt is sent once more; it
	// doubles with each time, up to laterAtMost.
	againAfter  = time.Second
	laterAtMost = 30 * time.Second

	// repeatAfter is the delay before a write in doubt is repeated; it doubles
	// up to repeatAtMost.
	repeatAfter  = 20 * time.Millisecond
	repeatAtMost = 2 * time.Second

	// pollFirst and pollAtMost bound the delays between two polls.
	pollFirst  = 500 * time.Millisecond
	pollAtMost = 10 * time.Second
	// pollWaiting is the longest delay while the agent waits for a person, and
	// pollSpacing the shortest, however often somebody pokes.
	pollWaiting = 30 * time.Second
	pollSpacing = 100 * time.Millisecond
	// listenQuiet is how long a stream may be silent before the agent is asked
	// beside it.
	listenQuiet = 30 * time.Second
	// confirmTries is how often an agent whose stream has told the end of a task
	// is asked for the task as a whole.
	confirmTries = 3
	// answerSettles is how long an agent that took an answer may still show the
	// question that it was for, and doubtSettles one that may have taken it;
	// pollDoubt is the longest delay between two polls meanwhile.
	answerSettles = 10 * time.Second
	doubtSettles  = 5 * time.Second
	pollDoubt     = 2 * time.Second
	// cancelWithin bounds the exchange that tells an agent to stop.
	cancelWithin = 10 * time.Second
	// cancelPatience is how long a call to an agent that can be told to stop
	// may go on after a cancel, so that it can name its task.
	cancelPatience = time.Second
	// deadlineSlack is added to a task's deadline: the executor's timer is to
	// end the attempt (P12), the bridge only if that does not happen.
	deadlineSlack = 2 * time.Second

	// deferFirst and deferAtMost bound how long an attempt without a free slot
	// waits in the store before it is announced again.
	deferFirst  = 2 * time.Second
	deferAtMost = 16 * time.Second
	// againSpacing is the least time between two of an agent's tasks that are
	// announced again.
	againSpacing = time.Millisecond
	// turnAtMost is the same for an agent whose rate says when each has its turn.
	turnAtMost = 2 * time.Minute
	// holdAtMost bounds how long an agent's Retry-After holds its other calls.
	holdAtMost = time.Minute
	// foreignAgain is for how long a ledger leaves a foreign task alone that it gave.
	foreignAgain = 5 * time.Second
	// putOffAtOnce bounds the foreign tasks that are put off in one write: claims
	// wait for it.
	putOffAtOnce = 1000
	// fetchSpacing is the shortest time between two looks at the foreign tasks
	// that wait in the ledger.
	fetchSpacing = 10 * time.Millisecond
	// queueMost bounds the records that wait unclaimed for a fast agent, whose
	// speed is measured each paceEvery, or sooner when enough of its tasks have
	// ended.
	queueMost  = 16_384
	paceEvery  = 100 * time.Millisecond
	paceLeast  = 5 * time.Millisecond
	paceEnough = 64
	// After paceForgets the highest speed that was measured counts half.
	paceForgets = 10 * time.Second
	// foreignQueueFor is how long a foreign task may wait unclaimed for an agent
	// whose speed is known, about as long as the bus needs to give the records of
	// a dead bridge to others; foreignQueueMost bounds how many do.
	foreignQueueFor  = 10 * time.Second
	foreignQueueMost = 65_536
	// spare is how many records of an agent wait for its next slots however
	// long that takes. They are announced again meanwhile, and dropped.
	spare = 8
	// idleLanes is how many agents without calls are remembered.
	idleLanes = 10_000
	// reportWithin bounds how long the executor of the same process may take for
	// one record of progress.
	reportWithin = 3 * time.Second
	// reports is how often an agent's progress is passed on.
	reports = 250 * time.Millisecond
)
