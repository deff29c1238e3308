package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/kafkatest"
)

// TestTwins: of two bridges under one instance id the newer one works for as long as it
// lives, in the ledger and on the bus alike, and the older one when that has ended.
func TestTwins(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	binary := buildBinary(t)
	for _, kind := range []string{"postgres", "kafka"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRolesRig(t, binary, kind, 5*time.Millisecond)
			api := r.start("api", "api")
			r.start("executor", "executor")
			older := r.start("older", "bridge", "--bus.kafka.instance_id", "bridge-1")
			r.execute(api, 0)
			newer := r.start("newer", "bridge", "--bus.kafka.instance_id", "bridge-1")
			r.awaitStatus(older, http.StatusServiceUnavailable)
			// Longer than a session, and than it takes the older one to find out.
			var longest time.Duration
			for n := range 8 {
				longest = max(longest, r.execute(api, n+1))
				wait(t, 2*time.Second)
			}
			t.Logf("while both lived, a run of three steps took at most %s", longest.Round(time.Millisecond))
			if longest > 10*time.Second {
				t.Error("that is too long")
			}
			if status, body, err := r.get(newer, "/readyz"); err != nil || status != http.StatusOK {
				t.Errorf("the newer one: %d %s %v", status, body, err)
			}
			if status, body, err := r.get(older, "/readyz"); err != nil || status != http.StatusServiceUnavailable || !strings.Contains(body, "bus.kafka.instance_id") {
				t.Errorf("the older one: %d %s %v", status, body, err)
			}
			r.kill("newer")
			r.execute(api, 100)
			r.awaitStatus(older, http.StatusOK)
			r.stopAll()
			r.log.check(t)
		})
	}
}

// TestTwinsHear: of two processes with all roles under one instance id the older one
// begins nothing any more, but what it decides reaches the newer one at once, not with
// the look of each second that finds what nobody has told.
func TestTwinsHear(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	r := newRolesRig(t, buildBinary(t), "postgres", 0)
	older := r.start("older", "api,executor,bridge", "--bus.kafka.instance_id", "one of two")
	r.start("newer", "api,executor,bridge", "--bus.kafka.instance_id", "one of two")
	r.awaitStatus(older, http.StatusServiceUnavailable)
	r.execute(older, 0)
	best := time.Hour
	for n := range 6 {
		best = min(best, r.execute(older, n+1))
	}
	if best >= 900*time.Millisecond {
		t.Errorf("a run of three steps takes at least %s", best.Round(time.Millisecond))
	}
	r.stopAll()
	r.log.check(t)
}

// awaitStatus waits for what /readyz of a process answers.
func (r *rolesRig) awaitStatus(p *roleProcess, want int) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; wait(r.t, 20*time.Millisecond) {
		status, body, err := r.get(p, "/readyz")
		if err == nil && status == want {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s answers %d %s %v, want %d\n%.8000s", p.name, status, body, err, want, p.output)
		}
	}
}
