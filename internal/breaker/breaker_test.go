package breaker

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

var epoch = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// TestTransitions is every change of a state, from every state.
func TestTransitions(t *testing.T) {
	now := epoch
	zero := parley.BreakerState{Agent: "a", Circuit: parley.CircuitClosed}
	open := Trip(zero, time.Minute, "why", now)
	half := Probe(open, "one", now.Add(time.Minute))
	closed := Close(half, "well", now.Add(2*time.Minute))
	manual, _ := ByHand(half, parley.BreakerOrder{Open: true, By: "ann", Reason: "broken"}, now)
	at := func(s parley.BreakerState, due time.Duration) string {
		return fmt.Sprintf("v%d %s manual=%t until=%v n=%d %q %q %q", s.Version, s.Circuit, s.Manual, due, s.Openings, s.Reason, s.By, s.Holder)
	}
	got := []string{
		at(open, open.Until.Sub(now)), at(half, half.Until.Sub(now)), at(closed, 0), at(manual, 0),
		at(Trip(half, time.Hour, "again", now), time.Hour),
		at(Probe(half, "two", now), Probe(half, "two", now).Until.Sub(now)),
	}
	want := []string{
		`v1 open manual=false until=1m0s n=1 "why" "" ""`,
		`v2 half_open manual=false until=1m15s n=1 "why" "" "one"`,
		`v3 closed manual=false until=0s n=1 "well" "" ""`,
		`v3 open manual=true until=0s n=1 "broken" "ann" ""`,
		`v3 open manual=false until=1h0m0s n=2 "again" "" ""`,
		`v3 half_open manual=false until=15s n=1 "why" "" "two"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !half.Since.Equal(now.Add(time.Minute)) {
		t.Errorf("half-open since %v", half.Since)
	}
	if !Probe(half, "two", now).Since.Equal(half.Since) {
		t.Error("whoever takes a half-open circuit over has reached nothing new")
	}
	for _, c := range []struct {
		s   parley.BreakerState
		at  time.Time
		due bool
	}{
		{zero, now, false},
		{closed, now, false},
		{manual, now.Add(time.Hour), false},
		{open, open.Until.Add(-1), false},
		{open, open.Until, true},
		{half, half.Until.Add(-1), false},
		{half, half.Until, true},
	} {
		if Due(c.s, c.at) != c.due {
			t.Errorf("due is %t: %+v", !c.due, c.s)
		}
	}
	for _, c := range []struct {
		s             parley.BreakerState
		open, changed bool
	}{
		{zero, false, false},
		{closed, false, false},
		{open, false, true},
		{half, false, true},
		{manual, false, true},
		{zero, true, true},
		{closed, true, true},
		{open, true, true},
		{half, true, true},
		{manual, true, false},
	} {
		next, changed := ByHand(c.s, parley.BreakerOrder{Open: c.open, By: "ann"}, now)
		if changed != c.changed || changed && (next.Version != c.s.Version+1 || next.By != "ann" || next.Manual != c.open) {
			t.Errorf("%s by hand, open %t: %+v", c.s.Circuit, c.open, next)
		}
	}
}

// TestReasonByHand: a circuit that is opened again has the newer reason.
func TestReasonByHand(t *testing.T) {
	manual, _ := ByHand(parley.BreakerState{Agent: "a", Circuit: parley.CircuitClosed}, parley.BreakerOrder{Open: true, By: "ann", Reason: "broken"}, epoch)
	later := epoch.Add(time.Hour)
	next, changed := ByHand(manual, parley.BreakerOrder{Open: true, By: "bob", Reason: "under repair"}, later)
	want := manual
	want.Reason, want.By, want.Version = "under repair", "bob", manual.Version+1
	if !changed || next != want {
		t.Errorf("%t %+v, want %+v", changed, next, want)
	}
	if e, ok := Event(manual, next, later); !ok || !strings.Contains(string(e.Data), `"reason":"under repair","manual":true,"by":"bob"`) {
		t.Errorf("%t %s", ok, e.Data)
	}
	for _, reason := range []string{"", "broken"} {
		if next, changed := ByHand(manual, parley.BreakerOrder{Open: true, By: "bob", Reason: reason}, later); changed || next != manual {
			t.Errorf("%q: %+v", reason, next)
		}
	}
}

// TestEvents: what is logged of a change.
func TestEvents(t *testing.T) {
	zero := parley.BreakerState{Agent: "a", Circuit: parley.CircuitClosed}
	open := Trip(zero, time.Minute, "5 calls in a row have failed", epoch)
	half := Probe(open, "one", epoch)
	manual, _ := ByHand(open, parley.BreakerOrder{Open: true, By: "ann"}, epoch)
	for _, c := range []struct {
		from, to parley.BreakerState
		kind     parley.AgentEventType
		data     string
	}{
		{zero, open, parley.EventBreakerOpened, `{"reason":"5 calls in a row have failed","until":"2026-11-22T12:01:00Z"}`},
		{half, Trip(half, time.Minute, "x", epoch), parley.EventBreakerOpened, `{"reason":"x","until":"2026-11-22T12:01:00Z"}`},
		{open, half, parley.EventBreakerHalfOpen, `{"bridge":"one"}`},
		{half, Probe(half, "two", epoch), "", ""},
		{half, Close(half, "well", epoch), parley.EventBreakerClosed, `{"reason":"well"}`},
		{open, manual, parley.EventBreakerOpened, `{"manual":true,"by":"ann"}`},
	} {
		e, ok := Event(c.from, c.to, epoch)
		if e.Type != c.kind || string(e.Data) != c.data || ok != (c.kind != "") || ok && (e.Agent != "a" || !e.At.Equal(epoch)) {
			t.Errorf("%s -> %s: %+v %s", c.from.Circuit, c.to.Circuit, e, e.Data)
		}
		if ok && !json.Valid(e.Data) {
			t.Errorf("no JSON: %s", e.Data)
		}
	}
}

func settings(change func(*parley.Breaker)) *parley.Breaker {
	b := parley.DefaultBreaker()
	if change != nil {
		change(&b)
	}
	return &b
}

func closedCircuit(set *parley.Breaker) *Circuit {
	c := New("a", "me")
	c.Configure(set)
	return c
}

// call makes a call that is allowed.
func call(t *testing.T, c *Circuit, failed bool, now time.Time) (changed bool) {
	t.Helper()
	if v := c.Admit("t", now); v != Pass {
		t.Fatalf("not admitted: %d", v)
	}
	return c.Note("t", failed, now, now)
}

// TestOpens: failures in a row within the window, or their share of enough calls.
func TestOpens(t *testing.T) {
	rate := func(b *parley.Breaker) { b.FailureThreshold, b.MinimumCalls = 100, 10 }
	for _, c := range []struct {
		name  string
		set   *parley.Breaker
		calls string // F failed, . well, each a second after the other; n waits a minute
		opens bool
	}{
		{"five in a row", settings(nil), "FFFFF", true},
		{"four in a row", settings(nil), "FFFF", false},
		{"a success between", settings(func(b *parley.Breaker) { b.FailureRate = 0.9 }), "FFFF.FFFF", false},
		{"too slowly", settings(nil), "FFFFnnF", false},
		{"the oldest too old", settings(nil), "FnFFFnF", false},
		{"within the window", settings(nil), "FFnFFF", true},
		{"share", settings(rate), ".F.F.F.F.F", true},
		{"share of too few", settings(rate), ".F.F.F.F", false},
		{"share too small", settings(rate), "..F.F.F.F.F", false},
		{"share of the window only", settings(rate), ".....nnnF.F.F.F.FF", true},
		{"share of the window as it moves on", settings(rate), ".......nFFFFFnFFFFF", true},
		{"a success never opens", settings(rate), "FFFFFFFFF.", false},
		{"least is the threshold", settings(nil), "F.FFF", true},
		{"one is enough", settings(func(b *parley.Breaker) { b.FailureThreshold = 1 }), "F", true},
		{"off", settings(func(b *parley.Breaker) { b.Enabled = false }), "FFFFFFFFFFFF", false},
		{"none", nil, "FFFFFFFFFFFF", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := closedCircuit(c.set)
			now := epoch
			opened := false
			for i, k := range c.calls {
				if k == 'n' {
					now = now.Add(time.Minute)
					continue
				}
				now = now.Add(time.Second)
				opened = call(t, x, k == 'F', now)
				if opened && i < len(c.calls)-1 {
					t.Fatalf("open after %s", c.calls[:i+1])
				}
			}
			if opened != c.opens {
				t.Errorf("open is %t", opened)
			}
			if s := x.State(); opened && (s.Circuit != parley.CircuitOpen || !s.Until.Equal(now.Add(time.Minute)) || s.Reason == "") {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestWindow compares the counts with those of a list of all calls.
func TestWindow(t *testing.T) {
	rapid.Check(t, testWindow)
}

func testWindow(t *rapid.T) {
	set := settings(func(b *parley.Breaker) {
		b.FailureThreshold = rapid.IntRange(1, 8).Draw(t, "threshold")
		b.FailureRate = rapid.SampledFrom([]float64{0.2, 0.5, 0.75, 1}).Draw(t, "rate")
		b.MinimumCalls = rapid.IntRange(0, 12).Draw(t, "minimum")
		b.Window = rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "window")
	})
	c := closedCircuit(set)
	type one struct {
		at     time.Time
		failed bool
	}
	var calls []one
	part := set.Window / parts
	now := epoch
	for i := range rapid.IntRange(1, 60).Draw(t, "calls") {
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(set.Window)/3).Draw(t, fmt.Sprint("pause", i))))
		calls = append(calls, one{now, rapid.Bool().Draw(t, fmt.Sprint("failed", i))})
		n, failures, row := 0, 0, 0
		for _, x := range calls {
			if now.UnixNano()/int64(part)-x.at.UnixNano()/int64(part) < parts {
				n++
				if x.failed {
					failures++
				}
			}
			if row++; !x.failed || now.Sub(x.at) >= set.Window {
				row = 0
			}
		}
		least := set.MinimumCalls
		if least == 0 {
			least = set.FailureThreshold
		}
		last := calls[len(calls)-1].failed
		want := last && (row >= set.FailureThreshold || n >= least && float64(failures)/float64(n) >= set.FailureRate)
		if got := c.Note("t", last, now, now); got != want {
			t.Fatalf("open is %t after %d calls, %d failures, %d in a row", got, n, failures, row)
		}
		if want {
			return
		}
	}
}

// TestWindowForgets: calls count no more when they are long past, or in the future,
// since the clock was set back.
func TestWindowForgets(t *testing.T) {
	set := settings(func(b *parley.Breaker) { b.FailureThreshold, b.MinimumCalls = 100, 5 })
	for after, opens := range map[time.Duration]bool{0: true, 3 * set.Window: false, 1000 * set.Window: false, -time.Hour: false} {
		c := closedCircuit(set)
		for range 4 {
			call(t, c, true, epoch)
		}
		if call(t, c, true, epoch.Add(after)) != opens {
			t.Errorf("%v later: opened %t, want %t", after, !opens, opens)
		}
	}
}

// halfOpen gives a circuit that its bridge tries, at the time from which on it does.
func halfOpen(t *testing.T, set *parley.Breaker) (*Circuit, time.Time) {
	t.Helper()
	c := closedCircuit(set)
	for range set.FailureThreshold {
		call(t, c, true, epoch)
	}
	store(t, c, epoch)
	now := epoch.Add(set.OpenFor)
	if n := c.Room(now); n != 0 || !c.Wanted() {
		t.Fatalf("%d calls may begin, wanted is %t", n, c.Wanted())
	}
	store(t, c, now)
	return c, now
}

// store writes what is to be written, with success.
func store(t *testing.T, c *Circuit, now time.Time) {
	t.Helper()
	_, to, ok := c.Next(now)
	if !ok {
		t.Fatal("nothing is to be stored")
	}
	c.Stored(to)
}

// TestProbes: as many calls as may try the agent do, and one more only for one
// that is given up.
func TestProbes(t *testing.T) {
	set := settings(nil)
	c, now := halfOpen(t, set)
	for i, token := range []string{"1", "2", "3", "4", "5"} {
		want := Pass
		if i >= set.HalfOpenCalls {
			want = Hold
		}
		if got := c.Admit(token, now); got != want {
			t.Errorf("call %s: %d", token, got)
		}
		if got := c.Admit(token, now); got != want {
			t.Errorf("call %s again: %d", token, got)
		}
	}
	c.Drop("3")
	if c.Room(now) != 1 || c.Admit("6", now) != Pass || c.Room(now) != 0 {
		t.Error("a call that was given up leaves no room")
	}
	if c.Note("old", true, now, now) || c.State().Circuit != parley.CircuitHalfOpen {
		t.Error("a call from before the circuit was opened counts")
	}
	if c.Note("1", false, now, now) || c.Note("2", false, now, now) {
		t.Error("closed too early")
	}
	if c.Room(now) != 0 {
		t.Error("more calls try than have to go well")
	}
	if !c.Note("6", false, now, now) || c.State().Circuit != parley.CircuitClosed || c.Admit("7", now) != Pass {
		t.Errorf("%+v", c.State())
	}
	store(t, c, now)
	for range set.FailureThreshold - 1 {
		if call(t, c, true, now) {
			t.Error("what failed before counts")
		}
	}

	c, now = halfOpen(t, set)
	c.Reserve("1")
	if c.Room(now) != 2 {
		t.Error("a call that will try the agent leaves its room to others")
	}
	c.Admit("1", now)
	if !c.Note("1", true, now, now) || c.State().Circuit != parley.CircuitOpen || c.State().Openings != 2 {
		t.Errorf("%+v", c.State())
	}
	if v := c.Held(now); v != Hold {
		t.Errorf("%d", v)
	}
}

// TestProbedAgain: each time that an agent is tried anew, all calls of that count, and
// none from before.
func TestProbedAgain(t *testing.T) {
	set := settings(nil)
	c, now := halfOpen(t, set)
	c.Admit("1", now)
	c.Admit("2", now)
	c.Admit("3", now)
	c.Note("1", false, now, now)
	c.Note("2", true, now, now)
	store(t, c, now)
	now = now.Add(set.OpenFor)
	if c.Room(now) != 0 || !c.Wanted() {
		t.Fatal("an agent that is due is not tried")
	}
	store(t, c, now)
	if c.Wanted() || c.Room(now) != set.HalfOpenCalls {
		t.Errorf("room for %d, want %d", c.Room(now), set.HalfOpenCalls)
	}
	if c.Note("3", true, now, now) {
		t.Error("a call of the last time counts")
	}
}

// TestTakenOver: a bridge whose turn another has taken begins anew when it is its turn
// again.
func TestTakenOver(t *testing.T) {
	set := settings(nil)
	c, now := halfOpen(t, set)
	c.Admit("1", now)
	c.Admit("2", now)
	c.Note("1", false, now, now)
	other := Probe(c.State(), "other", now.Add(Lease))
	if !c.Adopt(other) || c.Room(now.Add(Lease)) != 0 {
		t.Fatalf("%+v", c.State())
	}
	open := Trip(other, set.OpenFor, "", now.Add(Lease))
	c.Adopt(open)
	now = open.Until
	c.Room(now)
	store(t, c, now)
	if n := c.Room(now); n != set.HalfOpenCalls {
		t.Errorf("room for %d, want %d", n, set.HalfOpenCalls)
	}
}

// TestOldCalls: calls that began before a circuit was closed do not open it again, however
// long after that they fail.
func TestOldCalls(t *testing.T) {
	set := settings(nil)
	c, now := halfOpen(t, set)
	began := now.Add(-set.OpenFor)
	for _, token := range []string{"1", "2", "3"} {
		c.Admit(token, now)
		c.Note(token, false, now, now)
	}
	store(t, c, now)
	for range 2 * set.FailureThreshold {
		if c.Note("old", true, began, now.Add(time.Second)) {
			t.Fatalf("%+v", c.State())
		}
	}
	for range set.FailureThreshold {
		c.Note("new", true, now, now.Add(time.Second))
	}
	if c.State().Circuit != parley.CircuitOpen {
		t.Errorf("%+v", c.State())
	}
}

// TestClosedByHand: what failed before a circuit was closed by hand does not open it.
func TestClosedByHand(t *testing.T) {
	set := settings(nil)
	c := closedCircuit(set)
	for range set.FailureThreshold - 1 {
		call(t, c, true, epoch)
	}
	open, _ := ByHand(c.State(), parley.BreakerOrder{Open: true}, epoch)
	c.Adopt(open)
	closed, _ := ByHand(open, parley.BreakerOrder{}, epoch)
	c.Adopt(closed)
	if call(t, c, true, epoch) {
		t.Errorf("%+v", c.State())
	}
}

// TestHeld: tasks wait for their turn where the agent is about to be tried, and to
// ask for one is to want that.
func TestHeld(t *testing.T) {
	set := settings(nil)
	c := closedCircuit(set)
	if c.Held(epoch) != Pass {
		t.Error("a closed circuit holds tasks")
	}
	for range 5 {
		call(t, c, true, epoch)
	}
	store(t, c, epoch)
	if c.Held(epoch) != Hold || c.Admit("1", epoch) != Hold || c.Wanted() {
		t.Error("an agent is to be tried before its time")
	}
	due := epoch.Add(set.OpenFor)
	if c.Held(due) != Pass || c.Wanted() {
		t.Error("tasks cannot wait for their turn to try the agent")
	}
	if c.Admit("1", due) != Hold || !c.Wanted() {
		t.Error("nobody wants the agent to be tried")
	}
	store(t, c, due)
	if c.Held(due) != Pass || c.Admit("1", due) != Pass || c.Wanted() {
		t.Error("the agent is not tried")
	}
}

// TestConfigured: other settings begin a new count, the same ones do not.
func TestConfigured(t *testing.T) {
	for more, opens := range map[int]bool{0: true, 1: false} {
		set := settings(nil)
		c := closedCircuit(set)
		for range set.FailureThreshold - 1 {
			call(t, c, true, epoch)
		}
		other := *set
		other.HalfOpenCalls += more
		c.Configure(&other)
		if call(t, c, true, epoch) != opens {
			t.Errorf("opened: %t, with %d changed", !opens, more)
		}
	}
}

// TestRefuses: with on_open fail nobody waits, but for the moment in which the
// agent is going to be tried.
func TestRefuses(t *testing.T) {
	set := settings(func(b *parley.Breaker) { b.OnOpen = parley.OnOpenFail })
	c := closedCircuit(set)
	for range 5 {
		call(t, c, true, epoch)
	}
	if c.Room(epoch) != math.MaxInt || c.Held(epoch) != Refuse || c.Admit("1", epoch) != Refuse {
		t.Error("an open circuit lets tasks wait")
	}
	c, now := halfOpen(t, set)
	for i := range 5 {
		want := Pass
		if i >= 3 {
			want = Refuse
		}
		if got := c.Admit(fmt.Sprint(i), now); got != want || c.Room(now) != math.MaxInt {
			t.Errorf("call %d: %d", i, got)
		}
	}
}

// TestLapse: a bridge without tasks lets its circuit go; if what it tried went
// well, closed. One with calls under way holds it.
func TestLapse(t *testing.T) {
	c, now := halfOpen(t, settings(nil))
	later := now.Add(Lease)
	if _, _, ok := c.Next(later); ok {
		t.Error("renewed for nothing")
	}
	c.Admit("0", now)
	c.Admit("1", now)
	c.Note("0", false, now, now) // that is not all yet
	if _, _, ok := c.Next(now.Add(Lease/2 - 1)); ok {
		t.Error("renewed too early")
	}
	_, to, ok := c.Next(now.Add(Lease / 2))
	if !ok || to.Circuit != parley.CircuitHalfOpen || !to.Until.Equal(now.Add(Lease/2+Lease)) {
		t.Errorf("%+v", to)
	}
	c.Stored(to)
	c.Note("1", false, later, later)
	if c.Room(later) != 1 {
		t.Error("what went well is forgotten when it is renewed")
	}
	_, to, ok = c.Next(later)
	if !ok || to.Circuit != parley.CircuitClosed {
		t.Errorf("%+v", to)
	}
}

// TestLeaseOver: a bridge that has let its lease lapse tries the agent only when it has
// renewed it. Another one may have begun to, which it does not know yet.
func TestLeaseOver(t *testing.T) {
	set := settings(nil)
	c, now := halfOpen(t, set)
	half := c.State()
	now = now.Add(Lease)
	other := New("a", "other")
	other.Configure(set)
	other.Adopt(half)
	other.Room(now)
	store(t, other, now)
	if other.Room(now) != set.HalfOpenCalls {
		t.Fatal("nobody tries the agent")
	}
	if n, v := c.Room(now), c.Admit("1", now); n != 0 || v != Hold || !c.Wanted() {
		t.Errorf("two bridges try the agent: room for %d calls, admitted %d, wanted %t", n, v, c.Wanted())
	}
	_, to, ok := c.Next(now)
	if !ok || to.Version != other.State().Version {
		t.Errorf("not to be renewed: %+v", to)
	}
	if c.Adopt(other.State()); c.Held(now) != Hold {
		t.Error("the other bridge is not known to try the agent")
	}

	alone, now := halfOpen(t, set)
	now = now.Add(Lease)
	alone.Room(now)
	store(t, alone, now)
	if alone.Room(now) != set.HalfOpenCalls {
		t.Error("a lease that was renewed is of no use")
	}
}

// TestProbeEndsWhileRenewed: the end of a call is not lost because the lease was
// written meanwhile.
func TestProbeEndsWhileRenewed(t *testing.T) {
	c, now := halfOpen(t, settings(nil))
	c.Admit("1", now)
	now = now.Add(Lease)
	_, to, _ := c.Next(now)
	c.Note("1", true, now, now)
	c.Stored(to)
	from, to, ok := c.Next(now)
	if !ok || to.Circuit != parley.CircuitOpen || to.Version != from.Version+1 {
		t.Errorf("%+v -> %+v", from, to)
	}
}

// TestLeadsTwice: a circuit that closed and was opened again before the first was
// stored is stored as it is then, unless somebody has opened it by hand meanwhile.
func TestLeadsTwice(t *testing.T) {
	set := settings(func(b *parley.Breaker) { b.HalfOpenCalls = 1 })
	twice := func() (*Circuit, parley.BreakerState, time.Time) {
		c, now := halfOpen(t, set)
		half := c.State()
		call(t, c, false, now)
		for range set.FailureThreshold {
			call(t, c, true, now.Add(time.Second))
		}
		if c.Adopt(half) || c.State().Circuit != parley.CircuitOpen {
			t.Errorf("what is known to be stored undoes what came since: %+v", c.State())
		}
		return c, half, now.Add(time.Second)
	}
	c, half, now := twice()
	from, to, ok := c.Next(now)
	if !ok || from != half || to.Circuit != parley.CircuitOpen || to.Version != half.Version+1 || to.Openings != half.Openings+1 {
		t.Errorf("%+v -> %+v", from, to)
	}
	c.Stored(to)
	if _, _, ok := c.Next(now); ok || c.State() != to || c.Idle() {
		t.Errorf("%+v", c.State())
	}

	c, half, now = twice()
	manual, _ := ByHand(half, parley.BreakerOrder{Open: true, By: "ann"}, now)
	if !c.Adopt(manual) || c.State() != manual {
		t.Errorf("%+v", c.State())
	}
	if from, to, ok := c.Next(now); ok {
		t.Errorf("done by hand, and undone: %+v -> %+v", from, to)
	}
}

// TestLeadsWhileWritten: what comes while a change is written follows it, also if
// the bridge hears of the end of that later, by reading.
func TestLeadsWhileWritten(t *testing.T) {
	set := settings(func(b *parley.Breaker) { b.HalfOpenCalls = 1 })
	for _, how := range []string{"stored", "read", "read later"} {
		t.Run(how, func(t *testing.T) {
			c, now := halfOpen(t, set)
			call(t, c, false, now)
			now = now.Add(time.Second)
			_, closed, _ := c.Next(now)
			for range set.FailureThreshold {
				call(t, c, true, now.Add(time.Second))
			}
			switch how {
			case "stored":
				c.Stored(closed)
			case "read later": // the next change was refused first
				c.Next(now)
				fallthrough
			case "read":
				c.Adopt(closed)
			}
			from, to, ok := c.Next(now)
			if !ok || from != closed || to.Circuit != parley.CircuitOpen || to.Version != closed.Version+1 || to.Openings != 2 {
				t.Errorf("%t %+v -> %+v", ok, from, to)
			}
			newer := Probe(Trip(closed, time.Minute, "", now), "other", now)
			c.Adopt(newer)
			c.Stored(to)
			if c.State() != newer {
				t.Errorf("what is older holds: %+v", c.State())
			}
		})
	}
}

// TestRenewalInDoubt: whether a renewal was written or not, what is tried goes on,
// and so does what came of it meanwhile.
func TestRenewalInDoubt(t *testing.T) {
	for _, ended := range []bool{false, true} {
		c, now := halfOpen(t, settings(nil))
		c.Admit("1", now)
		now = now.Add(Lease)
		_, renewed, _ := c.Next(now)
		if ended {
			c.Note("1", true, now, now)
		}
		if c.Adopt(renewed) {
			t.Error("renewed, and counted as changed")
		}
		want := parley.CircuitHalfOpen
		if ended {
			want = parley.CircuitOpen
		}
		if c.State().Circuit != want || c.probing() == ended {
			t.Errorf("%+v", c.State())
		}
		if from, to, ok := c.Next(now); ok != ended || ended && (from != renewed || to.Version != renewed.Version+1) {
			t.Errorf("%t %+v -> %+v", ok, from, to)
		}
	}
}

// TestStale: failures that others have dealt with open nothing; those since do.
func TestStale(t *testing.T) {
	others := Close(Trip(parley.BreakerState{Agent: "a"}, time.Minute, "", epoch), "", epoch.Add(time.Minute))
	for after, opens := range map[time.Duration]bool{time.Second: false, 2 * time.Minute: true} {
		c := closedCircuit(settings(nil))
		for range 5 {
			call(t, c, true, epoch.Add(after))
		}
		c.Configure(settings(func(b *parley.Breaker) { b.HalfOpenCalls++ })) // they count all the same
		c.Adopt(others)                                                      // what was stored was not the version before
		_, to, ok := c.Next(epoch.Add(after))
		if ok != opens || ok && (to.Version != others.Version+1 || to.Openings != 2) {
			t.Errorf("%v: %t %+v", after, ok, to)
		}
	}
}

// TestBreakerRemoved: without a breaker in the record a circuit closes, unless
// it was opened by hand.
func TestBreakerRemoved(t *testing.T) {
	c := closedCircuit(settings(nil))
	for range 5 {
		call(t, c, true, epoch)
	}
	store(t, c, epoch)
	c.Configure(nil)
	if c.Admit("t", epoch) != Pass {
		t.Error("held without a breaker")
	}
	open := c.State()
	_, closed, _ := c.Next(epoch)
	if c.Adopt(open) || c.State() != closed {
		t.Errorf("what was known to be stored holds again: %+v", c.State())
	}
	store(t, c, epoch)
	if c.State() != closed || closed.Circuit != parley.CircuitClosed {
		t.Errorf("%+v", c.State())
	}
	if _, to, ok := c.Next(epoch); ok {
		t.Errorf("closed once more: %+v", to)
	}
	manual, _ := ByHand(c.State(), parley.BreakerOrder{Open: true}, epoch)
	if !c.Adopt(manual) || c.Admit("t", epoch.Add(time.Hour)) != Hold {
		t.Error("not held by hand")
	}
	if _, _, ok := c.Next(epoch.Add(time.Hour)); ok {
		t.Error("what was opened by hand is changed")
	}
	// Before the record is known nothing is decided.
	c = New("a", "me")
	c.Adopt(Trip(parley.BreakerState{Agent: "a"}, time.Minute, "", epoch))
	if _, _, ok := c.Next(epoch); ok || c.Admit("t", epoch) != Hold {
		t.Error("a circuit is closed before its agent's record is known")
	}
}

// TestDoubt: a bridge that does not learn whether it was the first to try an
// agent finds out by reading; what it reads late changes nothing.
func TestDoubt(t *testing.T) {
	set := settings(nil)
	c := closedCircuit(set)
	for range 5 {
		call(t, c, true, epoch)
	}
	_, open, _ := c.Next(epoch)
	if c.Adopt(open) { // written, but nobody said so
		t.Error("what is known already is a change")
	}
	now := epoch.Add(set.OpenFor)
	c.Room(now)
	_, half, ok := c.Next(now)
	if !ok || half.Version != open.Version+1 {
		t.Fatalf("%+v", half)
	}
	if !c.Adopt(half) || c.Room(now) != set.HalfOpenCalls {
		t.Error("the bridge does not know that it may try the agent")
	}
	if c.Adopt(open) || c.Room(now) != set.HalfOpenCalls {
		t.Error("an old state is believed")
	}
	newer := Trip(half, set.OpenFor, "", now)
	if !c.Adopt(newer) {
		t.Error("what others have changed is not")
	}
	if c.Stored(half); c.State() != newer {
		t.Errorf("the end of a write undoes what came after it: %+v", c.State())
	}
	// The same row, of a bridge of the same name before it.
	other := closedCircuit(set)
	other.Adopt(half)
	if other.Room(now) != 0 || other.Held(now) != Hold {
		t.Error("a bridge goes on with what its former life has begun")
	}
}

// TestWindowEnds: what is as old as the window counts no more.
func TestWindowEnds(t *testing.T) {
	set := settings(func(b *parley.Breaker) { b.FailureThreshold, b.FailureRate, b.MinimumCalls = 2, 1, 1000 })
	for gap, opens := range map[time.Duration]bool{set.Window - 1: true, set.Window: false} {
		c := closedCircuit(set)
		call(t, c, true, epoch)
		if call(t, c, true, epoch.Add(gap)) != opens {
			t.Errorf("%v apart: open is %t", gap, !opens)
		}
	}
}
