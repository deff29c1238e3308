package kafka

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// lagLimit bounds one look at the ends of the partitions of this process.
const lagLimit = 5 * time.Second

// watchLag asks for the ends of the partitions of this process, regularly and when it
// got some, until ctx ends: what is fetched says nothing of a partition that is
// paused, or that nothing comes from.
func (b *Bus) watchLag(ctx context.Context) {
	tick := time.NewTicker(b.cfg.LagInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.gained:
		}
		b.lookAtLag(ctx)
	}
}

// lookSoon asks for a look at the ends. It does not wait.
func (b *Bus) lookSoon() {
	select {
	case b.gained <- struct{}{}:
	default:
	}
}

// lookAtLag asks once. What cannot be had stays as it was seen last: whether Kafka
// answers is for [Bus.Health] to say.
func (b *Bus) lookAtLag(ctx context.Context) {
	parts := b.heard()
	for _, g := range b.list() {
		parts = append(parts, g.partitions()...)
	}
	ctx, cancel := context.WithTimeout(ctx, lagLimit)
	defer cancel()
	before := make(map[*partition]int64)
	for _, p := range parts {
		before[p] = p.knownEnd()
	}
	b.tellOffsets(ctx, parts, b.admin.ListEndOffsets, func(p *partition, end int64) { p.listedEnd(end, before[p]) })
	b.lookForHeld(ctx, parts) // after the ends
	b.tellOffsets(ctx, slices.DeleteFunc(parts, func(p *partition) bool { return !p.startTells() }), b.admin.ListStartOffsets, (*partition).sawStart)
}

// tellOffsets tells partitions their ends, or starts.
func (b *Bus) tellOffsets(
	ctx context.Context, parts []*partition, list func(context.Context, ...string) (kadm.ListedOffsets, error), tell func(*partition, int64),
) {
	topics := make(map[string]bool)
	for _, p := range parts {
		topics[p.topic] = true
	}
	if len(topics) == 0 {
		return // asked for none, Kafka would tell of all
	}
	listed, err := list(ctx, slices.Sorted(maps.Keys(topics))...)
	if err != nil && ctx.Err() == nil {
		b.cfg.Logger.DebugContext(ctx, "the lag is not known anew", "error", err)
	}
	for _, p := range parts { // of some brokers there may be an answer all the same
		if o, ok := listed.Lookup(p.topic, p.partition); ok && o.Err == nil && o.Offset >= 0 {
			tell(p, o.Offset)
		}
	}
}
