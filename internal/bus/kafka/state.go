package kafka

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	parley "github.com/parley-project/parley"
)

// What failed says nothing any more when it was not seen again for longer than
// whoever tries again waits: who publishes, and the client, which reads on by
// itself and tells each failure, at most metadataAge apart.
const (
	connection  = "broker "     // begins the Where of a connection
	publishing  = "publish to " // begins the Where of a publication
	publishPast = 30 * time.Second
	reading     = "topic "          // begins the Where of a topic that is consumed
	holding     = "transaction in " // begins the Where of a topic that a transaction holds back
	readPast    = 2 * metadataAge
)

// Trouble is something that does not work at present.
type Trouble struct {
	// Where is what it happened to, such as "group parley-executor".
	Where string
	// Text says what happened and what to do.
	Text string
	// Since is when it was first seen, Last when last.
	Since, Last time.Time
	// told says that its beginning is in the log, code what it was then.
	told bool
	code parley.Code
}

// State is what a bus knows of itself without asking anybody.
type State struct {
	// Connected says that a broker has answered lately and none that was tried
	// since refused.
	Connected bool
	// Heard is when a broker last answered.
	Heard time.Time
	// Troubles are sorted by Where.
	Troubles []Trouble
	// Assigned are the partitions per group and topic that are this process's.
	Assigned map[string]map[string][]int32
}

// state collects what the clients notice. Its hooks are called concurrently.
type state struct {
	now     func() time.Time
	log     *slog.Logger
	repeats *repeats
	// unanswered counts the requests to write that brokers may have got and did not answer.
	unanswered atomic.Int64

	mu       sync.Mutex // protects what follows
	heard    time.Time
	held     time.Time // when a quota last held this process back
	troubles map[string]*Trouble
}

func newState(now func() time.Time, log *slog.Logger) *state {
	return &state{now: now, log: log, repeats: newRepeats(now), troubles: make(map[string]*Trouble)}
}

// note says how it stands with something; nil is well. The log has the beginning and the
// end of a trouble, but of one that comes and goes only now and then, and that it is of
// another kind now, for which something else is to be done; of connections the library
// tells.
func (s *state) note(where string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if e := s.troubles[where]; e != nil && e.told {
			s.log.Info("what was wrong with Kafka is over", "where", where, "since", e.Since)
		}
		delete(s.troubles, where)
		return
	}
	e := s.troubles[where]
	if e == nil {
		e = &Trouble{Where: where, Since: s.now()}
		s.troubles[where] = e
	}
	e.Text, e.Last = err.Error(), s.now()
	code := parley.CodeOf(err)
	if e.told && e.code == code || strings.HasPrefix(where, connection) {
		return
	}
	what := e.Text
	if e.told {
		what = string(code) // texts may differ with each try
	}
	if _, ok := s.repeats.due(where + " " + what); ok {
		e.told, e.code = true, code
		s.log.Warn("something is wrong with Kafka", "where", where, "error", err)
	}
}

// noteAll notes how it stands with all whose Where begins with prefix: with those that are
// not listed well.
func (s *state) noteAll(prefix string, wrong map[string]error) {
	s.mu.Lock()
	known := slices.Collect(maps.Keys(s.troubles))
	s.mu.Unlock()
	for _, where := range known {
		if name, ok := strings.CutPrefix(where, prefix); ok && wrong[name] == nil {
			s.note(where, nil)
		}
	}
	for name, err := range wrong {
		s.note(prefix+name, err)
	}
}

// forget drops what was noted of something that is no more.
func (s *state) forget(where string) { s.note(where, nil) }

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (s *state) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	where := connection + net.JoinHostPort(meta.Host, portOf(meta))
	if errors.Is(err, context.Canceled) {
		return // it was given up on this side
	}
	if err != nil {
		advice := brokerAdvice(err)
		if advice != "" {
			advice = "; " + advice
		}
		err = parley.Errorf(parley.CodeUnavailable, "no connection: %w%s", err, advice)
	}
	s.note(where, err)
}

// OnBrokerE2E implements [kgo.HookBrokerE2E].
func (s *state) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.Err() != nil {
		if key == int16(kmsg.Produce) {
			s.unanswered.Add(1)
		}
		return
	}
	s.mu.Lock()
	s.heard = s.now()
	s.mu.Unlock()
}

// heldBack is from when on it is worth telling that a quota makes a process wait.
const heldBack = time.Second

// OnBrokerThrottle implements [kgo.HookBrokerThrottle]. Work goes on, only slower.
func (s *state) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	if wait < heldBack {
		return
	}
	s.mu.Lock()
	s.held = s.now()
	s.mu.Unlock()
	if left, ok := s.repeats.due("quota"); ok {
		s.log.Warn("a quota of Kafka holds this process back; raise producer_byte_rate, consumer_byte_rate or request_percentage of its user or client id",
			"client_id", clientID, "wait", wait, "left_out", left)
	}
}

// State gives what the bus knows now.
func (b *Bus) State() State {
	b.state.mu.Lock()
	s := State{Heard: b.state.heard, Assigned: make(map[string]map[string][]int32)}
	for _, where := range slices.Sorted(maps.Keys(b.state.troubles)) {
		s.Troubles = append(s.Troubles, *b.state.troubles[where])
	}
	b.state.mu.Unlock()
	s.Connected = !s.Heard.IsZero() && !slices.ContainsFunc(s.Troubles, func(t Trouble) bool {
		return strings.HasPrefix(t.Where, connection) && t.Last.After(s.Heard)
	})
	for name, g := range b.list() {
		topics := make(map[string][]int32)
		for _, p := range g.partitions() {
			topics[p.topic] = append(topics[p.topic], p.partition)
		}
		for _, partitions := range topics {
			slices.Sort(partitions)
		}
		s.Assigned[name] = topics
	}
	return s
}

// delays tells of brokers that cannot be reached now, and of a quota that has held this
// process back lately; "" if there is none of it.
func (s *state) delays() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	if !s.held.IsZero() && s.now().Sub(s.held) < publishPast {
		all = append(all, "a quota of the brokers holds this process back")
	}
	for _, where := range slices.Sorted(maps.Keys(s.troubles)) {
		if strings.HasPrefix(where, connection) {
			all = append(all, where+": "+s.troubles[where].Text)
		}
	}
	return strings.Join(all, "; ")
}

// ping asks any broker, for as long as ctx lets it and at most pingLimit. The client
// may go on waiting for a connection after that; Close waits for it.
func (b *Bus) ping(ctx context.Context) error {
	within := pingLimit
	if at, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(at))
	}
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	answer := make(chan error, 1)
	b.mu.Lock()
	if b.ending {
		b.mu.Unlock()
		cancel()
		return ErrClosed
	}
	b.asking.Go(func() {
		defer cancel()
		answer <- b.askAny(ctx)
	})
	b.mu.Unlock()
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		select {
		case err = <-answer:
		default:
			err = ctx.Err()
		}
	}
	if err == nil {
		return nil
	}
	return b.explainPing(err, within.Round(100*time.Millisecond))
}

// askAny asks one broker after the other, and gives nil as soon as one has answered. One
// that says nothing, since its machine is down, keeps nobody from asking the next. The
// error is that of the last one.
func (b *Bus) askAny(ctx context.Context) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	known := b.client.DiscoveredBrokers()
	brokers := slices.Concat(known, b.client.SeedBrokers())
	type answer struct {
		from int
		err  error
	}
	answers := make(chan answer, len(brokers))
	next := time.NewTimer(0)
	defer next.Stop()
	var last answer
	for asked, answered := 0, 0; answered < len(brokers); {
		more := next.C
		if asked == len(brokers) {
			more = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-more:
			from := asked
			b.asking.Go(func() { answers <- answer{from, b.ask(asking, brokers[from])} })
			asked++
			next.Reset(pingNext)
		case last = <-answers:
			if last.err == nil && len(known) == 0 {
				b.lead(ctx, last.from)
			}
			if last.err == nil {
				return nil
			}
			answered++
			next.Reset(0)
		}
	}
	return last.err
}

// ask asks one broker for the others.
func (*Bus) ask(ctx context.Context, broker *kgo.Broker) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none; without a list it would be all
	_, err := broker.Request(ctx, req)
	return err
}

// lead has the client learn of the brokers from that one of those it begins with which has
// answered: else it would ask any of them, and wait for one that says nothing.
func (b *Bus) lead(ctx context.Context, number int) {
	if number > 0 {
		_ = b.client.UpdateSeedBrokers(slices.Concat(b.cfg.Brokers[number:], b.cfg.Brokers[:number])...) // they were read before
	}
	_ = b.client.Ping(ctx) // the next request asks again
}

// Health gives nil when a broker has answered in the last 5 seconds (one is
// asked if not) and nothing that this process does with Kafka is in trouble. A
// broker that cannot be reached is no trouble while others are, and neither is a
// publication or a read that failed a while ago and did not fail since: a process
// that gets no work because of it would never publish again, and a topic without
// news never show that it can be read. Nor is a transaction of somebody else that holds
// a partition back: no other process could read it either. An error names topics, groups
// and brokers: it wraps what was seen, and is for the log.
func (b *Bus) Health(ctx context.Context) error {
	if s := b.State(); b.cfg.Now().Sub(s.Heard) > 5*time.Second {
		if err := b.ping(ctx); err != nil {
			return err
		}
	}
	for _, t := range b.State().Troubles {
		age := b.cfg.Now().Sub(t.Last)
		past := strings.HasPrefix(t.Where, publishing) && age > publishPast || strings.HasPrefix(t.Where, reading) && age > readPast
		if !past && !strings.HasPrefix(t.Where, connection) && !strings.HasPrefix(t.Where, holding) {
			// Wrapped, it is not taken for words of ours that everybody may read.
			return parley.Errorf(parley.CodeUnavailable, "%s: %w", t.Where, errors.New(t.Text))
		}
	}
	return nil
}
