package executor_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
)

var (
	simulationSeeds = flag.Int("executor.seeds", 6, "how many simulations TestSimulation runs of each kind, and TestSimulationPostgres half as many")
	simulationFirst = flag.Int("executor.seed", 0, "the first seed of TestSimulation")
)

// simulated is the workflow of the simulated runs: attempts one after another and
// side by side, retries, hedged agents, a time limit, runs of their own, questions
// to people, events.
const simulated = `
name: simulated
input: {type: object, required: [key], properties: {key: {type: string}}}
steps:
  - {id: first, agent: plain, input: {text: first}, on_error: continue}
  - id: others
    parallel:
      - {id: kid, workflow: kid, input: {key: "${workflow.input.key}"}, retry: {attempts: 2, delay: 300ms, on: [sub_workflow_failed]}, timeout: 40s, on_error: continue}
      - {id: may, approval: {title: Go on}, timeout: 12s, on_error: continue}
      - {id: heard, event: go, key: "${workflow.input.key}", timeout: 12s, on_error: continue}
  - {id: again, agent: sure, input: {text: again}, retry: {attempts: 3, delay: 300ms}, on_error: continue}
  - id: both
    parallel:
      - {id: left, agent: long, input: {text: left}, on_error: continue}
      - {id: right, agent: asked, input: {text: right}, timeout: 6s, on_error: continue}
  - {id: race, agents: [sure, swift], hedge_after: 1s, input: {text: race}, on_error: continue}
  - {id: last, agent: long, input: {text: last}, timeout: 20s}
`

// TestSimulation lets executors and bridges that share a database work on runs while
// everything that protocol.md §7 lists goes wrong at random: processes die and come
// back, bridges are declared dead, commits are in doubt or come late, connections
// break, the bus loses, repeats and delays, people cancel, terminate, pause and
// resume, answer or do not, times run out. The database itself keeps a journal of what
// becomes of each row, and is judged by it: invariants I1 to I8, I10 and L1
// (protocol.md §5), and the rules of runs in runs, questions, events and turns.
func TestSimulation(t *testing.T) {
	t.Parallel()
	simulateOn(t, simulatedSQLite(t), *simulationSeeds)
}

// TestSimulationPostgres is TestSimulation where each process writes over its own
// connections, and the database decides who is first. So a seed is a plan here, and
// no repetition.
func TestSimulationPostgres(t *testing.T) {
	t.Parallel()
	simulateOn(t, simulatedPostgres(t), (*simulationSeeds+1)/2) // they take longer
}

func simulateOn(t *testing.T, e simEngine, seeds int) {
	t.Helper()
	for _, apart := range []bool{true, false} {
		for n := range seeds {
			seed := uint64(*simulationFirst + n)
			t.Run(fmt.Sprintf("apart=%t/seed=%d", apart, seed), func(t *testing.T) {
				t.Parallel()
				target := e.database(t)
				synctest.Test(t, func(t *testing.T) { simulate(t, e, target, seed, apart) })
			})
		}
	}
}

func simulate(t *testing.T, e simEngine, target string, seed uint64, apart bool) {
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 13)), grain: e.grain}
	w := newSimWorld(t, e, target, c, apart)
	ctx, stop := context.WithCancel(t.Context())
	for _, name := range w.names() {
		w.begin(ctx, name)
	}
	w.storm(ctx)
	w.calm.Store(true)
	for _, name := range w.names() {
		if w.proc(name).dead.Load() {
			w.begin(ctx, name)
		}
	}
	w.rest(ctx)
	stop()
	for _, p := range w.procs {
		<-p.ended
	}
	w.late.Wait()
	story, err := w.close(context.WithoutCancel(ctx))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range story.judge() {
		t.Error(wrong)
	}
	if t.Failed() {
		t.Logf("seed %d:\n%s", seed, strings.Join(story.tell(), "\n"))
	}
}

// storm starts runs and lets everything go wrong for a minute.
func (w *simWorld) storm(ctx context.Context) {
	for n := range 50 {
		time.Sleep(max(w.c.grain, w.c.upTo(1600*time.Millisecond)))
		if n%4 == 0 && w.started < simulatedRuns {
			w.start(ctx)
		}
		w.atOnce(func() {
			if w.c.of(50) {
				w.people(ctx)
			}
		})
		name := w.names()[w.c.n(len(w.names()))]
		switch w.c.n(9) {
		case 8:
			w.proc(name).cutOff(w.c.upTo(25 * time.Second))
		case 0:
			w.proc(name).kill()
			w.begin(ctx, name)
		case 1:
			w.proc(name).stop()
			w.begin(ctx, name)
		case 2:
			w.declareDead(ctx)
		case 3:
			w.proc(name).kill() // and stays so for a while
		case 4, 5:
			w.atOnce(func() { w.steer(ctx) })
		}
		if w.proc(name).dead.Load() && w.c.of(50) {
			w.begin(ctx, name)
		}
	}
}

// atOnce does the same several times, side by side where the database can.
func (w *simWorld) atOnce(f func()) {
	times := 1
	if w.engine.each {
		times = 3
	}
	var all sync.WaitGroup
	for range times {
		all.Go(f)
	}
	all.Wait()
}

// steer lets somebody do something to a run, once: whether it was taken is told by
// the history.
func (w *simWorld) steer(ctx context.Context) {
	x, run := w.someExecutor(), w.someRun(ctx)
	if x == nil || run == "" {
		return
	}
	var err error
	switch w.c.n(8) {
	case 0:
		_, err = x.Cancel(ctx, parley.CancelRequest{Run: run})
		w.asked(run, "cancel", err)
	case 1:
		_, err = x.Terminate(ctx, parley.ControlRequest{Run: run})
		w.asked(run, "terminate", err)
	case 2, 3, 4:
		_, _ = x.Pause(ctx, parley.ControlRequest{Run: run})
	default:
		_, _ = x.Resume(ctx, parley.ControlRequest{Run: run})
	}
}

// rest waits until every run has ended, and every event that starts runs has done so,
// without luck and without a further fault (L1).
func (w *simWorld) rest(ctx context.Context) {
	for began := time.Now(); ; time.Sleep(time.Second) {
		x := w.someExecutor()
		left := ""
		for _, run := range w.going(ctx) {
			var err error
			if run.Paused {
				_, err = x.Resume(ctx, parley.ControlRequest{Run: run.ID})
			}
			left = fmt.Sprintf("%s is %s: %v", run.ID, run.Status, err)
		}
		if n := w.unheard(ctx); n > 0 {
			left = fmt.Sprintf("%d events have not started their runs", n)
		}
		if left == "" {
			return
		}
		if time.Since(began) > 10*time.Minute {
			w.t.Errorf("L1: after 10 minutes without a fault %s", left)
			return
		}
	}
}
