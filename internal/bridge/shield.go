package bridge

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/parley-project/parley"
)

// shielded makes one exchange by the adapter, whose business is what strangers send.
// Should it panic over that, nobody knows what came of this exchange, and no other is
// disturbed: a process that ended would meet the same answer in its next life. op is
// the method, for the log.
func (c *call) shielded(op string, exchange func() (Outcome, error)) (out Outcome, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = c.stumbled(op, v), nil
		}
	}()
	c.exchanges()
	return exchange()
}

// stumbled is the outcome of an exchange over which the adapter panicked with v.
func (c *call) stumbled(op string, v any) Outcome {
	c.b.log.LogAttrs(c.b.hard, slog.LevelError, "an adapter panicked; please report it", c.attrs("adapter_panic",
		slog.String("method", op), slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))...)
	e := parley.Errorf(parley.CodeInternal, "the adapter failed over what agent %q has sent; the log says where", c.row.Agent)
	e.Retryable = true
	return Outcome{Disposition: Lost, Result: parley.Result{TaskID: c.row.ID, Outcome: parley.OutcomeError, Err: e}}
}
