package a2a_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
)

// TestCancel_Silent: an agent that answers a cancel only when its task has ended
// is looked at within the time that there is, however long its own timeout is.
func TestCancel_Silent(t *testing.T) {
	for _, timeout := range []time.Duration{0, 3 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			g := &rpcAgent{answer: func(method string) string {
				if method == "CancelTask" {
					time.Sleep(time.Hour)
				}
				return `"result":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"parts":[{"text":"done"}]}]}`
			}}
			a := g.adapter(t, a2a.Options{})
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			agent := parley.Agent{Name: "agent", URL: "http://agent.test/", Timeout: timeout, ProtocolConfig: json.RawMessage(`{"a2a":"1.0"}`)}
			out, err := a.Cancel(ctx, task(`"x"`), agent, bridge.AgentTask{ID: "t"})
			if err != nil || out.Disposition != bridge.Answered || out.Result.Outcome != parley.OutcomeOK {
				t.Errorf("timeout %v: %+v, %v (asked %v)", timeout, out, err, g.asked())
			}
			time.Sleep(2 * time.Hour) // the agent's own time
		})
	}
}

// TestSubscribe_Silent: an agent that does not begin to stream a task which has
// nothing to tell does not keep the task from being asked for, however long its
// own timeout is.
func TestSubscribe_Silent(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, 3 * time.Second: 3 * time.Second, time.Hour: 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &rpcAgent{answer: func(string) string {
				time.Sleep(2 * time.Hour)
				return `"error":{"code":-32001,"message":"too late"}`
			}}
			a := g.adapter(t, a2a.Options{})
			agent := parley.Agent{
				Name: "agent", URL: "http://agent.test/", Timeout: timeout, ProtocolConfig: json.RawMessage(`{"a2a":"0.3","stream":"on"}`),
			}
			began := time.Now()
			out, err := a.Subscribe(t.Context(), task(`"x"`), agent, bridge.AgentTask{ID: "t"})
			if err != nil || out.Disposition != bridge.Lost || out.Stream != nil {
				t.Errorf("timeout %v: %+v, %v (asked %v)", timeout, out, err, g.asked())
			}
			if took := time.Since(began); took != want {
				t.Errorf("timeout %v: it took %v, want %v", timeout, took, want)
			}
			time.Sleep(3 * time.Hour) // the agent's own time
		})
	}
}
