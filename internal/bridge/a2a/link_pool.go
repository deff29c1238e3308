package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/jsonrpc"
)

const (
	defaultProcesses   = 32
	defaultLinkTimeout = 30 * time.Second
	// maxLinks bounds the agents whose links are remembered.
	maxLinks = 1024
	// linkIdle is how long an unused link is kept. A task that is followed is
	// asked about more often.
	linkIdle = 5 * time.Minute
	// healthyAfter is how long a process has to live for its former failures to
	// be forgotten.
	healthyAfter = time.Minute
	// maxLinkError bounds the text of an error, in bytes.
	maxLinkError = 4 << 10
)

// pace is how fast links of a kind are made again.
type pace struct{ first, most time.Duration }

// paceOf gives a program time, since every start costs much and one that
// crashes is seldom better a moment later. A WebSocket server costs a handshake:
// the pause is there so that calls that wait for the same attempt share its
// failure.
func paceOf(scheme string) pace {
	if scheme == schemeStdio {
		return pace{time.Second, 30 * time.Second}
	}
	return pace{100 * time.Millisecond, 5 * time.Second}
}

// links is the [binding] that keeps links to agents. Its methods may be called concurrently.
type links struct {
	rpcForm // of the answers, which carry puts together

	opts   linkOptions
	limits bridge.ExchangeLimits
	ctx    context.Context //nolint:containedctx // ends with close; that of all links
	stop   context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	all       map[linkKey]*link // guarded by mu, as the links' state is
	processes int               // that are started or not yet gone
	closed    bool
}

var _ binding = (*links)(nil)

// linkKey is what calls have to have in common to share a link.
type linkKey struct {
	url      string
	identity [sha256.Size]byte
}

// linkTarget is what a link is made for: the endpoint and the agent, with its
// credential, as of the call that made it.
type linkTarget struct {
	to    Endpoint
	task  parley.Task
	agent parley.Agent
}

// link is one agent's connection: down, being started, up, or being stopped.
type link struct {
	key    linkKey
	scheme string
	target linkTarget

	conn *jsonrpc.Conn // nil unless it is up
	// change is closed when it has been started or stopped, and nil otherwise.
	change chan struct{}
	// users counts the calls that use it or wait for it.
	users    int
	lastUsed time.Time
	upSince  time.Time
	// until is when it gets too old for new calls; zero is never. Then it is no
	// link of the pool any more, and spent is closed when it has no users.
	until time.Time
	old   bool
	spent chan struct{}
	// failures is how often it failed in a row, why the last of them, and
	// notBefore when it may be tried again.
	failures  int
	why       *bridge.ExchangeError
	notBefore time.Time

	// stray is what came last that no call could use; nil: nothing.
	stray atomic.Pointer[stray]
}

// stray is a message of an agent that is no answer to any call.
type stray struct {
	at   time.Time
	text string
}

// key gives what op's link is found by.
func (c *oneCall) key() linkKey {
	k := linkKey{url: c.op.to.URL}
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	agent := c.op.agent
	auth, _ := json.Marshal(struct {
		Auth parley.Auth
		TLS  parley.AgentTLS
	}{agent.Auth, agent.TLS}) // plain data always can be
	part(auth)
	part([]byte(c.op.to.Version))
	part(agent.Credential.Reveal())
	resolved := agent.Resolved.Digest()
	part(resolved[:])
	h.Sum(k.identity[:0])
	return k
}

// acquire gives the connection of c's agent, made now if there is none, and
// counts the call; the caller releases the link. The error says that nothing
// was sent: an [*bridge.ExchangeError], or a [*parley.Error] for good.
func (l *links) acquire(ctx context.Context, c *oneCall) (*link, *jsonrpc.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, err := l.findLocked(c)
	if err != nil {
		return nil, nil, err
	}
	k.users++
	conn, err := l.awaitLocked(ctx, c, k)
	if err != nil {
		l.releaseLocked(k)
		return nil, nil, err
	}
	return k, conn, nil
}

// awaitLocked waits until k is up; meanwhile it does not hold the lock.
func (l *links) awaitLocked(ctx context.Context, c *oneCall, k *link) (*jsonrpc.Conn, error) {
	before := k.why
	for {
		wait := k.notBefore.Sub(l.opts.Now())
		switch {
		case l.closed:
			return nil, mayRetry(c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "this server is stopping; nothing was sent"))
		case k.conn != nil:
			return k.conn, nil
		case wait > 0 && k.change == nil, k.why != before:
			// Who has waited for an attempt shares its failure, however late it
			// learns of it.
			return nil, k.pausing(c, wait)
		case k.change != nil:
		default:
			if err := l.startLocked(c, k); err != nil {
				return nil, err
			}
		}
		change := k.change
		l.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if ctx.Err() != nil {
			return nil, c.timeUp(bridge.NotSent, "nothing was sent", ctx.Err())
		}
	}
}

// pausing says that a link failed lately, and when it is tried again.
func (k *link) pausing(c *oneCall, wait time.Duration) *bridge.ExchangeError {
	e := c.fail(k.why.Disposition, k.why.Err.Code, "%s", k.why.Err.Message)
	// The text of the failure names the place already.
	e.Err.Message = k.why.Err.Message
	e.Err.Retryable, e.Err.Details, e.Status = k.why.Err.Retryable, k.why.Err.Details, k.why.Status
	e.RetryAfter = max(wait.Round(time.Millisecond), time.Millisecond)
	return e
}

// findLocked gives the link of c's agent.
func (l *links) findLocked(c *oneCall) (*link, error) {
	key := c.key()
	if k := l.all[key]; k != nil {
		if !k.aged(l.opts.Now()) {
			return k, nil
		}
		l.retireLocked(k)
	}
	if len(l.all) >= maxLinks {
		maps.DeleteFunc(l.all, func(_ linkKey, k *link) bool {
			return k.conn == nil && k.change == nil && k.users == 0 && k.notBefore.Sub(l.opts.Now()) <= 0
		})
	}
	if len(l.all) >= maxLinks {
		e := mayRetry(c.fail(bridge.NotSent, parley.CodeAgentUnavailable, "more than %d agents on stdio and WebSocket at a time; nothing was sent", maxLinks))
		e.RetryAfter = time.Second
		return nil, e
	}
	k := &link{key: key, spent: make(chan struct{}), scheme: linkScheme(c.op.to.URL), target: linkTarget{c.op.to, c.op.task, c.op.agent}}
	l.all[key] = k
	return k, nil
}

func (l *links) release(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(k)
}

func (l *links) releaseLocked(k *link) {
	k.users--
	k.lastUsed = l.opts.Now()
	if k.old && k.users == 0 {
		close(k.spent)
	}
}

// aged reports whether a link that is up is too old for another call: the agent's
// name is to be resolved anew.
func (k *link) aged(now time.Time) bool {
	return k.conn != nil && !k.until.IsZero() && !now.Before(k.until)
}

// retireLocked takes a link that is up out of the pool. Calls under way, and those
// that have waited for it, end on it.
func (l *links) retireLocked(k *link) {
	delete(l.all, k.key)
	if k.old = true; k.users == 0 {
		close(k.spent)
	}
}

// startLocked begins to make the link of k, on behalf of all that wait for it.
func (l *links) startLocked(c *oneCall, k *link) error {
	if k.scheme == schemeStdio {
		if !l.opts.Stdio {
			return c.errorf(parley.CodeInvalid, "%s: this server does not run programs; start it with --allow-stdio, or run the agent yourself and register its http or ws URL", c.place())
		}
		if c.op.to.URL != c.op.agent.URL {
			// What an agent's card says must never be run.
			return c.errorf(parley.CodeInvalid, "%s: only the URL of the agent's own record may name a program", c.place())
		}
		if l.processes >= l.opts.Processes {
			e := mayRetry(c.fail(bridge.NotSent, parley.CodeAgentUnavailable,
				"%d agents run as processes already, which is the limit; an unused one ends after %v; nothing was sent", l.processes, linkIdle))
			e.RetryAfter = 10 * time.Second
			return e
		}
		l.processes++
	}
	k.change = make(chan struct{})
	k.target = linkTarget{c.op.to, c.op.task, c.op.agent}
	l.tasks.Go(func() { l.run(k) })
	return nil
}

// run makes the link of k, keeps it until it ends, fails, or is not used any
// more, and waits for its process.
func (l *links) run(k *link) {
	stream, err := l.opts.Dial(l.ctx, k.target)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failedLocked(k, k.target.refused(err))
		l.downLocked(k)
		return
	}
	conn := jsonrpc.NewConn(stream, l.connConfig(k))
	l.mu.Lock()
	now := l.opts.Now()
	k.conn, k.upSince, k.lastUsed = conn, now, now
	close(k.change)
	k.change = nil
	if k.scheme != schemeStdio {
		k.failures = 0
		k.until = k.upSince.Add(l.opts.Exchange.Lifetime())
	}
	l.mu.Unlock()

	failed := l.watch(k, conn)
	_ = conn.Close() // what ended it is in conn.Err
	err = conn.Err()
	if p, ok := stream.(*child); ok {
		<-p.gone
		err = p.told(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if failed {
		if l.opts.Now().Sub(k.upSince) >= healthyAfter {
			k.failures = 0
		}
		if k.scheme == schemeStdio {
			l.failedLocked(k, k.target.ended(err))
		}
	}
	l.opts.Logger.LogAttrs(l.ctx, slog.LevelDebug, "agent_link_down", slog.String("agent", k.target.agent.Name))
	l.downLocked(k)
}

// watch waits for the end of conn, takes it out of use, and says whether the
// end was the agent's.
func (l *links) watch(k *link, conn *jsonrpc.Conn) (failed bool) {
	idle := time.NewTimer(linkIdle)
	defer idle.Stop()
	for {
		over := false
		select {
		case <-conn.Done():
			failed, over = true, true
		case <-l.ctx.Done():
			over = true
		case <-k.spent:
			over = true
		case <-idle.C:
		}
		l.mu.Lock()
		rest := linkIdle
		if k.users == 0 {
			rest -= l.opts.Now().Sub(k.lastUsed)
		}
		if over || rest <= 0 {
			k.conn, k.change = nil, make(chan struct{})
			l.mu.Unlock()
			return failed
		}
		l.mu.Unlock()
		idle.Reset(rest)
	}
}

// failedLocked notes a failure and the pause that follows from it.
func (l *links) failedLocked(k *link, why *bridge.ExchangeError) {
	p := paceOf(k.scheme)
	k.failures++
	pause := p.most
	if shift := k.failures - 1; shift < 16 {
		pause = min(p.first<<shift, p.most)
	}
	pause -= time.Duration(l.opts.Random() * float64(pause) / 2)
	k.why, k.notBefore = why, l.opts.Now().Add(pause)
	if l.closed {
		return
	}
	l.opts.Logger.LogAttrs(l.ctx, slog.LevelWarn, "agent_link_failed", slog.String("agent", k.target.agent.Name),
		slog.String("error", why.Err.Message), slog.Int("failures", k.failures), slog.Duration("pause", pause))
}

// downLocked ends the change of k to being down.
func (l *links) downLocked(k *link) {
	if k.scheme == schemeStdio {
		l.processes--
	}
	close(k.change)
	k.change = nil
	if !k.old && k.users == 0 && k.failures == 0 {
		delete(l.all, k.key)
	}
}

// close ends all links, the processes in order, and waits for them. Calls that
// come later are not sent. It may be called again.
func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.tasks.Wait()
}
