package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// modelLedger is protocol.md §3 in the plainest words, in memory, with commits
// whose outcome can be unknown. It is also the executor's half as far as a
// bridge can tell: publishing, declaring dead, settling what is lost.
type modelLedger struct {
	mu      sync.Mutex
	rows    map[string]*store.Attempt
	workers map[string]*store.Worker
	late    []store.Answer
	// trace says what happened to each task, for whoever looks for a mistake.
	trace map[string][]string
	// moves counts what was committed, by transition.
	moves map[string]int
	// ended is when a timer ended attempts.
	ended map[string]time.Time
	// fault, if set, is asked about each write.
	fault func(op, task string) fault
	wg    sync.WaitGroup
}

// fault is what goes wrong with one write.
type fault int

const (
	noFault fault = iota
	refusedConnection
	replyLost
	// commitLater: an error now, and the write happens half a second after it.
	commitLater
)

var errDoubt = errors.New("connection reset: the outcome of the commit is unknown")

func newModel() *modelLedger {
	return &modelLedger{rows: map[string]*store.Attempt{}, workers: map[string]*store.Worker{}, moves: map[string]int{}, trace: map[string][]string{}}
}

// write executes f as one transaction, or lets it go wrong.
func (l *modelLedger) write(op, task string, f func()) error {
	kind := noFault
	l.mu.Lock()
	ask := l.fault
	l.mu.Unlock()
	if ask != nil {
		kind = ask(op, task)
	}
	do := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f()
		l.noteLocked(task, "%s written, fault %d", op, kind)
	}
	switch kind {
	case noFault:
		do()
		return nil
	case replyLost:
		do()
	case commitLater:
		l.wg.Go(func() { time.Sleep(500 * time.Millisecond); do() })
	}
	return errDoubt
}

func (l *modelLedger) note(task, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(task, format, args...)
}

func (l *modelLedger) noteLocked(task, format string, args ...any) {
	text := time.Now().Format("04:05.000 ") + fmt.Sprintf(format, args...)
	if a := l.rows[task]; a != nil {
		text += fmt.Sprintf(" -> %s %v, %d orphanings", a.State, a.Claim, a.Orphanings)
	}
	l.trace[task] = append(l.trace[task], text)
}

func (l *modelLedger) Register(_ context.Context, worker string, _ time.Time) (int64, error) {
	var inc int64
	err := l.write("P16", "", func() {
		w := l.workers[worker]
		if w == nil {
			w = &store.Worker{Name: worker}
			l.workers[worker] = w
		}
		w.Inc++
		w.Dead = false
		inc = w.Inc
		l.moves["P16"]++
	})
	if err != nil {
		return 0, err // what f wrote is not looked at: it may still run
	}
	return inc, nil
}

func (l *modelLedger) alive(worker string, inc int64) bool {
	w := l.workers[worker]
	return w != nil && w.Inc == inc && !w.Dead
}

// gone is true for claims whose bridge is dead or was replaced.
func (l *modelLedger) gone(c store.Claim) bool {
	w := l.workers[c.Worker]
	return w != nil && (c.Inc < w.Inc || w.Dead)
}

func (l *modelLedger) Beat(_ context.Context, worker string, inc int64) error {
	var stale error
	err := l.write("beat", "", func() {
		switch w := l.workers[worker]; {
		case l.alive(worker, inc):
			w.Beat++
		case w != nil && w.Inc > inc && !w.Dead:
			stale = store.ErrReplaced
		default:
			stale = store.ErrStale
		}
	})
	if err != nil { // a write in doubt may come later
		return err
	}
	return stale
}

func (l *modelLedger) Owned(_ context.Context, worker string, inc int64) (list []store.Owned, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.rows {
		if a.Claim.Worker == worker && a.Claim.Inc == inc && held(a) {
			o := store.Owned{
				TaskID: a.ID, Token: a.Claim.Token, State: a.State, Orphanings: a.Orphanings,
				CancelRequested: a.CancelRequested, Questions: a.Questions,
			}
			if !a.ReplySent {
				o.Reply = a.Reply
			}
			list = append(list, o)
		}
	}
	return list, nil
}

func held(a *store.Attempt) bool {
	return a.State == store.AttemptClaimed || a.State == store.AttemptFollowing
}

func mayTakeOver(a *store.Attempt) bool {
	return a.State == store.AttemptFollowing ||
		a.Policy.OutcomeUnknown == parley.OutcomeLookup || a.Policy.OutcomeUnknown == parley.OutcomeResend
}

func (l *modelLedger) Orphans(_ context.Context, worker string, inc int64, limit int) (list []store.Attempt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.rows {
		if l.alive(worker, inc) && held(a) && l.gone(a.Claim) && mayTakeOver(a) {
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b store.Attempt) int { return strings.Compare(a.ID, b.ID) })
	return list[:min(limit, len(list))], nil
}

func (l *modelLedger) Claim(_ context.Context, c store.Claim, reqs []store.ClaimRequest, at time.Time) ([]store.Attempt, error) {
	var list []store.Attempt
	err := l.write("P4", reqs[0].TaskID, func() {
		for _, q := range reqs {
			a := l.rows[q.TaskID]
			mine := store.Claim{Worker: c.Worker, Inc: c.Inc, Token: q.Token}
			switch {
			case a == nil:
			case a.State == store.AttemptOpen && !a.Held && l.alive(c.Worker, c.Inc):
				a.State, a.Claim, a.ClaimedAt, a.Source = store.AttemptClaimed, mine, at, q.Source
				l.moves["P4"]++
				list = append(list, *a)
			case a.State == store.AttemptClaimed && a.Claim == mine:
				list = append(list, *a)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (l *modelLedger) Defer(_ context.Context, ds []store.Deferral) error {
	return l.write("P3", ds[0].TaskID, func() {
		for _, d := range ds {
			if a := l.rows[d.TaskID]; a != nil && a.State == store.AttemptOpen && (d.Attempt == 0 || a.Attempt <= d.Attempt) {
				a.VisibleAt = d.At
				l.moves["P3"]++
			}
		}
	})
}

func (l *modelLedger) Move(_ context.Context, m store.Move) (bool, error) {
	ok := false
	err := l.write(string(m.Kind), m.TaskID, func() {
		if ok = l.move(m); ok {
			l.moves[string(m.Kind)]++
		}
	})
	if err != nil {
		return false, err
	}
	return ok, nil
}

func (l *modelLedger) move(m store.Move) bool {
	a := l.rows[m.TaskID]
	if a == nil {
		return false
	}
	if (m.Kind == store.MoveAgain || m.Kind == store.MoveTakeover) && held(a) && a.Claim == m.To {
		return true
	}
	if a.Claim != m.From || !held(a) {
		return false
	}
	claimed, following := a.State == store.AttemptClaimed, a.State == store.AttemptFollowing
	switch m.Kind {
	case store.MoveRelease:
		if !claimed || a.Orphanings > 0 {
			return false
		}
		a.State, a.VisibleAt, a.Claim = store.AttemptOpen, m.At, store.Claim{}
	case store.MoveRetry:
		if a.Orphanings > 0 || a.HandOff != store.HandOffForeign {
			return false
		}
		a.State, a.VisibleAt, a.Claim, a.AgentTaskID = store.AttemptOpen, m.At, store.Claim{}, ""
		a.Attempt++
		if m.Source != nil {
			a.Source = m.Source
		}
	case store.MoveFollow:
		if following && a.AgentTaskID != m.AgentTaskID {
			return false
		}
		a.State, a.AgentTaskID, a.AgentContextID = store.AttemptFollowing, m.AgentTaskID, m.AgentContextID
		a.AgentEndpoint, a.AgentVersion = m.AgentEndpoint, m.AgentVersion
	case store.MoveQuestion:
		return following && moveQuestion(a, m)
	case store.MoveReply:
		if !following || a.Question == nil || a.Reply == nil || a.Questions != m.Questions {
			return false
		}
		a.ReplySent = true
	case store.MoveFail:
		if claimed && a.Orphanings > 0 {
			return false
		}
		l.settle(a, *m.Result, m.At)
	case store.MoveUnknown, store.MoveCancelled:
		l.settle(a, *m.Result, m.At)
	case store.MoveAgain:
		if p := a.Policy.OutcomeUnknown; p != parley.OutcomeLookup && p != parley.OutcomeResend {
			return false
		}
		if a.Orphanings >= 2 {
			l.settle(a, parley.Result{TaskID: a.ID, Outcome: parley.OutcomeUnknown, Err: parley.Errorf(parley.CodeOutcomeUnknown, "spent")}, m.At)
			return false
		}
		a.State, a.Claim, a.AgentTaskID, a.AgentContextID = store.AttemptClaimed, m.To, "", ""
		a.Orphanings++
		a.Question, a.Reply, a.ReplySent = nil, nil, false
	case store.MoveTakeover:
		if !l.gone(m.From) || !l.alive(m.To.Worker, m.To.Inc) || !mayTakeOver(a) || (following && a.AgentTaskID != m.AgentTaskID) {
			return false
		}
		if claimed && a.Orphanings >= 2 {
			l.settle(a, parley.Result{TaskID: a.ID, Outcome: parley.OutcomeUnknown, Err: parley.Errorf(parley.CodeOutcomeUnknown, "spent")}, m.At)
			return false
		}
		if claimed {
			a.Orphanings++
		}
		a.Claim = m.To
	}
	return true
}

func moveQuestion(a *store.Attempt, m store.Move) bool {
	q := m.Question
	same := q != nil && a.Question != nil && reflect.DeepEqual(q, a.Question)
	switch {
	case q == nil && a.Question == nil:
		return true
	case q == nil:
		if a.Reply == nil {
			a.News++
		}
	case m.Questions > 0 && m.Questions != a.Questions+1:
		return same && m.Questions == a.Questions
	case m.Questions == 0 && same && a.Reply == nil:
		return true
	default:
		a.Questions++
		a.News++
	}
	a.Question, a.Reply, a.ReplySent = q, nil, false
	return true
}

// reply is what the executor writes when somebody has answered.
func (l *modelLedger) reply(id string, r parley.Reply) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rows[id]
	if a.State != store.AttemptFollowing || a.Question == nil || a.Reply != nil {
		return false
	}
	a.Reply = &r
	return true
}

func (l *modelLedger) settle(a *store.Attempt, r parley.Result, at time.Time) {
	a.State, a.Result, a.SettledAt = store.AttemptSettled, &r, at
}

func (l *modelLedger) Answer(_ context.Context, in store.Answer) (bool, error) {
	accepted := false
	err := l.write("P7", in.Result.TaskID, func() { accepted = l.answer(in) })
	if err != nil {
		return false, err
	}
	return accepted, nil
}

func (l *modelLedger) answer(in store.Answer) (accepted bool) {
	a := l.rows[in.Result.TaskID]
	open := a != nil && (a.State == store.AttemptOpen || held(a) ||
		(a.State == store.AttemptSettled && a.Result.Outcome == parley.OutcomeUnknown))
	switch {
	case open:
		l.settle(a, in.Result, in.At)
		l.moves["P7"]++
		return true
	case a != nil && a.Result != nil && a.Result.Outcome == in.Result.Outcome && string(a.Result.Output) == string(in.Result.Output):
		return true
	default:
		l.late = append(l.late, in)
		return false
	}
}

// The executor's half.

func (l *modelLedger) add(a store.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows[a.ID] = &a
}

func (l *modelLedger) row(id string) store.Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.rows[id]
}

// requestCancel is P13, endNow P12 or a loser's end.
func (l *modelLedger) requestCancel(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rows[id]
	a.CancelRequested = true
	if a.State == store.AttemptOpen {
		l.settle(a, parley.Result{TaskID: id, Outcome: parley.OutcomeCancelled}, time.Now())
	}
}

func (l *modelLedger) endNow(id string, o parley.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.rows[id]
	a.State, a.CancelRequested, a.Result = store.AttemptClosed, true, &parley.Result{TaskID: id, Outcome: o}
	if l.ended == nil {
		l.ended = map[string]time.Time{}
	}
	l.ended[id] = time.Now()
}

// timeOut is P12: it ends an attempt that has no outcome yet.
func (l *modelLedger) timeOut(id string) {
	if a := l.row(id); a.State != store.AttemptSettled && a.State != store.AttemptClosed {
		l.endNow(id, parley.OutcomeTimeout)
	}
}

// endedAt is when an attempt was ended by a timer, zero if it was not.
func (l *modelLedger) endedAt(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[id]
}

func (l *modelLedger) declareDead(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers[worker].Dead = true
}

// publish is P2.
func (l *modelLedger) publish(now time.Time) (list []store.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.rows {
		if a.State == store.AttemptOpen && !a.Held && !a.VisibleAt.After(now) {
			a.VisibleAt = now.Add(5 * time.Second)
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(a, b store.Attempt) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// settleLost is P10.
func (l *modelLedger) settleLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.rows {
		if a.State == store.AttemptClaimed && l.gone(a.Claim) && !mayTakeOver(a) {
			l.settle(a, parley.Result{TaskID: a.ID, Outcome: parley.OutcomeUnknown, Err: parley.Errorf(parley.CodeOutcomeUnknown, "lost")}, time.Now())
		}
	}
}

func (l *modelLedger) count(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moves[op]
}

func (l *modelLedger) lateAnswers() []store.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.late)
}
