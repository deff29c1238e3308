package bridge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
)

// guardKey is under which a context holds the send guard of a call.
type guardKey struct{}

// sendGuard goes with the context of one call.
type sendGuard struct {
	// may is asked once more after everything that takes time before the first
	// byte, such as a request for an access token: the process may have been
	// stopped meanwhile (protocol.md §4.3).
	may func() bool
	// status is that of the newest HTTP response to the call, or 0.
	status atomic.Int32
}

// withSendGuard gives a context for one call.
func withSendGuard(ctx context.Context, g *sendGuard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// noteStatus notes what the call that ctx is for was answered with.
func noteStatus(ctx context.Context, status int) {
	if g, ok := ctx.Value(guardKey{}).(*sendGuard); ok {
		g.status.Store(int32(status)) //nolint:gosec // three digits
	}
}

// guarded gives an error if the call that ctx is for may not be sent any more.
// Contexts without a guard are those of questions, which may always be asked.
func guarded(ctx context.Context, e errand) error {
	g, ok := ctx.Value(guardKey{}).(*sendGuard)
	if !ok || g.may() {
		return nil
	}
	err := e.errorf(parley.CodeAgentUnavailable, "the bridge was away for too long while the call was prepared; nothing was sent")
	err.Retryable = true
	return &ExchangeError{Disposition: NotSent, Err: err}
}

// leads reports whether the incarnation is the present one and surely not taken
// for dead yet.
func (b *Bridge) leads(inc int64) bool {
	now := b.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leadsLocked(inc, now)
}

func (b *Bridge) leadsLocked(inc int64, now time.Time) bool {
	return inc == b.inc && age(b.beat, now) < b.cfg.Lease*2/3
}
