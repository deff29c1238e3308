package kafka

import (
	"context"
	"strings"

	"github.com/parley-project/parley/internal/bus"
)

// Whereabouts says in one line on which cluster and by which topics this process finds the
// others of its database now: who says another one is not heard by it. It is "" where the
// brokers do not say which cluster they are. The words are compared between versions.
func (b *Bus) Whereabouts(ctx context.Context) (string, error) {
	var topics []string
	for _, subject := range []string{bus.SubjectTasks, bus.SubjectRuns, bus.SubjectProgress, bus.SubjectHint, bus.SubjectCancel, bus.SubjectChanged} {
		topics = append(topics, b.cfg.Topics[subject])
	}
	known, err := b.metadata(ctx, topics[0])
	if err != nil || known.Cluster == "" {
		return "", explain(err, "look at the cluster")
	}
	return "Kafka, cluster " + known.Cluster + ", topics " + strings.Join(topics, " "), nil
}
