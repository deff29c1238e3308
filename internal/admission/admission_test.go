package admission_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley/internal/admission"
)

func start() time.Time { return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC) }

// TestRateWindows: whatever is reserved, sent late or not sent, no window sees
// more than its length times the rate and a burst.
func TestRateWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := admission.Settings{Concurrency: 1_000_000, Fixed: true}
		s.Rate = rapid.Float64Range(0.5, 2000).Draw(t, "rate")
		s.Burst = rapid.IntRange(1, 50).Draw(t, "burst")
		var g admission.Gate
		g.Configure(start(), s)
		now, reserved := start(), 0
		var sent []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*float64(time.Second)/s.Rate)).Draw(t, "pause")))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				for range min(g.Room(now, 0), 60) {
					g.Reserve(now)
					reserved++
				}
			case 2:
				for range reserved {
					g.Send(now, 1)
					sent = append(sent, now)
				}
				reserved = 0
			case 3:
				if reserved > 0 {
					g.Release()
					reserved--
				}
			}
		}
		for i := range sent {
			for j := i; j < len(sent); j++ {
				if most := s.Rate*sent[j].Sub(sent[i]).Seconds() + float64(s.Burst); float64(j-i+1) > most+1e-6 {
					t.Fatalf("%d calls in %v, at most %v", j-i+1, sent[j].Sub(sent[i]), most)
				}
			}
		}
	})
}

// TestRateUsed: who always has something to send gets the whole rate by waiting
// until the time that the gate names, and a debt has its turn.
func TestRateUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := admission.Settings{Concurrency: 1000, Fixed: true, Rate: rapid.Float64Range(0.1, 5000).Draw(t, "rate"), Burst: rapid.IntRange(0, 100).Draw(t, "burst")}
		var g admission.Gate
		g.Configure(start(), s)
		now, sent := start(), 0
		for sent < 300 {
			if at := g.Next(now, 0, 50); !at.IsZero() {
				if !at.After(now) {
					t.Fatalf("to wait until %v, it is %v", at, now)
				}
				now = at
			}
			n := g.Room(now, 0)
			if n == 0 {
				t.Fatal("no room at the time that was named")
			}
			for range min(n, 50) {
				g.Reserve(now)
				g.Send(now, 1)
				sent++
			}
		}
		if took, least := now.Sub(start()).Seconds(), float64(sent)/s.Rate; took > least*1.01+0.001 {
			t.Fatalf("%d calls took %v s, the rate allows them in %v s", sent, took, least)
		}
		for g.Room(now, 0) > 0 {
			g.Reserve(now)
			g.Send(now, 1)
		}
		if due := g.Reserve(now); !due.After(now) || due.Sub(now).Seconds() > 1.01/s.Rate+1e-6 {
			t.Fatalf("a call without a token is due in %v", due.Sub(now))
		}
	})
}

// agent answers at most capacity calls at a time; more are refused at once.
type agent struct {
	capacity int
	takes    time.Duration
	deaf     bool
}

type inFlight struct{ began, ends time.Time }

// simulate lets a backlog call an agent for so many round trips. It gives the
// calls that were answered and refused in the second half.
func simulate(g *admission.Gate, a *agent, from time.Time, rounds int) (now time.Time, good, bad int) {
	now = from
	var calls []inFlight
	end := from.Add(time.Duration(rounds) * a.takes)
	for step := a.takes / 20; now.Before(end); now = now.Add(step) {
		left := calls[:0]
		for _, c := range calls {
			if c.ends.After(now) {
				left = append(left, c)
				continue
			}
			g.Note(admission.Call{Outcome: admission.Answered, Began: c.began, Ended: now})
			if now.Sub(from) > end.Sub(now) {
				good++
			}
		}
		calls = left
		for n := g.Room(now, len(calls)); n > 0; n-- {
			g.Reserve(now)
			g.Send(now, len(calls)+1)
			if len(calls) < a.capacity && !a.deaf {
				calls = append(calls, inFlight{now, now.Add(a.takes)})
				continue
			}
			out := admission.Overloaded
			if a.deaf {
				out = admission.Unreached
			}
			g.Note(admission.Call{Outcome: out, Began: now, Ended: now.Add(step)})
			if now.Sub(from) > end.Sub(now) {
				bad++
			}
		}
	}
	return now, good, bad
}

// TestAdaptive: the limit finds what an agent can take, keeps it busy, and comes
// back when it can take more.
func TestAdaptive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &agent{capacity: rapid.IntRange(1, 100).Draw(t, "capacity"), takes: time.Duration(rapid.IntRange(10, 30_000).Draw(t, "takes")) * time.Millisecond}
		most := rapid.IntRange(a.capacity, 1024).Draw(t, "most")
		var g admission.Gate
		g.Configure(start(), admission.Settings{Concurrency: most})
		const rounds = 200
		now, good, bad := simulate(&g, a, start(), rounds)
		if least := a.capacity * rounds / 2 * 6 / 10; good < least {
			t.Fatalf("%d calls answered, it could do %d", good, a.capacity*rounds/2)
		}
		// One refusal for each time that the limit has grown past it, about.
		if bad > rounds && bad > good/2 {
			t.Fatalf("%d calls refused, %d answered", bad, good)
		}
		if n := g.Limit(now); n < 1 || n > min(most, a.capacity+2) {
			t.Fatalf("limit %d of %d, it takes %d", n, most, a.capacity)
		}
		a.capacity = min(most, 2*a.capacity)
		_, good, _ = simulate(&g, a, now, 4*rounds)
		if least := a.capacity * 2 * rounds * 6 / 10; good < least {
			t.Fatalf("%d calls answered after it has grown, it could do %d", good, a.capacity*2*rounds)
		}
	})
}

// TestAdaptiveBounds: whatever happens, the limit is 1 to the one that was set.
func TestAdaptiveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g admission.Gate
		most := rapid.IntRange(1, 2000).Draw(t, "most")
		g.Configure(start(), admission.Settings{Concurrency: most})
		now := start()
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			began := now
			g.Reserve(now)
			g.Send(now, rapid.IntRange(0, 2000).Draw(t, "busy"))
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 30).Draw(t, "set") == 0 {
				most = rapid.IntRange(1, 2000).Draw(t, "most")
				g.Configure(start(), admission.Settings{Concurrency: most})
			}
			g.Note(admission.Call{Outcome: admission.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome")), Began: began, Ended: now})
			if n := g.Limit(now); n < 1 || n > most {
				t.Fatalf("limit %d of %d", n, most)
			}
		}
		g.Configure(start(), admission.Settings{Concurrency: most, Fixed: true})
		if n := g.Limit(now); n != most {
			t.Fatalf("fixed limit %d of %d", n, most)
		}
	})
}

// TestCutOnce: of the calls that were in flight together one cuts the limit, and
// what then ends well raises nothing.
func TestCutOnce(t *testing.T) {
	var g admission.Gate
	g.Configure(start(), admission.Settings{Concurrency: 50})
	at := func(ms int) time.Time { return start().Add(time.Duration(ms) * time.Millisecond) }
	for i := range 30 {
		g.Note(admission.Call{Outcome: admission.Overloaded, Began: at(i), Ended: at(100 + i)})
	}
	g.Note(admission.Call{Outcome: admission.Answered, Began: at(99), Ended: at(200)})
	if n := g.Limit(at(200)); n != 35 {
		t.Errorf("limit %d, want 35", n)
	}
	g.Note(admission.Call{Outcome: admission.Overloaded, Began: at(101), Ended: at(201)})
	if n := g.Limit(at(201)); n != 24 {
		t.Errorf("limit %d, want 24", n)
	}
}

// TestRaise: a limit grows by good calls that began since it was cut, and while at
// least half of it was in flight.
func TestRaise(t *testing.T) {
	at := func(ms int) time.Time { return start().Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name         string
		began, inUse int
		want         int
	}{
		{"half in use", 150, 11, 25},
		{"less than half", 150, 10, 21},
		{"begun before", 99, 21, 21},
	} {
		var g admission.Gate
		g.Configure(start(), admission.Settings{Concurrency: 30})
		g.Note(admission.Call{Outcome: admission.Overloaded, Began: at(0), Ended: at(100)})
		if n := g.Limit(at(100)); n != 21 {
			t.Fatalf("limit %d, want 21", n)
		}
		for range 100 { // the first grow it by one in about 21
			g.Reserve(at(200))
			g.Send(at(200), c.inUse)
			g.Note(admission.Call{Outcome: admission.Answered, Began: at(c.began), Ended: at(300)})
		}
		if n := g.Limit(at(300)); n != c.want {
			t.Errorf("%s: limit %d, want %d", c.name, n, c.want)
		}
	}
}

// TestRaiseAfterCut: at the limit to which it was cut an agent is not asked for one
// more with each good call, but with each round of them.
func TestRaiseAfterCut(t *testing.T) {
	var g admission.Gate
	g.Configure(start(), admission.Settings{Concurrency: 30})
	now := start()
	g.Note(admission.Call{Outcome: admission.Overloaded, Began: now, Ended: now})
	good := 0
	for ; g.Limit(now) == 21; good++ {
		g.Reserve(now)
		g.Send(now, 21)
		g.Note(admission.Call{Outcome: admission.Answered, Began: now, Ended: now})
	}
	if good < 21 || good > 22 {
		t.Errorf("%d good calls raise the limit of 21", good)
	}
}

// TestSmallDeafAgent: one call stays for an agent that does not answer, however few
// it may have.
func TestSmallDeafAgent(t *testing.T) {
	var g admission.Gate
	g.Configure(start(), admission.Settings{Concurrency: 4})
	a := &agent{capacity: 4, takes: time.Second, deaf: true}
	now, _, _ := simulate(&g, a, start(), 30)
	if n := g.Limit(now); n != 1 {
		t.Errorf("limit %d, want 1", n)
	}
}

// TestRateChanges: what was spent stays spent when another rate is set, and comes
// back at that one.
func TestRateChanges(t *testing.T) {
	var g admission.Gate
	set := func(rate float64) {
		g.Configure(start(), admission.Settings{Concurrency: 100, Fixed: true, Rate: rate, Burst: 5})
	}
	room := func(after time.Duration, want int) {
		t.Helper()
		if n := g.Room(start().Add(after), 0); n != want {
			t.Errorf("room for %d after %v, want %d", n, after, want)
		}
	}
	set(10)
	for range 4 {
		g.Reserve(start())
		g.Send(start(), 1)
	}
	room(0, 1)
	room(200*time.Millisecond, 3)
	set(10)
	room(200*time.Millisecond, 3)
	set(1)
	room(0, 1)
	room(200*time.Millisecond, 1)
	room(2*time.Second, 3)
	set(100)
	room(20*time.Millisecond, 3)
}

// TestIdle: a gate that holds something is not to be forgotten.
func TestIdle(t *testing.T) {
	now := start()
	for _, c := range []struct {
		name  string
		do    func(g *admission.Gate)
		after time.Duration
		idle  bool
	}{
		{"new", func(*admission.Gate) {}, 0, true},
		{"reserved", func(g *admission.Gate) { g.Reserve(now) }, time.Hour, false},
		{"released", func(g *admission.Gate) { g.Reserve(now); g.Release() }, 0, true},
		{"sent", func(g *admission.Gate) { g.Reserve(now); g.Send(now, 1) }, 0, false},
		{"sent long ago", func(g *admission.Gate) { g.Reserve(now); g.Send(now, 1) }, 100 * time.Millisecond, true},
		{"held", func(g *admission.Gate) { g.Hold(now.Add(time.Second)) }, 0, false},
		{"held long ago", func(g *admission.Gate) { g.Hold(now.Add(time.Second)) }, time.Second, true},
		{"without a rate", func(g *admission.Gate) {
			g.Reserve(now)
			g.Send(now, 1)
			g.Configure(now, admission.Settings{Concurrency: 4})
		}, 0, true},
	} {
		var g admission.Gate
		g.Configure(now, admission.Settings{Concurrency: 4, Rate: 10})
		if c.do(&g); g.Idle(now.Add(c.after)) != c.idle {
			t.Errorf("%s: idle %t, want %t", c.name, !c.idle, c.idle)
		}
	}
}

// TestDeafAgent: one that does not answer keeps a sixteenth of its limit, so that
// all who wait for it learn about it; once it is there again it gets its calls
// back within a few round trips.
func TestDeafAgent(t *testing.T) {
	var g admission.Gate
	g.Configure(start(), admission.Settings{Concurrency: 1024})
	a := &agent{capacity: 2000, takes: time.Second, deaf: true}
	now, _, _ := simulate(&g, a, start(), 30)
	if n := g.Limit(now); n != 64 {
		t.Errorf("limit %d, want 64", n)
	}
	a.deaf = false
	now, _, _ = simulate(&g, a, now, 8)
	if n := g.Limit(now); n != 1024 {
		t.Errorf("limit %d after 8 round trips, want 1024", n)
	}
}

// TestRamp: a new agent is not called a thousand times at once, but soon.
func TestRamp(t *testing.T) {
	var g admission.Gate
	g.Configure(start(), admission.Settings{Concurrency: 1000})
	now := start()
	if n := g.Room(now.Add(-time.Hour), 0); n != 64 {
		t.Errorf("%d at once, want 64", n)
	}
	busy := 0
	for i, want := range []int{64, 128, 256, 512, 1000, 1000} {
		for range g.Room(now, busy) {
			g.Reserve(now)
			busy++
		}
		if busy != want {
			t.Errorf("step %d: %d calls, want %d", i, busy, want)
		}
		next := g.Next(now, busy, 1)
		if want == 1000 {
			if !next.IsZero() {
				t.Errorf("step %d: more by itself at %v", i, next)
			}
			continue
		}
		if next.Sub(now) != 50*time.Millisecond {
			t.Errorf("step %d: next in %v", i, next.Sub(now))
		}
		now = next
	}
}

// TestHold: what the agent asked for is kept, unless its limits are fixed.
func TestHold(t *testing.T) {
	var g admission.Gate
	g.Configure(start(), admission.Settings{Concurrency: 4})
	now := start()
	g.Hold(now.Add(time.Minute))
	g.Hold(now.Add(time.Second))
	if g.Room(now, 0) != 0 || !g.Next(now, 0, 1).Equal(now.Add(time.Minute)) || g.Room(now.Add(time.Minute), 0) != 4 {
		t.Errorf("room %d, next %v", g.Room(now, 0), g.Next(now, 0, 1))
	}
	g.Reserve(now) // one that waits to be sent again, say
	if due := g.Due(now); !due.Equal(now.Add(time.Minute)) {
		t.Errorf("a call that was begun before is due at %v", due)
	}
	if due := g.Due(now.Add(time.Minute)); due.After(now.Add(time.Minute)) {
		t.Errorf("after the hold it is due at %v", due)
	}
	g.Release()
	g.Configure(start(), admission.Settings{Concurrency: 4, Fixed: true})
	g.Hold(now.Add(time.Minute))
	if g.Room(now, 0) != 4 {
		t.Error("fixed limits are held")
	}
}
