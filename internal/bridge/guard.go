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
	// joined are those that it stands for, if it is of several calls.
	joined []*sendGuard
}

// withSendGuard gives a context for one call.
func withSendGuard(ctx context.Context, g *sendGuard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// WithSendGuard gives a context for one call, which may be sent only while may says
// so: its claim may be somebody else's by now.
func WithSendGuard(ctx context.Context, may func() bool) context.Context {
	return withSendGuard(ctx, &sendGuard{may: may})
}

// WithGuardsOf gives ctx the send guards of calls, as of one exchange that carries
// all of them: it may be sent only while each of them may.
func WithGuardsOf(ctx context.Context, calls ...context.Context) context.Context {
	all := &sendGuard{}
	for _, call := range calls {
		if g, ok := call.Value(guardKey{}).(*sendGuard); ok {
			all.joined = append(all.joined, g)
		}
	}
	all.may = func() bool {
		may := true
		for _, g := range all.joined {
			may = g.may() && may // each call is to learn of it
		}
		return may
	}
	return withSendGuard(ctx, all)
}

// noteStatus notes what the call that ctx is for was answered with.
func noteStatus(ctx context.Context, status int) {
	if g, ok := ctx.Value(guardKey{}).(*sendGuard); ok {
		g.note(int32(status)) //nolint:gosec // three digits
	}
}

func (g *sendGuard) note(status int32) {
	g.status.Store(status)
	for _, one := range g.joined {
		one.note(status)
	}
}

// Guarded is for transports that need time before the first byte of a call, such as
// for a connection; they ask directly before that. It gives an [*ExchangeError] of
// disposition NotSent if the call that ctx is for may not be sent any more.
func Guarded(ctx context.Context, task parley.Task, agent parley.Agent) error {
	return guarded(ctx, &errand{task, agent})
}

// guarded gives an error if the call that ctx is for may not be sent any more.
// Contexts without a guard are those of questions, which may always be asked.
func guarded(ctx context.Context, e *errand) error {
	g, ok := ctx.Value(guardKey{}).(*sendGuard)
	if !ok || g.may() {
		return nil
	}
	err := e.errorf(parley.CodeAgentUnavailable, "the call was cancelled, or its bridge away for too long, while it was prepared; nothing was sent")
	err.Retryable = true
	return &ExchangeError{Disposition: NotSent, Err: err, Withheld: true}
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
