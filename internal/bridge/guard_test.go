package bridge_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// preparing is an adapter that needs its time before the first byte, as for an
// access token or an agent's card.
type preparing struct {
	*scripted
	x    *bridge.Exchange
	time time.Duration
	// prepared counts what was prepared.
	prepared atomic.Int32
}

func (p *preparing) Call(ctx context.Context, task parley.Task, agent parley.Agent, progress bridge.Progress) (bridge.Outcome, error) {
	if p.prepared.Add(1) == 1 {
		time.Sleep(p.time)
	}
	_, err := p.x.Authorize(ctx, task, agent)
	if e, ok := errors.AsType[*bridge.ExchangeError](err); ok {
		return e.Outcome(task.ID), nil
	}
	return p.scripted.Call(ctx, task, agent, progress)
}

// TestGuardAfterPreparing: a bridge that was away while it prepared a call
// sends nothing (protocol.md §4.3): its claim may be somebody else's by now. One
// that was there all the time sends, however long it took.
func TestGuardAfterPreparing(t *testing.T) {
	for name, away := range map[string]bool{"away": true, "there": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				gone := time.Now().Add(40 * time.Second)
				r.ledger.fault = func(op, _ string) fault {
					if away && op == "beat" && time.Now().Before(gone) {
						return refusedConnection
					}
					return noFault
				}
				x := bridge.NewExchange(bridge.ExchangeConfig{})
				defer x.Close()
				slow := &preparing{scripted: r.agent, x: x, time: 20 * time.Second}
				p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{slow} })
				id := r.task("one", 1, nil)
				r.want(id, parley.OutcomeOK, "")
				r.wantCalls(r.agent, id, 1)
				want := int32(1)
				if away {
					want = 2
				}
				if n := slow.prepared.Load(); n != want {
					t.Errorf("prepared %d times, want %d", n, want)
				}
				if n := r.ledger.count(string(store.MoveRelease)); (n > 0) != away {
					t.Errorf("%d releases", n)
				}
				p.stop()
			})
		})
	}
}

// preparingToo is preparing whose agents can be followed and told to stop.
type preparingToo struct {
	following
	*preparing
}

func (p preparingToo) Protocol() string { return p.preparing.Protocol() }

func (p preparingToo) Call(ctx context.Context, task parley.Task, agent parley.Agent, progress bridge.Progress) (bridge.Outcome, error) {
	return p.preparing.Call(ctx, task, agent, progress)
}

// TestGuardSeesTheEnd: what was cancelled, or has ended, while its call was being
// prepared is not sent (protocol.md §4.3, I7), whether the agent could be told to
// stop or not; a cancelled attempt ends as such. That the bridge has not heard of it
// makes no difference if its claim is older than 2 s by then.
func TestGuardSeesTheEnd(t *testing.T) {
	happens := map[string]struct {
		event func(r *rig, id string)
		// ends is the outcome of the attempt, deaf that the bridge does not hear of it.
		ends parley.Outcome
		deaf bool
	}{
		"cancelled":            {func(r *rig, id string) { cancelWays["hint"](r, id) }, parley.OutcomeCancelled, false},
		"cancelled, read":      {func(r *rig, id string) { cancelWays["row"](r, id) }, parley.OutcomeCancelled, false},
		"cancelled, not heard": {func(r *rig, id string) { cancelWays["row"](r, id) }, parley.OutcomeCancelled, true},
		"ended":                {func(r *rig, id string) { r.ledger.endNow(id, parley.OutcomeTimeout); r.hintCancel(id) }, parley.OutcomeTimeout, false},
		"ended, read":          {func(r *rig, id string) { r.ledger.endNow(id, parley.OutcomeTimeout) }, parley.OutcomeTimeout, false},
		"ended, not heard":     {func(r *rig, id string) { r.ledger.endNow(id, parley.OutcomeTimeout) }, parley.OutcomeTimeout, true},
	}
	for name, c := range happens {
		for _, agent := range []string{"one", "long"} {
			t.Run(name+" "+agent, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					x := bridge.NewExchange(bridge.ExchangeConfig{})
					defer x.Close()
					short := &preparing{scripted: r.agent, x: x, time: 5 * time.Second}
					long := preparingToo{following{r.long}, &preparing{scripted: r.long, x: x, time: 5 * time.Second}}
					var deaf atomic.Bool
					p := r.start("b", func(cfg *bridge.Config, _ *process) {
						cfg.Adapters, cfg.Ledger = []bridge.Adapter{short, long}, unreadable{cfg.Ledger, &deaf}
					})
					id := r.task(agent, 1, nil)
					for short.prepared.Load()+long.prepared.Load() == 0 {
						time.Sleep(100 * time.Millisecond)
					}
					time.Sleep(time.Second)
					deaf.Store(c.deaf)
					c.event(r, id)
					time.Sleep(6 * time.Second)
					synctest.Wait()
					if n := r.agent.calls(id) + r.long.calls(id); n != 0 {
						t.Errorf("it was sent %d times", n)
					}
					if n := short.prepared.Load() + long.prepared.Load(); n != 1 {
						t.Errorf("prepared %d times", n)
					}
					if a := r.ledger.row(id); a.Result == nil || a.Result.Outcome != c.ends {
						t.Errorf("the attempt is %s: %+v", a.State, a.Result)
					}
					p.stop()
				})
			})
		}
	}
}

// unreadable is a ledger whose bridge cannot read its own rows while deaf is set.
type unreadable struct {
	bridge.Ledger
	deaf *atomic.Bool
}

func (u unreadable) Owned(ctx context.Context, worker string, inc int64) ([]store.Owned, error) {
	if u.deaf.Load() {
		return nil, errDoubt
	}
	return u.Ledger.Owned(ctx, worker, inc)
}

// TestGuardCancelsAtOnce: nobody waits for an agent to name a task that it cannot have.
func TestGuardCancelsAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		x := bridge.NewExchange(bridge.ExchangeConfig{})
		defer x.Close()
		slow := stuckPreparing{following{r.long}, make(chan struct{}), new(time.Time)}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{slow} })
		id := r.task("long", 1, nil)
		<-slow.begun
		asked := time.Now()
		cancelWays["hint"](r, id)
		r.want(id, parley.OutcomeCancelled, parley.CodeCancelled)
		if d := slow.at.Sub(asked); d != 0 {
			t.Errorf("interrupted after %s", d)
		}
		p.stop()
	})
}

// stuckPreparing prepares until it is interrupted.
type stuckPreparing struct {
	following
	begun chan struct{}
	at    *time.Time
}

func (s stuckPreparing) Call(ctx context.Context, task parley.Task, _ parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	close(s.begun)
	<-ctx.Done()
	*s.at = time.Now()
	return bridge.Outcome{Disposition: bridge.NotSent, Result: parley.Result{TaskID: task.ID, Err: parley.Errorf(parley.CodeCancelled, "interrupted")}}, nil
}
