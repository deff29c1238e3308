package server_test

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// TestSyncedCommitsOfWholeServers counts what a run of k steps in a row costs whole
// processes when nothing else happens (protocol.md §6): k + 1 synced commits where one
// has both roles, on both databases, and 3k + 1 where executor and bridge are apart.
// SQLite has no processes apart.
func TestSyncedCommitsOfWholeServers(t *testing.T) {
	t.Parallel()
	all := []server.Role{server.RoleAPI, server.RoleExecutor, server.RoleBridge}
	for _, c := range []struct {
		name      string
		postgres  bool
		processes [][]server.Role
		cost      func(k int64) int64
	}{
		{"sqlite", false, [][]server.Role{all}, func(k int64) int64 { return k + 1 }},
		{"postgres", true, [][]server.Role{all}, func(k int64) int64 { return k + 1 }},
		{"apart", true, [][]server.Role{{server.RoleAPI, server.RoleExecutor}, {server.RoleBridge}}, func(k int64) int64 { return 3*k + 1 }},
		{"all apart", true, [][]server.Role{{server.RoleAPI}, {server.RoleExecutor}, {server.RoleBridge}}, func(k int64) int64 { return 3*k + 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			servers := syncedServers(t, c.postgres, c.processes)
			count := func() (n int64) {
				for _, s := range servers {
					n += s.SyncedCommits()
				}
				return n
			}
			syncedRun(t, servers[0], 1)
			for still, last := 0, int64(-1); still < 5; still++ { // whatever is done once is done
				if n := count(); n != last {
					still, last = 0, n
				}
				wait(t, 50*time.Millisecond)
			}
			for _, k := range []int64{1, 5} {
				least := int64(math.MaxInt64)
				for range 5 { // something else may happen beside one
					before := count()
					syncedRun(t, servers[0], k)
					// Who is told of the end may be so before the last commit is counted.
					for tries := 0; count()-before < c.cost(k) && tries < 200; tries++ {
						wait(t, 50*time.Millisecond)
					}
					if least = min(least, count()-before); least <= c.cost(k) {
						break
					}
				}
				if least != c.cost(k) {
					t.Errorf("a run of %d steps costs %d synced commits, not %d", k, least, c.cost(k))
				}
			}
		})
	}
}

// syncedServers starts processes on one new database, with an agent and workflows of
// one and of five steps.
func syncedServers(t *testing.T, postgres bool, processes [][]server.Role) (servers []*server.Server) {
	t.Helper()
	agent := httptest.NewServer(newCallLog().simpleAgent("one", 20*time.Millisecond))
	t.Cleanup(agent.Close)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), "agents:\n  - {name: one, url: \""+agent.URL+"\", protocol: simple-a2a}\n")
	for _, k := range []int{1, 5} {
		var steps strings.Builder
		for i := range k {
			fmt.Fprintf(&steps, "  - {id: s%d, agent: one, input: {n: %d}}\n", i, i)
		}
		write(t, filepath.Join(dir, "flows", fmt.Sprint(k, ".yaml")), fmt.Sprintf("name: row-%d\nsteps:\n%s", k, steps.String()))
	}
	cfg := server.Config{
		Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: 100 * time.Millisecond,
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
	}
	if postgres {
		cfg.DatabaseURL = parley.NewSecret([]byte(pgtest.Database(t)))
	}
	for i, roles := range processes {
		cfg.Data, cfg.Roles = filepath.Join(dir, fmt.Sprint("data", i)), roles
		s := startServer(t, cfg)
		<-s.Started()
		servers = append(servers, s)
	}
	return servers
}

// syncedRun runs a workflow of k steps to its end.
func syncedRun(t *testing.T, s *server.Server, k int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, _, err := s.Executor().Start(ctx, parley.StartRequest{Workflow: fmt.Sprint("row-", k), Input: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if status, err := s.Executor().Wait(ctx, run.ID); err != nil || status != parley.RunCompleted {
		t.Fatalf("the run is %s: %v", status, err)
	}
}
