package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// slowAnswers is the model with writes that take their time.
type slowAnswers struct {
	foreignProcess
	mu     sync.Mutex
	groups []int
	single int
	fail   bool
}

func (l *slowAnswers) AnswerForeign(ctx context.Context, list []store.Answer) ([]bool, error) {
	l.mu.Lock()
	l.groups = append(l.groups, len(list))
	fail := l.fail
	l.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	if fail && len(list) > 1 {
		return nil, errors.New("one of them cannot be written")
	}
	return l.foreignProcess.AnswerForeign(ctx, list)
}

func (l *slowAnswers) Answer(ctx context.Context, a store.Answer) (bool, error) {
	l.mu.Lock()
	l.single++
	l.mu.Unlock()
	return l.foreignProcess.Answer(ctx, a)
}

func (l *slowAnswers) CloseForeign(ctx context.Context, ids []string) error {
	time.Sleep(7 * time.Second)
	return l.foreignProcess.CloseForeign(ctx, ids)
}

// inSlow runs f beside a bridge on such a ledger.
func inSlow(t *testing.T, f func(r *foreignRig, l *slowAnswers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newForeignRig(t)
		l := &slowAnswers{}
		r.make = func(p *process) bridge.Ledger {
			l.foreignProcess = foreignProcess{processLedger{r.ledger, p}}
			return l
		}
		defer r.end()
		r.begin("b", nil)
		f(r, l)
	})
}

// TestAnswersTogether: answers that come while others are being written are
// written together, a lone one at once.
func TestAnswersTogether(t *testing.T) {
	inSlow(t, func(r *foreignRig, l *slowAnswers) {
		for _, task := range []string{"lone-1", "lone-2"} {
			began := time.Now()
			r.send(record(task, "one"))
			for len(r.resultsOf(task)) == 0 {
				r.wait(100 * time.Microsecond)
			}
			if d := time.Since(began); d > 5500*time.Microsecond {
				r.t.Errorf("%s took %v", task, d)
			}
		}
		r.paced(50, time.Millisecond)
		r.burst(0, 500)
		if n := len(l.groups); n > 60 || l.single > 0 {
			r.t.Errorf("502 answers in %d groups and %d alone", n, l.single)
		}
		r.wantQuiet()
	})
}

// TestAnswersApart: a group that fails is written one by one.
func TestAnswersApart(t *testing.T) {
	inSlow(t, func(r *foreignRig, l *slowAnswers) {
		l.fail = true
		r.paced(50, time.Millisecond)
		r.burst(0, 200)
		for i := range 200 {
			if got := r.resultsOf(fmt.Sprintf("task-%d", i)); len(got) != 1 || got[0].Status != records.StatusSuccess {
				r.t.Errorf("task-%d: %+v", i, got)
			}
		}
		if l.single == 0 {
			r.t.Error("no group was taken apart")
		}
	})
}

// heldAnswers is a ledger that takes no answers until it is opened.
type heldAnswers struct {
	bridge.Ledger
	open chan struct{}
}

func (l *heldAnswers) Answer(ctx context.Context, a store.Answer) (bool, error) {
	<-l.open
	return l.Ledger.Answer(ctx, a)
}

// TestSlotWhileAnswerIsWritten: an agent may have its next task while the answer to
// the last one is being written; but a ledger that takes no answers stops the calls.
// An executor of the same process writes the next claim with the answer: its slot is
// not free before, or its run would go before those that wait.
func TestSlotWhileAnswerIsWritten(t *testing.T) {
	for sameProcess, calls := range map[bool]int{false: 1024, true: 1} {
		inBubble(t, func(r *rig) {
			held := &heldAnswers{open: make(chan struct{})}
			r.agents.put(parley.Agent{Name: "single", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
			r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
				return takes(ctx, task, time.Millisecond), nil
			}
			p := r.start("b", func(cfg *bridge.Config, _ *process) {
				held.Ledger, cfg.Ledger = cfg.Ledger, held
				cfg.Limits, cfg.AnswerWakes = bridge.Limits{Global: 8}, sameProcess
			})
			var ids []string
			for i := range 1100 {
				ids = append(ids, r.task("single", i, nil))
				r.announce(ids[i])
			}
			r.wait(time.Minute)
			if n := r.agent.count(r.agent.agents, "single"); n != calls {
				t.Errorf("%d calls were made while no answer was written, want %d", n, calls)
			}
			close(held.open)
			for _, id := range ids {
				r.want(id, parley.OutcomeOK, "")
				r.wantCalls(r.agent, id, 1)
			}
			p.stop()
		})
	}
}

// TestForeignSlotWhileAnswerIsWritten is the same for foreign tasks, on a ledger that
// takes five times as long as the agent.
func TestForeignSlotWhileAnswerIsWritten(t *testing.T) {
	inSlow(t, func(r *foreignRig, _ *slowAnswers) {
		r.paced(1, time.Millisecond)
		if d := r.burst(0, 200); d > 600*time.Millisecond {
			r.t.Errorf("%v for 200 ms of the agent", d)
		}
		r.wantQuiet()
	})
}

// TestClosedLate: what is published is not published again while the ledger is
// slow to close it.
func TestClosedLate(t *testing.T) {
	inSlow(t, func(r *foreignRig, _ *slowAnswers) {
		for i := range 40 {
			r.send(record(fmt.Sprintf("task-%d", i), "one"))
			r.wait(500 * time.Millisecond)
		}
		r.wait(30 * time.Second)
		for i := range 40 {
			if n := len(r.resultsOf(fmt.Sprintf("task-%d", i))); n != 1 {
				r.t.Errorf("task-%d has %d results", i, n)
			}
		}
	})
}
