package kafka

import (
	"maps"
	"slices"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// topic gives the topic of a subject: of ours, or of one that is itself a topic
// ([bus.TopicSubject]); "" for an unknown one.
func (b *Bus) topic(subject string) string {
	if topic, ok := bus.TopicOf(subject); ok {
		return topic
	}
	return b.cfg.Topics[subject]
}

// Foreign is an error if a topic is one of ours: what travels there is made by
// what its records would start.
func (b *Bus) Foreign(topic string) error {
	if slices.Contains(slices.Collect(maps.Values(b.cfg.Topics)), topic) {
		return parley.Errorf(parley.CodeInvalid, "the topic %s is one that Parley itself uses (bus.kafka.topics)", topic)
	}
	return nil
}

// isForeign says whether a feed is of such a topic: that something is wrong with
// it keeps nobody from the rest.
func (f *feed) isForeign() bool {
	if f == nil {
		return false
	}
	_, ok := bus.TopicOf(f.subject)
	return ok
}
