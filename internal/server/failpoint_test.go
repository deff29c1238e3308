package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/store"
)

// failpoints are the moments at which TestFailpoints lets the process die:
// before and after each commit of the embedded hand-off, and between them
// where the bridge touches the world (protocol.md §9).
var failpoints = []string{
	"P1.before", "P1.after", "P4.before", "P4.after", "P7.before", "P7.after", "P11.before", "P11.after", "P16.after",
	"claim.before-guard", "guard.before-send", "answer.before-P7", "P7.before-wakeup",
	// With every value kept apart from the database.
	apartPoint + "values.put", apartPoint + "P1.before", apartPoint + "P1.after", apartPoint + "P7.before", apartPoint + "P7.after", apartPoint + "P11.after",
}

const apartPoint = "apart/"

// TestFailpoints lets a server die at each failpoint, at its first and at a
// later passage, under each policy, starts it again on the same data, and
// judges by the agents' call log: invariants I1, I2 and I4 of protocol.md.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"resend", "fail", "lookup"} {
		for _, point := range failpoints {
			for _, passage := range []int{1, 3} {
				if point == "P16.after" && passage > 1 {
					continue // a process registers once
				}
				t.Run(fmt.Sprintf("%s/%s/%d", policy, point, passage), func(t *testing.T) {
					t.Parallel()
					dieAt(t, policy, point, passage)
				})
			}
		}
	}
}

// death is a failpoint that kills: from the chosen passage on, nothing in the
// process gets anything done any more.
type death struct {
	point   string
	passage int

	mu   sync.Mutex // protects the fields below
	seen int
	dead chan struct{}
	gone bool
}

func (d *death) hit(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == d.point {
		if d.seen++; d.seen == d.passage {
			d.gone = true
			close(d.dead)
		}
	}
	if d.gone {
		return errCrashed
	}
	return nil
}

func dieAt(t *testing.T, policy, point string, passage int) {
	log := newCallLog()
	agent := httptest.NewServer(log.simpleAgent(policy, 5*time.Millisecond))
	defer agent.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), "agents:\n  - {name: one, url: \""+agent.URL+"\", protocol: simple-a2a, outcome_unknown: "+policy+"}\n")
	write(t, filepath.Join(dir, "flows", "two.yaml"), "name: two\nsteps:\n"+
		"  - {id: a, agent: one, input: {text: \"${workflow.input.n}\"}}\n"+
		"  - {id: b, agent: one, input: {text: \"${a.output.text}\"}}\n")
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
		DrainGrace: time.Millisecond,
	}
	if policy == "lookup" {
		storeAgent(t, cfg.Data, parley.Agent{
			ID: "00000000-0000-4000-8000-000000000001", Name: "one", URL: agent.URL + "/", Protocol: parley.ProtocolSimpleA2A,
			OutcomeUnknown: parley.OutcomeLookup, Status: parley.AgentActive,
		})
	}
	point, apart := strings.CutPrefix(point, apartPoint)
	if apart {
		cfg.Values.ApartAbove = 1
	}
	d := &death{point: point, passage: passage, dead: make(chan struct{})}
	first := cfg
	first.Failpoint = d.hit
	id := untilDeath(t, first, d)
	again := startServer(t, cfg)
	run := finish(t, again, id)
	if run.Status != parley.RunCompleted && (run.Error == nil || run.Error.Code != parley.CodeOutcomeUnknown) {
		t.Errorf("the run is %s: %v", run.Status, run.Error)
	}
	judge(t, policy, log, run)
	if apart && objectsIn(t, filepath.Join(cfg.Data, "values")) == 0 {
		t.Error("no value was kept apart")
	}
}

// storeAgent keeps an agent that was stored when that was not refused yet.
func storeAgent(t *testing.T, data string, a parley.Agent) {
	t.Helper()
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), filepath.Join(data, "parley.db"), store.Options{})
	if err == nil {
		err = errors.Join(db.Migrate(t.Context()), db.CreateAgent(t.Context(), a), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// untilDeath starts runs until the process dies at its failpoint, and gives
// the last one that was begun.
func untilDeath(t *testing.T, cfg server.Config, d *death) (id string) {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		if d.gone {
			return ""
		}
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	for n := 0; n < 20 && !d.isGone(); n++ {
		run, _, err := s.Executor().Start(ctx, parley.StartRequest{
			Workflow: "two", Input: []byte(`{"n":"x"}`), IdempotencyKey: fmt.Sprint(n),
		})
		if err == nil {
			id = run.ID
		}
		select {
		case <-d.dead:
		case <-time.After(40 * time.Millisecond):
		}
	}
	if !d.isGone() {
		t.Fatalf("failpoint %s was not passed %d times", d.point, d.passage)
	}
	stop()
	<-ended
	return id
}

func (d *death) isGone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

func startServer(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s
}

// finish waits for the end of a run, or of one that is started anew if the
// process died before any was accepted.
func finish(t *testing.T, s *server.Server, id string) parley.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if id == "" {
		run, _, err := s.Executor().Start(ctx, parley.StartRequest{Workflow: "two", Input: []byte(`{"n":"x"}`), IdempotencyKey: "0"})
		if err != nil {
			t.Fatal(err)
		}
		id = run.ID
	}
	if _, err := s.Executor().Wait(ctx, id); err != nil {
		run, _ := s.Executor().Get(t.Context(), id)
		t.Fatalf("the run does not end: %v\n%+v", err, run)
	}
	run, err := s.Executor().Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// judge reads the agents' log: no attempt was executed more often than its
// policy allows.
func judge(t *testing.T, policy string, log *callLog, run parley.Run) {
	t.Helper()
	for task, n := range log.counts() {
		limit := 1
		if policy == "resend" {
			limit = 3
		}
		if n > limit {
			t.Errorf("%s was called %d times under policy %s", task, n, policy)
		}
	}
	if policy == "resend" && run.Status != parley.RunCompleted {
		t.Errorf("one crash under policy resend ends a run as %s: %v", run.Status, run.Error)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.TrimSpace(text)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
