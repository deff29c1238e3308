package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
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

// LedgerlessSubjects are those of the topics that a bridge without a ledger uses, for
// [KafkaConfig].
func LedgerlessSubjects() []string {
	return []string{bus.SubjectTasks, bus.SubjectResults, bus.SubjectDeadLetters}
}

// RequestsSubjects are those of the topics that processes use which take requests to
// start and cancel runs from topics, for [KafkaConfig].
func RequestsSubjects() []string {
	return append(usualSubjects(), bus.SubjectMonitoring, bus.SubjectStartRequests, bus.SubjectCancelRequests)
}

func usualSubjects() []string {
	return []string{
		bus.SubjectTasks, bus.SubjectResults, bus.SubjectRuns, bus.SubjectProgress, bus.SubjectHint, bus.SubjectCancel, bus.SubjectChanged,
		bus.SubjectDeadLetters,
	}
}

// subscribed are the subjects that this process listens to: without their topics it
// cannot begin.
func (c Config) subscribed() []string {
	var all []string
	if c.has(RoleBridge) {
		all = append(all, bus.SubjectTasks)
	}
	if c.NoLedger {
		return all
	}
	if c.has(RoleBridge) {
		all = append(all, bus.SubjectCancel, bus.SubjectHint)
	}
	if c.shared() {
		all = append(all, bus.SubjectChanged)
	}
	if !c.has(RoleExecutor) {
		return all
	}
	all = append(all, bus.SubjectRuns, bus.SubjectProgress)
	if c.OldBridge {
		all = append(all, bus.SubjectResults)
	}
	if c.Requests {
		all = append(all, bus.SubjectStartRequests, bus.SubjectCancelRequests)
	}
	return all
}

// used are the subjects that the processes of this configuration have to do with.
func (c Config) used() []string {
	if c.NoLedger {
		return LedgerlessSubjects()
	}
	if c.Requests {
		return RequestsSubjects()
	}
	return usualSubjects()
}

// Written are the subjects that this process publishes and others wait for, for
// [KafkaConfig].
func (c Config) Written() []string {
	all := make(map[string]bool)
	add := func(subjects ...string) {
		for _, s := range subjects {
			all[s] = true
		}
	}
	if c.has(RoleBridge) {
		add(bus.SubjectResults)
	}
	if c.has(RoleBridge) && !c.NoLedger {
		add(bus.SubjectRuns, bus.SubjectProgress)
	}
	if c.has(RoleAPI) || c.has(RoleExecutor) {
		add(bus.SubjectRuns, bus.SubjectHint, bus.SubjectCancel)
	}
	if c.has(RoleExecutor) {
		add(bus.SubjectTasks)
	}
	if c.has(RoleExecutor) && c.shared() {
		add(bus.SubjectChanged)
	}
	return slices.Sorted(maps.Keys(all))
}

// topicsWithin bounds the look at the topics of a process that starts.
const topicsWithin = 5 * time.Second

// lookAtTopics refuses to begin without a topic that this process listens to, and
// warns of what is wrong with those that it uses.
func (s *Server) lookAtTopics(ctx context.Context) error {
	missing, err := s.kafka.Missing(ctx, s.cfg.subscribed()...)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return parley.Errorf(parley.CodeNotFound, "Kafka has no topic %s: make what is missing with `parley topics create`, or name others in bus.kafka.topics",
			strings.Join(missing, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, topicsWithin)
	defer cancel()
	report, err := s.kafka.CheckTopics(ctx)
	if err != nil {
		s.log.Warn("the settings of Kafka's topics could not be looked at; parley topics check does so again", "error", err)
		return nil
	}
	for _, t := range report.Topics {
		for _, f := range t.Findings {
			said := "a topic of Kafka is not as it should be"
			if f.Unchecked {
				said = "a topic of Kafka could not be checked"
			}
			s.log.Warn(said, "topic", t.Plan.Topic, "finding", f.Text)
		}
	}
	return nil
}
