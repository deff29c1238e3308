package executor

import (
	"math"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

const (
	// budgetWindow is how far back "recent" goes: calls earn their share of
	// retries for about so long, and an agent that was quiet for so long has the
	// whole floor to spend at once.
	budgetWindow = 10 * time.Second
	// maxBudgets bounds the agents whose budgets are kept. Beyond it all begin
	// anew.
	maxBudgets = 10_000
)

// budgets hold the retries that each agent may have: a share of its recent
// calls, and a few a second in any case. What is beyond is put off, never
// dropped. Each executor counts what it decides itself.
type budgets struct {
	now func() time.Time

	mu     sync.Mutex // protects agents, and what they point to
	agents map[string]*budget
}

func newBudgets(now func() time.Time) *budgets {
	return &budgets{now: now, agents: make(map[string]*budget)}
}

// called notes the first call of an agent for a step.
func (b *budgets) called(agent string, c parley.RetryBudget) {
	if c.Off {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(agent, c).earn(c)
}

// take spends one retry, and gives how long it has to be put off at least.
// Whoever takes it and does not retry gives it back.
func (b *budgets) take(agent string, c parley.RetryBudget) (wait time.Duration, giveBack func()) {
	if c.Off {
		return 0, func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(agent, c).spend(c), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.of(agent, c).floor++
	}
}

// of gives the budget of an agent as it is now.
func (b *budgets) of(agent string, c parley.RetryBudget) *budget {
	x := b.agents[agent]
	if x == nil {
		if len(b.agents) >= maxBudgets {
			clear(b.agents)
		}
		x = &budget{at: b.now(), floor: c.Rate() * budgetWindow.Seconds()}
		b.agents[agent] = x
	}
	x.advance(b.now(), c)
	return x
}

// budget counts in retries. share is what calls have earned and fades with the
// window; floor grows with time up to a window's worth, and is below zero as
// long as retries that were put off have not begun.
type budget struct {
	at           time.Time
	share, floor float64
}

func (x *budget) advance(now time.Time, c parley.RetryBudget) {
	passed := now.Sub(x.at).Seconds()
	if passed <= 0 {
		return
	}
	x.at = now
	x.share *= math.Exp(-passed / budgetWindow.Seconds())
	x.floor = min(x.floor+passed*c.Rate(), c.Rate()*budgetWindow.Seconds())
}

func (x *budget) earn(c parley.RetryBudget) {
	if x.floor < 0 {
		x.floor += c.Share()
		return
	}
	x.share += c.Share()
}

// spend gives how long the retry has to be put off.
func (x *budget) spend(c parley.RetryBudget) time.Duration {
	if x.share >= 1 {
		x.share--
		return 0
	}
	if x.floor--; x.floor >= 0 {
		return 0
	}
	return time.Duration(math.Ceil(-x.floor / c.Rate() * float64(time.Second)))
}
