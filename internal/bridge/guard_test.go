package bridge_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
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
