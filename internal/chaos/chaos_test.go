package chaos_test

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/kafkatest"
)

var (
	chaosSeed    = flag.Uint64("chaos.seed", 0, "seed of the schedule of faults; 0 draws one")
	chaosRuns    = flag.Int("chaos.runs", 0, "runs of each cluster; 0 is a small number, for every day")
	chaosMinutes = flag.Int("chaos.minutes", 0, "how long new seeds are tried; 0 is one seed")
)

const (
	// dailyRuns and dailyFaults are enough for every kind of fault once.
	dailyRuns   = 300
	dailyFaults = 21
	faultEvery  = 1500 * time.Millisecond
)

// TestChaos hurts a whole cluster in every way it knows, at times drawn from a
// seed, while runs are started, and judges what remains: every accepted run
// ended exactly once, no agent was called more often than its policy allows,
// nothing is left over (protocol.md §5).
func TestChaos(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	until := time.Now().Add(time.Duration(*chaosMinutes) * time.Minute)
	for {
		chaos(t, seed)
		if seed++; !time.Now().Before(until) || t.Failed() {
			return
		}
	}
}

func chaos(t *testing.T, seed uint64) {
	t.Helper()
	t.Logf("seed %d", seed)
	runs, count := dailyRuns, dailyFaults
	if *chaosRuns > 0 {
		runs, count = *chaosRuns, max(dailyFaults, *chaosRuns/40)
	}
	faults := schedule(seed, count, faultEvery)
	c := newCluster(t, wholeCluster())
	accepted := c.load(0, 3, 0)
	c.awaitRest(3, time.Minute)
	if t.Failed() {
		return // it does not even work unhurt
	}
	hurting, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	working.Go(func() { (&faulter{c: c}).run(hurting, faults) })
	began := time.Now()
	maps.Copy(accepted, c.load(3, runs, (time.Duration(count)*faultEvery+overLease)/time.Duration(runs)))
	t.Logf("%d runs accepted after %.1f s", len(accepted), time.Since(began).Seconds())
	working.Wait()
	t.Logf("the faults end after %.1f s", time.Since(began).Seconds())
	c.awaitRest(runs, time.Minute*busyFactor())
	t.Logf("rest after %.1f s, %d calls of agents", time.Since(began).Seconds(), c.agents.log.total())
	c.stopAll()
	e := c.collect(accepted)
	c.report(judge(e))
	c.sum(e)
}

// report shows what is wrong, the first of it in full.
func (c *cluster) report(wrong []string) {
	c.t.Helper()
	for _, text := range wrong[:min(len(wrong), 20)] {
		c.t.Error(text)
	}
	if len(wrong) > 20 {
		c.t.Errorf("and %d more", len(wrong)-20)
	}
}

// sum tells what the faults have led to, so that one sees that they did.
func (c *cluster) sum(e evidence) {
	completed, orphaned, repeated, starts, unasked := 0, 0, 0, 0, 0
	for _, r := range e.runs {
		completed += boolInt(r.code == "")
	}
	for _, a := range e.attempts {
		orphaned += boolInt(a.orphanings > 0)
	}
	for _, calls := range e.calls {
		repeated += len(calls) - 1
	}
	for _, p := range c.processes() {
		p.mu.Lock()
		starts, unasked = starts+p.starts, unasked+p.unasked
		p.mu.Unlock()
		for _, words := range p.lastWords() {
			c.t.Logf("ended by itself: %.300s", words)
		}
	}
	c.t.Logf("%d runs completed of %d; %d attempts, %d orphaned, %d repeated calls, %d late answers; %d starts of processes, %d after an end by itself",
		completed, len(e.runs), len(e.attempts), orphaned, repeated, len(e.late), starts, unasked)
}

// TestSchedule: a seed always gives the same faults, and the daily number has
// every kind.
func TestSchedule(t *testing.T) {
	t.Parallel()
	names := func(faults []fault) (all []string) {
		for _, f := range faults {
			all = append(all, f.kind.name)
		}
		return all
	}
	first := names(schedule(7, dailyFaults, time.Second))
	if again := names(schedule(7, dailyFaults, time.Second)); !slices.Equal(first, again) {
		t.Errorf("seed 7 gave %v and %v", first, again)
	}
	slices.Sort(first)
	if kinds := slices.Compact(first); len(kinds) != len(faultKinds()) {
		t.Errorf("%d kinds of %d: %v", len(kinds), len(faultKinds()), kinds)
	}
}
