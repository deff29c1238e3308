package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// assigned begins the ownership of partitions.
func (g *group) assigned(_ context.Context, _ *kgo.Client, got map[string][]int32) {
	g.bus.counts.rebalanced(g.name)
	g.note(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range got {
		for _, p := range partitions {
			at := place{topic, p}
			g.parts[at] = newPartition(at)
		}
	}
}

// begin chooses where partitions begin that the group has no offset for: where
// they ended when this process subscribed, else at their start, since they were
// made since. The others go on from their offset.
func (g *group) begin(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range offsets {
		for p, offset := range partitions {
			at := place{topic, p}
			part := g.parts[at]
			if part == nil {
				part = newPartition(at) // it has moved meanwhile, and nobody looks at this one
			}
			if committed := offset.EpochOffset().Offset; committed >= 0 {
				part.resumeAt(committed)
				continue
			}
			first, ok := g.anchors[at]
			if !ok {
				part.beginFresh()
				continue
			}
			partitions[p] = kgo.NewOffset().At(first)
			part.startAt(first)
			g.nudge()
		}
	}
	g.bus.lookSoon()
	return offsets, nil
}

// revoked ends the ownership of partitions: no handler begins, those that run
// may end, what is done is committed.
func (g *group) revoked(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	parts := g.drop(gone)
	if len(parts) == 0 {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), revokeLimit)
	defer cancel()
	for _, p := range parts {
		p.drain(limit.Done())
	}
	g.committing.Lock()
	defer g.committing.Unlock()
	g.commitLocked(context.Background(), parts, commitLimit)
	g.end(parts)
}

// lost ends the ownership of partitions that others may have already.
func (g *group) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	g.end(g.drop(gone))
}

// drop takes partitions out, so that nothing more of them is taken over.
func (g *group) drop(gone map[string][]int32) []*partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	var parts []*partition
	for topic, partitions := range gone {
		for _, p := range partitions {
			at := place{topic, p}
			if part := g.parts[at]; part != nil {
				parts = append(parts, part)
				delete(g.parts, at)
			}
		}
	}
	return parts
}

// end closes partitions and gives back what they held.
func (g *group) end(parts []*partition) {
	for _, p := range parts {
		held, paused := p.close()
		g.bytes.Add(-held)
		if paused {
			g.paused.Add(-1)
			g.client.ResumeFetchPartitions(p.only())
		}
	}
	g.nudge()
}

// press stops the fetching of a partition that has too much open.
func (g *group) press(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.paused || p.open() < g.bus.cfg.OpenRecords && g.bytes.Load() < g.bus.cfg.OpenBytes {
		return
	}
	p.paused = true
	g.paused.Add(1)
	g.client.PauseFetchPartitions(p.only())
	g.nudge() // it may have eased already
}

// ease lets partitions flow again when half of what is allowed is open.
func (g *group) ease() {
	for _, p := range g.partitions() {
		p.mu.Lock()
		if p.paused && !p.closed && p.open() <= g.bus.cfg.OpenRecords/2 && g.bytes.Load() <= g.bus.cfg.OpenBytes/2 {
			p.paused = false
			g.paused.Add(-1)
			g.client.ResumeFetchPartitions(p.only())
		}
		p.mu.Unlock()
	}
}

func (g *group) partitions() []*partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*partition, 0, len(g.parts))
	for _, p := range g.parts {
		all = append(all, p)
	}
	return all
}

// steward commits, at most once in an interval, and lets partitions flow again.
func (g *group) steward(ctx context.Context) {
	var again <-chan time.Time
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		case <-again:
			again = nil
		}
		if g.paused.Load() > 0 {
			g.ease()
		}
		wait := g.bus.cfg.CommitInterval - g.bus.cfg.Now().Sub(last)
		if wait > 0 {
			if again == nil {
				again = time.After(wait)
			}
			continue
		}
		again = nil
		if left := g.commit(ctx); left {
			again = time.After(g.bus.cfg.CommitInterval)
		}
		last = g.bus.cfg.Now()
	}
}

// commit commits what is due of all partitions, and says whether some of it is left.
func (g *group) commit(ctx context.Context) (left bool) {
	g.committing.Lock()
	defer g.committing.Unlock()
	return g.commitLocked(ctx, g.partitions(), commitLimit)
}

// commitAtEnd commits for the last time. Whether brokers say nothing is asked when a commit
// that is on its way has ended, which may be what shows it.
func (g *group) commitAtEnd() {
	g.committing.Lock()
	defer g.committing.Unlock()
	g.commitLocked(context.Background(), g.partitions(), g.bus.atEnd(commitLimit))
}

// commitLocked commits what is due of some partitions, within limit, and says whether some
// of it is left. The caller holds committing.
func (g *group) commitLocked(ctx context.Context, parts []*partition, limit time.Duration) (left bool) {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	due := make(map[place]*partition)
	for _, p := range parts {
		if at, ok := p.due(); ok {
			if offsets[p.topic] == nil {
				offsets[p.topic] = make(map[int32]kgo.EpochOffset)
			}
			offsets[p.topic][p.partition] = at
			due[p.place] = p
		}
	}
	if len(offsets) == 0 || g.fenced.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The library may wait for a rebalance to pass, and then sends by the new membership what
	// is due: partitions that were lost meanwhile others may have taken further.
	sending := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		leaveOut(req, func(at place) bool { return due[at].lost() })
		return nil
	})
	var failed error
	asked := false
	g.client.CommitOffsetsSync(sending, offsets, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		// While the group shares its partitions out anew the library sends nothing, and waits
		// for that as long as ctx lets it.
		asked = err == nil || req.Group != ""
		if failed = err; err == nil {
			failed, left = g.answered(answer, due, offsets)
		}
	})
	if !asked {
		return true
	}
	g.committed(failed)
	if !errors.Is(ctx.Err(), context.Canceled) { // one that was cut says nothing of the brokers
		g.bus.silent.Store(failed != nil && ctx.Err() != nil)
	}
	return left || failed != nil
}

// answered takes over which offsets were committed. failed is why others were not; left are
// those of topics that are not ours, which keep nobody from the rest.
func (g *group) answered(
	answer *kmsg.OffsetCommitResponse, due map[place]*partition, offsets map[string]map[int32]kgo.EpochOffset,
) (failed error, left bool) {
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			at := place{t.Topic, p.Partition}
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err != nil && ofTopic(err) && g.feed(at.topic).isForeign():
				left = true
				g.tellUncommitted(at.topic, err)
			case err != nil:
				failed = err
			case due[at] != nil:
				due[at].setCommitted(offsets[at.topic][at.partition].Offset)
			}
		}
	}
	return failed, left
}

// tellUncommitted says, now and then, that offsets of somebody else's topic are not committed.
func (g *group) tellUncommitted(topic string, err error) {
	if _, ok := g.bus.repeats.due("offsets of " + topic + " in " + g.name); ok {
		g.bus.cfg.Logger.Warn("offsets of a topic cannot be committed; that is tried again", "topic", topic, "group", g.name,
			"error", explain(err, "commit offsets of "+g.name, toRead(topic)))
	}
}

// leaveOut takes the partitions out of a request of which that is so.
func leaveOut(req *kmsg.OffsetCommitRequest, is func(place) bool) {
	for i := range req.Topics {
		t := &req.Topics[i]
		t.Partitions = slices.DeleteFunc(t.Partitions, func(p kmsg.OffsetCommitRequestTopicPartition) bool {
			return is(place{t.Topic, p.Partition})
		})
	}
	req.Topics = slices.DeleteFunc(req.Topics, func(t kmsg.OffsetCommitRequestTopic) bool { return len(t.Partitions) == 0 })
}

// committed notes how a commit went.
func (g *group) committed(err error) {
	switch {
	case err == nil:
		g.note(nil)
	case errors.Is(err, kerr.FencedInstanceID):
		g.fence(err)
	case errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.UnknownMemberID),
		errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		// It is repeated, or others do the work again.
	default:
		g.note(explain(err, "commit offsets of "+g.name, g.toCommit()...))
	}
}

// toCommit are the rights that a commit takes.
func (g *group) toCommit() []string {
	rights := []string{toJoin(g.name)}
	for _, topic := range g.topics() {
		rights = append(rights, toRead(topic))
	}
	return rights
}

// groupHook hears what ends a group's sessions.
type groupHook struct{ g *group }

// OnGroupManageError implements [kgo.HookGroupManageError].
func (h groupHook) OnGroupManageError(err error) {
	if errors.Is(err, kerr.FencedInstanceID) {
		h.g.fence(err)
		return
	}
	h.g.note(explain(err, "group "+h.g.name, toJoin(h.g.name)))
}
