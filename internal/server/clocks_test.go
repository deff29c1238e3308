package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// TestClocksApart runs a workflow on executors and bridges whose clocks are two
// hours apart: retries and time limits come when they are due, and what is
// recorded is the time of the database that they share.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusInternalServerError) })
	released := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-released:
		}
	}))
	defer silent.Close()
	defer close(released)
	flaky, steady := httptest.NewServer(fails), httptest.NewServer(log.simpleAgent("steady", 0))
	defer flaky.Close()
	defer steady.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), fmt.Sprintf(`agents:
  - {name: steady, url: %q, protocol: simple-a2a}
  - {name: flaky, url: %q, protocol: simple-a2a, retry: {max_retries: 1, initial_delay_ms: 1000, max_delay_ms: 1000, backoff_multiplier: 1}}
  - {name: silent, url: %q, protocol: simple-a2a}
`, steady.URL, flaky.URL, silent.URL))
	write(t, filepath.Join(dir, "flows", "f.yaml"), `name: f
timeout: 10m
steps:
  - {id: a, agent: steady}
  - {id: b, agent: flaky, on_error: continue}
  - {id: c, agent: silent, timeout: 2s, on_error: continue}
  - {id: d, agent: steady}
`)
	database := pgtest.Database(t)
	process := func(ahead time.Duration, roles ...server.Role) *server.Server {
		name := fmt.Sprintf("%s%+d", roles[len(roles)-1], int(ahead.Hours()))
		return startServer(t, server.Config{
			Data: filepath.Join(dir, name), Roles: roles, Listen: "127.0.0.1:0", Instance: name, EgressAllow: []string{"127.0.0.0/8"},
			DatabaseURL: parley.NewSecret([]byte(database)), SealKeyFile: filepath.Join(dir, "seal"), DrainGrace: 100 * time.Millisecond,
			AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
			Now: func() time.Time { return time.Now().Add(ahead) },
		})
	}
	executors := []*server.Server{
		process(time.Hour, server.RoleAPI, server.RoleExecutor), process(-time.Hour, server.RoleAPI, server.RoleExecutor),
	}
	process(time.Hour, server.RoleBridge)
	process(-time.Hour, server.RoleBridge)

	began := time.Now()
	var ids []string
	for i := range 8 {
		run, _, err := executors[i%2].Executor().Start(t.Context(), parley.StartRequest{Workflow: "f"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	for i, id := range ids {
		run := finish(t, executors[(i+1)%2], id)
		checkTimes(t, &run, began)
	}
	log.check(t)
	noneDead(t, database)
}

// checkTimes wants every step of a run of f as it has to be, in order and since
// began, which is the time of the database, too: it is on this machine.
func checkTimes(t *testing.T, run *parley.Run, began time.Time) {
	t.Helper()
	if run.Status != parley.RunCompleted || len(run.Steps) != 4 {
		t.Fatalf("%s: %v, %d steps", run.Status, run.Error, len(run.Steps))
	}
	const slack = time.Second
	last := began.Add(-slack)
	for i, step := range run.Steps {
		attempts, least := []int{1, 2, 1, 1}[i], []time.Duration{0, 0, 2 * time.Second, 0}[i]
		if step.ScheduledAt == nil || step.EndedAt == nil || step.Attempts != attempts {
			t.Fatalf("step %s: %+v", step.ID, step)
		}
		times := []time.Time{last, *step.ScheduledAt, *step.EndedAt, time.Now().Add(slack)}
		if step.StartedAt != nil {
			times = slices.Insert(times, 2, *step.StartedAt)
		}
		if !slices.IsSortedFunc(times, func(a, b time.Time) int { return a.Truncate(slack / 10).Compare(b.Truncate(slack / 10)) }) ||
			i > 0 && step.EndedAt.Sub(last) < least {
			t.Errorf("step %s: %v", step.ID, times)
		}
		last = *step.EndedAt
	}
}

// noneDead wants every bridge in its first life.
func noneDead(t *testing.T, database string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var all, dead int
	if err := conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE dead = 1 OR inc > 1) FROM worker`).Scan(&all, &dead); err != nil || all != 2 || dead > 0 {
		t.Errorf("%d of %d bridges were declared dead: %v", dead, all, err)
	}
}
