package bridge

import (
	"fmt"
	"strings"
	"time"
)

// NotGivenBack says what of its slots, of its bytes and of the rates of its agents a
// bridge has still taken, or has given back too often; "" if nothing. It is for a
// bridge whose Run has returned, whatever has become of its calls.
func (b *Bridge) NotGivenBack() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	note := func(what string, n int64) {
		if n != 0 {
			_, _ = fmt.Fprintf(&text, " %s: %d.", what, n)
		}
	}
	note("slots", int64(b.inFlight))
	note("followed", int64(b.following))
	note("settling", int64(b.settling))
	note("bytes", b.bytes)
	note("tokens", int64(len(b.pending)))
	for _, l := range b.lanes {
		note("slots of "+l.agent, int64(l.inFlight))
		note("bytes of "+l.agent, l.bytes)
		note("waiting bytes of "+l.agent, l.queue.bytes)
		if !l.gate.Idle(b.cfg.Now().Add(time.Hour)) {
			text.WriteString(" The rate of " + l.agent + ".")
		}
	}
	for id, c := range b.calls {
		if !c.keep {
			text.WriteString(" The entry of " + id + ".")
		}
	}
	return text.String()
}
