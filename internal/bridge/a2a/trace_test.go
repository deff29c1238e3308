package a2a

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// headed notes under which trace each exchange goes out.
type headed struct {
	*posts
	traces []parley.Trace // guarded by the mutex of posts
}

func (h *headed) carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error) {
	h.mu.Lock()
	h.traces = append(h.traces, op.task.Trace)
	h.mu.Unlock()
	return h.posts.carry(ctx, op, body)
}

// TestBatchTrace: requests of one trace take it along, with the parent of one of them,
// those of several go out without one, and one that goes alone has its own.
func TestBatchTrace(t *testing.T) {
	one := parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"}
	other := parley.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for _, tt := range []struct {
		name string
		ops  []parley.Trace
		want parley.Trace
	}{
		{"the same", []parley.Trace{one, one, one}, one},
		{"several", []parley.Trace{one, one, other}, parley.Trace{}},
		{"one without", []parley.Trace{one, {}}, parley.Trace{}},
		{"one trace, calls of their own", []parley.Trace{one, one.Under("b7ad6b7169203331")}, one},
		{"alone", []parley.Trace{other}, other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBatch(t, func(t *testing.T, r *batchRig) {
				h := &headed{posts: r.posts}
				r.binding = h
				for i, trace := range tt.ops {
					op := r.op(verbSend, "run-1.ask."+string(rune('1'+i)))
					op.task.Trace = trace
					go func() {
						if _, _, err := r.call(t.Context(), op); err != nil {
							t.Error(err)
						}
					}()
				}
				time.Sleep(time.Second)
				h.mu.Lock()
				defer h.mu.Unlock()
				if got := h.traces; len(got) != 1 || got[0].ID() != tt.want.ID() || !tt.want.IsZero() && !slices.Contains(tt.ops, got[0]) {
					t.Errorf("exchanges under %+v, want one under %+v", h.traces, tt.want)
				}
			})
		})
	}
}
