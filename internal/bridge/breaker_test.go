package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/breaker"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// frail is an agent with a breaker; healthy says whether it answers.
type frail struct {
	healthy atomic.Bool
	busy    atomic.Int64
	most    atomic.Int64
	calls   atomic.Int64
}

// breaks gives agent "frail" a breaker, and has it answer after 20 ms, or refuse.
func (r *sqlRig) breaks(change func(*parley.Breaker)) *frail {
	set := parley.DefaultBreaker()
	if change != nil {
		change(&set)
	}
	r.agents.put(parley.Agent{Name: "frail", Protocol: parley.ProtocolSimpleA2A, Breaker: &set})
	f := &frail{}
	r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		if task.Agent != "frail" {
			return answered(task, "1"), nil
		}
		f.calls.Add(1)
		if n := f.busy.Add(1); n > f.most.Load() {
			f.most.Store(n)
		}
		defer f.busy.Add(-1)
		if out := takes(ctx, task, 20*time.Millisecond); f.healthy.Load() || out.Disposition != bridge.Answered {
			return out, nil
		}
		return notSent(), nil
	}
	return f
}

func (r *sqlRig) circuit() parley.BreakerState {
	r.t.Helper()
	s, err := r.db.Breaker(r.t.Context(), "frail")
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// trip has tasks fail until the circuit opens. Each bridge counts its own.
func (r *sqlRig) trip() {
	r.t.Helper()
	for i := 0; i < 15 && r.circuit().Circuit == parley.CircuitClosed; i++ {
		r.expect(r.begin("frail", 1000+i, nil), parley.OutcomeError, parley.CodeAgentUnavailable)
	}
	r.wait(1500 * time.Millisecond) // the other bridge reads
	if s := r.circuit(); s.Circuit != parley.CircuitOpen || s.Openings != 1 {
		r.t.Errorf("%+v", s)
	}
}

// log gives the types in the agent's log.
func (r *sqlRig) log() string {
	r.t.Helper()
	events, err := r.db.AgentEvents(r.t.Context(), "frail", 0, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	var types []string
	for i, e := range events {
		if e.Seq != int64(i+1) {
			r.t.Errorf("event %d has number %d", i+1, e.Seq)
		}
		types = append(types, strings.TrimPrefix(string(e.Type), "agent.breaker_"))
	}
	return strings.Join(types, " ")
}

// TestBreakerWaits: while a circuit is open nothing is claimed for its agent, by
// any bridge; its tasks wait in the store until it reopens, others are not
// disturbed. Then few calls try the agent, from one bridge, and when they went
// well all others follow.
func TestBreakerWaits(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		p, q := r.life("b1"), r.life("b2")
		r.trip()
		before := f.calls.Load()
		opened := r.circuit()
		var ids []string
		for i := range 40 {
			ids = append(ids, r.begin("frail", i, nil))
		}
		r.wait(2 * time.Second)
		times := map[time.Time]bool{}
		for _, id := range ids {
			times[r.attempt(id).VisibleAt] = true
			if a := r.attempt(id); a.State != store.AttemptOpen || a.VisibleAt.Before(opened.Until) || a.VisibleAt.After(opened.Until.Add(time.Second)) {
				t.Errorf("%s is %s until %v, the circuit is open until %v", id, a.State, a.VisibleAt, opened.Until)
			}
		}
		if len(times) < len(ids)/2 { // two bridges, each with its own order
			t.Errorf("%d tasks come back at %d times", len(ids), len(times))
		}
		r.expect(r.begin("one", 1, nil), parley.OutcomeOK, "")
		if n := f.calls.Load(); n != before {
			t.Errorf("%d calls while open", n-before)
		}
		r.wait(time.Until(opened.Until) - 100*time.Millisecond)
		f.healthy.Store(true)
		f.most.Store(0)
		tried := time.Time{}
		for _, id := range ids {
			a := r.expect(id, parley.OutcomeOK, "")
			if tried.IsZero() || a.ClaimedAt.Before(tried) {
				tried = a.ClaimedAt
			}
		}
		if tried.Before(opened.Until) {
			t.Errorf("tried at %v, open until %v", tried, opened.Until)
		}
		if s := r.circuit(); s.Circuit != parley.CircuitClosed || s.Openings != 1 {
			t.Errorf("%+v", s)
		}
		if got := r.log(); got != "opened half_open closed" {
			t.Errorf("log: %s", got)
		}
		p.stop()
		q.stop()
	})
}

// TestBreakerProbes: while an agent is tried it gets no more calls than
// half_open_max_calls at a time from all bridges together, and one of them that
// fails opens the circuit again.
func TestBreakerProbes(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.HalfOpenCalls, b.OpenFor = 2, 10*time.Second })
		p, q := r.life("b1"), r.life("b2")
		r.trip()
		for i := range 60 {
			r.begin("frail", i, nil)
		}
		before := f.calls.Load()
		f.most.Store(0)
		r.wait(time.Minute)
		s := r.circuit()
		if s.Openings < 4 {
			t.Errorf("opened %d times in a minute", s.Openings)
		}
		if n := f.calls.Load() - before; n > 2*s.Openings || f.most.Load() > 2 {
			t.Errorf("%d calls, at most %d at a time, in %d attempts to try it", n, f.most.Load(), s.Openings)
		}
		p.stop()
		q.stop()
	})
}

// TestBreakerProberDies: a bridge that dies while it tries an agent does not
// leave its circuit half-open for ever.
func TestBreakerProberDies(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.OpenFor = 5 * time.Second })
		p := r.life("b1")
		r.trip()
		p.stop()
		// Another process tries it, and is gone.
		s := r.circuit()
		r.wait(time.Until(s.Until))
		if ok, err := r.db.ChangeBreaker(r.t.Context(), breaker.Probe(s, "b0", time.Now()), nil); !ok || err != nil {
			t.Fatal(ok, err)
		}
		gone := time.Now()
		f.healthy.Store(true)
		q := r.life("b2")
		a := r.expect(r.begin("frail", 1, nil), parley.OutcomeOK, "")
		if d := a.ClaimedAt.Sub(gone); d < breaker.Lease || d > breaker.Lease+5*time.Second {
			t.Errorf("tried after %v", d)
		}
		r.wait(breaker.Lease)
		if s := r.circuit(); s.Circuit != parley.CircuitClosed {
			t.Errorf("%+v", s)
		}
		q.stop()
	})
}

// TestBreakerFails: with on_open fail attempts end at once, with the code of
// language.md for an open circuit, and nothing is sent.
func TestBreakerFails(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.OnOpen = parley.OnOpenFail })
		p, q := r.life("b1"), r.life("b2")
		r.trip()
		before := f.calls.Load()
		begun := time.Now()
		for i := range 20 {
			a := r.expect(r.begin("frail", i, nil), parley.OutcomeError, parley.CodeAgentUnavailable)
			if e := a.Result.Err; !e.Retryable || !strings.Contains(string(e.Details), `"circuit":"open"`) {
				t.Errorf("%+v %s", e, e.Details)
			}
		}
		if d := time.Since(begun); d > 21*time.Second {
			t.Errorf("%v for 20 tasks", d)
		}
		if n := f.calls.Load(); n != before {
			t.Errorf("%d calls while open", n-before)
		}
		f.healthy.Store(true)
		r.wait(time.Minute)
		r.expect(r.begin("frail", 100, nil), parley.OutcomeOK, "")
		p.stop()
		q.stop()
	})
}

// moves: the step has another agent.
func moves(a *store.Attempt) { a.Policy.OnOpen = parley.OnOpenFail }

// TestR5_OpenCircuitIsNotWaitedFor: with on_open wait the tasks of steps that
// have another agent end at once all the same, those that wait for a slot when
// the circuit opens, too. Nothing is sent for them, however many they are.
func TestR5_OpenCircuitIsNotWaitedFor(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		p, q := r.life("b1"), r.life("b2")
		r.trip()
		before := f.calls.Load()
		var ids []string
		for i := range 300 { // more than a claim takes
			ids = append(ids, r.begin("frail", i, moves))
		}
		waits := r.begin("frail", 400, nil)
		r.wait(10 * time.Second)
		for _, id := range ids {
			a := r.attempt(id)
			if a.State != store.AttemptSettled || a.Result.Err == nil || !a.Result.Err.Retryable || !strings.Contains(string(a.Result.Err.Details), `"circuit":"open"`) {
				t.Fatalf("%s is %s with %+v", id, a.State, a.Result)
			}
		}
		if n := f.calls.Load(); n != before {
			t.Errorf("%d calls while open", n-before)
		}
		if a := r.attempt(waits); a.State != store.AttemptOpen {
			t.Errorf("the task without another agent is %s", a.State)
		}
		f.healthy.Store(true)
		r.expect(waits, parley.OutcomeOK, "")
		r.wait(time.Minute) // until the circuit is closed, and both know
		r.expect(r.begin("frail", 401, moves), parley.OutcomeOK, "")
		p.stop()
		q.stop()
	})
}

// TestR5_CircuitOpensMeanwhile: so do tasks that wait for a slot, and one that
// was claimed, when the circuit opens.
func TestR5_CircuitOpensMeanwhile(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		r.breaks(nil)
		p := r.life("b1")
		slot, ok := p.Reserve("frail")
		if !ok {
			t.Fatal("no slot")
		}
		claimed := r.begin("frail", 1, func(a *store.Attempt) {
			moves(a)
			a.State, a.Claim, a.ClaimedAt = store.AttemptClaimed, slot.Claim, time.Now()
		})
		r.trip()
		slot.Start(r.attempt(claimed))
		r.expect(claimed, parley.OutcomeError, parley.CodeAgentUnavailable)
		p.stop()
	})
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		agent, err := r.agents.Lookup(t.Context(), "frail")
		if err != nil {
			t.Fatal(err)
		}
		agent.MaxConcurrent = 2
		r.agents.put(agent)
		p := r.life("b1")
		var ids []string
		for i := range 40 {
			ids = append(ids, r.begin("frail", i, moves))
		}
		for _, id := range ids {
			r.expect(id, parley.OutcomeError, parley.CodeAgentUnavailable)
		}
		if n := f.calls.Load(); n > 12 {
			t.Errorf("%d calls", n)
		}
		if r.circuit().Circuit == parley.CircuitClosed {
			t.Error("the circuit is closed")
		}
		p.stop()
	})
}

// TestBreakerByHand: what was opened by hand stays open, also for an agent
// without a breaker, until it is closed by hand.
func TestBreakerByHand(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		f.healthy.Store(true)
		r.agents.put(parley.Agent{Name: "frail", Protocol: parley.ProtocolSimpleA2A})
		p := r.life("b1")
		r.expect(r.begin("frail", 1, nil), parley.OutcomeOK, "")
		hand := func(open bool) {
			s, _ := breaker.ByHand(r.circuit(), parley.BreakerOrder{Open: open, By: "ann"}, time.Now())
			if ok, err := r.db.ChangeBreaker(r.t.Context(), s, nil); !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.wait(1500 * time.Millisecond)
		}
		hand(true)
		id := r.begin("frail", 2, nil)
		r.wait(time.Hour)
		if a := r.attempt(id); a.State != store.AttemptOpen || r.agent.calls(id) != 0 {
			t.Errorf("%s, %d calls", a.State, r.agent.calls(id))
		}
		slot, ok := p.Reserve("frail")
		if ok {
			t.Error("a slot for an agent that is not to be called")
			slot.Release()
		}
		hand(false)
		closed := time.Now()
		r.expect(id, parley.OutcomeOK, "")
		if d := time.Since(closed); d > time.Minute {
			t.Errorf("the task waited for %v more", d)
		}
		p.stop()
	})
}

// TestBreakerRecord: an agent whose record loses its breaker is called again.
func TestBreakerRecord(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.OpenFor = time.Hour })
		p := r.life("b1")
		r.trip()
		r.agents.put(parley.Agent{Name: "frail", Protocol: parley.ProtocolSimpleA2A})
		f.healthy.Store(true)
		r.wait(2 * time.Second)
		r.expect(r.begin("frail", 1, nil), parley.OutcomeOK, "")
		if s := r.circuit(); s.Circuit != parley.CircuitClosed {
			t.Errorf("%+v", s)
		}
		p.stop()
	})
}

// TestBreakerStart: a bridge that starts knows which circuits are open before it
// takes a task.
func TestBreakerStart(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		s := breaker.Trip(r.circuit(), time.Hour, "", time.Now())
		if ok, err := r.db.ChangeBreaker(r.t.Context(), s, nil); !ok || err != nil {
			t.Fatal(ok, err)
		}
		r.begin("frail", 1, nil)
		p := r.life("b1")
		r.wait(time.Minute)
		if n := f.calls.Load(); n != 0 {
			t.Errorf("%d calls", n)
		}
		p.stop()
	})
}

// TestBreakerClaimed: a task that was claimed before its agent's circuit was
// opened goes back, if nothing of it was sent.
func TestBreakerClaimed(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		p := r.life("b1")
		slot, ok := p.Reserve("frail")
		if !ok {
			t.Fatal("no slot")
		}
		id := r.begin("frail", 1, func(a *store.Attempt) {
			a.State, a.Claim, a.ClaimedAt = store.AttemptClaimed, slot.Claim, time.Now()
		})
		r.trip()
		slot.Start(r.attempt(id))
		r.wait(time.Second)
		if a := r.attempt(id); a.State != store.AttemptOpen || a.VisibleAt.Before(r.circuit().Until) {
			t.Errorf("%s until %v", a.State, a.VisibleAt)
		}
		f.healthy.Store(true)
		r.expect(id, parley.OutcomeOK, "")
		p.stop()
	})
}

// TestBreakerWrites: calls are counted in memory; only changes of a circuit are
// written.
func TestBreakerWrites(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(nil)
		f.healthy.Store(true)
		reg := prometheus.NewRegistry()
		p := r.start("b1", func(cfg *bridge.Config, _ *process) {
			cfg.Ledger, cfg.Metrics = r.db, bridge.NewMetrics(reg)
		})
		r.expect(r.begin("frail", 0, nil), parley.OutcomeOK, "")
		before := r.db.SyncedCommits()
		for i := range 10 {
			r.expect(r.begin("frail", 1+i, nil), parley.OutcomeOK, "")
		}
		if n := r.db.SyncedCommits() - before; n > 30 { // start, claim, answer
			t.Errorf("%d synced commits for 10 tasks", n)
		}
		f.healthy.Store(false)
		r.trip()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range families {
			for _, x := range m.GetMetric() {
				if strings.HasPrefix(m.GetName(), "parley_agent_circuit") && x.GetLabel()[0].GetValue() == "frail" {
					got[m.GetName()] = x.GetGauge().GetValue() + x.GetCounter().GetValue()
				}
			}
		}
		if got["parley_agent_circuit"] != 2 || got["parley_agent_circuit_openings_total"] != 1 {
			t.Errorf("%v", got)
		}
		p.stop()
	})
}

// TestBreakerFlapping: an agent that comes and goes is called again each time;
// of its tasks none is lost.
func TestBreakerFlapping(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.OpenFor, b.FailureThreshold = 5*time.Second, 3 })
		bridges := []*process{r.life("b1"), r.life("b2"), r.life("b3")}
		var ids []string
		for i := range 120 {
			f.healthy.Store(i/20%2 == 0)
			ids = append(ids, r.begin("frail", i, nil))
			r.wait(time.Second)
		}
		f.healthy.Store(true)
		r.wait(3 * time.Minute)
		ended := map[parley.Outcome]int{}
		for _, id := range ids {
			if a := r.attempt(id); a.State == store.AttemptSettled {
				ended[a.Result.Outcome]++
			} else {
				t.Errorf("%s is %s", id, a.State)
			}
		}
		if s := r.circuit(); s.Circuit != parley.CircuitClosed || s.Openings < 3 {
			t.Errorf("%+v", s)
		}
		if ended[parley.OutcomeOK] < 75 {
			t.Errorf("%v", ended)
		}
		for _, p := range bridges {
			p.stop()
		}
	})
}

// TestBreakerOldCalls: calls that hang since before a circuit was opened, and are given up
// after the agent is well again, do not open it anew.
func TestBreakerOldCalls(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.OpenFor = 5 * time.Second })
		quick := r.agent.call
		r.agent.call = func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error) {
			if strings.HasPrefix(task.Run, "run-frail-2") {
				return hang(ctx), nil
			}
			return quick(ctx, task, n, p)
		}
		p := r.life("b1")
		var hanging []string
		for i := range 10 {
			hanging = append(hanging, r.begin("frail", 200+i, func(a *store.Attempt) { a.Policy.AttemptTimeout = time.Minute }))
		}
		r.wait(time.Second)
		r.trip()
		f.healthy.Store(true)
		r.expect(r.begin("frail", 1, nil), parley.OutcomeOK, "")
		r.wait(2 * breaker.Lease)
		for _, id := range hanging {
			r.expect(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		}
		r.wait(5 * time.Second)
		if s := r.circuit(); s.Circuit != parley.CircuitClosed || s.Openings != 1 {
			t.Errorf("%+v", s)
		}
		p.stop()
	})
}

// TestBreakerPrivate: with a ledger that keeps no circuits each bridge has its
// own; an agent whose record names no breaker has the bridge's.
func TestBreakerPrivate(t *testing.T) {
	inBubble(t, func(r *rig) {
		set := parley.DefaultBreaker()
		set.OnOpen = parley.OnOpenFail
		r.agents.put(parley.Agent{Name: "frail", Protocol: parley.ProtocolSimpleA2A})
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
			return notSent(), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Breaker = &set })
		for i := range 8 {
			id := r.task("frail", i, nil)
			r.announce(id)
			r.want(id, parley.OutcomeError, parley.CodeAgentUnavailable)
			if n := r.agent.calls(id); n != map[bool]int{true: 1}[i < 5] {
				t.Errorf("call %d was made %d times", i, n)
			}
		}
		p.stop()
	})
}

// TestBreakerOrphan: a task that may have been executed is not refused because
// its agent's circuit is open; it is sent again when that may be tried.
func TestBreakerOrphan(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		r.breaks(func(b *parley.Breaker) {
			b.OnOpen, b.FailureThreshold, b.OpenFor = parley.OnOpenFail, 1, 20*time.Second
		})
		r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return lost(), nil
			}
			return answered(task, "2"), nil
		}
		p := r.life("b1")
		begun := time.Now()
		id := r.begin("frail", 1, policy(parley.OutcomeResend))
		r.expect(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 2)
		if d := time.Since(begun); d < 20*time.Second || d > 2*time.Minute {
			t.Errorf("sent again after %v", d)
		}
		p.stop()
	})
}

// TestBreakerSlotGivenBack: a slot to try an agent that is given back is one for
// another task.
func TestBreakerSlotGivenBack(t *testing.T) {
	onSQLite(t, func(r *sqlRig) {
		f := r.breaks(func(b *parley.Breaker) { b.HalfOpenCalls = 1 })
		p := r.life("b1")
		r.trip()
		f.healthy.Store(true)
		r.wait(time.Until(r.circuit().Until))
		if _, ok := p.Reserve("frail"); ok {
			t.Error("a slot before it is known who tries the agent")
		}
		r.wait(100 * time.Millisecond)
		slot, ok := p.Reserve("frail")
		if _, second := p.Reserve("frail"); !ok || second {
			t.Errorf("a slot: %t, a second one: %t", ok, second)
		}
		slot.Release()
		begun := time.Now()
		r.expect(r.begin("frail", 1, nil), parley.OutcomeOK, "")
		if d := time.Since(begun); d > 3*time.Second {
			t.Errorf("tried after %v", d)
		}
		p.stop()
	})
}
