package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/admission"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/tracing"
)

// Config of a [Bridge]. Worker, Ledger, Agents, Bus and Adapters are required.
type Config struct {
	// Worker is the name of this bridge; two processes that run at the same
	// time must not share one.
	Worker string
	Ledger Ledger
	Agents Agents
	Bus    bus.Bus
	// Adapters are the protocols that are spoken; an agent chooses by its
	// record's Protocol. To register a protocol is to name its adapter here.
	Adapters []Adapter
	// Now is the clock of this process, with its monotonic reading; default
	// time.Now. Clock gives the time that rows are written in and compared with,
	// which all processes of the ledger agree about: [store.DB.Now]; default Now.
	Now, Clock func() time.Time
	// NewToken gives a text that is never given again, by any process. It is
	// asked once for each registration; default is random.
	NewToken func() string
	// Jitter gives a number in [0, 1); default is random.
	Jitter func() float64
	// Logger gets a line, with the attribute "event", for whatever went not as
	// usual; default none.
	Logger *slog.Logger
	// Breaker is that of agents whose records name none; nil is none.
	Breaker *parley.Breaker
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer records calls; nil records none.
	Tracer *tracing.Tracer
	Limits Limits
	// Lease is how long a bridge may be silent before its claims are taken
	// over; the same for all processes, default 15 s. It beats three times.
	Lease time.Duration
	// DrainGrace is how long calls in flight may go on when Run is told to
	// end, and again how long it then takes to write what is in hand; default
	// 10 s.
	DrainGrace time.Duration
	// Group is the group in which the bridges of one tasks topic share its
	// records; default is that of the existing platform's bridge, of which there
	// must be none beside ours.
	Group string
	// Results: the bus has the result records of the existing platform, so that
	// executors of that platform may use it, too. Each attempt that this bridge
	// settles is then told by one record on [bus.SubjectResults], and task
	// records without [bus.HeaderTask] are tasks of such an executor, if Ledger
	// is a [ForeignLedger]. A [MemoryLedger] takes every task record for one; it
	// wants Results and a [bus.Deferred].
	Results bool
	// DeadLetters gets the task records that cannot be handled, and foreign tasks
	// that have failed for good; nil: they are logged.
	DeadLetters bus.DeadLetters
	// AnswerWakes: Ledger.Answer makes the executor look at the run by itself
	// (the executor of the same process), so no wake-up follows it.
	AnswerWakes bool
	// Progress takes the records of progress in place of the bus, one after
	// another for each task, and returns when they are taken (the executor of the
	// same process): then what an agent told last is recorded before its answer
	// is. Nil: they go out on the bus.
	Progress func(ctx context.Context, m bus.Message) error
	// Failpoint is for crash tests, nil in production. Names:
	// "claim.before-guard", "guard.before-send", "answer.before-P7",
	// "P7.before-wakeup", "follow.before-P6", "follow.after-P6", "poll.before",
	// "subscribe.before", "stream.event", "lookup.before", "question.before",
	// "reply.before-mark", "reply.before-send", "reply.after-send",
	// "again.before-P8".
	// After an error the call does nothing more, as if the process had ended.
	Failpoint func(name string) error
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Clock == nil {
		c.Clock = c.Now
	}
	if c.Group == "" {
		c.Group = "external-agent-executor-group"
	}
	if c.NewToken == nil {
		c.NewToken = rand.Text
	}
	if c.Jitter == nil {
		c.Jitter = mathrand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	c.Lease = orDefault(c.Lease, defaultLease)
	c.DrainGrace = orDefault(c.DrainGrace, 10*time.Second)
	return c
}

// Bridge turns tasks into calls of agents. Its methods may be called
// concurrently; Run is called once.
type Bridge struct {
	cfg      Config
	log      *slog.Logger
	bad      *failures
	adapters map[string]Adapter
	// unsupported ends the error about a protocol that nobody speaks.
	unsupported string

	// foreign is the ledger of foreign tasks, nil if there are none; volatile: it
	// is in memory, and it is memory then.
	foreign  ForeignLedger
	volatile bool
	memory   *MemoryLedger
	breakers Breakers
	// moreForeign: the last look at what waits in the ledger was not at all of it.
	moreForeign atomic.Bool
	// awaited are the foreign tasks that were called back and not given yet.
	awaited atomic.Int64
	// hints counts the result records of own attempts that are under way.
	hints atomic.Int64
	// looking: the records of agents whose tasks wait are being looked at.
	looking atomic.Bool

	// calling ends when the grace of calls in flight is over, hard when
	// nothing more is written.
	calling, hard       context.Context //nolint:containedctx // both belong to Run
	stopCalls, stopHard context.CancelCauseFunc
	// inHand counts reservations and calls.
	inHand sync.WaitGroup
	crew   *crew

	taking    chan struct{} // closed once tasks are taken
	dispatch  chan struct{} // there is something to claim
	reconcile chan struct{} // a claim is in doubt: look at the own rows
	fetch     chan struct{} // the queues have run out of foreign tasks
	beating   chan struct{} // held during a beat
	breaking  chan struct{} // a circuit has changed, or is to be tried

	mu sync.Mutex // protects what follows
	// inc is 0 before the first registration.
	inc int64
	// begun is false while it is not known whether a life has begun; replaced is
	// true while another process has the name.
	begun, replaced bool
	stopping        bool
	// beat is the start of the last good beat.
	beat   time.Time
	prefix string
	issued uint64
	// pending are tokens whose claim is under way; calls are the attempts in
	// hand by task id, queued those that wait for a slot, or to be put off; true: a
	// foreign task that has its row.
	pending  map[string]struct{}
	calls    map[string]*call
	queued   map[string]bool
	lanes    map[string]*lane
	waiting  admission.Ring[*lane]
	circuits map[string]*circuit
	deferred []store.Deferral
	// recalled are tasks that are to come back now, away is how many the lanes
	// remember that wait in the ledger.
	recalled []store.Deferral
	away     int
	// turnDowns do not wait for the open circuits of their agents.
	turnDowns []turnedDown
	answers   answers
	// acks acknowledge the records of foreign tasks, by task id; putOff are such
	// tasks that are to wait in the ledger, done those whose results are
	// published and that are not known to be closed.
	acks   map[string]*ack
	putOff []*queuedForeign
	done   map[string]struct{}
	// ending are such tasks that are being ended without a call; true: it has its row.
	ending map[string]bool
	// turn is when a lane that waits may go on by itself; zero: none does.
	turn time.Time
	// bytes are those of all requests that wait or are in hand.
	bytes     int64
	inFlight  int
	following int
	// settling counts calls that an agent has answered, and whose answer is being
	// written, or published for a foreign task.
	settling int
}

// meetForeign finds out whether there are foreign tasks.
func (b *Bridge) meetForeign() error {
	b.memory, b.volatile = b.cfg.Ledger.(*MemoryLedger)
	if _, waits := b.cfg.Bus.(bus.Deferred); b.volatile && (!waits || !b.cfg.Results) {
		return parley.Errorf(parley.CodeInvalid, "%w", errNoLedger)
	}
	if b.cfg.Results {
		b.foreign, _ = b.cfg.Ledger.(ForeignLedger)
	}
	return nil
}

// New makes a Bridge. It refuses two adapters for one protocol.
func New(cfg Config) (*Bridge, error) {
	if cfg.Worker == "" || cfg.Ledger == nil || cfg.Agents == nil || cfg.Bus == nil || len(cfg.Adapters) == 0 {
		return nil, parley.Errorf(parley.CodeInvalid, "a bridge needs a name, a ledger, agents, a bus and adapters")
	}
	b := &Bridge{
		cfg: cfg.withDefaults(), crew: newCrew(), adapters: make(map[string]Adapter, len(cfg.Adapters)),
		taking: make(chan struct{}), dispatch: make(chan struct{}, 1), reconcile: make(chan struct{}, 1), fetch: make(chan struct{}, 1), beating: make(chan struct{}, 1),
		breaking: make(chan struct{}, 1), circuits: make(map[string]*circuit),
		pending: make(map[string]struct{}), calls: make(map[string]*call),
		queued: make(map[string]bool), lanes: make(map[string]*lane), acks: make(map[string]*ack),
		done: make(map[string]struct{}), ending: make(map[string]bool),
	}
	if err := b.meetForeign(); err != nil {
		return nil, err
	}
	var shared bool
	if b.breakers, shared = cfg.Ledger.(Breakers); !shared {
		b.breakers = &privateBreakers{m: make(map[string]parley.BreakerState)}
	}
	b.log, b.bad = b.cfg.Logger, newFailures(b.cfg.Logger)
	for _, a := range cfg.Adapters {
		if name := a.Protocol(); name == "" || b.adapters[name] != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "two adapters, or one without a name, for protocol %q", name)
		}
		b.adapters[a.Protocol()] = a
	}
	b.unsupported = "Supported protocols: " + strings.Join(b.Protocols(), ", ")
	b.calling, b.stopCalls = context.WithCancelCause(context.Background())
	b.hard, b.stopHard = context.WithCancelCause(context.Background())
	return b, nil
}

// Protocols gives the names of the protocols that are spoken, sorted.
func (b *Bridge) Protocols() []string { return slices.Sorted(maps.Keys(b.adapters)) }

// DefaultPolicy is what language rule R1 gives an agent of that protocol whose
// record names no policy for outcomes that are unknown.
func DefaultPolicy(protocol string) parley.OutcomePolicy {
	if protocol == parley.ProtocolSimpleA2A {
		return parley.OutcomeResend
	}
	return parley.OutcomeLookup
}

// errDrained is why calls end when their grace is over.
var errDrained = errors.New("the bridge is being stopped")

// Taking is closed once Run has registered and subscribed: what is announced
// on the bus from then on is taken.
func (b *Bridge) Taking() <-chan struct{} { return b.taking }

// Run takes tasks until ctx ends. It registers, which takes the claims of this
// bridge's former lives away from them; takes what the bus announces, what
// [Bridge.Reserve] hands out and what dead bridges left; and beats, so that
// nobody takes this one for dead. When ctx ends nothing new begins, calls in
// flight get Config.DrainGrace, what was not sent is released, and what is left
// becomes an orphan that the next life or another bridge goes on with. Run
// returns when every goroutine has ended, and with an error only if it could
// not begin.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.stopHard(errDrained)
	defer b.stopCalls(errDrained)
	if err := b.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := b.readBreakers(ctx); err != nil && ctx.Err() == nil {
		b.log.Warn("circuits of agents not read; it is tried again", "event", "bridge_breaker", "error", err)
	}
	stopHints, err := b.subscribeHints(ctx)
	if err != nil {
		return err
	}
	stopTasks, err := b.subscribeTasks(ctx)
	if err != nil {
		stopHints()
		return err
	}
	close(b.taking)
	var intake, lease sync.WaitGroup
	leased, letGo := context.WithCancel(b.hard)
	defer letGo()
	intake.Go(func() { b.serveClaims(ctx) })
	intake.Go(func() { b.serveBreakers(ctx) })
	lease.Go(func() { b.serveBeats(leased) })
	if !b.volatile {
		intake.Go(func() { b.every(ctx, watchEvery, b.takeOrphans) })
		lease.Go(func() { b.serveWatch(leased) })
	}
	if b.foreign != nil {
		intake.Go(func() { b.serveForeign(ctx) })
	}

	<-ctx.Done()
	if !b.volatile {
		stopTasks()
	}
	b.mu.Lock()
	b.stopping = true
	b.mu.Unlock()
	intake.Wait()
	b.putBack()
	b.drain()
	if b.volatile {
		stopTasks() // until then what calls have ended can be acknowledged
	}
	b.crew.dismiss()
	stopHints()
	if b.foreign != nil {
		_ = b.closeDone(b.hard) // else their results are published again
	}
	letGo()
	lease.Wait()
	return nil
}

// subscribeHints takes what hurries the calls in hand. There is nobody to send
// it to a bridge without a store.
func (b *Bridge) subscribeHints(ctx context.Context) (stop func(), err error) {
	if b.volatile {
		return func() {}, nil
	}
	stopCancels, err := b.cfg.Bus.Subscribe(ctx, bus.SubjectCancel, "", b.cancelHint)
	if err != nil {
		return nil, err
	}
	stopHints, err := b.cfg.Bus.Subscribe(ctx, bus.SubjectHint, "", b.taskHint)
	if err != nil {
		stopCancels()
		return nil, err
	}
	return func() { stopCancels(); stopHints() }, nil
}

// drain waits for the calls in flight, as long as they may go on.
func (b *Bridge) drain() {
	b.mu.Lock()
	for _, c := range b.calls {
		c.rest()
	}
	b.mu.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); b.inHand.Wait() }()
	for _, stop := range []context.CancelCauseFunc{b.stopCalls, b.stopHard} {
		grace := time.NewTimer(b.cfg.DrainGrace)
		select {
		case <-ended:
			grace.Stop()
			return
		case <-grace.C:
			stop(errDrained)
		}
	}
	<-ended
}

// every calls f at once and then regularly until ctx ends.
func (b *Bridge) every(ctx context.Context, d time.Duration, f func(context.Context)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for ctx.Err() == nil {
		f(ctx)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

// now is the time as it is recorded: UTC, whole microseconds.
func (b *Bridge) now() time.Time { return b.cfg.Clock().UTC().Truncate(time.Microsecond) }

// failpoint reports whether the process is to be taken for dead.
func (b *Bridge) failpoint(name string) bool {
	return b.cfg.Failpoint != nil && b.cfg.Failpoint(name) != nil
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// nudge makes the reader of c look; it does not wait.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// firstOf gives the first text that is not empty.
func firstOf[T ~string](vs ...T) T { return cmp.Or(vs...) }
