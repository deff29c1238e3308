package bridge_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestCallMetrics: calls are counted while they are in hand, their time when they
// have ended, and how they failed; a cancelled one says nothing.
func TestCallMetrics(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, name := range []string{"well", "lost", "cancelled"} {
			r.agents.put(parley.Agent{Name: name, Protocol: parley.ProtocolSimpleA2A})
		}
		release := make(chan struct{})
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			switch task.Agent {
			case "lost":
				return lost(), nil
			case "cancelled":
				return hang(ctx), nil
			}
			<-release
			return answered(task, "1"), nil
		}
		reg := prometheus.NewRegistry()
		metrics := bridge.NewMetrics(reg)
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = metrics })
		well, ill, cancelled := r.task("well", 1, nil), r.task("lost", 2, nil), r.task("cancelled", 3, nil)
		r.want(ill, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		time.Sleep(time.Second)
		synctest.Wait()
		const inFlight, took = "parley_agent_calls_in_flight agent_name=", "parley_agent_call_duration_seconds agent_name="
		got := gathered(t, reg)
		if got[inFlight+"well"] != 1 || got[inFlight+"cancelled"] != 1 || got[inFlight+"lost"] != 0 || got[took+"well"] != 0 {
			t.Errorf("%v", got)
		}
		close(release)
		r.want(well, parley.OutcomeOK, "")
		cancelWays["hint"](r, cancelled)
		r.want(cancelled, parley.OutcomeCancelled, parley.CodeCancelled)
		p.stop()
		got = gathered(t, reg)
		maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "parley_agent_call") })
		want := map[string]float64{
			inFlight + "well": 0, inFlight + "lost": 0, inFlight + "cancelled": 0, took + "well": 1, took + "lost": 1, took + "cancelled": 0,
			"parley_agent_call_errors_total agent_name=lost code=outcome_unknown": 1,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestCallMetricsBounded: however many agents there are, the metrics name a
// thousand of them.
func TestCallMetricsBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		reg := prometheus.NewRegistry()
		metrics := bridge.NewMetrics(reg)
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = metrics })
		const agents = 1010
		ids := make([]string, agents)
		for i := range ids {
			r.agents.put(parley.Agent{Name: fmt.Sprint("agent-", i), Protocol: parley.ProtocolSimpleA2A})
			ids[i] = r.task(fmt.Sprint("agent-", i), 1, nil)
		}
		for _, id := range ids {
			r.want(id, parley.OutcomeOK, "")
		}
		p.stop()
		named, calls := 0, 0.0
		for name, v := range gathered(t, reg) {
			if strings.HasPrefix(name, "parley_agent_call_duration_seconds") {
				named++
				calls += v
			}
		}
		if named != 1001 || calls != agents {
			t.Errorf("%d series of %v calls", named, calls)
		}
	})
}
