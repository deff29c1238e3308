package bridge

import (
	"context"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// Ledger is where claims, answers and everything between them are durable; it
// alone decides what may happen to an attempt. *store.DB implements it, and
// describes each method; protocol.md has the transitions. An error of any
// method means that it is not known whether the write was committed: the bridge
// repeats the same statement or gives the attempt up, and never sends on doubt.
// An error of code invalid says that the statement itself makes no sense.
type Ledger interface {
	// Register is P16: inc is new, claims of the former ones are orphans.
	Register(ctx context.Context, worker string, at time.Time) (inc int64, err error)
	// Beat renews the lease. store.ErrStale: replaced, or declared dead.
	Beat(ctx context.Context, worker string, inc int64) error
	// Owned lists what is claimed or followed by that incarnation.
	Owned(ctx context.Context, worker string, inc int64) ([]store.Owned, error)
	// Orphans lists attempts that wait for a takeover, this bridge's own
	// former ones too.
	Orphans(ctx context.Context, worker string, inc int64, limit int) ([]store.Attempt, error)
	// Claim is P4 for a batch; it gives what is the caller's now, also what
	// was claimed under the very same token before.
	Claim(ctx context.Context, c store.Claim, reqs []store.ClaimRequest, at time.Time) ([]store.Attempt, error)
	// Defer is P3.
	Defer(ctx context.Context, ds []store.Deferral) error
	// Move is P5, P6, P8 and P9, fenced by the claim.
	Move(ctx context.Context, m store.Move) (ok bool, err error)
	// Answer is P7, which is not fenced: the first answer wins. accepted is
	// false for one that came after the attempt's end.
	Answer(ctx context.Context, a store.Answer) (accepted bool, err error)
}

// ForeignLedger is a [Ledger] that also keeps the tasks of executors of the
// existing platform (protocol.md §4.12); *store.DB and [MemoryLedger] implement
// it. Errors mean the same as there.
type ForeignLedger interface {
	// ClaimForeign is P4 for tasks that may have no row yet, each under its own
	// Claim; it gives what is the caller's now, perhaps in list itself. What is
	// left out has its row. store.ErrStale: the bridge was replaced, or declared
	// dead, and nothing was written.
	ClaimForeign(ctx context.Context, list []store.Attempt, at time.Time) ([]store.Attempt, error)
	// AnswerForeign is [Ledger.Answer] for several of these tasks at once. After an
	// error nothing is known of any of them.
	AnswerForeign(ctx context.Context, list []store.Answer) (accepted []bool, err error)
	// DeferForeign is P3 for tasks that may have no row yet: each waits until
	// its VisibleAt, unless it is there already.
	DeferForeign(ctx context.Context, list []store.Attempt, at time.Time) error
	// Foreign gives what wants attention: open ones whose time has come, settled
	// ones whose results nobody has published. It gives them to one bridge at a
	// time, and again later.
	Foreign(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error)
	// Source gives the record that a task was taken from, as it was with the claim
	// or the deferral that inserted its row; nil if that is not known.
	Source(ctx context.Context, id string) (*store.Source, error)
	// CloseForeign notes that the results of these tasks were published, and those
	// that failed kept.
	CloseForeign(ctx context.Context, ids []string) error
	// PurgeForeign removes closed ones that were settled before that time.
	PurgeForeign(ctx context.Context, before time.Time, limit int) (int, error)
	// Sweep is P17 and P10: see [store.DB.Sweep].
	Sweep(ctx context.Context, dead []store.Worker, at time.Time) ([]store.Worker, error)
}

// Agents finds the record of an agent. It is asked before every call, so it
// should answer from memory.
type Agents interface {
	// Lookup gives the record with its Credential resolved. The error is a
	// *parley.Error; unknown_agent ends the attempt. If it is only the credential
	// that cannot be had, the record may come beside the error, without one.
	Lookup(ctx context.Context, name string) (parley.Agent, error)
}
