package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lookInterval is how often a topic is looked at for new partitions.
const lookInterval = 10 * time.Second

// listener is one subscription without a group.
type listener struct {
	subject string
	topic   string
	queue   *queue
	// from are the ends at the time of the subscription; partitions that came
	// later are read from their start.
	from map[int32]int64
}

// tail reads topics from their ends for everybody of this process who has
// subscribed without a group: one client, and each record is fetched once.
type tail struct {
	bus    *Bus
	client *kgo.Client
	giveUp context.CancelFunc // ends what the client is waiting for
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wake   chan struct{}

	mu        sync.Mutex // protects what follows
	listeners map[string][]*listener
	reading   map[string]map[int32]*partition // of which only the ends are followed
	paused    map[string]bool
	// left are topics that the client still knows, and nobody listens to.
	left map[string]bool
}

func (b *Bus) subscribeTail(ctx context.Context, subject string, h handleFunc) (stop func(), err error) {
	topic := b.cfg.Topics[subject]
	if topic == "" {
		return nil, noTopic(subject)
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	if b.closed {
		return nil, ErrClosed
	}
	limited, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	if err := b.know(limited, topic); err != nil {
		return nil, explain(err, "subscribe to "+topic, toRead(topic))
	}
	ends, err := b.listed(limited, topic, b.admin.ListEndOffsets)
	if err != nil {
		return nil, explain(err, "subscribe to "+topic, toRead(topic))
	}
	if b.tail == nil {
		t, err := b.newTail()
		if err != nil {
			return nil, explain(err, "subscribe to "+topic, toRead(topic))
		}
		b.setTail(t)
	}
	t := b.tail
	l := &listener{subject: subject, topic: topic, queue: newQueue(b.cfg.Workers), from: ends}
	l.queue.eased = t.nudge
	m := newMember(ctx, h)
	l.queue.join(m)
	t.add(l)
	return func() { b.leaveTail(l, m) }, nil
}

func (b *Bus) leaveTail(l *listener, m *member) {
	_ = b.lock(context.Background())
	defer b.unlock()
	l.queue.part(m)
	m.cancel()
	m.running.Wait()
	l.queue.tasks.Wait()
	if t := b.tail; t != nil && t.remove(l) {
		t.close()
		b.setTail(nil)
	}
}

// setTail enters who reads without a group, or takes it out. The caller holds setup.
func (b *Bus) setTail(t *tail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail = t
}

// heard gives the partitions that are read without a group.
func (b *Bus) heard() (all []*partition) {
	b.mu.Lock()
	t := b.tail
	b.mu.Unlock()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, partitions := range t.reading {
		all = slices.AppendSeq(all, maps.Values(partitions))
	}
	return all
}

func (b *Bus) newTail() (*tail, error) {
	t := &tail{
		bus: b, wake: make(chan struct{}, 1),
		listeners: make(map[string][]*listener), reading: make(map[string]map[int32]*partition), paused: make(map[string]bool),
		left: make(map[string]bool),
	}
	asking, giveUp := context.WithCancel(context.Background())
	client, err := kgo.NewClient(slices.Concat(b.options(), fetching(), []kgo.Opt{kgo.WithContext(asking)})...)
	if err != nil {
		giveUp()
		return nil, err
	}
	t.client, t.giveUp = client, giveUp
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.tasks.Go(func() { t.poll(ctx) })
	t.tasks.Go(func() { t.steward(ctx) })
	return t, nil
}

// add lets a listener hear its topic.
func (t *tail) add(l *listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left[l.topic] { // it may have been made anew
		t.client.PurgeTopicsFromConsuming(l.topic)
		delete(t.left, l.topic)
	}
	t.listeners[l.topic] = append(t.listeners[l.topic], l)
	t.readLocked(l.topic, l.from)
}

// readLocked begins with the partitions that are not read yet.
func (t *tail) readLocked(topic string, from map[int32]int64) {
	if t.reading[topic] == nil {
		t.reading[topic] = make(map[int32]*partition)
	}
	fresh := make(map[int32]kgo.Offset)
	for partition, offset := range from {
		if t.reading[topic][partition] == nil {
			t.reading[topic][partition] = newPartition(place{topic, partition})
			fresh[partition] = kgo.NewOffset().At(offset)
		}
	}
	if len(fresh) > 0 {
		t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: fresh})
	}
}

// remove takes a listener out; empty says that nobody is left.
func (t *tail) remove(l *listener) (empty bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(t.listeners[l.topic]), func(o *listener) bool { return o == l })
	if len(left) > 0 {
		t.listeners[l.topic] = left
		t.nudge() // it may have been the one that the others waited for
		return false
	}
	delete(t.listeners, l.topic)
	t.bus.state.forget(tailOf(l.topic))
	partitions := slices.Collect(maps.Keys(t.reading[l.topic]))
	delete(t.reading, l.topic)
	if t.paused[l.topic] {
		delete(t.paused, l.topic)
		t.client.ResumeFetchTopics(l.topic)
	}
	if len(partitions) > 0 {
		t.client.RemoveConsumePartitions(map[string][]int32{l.topic: partitions})
		t.left[l.topic] = true // to forget it waits for brokers, which may say nothing
	}
	return len(t.listeners) == 0
}

func (t *tail) close() {
	t.mu.Lock()
	var all []*listener
	for _, some := range t.listeners {
		all = append(all, some...)
	}
	t.mu.Unlock()
	t.cancel()
	t.bus.part(t.giveUp, func(context.Context) { t.client.Close() })
	t.tasks.Wait()
	for _, l := range all {
		l.queue.disband()
		t.bus.state.forget(tailOf(l.topic))
	}
}

// tailOf names the reading of a topic in the state.
func tailOf(topic string) string { return reading + topic + " without a group" }

func (t *tail) poll(ctx context.Context) {
	for {
		fetches := t.client.PollRecords(ctx, pollRecords)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) { t.failed(ctx, topic, partition, err) })
		fetches.EachPartition(t.take)
	}
}

// failed notes an error that the client cannot get over by itself.
func (t *tail) failed(ctx context.Context, topic string, partition int32, err error) {
	if huge, ok := errors.AsType[*kgo.ErrDecompressTooLarge](err); ok {
		t.bus.cfg.Logger.Error("records left out: a batch is too large when unpacked", "topic", topic, "partition", partition,
			"offset", huge.Offset, "next", huge.NextOffset)
		t.client.SetOffsets(past(huge))
		return
	}
	t.bus.counts.fetchError(topic)
	t.note(topic, explain(err, "consume "+topic, toRead(topic)))
	only := map[string][]int32{topic: {partition}}
	t.client.PauseFetchPartitions(only)
	t.tasks.Go(func() {
		if rested(ctx) {
			t.client.ResumeFetchPartitions(only)
		}
	})
}

// note says how it stands with a topic that somebody listens to still.
func (t *tail) note(topic string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listeners[topic]) > 0 {
		t.bus.state.note(tailOf(topic), err)
	}
}

// take hands the records of one partition to everybody who listens.
func (t *tail) take(fetched kgo.FetchTopicPartition) {
	if len(fetched.Records) > 0 {
		t.note(fetched.Topic, nil)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.listeners[fetched.Topic] {
		var items []item
		for _, r := range fetched.Records {
			if r.Offset >= l.from[r.Partition] {
				items = append(items, item{message: decode(l.subject, r), size: sizeOf(r), done: func() {}})
			}
		}
		l.queue.add(items)
	}
	if full := !t.noMoreLocked(fetched.Topic, t.bus.cfg.OpenRecords-1, t.bus.cfg.OpenBytes-1); full && !t.paused[fetched.Topic] {
		t.paused[fetched.Topic] = true
		t.client.PauseFetchTopics(fetched.Topic)
		t.nudge() // it may have eased already
	}
}

func (t *tail) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// steward lets topics flow again and finds new partitions.
func (t *tail) steward(ctx context.Context) {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			t.ease()
		case <-look.C:
			t.look(ctx)
		}
	}
}

// ease resumes the topics all of whose listeners have worked off half.
func (t *tail) ease() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic := range t.paused {
		if t.noMoreLocked(topic, t.bus.cfg.OpenRecords/2, t.bus.cfg.OpenBytes/2) {
			delete(t.paused, topic)
			t.client.ResumeFetchTopics(topic)
		}
	}
}

// noMoreLocked reports whether no more than that waits for any listener of a topic.
func (t *tail) noMoreLocked(topic string, records int, bytes int64) bool {
	return !slices.ContainsFunc(t.listeners[topic], func(l *listener) bool {
		n, size := l.queue.length()
		return n > records || size > bytes
	})
}

// look begins with partitions that were made since, from their start.
func (t *tail) look(ctx context.Context) {
	t.mu.Lock()
	topics := slices.Collect(maps.Keys(t.listeners))
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	known, err := t.bus.metadata(ctx, topics...)
	if err != nil {
		return // the next look is soon
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic := range t.listeners {
		from := make(map[int32]int64)
		for partition, p := range known.Topics[topic].Partitions {
			if p.Err == nil {
				from[partition] = 0
			}
		}
		t.readLocked(topic, from)
	}
}
