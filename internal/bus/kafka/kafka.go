package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/parley-project/parley/internal/bus"
)

// ErrClosed is what Publish and Subscribe say after Close.
var ErrClosed = errors.New("bus: closed")

// Time limits of what happens in the background.
const (
	pingLimit   = 10 * time.Second // New, to reach a broker
	pingNext    = time.Second      // until another broker is asked beside one
	dialLimit   = 10 * time.Second // a connection, TLS included
	revokeLimit = 5 * time.Second  // handlers of a partition that has to go
	commitLimit = 5 * time.Second  // one commit of offsets
	leaveLimit  = 2 * time.Second  // to part with brokers
	flushLimit  = 5 * time.Second  // Close, for what is being published
	silentLimit = 100 * time.Millisecond
	adminLimit  = 15 * time.Second // one look at topics and groups
)

// metadataAge is after how long a client asks anew which topics and brokers
// there are, at the latest.
const metadataAge = 30 * time.Second

// clientID is the name that quotas of the brokers may be for.
const clientID = "parley"

// pollRecords bounds the records that are taken over at a time.
const pollRecords = 500

// Bus is a [bus.Bus] and a [bus.Deferred] over Kafka. The caller closes it. It
// is a prometheus.Collector, too.
type Bus struct {
	cfg    Config
	client *kgo.Client // asks; consumes nothing
	writer *writer
	admin  *kadm.Client
	state  *state
	counts *counters
	// repeats is of all clients.
	repeats *repeats

	// setup is held while a subscription is made or ended, which takes round
	// trips: a lock that can be waited for with a context. It protects what follows.
	setup  chan struct{}
	tail   *tail
	closed bool
	// ids are those of the topics that are read.
	ids map[string]origin
	// unplaced are those of another cluster in which a group has no place to begin at yet: no
	// group reads them, from their starts things would be acted upon again.
	unplaced map[string]bool

	mu     sync.Mutex // protects groups and tail, which change while setup is held, too, and ending
	groups map[string]*group
	ending bool // nobody is asked any more

	// down are the brokers that cannot be connected to.
	down downs

	// silent: brokers have said nothing to the last thing that they were asked with a
	// limit. Who ends does not ask them again and again, each time to that limit.
	silent atomic.Bool

	// written has the ids ([kadm.TopicID]) of the topics that were written to; purging is
	// held while it is looked whether one of them was made anew.
	written sync.Map
	purging sync.Mutex

	ended chan struct{}
	once  sync.Once
	// gained asks for a look at the lag, since there are partitions that have none.
	gained chan struct{}
	asking sync.WaitGroup // of looks whether a broker answers, and at the lag
	unlook context.CancelFunc
}

var (
	_ bus.Bus      = (*Bus)(nil)
	_ bus.Deferred = (*Bus)(nil)
)

// New makes a Bus when a broker answers. Brokers that cannot be reached, a login
// that is refused and TLS that fails are named in the error, within 10 seconds.
func New(ctx context.Context, cfg Config) (*Bus, error) {
	cfg, err := complete(cfg)
	if err != nil {
		return nil, err
	}
	b := &Bus{
		cfg: cfg, state: newState(cfg.Now, cfg.Logger), repeats: newRepeats(cfg.Now), counts: newCounters(), setup: make(chan struct{}, 1),
		groups: make(map[string]*group), ids: make(map[string]origin), unplaced: make(map[string]bool), ended: make(chan struct{}), gained: make(chan struct{}, 1),
	}
	another := func(more ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(slices.Concat(b.options(), publishingOptions(cfg), more)...)
	}
	if b.client, err = another(); err != nil {
		return nil, explain(err, "bus.kafka")
	}
	if err := b.ping(ctx); err != nil {
		b.client.Close()
		b.asking.Wait()
		return nil, err
	}
	b.writer = newWriter(b.client, another, cfg.Now)
	b.admin = kadm.NewClient(b.client)
	looking, unlook := context.WithCancel(context.Background()) //nolint:gosec // Close ends it
	b.unlook = unlook
	b.asking.Go(func() { b.watchLag(looking) })
	b.asking.Go(func() { b.watchTopics(looking) })
	return b, nil
}

// publishingOptions are those of a client that publishes.
func publishingOptions(cfg Config) []kgo.Opt {
	return []kgo.Opt{
		kgo.ProducerLinger(cfg.Linger), kgo.ProducerBatchCompression(codec(cfg.Compression)),
		kgo.ProducerBatchMaxBytes(batchBytes(cfg.MaxRecord)), kgo.MaxBufferedBytes(64 << 20),
		// A topic that is not there is said so, not waited for.
		kgo.UnknownTopicRetries(2),
	}
}

// batchBytes leaves room for what a batch adds to its one record.
func batchBytes(record int) int32 { return int32(max(record+64<<10, 1_000_012)) } //nolint:gosec // at most 64 MiB

func codec(name string) kgo.CompressionCodec {
	if name == "gzip" {
		return kgo.GzipCompression()
	}
	return kgo.NoCompression()
}

// options are those of every client of this bus.
func (b *Bus) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(b.cfg.Brokers...), kgo.ClientID(clientID), kgo.Dialer(b.dial),
		// A new leader is found quickly, and new partitions are seen soon.
		kgo.MetadataMinAge(250 * time.Millisecond), kgo.MetadataMaxAge(metadataAge),
		// A broker that closes connections at once may be one that starts.
		kgo.AlwaysRetryEOF(), kgo.WithHooks(b.state), kgo.WithLogger(clientLog{b.cfg.Logger, b.repeats}),
	}
	if b.cfg.SASL != nil {
		opts = append(opts, kgo.SASL(mechanism(b.cfg.SASL)))
	}
	return opts
}

// dial opens a connection to a broker. The library gives that no limit, and has all that
// is asked of the broker wait for it; now and then it asks one of those that it began with,
// though one that is down answers nothing.
func (b *Bus) dial(ctx context.Context, network, address string) (net.Conn, error) {
	began := b.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, b.down.limit(address, began))
	defer cancel()
	conn, err := b.connect(ctx, network, address)
	b.down.dialed(address, b.cfg.Now(), b.cfg.Now().Sub(began), ctx.Err())
	return conn, err
}

func (b *Bus) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := b.cfg.Dialer(ctx, network, address)
	if err != nil && !slices.Contains(b.cfg.Brokers, address) {
		err = &elsewhereError{address: address, err: err}
	}
	if err != nil || b.cfg.TLS == nil {
		return conn, err
	}
	secure, err := b.secure(ctx, conn, address)
	if err != nil {
		_ = conn.Close()
		return nil, &tlsError{address: address, err: err}
	}
	return secure, nil
}

// secure encrypts a connection.
func (b *Bus) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	c, err := b.cfg.TLS()
	if err != nil {
		return nil, err
	}
	if c.ServerName == "" {
		c = c.Clone()
		c.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(conn, c)
	return secure, secure.HandshakeContext(ctx)
}

func mechanism(s *SASL) sasl.Mechanism {
	byPassword := func(ctx context.Context) (scram.Auth, error) {
		password, err := s.secret(ctx)
		return scram.Auth{User: s.User, Pass: password}, err
	}
	switch s.Mechanism {
	case Plain:
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := s.secret(ctx)
			return plain.Auth{User: s.User, Pass: password}, err
		})
	case ScramSHA256:
		return scram.Sha256(byPassword)
	case ScramSHA512:
		return scram.Sha512(byPassword)
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := s.secret(ctx)
		return oauth.Auth{Token: token}, err
	})
}

// secretLimit is how long the giving of a secret may take.
const secretLimit = 10 * time.Second

// secret asks for the secret as it is now.
func (s SASL) secret(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, secretLimit)
	defer cancel()
	secret, err := s.Secret(ctx)
	if err != nil {
		return "", &secretError{s.Mechanism, err}
	}
	return secret, nil
}

// lock begins the making or ending of a subscription.
func (b *Bus) lock(ctx context.Context) error {
	select {
	case b.setup <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Bus) unlock() { <-b.setup }

// Subscribe implements [bus.Bus]. ctx bounds the making of the subscription and
// gives its values to the handler; it does not end it. A group that has
// committed offsets goes on from them; a new one begins with what is published
// from now on, or with what Config.Lookback says. stop must not be called by the handler.
func (b *Bus) Subscribe(ctx context.Context, subject, group string, h bus.Handler) (stop func(), err error) {
	handle := func(ctx context.Context, m bus.Message, done func()) {
		if err := h(ctx, m); err != nil {
			b.counts.failed(subject)
			b.cfg.Logger.WarnContext(ctx, "message not handled", "subject", subject, "key", m.Key, "group", group,
				"partition", m.At.Partition, "offset", m.At.Offset, "error", err)
		}
		done()
	}
	if group == "" {
		return b.subscribeTail(ctx, subject, handle)
	}
	return b.subscribeGroup(ctx, subscription{subject: subject, group: group, handle: handle})
}

// SubscribeDeferred implements [bus.Deferred]. A done that is called after stop,
// or after the message's partition has moved, does nothing.
func (b *Bus) SubscribeDeferred(
	ctx context.Context, subject, group string, h func(ctx context.Context, m bus.Message, done func()),
) (stop func(), err error) {
	if group == "" {
		return nil, noGroup(subject)
	}
	return b.subscribeGroup(ctx, subscription{subject: subject, group: group, handle: h, deferred: true})
}

// atEnd shortens a limit of what is asked at the end, if brokers say nothing.
func (b *Bus) atEnd(limit time.Duration) time.Duration {
	if b.silent.Load() {
		return silentLimit
	}
	return limit
}

// part has a client that consumes say goodbye and end. Brokers that say nothing are not
// waited for as long as the client would, which giveUp ends: sessions end without them.
func (b *Bus) part(giveUp context.CancelFunc, goodbye func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), b.atEnd(leaveLimit))
	defer cancel()
	context.AfterFunc(ctx, giveUp)
	goodbye(ctx)
	if ctx.Err() != nil {
		b.silent.Store(true)
	}
}

// Close ends all subscriptions, waits for their handlers and, up to 5 seconds,
// for what is being published, and lets go of the connections. A process with an
// InstanceID stays a member of its groups for SessionTimeout. It may be called
// again.
func (b *Bus) Close() error {
	b.once.Do(func() { close(b.ended) })
	_ = b.lock(context.Background())
	defer b.unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	for name, g := range b.list() {
		g.close()
		b.set(name, nil)
	}
	if b.tail != nil {
		b.tail.close()
		b.setTail(nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.atEnd(flushLimit))
	defer cancel()
	err := b.writer.flush(ctx)
	b.mu.Lock()
	b.ending = true
	b.mu.Unlock()
	b.unlook()
	b.writer.close()
	b.client.Close()
	b.asking.Wait()
	if err != nil {
		return explain(err, "flush")
	}
	return nil
}
