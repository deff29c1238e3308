package breaker

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// fleet is some bridges with one agent and one store between them.
type fleet struct {
	t       *rapid.T
	set     parley.Breaker
	now     time.Time
	stored  parley.BreakerState
	bridges []*fleetBridge
	tokens  int
	// sick: the agent fails.
	sick bool
	// began is how many calls began while the stored circuit was not closed,
	// since its state changed last.
	began int
}

type fleetBridge struct {
	*Circuit
	read  time.Time
	calls []fleetCall
	// sent is what is being stored.
	sent *parley.BreakerState
	dead bool
}

type fleetCall struct {
	token string
	began time.Time
}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{t: t, set: parley.DefaultBreaker(), now: epoch, stored: parley.BreakerState{Agent: "a", Circuit: parley.CircuitClosed}}
	f.set.FailureThreshold = rapid.IntRange(1, 4).Draw(t, "threshold")
	f.set.HalfOpenCalls = rapid.IntRange(1, 3).Draw(t, "probes")
	f.set.OnOpen = rapid.SampledFrom([]parley.OnOpen{"", parley.OnOpenFail}).Draw(t, "on_open")
	for i := range rapid.IntRange(1, 3).Draw(t, "bridges") {
		f.bridges = append(f.bridges, f.bridge(i))
	}
	return f
}

func (f *fleet) bridge(i int) *fleetBridge {
	b := &fleetBridge{Circuit: New("a", fmt.Sprint("bridge-", i)), read: f.now}
	b.Configure(&f.set)
	b.Adopt(f.stored)
	return b
}

// pass lets time pass; every bridge that lives reads each second.
func (f *fleet) pass(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(min(time.Second, end.Sub(f.now)))
		for _, b := range f.bridges {
			if !b.dead && f.now.Sub(b.read) >= time.Second {
				b.read = f.now
				b.Adopt(f.stored)
				f.write(b, true)
			}
		}
	}
}

// write stores what a bridge wants to be stored; answered is false if the bridge
// does not learn what came of it.
func (f *fleet) write(b *fleetBridge, answered bool) {
	f.send(b)
	f.answer(b, answered)
}

// send begins to store what a bridge wants to be stored, which may take a while.
func (f *fleet) send(b *fleetBridge) {
	if from, to, ok := b.Next(f.now); ok && b.sent == nil {
		if to.Version != from.Version+1 {
			f.t.Fatalf("from %+v to %+v", from, to)
		}
		b.sent = &to
	}
}

// answer ends it.
func (f *fleet) answer(b *fleetBridge, answered bool) {
	if b.sent == nil {
		return
	}
	to := *b.sent
	b.sent = nil
	if to.Version == f.stored.Version+1 {
		if f.stored.Manual {
			f.t.Fatalf("a bridge has changed what was done by hand: %+v", to)
		}
		if to.Circuit == parley.CircuitHalfOpen && !Due(f.stored, f.now) && f.stored.Holder != to.Holder {
			f.t.Fatalf("tried before its time: %+v after %+v", to, f.stored)
		}
		if to.Circuit != f.stored.Circuit || to.Holder != f.stored.Holder {
			f.began = 0
		}
		f.stored = to
		if answered {
			b.Stored(to)
		}
		return
	}
	if answered {
		b.Adopt(f.stored)
	}
}

// begin begins a call if the bridge may.
func (f *fleet) begin(b *fleetBridge) {
	if b.dead || b.Held(f.now) == Hold {
		return
	}
	room := b.Room(f.now)
	if room == 0 {
		if b.Wanted() {
			f.write(b, true)
		}
		return
	}
	f.tokens++
	token := fmt.Sprint(f.tokens)
	b.Reserve(token)
	if b.Admit(token, f.now) != Pass {
		return
	}
	b.calls = append(b.calls, fleetCall{token, f.now})
	if f.stored.Circuit == parley.CircuitClosed || b.stored != f.stored {
		return // a bridge is up to a second behind, with a version of its own that may be as high
	}
	f.began++
	if f.stored.Circuit == parley.CircuitOpen {
		f.t.Fatalf("called while open: %+v", f.stored)
	}
	if Due(f.stored, f.now) {
		f.t.Fatalf("tried at a time at which another bridge may, too: %+v", f.stored)
	}
}

// end ends the oldest call of a bridge.
func (f *fleet) end(b *fleetBridge, how int) {
	if len(b.calls) == 0 || b.dead {
		return
	}
	call := b.calls[0]
	b.calls = b.calls[1:]
	if how == 0 {
		b.Drop(call.token)
		return
	}
	b.Note(call.token, f.sick, call.began, f.now)
	if n := len(b.probes); n > f.set.HalfOpenCalls {
		f.t.Fatalf("%d calls try the agent", n)
	}
}

// TestFleet: whatever bridges, clocks and stores do, no bridge calls an agent
// whose circuit it knows to be open, nobody undoes what was done by hand, and
// an agent that is well is called again.
func TestFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		which := rapid.IntRange(0, len(f.bridges)-1)
		pick := func() *fleetBridge { return f.bridges[which.Draw(t, "bridge")] }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) { f.begin(pick()) },
			"end":   func(t *rapid.T) { f.end(pick(), rapid.IntRange(0, 3).Draw(t, "how")) },
			"health": func(t *rapid.T) {
				f.sick = rapid.IntRange(0, 3).Draw(t, "sick") > 0
			},
			"write": func(t *rapid.T) {
				if b := pick(); !b.dead {
					f.write(b, rapid.Bool().Draw(t, "answered"))
				}
			},
			"send": func(*rapid.T) {
				if b := pick(); !b.dead {
					f.send(b)
				}
			},
			"pass": func(t *rapid.T) {
				f.pass(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, Lease, time.Minute}).Draw(t, "time"))
			},
			"kill": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					pick().dead = true
				}
			},
			"restart": func(t *rapid.T) {
				i := which.Draw(t, "bridge")
				f.bridges[i] = f.bridge(i)
			},
			"hand": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
					return
				}
				if next, ok := ByHand(f.stored, parley.BreakerOrder{Open: rapid.Bool().Draw(t, "open"), By: "ann"}, f.now); ok {
					f.stored = next
				}
			},
		})
		f.recover()
	})
}

// recover brings everything in order: then the circuit closes.
func (f *fleet) recover() {
	f.sick = false
	for i, b := range f.bridges {
		for len(b.calls) > 0 && !b.dead {
			f.end(b, 0)
		}
		if b.dead {
			f.bridges[i] = f.bridge(i)
		}
	}
	if f.stored.Manual {
		f.stored, _ = ByHand(f.stored, parley.BreakerOrder{}, f.now)
	}
	for range 200 {
		f.pass(time.Second)
		for _, b := range f.bridges {
			f.begin(b)
			f.end(b, 1)
		}
	}
	if f.stored.Circuit != parley.CircuitClosed {
		f.t.Fatalf("still %+v", f.stored)
	}
	for _, b := range f.bridges {
		if b.State() != f.stored || b.Admit("last", f.now) != Pass {
			f.t.Fatalf("a bridge has %+v, the store %+v", b.State(), f.stored)
		}
	}
}
