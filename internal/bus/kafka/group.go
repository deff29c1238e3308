package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// subscription is what is asked of a group.
type subscription struct {
	subject  string
	group    string
	handle   handleFunc
	deferred bool
}

// feed is one subject of a group in this process.
type feed struct {
	subscription
	topic string
	queue *queue
}

// group is this process's one member of a consumer group: all subscriptions of
// the process under this name share it.
type group struct {
	bus    *Bus
	name   string
	client *kgo.Client
	// shut closes the client, once: the library does not bear two at a time.
	shut   func()
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// wake tells the steward that there may be something to commit or to let
	// flow again.
	wake chan struct{}
	// bytes are those of all records that are not done, paused the number of
	// partitions that wait for them.
	bytes  atomic.Int64
	paused atomic.Int32
	fenced atomic.Bool
	// committing is held from the look at what is due to the answer, so that no
	// commit of before a rebalance overtakes one of after it.
	committing sync.Mutex

	mu      sync.Mutex // protects what follows
	feeds   map[string]*feed
	parts   map[place]*partition
	anchors map[place]int64
}

func (b *Bus) subscribeGroup(ctx context.Context, s subscription) (stop func(), err error) {
	topic := b.topic(s.subject)
	if topic == "" {
		return nil, noTopic(s.subject)
	}
	if s.subject == bus.SubjectProgress {
		// A group shares out the sum of its partitions: one executor could have
		// all of this topic, and the other all wake-ups.
		s.group += "-progress"
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	if b.closed {
		return nil, ErrClosed
	}
	g := b.list()[s.group]
	if g != nil {
		if f := g.feed(topic); f != nil {
			return b.joinFeed(ctx, g, f, s)
		}
	}
	anchors, err := b.anchor(ctx, s.subject, s.group, false)
	if err != nil {
		return nil, err
	}
	f := &feed{subscription: s, topic: topic, queue: newQueue(b.cfg.Workers)}
	stop, err = b.joinFeed(ctx, nil, f, s)
	if err != nil {
		return nil, err
	}
	if g == nil {
		if g, err = b.newGroup(s.group); err != nil {
			return nil, explain(err, "group "+s.group)
		}
		b.set(s.group, g)
	} else {
		g.anchor(topic, anchors)
	}
	g.add(f, anchors)
	return stop, nil
}

// joinFeed adds a member to a feed.
func (b *Bus) joinFeed(ctx context.Context, g *group, f *feed, s subscription) (stop func(), err error) {
	if f.deferred != s.deferred {
		return nil, parley.Errorf(parley.CodeInvalid, "%s as %s: subscribed to with the other kind of acknowledgement already", s.subject, s.group)
	}
	if g != nil && g.fenced.Load() {
		return nil, explain(kerr.FencedInstanceID, "group "+s.group)
	}
	m := newMember(ctx, s.handle)
	f.queue.join(m)
	return func() { b.leave(s.group, f, m) }, nil
}

// leave ends one subscription. Nobody can subscribe while it waits for the
// handlers, whose context has ended.
func (b *Bus) leave(name string, f *feed, m *member) {
	_ = b.lock(context.Background())
	defer b.unlock()
	last := f.queue.part(m)
	m.cancel()
	m.running.Wait()
	g := b.list()[name]
	switch {
	case !last || g == nil || g.feed(f.topic) != f:
	case g.remove(f):
		g.close()
		b.set(name, nil)
	case !g.unlearn(f.topic):
		if err := b.rejoin(g); err != nil {
			g.note(explain(err, "group "+g.name))
		}
	}
}

// set enters a group, or takes it out.
func (b *Bus) set(name string, g *group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g == nil {
		delete(b.groups, name)
		return
	}
	b.groups[name] = g
}

func (b *Bus) newGroup(name string) (*group, error) {
	g := &group{
		bus: b, name: name, wake: make(chan struct{}, 1),
		feeds: make(map[string]*feed), parts: make(map[place]*partition), anchors: make(map[place]int64),
	}
	opts := append(b.options(), fetching()...)
	opts = append(opts,
		kgo.ConsumerGroup(name), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(b.cfg.SessionTimeout), kgo.HeartbeatInterval(b.cfg.SessionTimeout/4), kgo.RebalanceTimeout(30*time.Second),
		kgo.OnPartitionsAssigned(g.assigned), kgo.OnPartitionsRevoked(g.revoked), kgo.OnPartitionsLost(g.lost),
		kgo.AdjustFetchOffsetsFn(g.begin), kgo.WithHooks(groupHook{g}),
		// The mark at the end of a transaction is to be passed like a record: else who has read
		// all of a topic that ends with one would seem to be behind for good.
		kgo.KeepControlRecords(),
	)
	if b.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(b.cfg.InstanceID))
	}
	asking, giveUp := context.WithCancel(context.Background())
	client, err := kgo.NewClient(append(opts, kgo.WithContext(asking))...)
	if err != nil {
		giveUp()
		return nil, err
	}
	g.client, g.shut = client, sync.OnceFunc(func() { g.quit(giveUp) })
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.tasks.Go(func() { g.poll(ctx) })
	g.tasks.Go(func() { g.steward(ctx) })
	return g, nil
}

// fetching are the options of every consumer.
func fetching() []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.FetchMaxBytes(8 << 20), kgo.FetchMaxPartitionBytes(1 << 20), kgo.MaxDecompressBatchBytes(64 << 20),
	}
}

func (g *group) feed(topic string) *feed {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.feeds[topic]
}

// add begins to consume a topic.
func (g *group) add(f *feed, anchors map[int32]int64) {
	g.keep(f)
	g.hold(f.topic, anchors)
	g.client.AddConsumeTopics(f.topic)
}

// keep has a feed whose topic is not consumed.
func (g *group) keep(f *feed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.feeds[f.topic] = f
}

// hold keeps the places to begin at that only a member may commit.
func (g *group) hold(topic string, anchors map[int32]int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for partition, offset := range anchors {
		g.anchors[place{topic, partition}] = offset
	}
}

// anchor commits the places to begin at as the member that this process is. If
// it cannot, they are used when partitions are assigned.
func (g *group) anchor(topic string, anchors map[int32]int64) {
	if len(anchors) == 0 {
		return
	}
	offsets := make(map[int32]kgo.EpochOffset)
	for partition, offset := range anchors {
		offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitLimit)
	defer cancel()
	g.committing.Lock()
	defer g.committing.Unlock()
	g.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: offsets}, nil)
}

// remove ends the consuming of a topic that nobody here subscribes to, and says
// whether it was the last: then close has the rest to do.
func (g *group) remove(f *feed) (empty bool) {
	f.queue.tasks.Wait()
	g.mu.Lock()
	empty = len(g.feeds) == 1
	g.mu.Unlock()
	if empty {
		return true
	}
	g.commitAtEnd()
	g.mu.Lock()
	delete(g.feeds, f.topic)
	maps.DeleteFunc(g.anchors, func(at place, _ int64) bool { return at.topic == f.topic })
	g.mu.Unlock()
	g.end(g.drop(g.parted(func(at place) bool { return at.topic == f.topic })))
	g.bus.state.forget(g.where(f.topic))
	return false
}

// unlearn has the client forget a topic, which waits for what it is asking brokers. It
// reports whether that was done; if they say nothing another client has to do the rest.
func (g *group) unlearn(topic string) bool {
	done := make(chan struct{})
	g.tasks.Go(func() {
		defer close(done)
		g.client.PurgeTopicsFromConsuming(topic)
	})
	select {
	case <-done:
		return true
	case <-time.After(g.bus.atEnd(leaveLimit)):
		g.bus.silent.Store(true)
		return false
	}
}

// parted gives the partitions of which that is so, as the client library names them.
func (g *group) parted(is func(place) bool) map[string][]int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make(map[string][]int32)
	for at := range g.parts {
		if is(at) {
			list[at.topic] = append(list[at.topic], at.partition)
		}
	}
	return list
}

// close ends the membership: with an instance id it stays until the session
// times out, so that a restarted process goes on with its partitions.
func (g *group) close() {
	g.mu.Lock()
	feeds := slices.Collect(maps.Values(g.feeds))
	g.mu.Unlock()
	for _, f := range feeds {
		f.queue.disband()
		g.bus.state.forget(g.where(f.topic))
	}
	g.cancel() // the last commit has what one that is on its way has, too
	g.commitAtEnd()
	// What could not be committed now is not tried again when they are revoked.
	g.end(g.drop(g.parted(func(place) bool { return true })))
	g.shut()
	g.tasks.Wait()
	g.bus.state.forget("group " + g.name)
}

// quit leaves the group, and closes the client.
func (g *group) quit(giveUp context.CancelFunc) {
	g.bus.part(giveUp, func(ctx context.Context) {
		g.client.AllowRebalance()
		_ = g.client.LeaveGroupContext(ctx) // who does not hear it sees the session end
		g.client.CloseAllowingRebalance()
	})
}

// poll takes over what the client has fetched.
func (g *group) poll(ctx context.Context) {
	for {
		fetches := g.client.PollRecords(ctx, pollRecords)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			break
		}
		fetches.EachError(func(topic string, partition int32, err error) { g.failed(ctx, topic, partition, err) })
		fetches.EachPartition(g.take)
		g.client.AllowRebalance()
	}
	g.client.AllowRebalance()
	if g.fenced.Load() {
		// To join again could throw another process out in its turn.
		g.shut()
	}
}

// take registers the records of one partition and hands them on.
func (g *group) take(fetched kgo.FetchTopicPartition) {
	at := place{fetched.Topic, fetched.Partition}
	g.mu.Lock()
	part, f := g.parts[at], g.feeds[at.topic]
	g.mu.Unlock()
	if part == nil || f == nil {
		return
	}
	if len(fetched.Records) > 0 {
		g.bus.state.note(g.where(at.topic), nil)
		g.tellGone(part, fetched.LogStartOffset)
	}
	part.sawEnd(fetched.HighWatermark)
	items := make([]item, 0, len(fetched.Records))
	for _, r := range fetched.Records {
		if r.Attrs.IsControl() {
			part.skip(r)
			g.nudge()
			continue
		}
		size := sizeOf(r)
		e := part.receive(r, size)
		if e == nil {
			return
		}
		g.bytes.Add(size)
		items = append(items, item{message: decode(f.subject, r), part: part, size: size, deferred: f.deferred, done: func() { g.acknowledge(part, e) }})
	}
	f.queue.add(items)
	if _, due := part.due(); due {
		g.nudge() // the log may have gone back behind what was committed
	}
	g.press(part)
}

// tellGone says that records were deleted before this group has read them.
func (g *group) tellGone(part *partition, start int64) {
	if from, gone := part.goneUpTo(start); gone {
		g.bus.cfg.Logger.Warn("records were deleted before they were read; look at retention.ms and retention.bytes of the topic",
			"topic", part.topic, "partition", part.partition, "group", g.name, "from", from, "next", start)
	}
}

func (g *group) acknowledge(part *partition, e *entry) {
	advanced, freed := part.ack(e)
	if freed > 0 {
		g.bytes.Add(-freed)
	}
	if advanced || freed > 0 && g.paused.Load() > 0 {
		g.nudge()
	}
}

func (g *group) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// failed notes an error that the client cannot get over by itself.
func (g *group) failed(ctx context.Context, topic string, partition int32, err error) {
	if huge, ok := errors.AsType[*kgo.ErrDecompressTooLarge](err); ok {
		g.bus.cfg.Logger.Error("records left out: a batch is too large when unpacked", "topic", topic, "partition", partition,
			"offset", huge.Offset, "next", huge.NextOffset, "group", g.name)
		g.skip(huge)
		return
	}
	g.bus.counts.fetchError(topic)
	if topic == "" {
		g.note(explain(err, "group "+g.name, toJoin(g.name)))
		return
	}
	g.rest(ctx, place{topic, partition})
	g.tellUnread(topic, explain(err, "consume "+topic+" as "+g.name, toRead(topic), toJoin(g.name)), "partition", partition)
}

// tellUnread says why a topic cannot be read. Of somebody else's topic only the log has it, now
// and then.
func (g *group) tellUnread(topic string, err error, more ...any) {
	if !g.feed(topic).isForeign() {
		g.bus.state.note(g.where(topic), err)
		return
	}
	if left, ok := g.bus.repeats.due(g.where(topic)); ok {
		g.bus.cfg.Logger.Warn("a topic cannot be read; that is tried again",
			append([]any{"topic", topic, "group", g.name, "left_out", left, "error", err}, more...)...)
	}
}

// readAgain is how long a partition that cannot be read is left alone: brokers say so at
// once, and the client would ask again at once.
const readAgain = time.Second

// rest leaves a partition alone for a while. The caller is one of the group's tasks.
func (g *group) rest(ctx context.Context, at place) {
	only := map[string][]int32{at.topic: {at.partition}}
	g.client.PauseFetchPartitions(only)
	g.tasks.Go(func() {
		if !rested(ctx) {
			return
		}
		g.mu.Lock()
		part := g.parts[at]
		g.mu.Unlock()
		if part != nil {
			part.mu.Lock()
			defer part.mu.Unlock()
			if part.paused { // it has too much open besides
				return
			}
		}
		g.client.ResumeFetchPartitions(only)
	})
}

// rested waits until a partition may be read again; it is false if ctx has ended.
func rested(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(readAgain):
		return true
	}
}

// where names the consuming of a topic in the state.
func (g *group) where(topic string) string { return reading + topic + " in group " + g.name }

// skip goes past a batch that cannot be unpacked.
func (g *group) skip(huge *kgo.ErrDecompressTooLarge) {
	at := place{huge.Topic, huge.Partition}
	g.mu.Lock()
	part := g.parts[at]
	g.mu.Unlock()
	if part == nil {
		return
	}
	g.client.SetOffsets(past(huge))
	part.skip(&kgo.Record{Offset: huge.NextOffset - 1, LeaderEpoch: huge.Epoch})
	g.nudge()
}

// past is where reading goes on behind a batch that cannot be unpacked.
func past(huge *kgo.ErrDecompressTooLarge) map[string]map[int32]kgo.EpochOffset {
	return map[string]map[int32]kgo.EpochOffset{huge.Topic: {huge.Partition: {Epoch: huge.Epoch, Offset: huge.NextOffset}}}
}

func (g *group) note(err error) { g.bus.state.note("group "+g.name, err) }
