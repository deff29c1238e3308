package executor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// forgetfulStore has no definitions for as long as it has forgotten them.
type forgetfulStore struct {
	executor.Store
	forgotten *atomic.Bool
}

func (s forgetfulStore) Definition(ctx context.Context, ref string) (store.Definition, error) {
	if s.forgotten.Load() {
		return store.Definition{}, parley.Errorf(parley.CodeNotFound, "Workflow %q not found", ref)
	}
	return s.Store.Definition(ctx, ref)
}

// TestRunWithoutItsDefinition: a run whose version is not in the database is no run that
// was removed. Whoever asks for it, and the log, hear what is missing; when it is there
// again, the run goes on.
func TestRunWithoutItsDefinition(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nversion: \"7\"\nsteps: [{id: a, agent: one, timeout: 30s}]")
		run := r.begin(parley.StartRequest{Workflow: "talk"})
		var forgotten atomic.Bool
		forgotten.Store(true)
		var log bytes.Buffer
		r.another(func(c *executor.Config) {
			c.Store, c.Logger, c.SweepEvery = forgetfulStore{c.Store, &forgotten}, slog.New(slog.NewTextHandler(&log, nil)), time.Second
		}, func(x *executor.Executor) {
			const says = `stays on version "7" of workflow "talk", which the database has no more: deploy that document again`
			_, err := x.Get(t.Context(), run)
			wantCode(t, err, parley.CodeInvalid, says)
			r.follow(run + ".a.1")
			r.tells(x, run+".a.1", `{}`, true)
			synctest.Wait()
			if text := log.String(); !strings.Contains(text, "run not attended to") || !strings.Contains(text, run) {
				t.Errorf("the log says %q", text)
			}
			forgotten.Store(false)
			if got, err := x.Get(t.Context(), run); err != nil || got.ID != run {
				t.Errorf("once it is there again: %q, %v", got.ID, err)
			}
		})
	})
}
