package s3

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// process is a Parley within the test.
type process struct {
	*server.Server
	end  context.CancelFunc
	done chan error
}

func serve(t *testing.T, cfg server.Config) *process {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	check(t, err)
	ctx, end := context.WithCancel(context.Background())
	p := &process{Server: s, end: end, done: make(chan error, 1)}
	go func() { p.done <- s.Run(ctx) }()
	t.Cleanup(end)
	return p
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	p.end()
	check(t, <-p.done)
}

func (p *process) begin(t *testing.T, input string) string {
	t.Helper()
	run, _, err := p.Executor().Start(t.Context(), parley.StartRequest{Workflow: "carry", Input: json.RawMessage(input)})
	check(t, err)
	return run.ID
}

func (p *process) signal(t *testing.T, run string) {
	t.Helper()
	_, err := p.Executor().Signal(t.Context(), parley.SignalRequest{Run: run, Signal: parley.Signal{Name: "go"}})
	check(t, err)
}

// reach waits until a run has a status and a step of it was begun. While the
// values of the run cannot be fetched it asks again.
func (p *process) reach(t *testing.T, id string, status parley.RunStatus, step string) parley.Run {
	t.Helper()
	var run parley.Run
	var err error
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(50 * time.Millisecond) {
		run, err = p.Executor().Get(t.Context(), id)
		if err != nil && parley.CodeOf(err) != parley.CodeUnavailable {
			t.Fatal(err)
		}
		if err == nil && run.Status == status {
			for _, s := range run.Steps {
				if s.ID == step && s.Status != parley.StepPending {
					return run
				}
			}
		}
	}
	t.Fatalf("run %s is %s, not %s at step %s: %v", id, run.Status, status, step, err)
	return run
}
