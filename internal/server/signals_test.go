package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// signalPoints are the moments at which TestC8_Failpoints lets the process die:
// before and after each commit between an event that is published and the run
// that has taken what another run has published for it.
var signalPoints = []string{
	"signal.before", "signal.after", "spread.before", "spread.after", "P1.before", "P1.after", "P11.before", "P11.after", "progress.before", "progress.after",
}

// TestC8_Failpoints lets a server die at each of these moments, on both
// databases, starts it again, and has its callers repeat what they had no answer
// to. Whatever was done before: the run that emits does so once, and the run that
// waits for it takes it once.
func TestC8_Failpoints(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		for _, point := range signalPoints {
			for _, passage := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%s/%d", kind, point, passage), func(t *testing.T) {
					t.Parallel()
					dieBetweenRuns(t, kind, &death{point: point, passage: passage, dead: make(chan struct{})})
				})
			}
		}
	}
}

func dieBetweenRuns(t *testing.T, kind string, d *death) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "flows", "giver.yaml"), `
name: giver
steps:
  - {id: go, event: go, key: "${workflow.input.k}"}
  - {id: give, emit: {event: done, key: "${workflow.input.k}", data: "${go.output.id}"}}`)
	write(t, filepath.Join(dir, "flows", "taker.yaml"), `
name: taker
steps:
  - {id: first, event: done, key: "${workflow.input.k}"}
  - {id: second, event: done, key: "${workflow.input.k}", timeout: 300ms, on_error: continue}`)
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", WorkflowDirs: []string{filepath.Join(dir, "flows")}, DrainGrace: time.Millisecond,
	}
	if kind == "postgres" {
		cfg.DatabaseURL, cfg.SealKeyFile = parley.NewSecret([]byte(pgtest.Database(t))), filepath.Join(dir, "seal")
	}
	first := cfg
	first.Failpoint = d.hit
	if s, err := server.New(t.Context(), first); err == nil {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Run(ctx) }()
		for n := 0; n < 20 && !d.isGone(); n++ {
			_, _, _ = giveAndTake(ctx, s, n)
			select {
			case <-d.dead:
			case <-time.After(50 * time.Millisecond):
			}
		}
		stop()
		<-ended
	}
	if !d.isGone() {
		t.Fatalf("failpoint %s was not passed %d times", d.point, d.passage)
	}
	again := startServer(t, cfg)
	for n := range 2 {
		giver, taker, err := giveAndTake(t.Context(), again, n)
		if err != nil {
			t.Fatal(err)
		}
		given, taken := finish(t, again, giver), finish(t, again, taker)
		var got parley.Signal
		if err := json.Unmarshal(taken.Steps[0].Output, &got); err != nil || got.ID != giver+".give" || string(got.Data) != fmt.Sprintf(`"go-%d"`, n) {
			t.Errorf("%s, %s: took %s, %v", given.Status, taken.Status, taken.Steps[0].Output, err)
		}
		if e := taken.Steps[1].Error; e == nil || e.Code != parley.CodeTimeout {
			t.Errorf("the event was taken twice: %s, %v", taken.Steps[1].Output, e)
		}
	}
}

// giveAndTake starts two runs, of which one waits for the other, and tells that
// to go on; it may be repeated.
func giveAndTake(ctx context.Context, s *server.Server, n int) (giver, taker string, err error) {
	start := func(name string) (string, error) {
		run, _, err := s.Executor().Start(ctx, parley.StartRequest{
			Workflow: name, Input: fmt.Appendf(nil, `{"k":"k%d"}`, n), IdempotencyKey: fmt.Sprint(name, n),
		})
		return run.ID, err
	}
	if taker, err = start("taker"); err != nil {
		return giver, taker, err
	}
	if giver, err = start("giver"); err != nil {
		return giver, taker, err
	}
	_, err = s.Executor().Signal(ctx, parley.SignalRequest{Signal: parley.Signal{ID: fmt.Sprint("go-", n), Name: "go", Key: fmt.Sprint("k", n)}})
	return giver, taker, err
}
