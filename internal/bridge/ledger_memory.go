package bridge

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// maxEnded is how many ended tasks a [MemoryLedger] remembers, so that a record
// that comes again within the process is not a new task.
const maxEnded = 16_384

// MemoryLedger is the ledger of a bridge without a store (bridge.ledger: none),
// for tasks of executors of the existing platform only: it holds what the
// bridge has in hand, and a record is acknowledged after its result. So after a
// crash, or when a partition moves, a task may be called again: at least once
// (protocol.md §4.12). Its errors are always nil. All methods may be called
// concurrently.
type MemoryLedger struct {
	mu   sync.Mutex // protects what follows
	inc  int64
	rows map[string]*store.Attempt
	// open are those of rows that wait for their time.
	open map[string]*store.Attempt
	// ended and ring are the last tasks whose results are on the bus.
	ended map[string]struct{}
	ring  []string
	next  int
}

// NewMemoryLedger gives an empty ledger, for one bridge.
func NewMemoryLedger() *MemoryLedger {
	return &MemoryLedger{
		rows: make(map[string]*store.Attempt), open: make(map[string]*store.Attempt), ended: make(map[string]struct{}),
	}
}

// Register implements [Ledger].
func (l *MemoryLedger) Register(context.Context, string, time.Time) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inc++
	return l.inc, nil
}

// Beat implements [Ledger]: nobody can take this bridge for dead.
func (l *MemoryLedger) Beat(context.Context, string, int64) error { return nil }

// Owned implements [Ledger]: no claim is ever in doubt.
func (l *MemoryLedger) Owned(context.Context, string, int64) ([]store.Owned, error) { return nil, nil }

// Orphans implements [Ledger]: there are no other bridges.
func (l *MemoryLedger) Orphans(context.Context, string, int64, int) ([]store.Attempt, error) {
	return nil, nil
}

// Claim implements [Ledger]: there are no tasks but foreign ones.
func (l *MemoryLedger) Claim(_ context.Context, _ store.Claim, reqs []store.ClaimRequest, _ time.Time) ([]store.Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []store.Attempt
	for _, q := range reqs {
		if a := l.rows[q.TaskID]; a != nil && a.State == store.AttemptClaimed && a.Claim.Token == q.Token {
			list = append(list, *a)
		}
	}
	return list, nil
}

// Defer implements [Ledger]: there are no tasks but foreign ones.
func (l *MemoryLedger) Defer(context.Context, []store.Deferral) error { return nil }

// ClaimForeign implements [ForeignLedger].
func (l *MemoryLedger) ClaimForeign(_ context.Context, list []store.Attempt, _ time.Time) ([]store.Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := list[:0] // who asks has no more use for it
	for i := range list {
		a := &list[i]
		if _, over := l.ended[a.ID]; over {
			continue
		}
		row := l.rows[a.ID]
		switch {
		case row == nil:
			row = new(store.Attempt)
			*row = *a
			l.rows[a.ID] = row
		case row.State != store.AttemptOpen || row.Attempt != a.Attempt:
			continue
		default:
			row.State, row.Claim, row.ClaimedAt = a.State, a.Claim, a.ClaimedAt
			delete(l.open, a.ID)
		}
		mine = append(mine, *row)
	}
	return mine, nil
}

// AnswerForeign implements [ForeignLedger].
func (l *MemoryLedger) AnswerForeign(ctx context.Context, list []store.Answer) (accepted []bool, err error) {
	accepted = make([]bool, len(list))
	for i := range list {
		accepted[i], _ = l.Answer(ctx, list[i])
	}
	return accepted, nil
}

// DeferForeign implements [ForeignLedger].
func (l *MemoryLedger) DeferForeign(_ context.Context, list []store.Attempt, _ time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if _, over := l.ended[list[i].ID]; !over && l.rows[list[i].ID] == nil {
			a := list[i]
			l.rows[a.ID], l.open[a.ID] = &a, &a
		}
	}
	return nil
}

// Foreign implements [ForeignLedger]. Results are never left behind here, since
// whoever has one goes on until it is published.
func (l *MemoryLedger) Foreign(_ context.Context, now time.Time, limit int) ([]store.Attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []store.Attempt
	for _, a := range l.open {
		if !a.VisibleAt.After(now) {
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b store.Attempt) int { return a.VisibleAt.Compare(b.VisibleAt) })
	list = list[:min(limit, len(list))]
	for i := range list {
		l.open[list[i].ID].VisibleAt = now.Add(deferFirst)
	}
	return list, nil
}

// over reports whether a task has ended, and its result is on the bus, as far back as
// that is remembered.
func (l *MemoryLedger) over(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, over := l.ended[id]
	return over
}

// forget drops a task that waits, and that somebody else does.
func (l *MemoryLedger) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.rows[id]; a != nil && a.State == store.AttemptOpen {
		delete(l.rows, id)
		delete(l.open, id)
	}
}

// Source implements [ForeignLedger].
func (l *MemoryLedger) Source(_ context.Context, id string) (*store.Source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.rows[id]; a != nil {
		return a.Source, nil
	}
	return nil, nil
}

// CloseForeign implements [ForeignLedger].
func (l *MemoryLedger) CloseForeign(_ context.Context, ids []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.rows, id)
		delete(l.open, id)
		if _, again := l.ended[id]; again {
			continue
		}
		l.ended[id] = struct{}{}
		if len(l.ring) < maxEnded {
			l.ring = append(l.ring, id)
			continue
		}
		delete(l.ended, l.ring[l.next])
		l.ring[l.next] = id
		l.next = (l.next + 1) % maxEnded
	}
	return nil
}

// PurgeForeign implements [ForeignLedger]: what is remembered is bounded anyway.
func (l *MemoryLedger) PurgeForeign(context.Context, time.Time, int) (int, error) { return 0, nil }

// Sweep implements [ForeignLedger]: there are no other bridges.
func (l *MemoryLedger) Sweep(context.Context, []store.Worker, time.Time) ([]store.Worker, error) {
	return nil, nil
}

// Answer implements [Ledger].
func (l *MemoryLedger) Answer(_ context.Context, in store.Answer) (accepted bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rows[in.Result.TaskID]
	if a == nil || (a.State == store.AttemptSettled && a.Result.Outcome != parley.OutcomeUnknown) {
		return false, nil
	}
	l.settleLocked(a, in.Result)
	return true, nil
}

func (l *MemoryLedger) settleLocked(a *store.Attempt, r parley.Result) {
	a.State, a.Result = store.AttemptSettled, &r
	delete(l.open, a.ID)
}

// Move implements [Ledger] by the rules that [store.DB.Move] describes.
func (l *MemoryLedger) Move(_ context.Context, m store.Move) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rows[m.TaskID]
	if a == nil || a.Claim != m.From || (a.State != store.AttemptClaimed && a.State != store.AttemptFollowing) {
		return false, nil
	}
	claimed := a.State == store.AttemptClaimed
	switch m.Kind {
	case store.MoveRelease, store.MoveRetry:
		if a.Orphanings > 0 || (m.Kind == store.MoveRelease && !claimed) {
			return false, nil
		}
		if m.Kind == store.MoveRetry {
			a.Attempt++
			a.Source = cmp.Or(m.Source, a.Source)
		}
		a.State, a.Claim, a.VisibleAt, a.AgentTaskID, a.AgentContextID = store.AttemptOpen, store.Claim{}, m.At, "", ""
		l.open[a.ID] = a
	case store.MoveFollow:
		a.State, a.AgentTaskID, a.AgentContextID = store.AttemptFollowing, m.AgentTaskID, m.AgentContextID
		a.AgentEndpoint, a.AgentVersion = m.AgentEndpoint, m.AgentVersion
	case store.MoveFail:
		if claimed && a.Orphanings > 0 {
			return false, nil
		}
		l.settleLocked(a, *m.Result)
	case store.MoveUnknown, store.MoveCancelled:
		l.settleLocked(a, *m.Result)
	case store.MoveAgain:
		if p := a.Policy.OutcomeUnknown; a.Orphanings >= maxOrphanings || (p != parley.OutcomeLookup && p != parley.OutcomeResend) {
			return false, nil
		}
		a.State, a.Claim, a.AgentTaskID, a.AgentContextID = store.AttemptClaimed, m.To, "", ""
		a.Orphanings++
	default:
		return false, nil // nobody takes over, nobody is asked
	}
	return true, nil
}
