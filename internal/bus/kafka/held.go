package kafka

import (
	"cmp"
	"context"
	"slices"
	"time"

	parley "github.com/parley-project/parley"
)

// heldPatience is for how long a transaction of somebody else may hold a partition back
// before that is a trouble: a producer that is well ends it within a minute, by the
// defaults of Kafka's clients.
const heldPatience = 2 * time.Minute

// lookForHeld looks for partitions that cannot be read to their end, because a
// transaction is open there: nobody gets what comes after its first record, and nothing
// else would say so. The ends have to be asked for before.
func (b *Bus) lookForHeld(ctx context.Context, parts []*partition) {
	behind := slices.DeleteFunc(slices.Clone(parts), func(p *partition) bool {
		lag, known := p.lag()
		return known && lag == 0
	})
	slices.SortFunc(behind, func(a, b *partition) int { return cmp.Compare(a.partition, b.partition) }) // the first is told
	now := b.cfg.Now()
	b.tellOffsets(ctx, behind, b.admin.ListCommittedOffsets, func(p *partition, stable int64) { p.sawStable(stable, now) })
	held := make(map[string]error)
	for _, p := range behind {
		if stable, since := p.heldBack(); !since.IsZero() && now.Sub(since) >= heldPatience && held[p.topic] == nil {
			held[p.topic] = parley.Errorf(parley.CodeUnavailable, "a transaction of another producer, open since %s or before, holds partition %d back at offset %d: "+
				"what comes after is read when it ends; if its producer is gone, end it with: kafka-transactions.sh --bootstrap-server BROKER abort --topic %s --partition %[2]d --start-offset %[3]d",
				since.UTC().Format(time.RFC3339), p.partition, stable, p.topic)
		}
	}
	b.state.noteAll(holding, held)
}

// sawStable notes up to where a partition can be read.
func (p *partition) sawStable(stable int64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stable >= p.end {
		p.stableSince = time.Time{}
		return
	}
	if p.stableSince.IsZero() || stable != p.stable {
		p.stable, p.stableSince = stable, now
	}
}

// heldBack gives the offset at which a transaction holds the partition back, and since
// when it was seen to do so; no time if none does.
func (p *partition) heldBack() (stable int64, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, time.Time{}
	}
	return p.stable, p.stableSince
}
