package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A topic that was deleted and made anew has another id under the same name. The
// client library stays with the one that it knew, and refuses to write and read the
// other one until it is told to forget. What was in the old one is gone; the store
// knows of it, and has it published again.
//
// It is the same when the addresses lead to another cluster, such as a copy that takes
// over. But there a topic has a past, which nobody may act upon again.

// origin says which topic it is that has a name.
type origin struct {
	cluster string // "" where the brokers do not say
	id      kadm.TopicID
}

// elsewhere reports whether the topic is one of another cluster than before.
func (o origin) elsewhere(before origin) bool {
	return o.cluster != before.cluster && o.cluster != "" && before.cluster != ""
}

// remadeLook is how often it is looked whether topics that are read were made anew.
const remadeLook = 5 * time.Second

// noteLimit bounds each question for the id of a topic for which a publication waits.
const noteLimit = 2 * time.Second

// produce writes a record, once: what has failed may be in the log all the same, and
// whoever must not write twice could not tell. Only a batch that is too large is in no log
// for sure; its records are written one by one. A topic that was made anew is forgotten,
// and a client that the brokers refuse replaced, so that the next record gets through.
func (b *Bus) produce(ctx context.Context, r *kgo.Record) error {
	client := b.writer.client()
	before, unsure := b.beforeWritten(ctx, r.Topic)
	err := b.writer.adrift.produceOnce(ctx, client, r)
	switch {
	case err == nil:
		if unsure {
			b.noteWritten(ctx, r.Topic, before)
		}
	case ctx.Err() != nil:
	case tooLarge(err):
		return b.writer.alone(ctx, r)
	case errors.Is(err, kerr.UnknownTopicID):
		b.forgetRemade(ctx, r.Topic)
	default:
		b.writer.renew(ctx, client, err)
	}
	return err
}

// beforeWritten gives the id that a topic has before a record is written to it. unsure is
// false if the id of the one that is written to is known, or is not to be found out now.
func (b *Bus) beforeWritten(ctx context.Context, topic string) (id kadm.TopicID, unsure bool) {
	if _, known := b.written.Load(topic); known || !b.purging.TryLock() {
		return kadm.TopicID{}, false
	}
	defer b.purging.Unlock()
	ctx, cancel := context.WithTimeout(ctx, noteLimit)
	defer cancel()
	return b.topicID(ctx, topic)
}

// noteWritten notes the id of a topic that was written to, if that is the same after as
// before: of one that is made anew meanwhile the client knows the old id. Otherwise the
// next record asks again.
func (b *Bus) noteWritten(ctx context.Context, topic string, before kadm.TopicID) {
	if !b.purging.TryLock() {
		return
	}
	defer b.purging.Unlock()
	ctx, cancel := context.WithTimeout(ctx, noteLimit)
	defer cancel()
	if id, there := b.topicID(ctx, topic); there && id == before {
		b.written.Store(topic, id)
	}
}

// forgetRemade has the publishing client forget a topic that it was refused, if that was
// made anew: all that is under way to any of its partitions fails then, and may be in the
// log. A broker that has just started refuses topics that are as they were, too.
func (b *Bus) forgetRemade(ctx context.Context, topic string) {
	if !b.purging.TryLock() {
		return // somebody looks; who is refused again looks again
	}
	defer b.purging.Unlock()
	id, there := b.topicID(ctx, topic)
	if before, known := b.written.Load(topic); !there || known && before == id {
		return
	}
	b.writer.client().PurgeTopicsFromProducing(topic)
	b.written.Delete(topic)
}

// topicID gives the id of a topic as the brokers know it now, zero where they know no ids.
// It reports whether the topic is there.
func (b *Bus) topicID(ctx context.Context, topic string) (id kadm.TopicID, there bool) {
	asking, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	answer, err := b.metadata(asking, topic)
	if err != nil || answer.Topics[topic].Err != nil {
		return kadm.TopicID{}, false
	}
	return answer.Topics[topic].ID, true
}

// watchTopics has topics that were deleted and made anew read again, until ctx ends.
func (b *Bus) watchTopics(ctx context.Context) {
	tick := time.NewTicker(remadeLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.lookForRemade(ctx)
		}
	}
}

// know notes the id of a topic that is about to be read. The caller holds setup.
func (b *Bus) know(ctx context.Context, topic string) error {
	if _, known := b.ids[topic]; known {
		return nil
	}
	answer, err := b.metadata(ctx, topic)
	if err != nil {
		return err
	}
	d := answer.Topics[topic]
	if denied(d.Err) {
		return d.Err
	}
	b.ids[topic] = origin{answer.Cluster, d.ID}
	return nil
}

// lookForRemade asks once for the topics that this process reads.
func (b *Bus) lookForRemade(ctx context.Context) {
	if b.lock(ctx) != nil {
		return
	}
	topics := b.topicsRead()
	maps.DeleteFunc(b.ids, func(topic string, _ origin) bool { return !slices.Contains(topics, topic) })
	maps.DeleteFunc(b.unplaced, func(topic string, _ bool) bool { return !slices.Contains(topics, topic) })
	b.unlock()
	if len(topics) == 0 {
		return // asked for none, Kafka would tell of all
	}
	asking, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	answer, err := b.metadata(asking, topics...)
	if err != nil || b.lock(ctx) != nil {
		return // the next look is soon
	}
	defer b.unlock()
	if b.closed {
		return
	}
	remade, moved := b.otherTopics(answer, topics)
	for topic, ends := range b.place(asking, moved) {
		now := origin{answer.Cluster, answer.Topics[topic].ID}
		b.cfg.Logger.Warn("the brokers are now those of another Kafka cluster; there a topic is read from the offsets of the group, or as by a new group",
			"topic", topic, "cluster", now.cluster, "before", b.ids[topic].cluster)
		b.ids[topic], remade[topic] = now, ends
	}
	b.readAnew(remade)
}

// place makes sure that groups have places to begin at in topics of another cluster, and
// gives the ends of those where they have. The others are not read, which keeps nobody from
// the rest; the next look is soon. The caller holds setup.
func (b *Bus) place(ctx context.Context, topics []string) (ends map[string]map[int32]int64) {
	type answer struct {
		topic string
		ends  map[int32]int64
		err   error
	}
	answers := make(chan answer, len(topics))
	for _, topic := range topics { // beside each other: one may take all the time that there is
		go func() {
			ends, err := b.anchorAnew(ctx, topic)
			answers <- answer{topic, ends, err}
		}()
	}
	ends = make(map[string]map[int32]int64)
	for range topics {
		a := <-answers
		if a.err != nil {
			b.unplaced[a.topic] = true
			continue
		}
		delete(b.unplaced, a.topic)
		b.forgetReading(a.topic)
		ends[a.topic] = a.ends
	}
	return ends
}

// otherTopics gives those of the topics that are not what they were: remade ones, with
// the places to begin at, and such of another cluster. The caller holds setup.
func (b *Bus) otherTopics(answer kadm.Metadata, topics []string) (remade map[string]map[int32]int64, moved []string) {
	remade = make(map[string]map[int32]int64)
	for _, topic := range topics {
		d, before := answer.Topics[topic], b.ids[topic]
		now := origin{answer.Cluster, d.ID}
		switch {
		case d.Err == nil && d.ID == before.id && b.unplaced[topic]: // they are those of before again
			moved = append(moved, topic)
		case d.Err != nil || d.ID == (kadm.TopicID{}) || d.ID == before.id: // it is not there, or the brokers know no ids
		case before.id == (kadm.TopicID{}):
			b.ids[topic] = now
		case now.elsewhere(before):
			moved = append(moved, topic)
		default:
			b.cfg.Logger.Warn("a topic was deleted and made anew; it is read from its start", "topic", topic)
			b.abandon(topic)
			b.forgetReading(topic)
			b.ids[topic], remade[topic] = now, starts(d)
		}
	}
	return remade, moved
}

// starts are where the partitions of a topic begin that was just made.
func starts(d kadm.TopicDetail) map[int32]int64 {
	from := make(map[int32]int64)
	for partition := range d.Partitions {
		from[partition] = 0
	}
	return from
}

// anchorAnew makes sure that groups have places to begin at in a topic of another cluster,
// as when they subscribed, and gives its ends. Somebody holds setup meanwhile.
func (b *Bus) anchorAnew(ctx context.Context, topic string) (ends map[int32]int64, err error) {
	b.abandon(topic)
	for _, g := range b.list() {
		f := g.feed(topic)
		if f == nil {
			continue
		}
		anchors, err := b.anchor(ctx, f.subject, g.name, true)
		if err != nil {
			g.tellUnread(topic, err)
			return nil, err
		}
		g.anchor(topic, anchors)
		g.hold(topic, anchors)
	}
	return b.listed(ctx, topic, b.admin.ListEndOffsets)
}

// topicsRead are the topics that this process subscribes to. The caller holds setup.
func (b *Bus) topicsRead() []string {
	all := make(map[string]bool)
	for _, g := range b.list() {
		for _, topic := range g.topics() {
			all[topic] = true
		}
	}
	if b.tail != nil {
		for _, topic := range b.tail.topics() {
			all[topic] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// readAnew has everybody who subscribes to these topics read them anew: who has no group
// from the given places, a group from its offsets or anchors, else from their starts. The
// caller holds setup.
func (b *Bus) readAnew(remade map[string]map[int32]int64) {
	for _, g := range b.list() {
		reads := slices.ContainsFunc(g.topics(), func(topic string) bool { return remade[topic] != nil })
		// Who has lost the membership joins anew when it may, and finds the topic then.
		if !reads || g.fenced.Load() {
			continue
		}
		if err := b.rejoin(g); err != nil {
			g.note(explain(err, "group "+g.name))
		}
	}
	for topic, from := range remade {
		if b.tail != nil {
			b.tail.restart(topic, from)
		}
	}
}

func (g *group) topics() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.feeds))
}

// abandon has all groups forget how far a topic was read.
func (b *Bus) abandon(topic string) {
	for _, g := range b.list() {
		if g.feed(topic) != nil {
			g.abandon(topic)
		}
	}
}

// abandon forgets how far a topic was read: none of its offsets is committed any more,
// which could leave out as many records of the one that has its name now.
func (g *group) abandon(topic string) {
	g.mu.Lock()
	maps.DeleteFunc(g.anchors, func(at place, _ int64) bool { return at.topic == topic })
	gone := make(map[string][]int32)
	for at := range g.parts {
		if at.topic == topic {
			gone[topic] = append(gone[topic], at.partition)
		}
	}
	g.mu.Unlock()
	g.end(g.drop(gone))
}

// forgetReading drops what was wrong with a topic that groups read.
func (b *Bus) forgetReading(topic string) {
	for _, g := range b.list() {
		if g.feed(topic) != nil {
			b.state.forget(g.where(topic))
		}
	}
}

func (t *tail) topics() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.listeners))
}

// restart reads a topic from the given places for everybody who listens.
func (t *tail) restart(topic string, from map[int32]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listeners[topic]) == 0 {
		return
	}
	for _, l := range t.listeners[topic] {
		l.from = from
	}
	t.client.RemoveConsumePartitions(map[string][]int32{topic: slices.Collect(maps.Keys(t.reading[topic]))})
	t.client.PurgeTopicsFromConsuming(topic)
	delete(t.reading, topic)
	t.bus.state.forget(tailOf(topic))
	t.readLocked(topic, from)
}
