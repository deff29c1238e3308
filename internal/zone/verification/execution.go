package verification

import (
	"context"

	"github.com/parley-project/parley/internal/zone"
)

// Execution is the other zone. Each method is one exchange: none waits for the
// work or repeats itself. Errors are *zone.Error, what the other zone says, or
// *zone.TransportError; every other error counts as an unknown outcome. Any number
// of goroutines may call.
type Execution interface {
	// Ask sends execute_task with the id of the call.
	Ask(ctx context.Context, call zone.Call) (zone.Result, zone.Info, error)
	// Fetch asks what became of a task, also by the id of a call whose outcome is
	// not known.
	Fetch(ctx context.Context, q zone.Query, meta zone.Meta) (zone.AsyncResult, zone.Info, error)
	// Release gives up what an affinity stands for.
	Release(ctx context.Context, affinity string) error
}
