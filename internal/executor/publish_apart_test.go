package executor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// A task whose input is kept apart is announced without it, with its size.
func TestPublishApart(t *testing.T) {
	b := &slowBus{limit: 1 << 20, got: map[string]bus.Message{}}
	synctest.Test(t, func(t *testing.T) {
		rows := []store.Attempt{{
			Task:       parley.Task{ID: "r.a.1", Run: "r", Agent: "writer", CorrelationID: "corr-r"},
			InputApart: &store.Apart{Size: 123_456},
		}}
		p := executor.NewPublisher(executor.PublisherConfig{
			Bus: b, Now: time.Now,
			Take: func(context.Context, time.Time, int) ([]store.Attempt, error) {
				all := rows
				rows = nil
				return all, nil
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	m, ok := b.got["r"]
	if !ok || m.Header[bus.HeaderBytes] != "123456" {
		t.Fatalf("%+v", m)
	}
	task, err := records.DecodeTask(m.Value)
	if err != nil || task.TaskID != "r.a.1" || len(task.Input) > 4 {
		t.Errorf("%+v, %v", task, err)
	}
}
