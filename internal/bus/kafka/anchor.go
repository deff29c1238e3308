package kafka

import (
	"context"
	"errors"
	"maps"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	parley "github.com/parley-project/parley"
)

// balancer is the name under which members of our kind share partitions.
const balancer = "cooperative-sticky"

// anchor makes sure that a group has a place to begin at in a topic: where it
// has no offset at all, the ends of now are committed, or what lies as far before
// them as [Config.Lookback] says, so that what is published from now on is
// delivered even if this process ends before it received anything. What it gives
// are the offsets that only a member may commit, since the group has members.
//
// The ends are asked for before the offsets: another process that subscribes at
// the same time has either committed what is seen here, or was not yet promised
// anything that lies before these ends.
//
// Where a group has some offset the partitions without one are new, unless elsewhere says
// that the topic was one of another cluster before: then others of the group may be at
// the same.
func (b *Bus) anchor(ctx context.Context, subject, group string, elsewhere bool) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	topic := b.topic(subject)
	what := "subscribe to " + topic + " as " + group
	if err := b.sameKind(ctx, group); err != nil {
		return nil, err
	}
	if err := b.know(ctx, topic); err != nil {
		return nil, explain(err, what, toRead(topic), toJoin(group))
	}
	ends, err := b.listed(ctx, topic, b.admin.ListEndOffsets)
	if err != nil {
		return nil, explain(err, what, toRead(topic), toJoin(group))
	}
	known, err := b.committed(ctx, topic, group)
	if err != nil {
		return nil, explain(err, what, toRead(topic), toJoin(group))
	}
	if len(known) > 0 && !elsewhere {
		return nil, nil // partitions without an offset are read from their start
	}
	maps.DeleteFunc(ends, func(partition int32, _ int64) bool { _, ok := known[partition]; return ok })
	if len(ends) == 0 {
		return nil, nil
	}
	if awaited(subject) && b.cfg.Lookback > 0 {
		if err := b.lookBack(ctx, topic, group, ends); err != nil {
			return nil, explain(err, what, toRead(topic), toJoin(group))
		}
	}
	var first kadm.Offsets
	for partition, end := range ends {
		first.AddOffset(topic, partition, end, -1)
	}
	_, err = patiently(ctx, func(ctx context.Context) (struct{}, error) {
		answer, err := b.admin.CommitOffsets(ctx, group, first)
		if err == nil {
			err = answer.Error()
		}
		if errors.Is(err, kerr.RebalanceInProgress) {
			err = kerr.UnknownMemberID // either way others are at work
		}
		return struct{}{}, err
	})
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) {
		return ends, nil
	}
	return nil, explain(err, what, toRead(topic), toJoin(group))
}

// lookBack sets the places to begin at to the first records that are no older than
// the configuration says.
func (b *Bus) lookBack(ctx context.Context, topic, group string, ends map[int32]int64) error {
	since := b.cfg.Now().Add(-b.cfg.Lookback)
	from, err := b.listed(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return b.admin.ListOffsetsAfterMilli(ctx, since.UnixMilli(), topics...)
	})
	if err != nil {
		return err
	}
	before := int64(0)
	for partition, end := range ends {
		// Where there is none it is the end, perhaps a later one than that.
		if at, ok := from[partition]; ok && at >= 0 && at < end {
			before += end - at
			ends[partition] = at
		}
	}
	if before > 0 {
		b.cfg.Logger.InfoContext(ctx, "a new group begins with records that are there already", "event", "kafka_lookback",
			"group", group, "topic", topic, "records", before, "since", since)
	}
	return nil
}

// describe gives a group as the brokers know it; one that they do not know has no
// members.
func (b *Bus) describe(ctx context.Context, group string) (kadm.DescribedGroup, error) {
	described, err := b.admin.DescribeGroups(ctx, group)
	if err == nil {
		err = described[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return kadm.DescribedGroup{Group: group}, nil
	}
	return described[group], err
}

// sameKind refuses a group whose members share partitions in another way: the
// bridge of the existing platform, say.
func (b *Bus) sameKind(ctx context.Context, group string) error {
	g, err := patiently(ctx, func(ctx context.Context) (kadm.DescribedGroup, error) { return b.describe(ctx, group) })
	if err != nil {
		return explain(err, "look at the group "+group, toJoin(group))
	}
	if len(g.Members) == 0 || g.Protocol == "" || g.Protocol == balancer {
		return nil
	}
	m := g.Members[0]
	return parley.Errorf(parley.CodeConflict, "Kafka: the group %s is in use by %s at %s (%d members, protocol %s): %s",
		group, m.ClientID, m.ClientHost, len(g.Members), g.Protocol, alienAdvice)
}

// patiently repeats a question while the brokers cannot answer yet: they say so,
// as after their start or while leaders move, or one of them cannot be reached,
// whose partitions others will lead. A topic that nobody knows gets a second: it
// may just have been made. When the time is up the error is what they have said last,
// if they have said anything.
func patiently[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	wait := 100 * time.Millisecond
	var said error
	for unknown := 0; ; wait = min(2*wait, time.Second) {
		answer, err := ask(ctx)
		if said != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return answer, said
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			unknown++
		}
		if err == nil || !mayPass(err) || unknown > 3 {
			return answer, err
		}
		said = err
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(wait):
		}
	}
}

func mayPass(err error) bool {
	wire, ok := errors.AsType[*net.OpError](err)
	return kerr.IsRetriable(err) || ok && wire.Op == "dial"
}

// listed gives the start or end offsets of all partitions of a topic.
func (*Bus) listed(
	ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error),
) (map[int32]int64, error) {
	answer, err := patiently(ctx, func(ctx context.Context) (kadm.ListedOffsets, error) {
		l, err := list(ctx, topic)
		if err == nil {
			err = l.Error()
		}
		if err == nil && len(l[topic]) == 0 {
			err = kerr.UnknownTopicOrPartition
		}
		return l, err
	})
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64)
	for partition, o := range answer[topic] {
		offsets[partition] = o.Offset
	}
	return offsets, nil
}

// committed gives the offsets that a group has committed in a topic.
func (b *Bus) committed(ctx context.Context, topic, group string) (map[int32]int64, error) {
	answer, err := patiently(ctx, func(ctx context.Context) (kadm.OffsetResponses, error) {
		o, err := b.admin.FetchOffsetsForTopics(ctx, group, topic)
		if err == nil {
			err = o.Error()
		}
		return o, err
	})
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64)
	for partition, o := range answer[topic] {
		if o.At >= 0 {
			offsets[partition] = o.At
		}
	}
	return offsets, nil
}

// EndOffsets gives the end of each partition of a subject's topic: the offset
// that the next record will have.
func (b *Bus) EndOffsets(ctx context.Context, subject string) (map[int32]int64, error) {
	topic := b.topic(subject)
	if topic == "" {
		return nil, noTopic(subject)
	}
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	ends, err := b.listed(ctx, topic, b.admin.ListEndOffsets)
	return ends, explain(err, "ends of "+topic, toSee(topic))
}

// CaughtUp says whether a group has acknowledged everything of a subject up to
// the given ends, which [Bus.EndOffsets] gave earlier (protocol §4.12). Records
// that the topic no longer keeps count as acknowledged.
func (b *Bus) CaughtUp(ctx context.Context, subject, group string, ends map[int32]int64) (bool, error) {
	topic := b.topic(subject)
	if topic == "" {
		return false, noTopic(subject)
	}
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	what := "offsets of " + group + " in " + topic
	done, err := b.committed(ctx, topic, group)
	if err != nil {
		return false, explain(err, what, toRead(topic), toJoin(group))
	}
	behind := false
	for partition, end := range ends {
		behind = behind || done[partition] < end
	}
	if !behind {
		return true, nil
	}
	starts, err := b.listed(ctx, topic, b.admin.ListStartOffsets)
	if err != nil {
		return false, explain(err, what, toRead(topic), toJoin(group))
	}
	now, err := b.listed(ctx, topic, b.admin.ListEndOffsets)
	if err != nil {
		return false, explain(err, what, toRead(topic), toJoin(group))
	}
	for partition, end := range ends {
		// A topic that was made anew since ends earlier.
		if max(done[partition], starts[partition]) < min(end, now[partition]) {
			return false, nil
		}
	}
	return true, nil
}
