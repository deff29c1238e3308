package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/kafkatest"
)

// TestDrainRoles: of two bridges beside an executor on one database one is told to
// stop while its calls are in flight and more tasks wait for their agents. It ends
// well, its calls are finished, what waited goes to the other one, which goes on
// meanwhile, and no agent is called twice.
func TestDrainRoles(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	r := newRolesRig(t, buildBinary(t), "postgres", 200*time.Millisecond)
	file := filepath.Join(r.dir, "parley.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.ReplaceAll(string(text), "outcome_unknown:", "limits: {concurrency: 4}, outcome_unknown:"))
	api := r.start("api", "api")
	r.start("executor", "executor")
	first, second := r.start("bridge-1", "bridge"), r.start("bridge-2", "bridge")
	const runs = 150
	ids := r.startRuns(api, runs, 0)
	waitFor(t, "the first bridge has no calls in flight:", func() bool { return r.inFlight(first) > 2 })
	if n := len(r.log.counts()); n > 3*runs-100 {
		t.Fatalf("%d of %d tasks were called already: nothing waits", n, 3*runs)
	}
	_ = first.cmd.Process.Signal(syscall.SIGTERM)
	waitFor(t, "the second bridge does not go on:", func() bool { return r.inFlight(second) > 2 })
	select {
	case <-first.ended:
	case <-time.After(5 * time.Minute):
		t.Fatalf("the bridge does not stop:\n%s", first.output)
	}
	if code := first.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the bridge ended with %d:\n%s", code, first.output)
	}
	if n := len(r.log.counts()); n == 3*runs {
		t.Error("everything was done before the bridge had stopped")
	}
	r.mu.Lock()
	delete(r.procs, "bridge-1")
	r.mu.Unlock()
	r.check(api, ids)
	for task, n := range r.log.counts() {
		if n != 1 {
			t.Errorf("%s was called %d times across a clean stop", task, n)
		}
	}
	if n := len(r.log.counts()); n != 3*runs {
		t.Errorf("%d tasks were called, want %d", n, 3*runs)
	}
	r.stopAll()
}

var inFlightLine = regexp.MustCompile(`(?m)^parley_agent_calls_in_flight\{[^}]*\} (\S+)$`)

// inFlight reads how many calls a bridge has in flight.
func (r *rolesRig) inFlight(p *roleProcess) int {
	_, text, err := r.get(p, "/metrics")
	if err != nil {
		return 0
	}
	n := 0
	for _, m := range inFlightLine.FindAllStringSubmatch(text, -1) {
		v, _ := strconv.ParseFloat(m[1], 64)
		n += int(v)
	}
	return n
}
