package server

import (
	"context"
	"errors"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// KafkaConfig and KafkaSASL are the settings of the bus, for programs that know
// a server only.
type (
	KafkaConfig = kafka.Config
	KafkaSASL   = kafka.SASL
)

// TopicNames are the names of Kafka's topics; what is "" has its default.
type TopicNames struct {
	Tasks, Results, Monitoring, ExecutionRequests, CancellationRequests string
	Runs, Progress, Hints, Cancels, Changes, DeadLetters                string
}

// KafkaTopics gives the topics by their subjects, for [KafkaConfig].
func KafkaTopics(n TopicNames) map[string]string {
	topics := map[string]string{
		bus.SubjectTasks: n.Tasks, bus.SubjectResults: n.Results, bus.SubjectMonitoring: n.Monitoring,
		bus.SubjectStartRequests: n.ExecutionRequests, bus.SubjectCancelRequests: n.CancellationRequests,
		bus.SubjectRuns: n.Runs, bus.SubjectProgress: n.Progress, bus.SubjectHint: n.Hints, bus.SubjectCancel: n.Cancels,
		bus.SubjectChanged: n.Changes, bus.SubjectDeadLetters: n.DeadLetters,
	}
	for subject, topic := range topics {
		if topic == "" {
			delete(topics, subject)
		}
	}
	return topics
}

// TopicsReport is what was found of the topics.
type TopicsReport = kafka.Report

// CreateTopics makes the topics that are missing and looks at all of them.
func CreateTopics(ctx context.Context, cfg KafkaConfig) (TopicsReport, error) {
	return withKafka(ctx, cfg, (*kafka.Bus).CreateTopics)
}

// CheckTopics looks at all topics and changes nothing.
func CheckTopics(ctx context.Context, cfg KafkaConfig) (TopicsReport, error) {
	return withKafka(ctx, cfg, (*kafka.Bus).CheckTopics)
}

func withKafka(ctx context.Context, cfg KafkaConfig, do func(*kafka.Bus, context.Context) (TopicsReport, error)) (_ TopicsReport, err error) {
	b, err := kafka.New(ctx, cfg)
	if err != nil {
		return TopicsReport{}, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return do(b, ctx)
}
