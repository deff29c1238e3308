package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

func opened(agent string, version int64) parley.BreakerState {
	return parley.BreakerState{
		Agent: agent, Circuit: parley.CircuitOpen, Since: epoch, Until: epoch.Add(time.Minute), Reason: "5 calls in a row have failed",
		Openings: version, Version: version,
	}
}

func breakerEvent(kind parley.AgentEventType) *parley.AgentEvent {
	return &parley.AgentEvent{At: epoch, Type: kind, Data: []byte(`{"reason":"x"}`)}
}

// TestBreakerState: a state is replaced by its next version only, whole, and its
// entry in the log stands and falls with it.
func TestBreakerState(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		none := parley.BreakerState{Agent: "a", Circuit: parley.CircuitClosed}
		diff(t, must(db.Breaker(ctx, "a"))(t), none)
		diff(t, len(must(db.Breakers(ctx))(t)), 0)
		if must(db.ChangeBreaker(ctx, opened("a", 2), breakerEvent("x")))(t) {
			t.Error("a state that is not the next was taken")
		}
		one := opened("a", 1)
		if !must(db.ChangeBreaker(ctx, one, breakerEvent(parley.EventBreakerOpened)))(t) {
			t.Error("the first state was refused")
		}
		diff(t, must(db.Breaker(ctx, "a"))(t), one)
		for _, version := range []int64{1, 3} {
			if must(db.ChangeBreaker(ctx, opened("a", version), breakerEvent("x")))(t) {
				t.Errorf("version %d was taken after 1", version)
			}
		}
		half := one
		half.Circuit, half.Holder, half.Version = parley.CircuitHalfOpen, "bridge-1", 2
		manual := parley.BreakerState{Agent: "b", Circuit: parley.CircuitOpen, Manual: true, Since: epoch, By: "ann", Version: 1}
		for _, s := range []parley.BreakerState{half, manual} {
			if !must(db.ChangeBreaker(ctx, s, nil))(t) {
				t.Errorf("%+v was refused", s)
			}
		}
		diff(t, must(db.Breakers(ctx))(t), []parley.BreakerState{half, manual})
		closed := parley.BreakerState{Agent: "a", Circuit: parley.CircuitClosed, Since: epoch.Add(time.Hour), Openings: 1, Version: 3}
		must(db.ChangeBreaker(ctx, closed, breakerEvent(parley.EventBreakerClosed)))(t)
		diff(t, must(db.Breaker(ctx, "a"))(t), closed)
		diff(t, must(db.Breakers(ctx))(t), []parley.BreakerState{manual})
		diff(t, must(db.AgentEvents(ctx, "a", 0, 10))(t), []parley.AgentEvent{
			{Seq: 1, At: epoch, Type: parley.EventBreakerOpened, Agent: "a", Data: []byte(`{"reason":"x"}`)},
			{Seq: 2, At: epoch, Type: parley.EventBreakerClosed, Agent: "a", Data: []byte(`{"reason":"x"}`)},
		})
		for _, bad := range []parley.BreakerState{{}, {Agent: "a", Circuit: "ajar", Version: 1}, {Agent: "a", Circuit: parley.CircuitOpen}} {
			_, err := db.ChangeBreaker(ctx, bad, nil)
			wantCode(t, err, parley.CodeInvalid)
		}
		_, err := db.ChangeBreaker(ctx, opened("a", 4), &parley.AgentEvent{Data: []byte("{")})
		wantCode(t, err, parley.CodeInvalid)
	})
}

// TestBreakerRace: of several who change a circuit at once one does.
func TestBreakerRace(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		for version := int64(1); version <= 10; version++ {
			var won atomic.Int64
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					s := opened("a", version)
					s.Holder = fmt.Sprint(i)
					ok, err := db.ChangeBreaker(t.Context(), s, breakerEvent(parley.EventBreakerOpened))
					if err != nil {
						t.Error(err)
					}
					if ok {
						won.Add(1)
					}
				})
			}
			all.Wait()
			diff(t, won.Load(), int64(1))
		}
		events := must(db.AgentEvents(t.Context(), "a", 0, 100))(t)
		diff(t, []any{len(events), events[len(events)-1].Seq}, []any{10, int64(10)})
	})
}

// TestAgentLog: pages by seq; only the newest entries are kept, and their numbers
// stay.
func TestAgentLog(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		const n = agentEventsKept + 5
		check(t, db.submit(ctx, synced, func(s *session) error {
			for range n {
				if err := addAgentEvent(s, "a", breakerEvent(parley.EventBreakerOpened)); err != nil {
					return err
				}
			}
			return addAgentEvent(s, "b", breakerEvent(parley.EventBreakerClosed))
		}))
		first := must(db.AgentEvents(ctx, "a", 0, 2))(t)
		diff(t, []int64{first[0].Seq, first[1].Seq}, []int64{6, 7})
		last := must(db.AgentEvents(ctx, "a", n-1, 10))(t)
		diff(t, []any{len(last), last[0].Seq}, []any{1, int64(n)})
		diff(t, len(must(db.AgentEvents(ctx, "a", n, 10))(t)), 0)
		diff(t, must(db.AgentEvents(ctx, "b", 0, 10))(t)[0].Seq, int64(1))
	})
}

// TestAgentBreaker: a record's breaker is stored as it is, and so is its absence.
func TestAgentBreaker(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := newAgent("a")
		check(t, db.CreateAgent(ctx, a))
		if got := must(db.Agent(ctx, "a"))(t).Breaker; got != nil {
			t.Errorf("%+v", got)
		}
		a.Breaker = &parley.Breaker{
			Enabled: true, FailureThreshold: 7, FailureRate: 0.25, MinimumCalls: 20, OpenFor: 1500 * time.Millisecond, HalfOpenCalls: 2,
			Window: time.Minute, OnOpen: parley.OnOpenFail,
		}
		a = changeAgent(t, db, a)
		diff(t, must(db.Agent(ctx, "a"))(t).Breaker, a.Breaker)
		a.Breaker = nil
		changeAgent(t, db, a)
		if got := must(db.Agent(ctx, "a"))(t).Breaker; got != nil {
			t.Errorf("%+v", got)
		}
		b := newAgent("b")
		b.Breaker = &parley.Breaker{}
		check(t, db.CreateAgent(ctx, b))
		diff(t, must(db.Agent(ctx, "b"))(t).Breaker, b.Breaker)
	})
}
