package a2a

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// withoutJitter is an exchange whose connections are used for exactly 5 min.
func withoutJitter(cfg bridge.ExchangeConfig) bridge.ExchangeConfig {
	cfg.MaxAge, cfg.Jitter = 5*time.Minute, func() float64 { return 0 }
	return cfg
}

// TestSocketAge: a WebSocket that is in use all the time is replaced after its age,
// so that the agent's name is resolved anew; calls under way end on the old one,
// which is closed with the last of them.
func TestSocketAge(t *testing.T) {
	x := bridge.NewExchange(withoutJitter(bridge.ExchangeConfig{}))
	onStage(t, "ws://agent.example/", linkOptions{Exchange: x}, func(t *testing.T, s *stage, r *linkRig) {
		r.agent.Timeout = 30 * time.Minute
		long, giveUp := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { _, _, _ = r.call(long, verbSend, "hang", "") })
		}
		for range 41 { // 20 min and a moment
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
		}
		want := []time.Duration{0, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute}
		if len(s.dials) != len(want) {
			t.Fatalf("connections were made at %v, want %v", s.dials, want)
		}
		for i, at := range s.dials {
			if at != want[i] {
				t.Errorf("connections were made at %v, want %v", s.dials, want)
			}
		}
		synctest.Wait()
		ended := func(i int) bool {
			select {
			case <-s.peers[i].Done():
				return true
			default:
				return false
			}
		}
		if ended(0) || !ended(1) || !ended(2) || !ended(3) || ended(4) {
			t.Error("open are not exactly the connection with calls and the newest one")
		}
		if len(r.all) != 1 {
			t.Errorf("%d links are kept", len(r.all))
		}
		giveUp()
		calls.Wait()
		synctest.Wait()
		if !ended(0) {
			t.Error("the old connection stays without calls")
		}
	})
}

// TestProcessAge: a program is no connection; it is not started anew.
func TestProcessAge(t *testing.T) {
	x := bridge.NewExchange(withoutJitter(bridge.ExchangeConfig{}))
	onStage(t, "stdio:agent", linkOptions{Exchange: x}, func(t *testing.T, s *stage, r *linkRig) {
		for range 40 {
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
		}
		if len(s.dials) != 1 {
			t.Errorf("started %d times", len(s.dials))
		}
	})
}

// TestGRPCAge: the same over gRPC.
func TestGRPCAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var hung atomic.Bool
		agent := &grpcAgent{get: func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error) {
			if !hung.Swap(true) {
				<-release
			}
			return workingTask(), nil
		}}
		rig := newGRPCRig(t, agent)
		rig.agent.Timeout = 30 * time.Minute
		rig.use(bridge.NewExchange(withoutJitter(bridge.ExchangeConfig{DialContext: rig.dialer})))
		get := func() {
			if result, f, err := rig.do(t.Context(), verbGet, taskParams); result != workingJSON || f != nil || err != nil {
				t.Errorf("%s, failure %v, error %v", result, f, err)
			}
		}
		var long sync.WaitGroup
		long.Go(get)
		synctest.Wait()
		for range 41 {
			get()
			time.Sleep(30 * time.Second)
		}
		if n := rig.dials.Load(); n != 5 {
			t.Errorf("%d connections within 20 minutes, want one for each 5 and the first", n)
		}
		if len(rig.conns.all) != 1 || len(rig.conns.old) != 1 {
			t.Errorf("%d connections are used, %d end with their calls, want 1 and 1", len(rig.conns.all), len(rig.conns.old))
		}
		close(release)
		long.Wait()
		if len(rig.conns.old) != 0 {
			t.Error("the old connection stays without calls")
		}
		rig.idle()
	})
}
