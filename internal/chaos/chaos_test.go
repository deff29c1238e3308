package chaos_test

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
	// dailyShare is how many runs of a hundred are cancelled, how many
	// terminated, paused, and in a hurry.
	dailyShare = 4
	// restLimit is how long everything may take to end after the last fault: only what
	// hangs needs as much, also on a machine that does much else.
	restLimit = 5 * time.Minute
)

// TestChaos hurts a whole cluster in every way it knows, at times drawn from a
// seed, while runs are started, cancelled, terminated, paused, resumed, retried and
// too late, and judges what remains: every accepted run ended exactly once and as
// it was asked to, no agent was called more often than its policy allows or after
// the end, nothing is left over (protocol.md §5).
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
	whole := wholeCluster()
	whole.skews = skewed(seed, whole.executors+whole.bridges)
	c := newCluster(t, whole)
	c.steers = newSteerer(c, steered(seed, dailyShare))
	accepted := c.load(0, 3, 0)
	more := c.steers.wait()
	c.awaitRest(3+more, time.Minute)
	if t.Failed() {
		return // it does not even work unhurt
	}
	hurting, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	all := &faulter{c: c}
	working.Go(func() { all.run(hurting, faults) })
	began := time.Now()
	maps.Copy(accepted, c.load(3, runs, (time.Duration(count)*faultEvery+overLease)/time.Duration(runs)))
	t.Logf("%d runs accepted after %.1f s", len(accepted), time.Since(began).Seconds())
	working.Wait()
	t.Logf("the faults end after %.1f s", time.Since(began).Seconds())
	resting := time.AfterFunc(restLimit, func() { c.resting.Store(true) })
	more = c.steers.wait()
	resting.Stop()
	c.awaitRest(runs+more, restLimit)
	t.Logf("rest after %.1f s, %d calls of agents", time.Since(began).Seconds(), c.agents.log.total())
	c.stopAll()
	e := c.collect(accepted)
	e.delays = all.delays
	c.report(judge(e))
	c.sum(e)
}

// skewed draws how far the clocks of so many processes are ahead: nothing of what is
// promised is about them (protocol.md §1).
func skewed(seed uint64, processes int) []time.Duration {
	rnd := rand.New(rand.NewPCG(seed, 3))
	all := make([]time.Duration, processes)
	for i := range all {
		all[i] = pick(rnd, []time.Duration{0, 0, time.Hour, -time.Hour})
	}
	return all
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
	orphaned, repeated, starts, unasked := 0, 0, 0, 0
	accepted, retried := map[verb]int{}, 0
	for _, d := range e.deeds {
		if d.accepted {
			accepted[d.verb]++
		}
		retried += boolInt(len(d.retries) > 0)
	}
	ends := map[string]int{}
	for _, r := range e.runs {
		ends[strings.TrimSpace(string(r.status)+" "+string(r.code))]++
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
	c.t.Logf("%d runs: %v; %d attempts, %d orphaned, %d repeated calls, %d late answers; %d starts of processes, %d after an end by itself; accepted %v, %d runs retried",
		len(e.runs), ends, len(e.attempts), orphaned, repeated, len(e.late), starts, unasked, accepted, retried)
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
