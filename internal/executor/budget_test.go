package executor

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// TestBudget_Property: whatever is called and fails when, up to any moment no
// more retries begin than the share of the calls and the floor allow; none is
// dropped; and an agent that was left alone has its whole floor again.
func TestBudget_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := parley.RetryBudget{
			Percent:   rapid.Float64Range(1, 100).Draw(t, "percent"),
			PerSecond: rapid.Float64Range(0.1, 50).Draw(t, "per second"),
		}
		began := time.Unix(1000, 0)
		now := began
		b := newBudgets(func() time.Time { return now })
		var calls, begins []time.Time
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 30_000)).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				b.called("a", c)
				calls = append(calls, now)
			case 1:
				_, giveBack := b.take("a", c)
				giveBack()
			default:
				wait, _ := b.take("a", c)
				if wait < 0 {
					t.Fatalf("put off by %s", wait)
				}
				begins = append(begins, now.Add(wait))
			}
		}
		for _, until := range begins {
			began, called := 0, 0
			for _, r := range begins {
				if !r.After(until) {
					began++
				}
			}
			for _, x := range calls {
				if !x.After(until) {
					called++
				}
			}
			passed := until.Sub(time.Unix(1000, 0)) + budgetWindow
			if most := c.Share()*float64(called) + c.Rate()*passed.Seconds() + 1.001; float64(began) > most {
				t.Fatalf("%d retries after %d calls in %s, at most %.1f are allowed", began, called, passed, most)
			}
		}
		for _, r := range begins {
			if r.After(now) {
				now = r
			}
		}
		now = now.Add(2 * budgetWindow)
		for range int(c.Rate() * budgetWindow.Seconds()) {
			if wait, _ := b.take("a", c); wait > 0 {
				t.Fatalf("an agent that was left alone is put off by %s", wait)
			}
		}
	})
}

// TestBudget_Share: calls earn retries beyond the floor, and what they have
// earned fades.
func TestBudget_Share(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBudgets(func() time.Time { return now })
	c := parley.RetryBudget{Percent: 50, PerSecond: 0.1}
	take := func() (n int) {
		for {
			wait, giveBack := b.take("a", c)
			if wait > 0 {
				giveBack()
				return n
			}
			n++
		}
	}
	if n := take(); n != 1 { // 0.1 a second over 10 s
		t.Errorf("%d retries of an agent that was never called", n)
	}
	for range 20 {
		b.called("a", c)
	}
	if n := take(); n != 10 {
		t.Errorf("%d retries after 20 calls, want half of them", n)
	}
	for range 20 {
		b.called("a", c)
	}
	now = now.Add(10 * budgetWindow)
	if n := take(); n != 1 {
		t.Errorf("%d retries long after the calls", n)
	}
	if wait, _ := b.take("other", c); wait > 0 {
		t.Error("another agent is put off")
	}
	c.Off = true
	for range 1000 {
		if wait, _ := b.take("a", c); wait > 0 {
			t.Fatal("put off though the budget is off")
		}
	}
}

// TestBudget_IsBounded: agents that come and go leave no more behind than the
// limit.
func TestBudget_IsBounded(t *testing.T) {
	b := newBudgets(time.Now)
	for i := range maxBudgets + 10 {
		b.called(string(rune(i)), parley.RetryBudget{})
	}
	if len(b.agents) > maxBudgets {
		t.Errorf("%d agents are held", len(b.agents))
	}
}
